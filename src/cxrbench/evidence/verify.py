"""All recorded evidence, checked: what ``cxrbench verify`` does.

A cell is held against itself, against the other cells, against NIH's label table and the study's splits, and
against git. Whoever makes up a whole run that fits passes (:data:`NOT_SHOWN`).
"""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import assign_split
from cxrbench.evidence.checks import moment_of, numbers, record_problems, score_problems
from cxrbench.evidence.predictions import LABELS, SCORES, read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD, Record, check_evidence
from cxrbench.evidence.store import Signature, read_signature
from cxrbench.evidence.sums import SUMS, read_sums, sums_of, sums_text
from cxrbench.study.cells import Cell, find_cells
from cxrbench.study.config import NihSource, PhantomSource, Study
from cxrbench.study.errors import UserError, printable
from cxrbench.study.files import explained, remedy

NOT_SHOWN = (
    "not shown: that the runs took place as recorded. Scores, times and machines can be made up to fit; the "
    "anchor is the history in git, and a signature (docs/evidence.md)"
)
_CLOCKS = 3600.0  # seconds by which the clocks of two machines may differ


@dataclass
class Verified:
    """The cells below a folder, everything that is wrong with them, and what was not checked."""

    cells: list[Cell]
    problems: list[str]
    not_checked: list[str]
    signature: Signature


def verify_recorded(root: Path, study: Study | None = None) -> Verified:
    """Check everything below ``root``; ``study`` names the splits. One message a problem.

    UserError when there is nothing to check: a wrong folder is not intact evidence.
    """
    if not root.is_dir() or not any(root.iterdir()):
        raise UserError(f"{root}: nothing is recorded there; name the folder with --recorded")
    done = Verified(find_cells(root), list(_changed_files(root)), [], read_signature(root))
    if done.signature.state == "wrong":
        done.problems.append(done.signature.text)
    rows, records = _Rows(study), {}
    for cell in done.cells:
        folder = cell.folder(root)
        try:
            record = check_evidence(folder, cell)
            predictions = read_predictions(folder / PREDICTIONS) if record.status == "ok" else None
        except (UserError, OSError) as error:
            known = explained(error) if isinstance(error, OSError) else error
            done.problems.append(str(known or f"{folder}: {error}"))
            continue
        records[cell] = record
        done.problems += [
            f"{folder / RECORD}: {problem}" for problem in record_problems(record, cell.platform)
        ]
        if predictions is not None:
            found = (*rows.problems(cell, record, predictions), *score_problems(record, predictions))
            done.problems += [f"{folder / PREDICTIONS}: {problem}" for problem in found]
    done.problems += [f"{cell.folder(root)}: {problem}" for cell, problem in _copies(records)]
    done.problems += [f"{cell.folder(root)}: {problem}" for cell, problem in rows.differences(records)]
    done.problems += _commit_problems(root, records, done.not_checked)
    done.not_checked += sorted(rows.not_checked)
    done.problems = list(map(printable, done.problems))
    return done


def _changed_files(root: Path) -> Iterator[str]:
    """Differences between the files below ``root`` and its SHA256SUMS."""
    path = root / SUMS
    if not path.exists():
        yield f"{path}: missing; `cxrbench record` writes it"
        return
    listed, found = read_sums(root), sums_of(root)
    wrong = [name for name in sorted({*listed, *found}) if listed.get(name) != found.get(name)]
    for name in wrong:
        change = "is missing, but listed" if name not in found else "differs from its line"
        change = change if name in listed else "is not listed"
        yield f"{root / name}: {change} in {SUMS}; {remedy(root / name)}"
    if not wrong and path.read_bytes() != sums_text(found).encode():
        yield f"{path}: not as `cxrbench record` writes it; {remedy(path)}"


# ------------------------------------------------------------------------------------ between cells


