"""Initial weights: what the network gets of them, what the record says, what is refused before training."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pandas as pd
import pytest
import timm
import torch
import yaml
from safetensors.torch import load_file, save, save_file

from conftest import ROOT, SIZES, TINY, change_record, must_fail, must_work, ran
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.checks import record_problems
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import read_record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.config import Recipe, parse_study
from cxrbench.study.names import Cell
from cxrbench.study.recipe import (
    PublishedWeights,
    has_tensors,
    published_weights,
    tensors_sha256,
    weights_missing,
)
from cxrbench.training.method import build_network, parameter_groups
from cxrbench.training.plan import Plan
from cxrbench.training.predict import predict
from cxrbench.training.weights import used_weights
from cxrbench.training.wheels import get_weights

LITE = "tf_efficientnet_lite0"
CLASSIFIER, STEM = "fc", "conv1.0.weight"


@pytest.fixture(scope="session")
def photographs() -> Path:
    """ImageNet weights that the study names, or a skip with the reason."""
    for folder in (os.environ.get("CXRBENCH_WEIGHTS"), ROOT / "data/weights"):
        if folder and (Path(folder) / f"{LITE}.safetensors").exists():
            return Path(folder) / f"{LITE}.safetensors"
    pytest.skip("the ImageNet weights are not here: link them into data/weights, or set CXRBENCH_WEIGHTS")


def recipe_with(path: Path, **changes: Any) -> Recipe:
    weights = {"file": path, "sha256": sha256_file(path)} | changes.pop("weights", {})
    return Recipe.model_validate({"epochs": 1, "batch": 64, "averaging": 0.9, "weights": weights} | changes)


def built(recipe: Recipe, architecture: str = TINY) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_network(architecture, 32, recipe, np.full(3, 0.1))


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_every_layer_but_the_classifier_gets_its_weights(kind: str, drawn: Path, tmp_path: Path) -> None:
    path, given = drawn, load_file(drawn)
    if kind == "pth":
        path = tmp_path / "drawn.pth"
        torch.save({"state_dict": given, "epoch": 3}, path)
    network = built(recipe_with(path))
    state = network.state_dict()
    assert state[STEM].shape[1] == 1
    torch.testing.assert_close(state.pop(STEM), given.pop(STEM).sum(1, keepdim=True))
    for name in given.keys() - {f"{CLASSIFIER}.weight", f"{CLASSIFIER}.bias"}:
        assert torch.equal(state[name], given[name]), name
    prior = torch.full((3,), 0.1)
    torch.testing.assert_close(state[f"{CLASSIFIER}.bias"], torch.logit(prior))
    assert torch.equal(state[f"{CLASSIFIER}.weight"], built(recipe_with(path)).state_dict()["fc.weight"])


def test_pixels_are_normalised_as_the_weights_want_them(drawn: Path) -> None:
    training_images = {"pixel_mean": 0.25, "pixel_std": 0.125}
    scratch = used_weights(built(Recipe(epochs=1, batch=1)), Recipe(epochs=1, batch=1), training_images)
    assert (scratch.source, scratch.sha256, scratch.mean, scratch.std) == ("scratch", None, 0.25, 0.125)
    recipe = recipe_with(drawn)
    of_timm = used_weights(built(recipe), recipe, training_images)
    config = timm.get_pretrained_cfg(TINY)
    assert (of_timm.mean, of_timm.std) == (np.mean(config.mean), np.mean(config.std))
    stated = recipe_with(drawn, weights={"mean": 0.4, "std": 0.3})
    of_recipe = used_weights(built(stated), stated, training_images)
    assert (of_recipe.source, of_recipe.sha256) == (drawn.name, sha256_file(drawn))
    assert (of_recipe.mean, of_recipe.std) == (0.4, 0.3)
    assert stated.hash() != recipe.hash()


def test_the_hash_of_a_recipe_has_the_content_of_its_weights_and_not_their_place(drawn, tmp_path) -> None:
    (tmp_path / "elsewhere.safetensors").write_bytes(drawn.read_bytes())
    recipe, moved = recipe_with(drawn), recipe_with(tmp_path / "elsewhere.safetensors")
    assert recipe.hash() == moved.hash() != Recipe(epochs=1, batch=64, averaging=0.9).hash()


def test_earlier_layers_learn_at_a_lower_rate_and_each_weight_once() -> None:
    recipe = Recipe(epochs=1, batch=64, layer_decay=0.5)
    network = built(recipe)
    rates = {id(w): g["lr_scale"] for g in parameter_groups(network, recipe) for w in g["params"]}
    assert rates.keys() == {id(weight) for weight in network.parameters()}
    assert rates[id(network.fc.weight)] == 1 > rates[id(network.get_parameter(STEM))] > 0
    assert {g["lr_scale"] for g in parameter_groups(network, Recipe(epochs=1, batch=64))} == {1.0}


class Code:
    def __reduce__(self) -> Any:
        return print, ("this ran",)


UNREADABLE = "damaged, or no weights that can be read without running code"
OTHERS = f"not weights of {TINY} .*; name those of this network"


def tensors(changed: Callable[[dict], dict]) -> Callable[[Path, dict], None]:
    """What writes these tensors of the network."""
    return lambda path, state: save_file(changed(state), path)


@pytest.mark.fault("weights that are damaged, code or another network's", "a refusal before any step")
@pytest.mark.parametrize(
    ("made", "suffix", "expected"),
    [
        (lambda path, state: path.write_bytes(save(state)[:5000]), "safetensors", UNREADABLE),
        (lambda path, state: path.write_bytes(save(state)[:5000]), "pth", UNREADABLE),
        (lambda path, state: path.write_bytes(pickle.dumps(Code())), "pth", UNREADABLE),
        (lambda path, state: torch.save([1, 2], path), "pth", UNREADABLE),
        (lambda path, state: torch.save({"state_dict": {"n": 3}}, path), "pth", "other things than tensors"),
        (tensors(lambda _: timm.create_model("test_vit").state_dict()), "safetensors", OTHERS),
        (tensors(lambda state: state | {STEM: state[STEM][:4].contiguous()}), "safetensors", OTHERS),
        (tensors(lambda state: {k: v for k, v in state.items() if "layer4" not in k}), "safetensors", OTHERS),
    ],
)
def test_wrong_weights_are_one_sentence(made, suffix, expected, drawn, tmp_path, capsys) -> None:
    path = tmp_path / f"wrong.{suffix}"
    made(path, load_file(drawn))
    with pytest.raises(UserError, match=expected) as error:
        built(recipe_with(path))
    assert path.name in str(error.value) and len(str(error.value).splitlines()) == 1
    assert "this ran" not in capsys.readouterr().out


@pytest.mark.fault("weights of timm that do not exist, or no network", "the tags there are, or another way")
def test_tags_are_checked_and_a_download_without_network_is_one_sentence(monkeypatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for tag, expected in {
        "in1k": rf"timm has no weights 'in1k' for {TINY}; did you mean 'r160_in1k'",
        "r160_in1k": rf"{TINY}.r160_in1k are not in the cache and cannot be downloaded .*; connect to ",
        "default": rf"{TINY}.r160_in1k are not in the cache",
    }.items():
        with pytest.raises(UserError, match=expected):
            built(Recipe(epochs=1, batch=1, weights={"timm": tag}))


FROM_TIMM = """
import sys, numpy, torch
from cxrbench.study.config import Recipe
from cxrbench.training.method import build_network
from cxrbench.training.weights import used_weights
recipe = Recipe(epochs=1, batch=1, weights={"timm": "default"})
network = build_network("test_resnet", 32, recipe, numpy.full(3, 0.1))
print(used_weights(network, recipe, {}).model_dump_json())
torch.save(network.state_dict(), sys.argv[1])
"""


@pytest.mark.slow
def test_weights_of_timm_are_downloaded_and_their_hash_is_kept(
    drawn: Path, hub: dict[str, str], tmp_path: Path
) -> None:
    done = ran(sys.executable, "-c", FROM_TIMM, tmp_path / "loaded.pth", env=os.environ | hub)
    assert done.returncode == 0, done.stderr
    used = json.loads(done.stdout)
    assert (used["source"], used["sha256"]) == (f"{TINY}.r160_in1k", sha256_file(drawn))
    loaded, given = torch.load(tmp_path / "loaded.pth"), load_file(drawn)
    torch.testing.assert_close(loaded[STEM], given[STEM].sum(1, keepdim=True))


def a_study(recipe: dict[str, Any], *names: str, **more: Any) -> dict[str, Any]:
    """A study of the tiny network on the first of the phantom datasets of these ``names``."""
    dataset = {"source": "phantom", "pixels": 32, "recipe": "r", "images": SIZES}
    cells = {"dataset": names[0], "architectures": [TINY], "platforms": ["cpu"], "seeds": [0]}
    return {"datasets": dict.fromkeys(names, dataset), "recipes": {"r": recipe}, "cells": [cells]} | more


@pytest.mark.fault("initial weights that are missing, or another file", "named before any cell is trained")
def test_the_plan_looks_at_the_file_before_any_cell_trains(drawn, tmp_path) -> None:
    def why_not(path: Path, sha256: str) -> str | None:
        weights = {"file": str(path), "sha256": sha256}
        study = a_study({"epochs": 1, "batch": 64, "weights": weights}, "phantom-d", run=["*"])
        return Plan(parse_study(study), EvidenceStore(tmp_path)).why_not_here(
            Cell("phantom-d", TINY, "cpu", 0)
        )

    assert why_not(drawn, sha256_file(drawn)) is None
    absent = why_not(tmp_path / "none.pth", "0" * 64)
    assert "none.pth are not on this machine: put or link them there" in str(absent)
    with pytest.raises(UserError, match=r"drawn\.safetensors: its sha256 is .*, the recipe says 0000"):
        why_not(drawn, "0" * 64)
    assert weights_missing("scratch") is None


def test_the_weights_of_the_study_are_those_of_its_network(photographs: Path) -> None:
    recipe = recipe_with(photographs)
    study = parse_study(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    weights = study.recipe("nih128-128px").weights
    assert weights_missing(weights.model_copy(update={"file": photographs})) is None
    network, given = built(recipe, LITE), load_file(photographs)
    assert used_weights(network, recipe, {}).mean == used_weights(network, recipe, {}).std == 0.5
    state = network.state_dict()
    torch.testing.assert_close(state["conv_stem.weight"], given["conv_stem.weight"].sum(1, keepdim=True))
    assert torch.equal(state["conv_head.weight"], given["conv_head.weight"])


@pytest.fixture
def package(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishedWeights:
    """A package with weights under other names, in a folder where pip looks instead of its index."""
    state = {f"old.{number}": value for number, value in enumerate(whole_state(drawn).values())}
    saved = io.BytesIO()
    torch.save(state, saved)
    wheel, about = tmp_path / "index/tiny_weights-1.0-py3-none-any.whl", "tiny_weights-1.0.dist-info"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_weights/tiny.pth", saved.getvalue())
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    save_file(whole_state(drawn), tmp_path / "truth.safetensors", {"a": "1", "b": "2"})
    return PublishedWeights(
        sha256=sha256_file(tmp_path / "truth.safetensors"),
        tensors=tensors_sha256(tmp_path / "truth.safetensors"),
        architecture=TINY,
        package="tiny-weights==1.0",
        wheel=sha256_file(wheel),
        bytes=wheel.stat().st_size,
        member="tiny_weights/tiny.pth",
        licence="none",
    )


def whole_state(drawn: Path) -> dict[str, torch.Tensor]:
    """A state dict of the network with the drawn weights, in its own order."""
    state = timm.create_model(TINY, pretrained=False).state_dict()
    return state | {name: value for name, value in load_file(drawn).items() if name in state}


def test_weights_of_a_package_count_as_the_recorded_ones_by_their_tensors(package, tmp_path) -> None:
    path = tmp_path / "data/weights/tiny.safetensors"
    get_weights(package, path)
    assert sha256_file(path) != package.sha256 and tensors_sha256(path) == package.tensors
    row = package.model_dump(by_alias=True)
    pd.DataFrame([row]).to_csv(tmp_path / "weights.csv", index=False)
    found = published_weights(recipe_with(tmp_path / "truth.safetensors").weights, tmp_path / "weights.csv")
    assert found == package and has_tensors(path, package.tensors)
    (tmp_path / "other.pth").write_bytes(b"none")
    assert not has_tensors(drawn_again(path, tmp_path), package.tensors)
    assert not has_tensors(tmp_path / "other.pth", package.tensors)


def drawn_again(path: Path, folder: Path) -> Path:
    """The same weights but for one number."""
    state = load_file(path)
    state[STEM].view(-1)[0] += 1
    save_file(state, folder / "changed.safetensors")
    return folder / "changed.safetensors"


@pytest.mark.slow
@pytest.mark.fault("a package of weights is absent or another", "a message; no file is written")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wheel": "0" * 64}, "tiny-weights==1.0: pip could not download it"),
        ({"package": "tiny-weights==2.0"}, "tiny-weights==2.0: pip could not download it"),
        ({"tensors": "0" * 64}, "its tensors have the sha256 .* nothing was written"),
        ({"member": "tiny_weights/none.pth"}, "none.pth is not as data/weights.csv says"),
        ({"architecture": "resnet18"}, "tiny.pth is not as data/weights.csv says"),
    ],
)
def test_a_package_that_is_not_the_published_one_is_refused(changes, message, package, tmp_path) -> None:
    with pytest.raises(UserError, match=message):
        get_weights(package.model_copy(update=changes), tmp_path / "weights/tiny.safetensors")
    assert not list(tmp_path.glob("weights/*"))


@pytest.mark.slow
def test_the_published_package_has_the_weights_of_the_study(tmp_path: Path) -> None:
    study = parse_study(yaml.safe_load((ROOT / "config/config.yaml").read_text()))
    row = published_weights(study.recipe("nih128-128px").weights, ROOT / "data/weights.csv")
    try:
        get_weights(row, tmp_path / "lite0.safetensors")  # which compares the tensors
    except UserError as error:
        if "pip could not download it" not in str(error):
            raise
        pytest.skip(str(error))
    assert tensors_sha256(tmp_path / "lite0.safetensors") == row.tensors


CELL = f"phantom-32px/{TINY}/cpu/seed0"
KEPT = f"results/weights/{CELL}.safetensors"


@pytest.fixture(scope="module")
def kept(packed: Path, drawn: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a cell was trained from weights and keeps its own, and its dataset beside others."""
    folder = tmp_path_factory.mktemp("kept")
    (folder / "data").mkdir()
    shutil.copytree(packed, folder / "data/packed/phantom-32px")
    recipe = json.loads(trained_from(drawn).model_dump_json(exclude_unset=True))
    study = a_study(recipe, "phantom-32px", "phantom-other", limits={"keep_weights": True})
    (folder / "config").mkdir()
    (folder / "config/config.yaml").write_text(yaml.safe_dump(study))
    must_work("train", CELL, cwd=folder)
    return folder


