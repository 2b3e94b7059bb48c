"""The scores of the study's cells, kept: one Parquet file per file of predictions, scored once.

A file has all that comparisons need of a cell, as a tree of arrays and tables. Every array is a column with
one row, its bytes, named after its place: ``estimate/estimate/influence``. A table is one as Arrow's bytes.
What is no array stands, with kinds and shapes, as JSON in the file's metadata.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from cxrbench.common.errors import UserError
from cxrbench.common.files import cores, json_text, sha256_file, sha256_json, write_text, written_aside
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import abnormal_share
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import LAST, PREDICTIONS, RECORD, Record, read_record
from cxrbench.results import subgroups
from cxrbench.statistics.auroc import Estimate, ImageParts
from cxrbench.statistics.estimates import CellEstimate, estimate_cell
from cxrbench.statistics.evaluate import evaluation_of, require_controls
from cxrbench.statistics.f1_search import f1_search
from cxrbench.statistics.sample import Sample, Scope, Thresholds, validation_of
from cxrbench.statistics.sources import halved_scores
from cxrbench.study.config import NihSource, PhantomSource, Study
from cxrbench.study.names import Cell

_CODE = (
    *("statistics/*.py", "results/kept.py", "results/subgroups.py", "datasets/nih_table.py"),
    *("datasets/split.py", "datasets/splits/*"),
)
CELLS = "cells"  # the folder of adopted evidence in that of results
SCORES = "scores"  # the folder of scores in that of results, and the name of the list beside it
_FORM, _MADE_FROM, _HASH = b"form", b"made_from", b"sha256"


class Scores(NamedTuple):
    """What a cell's predictions say: rows of metrics.csv, ``notes`` on them, and what they are made of.

    ``halves``: scores on halves of the patients (:func:`~cxrbench.statistics.sources.halved_scores`);
    ``subgroups`` and ``groups`` (by label) are of images in NIH's table. ``last``: what the weights after the
    last step score without averaging, AUROC and macro F1; None of older records.
    """

    metrics: pd.DataFrame
    notes: tuple[str, ...]
    estimate: CellEstimate
    halves: np.ndarray
    f1_search: pd.DataFrame
    subgroups: pd.DataFrame | None
    groups: dict[str, CellEstimate]
    last: CellEstimate | None


_CLASSES = {
    kind.__name__: kind for kind in (Scores, CellEstimate, Estimate, ImageParts, Sample, Scope, Thresholds)
}


class _Scored(NamedTuple):
    """A cell with the file of its predictions, the file of its scores, and what decides these."""

    cell: Cell
    predictions: Path
    sha256: str
    last_sha256: str | None  # of what the last weights predict
    scores: Path
    of_nih: bool
    least: int

    @property
    def made_from(self) -> str:
        """A hash of what decides the scores besides the predictions."""
        return sha256_json([_code(), self.of_nih, self.least, self.last_sha256])

    def read(self) -> Scores | None:
        """The kept scores, if they are there and still right."""
        return kept(self.scores, self.made_from, _CLASSES)

    def score(self) -> None:
        """Score the predictions and keep the scores.

        The controls (constant, label as score, shuffled labels) run first; one that fails is a UserError.
        """
        last = self.predictions.with_name(LAST)
        for path, recorded in ((self.predictions, self.sha256), (last, self.last_sha256)):
            if recorded and sha256_file(path) != recorded:
                raise UserError(f"{path}: not what its record has the hash of; build again")
        predictions = read_predictions(self.predictions)
        require_controls(predictions, str(self.predictions))
        by_subgroup, groups = (
            subgroups.subgroups(predictions, read_nih_table()) if self.of_nih else (None, {})
        )
        estimate = estimate_cell(predictions, self.least)
        metrics, notes = evaluation_of(estimate)
        halves = halved_scores(estimate, validation_of(predictions))
        search = f1_search(predictions, abnormal_share("official") if self.of_nih else np.nan)
        unaveraged = None
        if self.last_sha256:
            whole = estimate_cell(read_predictions(last), self.least).only("auroc", "f1_macro")
            unaveraged = replace(whole, parts={})
        scores = Scores(metrics, tuple(notes), estimate, halves, search, by_subgroup, groups, last=unaveraged)
        keep(self.scores, scores, self.made_from)


@cache
def _code() -> str:
    """A hash of the code that scores, and of the packages that it computes with."""
    package = Path(__file__).parents[1]
    files = sorted(path for pattern in _CODE for path in package.glob(pattern))
    hashes = {str(path.relative_to(package)): sha256_file(path) for path in files}
    return sha256_json(hashes | {name: version(name) for name in ("numpy", "pandas", "scipy", "pyarrow")})


def keep_scores(records: Sequence[Record], study: Study, results: Path) -> list[str]:
    """The notes on all scores of ``records``, after those that ``results`` lacks were made, by a process per
    core; the list of these cells, with hashes of their records, is written last. Scores of others go."""
    folder, ok = results / SCORES, [record for record in records if record.status == "ok"]
    for stale in {*folder.glob("*.parquet")} - {folder / _file_name(record) for record in ok}:
        stale.unlink()
    notes = {str(cell): scores.notes for cell, scores in _made_first(ok, study, results).items()}
    named = [record.cell for record in records]
    hashes = {cell: sha256_file(Cell.parse(cell).folder(results / CELLS) / RECORD) for cell in named}
    write_text(folder.with_suffix(".json"), json_text(hashes))
    unscored = {record.cell: (f"{record.status}, so there is nothing to score",) for record in records}
    return [f"{cell}: {note}" for cell, texts in (unscored | notes).items() for note in texts]


@dataclass(frozen=True)
class KeptScores(Mapping[Cell, Scores]):
    """The scores of cells, each read when it is asked for: of a thousand cells they are 5 GB."""

    _files: dict[Cell, _Scored]

    def __getitem__(self, cell: Cell) -> Scores:
        if (scores := self._files[cell].read()) is None:  # changed by hand since
            self._files[cell].score()
            scores = kept(self._files[cell].scores, self._files[cell].made_from, _CLASSES)
        return scores

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def read_scores(study: Study, results: Path) -> tuple[list[Record], KeptScores]:
    """The records of the listed cells, and the scores of those that have any; what is missing is made first.

    Raises UserError where there is no list yet.
    """
    path = (results / SCORES).with_suffix(".json")
    if not path.is_file():
        raise UserError(f"{path}: no cell was scored here yet; run `make paper-from-evidence` first")
    try:
        cells = [Cell.parse(cell) for cell in json.loads(path.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, UserError):
        raise UserError(f"{path}: no list of cells any more; delete it and build again") from None
    records = [read_record(cell.folder(results / CELLS) / RECORD) for cell in cells]
    return records, _made_first([record for record in records if record.status == "ok"], study, results)


def _file_name(record: Record) -> str:
    """The name of the file of a record's scores, by what it predicts: runs of one training may share it."""
    last = f"-{record.predictions_last_sha256}" if record.predictions_last_sha256 else ""
    return f"{record.predictions_sha256}{last}.parquet"