def _copies(records: dict[Cell, Record]) -> Iterator[tuple[Cell, str]]:
    """Predictions of several cells, and networks of one name with different numbers of parameters."""
    by_hash, sizes = defaultdict(list), defaultdict(list)
    for cell, record in records.items():
        if record.predictions_sha256:
            by_hash[record.predictions_sha256].append(cell)
        if record.parameters and record.dataset:
            sizes[record.dataset.packed, cell.architecture].append((cell, record.parameters))
    for cells in by_hash.values():
        for cell in cells[1:]:
            yield cell, f"has the very predictions of {cells[0]}: one of them is a copy"
    for some in sizes.values():
        usual = _most(parameters for _, parameters in some)
        for cell, parameters in some:
            if parameters != usual:
                yield cell, f"{parameters} parameters; {cell.architecture} has {usual} in other cells"


def _most(values: Iterable[Any]) -> Any:
    return Counter(values).most_common(1)[0][0]


class _Rows:
    """Images, patients, parts and labels of predictions: equal ones are checked once."""

    def __init__(self, study: Study | None) -> None:
        self.study = study
        self.not_checked: set[str] = set()
        self._first: dict[str, tuple[Cell, pd.DataFrame]] = {}  # by digest
        self._of: dict[Cell, str] = {}
        self._known: dict[tuple[str, str], list[str]] = {}

    def problems(self, cell: Cell, record: Record, predictions: pd.DataFrame) -> list[str]:
        """Return what contradicts the record's counts, NIH's table or the study's split."""
        rows = predictions.drop(columns=SCORES).sort_values("image", ignore_index=True)
        digest = hashlib.sha256()
        for name in rows:
            column = rows[name].to_numpy()
            digest.update("\n".join(column).encode() if column.dtype == object else column.tobytes())
        self._of[cell] = digest.hexdigest()
        self._first.setdefault(self._of[cell], (cell, rows))
        if record.dataset is None:
            return []
        counts = dict(numbers(record.dataset.model_dump()))
        key = cell.dataset, self._of[cell] + str(counts)
        if key not in self._known:
            self._known[key] = [*_count_problems(rows, counts), *self._label_problems(cell, rows, counts)]
        return self._known[key]

    def differences(self, records: dict[Cell, Record]) -> Iterator[tuple[Cell, str]]:
        """Cells that name the same packed data as others and have other rows."""
        alike = defaultdict(list)
        for cell in self._of:
            if (data := records[cell].dataset) is not None:
                alike[data.packed].append(cell)
        for cells in alike.values():
            usual, rows = self._first[_most(self._of[cell] for cell in cells)]
            for cell in cells:
                other = self._first[self._of[cell]][1]
                if other is not rows:
                    image = pd.concat([rows, other]).drop_duplicates(keep=False)["image"].iloc[0]
                    yield cell, f"the same packed data as {usual}, but {image} is not the same in both"

    def _label_problems(self, cell: Cell, rows: pd.DataFrame, counts: dict[str, float]) -> Iterator[str]:
        """Patients and labels must be NIH's; phantoms carry NIH's rows under a prefix."""
        config = self.study.datasets.get(cell.dataset) if self.study else None
        source = config.source if config else rows["image"][0].partition("_")[0]
        prefix = f"{source}_" if source in ("phantom", "chestmnist") else ""
        if not (named := rows["image"].str.startswith(prefix)).all():
            yield f"image {rows['image'][~named].iloc[0]} has not the name of an image of {source}"
            return
        if source == "chestmnist" or (config and source not in ("nih", "phantom")):
            self.not_checked.add(f"labels and split of {cell.dataset}, whose images are not named as NIH's")
            return
        if "patient" not in rows:
            yield "column patient is missing"
            return
        names, table = rows["image"].str.removeprefix(prefix), read_nih_table().set_index("image")
        if not (known := names.isin(table.index)).all():
            yield f"image {rows['image'][~known].iloc[0]} is not in NIH's label table"
            return
        truth = table.loc[names]
        for finding, column in zip(("patient", *FINDINGS), ("patient", *LABELS), strict=True):
            wrong = rows[column].to_numpy() != truth[finding].to_numpy()
            if wrong.any():
                yield (
                    f"{column} of image {rows['image'][wrong].iloc[0]} ({wrong.sum()} in all) differs from "
                    "NIH's label table (v2020)"
                )
        yield from self._split_problems(cell, rows, counts)

    def _split_problems(self, cell: Cell, rows: pd.DataFrame, counts: dict[str, float]) -> Iterator[str]:
        """Every image must be in the part that the study's split puts it into."""
        config = self.study.datasets.get(cell.dataset) if self.study else None
        try:
            parts = _parts(config, rows, counts)
        except UserError as error:
            self.not_checked.add(f"the split of {cell.dataset}: {error}")
            return
        wrong = rows["split"].to_numpy() != parts.reindex(rows["image"]).to_numpy()
        if wrong.any():
            first = rows[wrong].iloc[0]
            yield (
                f"image {first['image']} ({wrong.sum()} in all) is in part {first['split']}, and "
                f"{parts.get(first['image'], 'in none')} by the study's split"
            )


