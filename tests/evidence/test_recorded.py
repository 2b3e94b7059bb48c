"""Which recorded evidence is refused, and what the message says to do about it."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, change_record, cxrbench, must_fail, must_work
from cxrbench.evidence.store import SETTINGS, EvidenceStore, Provenance
from cxrbench.evidence.sums import refused_measurement, write_sums
from cxrbench.study.config import Study, read_study
from cxrbench.study.names import Cell

CELL = Cell.parse("nih128-64px/resnet18/cpu/seed0")
STUDY = read_study(ROOT / "config/config.yaml")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Recorded evidence of one cell."""
    recorded = tmp_path / "recorded"
    shutil.copytree(CELL.folder(ROOT / "data/recorded"), CELL.folder(recorded))
    write_sums(recorded)
    return recorded


@pytest.fixture
def runs(root: Path) -> Path:
    """The same run, not yet recorded."""
    shutil.copytree(CELL.folder(root), CELL.folder(root.parent / "runs"))
    return root.parent / "runs"


def add_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def refused(root: Path, cell: Cell = CELL) -> str | None:
    return EvidenceStore(root).refused(cell)


def test_what_is_as_recorded_is_used_and_what_is_not_there_is_not_refused(root: Path) -> None:
    assert refused(root) is None and EvidenceStore(root).record(CELL)
    for nothing in (EvidenceStore(root / "nowhere"), EvidenceStore(root.parent)):
        assert nothing.refused(CELL) is None and nothing.record(CELL) is None
        assert nothing.records() == {} and nothing.source_of(CELL, STUDY) == Provenance("nowhere")


def test_one_answer_says_whose_run_stands_for_a_cell(root: Path, runs: Path) -> None:
    def source(adopted: Path | None = None, study: Study = STUDY) -> Provenance:
        return EvidenceStore(root).source_of(CELL, study, adopted)

    assert source().origin == "recorded" and source().record == EvidenceStore(root).record(CELL)
    shutil.copytree(runs, root.parent / "cells")
    adopted, trained = (CELL.folder(root.parent / name) / "record.json" for name in ("cells", "runs"))
    assert source(adopted).origin == "recorded"
    for path in (adopted, trained):
        add_a_line(path)
    assert source(adopted).origin == "fresh"
    other = STUDY.recipe(CELL.dataset).model_copy(update={"epochs": 99})
    changed = STUDY.model_copy(
        update={"recipes": STUDY.recipes | {STUDY.dataset(CELL.dataset).recipe: other}}
    )
    for answer in (source(study=changed), source(adopted, changed)):
        assert (answer.origin, answer.record) == ("nowhere", None) and "another recipe" in str(answer.reason)
    add_a_line(CELL.folder(root) / "train.log")
    assert (source().origin, source().record) == ("refused", None) and "is refused: " in str(source().reason)
    assert source(adopted).origin == "fresh"
    trained.unlink()
    assert source(adopted).origin == "refused"


@pytest.mark.parametrize("name", ["record.json", "predictions.parquet", "train.log"])
def test_another_byte_or_a_lost_file_is_refused_with_the_remedy(root: Path, name: str) -> None:
    add_a_line(CELL.folder(root) / name)
    assert refused(root) == f"{CELL.folder(root) / name} differs from SHA256SUMS; make it again"
    if name != "record.json":
        write_sums(root)
        assert f"{name}: its sha256 differs from the one in record.json" in (refused(root) or "")
    (CELL.folder(root) / name).unlink()
    assert f"{name} is missing, but listed in SHA256SUMS" in (refused(root) or "")


@pytest.mark.fault("SHA256SUMS is emptied, lost or lacks a line", "the evidence is refused by name")
@pytest.mark.parametrize("name", ["record.json", "predictions.parquet", "train.log", ""])
def test_what_the_sums_do_not_list_is_refused(root: Path, name: str) -> None:
    sums = root / "SHA256SUMS"
    kept = [line for line in sums.read_text().splitlines(keepends=True) if not line.endswith(f"{name}\n")]
    sums.write_text("".join(kept) if name else "")
    said = f"{CELL.folder(root) / (name or 'record.json')} is not listed in SHA256SUMS"
    again = f"make it again, or record the cell: cxrbench record {CELL}"
    assert refused(root) == f"{said}; {again}"
    assert EvidenceStore(root).records() == {}
    sums.unlink()
    assert "record.json is not listed in SHA256SUMS" in (refused(root) or "")


def test_a_measurement_that_is_not_as_listed_is_refused(root: Path) -> None:
    measured = root / "bench/here/train.json"
    measured.parent.mkdir(parents=True)
    measured.write_text("[]\n")
    assert refused_measurement(root) == f"{measured} is not listed in SHA256SUMS; make it again"
    write_sums(root)
    assert refused_measurement(root) is None
    add_a_line(measured)
    assert refused_measurement(root) == f"{measured} differs from SHA256SUMS; make it again"
    measured.unlink()
    assert refused_measurement(root) == f"{measured} is missing, but listed in SHA256SUMS; make it again"


@pytest.mark.parametrize("version", [0, None, "1", 99])
def test_another_schema_says_what_to_do(root: Path, version: object) -> None:
    change_record(CELL.folder(root), schema_version=version)
    write_sums(root)
    again = f"cxrbench train {CELL} && cxrbench record {CELL}"
    assert ("update it with git pull" if version == 99 else again) in (refused(root) or "")