def _scored(record: Record, study: Study, results: Path) -> _Scored:
    cell = Cell.parse(record.cell)
    of_nih = isinstance(study.dataset(cell.dataset), NihSource | PhantomSource)
    predictions = cell.folder(results / CELLS) / PREDICTIONS
    hashes = record.predictions_sha256 or "", record.predictions_last_sha256
    least = study.endpoint.positive_patients
    return _Scored(cell, predictions, *hashes, results / SCORES / _file_name(record), of_nih, least)


def _made_first(records: Sequence[Record], study: Study, results: Path) -> KeptScores:
    """The scores of cells; those that are not kept are made first, no core idle."""
    cells = [_scored(record, study, results) for record in records]
    if missing := {cell.scores: cell for cell in cells if _made_from(cell.scores) != cell.made_from}:
        (results / SCORES).mkdir(parents=True, exist_ok=True)
        with ProcessPoolExecutor(min(cores(), len(missing))) as pool:
            for _ in pool.map(_Scored.score, missing.values()):
                pass
    return KeptScores({cell.cell: cell for cell in cells})


def keep(path: Path, tree: Any, made_from: str) -> None:
    """Write a tree of named tuples, dataclasses, dicts, tuples, arrays and tables, whole and renamed.

    ``made_from``: a hash of all that decides it.
    """
    columns: dict[str, bytes] = {}
    form = json.dumps(_form_of(tree, "", columns)).encode()
    table = pa.table({place: pa.array([value], pa.binary()) for place, value in columns.items()})
    facts = {_FORM: form, _MADE_FROM: made_from, _HASH: _hash(form, columns.values())}
    with written_aside(path) as aside:
        parquet.write_table(
            table.replace_schema_metadata(facts), aside, compression="zstd", use_dictionary=False
        )