def trained_from(path: Path) -> Recipe:
    return recipe_with(path, layer_decay=0.5, drop_rate=0.1, precision="bf16")


@pytest.mark.slow
def test_a_cell_trained_from_weights_records_them_without_their_folder(drawn: Path, kept: Path) -> None:
    record = read_record(kept / "results/runs" / CELL)
    assert (record.weights.source, record.weights.sha256) == (drawn.name, sha256_file(drawn))
    assert record.recipe_hash == trained_from(drawn).hash() and not list(record_problems(record, "cpu"))
    assert str(drawn.parent) not in (kept / "results/runs" / CELL / "record.json").read_text()


@pytest.mark.slow
def test_kept_weights_give_the_scores_of_their_cell_again(kept: Path) -> None:
    record = read_record(kept / "results/runs" / CELL)
    assert record.kept_weights_sha256 == sha256_file(kept / KEPT)
    done = must_work("predict", CELL, "--dataset", "phantom-32px", "--out", "again.parquet", cwd=kept)
    assert "left out: the training part (900 images)" in done.stderr
    assert "left out: 0 images whose patient ids it was trained on" in done.stderr
    own = read_predictions(kept / "results/runs" / CELL / "predictions.parquet")
    pd.testing.assert_frame_equal(read_predictions(kept / "again.parquet"), own)


