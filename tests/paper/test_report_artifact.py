"""The generated parts of ARTIFACT.md: from claims to evidence."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, change_record, cxrbench
from cxrbench.claims.file import read_claims
from cxrbench.claims.ledger import check_claims, read_context
from cxrbench.common.errors import UserError
from cxrbench.evidence.sums import write_sums
from cxrbench.paper.artifact import as_sections, experiments, main_claims
from cxrbench.paper.blocks import as_markdown, renew
from cxrbench.paper.results import CLAIMS, Results
from cxrbench.study.config import read_study

from .conftest import made_up

CELL = "nih128-64px/resnet18/cpu/seed0"


@pytest.fixture(scope="module")
def ledger() -> pd.DataFrame:
    """The ledger of claims as the graph would write it from no other table."""
    context = read_context(ROOT / "data/prices.csv", Path("no tables"))
    return check_claims(read_claims(ROOT / "data/claims.yaml"), context)


@pytest.fixture
def read(ledger: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Results:
    """A ledger beside a copy of one recorded cell, with the repository as working directory."""
    monkeypatch.chdir(ROOT)
    shutil.copytree(ROOT / "data/recorded" / CELL, tmp_path / "recorded" / CELL)
    write_sums(tmp_path / "recorded")
    study = read_study(ROOT / "config/config.yaml")
    return replace(made_up(claims=ledger), study=study, recorded=tmp_path / "recorded")


def experiment(name: str, read: Results) -> pd.Series:
    """The row of an experiment in the appendix."""
    return experiments(read).set_index("").loc[name]


def another(recorded: Path, seed: int, **changes: object) -> None:
    """The recorded cell under another seed, with a record that differs in ``changes`` of its host."""
    folder = recorded / CELL.replace("seed0", f"seed{seed}")
    shutil.copytree(recorded / CELL, folder)
    change_record(folder, cell=CELL.replace("seed0", f"seed{seed}"), host=changes)
    write_sums(recorded)


def test_every_claim_of_ours_has_an_experiment() -> None:
    file = read_claims(ROOT / "data/claims.yaml")
    assert file.ours and {claim.experiment for claim in file.ours} <= set(file.experiments)
    assert [one.command for one in file.experiments.values() if not exists(one.command)] == []


@pytest.mark.slow
def test_a_claim_keeps_its_name_when_another_is_added(read: Results, tmp_path, monkeypatch) -> None:
    before = experiments(read).set_index("")["Shows"]
    shutil.copytree(ROOT / "data", tmp_path / "data", ignore=shutil.ignore_patterns("recorded"))
    monkeypatch.chdir(tmp_path)
    text = CLAIMS.read_text()
    entry = "  - {id: O99, source: ours, experiment: E4, where: Data, says: New, missing: a run}\n"
    CLAIMS.write_text(re.sub("^claims:.*\n", lambda match: match[0] + entry, text, flags=re.M))
    with pytest.raises(UserError, match=r"claims\.csv is older than .*: it has no O99; make it again"):
        main_claims(read)
    after = experiments(read).set_index("")["Shows"]
    assert after.drop("E4").equals(before.drop("E4")) and after["E4"] == f"O99, {before['E4']}"
    assert before["E5"] == "-" and before["E4"].startswith("O02 to ")


@pytest.mark.slow
def test_two_cells_trained_anew_have_a_difference_and_a_bound_that_can_fail(read: Results) -> None:
    named = {name: of for name, of in read_claims(CLAIMS).experiments.items() if of.beside}
    assert list(named) == ["E1", "E9", "E10"]
    rows = [
        {**vars(replace(cell, seed=seed)), "label": "endpoint", "metric": "auroc", "value": 0.7 + value}
        for of in named.values()
        for cell, values in ((of.cell, (0.002, -0.003)), (of.beside, (0.001, 0.001)))
        for seed, value in enumerate(values)
    ]
    scored = replace(read, recorded=ROOT / "data/recorded", metrics=pd.DataFrame(rows))
    table = experiments(scored).set_index("")
    assert list(table.index[table["In doubt if"] != ""]) == ["E1", "E5", "E9", "E10"]
    assert table.loc["E5", "In doubt if"] == "a score is outside its tolerance"
    for name, of in named.items():
        expected = "difference in mean AUROC is +0.0010, and at most 0.0040 in the recorded pairs of 2 seeds"
        assert expected in table.loc[name, "Expected"]
        doubt = table.loc[name, "In doubt if"]
        if of.within is None:  # two differences, 0.001 and -0.004: t of one degree of freedom
            half = 12.706 * 0.005 / 2**0.5 * 1.5**0.5
            assert f"lies outside {-0.0015 - half:+.4f} to {-0.0015 + half:+.4f}, where 19 of 20" in doubt
        else:
            assert f"differs by more than {of.within:g}" in doubt
    assert "difference" not in table.loc["E5", "Expected"]
    text = as_sections(table.reset_index())
    assert text.count("\n### E") == len(table) and text.count("```sh\nmake cell") == 5
    assert "- **In doubt if**: the mean AUROC of the two differs by more than 0.001\n" in text


def test_a_recorded_cell_gives_result_tolerance_and_time(read: Results) -> None:
    record = json.loads((read.recorded / CELL / "record.json").read_text())["timing"]
    minutes = sum(record[f"{part}_seconds"] for part in ("setup", "compile", "train", "evaluate")) / 60
    ours, absent = (experiment(name, read) for name in ("E5", "E6"))
    assert re.search(r"macro AUROC 0\.\d{3} ± 0\.\d{3}", ours["Expected"])
    assert "one recorded seed: 1.96 clustered standard errors" in ours["Expected"]
    assert ours["Machine time"].startswith(f"{minutes:.0f} min on 2 cores")
    assert absent["Machine time"] == "not run" and "no result yet" in absent["Expected"]


def test_the_tolerance_is_that_of_the_seeds_and_refused_evidence_is_no_result(read: Results) -> None:
    another(read.recorded, 1)
    another(read.recorded, 2)
    assert "spread of 3 recorded seeds" in experiment("E5", read)["Expected"]
    for log in read.recorded.glob("*/*/*/*/train.log"):
        log.write_text(log.read_text() + "more\n")
    assert experiment("E5", read)["Machine time"] == "not run"


def exists(proof: str) -> bool:
    """Whether a target of make or a command of ours exists."""
    program, *words = proof.split()
    if program == "make":
        return re.search(rf"^{re.escape(words[0])}:", (ROOT / "Makefile").read_text(), flags=re.M) is not None
    flags = [word for word in words if word.startswith("--")]
    shown = cxrbench(*(word for word in words if word not in flags), "--help")
    return shown.returncode == 0 and all(flag in shown.stdout for flag in flags)


def test_badges_and_claims_come_before_set_up() -> None:
    text = (ROOT / "ARTIFACT.md").read_text(encoding="utf-8")
    places = [text.index(mark) for mark in ("**Badges", "begin main", "\n## ", "begin exp")]
    assert places == sorted(places) and text.startswith("# Artifact\n")
    assert text.split("\n## ")[1].startswith("Set-up") and len(text.split()) <= 1800


def test_main_claims_have_a_bound_that_can_fail(read: Results) -> None:
    table = main_claims(read).set_index("")
    assert list(table.index) == ["O18", "O21", "O22", "O23"]
    assert table["Trained anew by"].to_dict() == {"O18": "-", "O21": "-", "O22": "E10", "O23": "E9"}
    assert set(table["Command"]) == {"`make paper-from-evidence`, then `cxrbench claims --why`"}
    assert table["Expected"].str.contains(r"below 0\.01|± 0\.005").all(), "none holds whatever is found"
    assert (table["Refuted if"] != "").all()
    assert set(table["Our build"]) == {"not testable here"} and table["Time"].str.endswith(" s").all()


@pytest.mark.parametrize("text", ["", "<!-- begin a -->\n", "<!-- begin a -->\n<!-- end a -->\n" * 2])
def test_a_lost_or_doubled_marker_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "FILE").write_text(text)
    with pytest.raises(UserError, match="FILE has not one pair of markers <!-- begin a -->"):
        renew(tmp_path / "FILE", {"a": "x"})


def test_bars_and_lines_in_a_text_do_not_break_a_table() -> None:
    assert as_markdown(pd.DataFrame({"A": ["x|y\nz"]})) == "\n| A |\n| --- |\n| x\\|y z |\n\n"
