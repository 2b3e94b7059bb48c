"""The figures of the page as SVG in data URIs: the paper's own, and two of each cell."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from sklearn.metrics import roc_curve

from cxrbench.datasets.findings import FINDINGS
from cxrbench.evidence import EpochStats
from cxrbench.report.figures import COLOURS, DASHES, STYLE, WIDTH, drawn_figures
from cxrbench.report.page.tables import captions
from cxrbench.report.provenance import figure_values
from cxrbench.report.results import Results

# Ids are made from content with a fixed salt, and nothing names a date: the same bytes every time.
_SVG = {"svg.hashsalt": "cxrbench", "svg.fonttype": "path", "path.simplify_threshold": 0.4}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_PIXELS_PER_INCH = 96
_LINKED = re.compile(r"\\hyperlink\{([em]\d+)\}")  # the names in a figure's sentence about its evidence


@dataclass(frozen=True)
class Picture:
    """An image that needs no file, its size in CSS pixels, and what it shows in words."""

    key: str
    title: str
    alt: str
    uri: Markup
    width: int
    height: int
    evidence: list[str] = field(default_factory=list)  # names that the table of evidence explains


@contextmanager
def drawing() -> Iterator[None]:
    """Draw and save in the paper's style."""
    with mpl.rc_context(STYLE | _SVG):  # type: ignore[arg-type]
        yield


def picture(figure: Figure, key: str, title: str, alt: str) -> Picture:
    """``figure`` as a picture; call it while :func:`drawing`."""
    svg = io.BytesIO()
    figure.savefig(svg, format="svg", metadata=_NO_METADATA)
    uri = Markup("data:image/svg+xml;base64," + base64.b64encode(svg.getvalue()).decode("ascii"))
    width, height = (round(inches * _PIXELS_PER_INCH) for inches in figure.get_size_inches())
    return Picture(key, title, alt, uri, width, height)


def paper_pictures(read: Results) -> list[Picture]:
    """Every figure of the paper with the title and alternative text of captions.toml, and its evidence."""
    pictures = []
    sentences = figure_values(read)
    for name, figure in drawn_figures(read.folder, read.recorded):
        said = captions()["figures"].get(name, {})
        title = said.get("title", name.replace("_", " ").capitalize())
        with drawing():
            drawn = picture(figure, f"figure_{name}", title, said.get("alt", title))
        names = _LINKED.findall(sentences.get(f"evidence/{name}", ""))
        pictures.append(replace(drawn, evidence=names))
    return pictures


def learning_curve(cell: str, history: list[EpochStats]) -> Picture:
    """Loss and validation AUROC by epoch of one cell, failed ones included; call it while :func:`drawing`."""
    figure = Figure(figsize=(WIDTH, 2.2))
    loss, auroc = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.09, right=0.98, bottom=0.2, top=0.95, wspace=0.25)
    epochs = [one.epoch for one in history]
    marker = "o" if len(epochs) == 1 else None
    for name, dash, colour in (("train", DASHES[1], COLOURS[2]), ("val", DASHES[0], COLOURS[1])):
        values = [getattr(one, f"{name}_loss") for one in history]
        loss.plot(epochs, values, dash, color=colour, marker=marker, label=f"{_PARTS[name]} loss")
    loss.legend()
    auroc.plot(epochs, [_number(one.val_auroc) for one in history], color=COLOURS[1], marker=marker)
    for axes, label in ((loss, "mean binary cross-entropy"), (auroc, "validation macro AUROC")):
        axes.set(xlabel="epoch", ylabel=label)
        axes.xaxis.get_major_locator().set_params(integer=True)
    return picture(figure, f"curve/{cell}", "Learning curve", _curve_in_words(history))


_PARTS = {"train": "training", "val": "validation"}


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _curve_in_words(history: list[EpochStats]) -> str:
    first, last = history[0], history[-1]
    told = [
        f"{part} loss {getattr(first, f'{name}_loss'):.4f} to {getattr(last, f'{name}_loss'):.4f}"
        for name, part in _PARTS.items()
    ]
    if first.val_auroc is not None and last.val_auroc is not None:
        told.append(f"validation macro AUROC {first.val_auroc:.3f} to {last.val_auroc:.3f}")
    return f"From epoch {first.epoch} to {last.epoch}: {'; '.join(told)}."


class RocPanels:
    """Small multiples of ROC curves: made once and drawn for every cell, since most of the time is set-up."""

    def __init__(self) -> None:
        self._figure = Figure(figsize=(WIDTH, 2.75))
        self._axes = self._figure.subplots(2, 7, sharex=True, sharey=True).ravel()
        self._figure.subplots_adjust(left=0.07, right=0.99, bottom=0.14, top=0.9, wspace=0.12, hspace=0.42)
        self._figure.supxlabel("1 - specificity", fontsize=8)
        self._figure.supylabel("sensitivity", fontsize=8)
        self._lines = []
        for axes in self._axes:
            axes.plot([0, 1], [0, 1], color="0.7", lw=0.5)
            axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 1], yticks=[0, 1])
            self._lines += axes.plot([], [], color=COLOURS[1])

    def draw(self, cell: str, predictions: pd.DataFrame, aurocs: dict[str, float]) -> Picture:
        """Test ROC curves of one cell, their ``aurocs`` in the titles; call it while :func:`drawing`."""
        test = predictions[predictions["split"] == "test"]
        for finding, axes, line in zip(FINDINGS, self._axes, self._lines, strict=True):
            labels, scores = test[f"label_{finding}"], test[f"score_{finding}"]
            curve = roc_curve(labels, scores)[:2] if labels.nunique() == 2 else ([], [])
            line.set_data(*curve)
            axes.set_title(f"{finding.replace('_', ' ')}\n{_shown(aurocs.get(finding))}", fontsize=7, pad=2)
        return picture(self._figure, f"roc/{cell}", "ROC curves", _aurocs_in_words(aurocs))


def _shown(auroc: float | None) -> str:
    return "undefined" if auroc is None or np.isnan(auroc) else f"{auroc:.3f}"


def _aurocs_in_words(aurocs: dict[str, float]) -> str:
    told = (f"{finding.replace('_', ' ')} {_shown(aurocs.get(finding))}" for finding in FINDINGS)
    return f"Test ROC curves with their AUROC: {', '.join(told)}."
