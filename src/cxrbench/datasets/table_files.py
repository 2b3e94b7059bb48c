"""The rows of a :class:`TableSource` under our names, labels as written; every mistake with its place.

They come from CSV, TSV or Parquet files, from an npz of MedMNIST's form, or, without a table, from folders.
Tables here are indexed by file and row, so that a row's place can be named.
"""

import ast
import re
import zipfile
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError, counted, nearest, shortened
from cxrbench.datasets.archives import complete_in, is_archive
from cxrbench.datasets.packed import Say
from cxrbench.statistics.columns import read_columns
from cxrbench.statistics.metrics import MEANS
from cxrbench.study.config import TableSource
from cxrbench.study.recipe import SPLITS

ABOUT = ("view", "sex", "age")  # kept as texts; nothing is computed from them
KNOWN_COLUMNS = ("image", "patient", "split", *ABOUT)
PICTURES = (".png", ".jpg", ".jpeg")
DICOM = (".dcm", ".dicom", ".ima")
_FILE = 1 << 40  # the index of a row is this times the number of its file, plus its row there
_ALSO_CALLED = {  # in lower case, without what is no letter
    "image": (
        "image",
        "path",
        "imagepath",
        "filepath",
        "filename",
        "file",
        "imageindex",
        "imageid",
        "dicomid",
    ),
    "patient": ("patient", "patientid", "subjectid", "subject", "pid"),
}
_BETWEEN = re.compile(r"[|,;]")  # of findings in a list
_NO_LIST = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError)
_NO_ARRAYS = (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile)
_CLASS = "class"  # the column of a folder's name


def read_source(
    config: TableSource, say: Say = lambda text: None, dropped: dict[str, str] | None = None
) -> pd.DataFrame:
    """The rows that are kept: what the files have of :data:`KNOWN_COLUMNS`, and a column for each finding.

    Known columns are stripped texts, empty where the file has nothing; labels are texts or numbers.
    ``dropped`` gets by image why its row is left out.
    """
    frames, image = [], config.columns.get("image", "image")

    def note_dropped(before: pd.DataFrame, after: pd.DataFrame, why: str) -> None:
        if dropped is not None and image in before:
            dropped.update(dict.fromkeys(before[image].drop(after.index).dropna(), why))

    for number, (split, path) in enumerate(config.tables.items()):
        rows = _arrays(path) if path.suffix == ".npz" else _columns(config, path)
        rows.index += number * _FILE
        frames.append(rows.assign(**{config.columns.get("split", "split"): split}) if split else rows)
    if not frames:
        frames = [_folders(config)]
    rows, keys = frames[0] if len(frames) == 1 else pd.concat(frames), set[str]()
    for path in config.join:
        further = _columns(config, path)
        keys.update(rows.columns.intersection(further.columns))
        before, rows = rows, _joined(config, rows, further, path, say)
        note_dropped(before, rows, f"without a row in {path}")
    for column, values in config.keep.items():
        before, rows = rows, _kept(config, rows, column, values if isinstance(values, list) else [values])
        note_dropped(before, rows, "dropped by 'keep'")
    if rows.empty:
        raise UserError(f"{_first(config)}: the table has no rows; write one for each image")
    return _under_our_names(config, rows, keys)


def place_of(config: TableSource, row: Any) -> str:
    """The place of a row of :func:`read_source`: its file, and its line or number there."""
    file_number, row_number = divmod(int(row), _FILE)
    if not config.tables:
        return str(config.folder)
    path = [*config.tables.values()][file_number]
    return f"{path}:{row_number + 2}" if _kind(path) == "CSV" else f"{path}: row {row_number + 1}"


def _first(config: TableSource) -> Path:
    return next(iter(config.tables.values()), config.folder)


def _kind(path: Path) -> str:
    return {".parquet": "Parquet", ".npz": "npz"}.get(path.suffix.lower(), "CSV")


def _columns(config: TableSource, path: Path) -> pd.DataFrame:
    """The columns of a table's file that are used, under the file's names."""
    kind = _kind(path)

    def choose(names: list[str]) -> dict[str, str | None]:
        if config.join:  # by which columns the tables are joined is known later
            return dict.fromkeys(names, "str")
        columns, findings = _used(config, f"{path}:1", names)
        texts = [*columns.values(), *config.keep, *filter(None, [config.labels])]
        types: dict[str, str | None] = dict.fromkeys(findings.values(), "category" if kind == "CSV" else None)
        return types | dict.fromkeys((name for name in texts if name in names), "str")

    if not path.is_file():
        raise UserError(f"{path}: there is no such table; name a CSV or Parquet file under 'table'")
    remedy = f"save it as {kind} in UTF-8"
    return read_columns(path, kind == "CSV", choose, lambda: remedy, missing=[""], delimiters=",;\t")


