"""The table of a :class:`TableSource`: labels read, images merged, split drawn, every mistake with its line.

A million rows take seconds: nothing here loops over rows. Texts stay as they are written (patient 007).
Tables here are indexed by the rows of the files.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError, counted, shortened
from cxrbench.datasets.packed import Say
from cxrbench.datasets.split import draw_split
from cxrbench.datasets.table_files import KNOWN_COLUMNS, place_of, read_source
from cxrbench.study.config import TableSource
from cxrbench.study.recipe import SPLITS, Split

_UNCERTAIN = -1.0
_MEANS = {"mask": np.nan, "positive": 1.0, "negative": 0.0}
_OUTSIDE = r"^/|^~|^[A-Za-z]:|\\|(?:^|/)\.{1,2}(?:/|$)|//|[\x00-\x1f]"


def read_image_table(
    config: TableSource, say: Say = lambda text: None, dropped: dict[str, str] | None = None
) -> pd.DataFrame:
    """Image, patient, split, what is known about it, and a column per finding (0, 1 or missing).

    ``patient`` is empty with ``patient: none``. ``dropped`` gets by image why its row was left out. Raises
    UserError naming file, line and remedy.
    """
    rows = read_source(config, say, dropped)
    facts = rows[[name for name in KNOWN_COLUMNS if name in rows]].copy()
    _check_images(config, facts["image"])
    if config.patient == "none":
        facts["patient"] = pd.Series(pd.NA, facts.index, dtype="Int64")
    elif (empty := facts["patient"] == "").any():
        fault = "is empty; fill it in, or state 'patient: none' in the config"
        raise _wrong(config, empty, "patient", fault)
    labels = pd.DataFrame({name: _labels(config, rows[name]) for name in rows if name not in KNOWN_COLUMNS})
    if config.merge:
        facts, labels = _merged(config, facts, labels)
    facts["split"] = _split(config, facts, labels)
    _check_classes(config, facts["split"], labels, given="split" in rows)
    first = facts[[name for name in KNOWN_COLUMNS if name in facts]]
    return pd.concat([first, *(_compact(values) for _, values in labels.items())], axis=1)


def _wrong(config: TableSource, bad: pd.Series, column: str, fault: str) -> UserError:
    """A complaint about the first row of the mask ``bad``, and how many there are."""
    more = f" ({bad.sum():,} such rows)" if bad.sum() > 1 else ""
    return UserError(f"{place_of(config, bad.idxmax())}: column {column}: {fault}{more}")


def _check_images(config: TableSource, image: pd.Series) -> None:
    if (empty := image == "").any():
        raise _wrong(config, empty, "image", "is empty; write the image's path, or remove the row")
    if (outside := image.astype("string[pyarrow]").str.contains(_OUTSIDE)).any():
        first = shortened(image[outside].iloc[0])
        fault = f"'{first}' is not a path below the folder; write it from {config.folder} on, with /"
        raise _wrong(config, outside, "image", fault)
    if not config.merge and (again := image.duplicated()).any():
        first = image[again].iloc[0]
        before = place_of(config, (image == first).idxmax())
        fault = (
            f"second row for {shortened(first)} (first in {before}); keep one of the two, or, if rows are "
        )
        fault += "of boxes or readers, state 'merge: any' (positive if any row is) or 'merge: majority'"
        raise _wrong(config, again, "image", fault)


def _merged(
    config: TableSource, facts: pd.DataFrame, labels: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row for each image, the first; its labels by the config's rule, over the rows that have one."""
    image = facts["image"]
    for name in ("patient", "split"):
        if name in facts and (more := facts.groupby("image")[name].nunique() > 1).any():
            bad = image.isin(more.index[more])
            fault = f"rows of {shortened(image[bad].iloc[0])} differ in it; correct them"
            raise _wrong(config, bad, name, fault)
    groups, first = labels.groupby(image, sort=False), facts[~image.duplicated()].copy()
    share = groups.max() if config.merge == "any" else groups.mean()
    return first, (share > 0.5).astype(float).where(share.notna()).set_axis(first.index)


