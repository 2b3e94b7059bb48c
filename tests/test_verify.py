"""Recorded evidence: what is intact passes, one flipped byte anywhere does not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT, cxrbench
from cxrbench.cells import find_cells
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.evidence import LABELS, SCORES, Host, Record, sums_of, write_predictions, write_sums
from cxrbench.files import sha256_file
from cxrbench.verify import verify_recorded

CELL = "d/resnet18/cpu/seed0"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """One recorded cell made of NIH's rows."""
    folder = tmp_path / "recorded" / CELL
    folder.mkdir(parents=True)
    rows = read_nih_table().iloc[:40]
    table = rows[["image", "patient"]].assign(split=np.where(rows["patient"] < 8, "val", "test"))
    table[LABELS] = rows[[label.removeprefix("label_") for label in LABELS]].to_numpy()
    table[SCORES] = np.random.default_rng(0).random((40, 14))
    write_predictions(folder / "predictions.parquet", table)
    (folder / "train.log").write_text("epoch 1\n")
    parts = table["split"].value_counts().to_dict()
    record = Record(
        cell=CELL,
        status="ok",
        phase="done",
        commit="0" * 40,
        dirty=False,
        started="2026-01-01T00:00:00+00:00",
        ended="2026-01-01T00:00:01+00:00",
        host=Host(
            device="CPU", device_count=1, devices_used=1, cpu="x", cores=2, cores_used=2, memory_gib=1, os="x"
        ),
        versions={},
        recipe={},
        recipe_hash="0",
        dataset={
            "packed": "0",
            "manifest": "0",
            "images": {"train": 0, **parts},
            "patients": {},
            "positive_images": {},
        },
        predictions_sha256=sha256_file(folder / "predictions.parquet"),
        log_sha256=sha256_file(folder / "train.log"),
    )
    (folder / "record.json").write_text(record.to_json())
    write_sums(tmp_path / "recorded")
    return tmp_path / "recorded"


def rewrite(recorded: Path, change) -> None:
    """Change the predictions and make every hash fit again: only the content is wrong then."""
    import pandas as pd

    folder = recorded / CELL
    table = pd.read_parquet(folder / "predictions.parquet")
    write_predictions(folder / "predictions.parquet", change(table))
    record = json.loads((folder / "record.json").read_text())
    record["predictions_sha256"] = sha256_file(folder / "predictions.parquet")
    (folder / "record.json").write_text(json.dumps(record))
    write_sums(recorded)


def test_intact_evidence_passes(recorded: Path) -> None:
    done = cxrbench("verify", "--recorded", recorded)
    assert (done.returncode, done.stdout) == (0, "1 recorded cells are intact\n"), done.stderr


def test_nothing_to_check_is_not_intact(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "recroded"):
        done = cxrbench("verify", "--recorded", folder)
        assert done.returncode == 1 and "nothing is recorded there" in done.stderr


def test_leftovers_of_others_are_no_cells_and_damaged_sums_are_told(recorded: Path) -> None:
    (recorded / CELL / ".record.json.x.part").write_text("{")
    assert ".part" not in sums_of(recorded)
    shutil.copytree(recorded / CELL, recorded / f"{CELL}.bak")
    assert [str(cell) for cell in find_cells(recorded)] == [CELL]
    sums = recorded / "SHA256SUMS"
    sums.write_bytes(b"\xff" + sums.read_bytes()[1:])
    done = cxrbench("verify", "--recorded", recorded)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "seed0.bak" in done.stderr


@pytest.mark.parametrize("name", ["record.json", "predictions.parquet", "train.log"])
@pytest.mark.parametrize("place", [0.0, 0.3, 0.7, 1.0])
def test_one_flipped_byte_is_found(recorded: Path, name: str, place: float) -> None:
    path = recorded / CELL / name
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    _, problems = verify_recorded(recorded)
    assert any(name in problem for problem in problems)


def test_a_missing_or_added_file_is_found(recorded: Path) -> None:
    (recorded / CELL / "train.log").unlink()
    (recorded / CELL / "extra.txt").write_text("x")
    done = cxrbench("verify", "--recorded", recorded)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "train.log" in done.stderr and "extra.txt" in done.stderr


def wrong_label(table):
    table.loc[0, "label_Hernia"] ^= 1
    return table


def wrong_patient(table):
    table.loc[0, "patient"] += 100_000
    return table


def fewer_rows(table):
    return table.iloc[1:]


def repeated_image(table):
    table.loc[1, "image"] = table.loc[0, "image"]
    return table


def not_a_probability(table):
    table.loc[0, "score_Mass"] = 1.5
    return table


def patient_in_two_splits(table):
    # patient 1 has three images, all of them val
    table.loc[0, "split"] = "test"
    return table


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (wrong_label, "label_Hernia of image 00000001_000.png"),
        (wrong_patient, "patient of image 00000001_000.png"),
        (fewer_rows, "rows per split"),
        (repeated_image, "occurs twice"),
        (not_a_probability, "score_Mass of image 00000001_000.png is 1.5"),
        (patient_in_two_splits, "patient 1 is in two splits"),
    ],
)
def test_wrong_content_is_found_even_when_all_hashes_fit(recorded: Path, change, message: str) -> None:
    rewrite(recorded, change)
    _, problems = verify_recorded(recorded)
    assert any(message in problem for problem in problems), problems


def test_an_unknown_schema_version_is_refused(recorded: Path) -> None:
    path = recorded / CELL / "record.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    _, problems = verify_recorded(recorded)
    assert any("schema_version is 99" in problem for problem in problems)


def test_record_promotes_fresh_evidence_and_updates_the_sums(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded / "d", tmp_path / "runs/d")
    done = cxrbench("record", CELL, "--runs", tmp_path / "runs", "--recorded", tmp_path / "new")
    assert done.returncode == 0, done.stderr
    assert verify_recorded(tmp_path / "new")[1] == []
    assert (tmp_path / "new/SHA256SUMS").read_text() == (recorded / "SHA256SUMS").read_text()


def test_evidence_of_another_cell_is_refused(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded / "d/resnet18/cpu/seed0", tmp_path / "runs/d/resnet18/cpu/seed1")
    done = cxrbench(
        "record", "d/resnet18/cpu/seed1", "--runs", tmp_path / "runs", "--recorded", tmp_path / "n"
    )
    assert done.returncode == 1 and "it lies in the wrong folder" in done.stderr


def test_what_this_repository_records_is_intact() -> None:
    cells, problems = verify_recorded(ROOT / "data/recorded")
    assert problems == []
    assert len(cells) == len(find_cells(ROOT / "data/recorded"))
    for cell in cells:
        assert (cell.folder(ROOT / "data/recorded") / "predictions.parquet").stat().st_size < 300_000