def _parts(config: Any, rows: pd.DataFrame, counts: dict[str, float]) -> pd.Series:
    """Return the part of each image by a dataset's ``config``; UserError where that cannot be known here."""
    if isinstance(config, PhantomSource):
        from cxrbench.datasets.phantom import choose_rows  # imported late: drawing needs scipy

        images = {part: int(counts.get(f"images.{part}", 0)) for part in SPLITS}
        return choose_rows(read_nih_table(), images, config.seed).set_index("image")["split"]
    if isinstance(config, NihSource):
        return assign_split(rows, config.split, config.folder).set_axis(rows["image"])
    raise UserError("the study does not name it")


def _count_problems(rows: pd.DataFrame, counts: dict[str, float]) -> Iterator[str]:
    """Images, patients and positive images per part must be as many as the record says."""
    found: dict[str, int] = {}
    for split in sorted({"val", "test", *rows["split"]}):
        part = rows[rows["split"] == split]
        found[f"images.{split}"] = len(part)
        if "patient" in part:
            found[f"patients.{split}"] = part["patient"].nunique()
        sums = part[LABELS].to_numpy().sum(axis=0)
        found |= {f"positive_images.{f}.{split}": int(n) for f, n in zip(FINDINGS, sums, strict=True)}
    for name, number in found.items():
        if counts.get(name) != number:
            yield f"{name} is {number}, in the record's dataset {counts.get(name, 'nothing')}"


# ------------------------------------------------------------------------------------ git


def _commit_problems(root: Path, records: dict[Cell, Record], not_checked: list[str]) -> Iterator[str]:
    """Every recorded commit must be in git, and older than the run."""
    commits = {record.commit for record in records.values()}
    named = [commit for commit in sorted(commits) if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit)]
    shallow = _git(root, "rev-parse", "--is-shallow-repository")
    made = _git(root, "log", "--no-walk", "--ignore-missing", "--format=%H %ct", "--stdin", lines=named)
    if shallow != "false\n" or made is None:
        not_checked.append(f"commits: {root} is in no git repository here, or in one without its history")
        return
    times = {commit: int(time) for commit, time in (line.split() for line in made.splitlines())}
    for cell, record in records.items():
        started, where = moment_of(record.started), cell.folder(root) / RECORD
        if record.commit == "unknown" and record.dirty:
            not_checked.append(f"the commit of {cell}, which was trained outside a checkout")
        elif record.commit not in times:
            yield f"{where}: commit {record.commit} is not in git; fetch it, or record the cell again"
        elif started and started.timestamp() < times[record.commit] - _CLOCKS:
            yield f"{where}: started {record.started}, before its commit {record.commit[:12]} was made"


def _git(root: Path, *words: str, lines: Iterable[str] = ()) -> str | None:
    """Return what git prints in ``root``; None when it fails or is not installed."""
    command = ["git", "-C", str(root), *words]
    try:
        done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout.decode(errors="replace")
