"""Figures as SVG inside the page, whose policy allows no style attributes; points say what they show."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

import matplotlib as mpl
import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator

from cxrbench.paper import figures
from cxrbench.paper.items import Item
from cxrbench.paper.results import Results

# Ids are hashes of the content with a fixed salt, and no date is written: the same bytes every time.
_SVG: Any = {"svg.hashsalt": "cxrbench", "svg.fonttype": "none", "path.simplify_threshold": 0.4}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
_LONG_NUMBER = re.compile(r"\d+\.\d{3,}")
NARROW = 3.4  # inches of a figure on a phone
# The font that page.css names first: what a reader has instead is no wider, so labels have room.
STYLE = figures.STYLE | {"font.family": "DejaVu Sans", "mathtext.fontset": "dejavusans"}
STYLE |= dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 7)
STYLE |= dict.fromkeys(("font.size", "axes.labelsize", "figure.labelsize"), 8)
# As they are there too: panels that belong side by side, and what takes a second to draw.
_WIDE = ("cells", "samples", "labels", "throughput")
_MARK = "mark"  # begins the ids of what has words


@dataclass(frozen=True)
class PageFigure:
    """A figure with its caption, as it is drawn for a screen and for a phone."""

    item: Item
    caption: str
    picture: Markup
    narrow: Markup | None = None


def page_figures(
    read: Results, shown: Mapping[str, Item], captions: Mapping[str, str]
) -> dict[str, PageFigure]:
    """Draw the figures that are shown, by their names, and again those that a phone needs narrower."""
    drawn = {
        item.name: PageFigure(item, captions[item.name], picture(figure, item.name, item.alt))
        for item, figure in figures.drawn_figures(read, shown.values(), style=STYLE)
    }
    narrow_items = [item for item in shown.values() if item.name not in _WIDE]
    for item, figure in figures.drawn_figures(read, narrow_items, NARROW, STYLE):
        narrow = picture(figure, f"{item.name}-narrow", item.alt)
        drawn[item.name] = replace(drawn[item.name], narrow=narrow)
    return drawn


def picture(figure: Figure, name: str, alt: str) -> Markup:
    """``figure`` as an SVG element with ``alt``; ``name`` begins its ids, which are the page's only ones."""
    data_by_id = {f"{_MARK}{number}": data for number, data in enumerate(_data_of(figure))}
    one_by_one = _has_whole_series(figure, data_by_id.values())
    for element_id, drawn in data_by_id.items():
        drawn.artist.set_gid(element_id)
    svg = io.StringIO()
    with mpl.rc_context(_SVG):
        if engine := figure.get_layout_engine():  # once, for the box and the picture
            engine.execute(figure)
        box = figure.get_tightbbox().padded(0.05)
        figure.set_layout_engine("none")
        figure.savefig(svg, format="svg", metadata=_NO_METADATA, bbox_inches=box)
    root = ET.fromstring(_UNSEEN.sub("\ufffd", svg.getvalue()))
    _plain(root, name)
    for group in root.iter("g"):
        if data := data_by_id.get(group.attrib.pop("id", "")):
            if data.series and one_by_one:
                group.set("data-series", data.series)
            _add_titles(group, data.titles)
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    root.attrib.clear()
    size = {"width": f"{width * 4 / 3:.0f}", "height": f"{height * 4 / 3:.0f}"}
    root.attrib |= {
        "role": "img",
        "aria-label": alt,
        "viewBox": f"{left:g} {top:g} {width:.2f} {height:.2f}",
    } | size
    return Markup(ET.tostring(root, encoding="unicode"))


def _with_two_decimals(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}"


def _plain(root: ET.Element, name: str) -> None:
    """Take namespaces, styles and unused ids out of an SVG, with two decimals in numbers."""
    used_ids: set[str] = set()
    for parent in [*root.iter()]:
        for child in [*parent]:
            if child.tag.endswith("}style") or child.tag.endswith("}metadata"):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.partition("}")[2]
        element.text, element.tail = (element.text or "").strip(), ""
        attributes = {key.partition("}")[2] or key: value for key, value in element.attrib.items()}
        styles = (style.partition(":") for style in attributes.pop("style", "").split(";") if style)
        attributes |= {key.strip(): value.strip() for key, _, value in styles}
        attributes.pop("font-family", None)  # that of page.css
        for key, value in attributes.items():
            if key in ("d", "x", "y", "transform", "points"):
                attributes[key] = _LONG_NUMBER.sub(_with_two_decimals, " ".join(value.split()))
            elif key == "href" and value.startswith("#"):
                attributes[key] = f"#{name}-{value[1:]}"
                used_ids.add(value[1:])
            elif link := re.fullmatch(r"url\(#(.*)\)", value):
                attributes[key] = f"url(#{name}-{link[1]})"
                used_ids.add(link[1])
        if attributes.get("transform", "").startswith("rotate(-0 "):
            del attributes["transform"]
        element.attrib.clear()
        element.attrib |= attributes
    for element in root.iter():
        element_id = element.attrib.get("id", "")
        if element_id in used_ids:
            element.attrib["id"] = f"{name}-{element_id}"
        elif element_id and not element_id.startswith(_MARK):
            del element.attrib["id"]


def _add_titles(group: ET.Element, titles: list[str]) -> None:
    """Give every point or line of a group its title, if there are as many."""
    definitions = {id(element) for defs in group.iter("defs") for element in defs.iter()}
    points = [*group.iter("use")] or [path for path in group.iter("path") if id(path) not in definitions]
    if len(points) == len(titles):
        for point, title in zip(points, titles, strict=True):
            if title:
                ET.SubElement(point, "title").text = title


