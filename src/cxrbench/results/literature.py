"""AUROC beside published values, within the same split: splits move it as much as networks do."""

from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from pydantic import Field

from cxrbench.common.readers import OR_NONE, Row, Text, read_rows
from cxrbench.statistics.metrics import MACRO

_Count = Annotated[Annotated[int, Field(gt=0, le=10**9)] | None, OR_NONE]
COUNTS = {  # column -> the same of the published network, and what it counts
    "n_train_images": ("n_train_published", "training images"),
    "n_test_images": ("n_test_published", "test images"),
    "pixels": ("pixels_published", "pixels a side"),
}
_REPRODUCTIONS = ("arnoweng_reproduction", "jrzech_reproduction")  # of one network on one split
BASELINE_COLUMNS = [
    *("label", "source", "split", "published", "value", "ci_low", "ci_high", "difference", "verdict"),
    *(name for ours, (theirs, _) in COUNTS.items() for name in (ours, theirs)),
    *("note", "citation"),
]


class _Baseline(Row):
    """A published AUROC of a label on a split; empty counts are unknown."""

    KEY: ClassVar = ("label", "source", "split")
    label: Text
    source: Text
    split: Text
    value: Annotated[float, Field(ge=0, le=1)]
    n_train_images: _Count
    n_test_images: _Count
    pixels: _Count
    citation: Text


def read_baselines(path: Path | str) -> pd.DataFrame:
    """Published values (a row per :class:`_Baseline`), an unknown count as NA."""
    rows = [row.model_dump() for row in read_rows(path, _Baseline).values()]
    return pd.DataFrame(rows, columns=_Baseline.columns()).astype(dict.fromkeys(COUNTS, "Int64"))


def compare_with_literature(
    table: pd.DataFrame, baselines: pd.DataFrame, *, split_name: str, n_train_images: int, pixels: int
) -> pd.DataFrame:
    """One row per cell, label and source of the split ``split_name``: cell, ``BASELINE_COLUMNS``.

    ``table`` has the rows of metrics.csv of cells that are alike in images and size. ``verdict`` says
    where the published value lies against this cell's interval, which is of test patients only; the
    published value's own uncertainty is mostly unknown. Empty when nothing was published on this split.
    """
    ours = table[(table["metric"] == "auroc") & (table["ci_method"] == "delong-patient")]
    ours = ours[["cell", "label", "value", "ci_low", "ci_high", "n_images"]]
    published = {"value": "published"} | {name: theirs for name, (theirs, _) in COUNTS.items()}
    theirs = baselines[baselines["split"] == split_name].rename(columns=published)
    both = theirs.merge(ours.rename(columns={"n_images": "n_test_images"}), on="label", how="inner")
    both = both.assign(n_train_images=n_train_images, pixels=pixels)
    both["difference"] = both["value"] - both["published"]
    both["verdict"] = np.select(
        [both["ci_low"].isna(), both["published"] < both["ci_low"], both["published"] > both["ci_high"]],
        ["no interval", "above the published value", "below the published value"],
        "interval holds the published value",
    )
    both["note"] = [_note(row) for row in both.to_dict("records")]
    return both[["cell", *BASELINE_COLUMNS]]


def reproductions(literature: pd.DataFrame) -> tuple[float, float] | None:
    """The distance between two published reproductions of one network, in the mean over findings and at most
    in one: a published mean may be rounded."""
    rows = literature.drop_duplicates(["source", "label"])
    published = rows.pivot(index="label", columns="source", values="published")
    if not set(_REPRODUCTIONS) <= set(published):
        return None
    apart = (published[_REPRODUCTIONS[0]] - published[_REPRODUCTIONS[1]]).drop(MACRO)
    return abs(float(apart.mean())), float(apart.abs().max())


def _note(row: dict) -> str:
    """The other differences, in words."""
    words = []
    for ours, (theirs, unit) in COUNTS.items():
        if pd.isna(row[theirs]):
            words.append(f"{unit}: {row[ours]:,} here, published number unknown")
        elif row[ours] != row[theirs]:
            words.append(f"{unit}: {row[ours]:,} here, {row[theirs]:,} published")
    return "; ".join(words)
