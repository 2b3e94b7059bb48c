"""What others report, and how often the audit's flags agree with it: against counts made by hand."""

import json
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, must_work
from cxrbench.neuron.audit import audit_row, read_audit
from cxrbench.neuron.reports import Reported, Score, read_reported, score
from cxrbench.neuron.rules import AUDITED_PARTS, Facts, Setting

VERSIONS = {"torch": "2", "torch_xla": "2", "timm": "1"}
GRAPHS = {
    "large": Facts(large_kernels=1, large_kernel_input_gradients=1, activation_mib_per_image=1.0),  # R3
    "plain": Facts(activation_mib_per_image=1.0),
    "pooled": Facts(select_and_scatters=1, activation_mib_per_image=1.0),  # R13: wrong results
    "broken": Facts(problem="not captured"),
}
AUDIT = pd.DataFrame(
    [
        audit_row(name, Setting(64, 1), Facts(**vars(facts) | {"part": part}), VERSIONS)
        for name, facts in GRAPHS.items()
        for part in AUDITED_PARTS
    ]
)
ENDS = [("large", "fails"), ("large", "fails"), ("large", "works"), ("plain", "fails")]
ENDS += [("pooled", "works"), ("pooled", "works")]


def of(ends: list[tuple[str, str]], part: str = "training") -> pd.DataFrame:
    table = pd.DataFrame(ends, columns=["architecture", "outcome"])
    return table.assign(platform="neuron", part=part, pixels=None, batch=None, precision=None)


def test_a_score_is_as_counted_by_hand() -> None:
    ends = [*ENDS, ("broken", "fails"), ("another", "works")]
    assert score(of(ends), AUDIT) == Score(2, 1, 1, 2)
    assert score(of(ends).assign(platform="cuda"), AUDIT) == Score()
    assert score(of(ends), AUDIT.iloc[:0]) == Score()


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.sampled_from(ENDS)), st.randoms())
def test_every_report_is_counted_once_in_any_order(ends, random) -> None:
    counts, shuffled = score(of(ends), AUDIT), [*ends]
    random.shuffle(shuffled)
    assert score(of(shuffled), AUDIT) == counts
    assert sum(counts) == len(ends)
    assert counts.flagged_failed + counts.not_flagged_failed == sum(end == "fails" for _, end in ends)


def reported(tmp_path: Path, *lines: str) -> pd.DataFrame:
    path = tmp_path / "reported.csv"
    path.write_text("\n".join([",".join(Reported.columns()), *lines]) + "\n")
    return read_reported(path)


def test_a_report_is_held_against_its_part_at_the_nearest_setting(tmp_path: Path) -> None:
    """Only the step at 224 px and batch 64 is flagged: reports are counted by whether they meet it."""
    settings = [Setting(64, 32), Setting(224, 1), Setting(224, 64, "bf16")]
    audit = pd.DataFrame(
        [audit_row("net", of, Facts(part), VERSIONS) for of in settings for part in AUDITED_PARTS]
    )
    rows = (audit["batch"] == 64) & (audit["part"] == "step")
    audit.loc[rows, "large_kernel_input_gradients"] = 1
    reports = reported(
        tmp_path,
        "net,neuron,forward,works,trn2,,,,,,x.com,read,w",  # forward alone
        "net,neuron,training,fails,trn1,224,50,,,,y.com,read,w",  # 50 is nearer to 64 than to 1
        "net,neuron,training,works,trn1,64,32,fp32,,,z.com,read,w",
        "net,neuron,training,fails,trn1,,,,,,v.com,read,w",  # 224 px where none is stated
        "net,cuda,training,works,,,,,,,x.com,read,w",
        "another,neuron,training,works,,,,,,,x.com,read,w",
    )
    assert score(reports, audit) == Score(2, 0, 0, 2)


def test_the_command_prints_each_rule_and_the_score_and_captures_nothing() -> None:
    run = must_work("audit", "--rules")
    for text in ("predicts wrong results", "R9  retired", "NCC_ILIN902: no rule"):
        assert text in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 100
    assert "no predictive value: of 8 reports" in " ".join(run.stderr.split())
    printed = json.loads(must_work("audit", "--rules", "--json").stdout)
    assert printed["score"] == score(read_reported(), read_audit(ROOT / "data/recorded"))._asdict()


def test_all_reports_about_networks_of_timm_are_recorded() -> None:
    """Those that describe a network ("a U-Net") cannot be captured."""
    table = read_reported(ROOT / "data/reported.csv")
    named = table[~table["architecture"].str.startswith("a ") & (table["platform"] == "neuron")]
    assert set(table["platform"]) == {"neuron", "cuda"}
    assert sum(score(table, read_audit(ROOT / "data/recorded"))) == len(named) > 15


def test_a_sentence_about_larger_networks_is_one_report_of_the_network_that_it_names() -> None:
    table = read_reported(ROOT / "data/reported.csv")
    preprint = table[table["source"].str.contains("medRxiv")].set_index("architecture")["outcome"]
    assert preprint.to_dict() == {"convnext_pico": "works", "convnext_tiny": "fails"} and len(preprint) == 2
