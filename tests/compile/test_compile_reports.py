"""What others report, and how often the rules agree with it: against counts made by hand."""

import json
from pathlib import Path

import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, must_work
from cxrbench.compile.audit import read_audit, row
from cxrbench.compile.reports import ANY, Outcome, Reported, confusion, read_reported, scored
from cxrbench.compile.rules import RULES, Facts, Setting

VERSIONS = {"torch": "2", "torch_xla": "2", "timm": "1"}
LARGE = Facts(large_kernels=1, large_kernel_input_gradients=1, activation_mib_per_image=1.0)  # R3
PLAIN = Facts(activation_mib_per_image=1.0)
POOLED = Facts(select_and_scatters=1, activation_mib_per_image=1.0)  # R13: wrong results
COUNTS = ("flagged_failed", "flagged_compiled", "not_flagged_failed", "not_flagged_compiled")
ENDS = [(LARGE, True), (LARGE, True), (LARGE, False), (PLAIN, True), (POOLED, False), (POOLED, False)]


def outcomes(ends) -> list[Outcome]:
    return [Outcome("a", Setting(64, 1, "bf16"), "step", failed, facts) for facts, failed in ends]


def counted(rows: list[dict], rule: str) -> list[int]:
    (found,) = (row for row in rows if row["rule"] == rule)
    return [found[name] for name in COUNTS]


def test_a_confusion_is_as_counted_by_hand() -> None:
    rows = confusion(outcomes([*ENDS, (Facts(problem="not captured"), True)]))
    assert [row["rule"] for row in rows] == [*(rule.name for rule in RULES), ANY]
    assert counted(rows, "R3") == counted(rows, ANY) == [2, 1, 1, 2]
    assert counted(rows, "R13") == [0, 2, 3, 1]
    assert counted(rows, "R12") == [0, 0, 3, 3]
    assert {row["rule"]: row["predicts"] for row in rows}["R13"] == "wrong results"


@settings(deadline=None)
@given(st.lists(st.sampled_from(ENDS)), st.randoms())
def test_every_outcome_is_counted_once_in_any_order(ends, random) -> None:
    rows, shuffled = confusion(outcomes(ends)), [*ends]
    random.shuffle(shuffled)
    assert confusion(outcomes(shuffled)) == rows
    assert {sum(row[name] for name in COUNTS) for row in rows} == {len(ends)}
    assert {row["flagged_failed"] + row["not_flagged_failed"] for row in rows} == {sum(f for _, f in ends)}


def reported(tmp_path: Path, *lines: str) -> pd.DataFrame:
    path = tmp_path / "reported.csv"
    path.write_text("\n".join([",".join(Reported.columns()), *lines]) + "\n")
    return read_reported(path)


def test_a_report_is_held_against_its_part_at_the_nearest_setting(tmp_path: Path) -> None:
    settings = [Setting(64, 32), Setting(224, 1), Setting(224, 64, "bf16")]
    facts = [Facts(part, parameters=number) for number, part in enumerate(("forward", "step"))]
    audit = pd.DataFrame([row("net", setting, each, VERSIONS) for setting in settings for each in facts])
    some = reported(
        tmp_path,
        "net,neuron,forward,works,trn2,,,,,,x.com,read,w",
        "net,neuron,training,fails,trn1,224,50,,,,y.com,read,w",
        "net,neuron,training,works,trn1,64,32,fp32,,,z.com,read,w",
        "net,cuda,training,works,,,,,,,x.com,read,w",
        "another,neuron,training,works,,,,,,,x.com,read,w",
    )
    unstated, other, same = scored(some, audit)
    assert unstated.outcome.part == "forward" and unstated.outcome.facts == facts[0]
    assert unstated.outcome.setting == settings[2], "224 px, and 64 is nearer to 32 than 1"
    assert unstated.differs == "not stated: pixels, batch, precision"
    assert (other.outcome.setting, other.outcome.failed) == (settings[2], True)
    assert other.differs == "batch 50, captured with 64; not stated: precision"
    assert (same.outcome.setting, same.differs, same.outcome.part) == (settings[0], "", "step")
    assert list(scored(some, audit.iloc[:0])) == []


def test_the_command_prints_each_rule_with_its_record_and_captures_nothing() -> None:
    run = must_work("audit", "--rules")
    for text in ("predicts wrong results", "R9  retired", "NCC_ILIN902: no rule", "not flagged, compiled"):
        assert text in run.stdout
    assert max(map(len, run.stdout.splitlines())) <= 100
    found = json.loads(must_work("audit", "--rules", "--json").stdout)
    ours = [report for report in found["reports"] if report["network"] == "swin_tiny_patch4_window7_224"]
    assert {(report["batch"], report["outcome"]) for report in ours} == {(2, "failed"), (1, "compiled")}
    assert {report["part"] for report in ours} == {"forward"}
    total = {sum(row[name] for name in COUNTS) for row in found["confusion"]}
    assert total == {len(found["reports"])} and min(total) > 15


def test_all_reports_about_networks_of_timm_are_recorded() -> None:
    """Those that describe a network ("a U-Net") cannot be captured."""
    table = read_reported(ROOT / "data/reported.csv")
    named = table[~table["architecture"].str.startswith("a ") & (table["platform"] == "neuron")]
    assert set(table["platform"]) == {"neuron", "cuda"}
    assert len(list(scored(table, read_audit(ROOT / "data/recorded")))) == len(named)


def test_a_sentence_about_larger_networks_is_one_report_of_the_network_that_it_names() -> None:
    table = read_reported(ROOT / "data/reported.csv")
    preprint = table[table["source"].str.contains("medRxiv")].set_index("architecture")["outcome"]
    assert preprint.to_dict() == {"convnext_pico": "works", "convnext_tiny": "fails"} and len(preprint) == 2
