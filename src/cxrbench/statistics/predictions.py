"""Per-image predictions, read and checked.

The findings are those that the table's columns ``label_<finding>`` and ``score_<finding>`` name. An empty
label is one that is not known. A table may come in long form too: a row per image and finding, with columns
``finding``, ``label`` and ``score``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from cxrbench.statistics.columns import CSV, read_columns
from cxrbench.statistics.errors import UserError, and_more, nearest
from cxrbench.statistics.metrics import MEANS

FILE = "predictions.parquet"  # in a folder of a run
SPLITS = ("train", "val", "test")
LABEL, SCORE = "label_", "score_"
SEED_COLUMN = "seed"  # the run of a row, in a table that holds several
_IDENTITY = ("image", "patient", "split", SEED_COLUMN)
_LONG = ("finding", "label", "score")  # columns of a table with a row per image and finding
_SHOWN = 3  # bad rows named in a message
_MOST_FINDINGS = (
    1000  # PadChest, the longest public list, has under 200; what is computed grows with the square
)
_RULES = {
    LABEL: "labels are 0 or 1, or empty where unknown",
    SCORE: "scores are probabilities from 0 to 1; `cxrbench compare --scores logits` takes finite numbers",
}


def findings_of(table: pd.DataFrame) -> list[str]:
    """The findings of a predictions table, in the order of their columns.

    >>> findings_of(pd.DataFrame(columns=["image", "label_Mass", "score_Mass"]))
    ['Mass']
    """
    return [name.removeprefix(LABEL) for name in table.columns if name.startswith(LABEL)]


def labels_of(table: pd.DataFrame) -> np.ndarray:
    """The labels (n, L) of a predictions table, float32, NaN where one is not known.

    >>> from cxrbench.statistics.examples import predictions
    >>> labels_of(predictions()).sum(axis=0).tolist()
    [44.0, 46.0]
    """
    columns = table[[LABEL + finding for finding in findings_of(table)]]
    return columns.to_numpy(dtype=np.float32, na_value=np.nan)


def scores_of(table: pd.DataFrame) -> np.ndarray:
    """The scores (n, L) of a predictions table, in the order of its labels.

    >>> from cxrbench.statistics.examples import predictions
    >>> scores_of(predictions()).shape
    (120, 2)
    """
    return table[[SCORE + finding for finding in findings_of(table)]].to_numpy()


def predictions_table(
    identity: pd.DataFrame, findings: Sequence[str], labels: np.ndarray, scores: np.ndarray
) -> pd.DataFrame:
    """A predictions table of ``labels`` and ``scores`` (n, L) beside the images' ``identity``.

    A label that is NaN is not known: its column is nullable.

    >>> identity = pd.DataFrame({"image": ["a", "b"], "split": "test"})
    >>> table = predictions_table(identity, ["Mass"], np.array([[1.0], [np.nan]]), np.array([[0.75], [0.5]]))
    >>> table.columns.tolist(), table["label_Mass"].tolist()
    (['image', 'split', 'label_Mass', 'score_Mass'], [1, <NA>])
    """
    missing = np.isnan(labels).any(axis=0)
    truth = pd.DataFrame(labels, columns=[LABEL + finding for finding in findings])
    truth = truth.astype(dict(zip(truth, np.where(missing, "UInt8", "uint8").tolist(), strict=True)))
    guessed = pd.DataFrame(scores.astype("float32"), columns=[SCORE + finding for finding in findings])
    return pd.concat([identity.reset_index(drop=True), truth, guessed], axis=1)


def read_checked(path: Path, todo: Callable[[], str]) -> pd.DataFrame:
    """The predictions in a Parquet file of :func:`predictions_table`; else UserError, ending in ``todo``.

    >>> from tempfile import TemporaryDirectory
    >>> from cxrbench.statistics.examples import predictions
    >>> with TemporaryDirectory() as folder:
    ...     predictions().to_parquet(path := Path(folder) / FILE)
    ...     read_checked(path, lambda: "score it again").shape
    (120, 7)
    """
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


def load_predictions(
    path: Path | str,
    columns: Mapping[str, str] | None = None,
    logits: bool = False,
    several: bool = False,
) -> tuple[pd.DataFrame, list[str]]:
    """Checked predictions from anywhere, and notes on what is missing but not needed.

    Needed, in Parquet, CSV or CSV.gz: ``image``, and for each finding ``label_<finding>`` (0, 1 or empty) and
    ``score_<finding>`` (0 to 1; with ``logits`` any finite number). Without ``split`` all rows are ``test``;
    without ``patient`` each image is its own cluster (the metrics say so); ``train`` rows are left out.
    ``columns`` maps our names of columns to the file's; ``several`` runs may be in it, which ``seed`` tells
    apart. Raises UserError naming column and first bad rows for anything that is wrong.

    >>> from tempfile import TemporaryDirectory
    >>> from cxrbench.statistics.examples import predictions
    >>> with TemporaryDirectory() as folder:
    ...     predictions().drop(columns="split").to_csv(path := Path(folder) / "mine.csv")
    ...     table, notes = load_predictions(path)
    >>> table.shape, notes
    ((120, 7), ['no split column: all rows count as test'])
    """
    path = Path(path)
    if (beside := path / FILE).is_file():  # a run's folder
        path = beside
    if not path.is_file():
        reason = f"a folder without {FILE}" if path.is_dir() else "there is no such file"
        if runs := sorted(path.parent.glob(f"*/{FILE}")):
            reason += f"; beside it are {len(runs)} runs, such as {runs[0].parent}"
        raise UserError(f"{path}: {reason}; name a Parquet or CSV file of predictions")
    if not path.name.lower().endswith((*CSV, ".parquet")) and not _begins(path, b"PAR1"):
        raise UserError(f"{path}: neither Parquet nor CSV by its name; name a .parquet or .csv file")
    if path.name.lower().endswith(CSV) and path.stat().st_size == 0:
        raise UserError(f"{path}: an empty file; write the predictions again")
    table = _read(path, lambda: "write it again", columns or {}, several)
    return checked(_wide(table, str(path), logits) if set(_LONG) <= set(table) else table, str(path), logits)


def checked(table: pd.DataFrame, place: str, logits: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """The predictions of a ``table`` in memory, checked as :func:`load_predictions` checks a file, and
    notes; ``place`` names it in messages.

    >>> from cxrbench.statistics.examples import predictions
    >>> table, notes = checked(predictions().drop(columns="patient"), "mine.csv")
    >>> list(table)[:2], notes
    (['image', 'split'], [])
    """
    table = table[[name for name in table if name in _IDENTITY or str(name).startswith((LABEL, SCORE))]]
    if table.index.name not in ("line", "row"):
        table = table.set_axis(pd.RangeIndex(1, len(table) + 1, name="row"))
    notes = []
    if "split" not in table:
        table = table.assign(split="test")
        notes.append("no split column: all rows count as test")
    for complaint in _complaints(table, logits):
        raise UserError(f"{place}: {complaint}")
    table = table.reset_index(drop=True)
    types = {name: "float32" for name in table.columns if name.startswith(LABEL)}
    types |= {name: "float64" for name in table.columns if name.startswith(SCORE)}
    numbers = {name: pd.to_numeric(table[name]).astype(kind) for name, kind in types.items()}
    table = table.assign(**numbers)  # numbers may have come as text
    trained_on = table["split"] == "train"
    if trained_on.any():
        table = table[~trained_on].reset_index(drop=True)
        notes.append(f"{trained_on.sum()} train rows are left out")
    if table.empty:
        raise UserError(f"{place}: all rows are train rows; add test rows")
    return table, notes


def _begins(path: Path, mark: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(mark)) == mark


def _read(
    path: Path, todo: Callable[[], str], columns: Mapping[str, str] | None = None, several: bool = False
) -> pd.DataFrame:
    """Our columns of a file, texts or numbers each; UserError, ending in ``todo``, where it cannot.

    The index has the lines of a CSV file, the head being the first, and the rows of another.
    """
    is_csv, mapped = path.name.lower().endswith(CSV), columns or {}
    as_ours: dict[str, str] = {}

    def ours(names: list[str]) -> dict[str, str | None]:
        if is_csv and len(names) == 1 and (signs := [sign for sign in ";\t|" if sign in names[0]]):
            raise UserError(f"{path}: its columns are separated by {signs[0]!r}; separate them by commas")
        for name, theirs in mapped.items():
            if name not in (*_IDENTITY, *_LONG) and not name.startswith((LABEL, SCORE)):
                known = [*_IDENTITY, *_LONG, f"{LABEL}NAME", f"{SCORE}NAME"]
                raise UserError(f"--columns {name}: there is no such column to map; use {', '.join(known)}")
            if theirs not in names:
                twice = (
                    "; leave {name} out, or where two sides differ give --columns twice, A's first"
                    if name in names
                    else ""
                )
                raise UserError(
                    f"{path}: there is no column {theirs} for {name}{nearest(theirs, names, 1)}; it has "
                    f"{', '.join(names[:_SHOWN])}{and_more(max(0, len(names) - _SHOWN))}{twice}"
                )
        given = {theirs: name for name, theirs in mapped.items()}
        as_ours.update({name: given.get(name, name) for name in names if name in given or name not in mapped})
        identity = {*_IDENTITY} if several else {*_IDENTITY} - {SEED_COLUMN}
        if set(_LONG) <= set(as_ours.values()):
            identity |= set(_LONG)
        wanted = {
            name: our for name, our in as_ours.items() if our in identity or our.startswith((LABEL, SCORE))
        }
        if (count := sum(our.startswith(SCORE) for our in wanted.values())) > _MOST_FINDINGS:
            raise UserError(f"{path}: {count:,} findings, more than {_MOST_FINDINGS:,}; leave some out")
        texts = {"image", "patient", "split", "finding"}
        return {name: "str" if is_csv and our in texts else None for name, our in wanted.items()}

    table = read_columns(path, is_csv, ours, todo).rename(columns=as_ours)
    table.index = (table.index + (2 if is_csv else 1)).set_names("line" if is_csv else "row")
    whole = re.compile(r"0|[1-9]\d{0,17}", re.ASCII).fullmatch
    if is_csv and "patient" in table and all(map(whole, table["patient"].fillna("").unique())):
        table["patient"] = table["patient"].astype(int)  # as Parquet has them; 007 and 7 stay two
    return table


def _wide(table: pd.DataFrame, place: str, logits: bool) -> pd.DataFrame:
    """A long table with a row per image; a finding that an image has no row for is not known."""
    key = [name for name in (SEED_COLUMN, "image") if name in table]
    if "image" not in table:
        raise UserError(f"{place}: columns are missing: image; add it under this name")
    for name in (*key, "finding"):
        if (bad := table[name].isna()).any():
            raise UserError(f"{place}: {name} is empty in {_rows(table, bad)}; fill it in")
    for name, rule in (("label", LABEL), ("score", SCORE)):
        if (bad := ~_is_good(table[name], rule, logits)).any():
            raise UserError(f"{place}: {name} is {_rows(table, bad, name)}; {_rule(rule, logits)}")
    if (bad := table.duplicated([*key, "finding"], keep=False)).any():
        raise UserError(
            f"{place}: an image has a finding more than once: {_rows(table, bad, 'finding')}; keep one row"
        )
    images = table[[name for name in _IDENTITY if name in table]].drop_duplicates()
    if (bad := images.duplicated(key, keep=False)).any():
        fields = " or ".join(name for name in images if name not in key)
        raise UserError(f"{place}: an image has two values of {fields}: {_rows(images, bad)}; correct them")
    rows, columns = table.groupby(key, sort=False).ngroup().to_numpy(), table["finding"].factorize()
    labels, scores = np.full((len(images), len(columns[1])), np.nan), np.zeros((len(images), len(columns[1])))
    labels[rows, columns[0]] = pd.to_numeric(table["label"]).to_numpy(dtype=float, na_value=np.nan)
    scores[rows, columns[0]] = pd.to_numeric(table["score"])
    wide = {LABEL + str(name): labels[:, k] for k, name in enumerate(columns[1])}
    wide |= {SCORE + str(name): scores[:, k] for k, name in enumerate(columns[1])}
    return images.assign(**wide)


def _rule(prefix: str, logits: bool) -> str:
    return "logits are finite numbers" if logits and prefix == SCORE else _RULES[prefix]


def _is_good(column: pd.Series, rule: str, logits: bool) -> np.ndarray:
    """A mask (n,) of the values that are labels, or scores."""
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if rule == LABEL:
        return np.asarray((values == 0) | (values == 1) | column.isna().to_numpy())
    return np.isfinite(values) if logits else np.asarray((values >= 0) & (values <= 1))


def _all_are_good(columns: pd.DataFrame, rule: str, logits: bool) -> bool:
    """Whether columns of plain numbers hold labels, or scores, alone; False: each is to be looked at."""
    if not all(isinstance(kind, np.dtype) and kind.kind in "uif" for kind in columns.dtypes):
        return False
    values = columns.to_numpy(dtype=np.float64)
    if rule == LABEL:
        return bool(((values == 0) | (values == 1) | np.isnan(values)).all())
    return bool(np.isfinite(values).all() if logits else ((values >= 0) & (values <= 1)).all())


def _partner(name: str) -> str:
    """The column that belongs to a label or a score."""
    kind, _, finding = name.partition("_")
    return {LABEL: SCORE, SCORE: LABEL}.get(f"{kind}_", "") + finding


def _complaints(table: pd.DataFrame, logits: bool = False) -> Iterator[str]:
    """Yield what is wrong in a predictions table, the first thing first."""
    named = dict.fromkeys(name.partition("_")[2] for name in table.columns if name not in _IDENTITY)
    needed = ["image", "split", *(prefix + name for prefix in (LABEL, SCORE) for name in named)]
    if missing := [name for name in needed if name not in table]:
        lonely = [
            name
            for name in table.columns.drop(_partner(missing[0]), errors="ignore")  # no score for a label
            if _partner(name) in missing or name not in needed
        ]
        hint = nearest(missing[0], lonely, 1)
        yield (
            f"columns are missing: {', '.join(missing)}{hint}; add them under these names, or map yours "
            f"with --columns {missing[0]}=NAME"
        )
    if not named:
        yield "there are no columns label_NAME and score_NAME; add a pair for each finding"
    if taken := named.keys() & {*MEANS}:
        yield f"no finding can have the name {min(taken)}, which stands for several of them; choose another"
    for name in named:
        if not (name.strip() and name.isprintable()):
            yield f"no finding can have the name '{name}', which cannot be printed; choose another"
    if table.empty:
        yield "there are no rows; write at least one prediction"
    for name in table.columns.intersection(_IDENTITY):
        bad = table[name].isna()
        if table[name].dtype == object:
            bad |= np.array([not text for text in map(str.strip, map(str, table[name]))])
        if bad.any():
            or_not = ", or leave the column out" if name == "patient" else ""
            yield f"{name} is empty in {_rows(table, bad)}; fill it in{or_not}"
    if (bad := ~table["split"].isin(SPLITS)).any():
        yield f"split is {_rows(table, bad, 'split')}; use one of {', '.join(SPLITS)}"
    run = [name for name in (SEED_COLUMN, "image") if name in table]
    if SEED_COLUMN in table:
        seeds = pd.to_numeric(table[SEED_COLUMN], errors="coerce")
        if (bad := seeds.mod(1).ne(0)).any():
            yield f"seed is {_rows(table, bad, SEED_COLUMN)}; write whole numbers"
    unique = run == ["image"] and table["image"].is_unique  # the usual case, and quick
    if not unique and (bad := table.duplicated(run, keep=False)).any():
        yield f"image occurs more than once in {_rows(table, bad)}; keep one row per image"
    for kind in (LABEL, SCORE):
        columns = [kind + name for name in named]
        for name in [] if _all_are_good(table[columns], kind, logits) else columns:
            if (bad := ~_is_good(table[name], kind, logits)).any():
                yield f"{name} is {_rows(table, bad, name)}; {_rule(kind, logits)}"
    if "patient" in table and table["split"].nunique() > 1:
        yield from _patients_in_two_splits(table)


def _patients_in_two_splits(table: pd.DataFrame) -> Iterator[str]:
    patients, parts = (table[name].factorize()[0].astype(np.int64) for name in ("patient", "split"))
    if len(np.unique(patients * len(SPLITS) + parts)) == len(np.unique(patients)):
        return
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
    """The first bad rows by line or number, with image and value in ``column``."""
    numbers = np.flatnonzero(bad)
    named = []
    for k in numbers[:_SHOWN]:
        value = f"'{table[column].iloc[k]}' in " if column else ""
        named.append(f"{value}{table.index.name} {table.index[k]} (image {table['image'].iloc[k]})")
    return ", ".join(named) + and_more(max(0, len(numbers) - _SHOWN))
