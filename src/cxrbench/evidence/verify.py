"""All recorded evidence, checked: what ``cxrbench verify`` does.

A cell is compared with itself, with the other cells, with NIH's label table and the study's splits, and with
git. A whole run that is made up to fit passes (:data:`NOT_SHOWN`).
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError, printable
from cxrbench.common.files import cores, explained, remedy
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table
from cxrbench.datasets.split import assign_split, choose_rows
from cxrbench.evidence.checks import (
    Scored,
    doubts,
    log_problems,
    numbers_in,
    ranks,
    record_problems,
    score_problems,
    starts_in,
)
from cxrbench.evidence.compiled import compile_problems
from cxrbench.evidence.expected import EXPECTED, read_expected
from cxrbench.evidence.history import commit_problems, other_recipes, removed_records
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import LAST, LOG, PREDICTIONS, RECORD, Record
from cxrbench.evidence.store import check_evidence
from cxrbench.evidence.sums import (
    SUMS,
    Signature,
    link_problems,
    read_signature,
    read_sums,
    sums_of,
    sums_text,
)
from cxrbench.statistics.predictions import LABEL, SCORE, findings_of, labels_of
from cxrbench.study.config import NihSource, PhantomSource, Study
from cxrbench.study.names import Cell, find_cells
from cxrbench.study.recipe import SPLITS

NOT_SHOWN = (
    "not shown: that the runs took place as recorded. Scores, times and machines can be made up to fit; the "
    "anchor is the history in git, and a signature (docs/evidence.md)"
)
# Rank correlation of the test scores of two cells of the same images: at most 0.950 between different seeds
# or networks of 97 recorded cells. A copy with noise has 1.000.
_ALIKE = 0.99


@dataclass
class Verified:
    """The cells below a folder, everything that is wrong with them, and what was not checked."""

    cells: list[Cell]
    problems: list[str]
    not_checked: list[str]
    signature: Signature
    notes: list[str]  # unusual, and may be true


def verify_recorded(root: Path, study: Study | None = None) -> Verified:
    """Check everything below ``root``; ``study`` names the splits. Each problem is one message.

    UserError when there is nothing to check: a wrong folder is not intact evidence.
    """
    if not root.is_dir() or not ((root / SUMS).exists() or any(root.rglob(RECORD))):
        raise UserError(f"{root}: nothing is recorded there; name the folder with --recorded")
    cells, signature, records = find_cells(root), read_signature(root), {}
    rows, problems = _Rows(study), list(_changed_files(root, cells))
    ranked: dict[Cell, np.ndarray] = {}
    notes = [*removed_records(root), *_expected_and_gone(root, cells)]
    if signature.state == "wrong":
        problems.append(signature.text)
    with ProcessPoolExecutor(max(1, min(cores(), len(cells)))) as pool:
        for cell, read in zip(cells, pool.map(partial(_read, root), cells, chunksize=4), strict=True):
            problems += read.of_record
            if read.record:
                records[cell] = read.record
                path = cell.folder(root) / PREDICTIONS
                in_rows = rows.problems(cell, read.record, path, read.digest) if read.digest else []
                problems += [f"{path}: {problem}" for problem in (*in_rows, *read.of_scores)]
                notes += [f"{path}: {doubt}" for doubt in read.doubts]
                if read.ranks is not None:
                    ranked[cell] = read.ranks
    for cell, problem in (*_copies(records), *_alike(records, ranked), *rows.differences(records)):
        problems.append(f"{cell.folder(root)}: {problem}")
    problems += compile_problems(root)
    not_checked: list[str] = []
    problems += commit_problems(root, records, not_checked)
    notes += [f"{cell}: {text}" for cell, text in other_recipes(root, records)]
    not_checked += sorted(rows.not_checked)
    return Verified(cells, [*map(printable, problems)], not_checked, signature, [*map(printable, notes)])


class _Read(NamedTuple):
    """A cell's record, a hash of its predictions but for scores, their ranks, and what is wrong or odd."""

    of_record: list[str]
    record: Record | None = None
    digest: str | None = None
    of_scores: Sequence[str] = ()
    doubts: Sequence[str] = ()
    ranks: np.ndarray | None = None


