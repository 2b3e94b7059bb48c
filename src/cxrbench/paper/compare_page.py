"""A comparison of two sets of runs as a picture, and as a page in a single file.

The page needs nothing from the network. Its picture takes the colours of the page, so that it is readable in
dark mode too, and keeps its letters as text. No date is written: the same comparison gives the same bytes.
"""

from __future__ import annotations

import io
import shlex
from collections.abc import Sequence
from html import escape
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

import matplotlib as mpl
import matplotlib.ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cxrbench.common.errors import UserError
from cxrbench.common.files import written_aside
from cxrbench.statistics import compare_words as words
from cxrbench.statistics.comparison import MEAN_NAMES, Comparison
from cxrbench.statistics.components import Verdict

_PLOT_SUFFIXES = (".png", ".pdf", ".svg")
_WIDTH, _ROW, _BESIDE = 4.2, 0.22, 0.75  # inches: of the picture, of a row, of axis and legend
_LONGEST = 22  # characters of a name
_COLOURS = {"ink": "#1b1f24", "mark": "#0a56a8", "band": "#dfe7f1"}
_PLACES = {"ink": "currentColor", "mark": "var(--mark)", "band": "var(--band)"}  # of the page's own
_MARKERS: dict[str, dict[str, Any]] = {  # by verdict
    Verdict.EQUIVALENT: {"marker": "o"},
    Verdict.INSIDE: {"marker": "o"},
    Verdict.DIFFERENT: {"marker": "D"},
    Verdict.OUTSIDE: {"marker": "D"},
    Verdict.INCONCLUSIVE: {"marker": "o", "markerfacecolor": "none"},
}
_STYLE: Any = {
    "font.size": 9,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "cxrbench",
    "text.color": _COLOURS["ink"],
    "axes.labelcolor": _COLOURS["ink"],
    "axes.edgecolor": _COLOURS["ink"],
    "xtick.color": _COLOURS["ink"],
    "ytick.color": _COLOURS["ink"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_SHAPES = "Filled circle: equivalent. Open circle: inconclusive. Diamond: different."
_SHAPES_OF_REFERENCE = "Circle: inside. Diamond: outside."
_BAND = "Shaded: the margin."


def must_be_picture(path: Path) -> None:
    """Raise UserError for a file that is named as no picture that :func:`write_plot` writes."""
    if path.suffix.lower() not in _PLOT_SUFFIXES:
        raise UserError(f"--plot {path}: name a file that ends in {', '.join(_PLOT_SUFFIXES)}")


def write_plot(comparison: Comparison, path: Path) -> None:
    """Write the picture: an interval for each mean and finding, and the variance by source below."""
    must_be_picture(path)
    rows, variance = _drawn_rows(comparison), comparison.variance
    heights = [_ROW * len(rows) + _BESIDE, *([_ROW * len(variance) + _BESIDE] if variance else [])]
    with mpl.rc_context(_STYLE | {"svg.fonttype": "path"}):
        figure = Figure((_WIDTH, sum(heights)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
        _forest(axes[0], comparison, rows)
        axes[0].set_title(
            f"{_SHAPES_OF_REFERENCE if comparison.reference else _SHAPES}", fontsize=6.5, loc="left"
        )
        if variance:
            names = [row["source"] for row in variance]
            axes[1].barh(names, [row["fraction"] or 0 for row in variance], 0.6, color=_COLOURS["mark"])
            axes[1].invert_yaxis()
            axes[1].set(
                xlim=(0, 1),
                xlabel=f"fraction of the variance of {words.name_of(comparison.main)}'s difference",
            )
            axes[1].xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, 0))
            axes[1].tick_params(axis="y", length=0)
        with written_aside(path) as aside:
            kind = path.suffix.lower().removeprefix(".")
            dateless = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
            figure.savefig(aside, format=kind, dpi=200, metadata=dateless)


def _drawn_rows(comparison: Comparison) -> list[dict[str, Any]]:
    """The rows of a forest plot: those of the main row's metric."""
    return [row for row in comparison.rows if row["metric"] == comparison.main["metric"]]


def _name(row: dict[str, Any]) -> str:
    """A row's name beside its interval, cut where it is long."""
    single = row["label"] and (row["label"], row["metric"]) not in MEAN_NAMES
    name = row["label"] if single else words.name_of(row)
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _forest(axes: Axes, comparison: Comparison, rows: Sequence[dict[str, Any]]) -> None:
    """Draw each row's difference with its 95 % interval, the 90 % one thicker, over its margin."""
    axes.axvline(0, color=_COLOURS["ink"], linewidth=0.6)
    for place, row in enumerate(rows):
        if row["margin"]:
            axes.barh(place, 2 * row["margin"], 1, -row["margin"], color=_COLOURS["band"], zorder=0)
        for level, width in ((95, 0.8), (90, 2.2)):
            if (low := row[f"ci{level}_low"]) is not None:
                axes.plot([low, row[f"ci{level}_high"]], [place] * 2, color=_COLOURS["mark"], lw=width)
        if row["difference"] is not None:
            shape = _MARKERS.get(row["verdict"], {"marker": "x"})
            axes.plot(row["difference"], place, color=_COLOURS["mark"], markersize=4, **shape)
    axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(mpl.ticker.MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel("run - mean of the reference" if comparison.reference else "A - B")


def write_comparison(comparison: Comparison, path: Path, sources: Sequence[str], options: str = "") -> None:
    """Write the page; ``sources`` and ``options`` are those of the command, for its reader."""
    head, lines = words.shown_table(comparison)
    answer, grounds = words.verdict_and_grounds(comparison)
    main = comparison.main
    values = {
        "title": f"{answer}: {' against '.join(sources)}",
        "verdict": main["verdict"],
        "answer": answer,
        "sentence": grounds[0].upper() + grounds[1:],
        "sides": "".join(
            f"<li><b>{side}</b>: <code>{escape(source)}</code></li>"
            for side, source in zip("AB", sources, strict=False)
        )
        if len(sources) > 1
        else f"<li><code>{escape(sources[0])}</code></li>",
        "notes": "".join(f"<li>{escape(note)}</li>" for note in comparison.notes),
        "forest": _inline(comparison),
        "caption": " ".join(
            [
                "Each line is a 95 % interval, thicker within the 90 % one.",
                *([_SHAPES_OF_REFERENCE] if comparison.reference else [_SHAPES, _BAND]),
            ]
        ),
        "variance": _bars(comparison),
        "head": "".join(f'<th scope="col">{escape(name)}</th>' for name in head),
        "rows": "".join(_row(head, line) for line in lines),
        "report": escape(words.sentence_for_a_paper(comparison)),
        "command": escape(f"cxrbench compare {shlex.join(sources)}{options}"),
        "version": version("cxrbench"),
    }
    unescaped = ("sides", "notes", "forest", "variance", "head", "rows", "report", "command")
    template = Template(
        resources.files("cxrbench.paper").joinpath("compare.html").read_text(encoding="utf-8")
    )
    page = template.substitute({k: v if k in unescaped else escape(str(v)) for k, v in values.items()})
    with written_aside(path) as aside:
        aside.write_text(page, encoding="utf-8")


def _row(head: Sequence[str], line: Sequence[str]) -> str:
    name, *values = map(escape, line)
    cells = (
        f'<td data-head="{h}">{v or "-"}</td>' for h, v in zip(map(escape, head[1:]), values, strict=True)
    )
    return f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>'


def _inline(comparison: Comparison) -> str:
    """The forest plot as part of a page, with what it shows in words."""
    rows = _drawn_rows(comparison)
    with mpl.rc_context(_STYLE):
        figure = Figure((_WIDTH, _ROW * len(rows) + _BESIDE), layout="constrained")
        FigureCanvasAgg(figure)
        _forest(figure.subplots(), comparison, rows)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata=_NO_METADATA)
    svg = text.getvalue()[text.getvalue().index("<svg") :]
    for name, colour in _COLOURS.items():
        svg = svg.replace(colour, _PLACES[name])
    described = f'<svg role="img" aria-label="{escape(_alternative(rows))}" '
    return svg.replace("<svg ", described, 1)


def _alternative(rows: Sequence[dict[str, Any]]) -> str:
    """What the forest plot shows, for those who cannot see it."""
    texts = (
        f"{row['difference']:+.4f} ({row['ci95_low']:+.4f} to {row['ci95_high']:+.4f}), {row['verdict']}"
        if row["ci95_low"] is not None
        else "no interval"
        for row in rows
    )
    named = (f"{_name(row)} {text}" for row, text in zip(rows, texts, strict=True))
    return f"Differences with 95 % intervals: {'; '.join(named)}."


def _bars(comparison: Comparison) -> str:
    """The variance by source as bars, and what would settle it; nothing with one run on a side."""
    if not (variance := comparison.main_variance) or comparison.needs is None or not sum(variance.of_means):
        return ""
    bars = "".join(
        f"<dt>{row['source']} <span>{words.MEANING[row['source']]}</span></dt>"
        f'<dd><span class="bar" style="width: {100 * row["fraction"]:.1f}%"></span>'
        f"{100 * row['fraction']:.0f} %</dd>"
        for row in variance.rows()
    )
    error = sum(variance.of_means) ** 0.5
    settled = escape(words.settle(comparison.needs, comparison.verdict))
    return (
        "<section><h2>Why: the variance by source</h2>"
        f"<p>The standard error of the difference is {error:.4f}. Of its square:</p>"
        f'<dl class="bars">{bars}</dl><p>{settled}</p></section>'
    )
