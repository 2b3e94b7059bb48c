"""docs/own-data.md, done to the letter on drawn images, and on to the tables that a build makes."""

import re
import shlex
import shutil
from functools import partial
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT, TINY, blocks_of, clone_of_the_tree, must_work, ran
from cxrbench.common.files import sha256_file
from cxrbench.paper.results import Results
from own_images import ODD, written
from own_images import drawn as drawn_table
from test_graph import graph

PAGE = (ROOT / "docs/own-data.md").read_text(encoding="utf-8")
CELL = f"mine/{TINY}/cpu/seed0"
PLACE = "/srv/xrays"  # of the page, outside the clone
RNG = np.random.default_rng(0)
blocks = partial(blocks_of, PAGE)


def run_all(folder: Path, *commands: str) -> str:
    """Run the page's commands in ``folder`` with the tiny network; return what they printed."""
    lines = "".join(commands).replace("resnet18", TINY).replace(PLACE, str(folder)).splitlines()
    done = [must_work(*shlex.split(line.removeprefix("cxrbench ")), cwd=folder) for line in lines]
    return "".join(one.stdout + one.stderr for one in done)


def images_and_labels(folder: Path) -> None:
    """Write a table of drawn images, a seventh of the labels of a finding empty, and the images."""
    table = drawn_table(160).astype(dict.fromkeys(ODD, "Int64"))
    table.loc[::7, ODD[1]] = pd.NA
    written(folder, table)


@pytest.mark.slow
def test_own_findings_go_from_images_to_tables(tmp_path: Path) -> None:
    images_and_labels(tmp_path)
    (study,) = blocks("3. A study", "yaml")
    (tmp_path / "mine.yaml").write_text(study.replace("resnet18", TINY).replace(PLACE, str(tmp_path)))
    training, _ = blocks("5. Training and scores", "sh")
    said = run_all(tmp_path, *blocks("4. Packing", "sh"), training)
    assert "packed mine:" in said and "some labels are missing" in said and "Lead & wire" in said
    results = tmp_path / "results"
    tables, record = results / "tables", results / "cells" / CELL / "record.json"
    must_work("adopt.py", results / "runs" / CELL / "record.json", cwd=tmp_path)
    must_work("score.py", record, "--study", "mine.yaml", cwd=tmp_path)
    Results.of_build(results, tmp_path / "mine.yaml", tmp_path / "data/recorded").write()
    scores = pd.read_csv(tables / "metrics.csv")
    assert set(scores["label"]) == {*ODD, "macro", "endpoint", "all"}
    counted = scores[scores["metric"] == "auroc"].set_index("label")["n_images"].groupby("label").first()
    assert counted[ODD[1]] < counted[ODD[0]] == counted["macro"]
    assert pd.read_csv(tables / "cells.csv", keep_default_na=False)["status"].tolist() == ["ok"]
    assert set(pd.read_csv(tables / "spread.csv")["label"]) == {*ODD, "macro", "endpoint", "all"}
    assert pd.read_csv(tables / "subgroups.csv").empty


@pytest.mark.slow
def test_a_build_ends_in_the_report_and_makes_a_paper_only_under_a_title_of_its_own(tmp_path: Path) -> None:
    clone, place = clone_of_the_tree(tmp_path / "clone"), tmp_path / "xrays"
    place.mkdir()
    images_and_labels(place)
    (study,) = blocks("3. A study", "yaml")
    (place / "mine.yaml").write_text(study.replace("resnet18", TINY).replace(PLACE, str(place)))
    _, build = blocks("5. Training and scores", "sh")
    assert build == f"snakemake --cores all --configfile {PLACE}/mine.yaml\n"
    done = graph(clone, "--configfile", place / "mine.yaml", overlay=False)
    must_keep_images_out_of_git(clone)
    assert "Report: results/report.html" in done.stdout and "Paper:" not in done.stdout
    assert "claims" not in done.stdout, "ours say nothing about an own study"
    page = (clone / "results/report.html").read_text()
    assert "(cited)" not in page and "maxvit" not in page and "make cell" not in page
    again = f"cxrbench train {CELL} --study results/study.json"
    assert again in page and must_work(*again.split()[1:], "--help", cwd=clone)
    for name in ("results/report.html", "results/tables/metrics.csv", "figures/seeds.pdf"):
        assert (clone / name).stat().st_size > 1000, name
    assert not (clone / "paper/paper.pdf").exists()
    titled = ("--configfile", place / "mine.yaml", "--config", "paper={title: Ours}")
    again = graph(clone, "-n", *titled, overlay=False)
    assert "rule paper" in again.stdout + again.stderr


