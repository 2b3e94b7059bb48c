"""docs/adding.md, done to the letter in a copy: what was added is in tables, figures and paper."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from conftest import ROOT, blocks_of, keep_recorded, ran, text_of
from cxrbench.study.platforms import ENTRIES
from test_graph import copy_of_the_repository, graph

PAGE = (ROOT / "docs/adding.md").read_text()
MODULE = "src/cxrbench/platforms/cpu_channels_last.py"
blocks = partial(blocks_of, PAGE)


def added_to(config: Any, more: Any) -> Any:
    """What the page means by adding: entries to the end of lists, keys to mappings."""
    if isinstance(config, list):
        return config + more
    return config | {key: added_to(config[key], more[key]) if key in config else more[key] for key in more}


def add_everything(folder: Path) -> None:
    """Follow the page's five steps in the copy ``folder``."""
    config = yaml.safe_load((folder / "config/config.yaml").read_text())
    for heading in ("An architecture", "A dataset", "A platform"):
        (block,) = blocks(heading, "yaml")
        config = added_to(config, yaml.safe_load(block))
    (folder / "config/config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    with (folder / "data/prices.csv").open("a") as file:
        file.write("".join(blocks("An instance", "csv")))
    assert MODULE in PAGE
    module, entry = blocks("A platform", "python")
    (folder / MODULE).write_text(module)
    names = folder / "src/cxrbench/study/platforms.py"
    head = "ENTRIES: dict[str, Entry] = {\n"
    names.write_text(names.read_text().replace(head, head + entry))
    (folder / "src/cxrbench/paper/slowest.py").write_text("".join(blocks("A table", "python")))
    for path, language in (
        ("src/cxrbench/paper/items.toml", "toml"),
        ("paper/sections/more_results.tex", "latex"),
    ):
        assert path in PAGE
        with (folder / path).open("a") as file:
            file.write("\n" + "".join(blocks("A table", language)))


NEW = ("resnet34", "p3.16xlarge", "nih-128px", "cpu_channels_last", "slowest_cells")


def test_what_the_page_adds_is_nowhere_yet() -> None:
    for name in NEW:
        places = ["paper", "data", "config", "src", "README.md", ":!*/architectures.txt", ":!data/timm_*.csv"]
        found = ran("git", "grep", "-lF", name, "--", *places, cwd=ROOT)
        assert found.returncode == 1, f"{name} is in {found.stdout}: finding it proves nothing"


@pytest.mark.slow
def test_each_entry_names_the_class_of_its_platform(forks: None) -> None:
    modules = {path.stem for path in (ROOT / "src/cxrbench/platforms").glob("*.py")}
    assert {entry.module for entry in ENTRIES.values()} <= modules
    code = """if True:
        import importlib
        from cxrbench.study.platforms import ENTRIES
        for name, entry in ENTRIES.items():
            module = importlib.import_module(f"cxrbench.platforms.{entry.module}")
            assert getattr(module, entry.cls).name == name, name
    """  # in a process of its own: Neuron's modules set the environment when they are imported
    done = ran(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, latex: None) -> Path:
    """A copy with all five additions, from recorded evidence; only the new platform's cell is trained."""
    folder = copy_of_the_repository(tmp_path_factory.mktemp("added"))
    keep_recorded(folder, "nih128-64px/resnet18/cpu/seed[01]")
    add_everything(folder)
    (run,) = yaml.safe_load(blocks("A platform", "yaml")[0])["run"]
    images = "datasets={phantom-32px: {images: {train: 320, val: 280, test: 280}}}"
    brief = ("recipes={brief-fp32: {epochs: 1}}", images)
    graph(folder, "--config", f'run=["{run}"]', *brief, overlay=False)
    return folder


def words_of(pdf: Path) -> str:
    """The words of a PDF without the breaks that lines put into them."""
    return "".join(text_of(pdf).split())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tables", "figure"),
    [
        ("resnet34", ["cells"], None),  # not run: the figure draws what was
        ("nih-128px", ["cells"], None),
        ("cpu_channels_last", ["cells", "metrics", "cost"], "cells"),
    ],
)
def test_an_addition_is_in_tables_figure_and_paper(built: Path, name, tables, figure) -> None:
    for table in tables:
        assert name in (built / f"results/tables/{table}.csv").read_text()
    assert name in "".join(path.read_text() for path in (built / "results/tables").glob("table_*.csv"))
    if figure is not None:
        assert name in words_of(built / f"figures/{figure}.pdf")
        assert name in words_of(built / "paper/paper.pdf")


@pytest.mark.slow
def test_a_new_instance_is_in_the_table_of_prices(built: Path) -> None:
    for table in ("prices", "table_prices"):
        assert "p3.16xlarge" in (built / f"results/tables/{table}.csv").read_text()


@pytest.mark.slow
def test_a_new_table_is_in_paper_csv_and_markdown(built: Path) -> None:
    rows = pd.read_csv(built / "results/tables/table_slowest_cells.csv")
    assert len(rows) == 3 and rows["Hours"].is_monotonic_decreasing
    assert rows["Cell"][0] in (built / "results/tables/table_slowest_cells.md").read_text()
    assert "Theslowestcellsofthisstudy." in words_of(built / "paper/paper.pdf")


@pytest.mark.slow
def test_the_new_platforms_cell_was_trained_scored_and_priced_and_the_others_were_not(built: Path) -> None:
    cells = pd.read_csv(built / "results/tables/cells.csv", keep_default_na=False).set_index("cell")
    cell = "phantom-32px/resnet18/cpu_channels_last/seed0"
    assert (cells.loc[cell, "status"], cells.loc[cell, "origin"]) == ("ok", "fresh")
    assert cells[cells["origin"] == "fresh"].index.tolist() == [cell]
    assert set(cells.loc[cells["architecture"] == "resnet34", "status"]) == {"not run"}
    cost = pd.read_csv(built / "results/tables/cost.csv").set_index("cell")
    assert cost.loc[cell, "instance"] == "c7a.large" and cost.loc[cell, "usd_total"] > 0
    assert not (built / "results/runs/nih-128px").exists()
