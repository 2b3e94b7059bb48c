"""`cxrbench evaluate` of several records or files: a table each."""

import json

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


def test_two_files_are_two_tables_with_the_values_of_each() -> None:
    files = [f"{cell}/predictions.parquet" for cell in CELLS]
    both = json.loads(must_work("evaluate", *files, "--json", "--replicates", "20", cwd=ROOT).stdout)
    for file in files:
        alone = json.loads(must_work("evaluate", file, "--json", "--replicates", "20", cwd=ROOT).stdout)
        assert [row for row in both if row["source"] == file] == [{"source": file} | row for row in alone]