def _read(root: Path, cell: Cell) -> _Read:
    folder = cell.folder(root)
    try:
        record = check_evidence(folder, cell)
        predictions = _in_order(folder / PREDICTIONS) if record.status == "ok" else None
    except (UserError, OSError) as error:
        reason = explained(error) if isinstance(error, OSError) else error
        return _Read([str(reason or f"{folder}: {error}")])
    problems = record_problems(record, cell.platform, starts_in(folder / LOG))
    of_record = [
        *(f"{folder / RECORD}: {problem}" for problem in problems),
        *(f"{folder / LOG}: {problem}" for problem in log_problems(record, folder / LOG)),
    ]
    if predictions is None:
        return _Read(of_record, record)
    of_record += _last_problems(folder, _without_scores(predictions))
    rows, scored = (
        _without_scores(predictions).sort_values("image", ignore_index=True),
        Scored.of(predictions),
    )
    hashes = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    digest = hashlib.sha256(f"{[*rows]}".encode() + hashes.tobytes()).hexdigest()
    of_scores, odd = [*score_problems(record, scored)], [*doubts(record, scored)]
    return _Read(of_record, record, digest, of_scores, odd, ranks(scored))


def _in_order(path: Path) -> pd.DataFrame:
    """Predictions with their columns sorted: two tables may have the same ones in another order."""
    return read_predictions(path).sort_index(axis=1)


def _without_scores(predictions: pd.DataFrame) -> pd.DataFrame:
    return predictions.loc[:, ~predictions.columns.str.startswith(SCORE)]


def _last_problems(folder: Path, rows: pd.DataFrame) -> Iterator[str]:
    """Yield why the scores of the last weights, where there are some, are not of the same test images."""
    if not (path := folder / LAST).exists():
        return
    try:
        last = _in_order(path)
    except UserError as error:
        yield str(error)
        return
    if not _without_scores(last).equals(rows[rows["split"] == "test"].reset_index(drop=True)):
        yield f"{path}: its images, patients or labels are not those of the test part in {PREDICTIONS}"


def _changed_files(root: Path, cells: list[Cell]) -> Iterator[str]:
    """Yield differences between the files below ``root`` and its SHA256SUMS, and records of no cell."""
    yield from link_problems(root)
    known = {cell.folder(root) / RECORD for cell in cells}
    for path in sorted(set(root.rglob(RECORD)) - known):
        yield f"{path}: in no folder of a cell (dataset/architecture/platform/seedN); remove it"
    path = root / SUMS
    if not path.exists():
        yield f"{path}: missing; `cxrbench record` writes it"
        return
    listed, present = read_sums(root), sums_of(root)
    wrong = [name for name in sorted({*listed, *present}) if listed.get(name) != present.get(name)]
    for name in wrong:
        change = "is missing, but listed" if name not in present else "differs from its line"
        change = change if name in listed else "is not listed"
        yield f"{root / name}: {change} in {SUMS}; {remedy(root / name)}"
    if not wrong and path.read_bytes() != sums_text(present).encode():
        yield f"{path}: not as `cxrbench record` writes it; {remedy(path)}"


def _copies(records: dict[Cell, Record]) -> Iterator[tuple[Cell, str]]:
    """Yield predictions that several cells share, and unusual parameter counts of a network.

    One training under the names of two datasets is no copy: it is repeated to the bit.
    """
    first: dict[str, Cell] = {}
    for cell, record in records.items():
        earlier = first.setdefault(record.predictions_sha256 or str(cell), cell)
        if earlier != cell and not _same_training(record, records[earlier]):
            yield cell, f"has the same predictions as {earlier}: one of them is a copy"
    sizes = {cell: record.parameters for cell, record in records.items() if record.parameters}
    for cell, usual in _odd(sizes, lambda cell: (_packed(records[cell]), cell.architecture)):
        yield cell, f"{sizes[cell]} parameters; {cell.architecture} has {sizes[usual]} in other cells"


