"""Which recorded evidence is refused, and what the message says to do about it."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from conftest import ROOT, cxrbench
from cxrbench.evidence.store import SETTINGS, EvidenceStore
from cxrbench.evidence.sums import write_sums
from cxrbench.study.cells import Cell
from cxrbench.study.config import read_study

CELL = Cell.parse("nih128-64px/resnet18/cpu/seed0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Recorded evidence of one cell."""
    recorded = tmp_path / "recorded"
    shutil.copytree(CELL.folder(ROOT / "data/recorded"), CELL.folder(recorded))
    write_sums(recorded)
    return recorded


def change(root: Path, name: str = "record.json", sums: bool = True, **values: object) -> None:
    """Change values of the cell's record, or add a line to another file; remake the sums."""
    path = CELL.folder(root) / name
    if values:
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    if sums:
        write_sums(root)


def refused(root: Path, cell: Cell = CELL) -> str | None:
    return EvidenceStore(root).refused(cell)


def test_what_is_as_recorded_is_used_and_what_is_not_there_is_not_refused(root: Path) -> None:
    assert refused(root) is None and EvidenceStore(root).record(CELL)
    for nothing in (EvidenceStore(root / "nowhere"), EvidenceStore(root.parent)):
        assert nothing.refused(CELL) is None and nothing.record(CELL) is None
        assert nothing.records() == {} and nothing.origin(CELL, None) == "nowhere"


@pytest.mark.parametrize("name", ["record.json", "predictions.parquet", "train.log"])
def test_another_byte_or_a_lost_file_is_refused_with_the_remedy(root: Path, name: str) -> None:
    change(root, name, sums=False)
    assert refused(root) == f"{CELL.folder(root) / name} differs from SHA256SUMS; make it again"
    if name != "record.json":
        write_sums(root)
        assert f"{name}: its sha256 differs from the one in record.json" in (refused(root) or "")
    (CELL.folder(root) / name).unlink()
    assert f"{name} is missing, but listed in SHA256SUMS" in (refused(root) or "")


@pytest.mark.parametrize("version", [0, None, "1", 99])
def test_another_schema_says_what_to_do(root: Path, version: object) -> None:
    change(root, schema_version=version)
    again = f"cxrbench train {CELL} && cxrbench record {CELL}"
    assert ("update it with git pull" if version == 99 else again) in (refused(root) or "")


def test_a_record_from_before_a_field_was_added_is_read(root: Path) -> None:
    path = CELL.folder(root) / "record.json"
    record = json.loads(path.read_text())
    del record["micro_batch"], record["platform"], record["peak_memory_mib"]
    path.write_text(json.dumps(record))
    write_sums(root)
    assert refused(root) is None


def test_recording_several_cells_is_all_or_nothing(root: Path) -> None:
    runs, other = root.parent / "runs", Cell(*list(vars(CELL).values())[:3], seed=9)
    shutil.copytree(CELL.folder(root), CELL.folder(runs))
    change(runs, attempts=9)
    before = (root / "SHA256SUMS").read_text()
    done = cxrbench("record", CELL, other, "--runs", runs, "--recorded", root)
    assert done.returncode == 1 and refused(root) is None
    assert (root / "SHA256SUMS").read_text() == before


@pytest.mark.fault("two commands record into one folder at once", "one waits; both are in SHA256SUMS")
def test_commands_that_record_at_once_wait_for_each_other(root: Path) -> None:
    seeds = [Cell(*list(vars(CELL).values())[:3], seed=seed) for seed in (1, 2)]
    words = ("--runs", ROOT / "data/recorded", "--recorded", root)
    with ThreadPoolExecutor() as threads:
        done = list(threads.map(lambda seed: cxrbench("record", seed, *words), seeds))
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    assert len(EvidenceStore(root).records()) == 3
    listed = (root / "SHA256SUMS").read_text()
    assert all(f"{seed}/record.json" in listed for seed in seeds)


def faster(root: Path) -> Path:
    """A second run of the cell that differs in speed, load and machine; returns the folder of its runs."""
    runs = root.parent / "runs"
    shutil.copytree(CELL.folder(root), CELL.folder(runs))
    record = json.loads((CELL.folder(runs) / "record.json").read_text())
    timing = record["timing"] | {"images_per_second": 13.7, "others_share": 0.5}
    change(runs, timing=timing, host=record["host"] | {"cpu": "Another processor"})
    return runs


