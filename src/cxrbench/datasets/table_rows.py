"""The table of a :class:`TableSource`: read as a whole, checked in columns, every mistake with its line.

A million rows take seconds: nothing here loops over rows. Texts stay as they are written (patient 007).
Tables here are indexed by the rows of the file.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.datasets.split import draw_split
from cxrbench.statistics.columns import read_columns
from cxrbench.statistics.metrics import MEANS
from cxrbench.study.config import TableSource
from cxrbench.study.names import UserError, nearest
from cxrbench.study.readers import shortened
from cxrbench.study.recipe import SPLITS

ABOUT = ("view", "sex", "age")  # kept as texts; nothing is computed from them
_KNOWN = ("image", "patient", "split", *ABOUT)
_UNCERTAIN = -1.0
_MEANS = {"mask": np.nan, "positive": 1.0, "negative": 0.0}
_OUTSIDE = r"^/|^~|^[A-Za-z]:|\\|(?:^|/)\.{1,2}(?:/|$)|//|[\x00-\x1f]"


def read_image_table(config: TableSource) -> pd.DataFrame:
    """Return image, patient, split, what is known about it, and a column per finding (0, 1 or missing).

    ``patient`` is empty with ``patient: none``. Raises UserError naming file, line and remedy.
    """
    if not config.table.is_file():
        raise UserError(f"{config.table}: there is no such table; name a CSV or Parquet file under 'table'")
    remedy = f"save it as {'CSV' if _is_csv(config) else 'Parquet'} in UTF-8"
    rows = read_columns(config.table, _is_csv(config), partial(_chosen, config), lambda: remedy, missing=[""])
    if rows.empty:
        raise UserError(f"{config.table}: the table has no rows; write one for each image")
    facts = rows[[name for name in _KNOWN if name in rows]].fillna("")
    _check_images(config, facts["image"])
    if config.patient == "none":
        facts["patient"] = pd.Series(pd.NA, facts.index, dtype="Int64")
    elif (empty := facts["patient"] == "").any():
        fault = "is empty; fill it in, or state 'patient: none' in the config"
        raise _wrong(config, empty, "patient", fault)
    facts["split"] = _split(config, facts)
    labels = {name: _labels(config, rows[name]) for name in rows if name not in _KNOWN}
    _check_classes(config, facts["split"], pd.DataFrame(labels), given="split" in rows)
    first = facts[[name for name in _KNOWN if name in facts]]
    return pd.concat([first, *map(_compact, labels.values())], axis=1)


def _is_csv(config: TableSource) -> bool:
    return config.table.suffix.lower() != ".parquet"


def _chosen(config: TableSource, names: list[str]) -> dict[str, str | None]:
    """Return the columns to read, with their types; UserError where one is missing."""
    path = config.table
    if "image" not in names:
        hint = nearest("image", names, 1)
        raise UserError(f"{path}:1: there is no column image{hint}; add one with each image's path")
    if "patient" not in names and config.patient is None:
        hint = nearest("patient", names, 1)
        raise UserError(
            f"{path}:1: there is no column patient{hint}; add one, or state 'patient: none' in the config: "
            "each image then counts as a patient, and intervals are too narrow"
        )
    others = [name for name in names if name not in _KNOWN]
    findings = others if config.findings is None else config.findings
    for name in findings:
        if name not in others:
            hint = nearest(name, others)
            raise UserError(f"{path}:1: the config's finding '{name}' is not a column{hint}")
        if name in MEANS or not name.strip() or not name.isprintable() or len(name) > 60:
            raise UserError(
                f"{path}:1: no finding can be called '{shortened(name)}'; rename the column (up to 60 "
                f"printable characters, not {', '.join(MEANS)})"
            )
    if not findings:
        raise UserError(f"{path}:1: there is no column of labels; add one for each finding")
    types: dict[str, str | None] = dict.fromkeys((name for name in names if name in _KNOWN), "str")
    return types | dict.fromkeys(findings, "category" if _is_csv(config) else None)


def _wrong(config: TableSource, bad: pd.Series, column: str, fault: str) -> UserError:
    """Return a complaint about the first row of the mask ``bad``, and how many there are."""
    more = f" ({bad.sum():,} such rows)" if bad.sum() > 1 else ""
    return UserError(f"{place_of(config, bad.idxmax())}: column {column}: {fault}{more}")


def place_of(config: TableSource, row: Any) -> str:
    """The place of a row of a table that :func:`read_image_table` returned stands in its file."""
    return f"{config.table}:{row + 2}" if _is_csv(config) else f"{config.table}: row {row + 1}"


def _check_images(config: TableSource, image: pd.Series) -> None:
    if (empty := image == "").any():
        raise _wrong(config, empty, "image", "is empty; write the image's path, or remove the row")
    if (outside := image.astype("string[pyarrow]").str.contains(_OUTSIDE)).any():
        first = shortened(image[outside].iloc[0])
        fault = f"'{first}' is not a path below the folder; write it from {config.folder} on, with /"
        raise _wrong(config, outside, "image", fault)
    if (again := image.duplicated()).any():
        first = image[again].iloc[0]
        before = place_of(config, (image == first).idxmax())
        fault = f"second row for {shortened(first)} (first in {before}); keep one of the two"
        raise _wrong(config, again, "image", fault)


def _split(config: TableSource, facts: pd.DataFrame) -> pd.Series:
    units = facts["image" if config.patient == "none" else "patient"]
    if "split" not in facts:
        return draw_split(units, config.seed, config.fractions["train"], config.fractions["val"])
    split = facts["split"]
    if (bad := ~split.isin(SPLITS)).any():
        fault = f"'{shortened(split[bad].iloc[0])}' is none of {', '.join(SPLITS)}; correct it, or leave "
        raise _wrong(config, bad, "split", f"{fault}the column out for a split by patient")
    pairs = pd.DataFrame({"unit": units, "split": split}).drop_duplicates()
    if (shared := pairs["unit"].duplicated()).any():
        unit = pairs["unit"][shared].iloc[0]
        rows = pairs.index[pairs["unit"] == unit][:2]
        places = " and ".join(f"{split[row]} ({place_of(config, row)})" for row in rows)
        count = pairs["unit"][shared].nunique()
        raise UserError(
            f"{config.table}: patient {shortened(unit)} is in {places}; {count:,} such patients in all: put "
            "all images of a patient into one part, or leave the column split out"
        )
    return split


def _labels(config: TableSource, given: pd.Series) -> pd.Series:
    """Return the labels of a finding (n,) float64, NaN where one is to be left out."""
    distinct = given.astype("category").cat  # a million labels have three distinct values
    numbers = np.array([*map(_number, distinct.categories), np.nan])  # the last: of code -1, a missing value
    allowed = np.isin(numbers, (0, 1, _UNCERTAIN)) | np.isnan(numbers)
    if (bad := pd.Series(~allowed[distinct.codes], given.index)).any():
        fault = (
            f"'{shortened(given[bad].iloc[0])}' is not a label; write 0, 1, -1 (uncertain) or nothing, or, "
            f"if {given.name} is no finding, list the findings under 'findings' in the config"
        )
        raise _wrong(config, bad, str(given.name), fault)
    values = pd.Series(numbers[distinct.codes], given.index, name=given.name)
    uncertain, blank = values == _UNCERTAIN, values.isna()
    for which, key, words in ((uncertain, "uncertain", "-1, so uncertain"), (blank, "blank", "empty")):
        if which.any():
            if (meaning := getattr(config, key)) is None:
                remedy = f"'{key}: mask' (left out), positive or negative"
                fault = f"a label is {words}; state in the config what that means: {remedy}"
                raise _wrong(config, which, str(given.name), fault)
            values[which] = _MEANS[meaning]
    return values


def _number(label: Any) -> float:
    """Return NaN for an empty label, also as pandas and R write it, and infinity for what is no number."""
    try:
        digits = not isinstance(label, str) or (label.isascii() and "_" not in label)  # else Python's own
        return np.nan if label in ("", "NA") else float(label) if digits else np.inf
    except ValueError:
        return np.inf


def _check_classes(config: TableSource, split: pd.Series, labels: pd.DataFrame, given: bool) -> None:
    """Refuse an empty part, of a split that is ``given`` or drawn, and a finding that cannot be learned."""
    for part in SPLITS:
        if labels[split == part].isna().all(axis=None):
            how = "such rows" if given else "more patients or other fractions"
            raise UserError(f"{config.table}: no image with a label is in part {part}; give {how}")
    for name, values in labels[split == "train"].items():
        for value, word in ((1, "positive"), (0, "negative")):
            if not (values == value).any():
                raise UserError(
                    f"{config.table}: column {name}: no training image is {word}; add such images, or leave "
                    "the finding out (list the others under 'findings' in the config)"
                )


def _compact(values: pd.Series) -> pd.Series:
    """Return labels as uint8, nullable where one is missing."""
    whole = values.fillna(0).astype("uint8")
    return whole if values.notna().all() else whole.astype("UInt8").where(values.notna())


def one_class(table: pd.DataFrame, findings: tuple[str, ...]) -> Iterator[str]:
    """Yield in words which findings have images of one class only in the validation or the test part."""
    for part in ("val", "test"):
        rows = table[table["split"] == part]
        for name in findings:
            for value, word in ((1, "positive"), (0, "negative")):
                if not (rows[name] == value).any():
                    yield f"{name}: no {part} image is {word}, so what needs one is undefined"