def _alike(records: dict[Cell, Record], ranked: dict[Cell, np.ndarray]) -> Iterator[tuple[Cell, str]]:
    """Yield cells of another seed or network whose scores order the test images as an earlier one's do."""
    groups = defaultdict(list)
    for cell, vector in ranked.items():
        groups[_packed(records[cell]), len(vector)].append(cell)
    for cells in groups.values():
        vectors = np.stack([ranked[cell] for cell in cells])
        for i, correlations in enumerate(vectors @ vectors.T):
            for k in np.flatnonzero(correlations[:i] > _ALIKE):
                cell, twin = cells[i], cells[k]
                if (cell.architecture, cell.seed) != (twin.architecture, twin.seed):
                    rho = f"rank correlation {correlations[k]:.3f}"
                    yield cell, f"orders the test images as {twin} does ({rho}): one is made from the other"
                    break


def _expected_and_gone(root: Path, cells: list[Cell]) -> Iterator[str]:
    """Yield cells that have a reviewed outcome in the file beside ``root`` and no evidence below it."""
    if (reviewed := root.parent / EXPECTED.name).is_file():
        names = {name for name, _, _ in read_expected(reviewed) if not set(name) & set("*?[")}
        for name in sorted(names - set(map(str, cells))):
            yield f"{reviewed}: {name} has a reviewed outcome, and no evidence of it is recorded"


def _same_training(first: Record, second: Record) -> bool:
    """Whether two records are of equal pixels, recipe, network, platform and seed, begun apart."""
    cells = [Cell.parse(record.cell) for record in (first, second)]
    same = [(cell.architecture, cell.platform, cell.seed) for cell in cells]
    alike = (first.recipe_hash, _packed(first)) == (second.recipe_hash, _packed(second))
    return same[0] == same[1] and alike and first.started != second.started


def _odd(values: dict[Cell, Any], group: Callable[[Cell], Hashable]) -> Iterator[tuple[Cell, Cell]]:
    """Yield each cell whose value is not the usual of its group, with the first that has the usual."""
    groups = defaultdict(list)
    for cell in values:
        groups[group(cell)].append(cell)
    for cells in groups.values():
        usual = Counter(values[cell] for cell in cells).most_common(1)[0][0]
        first = next(cell for cell in cells if values[cell] == usual)
        yield from ((cell, first) for cell in cells if values[cell] != usual)


def _packed(record: Record) -> str:
    return record.dataset.packed if record.dataset else record.cell  # of no other cell


