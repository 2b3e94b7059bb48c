"""Per-image predictions of a cell: the Parquet file, written and checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from cxrbench.datasets.findings import FINDINGS
from cxrbench.study.errors import UserError
from cxrbench.study.files import remedy, written_aside

LABELS = [f"label_{finding}" for finding in FINDINGS]
SCORES = [f"score_{finding}" for finding in FINDINGS]


def write_predictions(path: Path | str, table: pd.DataFrame) -> None:
    """Write a predictions table in the design's columns and types; ``patient`` is optional."""
    columns = [name for name in ("image", "patient", "split") if name in table] + [*LABELS, *SCORES]
    types = {**dict.fromkeys(LABELS, "uint8"), **dict.fromkeys(SCORES, "float32")}
    types |= {"patient": "int64"} if "patient" in table else {}
    with written_aside(path) as aside:
        table[columns].astype(types).to_parquet(aside, index=False, compression="zstd", compression_level=19)


def read_predictions(path: Path | str) -> pd.DataFrame:
    """Return a table that :func:`write_predictions` wrote; UserError naming what is wrong with it."""
    path = Path(path)
    try:
        with pq.ParquetFile(path) as file:
            rows = file.read(use_threads=False)  # a thread for each column takes longer than its values
        table = rows.select(_typed_columns(rows, path)).to_pandas(ignore_metadata=True)
    except FileNotFoundError:
        raise UserError(f"{path}: there are no such predictions") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UserError(f"{path}: not a readable parquet file ({error}); {remedy(path)}") from None
    _check_values(table, path)
    return table


def _typed_columns(rows: pa.Table, path: Path) -> list[str]:
    """Return our columns; UserError for one that is missing, repeated, incomplete or of another type."""
    kinds = {
        **dict.fromkeys(("image", "split"), ("text", types.is_string)),
        **dict.fromkeys(("patient", *LABELS), ("whole numbers", types.is_integer)),
        **dict.fromkeys(SCORES, ("floating-point numbers", types.is_floating)),
    }
    names = rows.column_names
    if missing := [name for name in kinds if name not in names and name != "patient"]:
        raise UserError(f"{path}: columns are missing: {', '.join(missing)}")
    if rows.num_rows == 0:
        raise UserError(f"{path}: there are no rows")
    for field, column in zip(rows.schema, rows.columns, strict=True):
        kind, is_kind = kinds.get(field.name, ("", None))
        if is_kind and (not is_kind(field.type) or column.null_count or names.count(field.name) > 1):
            raise UserError(
                f"{path}: {field.name} must be one column of {kind}, without gaps; {remedy(path)}"
            )
    return [name for name in kinds if name in names]


def _check_values(table: pd.DataFrame, path: Path) -> None:
    """Raise UserError for bad values, repeated images or patients in two splits."""
    scores = table[SCORES].to_numpy()
    bad = ~((scores >= 0) & (scores <= 1))
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise UserError(
            f"{path}: {SCORES[column]} of image {table['image'].iloc[row]} is {scores[row, column]}; "
            "scores are probabilities between 0 and 1"
        )
    if not ((labels := table[LABELS].to_numpy()) == (labels != 0)).all():
        raise UserError(f"{path}: labels must be 0 or 1")
    if (repeated := table["image"].duplicated()).any():
        raise UserError(f"{path}: image {table['image'][repeated].iloc[0]} occurs twice")
    if "patient" not in table:
        return
    parts = table[["patient", "split"]].drop_duplicates()
    if (shared := parts["patient"].duplicated()).any():
        raise UserError(f"{path}: patient {parts['patient'][shared].iloc[0]} is in two splits")
