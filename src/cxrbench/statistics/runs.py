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

import numpy as np
import pandas as pd

from cxrbench.statistics.errors import UserError, and_more
from cxrbench.statistics.predictions import (
    FILE,
    LABEL,
    SCORE,
    SEED,
    checked,
    findings_of,
    labels_of,
    load_predictions,
)

ENDINGS = (".csv", ".csv.gz", ".parquet")
_NUMBER = re.compile(r"(?:seed|run)[ _-]?(\d+)", re.IGNORECASE)
Source = str | Path | Mapping[int, pd.DataFrame]


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
        found = _in_folder(path) or [file for folder in path.glob("seed*") for file in _in_folder(folder)]
        if not found:
            raise UserError(
                f"{path}: a folder without predictions; name one with a CSV, CSV.gz or Parquet file for each "
                "run, or with folders seed0, seed1 and so on"
            )
    elif has_magic(str(source)):
        matched = [Path(name) for name in glob(str(source), recursive=True)]
        found = [file for match in matched for file in (_in_folder(match) if match.is_dir() else [match])]
        if not found:
            raise UserError(f"{source}: no file matches this pattern; check it, and quote it in a shell")
    else:
        raise UserError(f"{source}: there is no such file or folder; check the path")
    return sorted(found, key=lambda file: (run_number(file) is None, run_number(file) or 0, str(file)))


def _in_folder(folder: Path) -> list[Path]:
    if (alone := folder / FILE).is_file():  # beside it a run may keep other tables
        return [alone]
    return [file for file in folder.glob("*") if file.name.lower().endswith(ENDINGS) and file.is_file()]