@pytest.mark.slow
def test_other_findings_and_patients_seen_in_training_are_left_out_and_said(kept: Path) -> None:
    other = kept / "data/packed/phantom-other"
    shutil.copytree(kept / "data/packed/phantom-32px", other, dirs_exist_ok=True)
    index = pd.read_parquet(other / "index.parquet").rename(columns={"Hernia": "Fracture"})
    first = index[index["split"] == "train"].index[:40]
    seen = index["patient"].isin(index.loc[first, "patient"])
    index.loc[seen, "split"] = "test"
    index.to_parquet(other / "index.parquet", index=False)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["positive_images"]["Fracture"] = manifest["positive_images"].pop("Hernia")
    (other / "manifest.json").write_text(json.dumps(manifest))
    words = ("predict", CELL, "--dataset", "phantom-other", "--out", "other.parquet")
    done = must_work(*words, cwd=kept)
    assert "network does not know: Fracture; findings that phantom-other does not have: Her" in done.stderr
    assert f"left out: {seen.sum()} images whose patient ids it was trained on" in done.stderr
    own = read_predictions(kept / "results/runs" / CELL / "predictions.parquet")
    scored = read_predictions(kept / "other.parquet")
    assert sorted(scored["image"]) == sorted(own["image"])
    assert {name for name in scored if name.startswith("label_")} == {
        name for name in own if name.startswith("label_") and name != "label_Hernia"
    }