def test_a_record_from_before_a_field_was_added_is_read(root: Path) -> None:
    path = CELL.folder(root) / "record.json"
    record = json.loads(path.read_text())
    del record["micro_batch"], record["platform"], record["peak_memory_mib"]
    path.write_text(json.dumps(record))
    write_sums(root)
    assert refused(root) is None


def test_recording_several_cells_is_all_or_nothing(root: Path, runs: Path) -> None:
    other = Cell(*list(vars(CELL).values())[:3], seed=9)
    change_record(CELL.folder(runs), attempts=9)
    before = (root / "SHA256SUMS").read_text()
    must_fail("record", CELL, other, "--runs", runs, "--recorded", root)
    assert refused(root) is None
    assert (root / "SHA256SUMS").read_text() == before


@pytest.mark.slow
@pytest.mark.fault("two commands record into one folder at once", "one waits; both are in SHA256SUMS")
def test_commands_that_record_at_once_wait_for_each_other(root: Path) -> None:
    seeds = [Cell(*list(vars(CELL).values())[:3], seed=seed) for seed in (1, 2)]
    words = ("--runs", ROOT / "data/recorded", "--recorded", root)
    command = (sys.executable, "-m", "cxrbench", "record")
    both = [
        subprocess.Popen([*command, *map(str, (seed, *words))], cwd=ROOT, stderr=subprocess.PIPE)
        for seed in seeds
    ]
    errors = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert len(EvidenceStore(root).records()) == 3
    listed = (root / "SHA256SUMS").read_text()
    assert all(f"{seed}/record.json" in listed for seed in seeds)


def test_recorded_evidence_is_replaced_only_when_asked_and_the_changes_are_printed(root, runs) -> None:
    before = (CELL.folder(root) / "record.json").read_bytes()
    slower = {"images_per_second": 13.7, "others_share": 0.5}
    change_record(CELL.folder(runs), timing=slower, host={"cpu": "Another processor"})
    refusal = must_fail("record", CELL, "--runs", runs, "--recorded", root)
    assert "repeat with --replace" in refusal
    assert (CELL.folder(root) / "record.json").read_bytes() == before
    done = must_work("record", CELL, "--runs", runs, "--recorded", root, "--replace")
    assert (CELL.folder(root) / "record.json").read_bytes() != before
    for said in (refusal, done.stderr):
        for change in (
            "images per second: 154.4 -> 13.7",
            "Another processor",
            "load: load not recorded -> others used 50 % of the cores",
            "macro AUROC: 0.7143 -> 0.7143",
        ):
            assert change in said, said


def test_recording_the_same_run_again_changes_nothing(root: Path, runs: Path) -> None:
    before = (root / "SHA256SUMS").read_bytes()
    done = must_work("record", CELL, "--runs", runs, "--recorded", root)
    assert "is identical to the recorded run" in done.stderr
    assert (root / "SHA256SUMS").read_bytes() == before


def test_damage_to_another_file_gets_no_sum_of_its_own(root: Path, runs: Path) -> None:
    other = root / "bench/machine/train.json"
    other.parent.mkdir(parents=True)
    other.write_text("[]")
    write_sums(root)
    other.write_text("[1]")
    said = must_fail("record", CELL, "--runs", runs, "--recorded", root)
    assert "bench/machine/train.json changed since the last record" in said
    other.write_text("[]")
    must_work("record", CELL, "--runs", runs, "--recorded", root)


@pytest.mark.parametrize(
    ("key", "value", "other"),
    [
        ("pixels", 48, "with another value of pixels"),
        ("split", "official", "with another value of split"),
        ("expect_images", {"train": 7077, "val": 100, "test": 1985}, "from other images"),
    ],
)
def test_evidence_of_a_dataset_with_other_settings_or_parts_is_left_out(root, key, value, other) -> None:
    shutil.copy(ROOT / "data/recorded" / SETTINGS, root / SETTINGS)
    assert EvidenceStore(root).source_of(CELL, STUDY).origin == "recorded"
    changed = STUDY.dataset(CELL.dataset).model_copy(update={key: value})
    changed = STUDY.model_copy(update={"datasets": STUDY.datasets | {CELL.dataset: changed}})
    reason = EvidenceStore(root).source_of(CELL, changed).reason or ""
    assert f"was made {other} than the study's and is left out" in reason


@pytest.mark.fault("datasets.json is JSON of another form", "the file, and what is expected")
@pytest.mark.parametrize("settings", ["[]", "null", '{"a7584e3f": 5}'])
def test_settings_of_another_form_are_one_message(root: Path, settings: str) -> None:
    shutil.copytree(ROOT / "data/recorded/audit", root / "audit")
    (root / SETTINGS).write_text(settings)
    write_sums(root)
    said = must_fail("plan", "--recorded", root)
    assert f"{root / SETTINGS}: damaged (settings by the hash of packed data are expected)" in said
    assert said.count("\n") == 1


def test_a_reviewer_is_not_offered_refused_evidence(root: Path, runs: Path) -> None:
    add_a_line(CELL.folder(root) / "train.log")
    cell = str(CELL).replace("/cpu/", "/cuda/")
    shutil.move(CELL.folder(root), Path(str(CELL.folder(root)).replace("/cpu/", "/cuda/")))
    checked = cxrbench("cell", "check", cell, "--recorded", root)
    if checked.returncode == 0:
        pytest.skip("this machine has an NVIDIA driver: the cell can be trained here")
    assert checked.returncode == 3 and "its recorded evidence is refused" in checked.stderr
    assert "is refused: " in must_fail("cell", "compare", CELL, "--runs", runs, "--recorded", root)