class _Rows:
    """Images, patients, parts and labels of predictions: equal ones are checked once."""

    def __init__(self, study: Study | None) -> None:
        self.study = study
        self.not_checked: set[str] = set()
        self._digests: dict[Cell, str] = {}
        self._tables: dict[str, pd.DataFrame] = {}
        self._checked: dict[tuple[str, str], list[str]] = {}

    def problems(self, cell: Cell, record: Record, path: Path, digest: str) -> list[str]:
        """The contradictions to the record's counts, NIH's table or the study's split in a table."""
        self._digests[cell] = digest
        if digest not in self._tables:  # one of many: read again, for sending each costs more
            rows = _without_scores(_in_order(path))
            self._tables[digest] = rows.sort_values("image", ignore_index=True)
        if record.dataset is None:
            return []
        counts = dict(numbers_in(record.dataset.model_dump()))
        key = cell.dataset, digest + str(counts)
        if key not in self._checked:
            rows = self._tables[digest]
            self._checked[key] = [*_count_problems(rows, counts), *self._label_problems(cell, rows, counts)]
        return self._checked[key]

    def differences(self, records: dict[Cell, Record]) -> Iterator[tuple[Cell, str]]:
        """Yield cells that name the same packed data as others and have other rows."""
        for cell, usual in _odd(self._digests, lambda cell: _packed(records[cell])):
            both = pd.concat([self._tables[self._digests[name]] for name in (usual, cell)])
            for image in both.drop_duplicates(keep=False)["image"].head(1):  # none: of other types alone
                yield cell, f"the same packed data as {usual}, but {image} is not the same in both"

    def _label_problems(self, cell: Cell, rows: pd.DataFrame, counts: dict[str, float]) -> Iterator[str]:
        """Yield patients and labels that are not NIH's; phantoms carry NIH's rows under a prefix."""
        config = self.study.datasets.get(cell.dataset) if self.study else None
        source = config.source if config else rows["image"][0].partition("_")[0]
        prefix = f"{source}_" if source in ("phantom", "chestmnist") else ""
        if not (named := rows["image"].str.startswith(prefix)).all():
            yield f"image {rows['image'][~named].iloc[0]} is not named like an image of {source}"
            return
        if source == "chestmnist" or (config and source not in ("nih", "phantom")):
            self.not_checked.add(f"labels and split of {cell.dataset}, whose images are not named as NIH's")
            return
        if "patient" not in rows:
            yield "column patient is missing"
            return
        names, table = rows["image"].str.removeprefix(prefix), _nih_by_image()
        if not (in_table := names.isin(table.index)).all():
            yield f"image {rows['image'][~in_table].iloc[0]} is not in NIH's label table"
            return
        if odd := set(FINDINGS) ^ set(findings := findings_of(rows)):
            yield f"the findings are not NIH's: {', '.join(sorted(odd))}"
            return
        columns = ["patient", *(LABEL + finding for finding in findings)]
        wrong = rows[columns].to_numpy() != table.loc[names, ["patient", *findings]].to_numpy()
        for column in np.flatnonzero(wrong.any(axis=0)):
            first, count = rows["image"][wrong[:, column].argmax()], wrong[:, column].sum()
            place = f"{columns[column]} of image {first} ({count} in all)"
            yield f"{place} differs from NIH's label table (v2020)"
        try:
            parts = _parts(config, rows, counts)
        except UserError as error:
            self.not_checked.add(f"the split of {cell.dataset}: {error}")
            return
        elsewhere = rows["split"].to_numpy() != parts.reindex(rows["image"]).to_numpy()
        for image, part in rows[elsewhere][["image", "split"]].head(1).itertuples(index=False):
            where = f"in part {part}, and {parts.get(image, 'in none')} by the study's split"
            yield f"image {image} ({elsewhere.sum()} in all) is {where}"


@cache
def _nih_by_image() -> pd.DataFrame:
    return read_nih_table().set_index("image")


def _parts(config: Any, rows: pd.DataFrame, counts: dict[str, float]) -> pd.Series:
    """The part of each image by a dataset's ``config``; UserError where that cannot be known here."""
    if isinstance(config, PhantomSource):
        images = {part: int(counts.get(f"images.{part}", 0)) for part in SPLITS}
        return choose_rows(read_nih_table(), images, config.seed).set_index("image")["split"]
    if isinstance(config, NihSource):
        return assign_split(rows, config.split, config.folder).set_axis(rows["image"])
    raise UserError("the study does not name it; add it to the config, and it is checked")


def _count_problems(rows: pd.DataFrame, counts: dict[str, float]) -> Iterator[str]:
    """Yield images, patients and positive images per part that are not as many as the record says."""
    present: dict[str, int] = {}
    for split in sorted({"val", "test", *rows["split"]}):
        part = rows[rows["split"] == split]
        present[f"images.{split}"] = len(part)
        if "patient" in part:
            present[f"patients.{split}"] = part["patient"].nunique()
        sums = dict(zip(findings_of(part), np.nansum(labels_of(part), axis=0), strict=True))
        present |= {f"positive_images.{finding}.{split}": int(count) for finding, count in sums.items()}
    scored = tuple(f".{split}" for split in rows["split"].unique())
    named = (name for name in counts if name.startswith("positive_images.") and name.endswith(scored))
    for name in dict.fromkeys([*present, *named]):
        number, recorded = present.get(name, "nothing"), counts.get(name, "nothing")
        if number != recorded:
            yield f"{name} is {number}, in the record's dataset {recorded}"
