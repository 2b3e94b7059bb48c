"""Recorded cells that a study does not plan show up by themselves, where they fit one of its datasets."""

from pathlib import Path
from typing import Any

import pytest

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.evidence.store import EvidenceStore
from cxrbench.results.matrix import cells_table
from cxrbench.study.config import Study, read_study
from cxrbench.study.names import Cell
from cxrbench.training.plan import Plan

RECORDED = ROOT / "data/recorded"
PLANNED = [Cell("phantom-32px", "resnet18", "cpu", seed) for seed in (0, 1, 2)]
OTHERS = sorted(
    Cell("phantom-32px", network, platform, seed)
    for network in ("convnext_atto", "resnet18")
    for platform in ("cpu", "xla_cpu")
    for seed in (0, 1, 2)
    if (network, platform) != ("resnet18", "cpu")
)


def study(**changes: Any) -> Study:
    """The study with three cells of one network on one platform."""
    whole = read_study(ROOT / "config/config.yaml").model_dump(mode="json", exclude_none=True)
    block = {
        "dataset": "phantom-32px",
        "architectures": ["resnet18"],
        "platforms": ["cpu"],
        "seeds": [0, 1, 2],
    }
    return Study.model_validate(whole | {"cells": [block], "run": []} | changes)


def test_unplanned_cells_follow_the_planned_and_are_in_the_table_and_the_graph() -> None:
    store = EvidenceStore(RECORDED)
    assert store.cells(study()) == [*PLANNED, *OTHERS]
    table = cells_table(study(), sorted(RECORDED.glob("phantom-32px/*/*/*/record.json")), RECORDED)
    assert table["cell"].tolist() == [str(cell) for cell in (*PLANNED, *OTHERS)]
    assert set(table["origin"]) == {"recorded"} and set(table["status"]) == {"ok"}
    assert Plan(study(), store).evidenced() == [*PLANNED, *OTHERS]


def test_they_are_trained_only_when_named() -> None:
    plan = Plan(study(run=["phantom-*/*/*/*", str(OTHERS[1])]), EvidenceStore(RECORDED))
    assert plan.why_not_here(OTHERS[0]) == f"{OTHERS[0]} is recorded, and not planned"
    assert plan.origin(OTHERS[0]) == "recorded" and "planned" not in str(plan.why_not_here(OTHERS[1]))


def test_evidence_of_another_recipe_or_unwanted_stays_out(tmp_path: Path) -> None:
    store = EvidenceStore(RECORDED)
    assert store.cells(study(unplanned=False)) == PLANNED
    recipes = study().model_dump(mode="json", exclude_none=True)["recipes"]
    assert (
        store.cells(study(recipes=recipes | {"brief-fp32": recipes["brief-fp32"] | {"epochs": 2}})) == PLANNED
    )
    assert EvidenceStore(tmp_path / "none").cells(study()) == PLANNED
    with pytest.raises(UserError, match="the study has no cell nih128-64px/resnet18/cpu/seed0"):
        Plan(study(), store).must_be_known(Cell.parse("nih128-64px/resnet18/cpu/seed0"))
