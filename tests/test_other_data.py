"""Another folder of NIH images, at another size: a few lines of config, and the whole graph follows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from conftest import TINY
from cxrbench.datasets.packed import read_packed
from test_graph import copy_of_the_repository, graph

STUDY = f"""
datasets:
  other-48px: {{source: nih, pixels: 48, recipe: fast, folder: data/raw/other, split: data/raw/other.csv}}
recipes:
  fast: {{epochs: 1, batch: 64, averaging: 0.9, threads: 2}}
cells:
  - {{dataset: other-48px, architectures: [{TINY}], platforms: [cpu], seeds: [0]}}
run: ["other-48px/*/cpu/*"]
"""


@pytest.mark.slow
def test_another_folder_of_images_is_a_dataset(packed: Path, tmp_path: Path) -> None:
    if shutil.which("latexmk") is None:
        pytest.skip("LaTeX is not installed: run `make latex`")
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
    done = graph(clone)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = pd.read_csv(clone / "results/tables/cells.csv", keep_default_na=False)
    assert cells[["dataset", "status", "origin"]].values.tolist() == [["other-48px", "ok", "fresh"]]
    assert read_packed(clone / "data/packed/other-48px").images.shape == (1920, 48, 48)
    assert (clone / "paper/paper.pdf").stat().st_size > 50_000
    assert "other-48px" in (clone / "results/tables/table_dataset.csv").read_text()
    again = graph(clone, "-n", "--config", "pathvars={results: elsewhere}")
    assert again.returncode == 0 and "rule pack" not in again.stdout + again.stderr, (
        "another study, same images"
    )
    split.iloc[::-1].to_csv(clone / "data/raw/other.csv", index=False)
    again = graph(clone, "-n")
    assert again.returncode == 0 and "rule pack" in again.stdout + again.stderr
