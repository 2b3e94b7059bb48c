"""Which cells are compared with which."""

import shutil
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, change_record, must_work
from cxrbench.evidence.sums import write_sums
from cxrbench.paper.results import Results

GROUP = "phantom-32px/resnet18"
RECORDS = "*/*/*/*/record.json"


def kinds_of_parity(folder: Path, images_per_pass: int) -> set[str]:
    """Kinds of parity rows of the recorded phantoms, ``xla_cpu`` with so many images in a forward pass."""
    recorded, adopted = folder / "recorded", folder / "results/cells"
    shutil.copytree(ROOT / "data/recorded" / GROUP, recorded / GROUP)
    for path in (recorded / GROUP / "xla_cpu").glob("*/record.json"):
        change_record(path.parent, micro_batch=images_per_pass)
    write_sums(recorded)
    shutil.copytree(recorded / GROUP, adopted / GROUP)
    study = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    dataset, architecture = GROUP.split("/")
    cells = {"dataset": dataset, "architectures": [architecture], "platforms": ["cpu", "xla_cpu"]}
    cells |= {"seeds": [0, 1]}
    (folder / "study.yaml").write_text(yaml.safe_dump(study | {"cells": [cells]}))
    records = sorted(map(str, adopted.glob(RECORDS)))
    words = ["--results", folder / "results", "--study", folder / "study.yaml"]
    must_work("score.py", *records, *words)
    read = Results.of_build(folder / "results", folder / "study.yaml", recorded)
    return set(read.parity["kind"])


@pytest.mark.slow
def test_batchnorm_over_another_number_of_images_is_another_network(tmp_path: Path) -> None:
    assert kinds_of_parity(tmp_path / "equal", 64) == {"platforms", "noise floor"}
    assert kinds_of_parity(tmp_path / "halved", 32) == {"noise floor"}
