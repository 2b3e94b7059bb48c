"""Per-image predictions, read and checked.

The findings are those that the table's columns ``label_<finding>`` and ``score_<finding>`` name. An empty
label is one that is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cxrbench.statistics.columns import read_columns
from cxrbench.statistics.errors import UserError, and_more, nearest

FILE = "predictions.parquet"  # in a folder of a run
SPLITS = ("train", "val", "test")
LABEL, SCORE = "label_", "score_"
_IDENTITY = ("image", "patient", "split")
_SHOWN = 3  # bad rows named in a message
_MOST_FINDINGS = (
    1000  # PadChest, the longest public list, has under 200; what is computed grows with the square
)
_RULES = {
    LABEL: "labels are 0 or 1, or empty where unknown",
    SCORE: "scores are probabilities between 0 and 1",
}


def findings_of(table: pd.DataFrame) -> list[str]:
    """Return the findings of a predictions table, in the order of their columns."""
    return [name.removeprefix(LABEL) for name in table.columns if name.startswith(LABEL)]


def labels_of(table: pd.DataFrame) -> np.ndarray:
    """Return the labels (n, L) of a predictions table, float32, NaN where one is not known."""
    columns = table[[LABEL + finding for finding in findings_of(table)]]
    return columns.to_numpy(dtype=np.float32, na_value=np.nan)


def scores_of(table: pd.DataFrame) -> np.ndarray:
    """Return the scores (n, L) of a predictions table, in the order of its labels."""
    return table[[SCORE + finding for finding in findings_of(table)]].to_numpy()


def predictions_table(
    identity: pd.DataFrame, findings: Sequence[str], labels: np.ndarray, scores: np.ndarray
) -> pd.DataFrame:
    """Return a predictions table of ``labels`` and ``scores`` (n, L) beside the images' ``identity``.

    A label that is NaN is not known: its column is nullable.
    """
    missing = np.isnan(labels).any(axis=0)
    truth = pd.DataFrame(labels, columns=[LABEL + finding for finding in findings])
    truth = truth.astype(dict(zip(truth, np.where(missing, "UInt8", "uint8").tolist(), strict=True)))
    guessed = pd.DataFrame(scores.astype("float32"), columns=[SCORE + finding for finding in findings])
    return pd.concat([identity.reset_index(drop=True), truth, guessed], axis=1)


def read_checked(path: Path, todo: Callable[[], str]) -> pd.DataFrame:
    """Return a Parquet file of :func:`predictions_table`; UserError ending in ``todo`` where it is none."""
    table = _read(path, todo)
    for complaint in _complaints(table):
        raise UserError(f"{path}: {complaint}; {todo()}")
    for name in table:
        kinds = {"image": ["string"], "split": ["string"], "patient": ["integer", "string"]}.get(name)
        kinds = kinds or ["floating" if name.startswith(SCORE) else "integer"]
        if name.startswith(LABEL) and table[name].isna().any():
            kinds.append("floating")  # as pandas has integers with gaps
        if (kind := pd.api.types.infer_dtype(table[name], skipna=False)) not in kinds:
            raise UserError(f"{path}: {name} must hold {kinds[0]} values only, not {kind}; {todo()}")
    return table.reset_index(drop=True)


def load_predictions(path: Path | str) -> tuple[pd.DataFrame, list[str]]:
    """Return checked predictions from anywhere, and notes on what is missing but not needed.

    Needed, in Parquet or CSV: ``image``, and for each finding ``label_<finding>`` (0, 1 or empty) and
    ``score_<finding>`` (0 to 1). Without ``split`` all rows are ``test``; without ``patient`` each image is
    its own cluster (the metrics say so); ``train`` rows are left out. Raises UserError naming column and
    first bad rows for anything that is wrong.
    """
    path = Path(path)
    if (beside := path / FILE).is_file():  # a run's folder
        path = beside
    if not path.is_file():
        reason = f"a folder without {FILE}" if path.is_dir() else "there is no such file"
        raise UserError(f"{path}: {reason}; name a Parquet or CSV file of predictions")
    if path.suffix.lower() not in (".csv", ".parquet") and not _begins(path, b"PAR1"):
        raise UserError(f"{path}: neither Parquet nor CSV by its name; name a .parquet or .csv file")
    table, notes = _read(path, lambda: "write it again"), []
    if "split" not in table:
        table = table.assign(split="test")
        notes.append("no split column: all rows count as test")
    for complaint in _complaints(table):
        raise UserError(f"{path}: {complaint}")
    table = table.reset_index(drop=True)
    types = {name: "float32" for name in table.columns if name.startswith(LABEL)}
    types |= {name: "float64" for name in table.columns if name.startswith(SCORE)}
    for name, kind in types.items():  # numbers may have come as text
        table[name] = pd.to_numeric(table[name]).astype(kind)
    trained_on = table["split"] == "train"
    if trained_on.any():
        table = table[~trained_on].reset_index(drop=True)
        notes.append(f"{trained_on.sum()} train rows are left out")
    if table.empty:
        raise UserError(f"{path}: all rows are train rows; add test rows")
    return table, notes


def _begins(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _read(path: Path, todo: Callable[[], str]) -> pd.DataFrame:
    """Return our columns of a file, texts or numbers each; UserError, ending in ``todo``, where it cannot.

    The index has the lines of a CSV file, the head being the first, and the rows of another.
    """
    is_csv = path.suffix.lower() == ".csv"

    def ours(names: list[str]) -> dict[str, str | None]:
        if is_csv and len(names) == 1 and (signs := [sign for sign in ";\t|" if sign in names[0]]):
            raise UserError(f"{path}: its columns are separated by {signs[0]!r}; separate them by commas")
        wanted = [name for name in names if name in _IDENTITY or name.startswith((LABEL, SCORE))]
        if (count := sum(name.startswith(SCORE) for name in wanted)) > _MOST_FINDINGS:
            raise UserError(f"{path}: {count:,} findings, more than {_MOST_FINDINGS:,}; leave some out")
        return {name: "str" if is_csv and name in _IDENTITY else None for name in wanted}

    table = read_columns(path, is_csv, ours, todo)
    table.index = (table.index + (2 if is_csv else 1)).set_names("line" if is_csv else "row")
    if is_csv and "patient" in table and table["patient"].str.fullmatch(r"0|[1-9]\d{0,17}", na=False).all():
        table["patient"] = table["patient"].astype(int)  # as Parquet has them; 007 and 7 stay two
    return table


def _partner(name: str) -> str:
    """Return the column that belongs to a label or a score."""
    kind, _, finding = name.partition("_")
    return {LABEL: SCORE, SCORE: LABEL}.get(f"{kind}_", "") + finding


def _complaints(table: pd.DataFrame) -> Iterator[str]:
    """Yield what is wrong in a predictions table, the first thing first."""
    named = dict.fromkeys(name.partition("_")[2] for name in table.columns if name not in _IDENTITY)
    needed = ["image", "split", *(prefix + name for prefix in (LABEL, SCORE) for name in named)]
    if missing := [name for name in needed if name not in table]:
        lonely = [name for name in table.columns if _partner(name) in missing or name not in needed]
        hint = nearest(missing[0], lonely, 1)
        yield f"columns are missing: {', '.join(missing)}{hint}; add them under these names"
    if not named:
        yield "there are no columns label_NAME and score_NAME; add a pair for each finding"
    if taken := named.keys() & {"macro", "all", "endpoint"}:
        yield f"no finding can have the name {min(taken)}, which stands for several of them; choose another"
    for name in named:
        if not (name.strip() and name.isprintable()):
            yield f"no finding can have the name '{name}', which cannot be printed; choose another"
    if table.empty:
        yield "there are no rows; write at least one prediction"
    for name in table.columns.intersection(_IDENTITY):
        bad = table[name].isna()
        if table[name].dtype == object:
            bad |= table[name].astype(str).str.strip() == ""
        if bad.any():
            or_not = ", or leave the column out" if name == "patient" else ""
            yield f"{name} is empty in {_rows(table, bad)}; fill it in{or_not}"
    if (bad := ~table["split"].isin(SPLITS)).any():
        yield f"split is {_rows(table, bad, 'split')}; use one of {', '.join(SPLITS)}"
    if (bad := table["image"].duplicated(keep=False)).any():
        yield f"image occurs more than once in {_rows(table, bad)}; keep one row per image"
    for name in needed[2:]:
        values = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        if name.startswith(LABEL):
            good = (values == 0) | (values == 1) | table[name].isna().to_numpy()
        else:
            good = (values >= 0) & (values <= 1)
        if not good.all():
            yield f"{name} is {_rows(table, ~good, name)}; {_RULES[name.partition('_')[0] + '_']}"
    if "patient" in table:
        yield from _patients_in_two_splits(table)


def _patients_in_two_splits(table: pd.DataFrame) -> Iterator[str]:
    parts = table[["patient", "split"]].drop_duplicates()
    shared = parts["patient"][parts["patient"].duplicated()].unique()
    if len(shared):
        bad = table["patient"] == min(shared)
        first = ", ".join(sorted(table.loc[bad, "split"].unique()))
        yield (
            f"patient {min(shared)} is in {first} ({_rows(table, bad)}); {len(shared)} such patients in all: "
            "split by patient, or thresholds and scores are not independent"
        )


def _rows(table: pd.DataFrame, bad: pd.Series | np.ndarray, column: str | None = None) -> str:
    """Return the first bad rows by line or number, with image and value in ``column``."""
    numbers = np.flatnonzero(bad)
    named = []
    for k in numbers[:_SHOWN]:
        value = f"'{table[column].iloc[k]}' in " if column else ""
        named.append(f"{value}{table.index.name} {table.index[k]} (image {table['image'].iloc[k]})")
    return ", ".join(named) + and_more(max(0, len(numbers) - _SHOWN))
