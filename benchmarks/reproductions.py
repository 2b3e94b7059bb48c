"""Cells that were trained again: how far their predictions are from the recorded ones, and on what machines.

Runs on other instructions can be made on one machine: ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
MKL_ENABLE_INSTRUCTIONS=AVX2 cxrbench train CELL --out FOLDER/CELL/record.json.

Called as: python -m benchmarks.reproductions [FOLDER ...] [--commit COMMIT ...].
"""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RECORDED, RecordedOption, say
from cxrbench.common.errors import UserError
from cxrbench.common.files import write_csv
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS, RECORD
from cxrbench.evidence.store import EVIDENCE_FILES, check_evidence
from cxrbench.evidence.sums import updated_sums
from cxrbench.results.reproduction import REPRODUCTIONS, compare_with_record, tolerances
from cxrbench.statistics.predictions import scores_of
from cxrbench.study.names import Cell, find_cells

_NAMES = {"macro AUROC": "auroc", "macro F1": "f1"}


def reproductions(recorded: Path, runs: Iterable[Path], commits: Iterable[str]) -> pd.DataFrame:
    """Return a row for each cell below ``runs``, and for each that a commit had recorded before.

    Left out are runs of another recipe or of other images, and the recorded run itself.
    """
    rows = [_row(cell, cell.folder(root), recorded) for root in runs for cell in find_cells(root)]
    for commit in commits:
        with tempfile.TemporaryDirectory() as folder:
            rows += [
                _row(cell, place, recorded) for cell, place in _of_commit(commit, Path(folder), recorded)
            ]
    repeated = [row for row in rows if row is not None]
    if not repeated:
        raise UserError(
            f"{recorded}: no cell of it was trained again with its recipe and images; name such runs"
        )
    order = ["cell", "device", "started"]
    return pd.DataFrame(repeated).sort_values(order, ignore_index=True).drop_duplicates(order)


def _of_commit(commit: str, folder: Path, recorded: Path) -> Iterator[tuple[Cell, Path]]:
    """Yield the recorded cells as they were in ``commit``, written below ``folder``."""
    for cell in find_cells(recorded):
        place = cell.folder(folder)
        for name in EVIDENCE_FILES:
            path = f"{commit}:./{cell.folder(recorded) / name}"
            done = subprocess.run(["git", "show", path], capture_output=True)
            if done.returncode == 0:
                place.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(done.stdout)
        if (place / RECORD).is_file():
            yield cell, place


def _row(cell: Cell, folder: Path, recorded: Path) -> dict[str, Any] | None:
    new_run, old_run = check_evidence(folder, cell), check_evidence(cell.folder(recorded), cell)
    images = [record.dataset.packed if record.dataset else "" for record in (new_run, old_run)]
    if new_run == old_run or new_run.recipe_hash != old_run.recipe_hash or images[0] != images[1]:
        return None
    row: dict[str, Any] = {"cell": str(cell), "started": new_run.started, "recorded_started": old_run.started}
    for before, record in (("", new_run), ("recorded_", old_run)):
        row |= {f"{before}commit": (record.commit or "")[:12], f"{before}device": record.host.device}
        row |= {f"{before}processor": record.host.cpu}
    pair = [read_predictions(place / PREDICTIONS) for place in (folder, cell.folder(recorded))]
    row["max_score_difference"] = float(abs(scores_of(pair[0]) - scores_of(pair[1])).max())
    allowed = {line.name: line.tolerance for line in tolerances(cell, recorded)}
    for line in compare_with_record(cell, folder, recorded).lines:
        if name := _NAMES.get(line.name):
            row[f"{name}_difference"] = line.yours - line.recorded
            row[f"{name}_tolerance"] = allowed[line.name]
    return row


def main(
    runs: Annotated[list[Path] | None, typer.Argument(help="Folders of runs, as results/runs.")] = None,
    commit: Annotated[list[str] | None, typer.Option(help="Commit that had other records of cells.")] = None,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Compare cells that were trained again with their records, and record how far they are apart."""
    table = reproductions(recorded, runs or [], commit or [])
    with updated_sums(recorded):
        write_csv(recorded / REPRODUCTIONS, table)
    say(f"wrote {recorded / REPRODUCTIONS}: {len(table)} cells")


if __name__ == "__main__":
    run_script(main)