def _used(
    config: TableSource,
    place: str,
    names: list[str],
    keys: Set[str] = frozenset(),
) -> tuple[dict[str, str], dict[str, str]]:
    """The columns that are used, as our name: the file's; what is known, and findings.

    Columns in ``keys`` join tables. UserError where one is missing.
    """
    for our_name, column in config.columns.items():
        if column not in names and (our_name in KNOWN_COLUMNS or config.labels is None):
            raise UserError(
                f"{place}: no column '{column}', which the config has for {our_name}{nearest(column, names)}"
            )
    columns = {name: config.columns.get(name, name) for name in KNOWN_COLUMNS}
    columns = {our_name: column for our_name, column in columns.items() if column in names}
    if "image" not in columns:
        raise UserError(
            f"{place}: there is no column image{_other_name('image', names)}; add one with each image's path"
        )
    if "patient" not in columns and config.patient is None and config.patient_pattern is None:
        raise UserError(
            f"{place}: there is no column patient{_other_name('patient', names)}; add one, or state in the "
            "config 'patient_pattern', if paths name patients, or 'patient: none': each image then counts as "
            "a patient, and intervals are too narrow"
        )
    if config.labels is not None:
        if config.labels not in names:
            raise UserError(
                f"{place}: no column '{config.labels}', the config's labels{nearest(config.labels, names)}"
            )
        return columns, {}
    renamed = {
        our_name: column for our_name, column in config.columns.items() if our_name not in KNOWN_COLUMNS
    }
    taken = {*columns.values(), *renamed.values(), *config.keep, *keys}
    unnamed = [name for name in names if name not in taken]
    findings = {name: name for name in unnamed} | renamed
    if config.findings is not None:
        for name in config.findings:
            if name not in findings:
                raise UserError(
                    f"{place}: the config's finding '{name}' is not a column{nearest(name, findings)}"
                )
        findings = {name: findings[name] for name in config.findings}
    _check_findings(place, [*findings])
    return columns, findings


def _other_name(column: str, names: list[str]) -> str:
    """A hint at the column that may be the one that is missing, and how to say so; nothing without one."""
    for name in names:
        if re.sub(r"[^a-z]", "", name.lower()) in _ALSO_CALLED[column]:
            return (
                f"; did you mean '{shortened(name)}'? Then state 'columns: {{{column}: {shortened(name)}}}'"
            )
    return ""


def _check_findings(place: str, findings: list[str]) -> None:
    for name in findings:
        if name in MEANS or not name.strip() or not name.isprintable() or len(name) > 60:
            raise UserError(
                f"{place}: no finding can be called '{shortened(name)}'; rename the column, or list the "
                f"findings under 'findings' (up to 60 printable characters, not {', '.join(MEANS)})"
            )
    if not findings:
        raise UserError(f"{place}: there is no column of labels; add one for each finding")


def _arrays(path: Path) -> pd.DataFrame:
    """A row for each image of an npz of MedMNIST's form, and a column for each class or label, by number."""
    try:
        with np.load(path) as arrays:
            of_splits = [np.atleast_2d(arrays[f"{split}_labels"].T).T.astype(int) for split in SPLITS]
            counts = {split: len(arrays[f"{split}_images"]) for split in SPLITS}
        labels = np.concatenate(of_splits)
        if labels.shape[1] == 1:  # the class of each image
            labels = (labels == np.unique(labels)).astype(int)
        images = [(f"{split}_{number:06}", split) for split in SPLITS for number in range(counts[split])]
        rows = pd.DataFrame(images, columns=["image", "split"])
        return rows.join(pd.DataFrame(labels, columns=[*map(str, range(labels.shape[1]))]))
    except _NO_ARRAYS as error:
        raise UserError(
            f"{path}: no npz of MedMNIST's form, with train_images, train_labels and so on ({error}); "
            "name such a file, or a CSV or Parquet file"
        ) from None


def _folders(config: TableSource) -> pd.DataFrame:
    """A row for each image in folders of classes; the split too, where the first folder is one's."""
    folder = config.folder
    paths = complete_in(
        folder, "name the one with the folders of classes under 'folder'", (*PICTURES, *DICOM)
    )
    rows = []
    for path in paths:
        *folders, name = path.relative_to(folder).parts
        if not folders or is_archive(path):
            raise UserError(
                f"{path}: not in the folder of a class; put it there, or name a table under 'table'"
            )
        split = folders[0] if len(folders) > 1 and folders[0] in {*SPLITS, *config.parts} else ""
        rows.append(("/".join((*folders, name)), split, folders[-1]))
    table = pd.DataFrame(rows, columns=["image", "split", _CLASS])
    return table if (table["split"] != "").any() else table.drop(columns="split")


