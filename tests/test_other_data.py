"""The whole study (config/full.yaml) on a few images at another size: a few lines of config laid over it."""

import os
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from conftest import TINY
from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.record import read_record
from test_graph import copy_of_the_repository, graph

STUDY = f"""
datasets:
  nih-224px: {{pixels: 48, folder: data/raw/other, split: data/raw/other.csv, expect_images: null}}
recipes:
  finetune-224px-bf16: {{epochs: 1, averaging: 0.9, threads: 2}}
cells:
  - {{dataset: nih-224px, architectures: [{TINY}], platforms: [cpu], seeds: [0]}}
run: ["nih-224px/*/cpu/*"]
"""


@pytest.mark.slow
def test_the_whole_study_runs_on_a_few_images(
    latex: None, packed: Path, hub: dict[str, str], tmp_path: Path
) -> None:
    clone = copy_of_the_repository(tmp_path / "clone")
    phantoms = read_packed(packed)
    names = phantoms.index["image"].str.removeprefix("phantom_")
    folder = clone / "data/raw/other/images"
    folder.mkdir(parents=True)
    for name, pixels in zip(names, phantoms.images, strict=True):
        Image.fromarray(pixels).resize((96, 96)).save(folder / name)
    split = pd.DataFrame({"image": names, "split": phantoms.index["split"]})
    split.to_csv(clone / "data/raw/other.csv", index=False)
    (clone / "overlay.yaml").write_text(STUDY)
    whole = ("--configfile", "config/full.yaml", "overlay.yaml")
    graph(clone, *whole, overlay=False, env=os.environ | hub)
    cells = pd.read_csv(clone / "results/full/tables/cells.csv", keep_default_na=False)
    assert cells[["dataset", "status", "origin"]].values.tolist() == [["nih-224px", "ok", "fresh"]]
    record = read_record(clone / f"results/full/cells/nih-224px/{TINY}/cpu/seed0")
    assert record.weights is not None and record.weights.source == f"{TINY}.r160_in1k"
    assert read_packed(clone / "data/packed/nih-224px").images.shape == (1920, 48, 48)
    assert (clone / "results/full/paper.pdf").stat().st_size > 50_000
    assert "nih-224px" in (clone / "results/full/tables/table_dataset.csv").read_text()
    again = graph(clone, "-n", *whole, "--config", "pathvars={results: elsewhere}", overlay=False)
    assert "rule pack" not in again.stdout + again.stderr, "another study, same images"
    split.iloc[::-1].to_csv(clone / "data/raw/other.csv", index=False)
    again = graph(clone, "-n", *whole, overlay=False)
    assert "rule pack" in again.stdout + again.stderr
