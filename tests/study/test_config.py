"""The study: what is right is read, what is wrong is named with file, key and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, cxrbench
from cxrbench.cli.schemas import architectures_text, schema_text
from cxrbench.study.cells import Cell
from cxrbench.study.config import Compiler, Recipe, parse_study, read_study
from cxrbench.study.errors import UserError
from cxrbench.training.plan import ARCHITECTURES, must_be_architectures

STUDY = ROOT / "config/config.yaml"


def changed(change) -> dict:
    value = yaml.safe_load(STUDY.read_text())
    change(value)
    return value


def test_the_study_is_valid_and_lists_each_cell_once() -> None:
    cells = read_study(STUDY).all_cells()
    assert len(cells) == len(set(cells)) > 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda v: v.update(dataset=v.pop("datasets")), ["unknown key 'dataset'", "'datasets'"]),
        (lambda v: v["recipes"]["smoke-fp32"].update(epoch=3), ["recipes.smoke-fp32.epoch", "'epochs'"]),
        (lambda v: v["limits"].update(hour=3), ["limits.hour", "'hours'"]),
        (lambda v: v["datasets"]["nih128-64px"].update(pixel=3), ["datasets.nih128-64px.pixel", "'pixels'"]),
        (lambda v: v["datasets"]["nih128-64px"].pop("folder"), ["datasets.nih128-64px.folder", "missing"]),
        (lambda v: v["datasets"]["nih128-64px"].update(source="nhi"), ["datasets.nih128-64px", "nih"]),
        (lambda v: v["cells"][0].update(dataset="phantom-65px"), ["cells.0.dataset", "'phantom-64px'"]),
        (lambda v: v["cells"][0].update(seeds=[-1]), ["cells.0.seeds.0", "greater than or equal to 0"]),
        (
            lambda v: v["cells"][0].update(architectures=["timm/a"]),
            ["'timm/a' cannot be a name"],
        ),
        (
            lambda v: v["recipes"]["smoke-fp32"].update(compiler={"model_typ": "generic"}),
            ["recipes.smoke-fp32.compiler.model_typ", "'model_type'"],
        ),
        (
            lambda v: v["datasets"].update(nih=v["datasets"]["nih128-64px"] | {"pixles": 3}),
            ["datasets.nih.pixles", "'pixels'"],
        ),
        (lambda v: v.update(pathvars={"recorded": "elsewhere"}), ["pathvars.recorded", "'packed'"]),
        (lambda v: v.update(pathvars={"packed": "/my disk/packed"}), ["pathvars.packed", "without blanks"]),
        (
            lambda v: v["datasets"].update(demo=v["datasets"]["phantom-32px"]),
            ["datasets.demo", "begins with 'phantom'"],
        ),
        (
            lambda v: v["datasets"].update({"phantom-nih": v["datasets"]["nih128-64px"]}),
            ["datasets.phantom-nih", "begins with 'phantom'"],
        ),
        (lambda v: v["cells"][0].update(platforms=["gpu"]), ["cells.0.platforms", "cuda"]),
        (lambda v: v["datasets"]["nih128-64px"].update(recipe="fp32"), ["nih128-64px.recipe", "fp32"]),
        (
            lambda v: v["recipes"]["smoke-fp32"].update(batch=0),
            ["recipes.smoke-fp32.batch", "greater than 0"],
        ),
        (lambda v: v.pop("recipes"), ["'recipes' is missing"]),
    ],
)
def test_a_mistake_is_named_with_its_key_and_the_nearest_right_one(change, expected) -> None:
    with pytest.raises(UserError) as error:
        parse_study(changed(change), "config.yaml")
    for text in ["config.yaml", *expected]:
        assert text in str(error.value)


def test_a_missing_or_broken_file_is_one_message(tmp_path: Path) -> None:
    done = cxrbench("data", "pack", "phantom-64px", "--study", tmp_path / "none.yaml")
    assert done.returncode == 1
    assert done.stderr.startswith(f"cxrbench: {tmp_path}/none.yaml: there is no such file")
    (tmp_path / "broken.yaml").write_text("cells: [")
    with pytest.raises(UserError, match=r"broken\.yaml:[12]:\d+: not YAML"):
        read_study(tmp_path / "broken.yaml")
    (tmp_path / "broken.yaml").write_bytes("run: [Lungenr\xf6ntgen]".encode("latin-1"))
    with pytest.raises(UserError, match=r"broken\.yaml:1:14: byte 0xf6 is not UTF-8"):
        read_study(tmp_path / "broken.yaml")


@pytest.mark.fault("hostile values in a study", "the key is named and nothing runs")
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda v: v["recipes"]["smoke-fp32"].update(learning_rate=float("inf")),
            "learning_rate: Input",
        ),
        (
            lambda v: v["recipes"]["smoke-fp32"].update(weight_decay=float("nan")),
            "weight_decay: Input",
        ),
        (lambda v: v["limits"].update(hours=float("inf")), "limits.hours: Input should be a finite number"),
        (
            lambda v: v["recipes"]["smoke-fp32"].update(epochs=10**30),
            "epochs: Input should be less",
        ),
        (lambda v: v["cells"][0].update(seeds=[10**30]), "cells.0.seeds.0: Input should be less"),
        (lambda v: v["cells"][0].update(architectures=[".."]), "'..' cannot be a name"),
        (lambda v: v["cells"][0].update(architectures=["a b"]), "'a b' cannot be a name"),
        (lambda v: v["cells"][0].update(architectures=["a\n"]), r"'a\n' cannot be a name"),
        (
            lambda v: v["recipes"].update({"\x1b[31m": {"epochs": 1, "batch": 1}}),
            r"'\x1b[31m' cannot be a name",
        ),
        (lambda v: v["datasets"].update({"a/b": {}}), "'a/b' cannot be a name"),
        (lambda v: v.update(pathvars={"results": "a>b"}), "pathvars.results"),
        (lambda v: v.update(pathvars={"results": "-rf"}), "pathvars.results"),
        (lambda v: v.update(pathvars={"results": "a\n"}), "pathvars.results"),
        (lambda v: v.update(run=["{a,b}" * 30]), "alternatives; write several"),
        (lambda v: v.update(run=["{a,{b,c}}"]), "braces inside of braces"),
        (lambda v: v["cells"][0].update(seeds=list(range(60_000))), "a study has 100,000 at most"),
    ],
)
def test_a_hostile_value_is_refused(change, expected: str) -> None:
    with pytest.raises(UserError) as error:
        parse_study(changed(change), "config.yaml")
    assert expected in str(error.value) and str(error.value).replace("\n", "").isprintable()


def test_a_mistake_in_a_file_has_its_line_and_column(tmp_path: Path) -> None:
    text = STUDY.read_text().replace("hours:", "hour:", 1)
    (tmp_path / "study.yaml").write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "hour:" in one)
    with pytest.raises(UserError, match=rf"study\.yaml:{line}:\d+: unknown key 'limits.hour'"):
        read_study(tmp_path / "study.yaml")


RECORDS = sorted((ROOT / "data/recorded").glob("*/*/*/seed*/record.json"))


def test_every_recorded_recipe_reproduces_its_hash() -> None:
    recipes = {path: json.loads(path.read_text()) for path in RECORDS}
    assert len(recipes) > 30
    for path, record in recipes.items():
        assert Recipe.model_validate(record["recipe"]).hash() == record["recipe_hash"], path


def test_no_default_of_a_recipe_changes() -> None:
    message = "a default entered the hashes of recorded recipes: give the new value in the study instead"
    assert Recipe(epochs=1, batch=1).hash() == "bbc133cff5038181", message


def test_a_key_given_twice_is_refused_and_not_the_last_one_taken(tmp_path: Path) -> None:
    text = STUDY.read_text()
    (tmp_path / "study.yaml").write_text(text + "\ncells:\n  - {dataset: none}\n")
    line = len(text.splitlines()) + 2
    with pytest.raises(UserError, match=rf"study\.yaml:{line}:1: key 'cells' is given twice; keep one"):
        read_study(tmp_path / "study.yaml")


def test_an_unknown_dataset_names_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'phantom-64px'"):
        read_study(STUDY).dataset("phantm-64px")


def test_the_hash_of_a_recipe_changes_with_every_value() -> None:
    base = Recipe(epochs=2, batch=64)
    others = [
        base.model_copy(update={"epochs": 3}),
        base.model_copy(update={"threads": 1}),
        base.model_copy(update={"augmentation": base.augmentation.model_copy(update={"flip": 0.0})}),
    ]
    assert len({one.hash() for one in (base, *others)}) == 4
    assert Recipe(batch=64, epochs=2).hash() == base.hash()


def test_the_compiler_is_part_of_a_recipe_and_its_default_keeps_recorded_hashes() -> None:
    recipe = read_study(STUDY).recipe("nih128-64px")
    recorded = ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0/record.json"
    assert recipe.hash() == json.loads(recorded.read_text())["recipe_hash"]
    assert recipe.model_copy(update={"compiler": Compiler(optlevel=1)}).hash() != recipe.hash()


def test_run_patterns_choose_cells() -> None:
    study = parse_study(changed(lambda v: v.update(run=["phantom-*/{resnet18,x}/cpu/*"])))
    assert study.may_run(Cell("phantom-64px", "resnet18", "cpu", 0))
    assert not study.may_run(Cell("phantom-64px", "convnext_atto", "cpu", 0))


@pytest.mark.parametrize("name", ["study.schema.json", "record.schema.json"])
def test_the_schemas_follow_the_types(name: str) -> None:
    committed = (ROOT / "workflow/schemas" / name).read_text()
    assert committed == schema_text(name), "run `python -m cxrbench schema` and commit the result"


def test_every_key_of_the_study_is_explained() -> None:
    lines = STUDY.read_text().splitlines()
    for number, line in enumerate(lines):
        if line and line[0].isalpha():
            assert lines[number - 1].startswith("#"), f"no comment above '{line}'"


def test_the_list_of_architectures_is_that_of_timm() -> None:
    assert ARCHITECTURES.read_text() == architectures_text(), "run `python -m cxrbench schema`, commit"


def test_an_unknown_architecture_is_refused_with_near_names() -> None:
    must_be_architectures(["resnet18", "convnext_tiny_conv_mlp", "test_resnet"])
    with pytest.raises(UserError, match="no architecture 'resnet81'; did you mean 'resnet18'"):
        must_be_architectures(["resnet18", "resnet81"])