def test_recorded_evidence_is_replaced_only_when_asked_and_the_changes_are_printed(root: Path) -> None:
    runs, before = faster(root), (CELL.folder(root) / "record.json").read_bytes()
    refused = cxrbench("record", CELL, "--runs", runs, "--recorded", root)
    assert refused.returncode == 1 and "repeat with --replace" in refused.stderr
    assert (CELL.folder(root) / "record.json").read_bytes() == before
    done = cxrbench("record", CELL, "--runs", runs, "--recorded", root, "--replace")
    assert done.returncode == 0 and (CELL.folder(root) / "record.json").read_bytes() != before
    for said in (refused.stderr, done.stderr):
        for change in (
            "images per second: 154.4 -> 13.7",
            "Another processor",
            "load: load not recorded -> others used 50 % of the cores",
            "macro AUROC: 0.7143 -> 0.7143",
        ):
            assert change in said, said


def test_recording_the_same_run_again_changes_nothing(root: Path) -> None:
    runs, before = root.parent / "runs", (root / "SHA256SUMS").read_bytes()
    shutil.copytree(CELL.folder(root), CELL.folder(runs))
    done = cxrbench("record", CELL, "--runs", runs, "--recorded", root)
    assert done.returncode == 0 and "is identical to the recorded run" in done.stderr
    assert (root / "SHA256SUMS").read_bytes() == before


def test_damage_to_another_file_gets_no_sum_of_its_own(root: Path) -> None:
    runs, other = root.parent / "runs", root / "bench/machine/train.json"
    other.parent.mkdir(parents=True)
    other.write_text("[]")
    write_sums(root)
    shutil.copytree(CELL.folder(root), CELL.folder(runs))
    other.write_text("[1]")
    done = cxrbench("record", CELL, "--runs", runs, "--recorded", root)
    assert done.returncode == 1 and "bench/machine/train.json changed since the last record" in done.stderr
    other.write_text("[]")
    assert cxrbench("record", CELL, "--runs", runs, "--recorded", root).returncode == 0


def test_evidence_of_a_dataset_that_had_other_parts_is_left_out(root: Path) -> None:
    study = read_study(ROOT / "config/config.yaml")
    assert EvidenceStore(root).left_out(CELL, study) is None
    dataset = study.dataset(CELL.dataset)
    parts = "images" if dataset.source == "phantom" else "expect_images"
    fewer = dataset.model_copy(update={parts: getattr(dataset, parts) | {"val": 100}})
    other = study.model_copy(update={"datasets": study.datasets | {CELL.dataset: fewer}})
    assert "was made from other images than the study's" in (EvidenceStore(root).left_out(CELL, other) or "")


@pytest.mark.parametrize("key, value", [("pixels", 48), ("split", "official")])
def test_evidence_of_a_dataset_with_other_settings_is_left_out(root: Path, key: str, value: object) -> None:
    study = read_study(ROOT / "config/config.yaml")
    shutil.copy(ROOT / "data/recorded" / SETTINGS, root / SETTINGS)
    assert EvidenceStore(root).left_out(CELL, study) is None
    changed = study.dataset(CELL.dataset).model_copy(update={key: value})
    other = study.model_copy(update={"datasets": study.datasets | {CELL.dataset: changed}})
    assert f"was made with another value of {key}" in (EvidenceStore(root).left_out(CELL, other) or "")


def test_comparing_an_unknown_cell_names_the_nearest() -> None:
    done = cxrbench("cell", "compare", "nih128-64px/resnet81/cpu/seed0")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "it has no architecture 'resnet81'; did you mean 'resnet18'" in done.stderr


def test_a_reviewer_is_not_offered_refused_evidence(root: Path) -> None:
    change(root, "train.log", sums=False)
    cell = str(CELL).replace("/cpu/", "/cuda/")
    shutil.move(CELL.folder(root), Path(str(CELL.folder(root)).replace("/cpu/", "/cuda/")))
    checked = cxrbench("cell", "check", cell, "--recorded", root)
    if checked.returncode == 0:
        pytest.skip("this machine has an NVIDIA driver: the cell can be trained here")
    assert checked.returncode == 3 and "its recorded evidence is refused" in checked.stderr
    shutil.copytree(CELL.folder(ROOT / "data/recorded"), CELL.folder(root.parent / "runs"))
    compared = cxrbench("cell", "compare", CELL, "--runs", root.parent / "runs", "--recorded", root)
    assert compared.returncode == 1 and "is refused: " in compared.stderr
