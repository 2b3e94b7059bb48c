"""AUROC beside published values, only within the same split: splits move AUROC as much as networks do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from cxrbench.errors import UserError

BASELINE_COLUMNS = [
    *("label", "source", "split", "value", "n_train_images", "n_test_images", "pixels", "citation"),
]
COLUMNS = [
    *("label", "source", "split", "published", "value", "ci_low", "ci_high", "difference", "verdict"),
    *(
        "n_train_images",
        "n_train_published",
        "n_test_images",
        "n_test_published",
        "pixels",
        "pixels_published",
    ),
    *("note", "citation"),
]


def read_baselines(path: Path | str) -> pd.DataFrame:
    """Published values (columns ``BASELINE_COLUMNS``), an unknown count as NA.

    Raises UserError when the file is missing, lacks a column or holds a value outside 0 to 1.
    """
    path = Path(path)
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); restore it with git") from None
    if missing := [name for name in BASELINE_COLUMNS if name not in table]:
        raise UserError(f"{path}: columns are missing: {', '.join(missing)}; restore it with git")
    if (bad := ~table["value"].between(0, 1)).any():
        row = table[bad].iloc[0]
        raise UserError(f"{path}: {row['source']}, {row['label']}: {row['value']} is no AUROC; use 0 to 1")
    counts = ["n_train_images", "n_test_images", "pixels"]
    return table[BASELINE_COLUMNS].astype(dict.fromkeys(counts, "Int64"))


def compare_with_literature(
    table: pd.DataFrame, baselines: pd.DataFrame, *, split_name: str, n_train_images: int, pixels: int
) -> pd.DataFrame:
    """One row per label and source of the split called ``split_name`` (columns ``COLUMNS``).

    ``table`` is one cell's tidy table (:func:`cxrbench.metrics.evaluate.evaluate`). ``verdict`` says
    where the published value lies against this cell's interval, which is of test patients only; the
    published value's own uncertainty is mostly unknown. Empty when nothing was published on this split.
    """
    ours = table[(table["metric"] == "auroc") & table["ci_method"].isin(["delong-patient"])]
    ours = ours[["label", "value", "ci_low", "ci_high", "n_images"]].rename(
        columns={"n_images": "n_test_images"}
    )
    theirs = baselines[baselines["split"] == split_name].rename(
        columns={
            "value": "published",
            "n_train_images": "n_train_published",
            "n_test_images": "n_test_published",
            "pixels": "pixels_published",
        }
    )
    both = theirs.merge(ours, on="label", how="inner")
    both = both.assign(n_train_images=n_train_images, pixels=pixels)
    both["difference"] = both["value"] - both["published"]
    both["verdict"] = np.select(
        [both["ci_low"].isna(), both["published"] < both["ci_low"], both["published"] > both["ci_high"]],
        ["no interval", "above the published value", "below the published value"],
        "interval holds the published value",
    )
    both["note"] = [_note(row) for row in both.to_dict("records")]
    return both[COLUMNS]


def _note(row: dict) -> str:
    """What else differs, in words."""
    words = []
    pairs = (
        ("n_train_images", "n_train_published", "training images"),
        ("n_test_images", "n_test_published", "test images"),
        ("pixels", "pixels_published", "pixels a side"),
    )
    for ours, theirs, what in pairs:
        if pd.isna(row[theirs]):
            words.append(f"{what}: {row[ours]:,} here, published number unknown")
        elif row[ours] != row[theirs]:
            words.append(f"{what}: {row[ours]:,} here, {row[theirs]:,} published")
    return "; ".join(words)
