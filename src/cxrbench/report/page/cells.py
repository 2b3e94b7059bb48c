"""One cell on the page: what came of it, where, when, on what, at which commit, and how to run it again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.cells import Cell
from cxrbench.datasets.findings import FINDINGS
from cxrbench.errors import UserError
from cxrbench.evidence import LOG, PREDICTIONS, Failure, Record, check_evidence, read_predictions, read_record
from cxrbench.machine import load_in_words, short_processor
from cxrbench.report.cells import NOT_RUN
from cxrbench.report.machines import mark
from cxrbench.report.page.pictures import Picture, RocPanels, drawing, learning_curve
from cxrbench.report.page.tables import PageTable, page_table
from cxrbench.report.page.text import Tail, tail
from cxrbench.report.results import with_interval
from cxrbench.report.states import State

Facts = list[tuple[str, str]]
_SCORES = (
    ("Macro AUROC", "auroc", "macro"),
    ("Macro F1, interval with thresholds chosen anew", "f1_macro", "macro"),
    ("Micro F1, likewise", "f1_micro", "all"),
)


@dataclass(frozen=True)
class CellPart:
    """A cell with evidence."""

    name: str
    state: State
    origin: str  # fresh or recorded
    summary: Facts  # when, on what, at which commit, what came of it
    groups: dict[str, Facts]
    command: str
    refused: str = ""  # why its evidence may not be trusted
    failure: Failure | None = None
    log: Tail | None = None
    pictures: list[Picture] = field(default_factory=list)


def command_of(cell: str) -> str:
    """What trains ``cell`` again and holds it against its record."""
    return f"make cell CELL={shlex.quote(cell)}"


def commit_of(commit: str, dirty: bool) -> str:
    """The first digits of a commit, and whether the files differed from it."""
    return f"{commit[:12]} {'with uncommitted changes' if dirty else '(clean)'}"


def moment(time: str) -> str:
    """An ISO time for people: ``2026-11-21 05:18:48 UTC``."""
    return time.replace("T", " ").replace("+00:00", " UTC")


def list_of_cells(cells: pd.DataFrame, states: dict[str, State], metrics: pd.DataFrame) -> PageTable:
    """Every cell of the study, those that nobody ran too, with the command that runs it."""
    aurocs = metrics[(metrics["metric"] == "auroc") & (metrics["label"] == "macro")]
    rows = []
    for row in cells.itertuples():
        ran = row.status != NOT_RUN
        rows.append(
            {
                "Cell": row.cell,
                "State": str(states[row.cell]),
                "Ended": moment(row.ended) if ran else "",
                "Machine": short_processor(row.machine) if ran else "",
                "Commit": commit_of(row.commit, row.dirty == "True") if ran else "",
                "Macro AUROC": with_interval(aurocs[aurocs["cell"] == row.cell])
                if row.status == "ok"
                else "",
                "Images/s": _speed(row),
                "Command": command_of(row.cell),
            }
        )
    columns = ["Cell", "State", "Ended", "Machine", "Commit", "Macro AUROC", "Images/s", "Command"]
    kinds = {"Cell": "cell", "State": "badge", "Command": "command"}
    caption = (
        "Every cell of the study. Fresh: trained for this build; recorded: trained before and kept under "
        "data/recorded. Intervals are over patients (95 %)."
    )
    return page_table("cells_list", "All cells", caption, pd.DataFrame(rows, columns=columns), **kinds)


def _speed(row: Any) -> str:
    """Images per second of a row of cells.csv read as text, marked where the machine was busy."""
    if not row.images_per_second:
        return ""
    busy = f", busy: {load_in_words(float(row.others_share))}" if row.busy == "True" else ""
    return f"{float(row.images_per_second):,.0f}{busy}"


class CellParts:
    """Makes the part of each cell from what the graph adopted under ``results``."""

    def __init__(self, results: Path, metrics: pd.DataFrame, cost: pd.DataFrame) -> None:
        self._results, self._metrics, self._cost = results, metrics, cost
        with drawing():
            self._panels = RocPanels()

    def of(self, row: Any, state: State) -> CellPart:
        """The part of one row of cells.csv that has evidence; damaged evidence is named and left out."""
        cell = Cell(row.dataset, row.architecture, row.platform, int(row.seed))
        folder = cell.folder(self._results / "cells")
        refused = ""
        try:
            record = check_evidence(folder, cell)
        except UserError as error:
            refused, record = (
                str(error).replace(f"{folder}/", "").replace(str(folder), ""),
                read_record(folder),
            )
        return CellPart(
            name=row.cell,
            state=state,
            origin=row.origin,
            summary=self._summary(record, row.origin),
            groups=_environment(record),
            command=command_of(row.cell),
            refused=refused,
            failure=record.failure,
            log=tail(folder / LOG) if (folder / LOG).is_file() else None,
            pictures=self._pictures(record, folder, refused),
        )

    def _summary(self, record: Record, origin: str) -> Facts:
        host, timing = record.host, record.timing
        told = [
            ("Evidence", origin),
            ("Status", f"{record.status.replace('_', ' ')}, phase reached: {record.phase}"),
            ("Run", f"{moment(record.started)} to {moment(record.ended)}, {_attempts(record)}"),
            ("On", f"{host.device}, {host.devices_used} of {host.device_count}; {host.cpu}"),
            ("Load", load_in_words(timing.others_share)),
            ("At commit", commit_of(record.commit, record.dirty)),
        ]
        for title, metric, label in _SCORES:
            m = self._metrics
            rows = m[(m["cell"] == record.cell) & (m["metric"] == metric) & (m["label"] == label)]
            if len(rows):
                told.append((title, with_interval(rows)))
        if timing.images_per_second:
            told.append(("Images per second", f"{timing.images_per_second:,.1f} ({timing.how})"))
        for row in self._of(self._cost, record.cell):
            whose = "Cost" if row.origin == origin else f"Cost of the {row.origin} run"
            told.append((whose, _cost(row)))
        return told

    def _pictures(self, record: Record, folder: Path, refused: str) -> list[Picture]:
        with drawing():
            pictures = [learning_curve(record.cell, record.history)] if record.history else []
            if record.status == "ok" and not refused:
                m = self._metrics
                rows = m[(m["cell"] == record.cell) & (m["metric"] == "auroc") & m["label"].isin(FINDINGS)]
                aurocs = dict(zip(rows["label"], rows["value"], strict=True))
                predictions = read_predictions(folder / PREDICTIONS)
                pictures.append(self._panels.draw(record.cell, predictions, aurocs))
        return pictures

    @staticmethod
    def _of(table: pd.DataFrame, cell: str) -> list[Any]:
        return list(table[table["cell"] == cell].itertuples())


def _cost(row: Any) -> str:
    basis = row.basis.replace("_", " ")
    if pd.isna(row.usd_total):
        return f"no price of {row.instance} in {row.region}, {basis}"
    load = "load not recorded" if pd.isna(row.others_share) else ""
    marks = [load, *mark("recorded", row.busy, row.others_share)]
    parts = [f"{row.kind}: {row.instance}", row.region, basis, f"price of {row.as_of}", *filter(None, marks)]
    return f"{row.usd_total:.4g} USD ({', '.join(parts)})"


def _attempts(record: Record) -> str:
    return "in one attempt" if record.attempts == 1 else f"in {record.attempts} attempts"


def _environment(record: Record) -> dict[str, Facts]:
    """Machine, versions, recipe, data, time and resources of a run, as the record holds them."""
    data: dict[str, Any] = {}
    if record.dataset:
        data = record.dataset.model_dump(include={"packed", "images", "patients"})
    energy = record.energy
    used = {
        "peak memory, MiB": record.peak_memory_mib,
        "energy, J": energy.joules if energy.joules is not None else energy.reason,
        "parameters": record.parameters,
        "micro batch": record.micro_batch,
        **record.platform,
    }
    return {
        "Machine": _facts(record.host.model_dump()),
        "Versions": _facts(record.versions),
        "Recipe": [("hash", record.recipe_hash), *_facts(record.recipe)],
        "Data": _facts(data),
        "Time and resources": _facts(record.timing.model_dump(exclude={"how"}) | used),
    }


def _facts(values: dict[str, Any]) -> Facts:
    return [(key.replace("_", " "), _shown(value)) for key, value in values.items()]


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_shown(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_shown, value)) or "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