@pytest.mark.slow
@pytest.mark.fault("kept weights that are missing, changed or of another size", "one sentence and no output")
def test_weights_that_cannot_be_applied_are_refused(kept: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept, folder)
    words = ("predict", CELL, "--dataset", "phantom-32px", "--out", "refused.parquet")

    def refused(expected: str) -> None:
        (line,) = must_fail(*words, cwd=folder).splitlines()
        assert expected in line and not (folder / "refused.parquet").exists()

    manifest = folder / "data/packed/phantom-32px/manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"pixels": 32', '"pixels": 64'))
    refused("packed with pixels 64, the study says 32")
    manifest.write_text(text)
    with (folder / KEPT).open("ab") as file:
        file.write(b"0")
    refused("its sha256 is not that in the record")
    (folder / KEPT).unlink()
    refused("missing, though its record names it")
    record = folder / "results/runs" / CELL / "record.json"
    change_record(record.parent, kept_weights_sha256=None)
    refused("its weights were not kept; set limits.keep_weights in the study and train it again")
    record.unlink()
    refused("there is no such record; run the cell")


@pytest.mark.slow
def test_weights_for_another_size_are_refused(kept: Path, packed: Path, tmp_path: Path) -> None:
    cell, record = Cell.parse(CELL), read_record(kept / "results/runs" / CELL)
    larger = read_packed(packed)
    larger = replace(larger, manifest=larger.manifest | {"pixels": 64})
    with pytest.raises(UserError, match=r"has 64 px, the network of .* was trained with 32"):
        predict(cell, record, kept / KEPT, larger, tmp_path / "out.parquet", "cpu")


@pytest.mark.slow
def test_kept_weights_can_be_initial_weights_with_their_own_normalisation(kept: Path) -> None:
    recipe = recipe_with(kept / KEPT)
    network, given = built(recipe), load_file(kept / KEPT)
    assert torch.equal(network.state_dict()[STEM], given[STEM])
    trained = read_record(kept / "results/runs" / CELL).weights
    used = used_weights(network, recipe, {})
    assert (used.mean, used.std) == (trained.mean, trained.std)
