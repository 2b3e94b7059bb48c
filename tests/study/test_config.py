"""The study: what is right is read, what is wrong is named with file, key and remedy."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import GONE, ROOT, must_fail, must_work, put_at
from cxrbench.common.errors import UserError
from cxrbench.study.config import Recipe, parse_study, read_study
from cxrbench.study.names import Cell
from cxrbench.training.plan import ARCHITECTURES, must_be_architectures

STUDY = ROOT / "config/config.yaml"


def study_with(where: str, given: Any) -> dict[str, Any]:
    """The study with a value at ``where`` in place of its own."""
    return put_at(where, given, yaml.safe_load(STUDY.read_text()))


NIH, SMOKE = "datasets/nih128-64px", "recipes/smoke-fp32"
A_DATASET = {"source": "nih", "pixels": 64, "recipe": "smoke-fp32", "folder": "x"}
PHANTOM = {"source": "phantom", "pixels": 32, "recipe": "smoke-fp32"}


@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        ("dataset", {}, "unknown key 'dataset'; did you mean 'datasets'"),
        (f"{SMOKE}/epoch", 3, "unknown key 'recipes.smoke-fp32.epoch'; did you mean 'epochs'"),
        (f"{SMOKE}/compiler/model_typ", "x", "smoke-fp32.compiler.model_typ'; did you mean 'model_type'"),
        (f"{SMOKE}/batch", 0, "recipes.smoke-fp32.batch: '0' must be above 0; correct it"),
        ("limits/hour", 3, "unknown key 'limits.hour'; did you mean 'hours'"),
        (f"{NIH}/pixel", 3, "unknown key 'datasets.nih128-64px.pixel'; did you mean 'pixels'"),
        ("datasets/nih", A_DATASET | {"pixles": 3}, "key 'datasets.nih.pixles'; did you mean 'pixels'"),
        (f"{NIH}/folder", GONE, "datasets.nih128-64px.folder: is missing; add it"),
        (f"{NIH}/source", GONE, "datasets.nih128-64px: key 'source' is missing; add it"),
        (f"{NIH}/source", "nhi", "datasets.nih128-64px.source: unknown value 'nhi'; did you mean 'nih'"),
        (f"{NIH}/recipe", "fp32", "datasets.nih128-64px.recipe: unknown recipe 'fp32'; did you mean"),
        ("datasets/demo", PHANTOM, "datasets.demo: a name begins with"),
        ("datasets/phantom-nih", A_DATASET, "datasets.phantom-nih: a name begins with"),
        ("cells/0/dataset", "phantom-65px", "cells.0.dataset: unknown dataset 'phantom-65px'; did you"),
        ("cells/0/seeds", [-1], "cells.0.seeds.0: '-1' must be 0 or more"),
        ("cells/0/architectures", ["timm/a"], "'timm/a' does not have the form of a name"),
        ("cells/0/platforms", ["gpu"], "cells.0.platforms.0: unknown value 'gpu'; did you mean 'cpu'"),
        ("cells/0/seed", [1], "unknown key 'cells.0.seed'; did you mean 'seeds'"),
        ("cells/0/dataset", "nih128-64px-tf32", "cells.0: the recipe of nih128-64px-tf32 is in tf32, which"),
        ("compilation/blocks/0/pixel", [64], "key 'compilation.blocks.0.pixel'; did you mean 'pixels'"),
        ("compilation/compiler", "latest", "'latest' does not have the form of a version"),
        ("pathvars/recorded", "x", "pathvars.recorded: unknown value 'recorded'; use one of 'results'"),
        ("pathvars/packed", "/my disk/packed", "packed: '/my disk/packed' does not have the form of a path"),
        ("recipes", GONE, "recipes: is missing; add it"),
    ],
)
def test_a_mistake_is_named_with_its_key_and_the_nearest_right_one(where, value, expected) -> None:
    with pytest.raises(UserError) as error:
        parse_study(study_with(where, value), "config.yaml")
    assert str(error.value).startswith("config.yaml: ") and expected in str(error.value)


@pytest.mark.fault("hostile values in a study", "the key is named and nothing runs")
@pytest.mark.parametrize(
    ("where", "value", "expected"),
    [
        (f"{SMOKE}/learning_rate", math.inf, "learning_rate: 'inf' must be a finite number"),
        (f"{SMOKE}/weight_decay", math.nan, "weight_decay: 'nan' must be"),
        ("limits/hours", math.inf, "limits.hours: 'inf' must be a finite number"),
        (f"{SMOKE}/epochs", 10**30, "must be 1e+09 or less"),
        ("cells/0/seeds", [10**30], "must be below 4.29497e+09"),
        ("cells/0/architectures", [".."], "'..' does not have the form of a name"),
        ("cells/0/architectures", ["a b"], "'a b' does not have the form of a name"),
        ("cells/0/architectures", ["a\n"], r"'a\n' does not have the form of a name"),
        ("recipes", {"\x1b[31m": {"epochs": 1, "batch": 1}}, r"'\x1b[31m' does not have the form of a name"),
        ("datasets", {"a/b": {}}, "'a/b' does not have the form of a name"),
        ("pathvars/results", "a>b", "pathvars.results"),
        ("pathvars/results", "-rf", "pathvars.results"),
        ("pathvars/results", "a\n", "pathvars.results"),
        ("run", ["{a,b}" * 30], "alternatives; write several"),
        ("run", ["{a,{b,c}}"], "braces inside of braces"),
        ("run", ["phantom-*/{cpu"], "a brace is not closed"),
        ("cells/0/seeds", list(range(60_000)), "a study has 100,000 at most"),
    ],
)
def test_a_hostile_value_is_refused(where: str, value: Any, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_study(study_with(where, value), "config.yaml")
    assert expected in str(error.value) and str(error.value).replace("\n", "").isprintable()


def test_a_missing_file_or_a_mistake_in_it_is_one_message_with_its_place(tmp_path: Path) -> None:
    message = must_fail("data", "pack", "phantom-64px", "--study", tmp_path / "none.yaml")
    assert message.startswith(f"cxrbench: {tmp_path}/none.yaml: there is no such file")
    text = STUDY.read_text().replace("hours:", "hour:", 1)
    (tmp_path / "study.yaml").write_text(text)
    line = text[: text.index("hour:")].count("\n") + 1
    with pytest.raises(UserError, match=rf"study\.yaml:{line}:\d+: unknown key 'limits.hour'"):
        read_study(tmp_path / "study.yaml")


def test_every_recorded_recipe_reproduces_its_hash_and_no_default_changes() -> None:
    paths = list((ROOT / "data/recorded").glob("*/*/*/seed*/record.json"))
    assert len(paths) > 30
    for record in (json.loads(path.read_text()) for path in paths):
        assert Recipe.model_validate(record["recipe"]).hash() == record["recipe_hash"], record["cell"]
    message = "a default entered the hashes of recorded recipes: give the new value in the study instead"
    assert Recipe(epochs=1, batch=1).hash() == "bbc133cff5038181", message


def test_the_hash_of_a_recipe_changes_with_every_value() -> None:
    base, flip, optlevel = {"epochs": 2, "batch": 64}, {"flip": 0.0}, {"optlevel": 1}
    changes = ({}, {"epochs": 3}, {"threads": 1}, {"augmentation": flip}, {"compiler": optlevel})
    changes += ({"precision": "tf32"}, {"deterministic": False}, {"layer_decay": 0.5}, {"drop_rate": 0.5})
    changes += tuple({"weights": {"file": "one.pth", "sha256": digit * 64}} for digit in "01")
    hashes = [Recipe.model_validate(base | change).hash() for change in changes]
    assert len(set(hashes)) == 11 and Recipe(batch=64, epochs=2).hash() == hashes[0]


def test_a_study_has_each_cell_once_and_patterns_choose_those_that_run() -> None:
    study = parse_study(study_with("run", ["phantom-*/{resnet18,x}/cpu/*"]))
    cells = study.all_cells()
    assert len(cells) == len(set(cells)) > 0
    assert study.may_run(Cell("phantom-64px", "resnet18", "cpu", 0))
    assert not study.may_run(Cell("phantom-64px", "convnext_atto", "cpu", 0))
    with pytest.raises(UserError, match="did you mean 'phantom-64px'"):
        study.dataset("phantm-64px")


@pytest.mark.slow
def test_the_schemas_follow_the_types_and_the_list_of_architectures_timm(tmp_path: Path) -> None:
    must_work("schemas.py", "--folder", tmp_path, "--networks", tmp_path / ARCHITECTURES.name)
    for committed in (*(ROOT / "workflow/schemas").glob("*.json"), ARCHITECTURES):
        same = committed.read_text() == (tmp_path / committed.name).read_text()
        assert same, f"{committed}: run python workflow/scripts/schemas.py, commit"


def test_own_tables_make_a_paper_only_under_a_title_of_their_own() -> None:
    own = {"source": "table", "table": "a.csv", "folder": "b", "pixels": 32, "recipe": "smoke-fp32"}
    block = {"dataset": "own", "architectures": ["resnet18"], "platforms": ["cpu"], "seeds": [0]}
    study = study_with("datasets/own", own)
    assert parse_study(study).makes_paper(), "the table is of no planned cell"
    study |= {"cells": [block]}
    assert not parse_study(study).makes_paper()
    assert parse_study(study | {"paper": {"title": "Ours"}}).makes_paper()


def test_every_key_of_the_study_is_explained() -> None:
    lines = STUDY.read_text().splitlines()
    for number, line in enumerate(lines):
        if line and line[0].isalpha():
            assert lines[number - 1].startswith("#"), f"no comment above '{line}'"


def test_unknown_architectures_are_refused_with_near_names() -> None:
    must_be_architectures(["resnet18", "convnext_tiny_conv_mlp", "test_resnet"])
    with pytest.raises(UserError, match="no architecture 'resnet81'; did you mean 'resnet18'"):
        must_be_architectures(["resnet18", "resnet81"])
