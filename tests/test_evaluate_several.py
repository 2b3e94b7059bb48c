"""Commands that take several records are given two: a table each, or one message."""

import json
import shutil
from pathlib import Path

import pytest

from conftest import ROOT, cxrbench, must_work

CELLS = [f"data/recorded/nih128-32px/resnet18/cpu/seed{seed}" for seed in (0, 1)]


def test_two_records_are_two_tables_and_a_note_is_said_once() -> None:
    """This ended in a traceback: a finding had two rows."""
    done = cxrbench("evaluate", *(f"{cell}/record.json" for cell in CELLS), cwd=ROOT)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    names = [cell.removeprefix("data/recorded/") for cell in CELLS]
    parts = [part for part in done.stdout.split("\n\n") if part.startswith("nih128")]
    assert [part.split("\n")[0] for part in parts] == names
    assert all("macro" in part for part in parts)
    assert done.stderr.count("intervals of F1") == 1 and "cxrbench compare A B" in done.stderr


@pytest.mark.slow
def test_two_files_are_two_tables_with_the_values_of_each() -> None:
    files = [f"{cell}/predictions.parquet" for cell in CELLS]
    both = json.loads(must_work("evaluate", *files, "--json", "--replicates", "20", cwd=ROOT).stdout)
    for file in files:
        alone = json.loads(must_work("evaluate", file, "--json", "--replicates", "20", cwd=ROOT).stdout)
        assert [row for row in both if row["source"] == file] == [{"source": file} | row for row in alone]


def test_a_file_that_is_named_twice_is_scored_once() -> None:
    """This ended in the same traceback as two records did."""
    file = f"{CELLS[0]}/predictions.parquet"
    done = cxrbench("evaluate", file, f"./{file}", "--replicates", "20", cwd=ROOT)
    assert done.returncode == 0 and done.stderr.startswith("a file that is named twice is scored once")
    assert done.stdout == must_work("evaluate", file, "--replicates", "20", cwd=ROOT).stdout


def test_two_records_of_one_cell_are_told_apart_by_their_files(tmp_path: Path) -> None:
    shutil.copytree(ROOT / CELLS[0], tmp_path / "again")
    records = [f"{CELLS[0]}/record.json", str(tmp_path / "again/record.json")]
    done = cxrbench("evaluate", *records, "--replicates", "20", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith("record.json")] == records


SEVERAL = {  # every other command that takes several records, and what it says of two
    "cost table": "2 of 2 runs",
    "adopt.py --out OUT": "",
}


def two(command: str, out: Path, *cells: Path) -> tuple[int, str]:
    """The exit code and output of a command with the records of these cells."""
    words = command.replace("OUT", str(out)).split()
    done = cxrbench(*words, *(cell / "record.json" for cell in cells))
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("command", SEVERAL)
def test_every_command_that_takes_several_records_takes_two(command: str, tmp_path: Path) -> None:
    cells = [ROOT / cell for cell in CELLS]
    code, said = two(command, tmp_path, *cells)
    assert code == 0 and SEVERAL[command] in " ".join(said.split()), said
    if command.startswith("adopt"):
        assert len(list(tmp_path.rglob("record.json"))) == 2
    damaged = tmp_path / "damaged/nih128-32px/resnet18/cpu/seed1"
    shutil.copytree(cells[1], damaged)
    (damaged / "record.json").write_text("{")
    code, said = two(command, tmp_path / "again", cells[0], damaged)
    assert code == 1 and "record.json" in said and "\n" not in said.strip(), said
