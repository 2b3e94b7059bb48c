"""The study: what is right is read, what is wrong is named with file, key and remedy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from conftest import ROOT, cxrbench
from cxrbench.cells import Cell
from cxrbench.config import Compiler, Recipe, parse_study, read_study
from cxrbench.errors import UserError
from cxrbench.schemas import architectures_text, schema_text
from cxrbench.study import ARCHITECTURES, must_be_architectures

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
    with pytest.raises(UserError, match=r"broken\.yaml:1:9: not YAML"):
        read_study(tmp_path / "broken.yaml")
    (tmp_path / "broken.yaml").write_bytes("run: [Lungenr\xf6ntgen]".encode("latin-1"))
    with pytest.raises(UserError, match=r"broken\.yaml:1:13: byte 0xf6 is not UTF-8"):
        read_study(tmp_path / "broken.yaml")


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