def kept(path: Path, made_from: str, classes: Mapping[str, type]) -> Any:
    """The tree in a file that :func:`keep` wrote; None where it is missing, changed since or of another hash.

    ``classes``: of its named tuples and dataclasses, by name.
    """
    with suppress(OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        if _made_from(path) != made_from:
            return None
        table = parquet.read_table(path, use_threads=False)
        columns = {name: table.column(name)[0].as_buffer() for name in table.column_names}
        facts = table.schema.metadata
        if _hash(facts[_FORM], columns.values()).encode() == facts[_HASH]:
            return _made(json.loads(facts[_FORM]), columns, classes)
    return None


def _made_from(path: Path) -> str | None:
    """The hash of all that decided a kept tree; None where the file is missing or no such tree."""
    with suppress(OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        return str(parquet.read_schema(path).metadata[_MADE_FROM], "ascii")
    return None


def _hash(form: bytes, columns: Iterable[bytes | pa.Buffer]) -> str:
    whole = hashlib.sha256(form)
    for column in columns:
        whole.update(column)
    return whole.hexdigest()


def _form_of(value: Any, place: str, columns: dict[str, bytes]) -> Any:
    """The form of a tree as JSON, whose arrays and tables are added to ``columns``."""
    if isinstance(value, np.ndarray):
        order: Literal["C", "F"] = "F" if value.flags.fnc else "C"  # in which it is summed
        texts = value.dtype.hasobject
        columns[place] = json.dumps(value.tolist()).encode() if texts else value.tobytes(order)
        return {"array": place, "shape": value.shape, "kind": value.dtype.str, "order": order}
    if isinstance(value, pd.DataFrame):
        columns[place] = _bytes_of(value)
        return {"table": place}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple) and not hasattr(value, "_asdict"):
        return [_form_of(part, f"{place}/{number}", columns) for number, part in enumerate(value)]
    if (parts := _parts_of(value)) is None:
        return value
    return {
        "is": type(value).__name__,
        "parts": {
            name: _form_of(part, f"{place}/{name}".lstrip("/"), columns) for name, part in parts.items()
        },
    }


def _parts_of(value: Any) -> dict[str, Any] | None:
    """What a tree consists of, by name; None of a leaf."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.init}
    if hasattr(value, "_asdict"):
        return value._asdict()
    return dict(value) if isinstance(value, Mapping) else None


def _bytes_of(table: pd.DataFrame) -> bytes:
    sink, rows = pa.BufferOutputStream(), pa.Table.from_pandas(table, preserve_index=False)
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return sink.getvalue().to_pybytes()


def _made(form: Any, columns: Mapping[str, pa.Buffer], classes: Mapping[str, type]) -> Any:
    """The tree of a form, as JSON has it."""
    if isinstance(form, list):
        return tuple(_made(part, columns, classes) for part in form)
    if not isinstance(form, dict):
        return form
    if place := form.get("array"):
        if (kind := np.dtype(form["kind"])).hasobject:
            return np.array(json.loads(columns[place].to_pybytes()), object).reshape(form["shape"])
        return np.frombuffer(columns[place], kind).reshape(form["shape"], order=form["order"])
    if place := form.get("table"):
        return pa.ipc.open_stream(columns[place]).read_pandas()
    parts = {name: _made(part, columns, classes) for name, part in form["parts"].items()}
    return parts if form["is"] == "dict" else classes[form["is"]](**parts)
