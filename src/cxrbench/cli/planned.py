"""``cxrbench plan``: what a study will take, and what is missing here."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    PACKED,
    PRICES,
    RECORDED,
    REGISTRY,
    STUDY,
    JsonOption,
    PricesOption,
    RecordedOption,
    StudyOption,
    print_json,
    span,
    wrapped,
)
from cxrbench.study.names import Cell

if TYPE_CHECKING:
    import pandas as pd

    from cxrbench.cost.forecast import Download
    from cxrbench.training.plan import Plan

_SHOWN = 1  # names in a message
_SIZES = ("packed_gib", "device_gib")  # printed to the next hundredth
_FORECAST_NOTE = (
    "Time and USD are of the cells to run, without packing, compiling and downloads; an image is taken to "
    "last a third as long in scoring as in training. 'disk': the "
    "packed images. 'step': weights, moments, gradients and activations of the largest step, by the audit."
)


def plan(
    study: StudyOption = STUDY,
    prices: PricesOption = PRICES,
    recorded: RecordedOption = RECORDED,
    packed: Annotated[Path, typer.Option(help="Folder of packed datasets.")] = PACKED,
    as_json: JsonOption = False,
) -> None:
    """Forecast a study's hours, USD, disk and memory, and list what is missing here."""
    from cxrbench.cost.forecast import by_dataset, downloads, forecast
    from cxrbench.cost.prices import read_prices
    from cxrbench.evidence.store import EvidenceStore
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import Plan

    study_plan = Plan(read_study(study), EvidenceStore(recorded), packed)
    table = forecast(study_plan, read_prices(prices))
    if as_json:
        print_json(table)
        return
    print(_forecast_in_columns(by_dataset(table)))
    to_run = table[table["to_run"] > 0]
    names = to_run[["dataset", "architecture", "platform"]].agg("/".join, axis=1)
    absent = downloads(study_plan, REGISTRY)
    for head, reasons in (
        ("Unknown time", to_run["why_not"]),
        ("No USD", to_run["no_price"]),
        ("Not trained on this machine", _reasons_not_here(study_plan, to_run, absent)),
    ):
        parts = reasons.dropna().astype(str).str.split("; ").explode()
        for reason, cells in names.loc[parts.index].groupby(parts.to_numpy(), sort=False):
            more = f" and {len(cells) - _SHOWN} more" if len(cells) > _SHOWN else ""
            print(wrapped(f"{head}: {', '.join(cells[:_SHOWN])}{more}: {str(reason).rstrip('?.')}."))
    fetched = (
        f"Download for {first}{f' and {len(others)} more' if others else ''}: {files} into {place}; "
        f"`cxrbench data get {first}`."
        for (first, *others), files, place in absent
    )
    print(*map(wrapped, (*fetched, *_priced_as(to_run), _FORECAST_NOTE)), sep="\n")


def _reasons_not_here(study_plan: Plan, to_run: pd.DataFrame, absent: list[Download]) -> pd.Series:
    """The reason the cells of each row are not trained here, without that of their download; else NaN."""
    reasons = to_run["not_here"].copy()
    fetched = {name for download in absent for name in download.datasets}
    for row in to_run[to_run["dataset"].isin(fetched)].itertuples():
        lacks = study_plan.lacks(Cell(row.dataset, row.architecture, row.platform, 0))
        if lacks.pop("images", None):
            reasons[row.Index] = "; ".join(lacks.values()) or None
    return reasons


def _forecast_in_columns(rows: pd.DataFrame) -> str:
    """The rows of :func:`~cxrbench.cost.forecast.by_dataset` that have cells to run, and the sizes of
    their images and steps."""
    from cxrbench.cli.cost_columns import cost_columns, duration

    rows = rows[rows["to_run"] > 0]
    texts: dict[str, list[str]] = {"time": [], "usd": []}
    for row in rows.to_dict("records"):
        more = "over " if row["unknown"] else ""
        for name, unit, text, unknown in (
            ("time", "hours", duration, "unknown"),
            ("usd", "usd", span, "unknown"),
        ):
            low, high = row[f"{unit}_low"], row[f"{unit}_high"]
            texts[name].append(f"{more}{text(low, high)}" if low == low else unknown)
    shown = rows.assign(**texts, to_run=rows["to_run"].astype(str) + " of " + rows["cells"].astype(str))
    sizes = rows.groupby("dataset", sort=False)[[*_SIZES]].max().reset_index()
    sizes = sizes.assign(**{name: (100 * sizes[name]).map(math.ceil, "ignore") / 100 for name in _SIZES})
    known = any(text != "unknown" for name in ("time", "usd") for text in texts[name])
    columns = ["dataset", "platform", "to_run", *(["time", "usd"] if known else [])]
    parts = [cost_columns(shown[columns]), cost_columns(sizes)]
    if any(text.startswith("over") for text in texts["time"]):
        parts.insert(1, wrapped("over: without cells of unknown time."))
    if any("unknown" in text for text in texts["time"]):
        parts.insert(
            1, wrapped("An unknown time is known once one such cell has been timed; plan a day for that.")
        )
    return "\n\n".join(parts) + "\n"


def _priced_as(rows: pd.DataFrame) -> list[str]:
    """The instances that stand for platforms, with region, basis and date of their prices."""
    priced = rows.dropna(subset="as_of")
    texts = [
        f"{row.platform} as {row.instance} ({row.region}, {row.basis.replace('_', ' ')}, {row.as_of})"
        for row in priced.itertuples()
    ]
    return [f"Priced: {'; '.join(dict.fromkeys(texts))}."] if texts else []