def read_runs(
    source: Source,
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
        parts: list[tuple[str, Path | None, pd.DataFrame, list[str]]] = [
            (place := f"{name}, run {number}", None, *checked(table, place, logits))
            for number, table in source.items()
        ]
        numbers: list[int | None] = list(source)
    else:
        files = find_files(source)
        parts = [(str(file), file, *load_predictions(file, columns, logits, several=True)) for file in files]
        numbers = [run_number(file) for file in files]
    runs: dict[int, tuple[str, Path | None, pd.DataFrame]] = {}
    notes = dict.fromkeys(f"{name}: {note}" for _, _, _, lacking in parts for note in lacking)
    numbered = True
    for (place, path, table, _), number in zip(parts, numbers, strict=True):
        for own, part in _by_seed(table, number):
            if own is None:
                numbered, own = False, -1 - len(runs)  # pairs with no other
            if own in runs:
                raise UserError(
                    f"{place}: run {own} of {name} is in {runs[own][0]} too; keep one of them, or write the "
                    "number of a run into the file's name as seedN"
                )
            runs[own] = place, path, _with_findings(part, findings, place)
    return Runs(
        name,
        {number: runs[number][2] for number in sorted(runs)},
        {number: runs[number][0] for number in runs},
        numbered or len(runs) == 1,
        {number: path for number, (_, path, _) in runs.items() if path},
        tuple(notes),
    )


def _by_seed(table: pd.DataFrame, number: int | None) -> Iterator[tuple[int | None, pd.DataFrame]]:
    """Yield the runs of one table: those of its column ``seed``, else one of this ``number``."""
    if SEED not in table:
        yield number, table
        return
    for seed, part in table.groupby(SEED):
        yield int(seed), part.drop(columns=SEED).reset_index(drop=True)


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
    where = {path.resolve(): number for number, path in a.files.items()}
    both = ((where.get(path.resolve()), number) for number, path in b.files.items())
    return [(mine, number) for mine, number in both if mine is not None]


def aligned(a: Runs, b: Runs, common: bool) -> tuple[Runs, Runs, list[str]]:
    """Both sides with the findings in one order, patients where one run at least has them, and the
    same images; and notes.

    ``common``: leave out images that a run lacks. Raises UserError where findings, images, labels or patients
    of two runs differ.

    >>> from cxrbench.statistics.examples import predictions
    >>> a, b = (read_runs({0: predictions(k)[: 80 - 10 * k]}, name) for k, name in enumerate("AB"))
    >>> first, second, notes = aligned(a, b, common=True)
    >>> notes[0]
    '70 test images are common to all runs, of up to 80 in one'
    """
    notes = []
    every = [(side.sources[number], table) for side in (a, b) for number, table in side.tables.items()]
    _same_findings(every)
    order = [prefix + name for prefix in (LABEL, SCORE) for name in findings_of(every[0][1])]
    every = [(place, table[[*table.columns.difference(order, sort=False), *order]]) for place, table in every]
    for name in ("image", "patient"):  # numbers in one file may be texts in another
        if len({table[name].dtype.kind for _, table in every if name in table}) > 1:
            every = [(p, t.assign(**{name: t[name].astype(str)}) if name in t else t) for p, t in every]
    every, more = _with_patients(every)
    notes += more
    if common:
        shared = set.intersection(*(set(_test(table)["image"]) for _, table in every))
        if not shared:
            raise UserError(f"{a.name} and {b.name} have no test image in common; check the column image")
        most = max(len(_test(table)) for _, table in every)
        if most > len(shared):
            notes.append(f"{len(shared):,} test images are common to all runs, of up to {most:,} in one")
        every = [(p, t[(t["split"] != "test") | t["image"].isin(shared)]) for p, t in every]
    every = [(place, table.sort_values(["split", "image"], kind="stable")) for place, table in every]
    first_place, first = every[0]
    for place, table in every[1:]:
        _same_images(first_place, _test(first), place, _test(table))
    validation = [table.loc[table["split"] == "val"] for _, table in every]
    if not all(_same_rows(validation[0], other) for other in validation[1:]):
        notes.append("F1 is left out: the runs have different validation images, from which thresholds come")
        every = [(place, _test(table)) for place, table in every]
    tables = iter(table for _, table in every)
    sides = [replace(side, tables={number: next(tables) for number in side.tables}) for side in (a, b)]
    return sides[0], sides[1], notes


def _test(table: pd.DataFrame) -> pd.DataFrame:
    return table.loc[table["split"] == "test"]


def _same_findings(every: list[tuple[str, pd.DataFrame]]) -> None:
    (first_place, first), *others = every
    for place, table in others:
        one, two = findings_of(first), findings_of(table)
        for here, there, names in ((first_place, place, one), (place, first_place, two)):
            other = two if names is one else one
            if lonely := [name for name in names if name not in other]:
                shared = ",".join(name for name in one if name in two)
                remedy = (
                    f"--findings {shared} compares those that both have" if shared else "check the columns"
                )
                raise UserError(
                    f"{there}: there is no finding {', '.join(lonely)}, which {here} has; {remedy}"
                )


def _with_patients(
    every: list[tuple[str, pd.DataFrame]],
) -> tuple[list[tuple[str, pd.DataFrame]], list[str]]:
    """The tables with a column ``patient`` in all of them or in none, joined by image."""
    known = [(place, table) for place, table in every if "patient" in table]
    if len(known) in (0, len(every)):
        return every, []
    place, table = known[0]
    of_image = pd.Series(table["patient"].to_numpy(), index=table["image"])
    joined = [(p, t if "patient" in t else t.assign(patient=t["image"].map(of_image))) for p, t in every]
    for other, rows in joined:
        if (lost := rows["patient"].isna()).any():
            image = rows.loc[lost, "image"].iloc[0]
            raise UserError(
                f"{other}: image {image} has no patient in {place}; add a column patient to all files"
            )
    joined = [(p, t.assign(patient=t["patient"].astype(table["patient"].dtype))) for p, t in joined]
    return joined, [f"patients are those of {place}: some files have no column patient"]


def _same_rows(one: pd.DataFrame, two: pd.DataFrame) -> bool:
    """Whether two sorted tables have the same images, patients and labels."""
    columns = [name for name in ("image", "patient") if name in one]
    same = len(one) == len(two) and all(
        (one[name].to_numpy() == two[name].to_numpy()).all() for name in columns
    )
    return bool(same and np.array_equal(labels_of(one), labels_of(two), equal_nan=True))


def _same_images(first: str, one: pd.DataFrame, second: str, two: pd.DataFrame) -> None:
    if _same_rows(one, two):
        return
    if len(one) != len(two) or (one["image"].to_numpy() != two["image"].to_numpy()).any():
        shared = len(set(one["image"]) & set(two["image"]))
        what = f"{second}: {len(two):,} test images, {shared:,} of them among the {len(one):,} of {first}"
        if not shared:
            raise UserError(f"{what}; images are joined by their names, so use the same names in both")
        raise UserError(f"{what}; --common compares those {shared:,}, or score the same images in all runs")
    if "patient" in one and (bad := one["patient"].to_numpy() != two["patient"].to_numpy()).any():
        image, mine, theirs = (part[bad].iloc[0] for part in (two["image"], two["patient"], one["patient"]))
        raise UserError(
            f"{second}: {bad.sum():,} images have a different patient than in {first}, the first of them "
            f"{image} ({mine}, there {theirs}); use one list of patients for all runs"
        )
    truth, other = labels_of(one), labels_of(two)
    bad = ~((truth == other) | (np.isnan(truth) & np.isnan(other)))
    row = int(np.flatnonzero(bad.any(axis=1))[0])
    k = int(np.flatnonzero(bad[row])[0])
    raise UserError(
        f"{second}: the labels of {bad.any(axis=1).sum():,} images are not those of {first}, the first "
        f"{two['image'].iloc[row]} ({findings_of(two)[k]}{and_more(int(bad[row].sum()) - 1)}); "
        "score all runs against the same labels"
    )