class _Data(NamedTuple):
    """What is drawn from data: its ``series``, as a legend calls it, and the words of each point."""

    artist: Any
    series: str
    titles: list[str]


def _data_of(figure: Figure) -> Iterator[_Data]:
    """Yield what a figure draws from data."""
    for axes in figure.axes:
        series_by_colour, scales = _legend_of(figure), _Scales(axes)
        lines = (line for line in axes.lines if np.size(line.get_xydata()))  # others head parts of a legend
        for artist in (*lines, *axes.collections):
            series = _own_name(artist) or series_by_colour.get(_colour(artist), "")
            if titles := scales.points(artist, series):
                yield _Data(artist, series, titles)
        for container in axes.containers:  # bars that lie
            for bar in getattr(container, "patches", []):
                series = _own_name(container) or series_by_colour.get(_colour(bar), "")
                place = scales.word("y", bar.get_y() + bar.get_height() / 2)
                yield _Data(bar, series, [_joined(series, place, f"{bar.get_width():.3g}")])


def _has_whole_series(figure: Figure, data: Iterable[_Data]) -> bool:
    """Whether all that is drawn of a series is known to be its own, so that it can be shown alone."""
    intervals = [drawn.series for drawn in data if isinstance(drawn.artist, LineCollection)]
    shared = {colour for colour, name in _legend_of(figure).items() if not name}  # by several series
    drawn = (artist for axes in figure.axes for artist in (*axes.lines, *axes.collections))
    return all(intervals) and all(_own_name(artist) or _colour(artist) not in shared for artist in drawn)


def _own_name(artist: Any) -> str:
    name = str(artist.get_label()).removeprefix("_of ")  # of what is in no legend
    return "" if name.startswith("_") else name


def _joined(*words: str) -> str:
    return " · ".join(filter(None, words))


def _colour(artist: Any) -> str:
    """The colour of a line, of points or of a bar; empty where an artist has several."""
    if isinstance(artist, Line2D | LineCollection):
        colours = to_rgba_array(artist.get_color())
    else:
        colours = to_rgba_array(artist.get_facecolor())
    distinct = {to_hex(colour) for colour in colours}
    return distinct.pop() if len(distinct) == 1 else ""


def _legend_of(figure: Figure) -> dict[str, str]:
    """What the legends call each colour; nothing for a colour of several names."""
    names: dict[str, str] = {}
    for legend in filter(None, (*figure.legends, *(axes.get_legend() for axes in figure.axes))):
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            colour, name = _colour(handle), text.get_text()
            names[colour] = name if names.get(colour, name) == name else ""
    return names


class _Scales:
    """What points of ``axes`` are called: by the names on an axis, else by its label and their values."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._panel = " ".join(axes.get_title().split())
        self._names = {"x": _names(axes.xaxis), "y": _names(axes.yaxis)}
        bold = (text for text in axes.texts if text.get_fontweight() == "bold")
        self._headings = [(text.get_position()[1], text.get_text()) for text in bold]

    def points(self, artist: Any, series: str) -> list[str]:
        """The words of each point or interval of an artist in the order in which it draws them; of a line
        without points its series. Empty where there is nothing to say."""
        if isinstance(artist, LineCollection):
            places = [self._interval(segment) for segment in artist.get_segments() if len(segment)]
        elif isinstance(artist, PathCollection):
            places = self._places(artist.get_offsets())
        elif not isinstance(artist, Line2D) or artist.get_transform() != self._axes.transData:
            return []
        elif artist.get_marker() in ("None", "", None):
            places = [""] if series else []
        else:
            places = self._places(artist.get_xydata())
        return [_joined(self._panel, series, place) for place in places]

    def word(self, axis: str, value: float) -> str:
        """The name that stands at a value of an axis of names, else the label of the axis and the value."""
        if names := self._names[axis]:
            nearest = min(names, key=lambda position: abs(position - value))
            if abs(nearest - value) <= 0.5:
                above = [heading for y, heading in self._headings if axis == "y" and y <= value]
                return _joined(*above[-1:], names[nearest])
        label = self._axes.get_xlabel() if axis == "x" else self._axes.get_ylabel()
        return f"{' '.join(label.split())} {value:.4g}".strip()

    def _places(self, points: Any) -> list[str]:
        finite = (point for point in np.asarray(points, float) if np.isfinite(point).all())
        return [f"{self.word('y', y)}, {self.word('x', x)}" for x, y in finite]

    def _interval(self, segment: Any) -> str:
        """Where an interval along an axis stands, and from where to where it goes."""
        (x, y), (to_x, to_y) = segment[0], segment[-1]
        if y == to_y:
            return f"{self.word('y', y)}, {self.word('x', x)} to {to_x:.4g}"
        return f"{self.word('x', x)}, {self.word('y', y)} to {to_y:.4g}" if x == to_x else ""


def _names(axis: Axis) -> dict[float, str]:
    """The names that stand on an axis, by their places; nothing for an axis of numbers."""
    if not isinstance(axis.get_major_locator(), FixedLocator):
        return {}
    ticks = [float(tick) for tick in axis.get_majorticklocs()]
    labels = [" ".join(label.split()) for label in axis.get_major_formatter().format_ticks(ticks)]
    names = {tick: label for tick, label in zip(ticks, labels, strict=True) if label}
    return {} if any(re.fullmatch(r"[\d.]+", name) for name in names.values()) else names
