"""The artifact appendix: from claims to evidence, from criteria to what proves them, systems of cells."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, cxrbench
from cxrbench.claims.file import read_claims
from cxrbench.claims.inputs import read_context
from cxrbench.claims.ledger import check_claims
from cxrbench.evidence.sums import write_sums
from cxrbench.paper.artifact import CRITERIA, Artifact, read_criteria, systems, write_artifact
from cxrbench.paper.blocks import as_markdown, renew
from cxrbench.paper.latex import macros
from cxrbench.study.errors import UserError
from cxrbench.study.files import write_csv

CELL = "nih128-64px/resnet18/cpu/seed0"
STUDY = ROOT / "config/config.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of results with the ledger of claims, as the graph would write it from no other table."""
    tables = tmp_path_factory.mktemp("results") / "tables"
    claims, context = read_claims(ROOT / "data/claims.yaml"), read_context(ROOT / "data/prices.csv", tables)
    write_csv(tables / "claims.csv", check_claims(claims, context))
    return tables.parent


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of one recorded cell; commands run in the repository."""
    monkeypatch.chdir(ROOT)
    shutil.copytree(ROOT / "data/recorded" / CELL, tmp_path / "recorded" / CELL)
    write_sums(tmp_path / "recorded")
    return tmp_path / "recorded"


def experiment(name: str, built: Path, recorded: Path) -> pd.Series:
    """The row of an experiment in the appendix."""
    return Artifact.read(built, STUDY, recorded).experiments().set_index("").loc[name]


def another(recorded: Path, seed: int, **changes: object) -> None:
    """The recorded cell under another seed, with a record that differs in ``changes`` of its host."""
    folder = recorded / CELL.replace("seed0", f"seed{seed}")
    shutil.copytree(recorded / CELL, folder)
    record = json.loads((folder / "record.json").read_text())
    record |= {"cell": CELL.replace("seed0", f"seed{seed}"), "host": record["host"] | changes}
    (folder / "record.json").write_text(json.dumps(record))
    write_sums(recorded)


def test_every_claim_of_ours_has_an_experiment() -> None:
    claims = read_claims(ROOT / "data/claims.yaml")
    assert claims.ours and {claim.experiment for claim in claims.ours} <= set(claims.experiments)
    assert [one.command for one in claims.experiments.values() if not exists(one.command)] == []


def test_a_claim_has_one_name_everywhere_and_keeps_it_when_another_is_added(built, recorded: Path) -> None:
    made = Artifact.read(built, STUDY, recorded)
    ids = [claim.id for claim in made.file.ours]
    assert list(made.claims()[""]) == ids and ids[0] == "O01"
    new = made.file.claims[0].model_copy(update={"id": "O99", "source": "ours", "experiment": "E4"})
    file = made.file.model_copy(update={"claims": (new, *made.file.claims)})
    ledger = pd.concat([made.ledger, made.ledger.head(1).set_axis(["O99"])])
    added = replace(made, file=file, ledger=ledger)
    assert list(added.claims()[""]) == ["O99", *ids]
    before, after = (one.experiments().set_index("")["Shows"] for one in (made, added))
    assert after.drop("E4").equals(before.drop("E4")) and after["E4"] == f"O99, {before['E4']}"
    assert before["E5"] == "O09" and before["E4"].startswith("O02 to O08, O11 to ")
    for text in ("README.md", "ARTIFACT.md", "data/claims.yaml"):
        assert not re.search(r"\| C\d+|\bC1\b", (ROOT / text).read_text()), text


def test_a_recorded_cell_gives_result_tolerance_hours_and_money(built, recorded: Path) -> None:
    record = json.loads((recorded / CELL / "record.json").read_text())["timing"]
    hours = sum(record[f"{part}_seconds"] for part in ("setup", "compile", "train", "evaluate")) / 3600
    ours, absent = (experiment(name, built, recorded) for name in ("E5", "E6"))
    assert re.search(r"macro AUROC 0\.\d{3} ± 0\.\d{3}", ours["Expected"])
    assert "one recorded seed: patient-clustered interval" in ours["Expected"]
    assert ours["Compute"].startswith(f"{hours:.2f} h on 2 cores")
    assert re.match(r"0\.\d{3} USD \(proxy, c7a\.large on_demand, \d{4}-\d\d-\d\d\)", ours["Money"])
    assert absent["Compute"] == absent["Money"] == "not run" and "no result yet" in absent["Expected"]


def test_the_tolerance_is_that_of_the_seeds_and_refused_evidence_is_no_result(built, recorded: Path) -> None:
    another(recorded, 1)
    another(recorded, 2)
    assert "spread of 3 recorded seeds" in experiment("E5", built, recorded)["Expected"]
    for log in recorded.glob("*/*/*/*/train.log"):
        log.write_text(log.read_text() + "more\n")
    assert experiment("E5", built, recorded)["Compute"] == "not run"
    assert systems(recorded).empty


def test_one_row_for_each_distinct_system(built, recorded: Path, tmp_path: Path) -> None:
    another(recorded, 1)
    gpu = {"device": "NVIDIA A10G", "device_count": 1, "device_memory_gib": 22.5, "driver": "580"}
    another(recorded, 2, cpu="AMD EPYC", **gpu)
    table = systems(recorded)
    assert list(table["System"]) == ["S1", "S2"]
    assert set(table["Cells"]) == {CELL.replace("seed0", "seed{0,1}"), CELL.replace("seed0", "seed2")}
    other = table[table["Machine"].str.startswith("AMD EPYC")].iloc[0]
    assert "1 x NVIDIA A10G, 22.5 GiB each" in other["Machine"] and "driver 580" in other["Software"]
    write_artifact(Artifact.read(built, STUDY, recorded), tmp_path / "out")
    assert r"seed\{0,1\}" in (tmp_path / "out/systems.tex").read_text()


def exists(proof: str) -> bool:
    """Whether a target of make, a command of ours, a test or a file of this name exists."""
    program, *words = proof.split()
    if program == "make":
        return re.search(rf"^{re.escape(words[0])}:", (ROOT / "Makefile").read_text(), flags=re.M) is not None
    if program == "cxrbench":
        flags = [word for word in words if word.startswith("--")]
        shown = cxrbench(*(word for word in words if word not in flags), "--help")
        return shown.returncode == 0 and all(flag in shown.stdout for flag in flags)
    path, _, test = proof.partition("::")
    file = ROOT / path
    return file.exists() and (not test or f"\ndef {test}(" in file.read_text())


CRITERIA_ROWS = read_criteria(ROOT / CRITERIA)
PROOFS = dict.fromkeys(CRITERIA_ROWS["proof"].str.split(r"\s*;\s*").explode(), True)
WRONG = ("make no-such-target", "cxrbench no-such", "tests/test_graph.py::test_no", "no/file")


@pytest.mark.parametrize(("proof", "there"), [*sorted(PROOFS.items()), *((name, False) for name in WRONG)])
def test_what_proves_a_criterion_exists(proof: str, there: bool) -> None:
    assert exists(proof) == there


def test_all_criteria_are_answered() -> None:
    assert list(CRITERIA_ROWS["number"]) == [str(number) for number in range(1, 26)]
    assert all(row.note for row in CRITERIA_ROWS.itertuples() if row.state != "met")


@pytest.mark.parametrize("text", ["", "<!-- begin a -->\n", "<!-- begin a -->\n<!-- end a -->\n" * 2])
def test_a_lost_or_doubled_marker_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "FILE").write_text(text)
    with pytest.raises(UserError, match="FILE has not one pair of markers <!-- begin a -->"):
        renew(tmp_path / "FILE", {"a": "x"})


def test_bars_and_lines_in_a_text_do_not_break_a_table() -> None:
    assert as_markdown(pd.DataFrame({"A": ["x|y\nz"]})) == "\n| A |\n| --- |\n| x\\|y z |\n\n"


def test_the_appendix_has_at_most_two_pages(built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("latexmk") is None:
        pytest.skip("LaTeX is not installed: run `make latex`")
    monkeypatch.chdir(ROOT)
    write_artifact(Artifact.read(built, STUDY, ROOT / "data/recorded"), tmp_path / "generated")
    (tmp_path / "generated/macros.tex").write_text(macros({}))
    preamble = (ROOT / "paper/main.tex").read_text().partition(r"\begin{document}")[0]
    body = (ROOT / "paper/sections/artifact.tex").read_text()
    (tmp_path / "main.tex").write_text(f"{preamble}\\begin{{document}}\n{body}\\end{{document}}\n")
    words = ["latexmk", "-norc", "-pdf", "-interaction=nonstopmode", "main.tex"]
    subprocess.run(words, cwd=tmp_path, capture_output=True)
    log = (tmp_path / "main.log").read_text(errors="replace")
    pages = re.search(r"Output written on main\.pdf \((\d+) page", log)
    assert pages and int(pages[1]) <= 2, log[-2000:]