def must_keep_images_out_of_git(clone: Path) -> None:
    """What a build of own images writes into a clone is ignored by git, as the page says."""
    ran("git", "init", "-q", cwd=clone, check=True)
    status = ran("git", "status", "--ignored", "--short", cwd=clone, check=True).stdout.splitlines()
    assert {"!! data/packed/", "!! results/"} <= {*status}
    assert not any("mine" in line for line in status if not line.startswith("!!")), status


HEADING = "A real study: 60,000 radiographs on a GPU"


@pytest.mark.slow
def test_a_network_from_given_weights_is_scored_on_other_data(drawn: Path, tmp_path: Path) -> None:
    images_and_labels(tmp_path)
    shutil.copytree(tmp_path / "images", tmp_path / "theirs")
    theirs = pd.read_csv(tmp_path / "labels.csv")
    theirs["patient"] = "other-" + theirs["patient"]
    theirs.to_csv(tmp_path / "theirs.csv", index=False)
    (study,) = blocks(HEADING, "yaml")
    weights = f"{{file: {drawn}, sha256: {sha256_file(drawn)}}}"  # nothing is downloaded in a test
    changed = {"convnext_tiny": TINY, "cuda": "cpu", "224": "32", "epochs: 10": "epochs: 2"}
    for old, new in (changed | {"{timm: default}": weights}).items():
        assert old in study
        study = study.replace(old, new)
    (tmp_path / "tuned.yaml").write_text(study.replace(PLACE, str(tmp_path)))
    *_, commands = blocks(HEADING, "sh")
    said = run_all(tmp_path, commands.replace("convnext_tiny", TINY).replace("cuda", "cpu"))
    assert "left out: the training part" in said and f"wrote {tmp_path}/theirs.parquet" in said
    assert (tmp_path / f"results/weights/tuned/{TINY}/cpu/seed0.safetensors").exists()
    assert "Lead & wire" in said.partition("theirs.parquet")[2]


@pytest.mark.slow
def test_the_page_prints_the_forecast_and_the_cost_of_its_real_study(tmp_path: Path) -> None:
    (study,), (*forecasts, _), printed = (blocks(HEADING, kind) for kind in ("yaml", "sh", "text"))
    (tmp_path / "tuned.yaml").write_text(study.replace(PLACE, str(tmp_path)))
    for name in ("config", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    table = pd.DataFrame({"image": [f"{k}.png" for k in range(60_000)]})
    table["patient"] = table["image"]
    table["split"] = ["train"] * 42_000 + ["val"] * 6_000 + ["test"] * 12_000
    for finding in ("Effusion", "Nodule", "Pneumothorax"):
        table[finding] = (table.index % 9 == 0).astype(int)
    table.to_csv(tmp_path / "labels.csv", index=False)
    for command, lines in zip(forecasts, printed, strict=True):
        words = shlex.split(command.replace(PLACE, str(tmp_path)))[1:]
        said = must_work(*words, cwd=tmp_path).stdout
        wanted, shown = ([line.split() for line in text.splitlines()] for text in (lines, said))
        assert wanted and all(line in shown for line in wanted), said


def test_the_study_of_two_platforms_has_a_forecast(tmp_path: Path) -> None:
    """docs/researcher.md: without images, on a machine with neither platform."""
    (study,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs/researcher.md").read_text(), flags=re.S)
    (tmp_path / "mine.yaml").write_text(dedent(study).replace(PLACE, str(tmp_path)))
    for name in ("config", "data"):
        (tmp_path / name).symlink_to(ROOT / name)
    said = must_work("plan", "--study", "mine.yaml", cwd=tmp_path).stdout
    assert "cuda" in said and "torchneuron" in said and "to run 5 of 5" in said
