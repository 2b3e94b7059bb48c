"""Predictions from anywhere, checked before anything is computed: ``cxrbench evaluate FILE.parquet``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from cxrbench.datasets.findings import SPLITS
from cxrbench.evidence.predictions import LABELS, SCORES
from cxrbench.study.errors import UserError, nearest

IDENTITY = ("image", "patient", "split")
SHOWN = 3  # bad rows named in a message
_PLAIN = ("string", "large_string", "string_view", "integer", "floating", "boolean", "decimal", "null")


def load_predictions(path: Path | str) -> tuple[pd.DataFrame, list[str]]:
    """Return checked predictions of a Parquet file, and notes on what is missing but not needed.

    Needed: ``image`` and fourteen ``label_`` (0 or 1) and ``score_`` (0 to 1) columns. Without ``split``
    all rows are ``test``; without ``patient`` each image is its own cluster (the metrics say so); ``train``
    rows are left out. Raises UserError naming column and first bad rows for anything that is wrong.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; name a Parquet file of predictions")
    table, notes = _read(path), []
    if "split" not in table:
        table = table.assign(split="test")
        notes.append("no split column: all rows count as test")
    for complaint in _complaints(table):
        raise UserError(f"{path}: {complaint}")
    for name in (*LABELS, *SCORES):  # numbers may have come as text
        table[name] = pd.to_numeric(table[name]).astype("uint8" if name in LABELS else "float64")
    trained_on = table["split"] == "train"
    if trained_on.any():
        table = table[~trained_on].reset_index(drop=True)
        notes.append(f"{trained_on.sum()} train rows are left out")
    if table.empty:
        raise UserError(f"{path}: all rows are train rows; add test rows")
    return table, notes


def _read(path: Path) -> pd.DataFrame:
    """Return the table without the notes of pandas in it; the needed columns are texts or numbers."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path).replace_schema_metadata(None)
        for k, field in enumerate(table.schema):
            kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            if field.name not in (*IDENTITY, *LABELS, *SCORES):
                continue
            if not any(getattr(pa.types, f"is_{plain}")(kind) for plain in _PLAIN):
                raise UserError(f"{path}: {field.name} has the type {kind}; write texts or numbers")
            if kind != field.type:
                table = table.set_column(k, field.name, table[field.name].cast(kind))
        return table.to_pandas()
    except (OSError, ValueError, NotImplementedError, pa.ArrowException) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path}: not a readable Parquet file ({reason}); write it again") from None


def _complaints(table: pd.DataFrame) -> Iterator[str]:
    """Yield what is wrong in a predictions table, the first thing first."""
    if missing := [name for name in ("image", *LABELS, *SCORES) if name not in table]:
        hint = nearest(missing[0], [str(name) for name in table.columns], 1)
        yield f"columns are missing: {', '.join(missing)}{hint}; add them under these names"
    if table.empty:
        yield "there are no rows; write at least one prediction"
    for name in IDENTITY:
        if name in table and (bad := table[name].isna()).any():
            or_not = ", or leave the column out" if name == "patient" else ""
            yield f"{name} is empty in {_rows(table, bad)}; fill it in{or_not}"
    if (bad := ~table["split"].isin(SPLITS)).any():
        yield f"split is {_rows(table, bad, 'split')}; use one of {', '.join(SPLITS)}"
    if (bad := table["image"].duplicated(keep=False)).any():
        yield f"image occurs more than once in {_rows(table, bad)}; keep one row per image"
    for name in (*LABELS, *SCORES):
        values = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        good, rule = (values >= 0) & (values <= 1), "scores are probabilities between 0 and 1"
        if name in LABELS:
            good, rule = np.isin(values, (0, 1)), "labels are 0 or 1"
        if not good.all():
            yield f"{name} is {_rows(table, ~good, name)}; {rule}"
    if "patient" in table:
        yield from _patients_in_two_splits(table)


def _patients_in_two_splits(table: pd.DataFrame) -> Iterator[str]:
    splits = table.groupby("patient")["split"].nunique()
    shared = splits.index[splits > 1]
    if len(shared):
        bad = table["patient"].isin(shared[:1])
        first = ", ".join(sorted(table.loc[bad, "split"].unique()))
        yield (
            f"patient {shared[0]} is in {first} ({_rows(table, bad)}); {len(shared)} such patients in all: "
            "split by patient, or thresholds and scores are not independent"
        )


def _rows(table: pd.DataFrame, bad: pd.Series | np.ndarray, column: str | None = None) -> str:
    """Return the first bad rows by number and image, with their value in ``column``, and how many follow."""
    numbers = np.flatnonzero(bad)
    named = []
    for k in numbers[:SHOWN]:
        value = f"'{table[column].iloc[k]}' in " if column else ""
        named.append(f"{value}row {k} (image {table['image'].iloc[k]})")
    return ", ".join(named) + (f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else "")
