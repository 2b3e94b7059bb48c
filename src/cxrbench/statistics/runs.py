"""The runs of one side of a comparison: their files, their numbers, and what they scored.

A side is a folder with a file of predictions per run, a folder of folders ``seed0`` and so on, one file, a
pattern such as ``"a/*.csv"``, or tables in memory. A run's number is that in ``seed3`` or ``run3`` in the
name of its file, else of its folder ``seed3``, else the last number in the file's name; a column ``seed``
comes before all of them. Runs are paired by these numbers, never by their order.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.statistics.errors import UserError, and_more
from cxrbench.statistics.predictions import (
    FILE,
    LABEL,
    SCORE,
    SEED_COLUMN,
    checked,
    findings_of,
    labels_of,
    load_predictions,
)

ENDINGS = (".csv", ".csv.gz", ".parquet")
_NUMBER = re.compile(r"(?:seed|run)[ _-]?(\d+)", re.IGNORECASE)
RunsSource = str | Path | Mapping[int, pd.DataFrame]


@dataclass(frozen=True)
class Runs:
    """One side: predictions by run, all of them checked; ``numbered`` where files or tables say which is
    which.

    ``sources`` names each run in messages, ``files`` the files behind them, ``notes`` what they lack.
    """

    name: str
    tables: dict[int, pd.DataFrame]
    sources: dict[int, str]
    numbered: bool
    files: dict[int, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def only(self, numbers: Collection[int]) -> Runs:
        """The runs of these ``numbers``.

        >>> from cxrbench.statistics.examples import predictions
        >>> list(read_runs({seed: predictions(seed) for seed in range(3)}, "A").only([0, 2]).tables)
        [0, 2]
        """
        kept = {number: table for number, table in self.tables.items() if number in numbers}
        return replace(self, tables=kept)


def run_number(path: Path) -> int | None:
    """The number of the run whose predictions are in ``path``; None where its name has none.

    >>> names = "seed10.csv", "a/seed2/scores.csv", "net18_run3.csv", "best.csv"
    >>> [run_number(Path(name)) for name in names]
    [10, 2, 3, None]
    """
    name = path.name.lower()
    stem = name.removesuffix(next((ending for ending in ENDINGS if name.endswith(ending)), ""))
    folder = re.fullmatch(r"seed[ _-]?(\d+)", path.absolute().parent.name, re.IGNORECASE)
    digits = _NUMBER.findall(stem) or (folder.groups() if folder else re.findall(r"\d+", stem))
    return int(digits[-1]) if digits else None


def find_files(source: str | Path) -> list[Path]:
    """The files of predictions that ``source`` names, a run's number deciding their order; UserError
    if there are none.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = [(Path(folder) / f"seed{number}.csv").touch() for number in (10, 9)]
    ...     [file.name for file in find_files(folder)]
    ['seed9.csv', 'seed10.csv']
    """
    path = Path(source)
    if path.is_file():
        return [path]
    if path.is_dir():
        files = _in_folder(path) or [file for folder in path.glob("seed*") for file in _in_folder(folder)]
        if not files:
            raise UserError(
                f"{path}: a folder without predictions; name one with a CSV, CSV.gz or Parquet file for each "
                "run, or with folders seed0, seed1 and so on"
            )
    elif has_magic(str(source)):
        paths = [Path(name) for name in glob(str(source), recursive=True)]
        files = [file for path in paths for file in (_in_folder(path) if path.is_dir() else [path])]
        if not files:
            raise UserError(f"{source}: no file matches this pattern; check it, and quote it in a shell")
    else:
        raise UserError(f"{source}: there is no such file or folder; check the path")
    return sorted(files, key=lambda file: (run_number(file) is None, run_number(file) or 0, str(file)))


def _in_folder(folder: Path) -> list[Path]:
    if (predictions := folder / FILE).is_file():  # beside it a run may keep other tables
        return [predictions]
    return [file for file in folder.glob("*") if file.name.lower().endswith(ENDINGS) and file.is_file()]


class _Read(NamedTuple):
    """A file or table of predictions: where it is from, the ``number`` of its run, and notes on it."""

    place: str
    path: Path | None
    number: int | None
    table: pd.DataFrame
    notes: list[str]


def read_runs(
    source: RunsSource,
    name: str,
    columns: Mapping[str, str] | None = None,
    logits: bool = False,
    findings: Collection[str] = (),
) -> Runs:
    """The runs of a side called ``name``, with ``findings`` alone where any are given.

    ``columns`` maps our columns to the file's, ``logits`` says that scores are any finite numbers. Raises
    UserError with file and line for whatever is wrong.

    >>> from cxrbench.statistics.examples import predictions
    >>> side = read_runs({0: predictions(0), 1: predictions(1)}, "A")
    >>> list(side.tables), side.numbered
    ([0, 1], True)
    """
    if isinstance(source, Mapping):
        if not source:
            raise UserError(f"{name}: there are no runs; give at least one table")
        read = [
            _Read(place, None, number, *checked(table, place, logits))
            for number, table in source.items()
            for place in [f"{name}, run {number}"]
        ]
    else:
        read = [
            _Read(str(file), file, run_number(file), *load_predictions(file, columns, logits, several=True))
            for file in find_files(source)
        ]
    runs: dict[int, _Read] = {}
    numbered = True
    for file in read:
        for number, table in _by_seed(file.table, file.number):
            if number is None:
                numbered, number = False, -1 - len(runs)  # pairs with no other
            if number in runs:
                raise UserError(
                    f"{file.place}: run {number} of {name} is in {runs[number].place} too; keep one of them, "
                    "or write the number of a run into the file's name as seedN"
                )
            runs[number] = file._replace(table=_with_findings(table, findings, file.place))
    return Runs(
        name,
        {number: runs[number].table for number in sorted(runs)},
        {number: run.place for number, run in runs.items()},
        numbered or len(runs) == 1,
        {number: run.path for number, run in runs.items() if run.path},
        tuple(dict.fromkeys(f"{name}: {note}" for file in read for note in file.notes)),
    )


def _by_seed(table: pd.DataFrame, number: int | None) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """Yield the runs of one table: those of its column ``seed``, else one of this ``number``."""
    if SEED_COLUMN not in table:
        yield number, table
        return
    for seed, rows in table.groupby(pd.to_numeric(table[SEED_COLUMN])):  # which may have come as text, as 0.0
        yield int(seed), rows.drop(columns=SEED_COLUMN).reset_index(drop=True)


def _with_findings(table: pd.DataFrame, findings: Collection[str], place: str) -> pd.DataFrame:
    if not findings:
        return table
    if missing := [name for name in findings if name not in findings_of(table)]:
        raise UserError(f"{place}: there is no finding {missing[0]}; it has {', '.join(findings_of(table))}")
    scores = [name for name in table if name.startswith((LABEL, SCORE))]
    kept = {prefix + name for prefix in (LABEL, SCORE) for name in findings}
    return table.drop(columns=[name for name in scores if name not in kept])


def same_files(a: Runs, b: Runs) -> list[tuple[int, int]]:
    """The numbers of runs of ``a`` and of ``b`` that are one file.

    >>> a, b = (Runs(name, {}, {}, True, {0: Path("shared.csv"), 1: Path(f"{name}1.csv")}) for name in "AB")
    >>> same_files(a, b)
    [(0, 0)]
    """
    of_a = {path.resolve(): number for number, path in a.files.items()}
    pairs = ((of_a.get(path.resolve()), number) for number, path in b.files.items())
    return [(in_a, in_b) for in_a, in_b in pairs if in_a is not None]


def aligned_runs(a: Runs, b: Runs, common: bool) -> tuple[Runs, Runs, list[str]]:
    """Both sides with the findings in one order, patients where one run at least has them, and the
    same images; and notes.

    ``common``: leave out images that a run lacks. Raises UserError where findings, images, labels or patients
    of two runs differ.

    >>> from cxrbench.statistics.examples import predictions
    >>> a, b = (read_runs({0: predictions(seed)[: 80 - 10 * seed]}, "AB"[seed]) for seed in (0, 1))
    >>> first, second, notes = aligned_runs(a, b, common=True)
    >>> notes[0]
    '70 test images are common to all runs, of up to 80 in one'
    """
    runs = [(side.sources[number], table) for side in (a, b) for number, table in side.tables.items()]
    _same_findings(runs)
    places, tables = [place for place, _ in runs], [table for _, table in runs]
    in_order = [prefix + name for prefix in (LABEL, SCORE) for name in findings_of(tables[0])]
    tables = [table[[*table.columns.difference(in_order, sort=False), *in_order]] for table in tables]
    for name in ("image", "patient"):  # numbers in one file may be texts in another
        if len({table[name].dtype.kind for table in tables if name in table}) > 1:
            tables = [
                table.assign(**{name: _as_text(table[name])}) if name in table else table for table in tables
            ]
    tables, notes = _with_patients(places, tables)
    for place, table in zip(places, tables, strict=True):
        if _test(table).empty:
            raise UserError(
                f"{place}: none of its {len(table):,} rows is of split test; write test into the column "
                "split of the images to compare, or leave the column out"
            )
    if common:
        shared = set.intersection(*(set(_test(table)["image"]) for table in tables))
        if not shared:
            raise UserError(f"{a.name} and {b.name} have no test image in common; check the column image")
        most = max(len(_test(table)) for table in tables)
        if most > len(shared):
            notes.append(f"{len(shared):,} test images are common to all runs, of up to {most:,} in one")
        tables = [table[(table["split"] != "test") | table["image"].isin(shared)] for table in tables]
    tables = [table.sort_values(["split", "image"], kind="stable") for table in tables]
    for place, table in zip(places[1:], tables[1:], strict=True):
        _same_images(places[0], _test(tables[0]), place, _test(table))
    validation = [table.loc[table["split"] == "val"] for table in tables]
    same = [_same_rows(validation[0], rows) for rows in validation]
    if not all(same):
        notes.append(
            "F1 is left out, because its thresholds come from validation images: "
            f"{places[same.index(False)]} has other ones than {places[0]}, or other patients or labels"
        )
        tables = [*map(_test, tables)]
    of_a, of_b = tables[: len(a.tables)], tables[len(a.tables) :]
    _no_run_twice(places[: len(of_a)], of_a)
    _no_run_twice(places[len(of_a) :], of_b)
    first = replace(a, tables=dict(zip(a.tables, of_a, strict=True)))
    return first, replace(b, tables=dict(zip(b.tables, of_b, strict=True))), notes


def _as_text(names: pd.Series) -> pd.Series:
    """Names as texts; of floats that are whole numbers without ``.0``, which pandas adds to a column with a
    gap."""
    whole = names.dtype.kind == "f" and (names == names.round()).all()
    return (names.astype("int64") if whole else names).astype(str)


def _no_run_twice(places: list[str], tables: list[pd.DataFrame]) -> None:
    """UserError where two runs of a side have the same test scores: their spread would be none."""
    seen: dict[bytes, str] = {}
    for place, table in zip(places, tables, strict=True):
        scores = _test(table)[[SCORE + name for name in findings_of(table)]].to_numpy(float).tobytes()
        if (first := seen.setdefault(scores, place)) != place:
            raise UserError(
                f"{place}: all test scores are those of {first}, as if a run was copied or its seed not set; "
                "give each run a seed of its own, or leave one of them out"
            )


def _test(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["split"] == "test"]


def _same_findings(runs: list[tuple[str, pd.DataFrame]]) -> None:
    """UserError unless each run, a place with its table, has the findings of the first."""
    first, *others = ((place, findings_of(table)) for place, table in runs)
    for other in others:
        for (place, findings), (lacking_place, lacking) in ((first, other), (other, first)):
            if missing := [name for name in findings if name not in lacking]:
                shared = ",".join(name for name in first[1] if name in other[1])
                remedy = (
                    f"--findings {shared} compares those that both have" if shared else "check the columns"
                )
                raise UserError(
                    f"{lacking_place}: there is no finding {', '.join(missing)}, which {place} has; {remedy}"
                )


def _with_patients(places: list[str], tables: list[pd.DataFrame]) -> tuple[list[pd.DataFrame], list[str]]:
    """The tables with a column ``patient`` in all of them or in none, joined by image, and notes."""
    with_patients = [
        (place, table) for place, table in zip(places, tables, strict=True) if "patient" in table
    ]
    if len(with_patients) in (0, len(tables)):
        return tables, []
    source, known = with_patients[0]
    by_image = pd.Series(known["patient"].to_numpy(), index=known["image"])
    joined = [
        table if "patient" in table else table.assign(patient=table["image"].map(by_image))
        for table in tables
    ]
    for place, table in zip(places, joined, strict=True):
        if (unknown := table["patient"].isna()).any():
            image = table.loc[unknown, "image"].iloc[0]
            raise UserError(
                f"{place}: image {image} has no patient in {source}; add a column patient to all files"
            )
    dtype = known["patient"].dtype
    joined = [table.assign(patient=table["patient"].astype(dtype)) for table in joined]
    return joined, [f"patients are those of {source}: some files have no column patient"]


def _same_rows(a: pd.DataFrame, b: pd.DataFrame) -> bool:
    """Whether two sorted tables have the same images, patients and labels."""
    columns = [name for name in ("image", "patient") if name in a]
    same = len(a) == len(b) and all((a[name].to_numpy() == b[name].to_numpy()).all() for name in columns)
    return bool(same and np.array_equal(labels_of(a), labels_of(b), equal_nan=True))


def _same_images(place: str, table: pd.DataFrame, other_place: str, other: pd.DataFrame) -> None:
    """UserError, about the other table, unless both have the same images, patients and labels."""
    if _same_rows(table, other):
        return
    if len(table) != len(other) or (table["image"].to_numpy() != other["image"].to_numpy()).any():
        shared = len(set(table["image"]) & set(other["image"]))
        of_all = f"{shared:,} of them among the {len(table):,} of {place}"
        fault = f"{other_place}: {len(other):,} test images, {of_all}"
        if not shared:
            raise UserError(f"{fault}; images are joined by their names, so use the same names in both")
        raise UserError(f"{fault}; --common compares those {shared:,}, or score the same images in all runs")
    if "patient" in table and (differ := table["patient"].to_numpy() != other["patient"].to_numpy()).any():
        row = int(np.flatnonzero(differ)[0])
        patient, first_patient = other["patient"].iloc[row], table["patient"].iloc[row]
        raise UserError(
            f"{other_place}: images with a different patient than in {place}: {differ.sum():,}, the first of "
            f"them {other['image'].iloc[row]} ({patient}, there {first_patient}); use one list of patients "
            "for all runs"
        )
    labels, other_labels = labels_of(table), labels_of(other)
    differ = ~((labels == other_labels) | (np.isnan(labels) & np.isnan(other_labels)))
    row = int(np.flatnonzero(differ.any(axis=1))[0])
    finding = findings_of(other)[int(np.flatnonzero(differ[row])[0])]
    raise UserError(
        f"{other_place}: the labels of {differ.any(axis=1).sum():,} images are not those of {place}, the "
        f"first {other['image'].iloc[row]} ({finding}{and_more(int(differ[row].sum()) - 1)}); "
        "score all runs against the same labels"
    )