def _joined(
    config: TableSource, rows: pd.DataFrame, further: pd.DataFrame, path: Path, say: Say
) -> pd.DataFrame:
    """The rows with the columns of a further table; those without a row there are left out."""
    if not (keys := [name for name in rows if name in further]):
        raise UserError(
            f"{path}: no column of {_first(config)} is in it; join tables that share one, such as an image's"
        )
    if (repeated := further.duplicated(keys)).any():
        row = repeated.idxmax()
        key = ", ".join(further.loc[row, keys].astype(str))
        raise UserError(f"{path}:{row + 2}: second row for {shortened(key)}; keep one of the two")
    merged = rows.merge(further, how="left", on=keys, indicator="_found").set_axis(rows.index)
    if count := int((absent := merged["_found"] != "both").sum()):
        say(f"{counted(count, 'row')} of {_first(config)} without one in {path}: left out")
    return merged[~absent].drop(columns="_found")


def _kept(config: TableSource, rows: pd.DataFrame, column: str, values: list[Any]) -> pd.DataFrame:
    """The rows whose ``column`` has one of ``values``; UserError where none has."""
    table, kept_texts = _first(config), [*map(str, values)]
    if column not in rows:
        raise UserError(
            f"{table}: no column '{column}', which the config keeps rows by{nearest(column, rows.columns)}"
        )
    kept = rows[rows[column].astype(str).isin(kept_texts)]
    if kept.empty:
        present = ", ".join(shortened(value) for value in rows[column].unique()[:5])
        raise UserError(
            f"{table}: no row has {column} {' or '.join(kept_texts)}; it has {present}: correct 'keep'"
        )
    return kept


def _under_our_names(config: TableSource, rows: pd.DataFrame, keys: set[str]) -> pd.DataFrame:
    """The rows under our names, with the patients of ``patient_pattern`` and a column for each finding."""
    whole, from_folders = str(_first(config)), not config.tables
    names = [name for name in rows if name != _CLASS] if from_folders else [*rows]
    # Classes are no columns: with 'labels' set, no column is taken for a finding.
    listed = config.model_copy(update={"labels": "image"}) if from_folders else config
    columns, findings = _used(listed, whole, names, keys)
    table = pd.DataFrame({our_name: rows[column].fillna("") for our_name, column in columns.items()})
    if config.patient_pattern is not None:
        patients = table["image"].str.extract(f"({config.patient_pattern})", expand=True)[0]
        if (unmatched := patients.isna()).any():
            place, image = place_of(config, unmatched.idxmax()), shortened(table["image"][unmatched].iloc[0])
            raise UserError(
                f"{place}: the path {image} has nothing of 'patient_pattern'; correct one of them"
            )
        table["patient"] = patients
    if from_folders or config.labels is not None:
        texts = rows[_CLASS if from_folders else config.labels].fillna("")
        return table.join(_from_lists(config, whole, texts, one_finding=from_folders))
    return table.join(pd.DataFrame({our_name: rows[column] for our_name, column in findings.items()}))


def _from_lists(config: TableSource, place: str, texts: pd.Series, one_finding: bool) -> pd.DataFrame:
    """A column for each finding that the texts list: 1, 0, or NaN where a text is empty.

    ``one_finding``: a text is one finding.
    """
    distinct = texts.astype("category").cat  # a million texts have some hundred distinct ones
    lists = [[text] if one_finding else _in_list(text) for text in distinct.categories]
    listed = sorted({finding for findings in lists for finding in findings})
    findings = config.findings or listed
    _check_findings(place, findings)
    written = [config.columns.get(name, name) for name in findings]
    for name in written:
        if name not in listed:
            raise UserError(f"{place}: no image has the config's finding '{name}'{nearest(name, listed)}")
    labels = np.array([[float(name in in_text) for name in written] for in_text in lists])
    labels[[text == "" for text in distinct.categories]] = np.nan
    return pd.DataFrame(labels[distinct.codes], texts.index, findings)


def _in_list(text: str) -> list[str]:
    """The findings in a text.

    >>> _in_list("Mass|Nodule"), _in_list("['pleural effusion', 'mass']"), _in_list("")
    (['Mass', 'Nodule'], ['pleural effusion', 'mass'], [])
    """
    if text.startswith("["):
        try:
            return [finding.strip() for finding in ast.literal_eval(text) if finding.strip()]
        except (*_NO_LIST, AttributeError):
            pass  # not as Python writes it
    findings = (finding.strip(" '\"") for finding in _BETWEEN.split(text.strip("[]")))
    return [finding for finding in findings if finding]