def _split(config: TableSource, facts: pd.DataFrame, labels: pd.DataFrame) -> pd.Series:
    """The part of each row: as stated, or drawn."""
    units = facts["image" if config.patient == "none" else "patient"]

    def drawn(rows: pd.Series, parts: Sequence[str]) -> pd.Series:
        fractions = {part: config.fractions.get(part, 0.0) for part in get_args(Split) if part in parts}
        if not math.fsum(fractions.values()):
            named = " and ".join(parts)
            raise UserError(f"{_table(config)}: fractions give nothing to {named}; correct them")
        shares = {part: fraction / math.fsum(fractions.values()) for part, fraction in fractions.items()}
        strata = _rarest(labels[rows], units[rows]) if config.stratify else None
        return draw_split(units[rows], config.seed, shares, strata)

    if "split" not in facts:
        return drawn(pd.Series(True, facts.index), SPLITS)
    split = facts["split"].copy()
    for name, part in config.parts.items():
        rows = facts["split"] == name
        split[rows] = part if isinstance(part, str) else drawn(rows, part)
    if (bad := ~split.isin(SPLITS)).any():
        name = shortened(split[bad].iloc[0])
        fault = f"'{name}' is none of {', '.join(SPLITS)}; correct it, state what it stands for "
        fault += f"('parts: {{{name}: val}}'), or leave the column out for a split by patient"
        raise _wrong(config, bad, "split", fault)
    pairs = pd.DataFrame({"unit": units, "split": split}).drop_duplicates()
    if (shared := pairs["unit"].duplicated()).any():
        unit = pairs["unit"][shared].iloc[0]
        rows = pairs.index[pairs["unit"] == unit][:2]
        places = " and ".join(f"{split[row]} ({place_of(config, row)})" for row in rows)
        such = counted(pairs["unit"][shared].nunique(), "such patient")
        raise UserError(
            f"{_table(config)}: patient {shortened(unit)} is in {places}; {such} in all: "
            "put all images of a patient into one part, or leave the column split out"
        )
    return split


def _rarest(labels: pd.DataFrame, units: pd.Series) -> pd.Series:
    """The rarest finding of each patient of ``units``, by the number of positive patients; -1 without any."""
    positive = (labels == 1).groupby(units).any()
    order = np.argsort(positive.sum().to_numpy(), kind="stable")
    ranked = positive.to_numpy()[:, order]
    return pd.Series(np.where(ranked.any(axis=1), ranked.argmax(axis=1), -1), positive.index)


def _labels(config: TableSource, given: pd.Series) -> pd.Series:
    """The labels of a finding (n,) float64, NaN where one is to be left out."""
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
    """NaN for an empty label, also as pandas and R write it, and infinity for what is no number."""
    try:
        digits = not isinstance(label, str) or (label.isascii() and "_" not in label)  # else Python's own
        return np.nan if label in ("", "NA") else float(label) if digits else np.inf
    except ValueError:
        return np.inf


def _check_classes(config: TableSource, split: pd.Series, labels: pd.DataFrame, given: bool) -> None:
    """Refuse an empty part, of a split that is ``given`` or drawn, and a finding that cannot be learned."""
    needed = ("test",) if config.scored_only else SPLITS
    for part in needed:
        if labels[split == part].isna().all(axis=None):
            how = "such rows" if given else "more patients or other fractions"
            raise UserError(f"{_table(config)}: no image with a label is in part {part}; give {how}")
    for name, values in () if config.scored_only else labels[split == "train"].items():
        for value, word in ((1, "positive"), (0, "negative")):
            if not (values == value).any():
                raise UserError(
                    f"{_table(config)}: column {name}: no training image is {word}; add such images, or "
                    "leave the finding out (list the others under 'findings' in the config)"
                )


def _table(config: TableSource) -> Path:
    return next(iter(config.tables.values()), config.folder)


def _compact(values: pd.Series) -> pd.Series:
    """Labels as uint8, nullable where one is missing."""
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
