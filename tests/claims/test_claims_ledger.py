"""Reading claims and computing verdicts: on small files, on the shipped one, against known answers."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml

from conftest import cxrbench
from cxrbench.claims.file import read_claims
from cxrbench.claims.inputs import Context, PriceOf, read_context
from cxrbench.claims.ledger import AGAINST, LEDGER_COLUMNS, VERDICTS, check_claims, drifted, findings
from cxrbench.cost.prices import COLUMNS, read_prices
from cxrbench.cost.ratios import PUBLISHED
from cxrbench.paper import ledger as printed
from cxrbench.study.config import read_study
from cxrbench.study.errors import UserError

ROOT = Path(__file__).parents[2]
CLAIMS, PRICES = ROOT / "data" / "claims.yaml", ROOT / "data" / "prices.csv"
KNOWN = Path(__file__).parent / "known_answers.csv"
SOURCE = {"author": "A", "title": "T", "where": "W"}


@pytest.fixture(scope="module")
def prices():
    return read_prices(PRICES)


@pytest.fixture(scope="module")
def ledger(prices):
    """The shipped claims without any evidence."""
    return check_claims(read_claims(CLAIMS), Context(prices)).set_index("id")


def claim(**changes):
    """A claim that adds up, with some keys changed; none removes one."""
    entry = {
        "id": "T1", "source": "text", "where": "p. 1", "says": "Two and two are four.",
        "inputs": {"a": 2, "b": 2}, "computation": "a + b", "stated": 4, "tolerance": 0,
    } | changes  # fmt: skip
    return {key: value for key, value in entry.items() if value is not None}


@pytest.fixture
def write(tmp_path):
    def write(*claims, **more):
        path = tmp_path / "claims.yaml"
        document = {"sources": {"text": SOURCE, "ours": SOURCE}, **more, "claims": list(claims)}
        path.write_text(yaml.safe_dump(document, sort_keys=False))
        return path

    return write


@pytest.fixture
def verdict(write, prices):
    def verdict(context=None, **changes):
        return check_claims(read_claims(write(claim(**changes))), context or Context(prices)).iloc[0]

    return verdict


# ------------------------------------------------------------------ verdicts


def test_a_texts_own_arithmetic_adds_up_and_is_confirmed_only_by_something_outside_it(verdict):
    row = verdict()
    assert (row["verdict"], row["basis"]) == ("adds up", "own arithmetic")
    assert row["computed_low"] == row["computed_high"] == 4
    assert "a + b = 4" in row["why"] and row["inputs"] == "a = 2; b = 2"
    row = verdict(inputs={"a": 2, "b": {"value": 2, "from": "a table"}})
    assert (row["verdict"], row["basis"]) == ("confirmed", "another source")
    row = verdict(inputs={"a": {"value": 4, "from": "a table"}}, computation="a")
    assert (row["verdict"], row["basis"]) == ("confirmed", "a document"), "compared, nothing computed"


def test_its_own_numbers_against_it_are_inconsistent_others_contradict_it(verdict):
    assert verdict(stated=5)["verdict"] == "inconsistent"
    other = {"a": 2, "b": {"value": 2, "from": "a table"}}
    assert verdict(stated=5, inputs=other)["verdict"] == "contradicted"


@pytest.mark.parametrize(
    ("stated", "tolerance", "expected"),
    [
        (4.1, 0.1, "adds up"), (4.1, 0.09, "inconsistent"), (5, "20%", "adds up"),
        (5, "19%", "inconsistent"), ([3, 5], 0, "adds up"), ([5, 6], 0, "inconsistent"),
        ({"above": 4}, 0, "adds up"), ({"above": 4.5}, 0, "inconsistent"),
        ({"below": 4}, 0, "adds up"), ({"below": 3}, 0, "inconsistent"),
    ],
)  # fmt: skip
def test_what_counts_as_agreement(verdict, stated, tolerance, expected):
    assert verdict(stated=stated, tolerance=tolerance)["verdict"] == expected


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ([4, 6], "adds up"), ([4, 7], "inconsistent"), (5, "adds up"), (7, "inconsistent"),
        ({"above": 5}, "inconsistent"),
    ],
)  # fmt: skip
def test_a_computed_range_must_meet_both_ends(verdict, stated, expected):
    assert verdict(inputs={"a": [2, 4], "b": 2}, stated=stated)["verdict"] == expected


P4D = {
    "price": {"instance": "p4d.24xlarge", "region": "us-east-1", "basis": "on_demand"},
    "as_of": "2025-04-28",
}


def test_true_at_its_dates_price_and_not_today_is_stale(verdict):
    row = verdict(inputs={"p4d": P4D}, computation="p4d", stated=32, tolerance=1)
    assert row["verdict"] == "stale"
    assert row["computed_low"] == 32.7726 and row["now_low"] == 21.957642
    assert "32.7726 then, 21.9576 now" in row["why"]
    ended = {"a": {"value": 1, "now": 0, "from": "release notes"}}
    assert verdict(inputs=ended, computation="a", stated=1)["verdict"] == "stale"


def test_our_own_claim_is_not_stale_it_follows_or_does_not(verdict):
    ours = {"source": "ours", "inputs": {"p4d": P4D}, "computation": "p4d", "tolerance": 1}
    assert verdict(**ours, stated=32)["verdict"] == "follows"
    assert verdict(**ours, stated=22)["verdict"] == "does not follow"


def test_what_is_missing_is_not_testable_here(verdict):
    row = verdict(missing="a machine", computation=None, stated=None, tolerance=None, inputs=None)
    assert (row["verdict"], row["why"]) == ("not testable here", "a machine")
    trn2 = {"price": {"instance": "trn2.48xlarge", "region": "us-east-2", "basis": "on_demand"}}
    row = verdict(inputs={"p": trn2}, computation="p")
    assert (
        row["verdict"] == "not testable here"
        and "trn2.48xlarge in us-east-2 with basis 'on_demand'" in row["why"]
    )


def test_a_reviewed_verdict_is_compared_and_never_shown(write, prices):
    entries = claim(verdict="contradicted"), claim(id="T2", verdict="adds up"), claim(id="T3")
    ledger = check_claims(read_claims(write(*entries)), Context(prices))
    assert set(ledger["verdict"]) == {"adds up"}
    assert drifted(ledger)["id"].tolist() == ["T1"]


def test_a_claim_whose_test_assumes_something_is_conditional_and_says_so(verdict):
    row = verdict(stated=5, assumes="both are counted once")
    assert (row["verdict"], row["if_assumed"]) == ("conditional", "inconsistent")
    assert row["why"].startswith("if both are counted once, inconsistent: a + b = 4")
    assert verdict(assumes="both are counted once")["if_assumed"] == "adds up"
    assert verdict()["if_assumed"] == ""


def test_entries_that_rest_on_one_fact_are_one_finding(write, prices):
    wrong = {"stated": 5, "rests_on": "slip"}
    entries = [
        claim(**wrong), claim(id="T2", **wrong), claim(id="T3", stated=5, assumes="so"),
        claim(id="T4", rests_on="slip"), claim(id="T5", source="ours", **wrong),
    ]  # fmt: skip
    path = write(*entries, facts={"slip": "A digit was lost."})
    ledger = check_claims(read_claims(path), Context(prices))
    assert findings(ledger) == 2, "the slip once, and the assumption"
    assert set(ledger.loc[ledger["rests_on"] == "slip", "fact"]) == {"A digit was lost."}


def test_what_is_true_or_not_is_shown_in_words(verdict, tmp_path):
    no = {"inputs": {"a": {"value": False, "from": "a manual"}}, "computation": "a"}
    row = verdict(**no, stated=True)
    assert (row["verdict"], row["stated"], row["yes_no"]) == ("contradicted", "yes", True)
    assert row["why"] == "a = no; stated: yes" and row["inputs"] == "a = no (a manual)"
    pd.DataFrame([row]).to_csv(tmp_path / "claims.csv", index=False)
    read = pd.read_csv(tmp_path / "claims.csv", keep_default_na=False)
    (shown,) = read.itertuples()
    assert [printed.stated(shown), printed.computed(shown)] == ["yes", "no"]
    printed.write_ledger(read, tmp_path)
    assert "& yes & no & contradicted" in (tmp_path / "ledger.tex").read_text()
    ended = {"a": {"value": True, "now": False, "from": "a notice"}}
    row = verdict(inputs=ended, computation="a", stated=True)
    assert row["verdict"] == "stale" and "a = yes then, no now" in row["why"]


# ------------------------------------------------------------------ our evidence


@pytest.fixture
def context(prices):
    runs = pd.DataFrame(
        {
            "cell": ["cpu/seed0", "cpu/seed1", "cuda/seed0"], "platform": ["cpu", "cpu", "cuda"],
            "seed": [0, 1, 0], "value": [0.70, 0.74, 0.73], "usd_total": [1.0, 3.0, 9.0],
            "status": ["ok", "ok", "compile_failed"],
        }
    ).assign(dataset="nih", architecture="resnet18")  # fmt: skip
    metrics = runs.assign(split="test", label="macro", metric="auroc").drop(columns=["usd_total", "status"])
    costs = runs.assign(kind="proxy", instance="x", origin="recorded", headline=True)
    return Context(prices, metrics, costs.drop(columns="value"))


METRIC = {"dataset": "nih", "architecture": "resnet18", "split": "test", "label": "macro", "metric": "auroc"}
METRIC_OF_CPU = METRIC | {"platform": "cpu"}


def test_a_metric_is_the_mean_over_seeds_unless_said_otherwise(verdict, context):
    def row(**more):
        ours = {"source": "ours", "computation": "a", "stated": 0.72, "tolerance": 1e-9}
        return verdict(context, **ours, inputs={"a": {"metric": METRIC_OF_CPU} | more})

    assert row()["verdict"] == "follows"
    assert row(aggregate="max")["computed_low"] == 0.74
    assert row()["inputs"] == "a = 0.72 (mean of 2, nih/resnet18/cpu/seed*)"


def test_costs_counts_and_shares_of_cells(verdict, context):
    def value(entry):
        return verdict(context, source="ours", inputs={"a": entry}, computation="a")["computed_low"]

    cpu = {"dataset": "nih", "platform": "cpu"}
    assert value({"cost": cpu}) == 2
    assert value({"cost": cpu | {"seed": 1}, "column": "usd_total"}) == 3
    assert value({"cells": {"platform": ["neuron", "torchneuron"]}}) == 0
    assert value({"cells": {}}) == 3
    again = context.cost.iloc[[0]].assign(usd_total=50.0, origin="fresh", headline=False)
    context = replace(context, cost=pd.concat([context.cost, again]))
    assert value({"cost": cpu}) == 2  # a run on another machine joins no mean
    assert value({"cells": {}}) == 3
    assert value({"share": {"platform": "cuda"}, "of": ["compile_failed", "load_failed"]}) == 1


def test_a_cell_that_was_not_run_is_named(verdict, context, prices):
    inputs = {"a": {"metric": METRIC | {"platform": "neuron"}}}
    absent = (context, "not run yet, no row in metrics.csv"), (Context(prices), "has not been made yet")
    for there, why in absent:
        row = verdict(there, source="ours", inputs=inputs, computation="a")
        assert row["verdict"] == "not testable here"
        assert "nih/resnet18/neuron/seed*" in row["why"] and why in row["why"]
        assert pd.isna(row["computed_low"])


def test_a_cell_that_the_study_does_not_have_is_told_from_one_that_was_not_run(verdict, context):
    cells = {"dataset": "nih", "architecture": "resnet18", "platform": ["cpu", "neuron"], "seed": 0}
    there = replace(context, cells=pd.DataFrame(cells))

    def why(**changes):
        entry = {"metric": METRIC | {"platform": "cpu"} | changes}
        row = verdict(there, source="ours", inputs={"a": entry}, computation="a")
        assert row["verdict"] == "not testable here"
        return row["why"]

    assert "the study has no such cell; did you mean 'resnet18'?" in why(architecture="resnet81")
    assert "nih/resnet18/cuda-/seed*: the study has no such cell" in why(platform="cuda-")
    assert "not run yet" in why(platform="neuron")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": None}, "experiment E1: command: is missing"),
        ({"komand": "x"}, "unknown key 'komand'; did you mean 'command'?"),
        ({"human_minutes": -1}, "human_minutes: '-1' must be 0 or more"),
        ({"cell": "nih128-64px"}, "experiment E1: cell: 'nih128-64px' is not a cell"),
        ({"measured": {"seconds": 3}}, "disk_mib: is missing"),
    ],
)
def test_a_bad_experiment_is_named_with_file_line_and_column(write, changes, message):
    entry = {"title": "T", "command": "make x", "human_minutes": 2, "expect": "x"} | changes
    kept = {key: value for key, value in entry.items() if value is not None}
    with pytest.raises(UserError, match=r"claims\.yaml:\d+:\d+: .*" + re.escape(message)):
        read_claims(write(claim(), experiments={"E1": kept}))


@pytest.fixture
def compared(context):
    """The context with a function's parity.csv: one pair of platforms with this 90 % interval."""

    def compared(low, high, verdict="equivalent", reason=None, margin=0.01):
        row = {
            "dataset": "nih", "architecture": "resnet18", "kind": "platforms", "platform_a": "cpu",
            "platform_b": "cuda", "label": "macro", "metric": "auroc", "difference": 0.002, "ci90_low": low,
            "ci90_high": high, "margin": margin, "verdict": verdict, "reason": reason,
        }  # fmt: skip
        floor = row | {"kind": "noise floor", "platform_b": "cpu", "ci90_low": -1, "ci90_high": 1}
        return replace(context, parity=pd.DataFrame([floor, row]))

    return compared


PARITY = {
    "dataset": "nih", "architecture": "resnet18", "platforms": ["cuda", "cpu"], "label": "macro",
    "metric": "auroc",
}  # fmt: skip
EQUAL = {"inputs": {"d": {"parity": PARITY}}, "computation": "d", "stated": {"below": 0.01}}


def test_equal_platforms_are_confirmed_by_their_interval_never_by_a_difference(verdict, compared):
    row = verdict(compared(-0.003, 0.007), **EQUAL)
    assert row["verdict"] == "confirmed" and (row["computed_low"], row["computed_high"]) == (0, 0.007)
    assert "0 to 0.007 (size of the difference, 90 % interval, nih/resnet18/cuda+cpu/seed*)" in row["inputs"]
    assert verdict(compared(0.011, 0.03, "different"), **EQUAL)["verdict"] == "contradicted"
    assert verdict(compared(-0.03, -0.011, "different"), **EQUAL)["verdict"] == "contradicted"
    row = verdict(compared(-0.012, 0.016, "inconclusive", "wide"), **EQUAL)  # the difference itself is small
    assert row["verdict"] == "not testable here" and pd.isna(row["computed_low"])
    assert "neither inside the margin of 0.01 nor outside it" in row["why"]
    row = verdict(compared(float("nan"), float("nan"), "inconclusive", "cuda has one seed"), **EQUAL)
    assert (row["verdict"], row["why"][-31:]) == ("not testable here", "inconclusive: cuda has one seed")


def test_platforms_that_were_not_compared_are_named(verdict, context, compared):
    why = verdict(context, **EQUAL)["why"]
    assert why == "nih/resnet18/cuda+cpu/seed*: parity.csv has not been made yet"
    neuron = {"inputs": {"d": {"parity": PARITY | {"platforms": ["cuda", "neuron"]}}}}
    assert "not run yet, no row in parity.csv" in verdict(compared(0, 0), **EQUAL | neuron)["why"]
    cells = pd.DataFrame({"dataset": ["nih"], "architecture": ["resnet18"], "platform": ["cuda"]})
    there = replace(compared(0, 0), cells=cells)
    assert "nih/resnet18/neuron/seed*: the study has no such cell" in verdict(there, **EQUAL | neuron)["why"]
    with pytest.raises(UserError, match=r"claim T1: input 'd': parity: platforms \['cpu'\]: name the two"):
        verdict(context, **EQUAL | {"inputs": {"d": {"parity": PARITY | {"platforms": ["cpu"]}}}})


def test_result_tables_are_found_where_they_lie(tmp_path, context, verdict):
    patient = context.metrics.assign(ci_method="delong-patient")
    image = context.metrics.assign(ci_method="delong-image")
    pd.concat([patient, image]).to_csv(tmp_path / "metrics.csv", index=False)
    found = read_context(PRICES, tmp_path)
    pd.testing.assert_frame_equal(found.metrics, patient)
    assert found.cost is None and found.parity is None
    cpu = {"a": {"metric": METRIC_OF_CPU}}
    row = verdict(found, inputs=cpu, computation="a", stated=0.72)
    assert "mean of 2, nih/resnet18" in row["inputs"], "two seeds, not two seeds times two intervals"
    (tmp_path / "cost.csv").write_bytes(b"")
    with pytest.raises(UserError, match=r"cost\.csv: not a readable table"):
        read_context(PRICES, tmp_path)


# ------------------------------------------------------------------ bad input


def where(path, text):
    """line:column of ``text`` in a file, both from one."""
    lines = path.read_text().splitlines()
    line = next(number for number, one in enumerate(lines) if text in one)
    return f"{line + 1}:{lines[line].index(text) + 1}"


@pytest.mark.parametrize(
    ("changes", "at", "message"),
    [
        ({"computation": "a + c"}, "c\n", "claim T1: computation 'a + c': unknown name 'c'"),
        ({"computation": "a.b"}, "a.b", "Attribute is not allowed"),
        ({"computation": "a +"}, None, "not a formula"),
        ({"source": "txt"}, "txt", "unknown source 'txt'; did you mean 'text'"),
        ({"says": ""}, None, "says: is empty"),
        ({"computation": None}, "id: T1", "either a 'computation' or what is 'missing'"),
        ({"missing": "all"}, "id: T1", "either a 'computation' or what is 'missing'"),
        ({"stated": None}, "id: T1", "'stated' is missing"),
        ({"stated": "vier"}, "vier", "neither a number nor a range"),
        ({"stated": {"over": 1}}, None, "{above: x}"),
        ({"tolerance": "-5%"}, None, "tolerance '-5%'"),
        ({"stated": {"above": 1}, "tolerance": "5%"}, None, "needs a stated number"),
        ({"computatoin": "a"}, None, "unknown key 'computatoin'; did you mean 'computation'"),
        ({"inputs": {"a": "zwei"}}, "zwei", "'zwei' is neither a number"),
        ({"inputs": {"a": {"value": 2}}}, "value: 2", "claim T1: input 'a': from: is missing"),
        ({"inputs": {"a": {"worth": 2}}}, None, "give exactly one of value, price"),
        ({"inputs": {"a": {"value": 2, "form": "x"}}}, None, "unknown key 'form'; did you mean 'from'"),
        ({"inputs": {"a b": 2}}, None, "not a name that a formula can use"),
        ({"inputs": {"a": float("inf")}}, ".inf", "'inf' is neither a number"),
        ({"stated": float("nan")}, None, "'nan' is neither a number"),
        ({"inputs": {"a": {"share": {}}}}, None, "input 'a': of: is missing"),
        ({"inputs": {"a": {"cost": {"seed": {"x": 1}}}}}, None, "has texts, numbers and lists"),
        ({"inputs": {"a": {"cost": {}, "column": ["x"]}}}, None, "column: '['x']' Input should be"),
        ({"inputs": {"a": {"value": "x", "from": "y"}}}, None, "'x' is neither a number"),
        ({"inputs": {1: 2}}, None, "claim T1: input '1': "),
        ({"rests_on": "weather"}, "weather", "claim T1: unknown rests_on 'weather'"),
        ({"experiment": "E7"}, "E7", "claim T1: unknown experiment 'E7'"),
        ({"inputs": {"a": P4D | {"as_of": "spring"}, "b": 1}}, None, "'spring' is not a date such as"),
        ({"source": "ours", "inputs": {"a": {"price": P4D["price"]}, "b": 1}}, "price:", "needs its date"),
    ],
)  # fmt: skip
def test_a_bad_claim_is_named_with_file_line_and_column(write, changes, at, message):
    path = write(claim(**changes))
    with pytest.raises(UserError, match=re.escape(message)) as error:
        read_claims(path)
    assert re.match(rf"{re.escape(str(path))}:\d+:\d+: ", str(error.value))
    if at is not None and not at.endswith("\n"):
        assert str(error.value).startswith(f"{path}:{where(path, at)}: ")


def test_the_column_is_that_of_the_wrong_name_in_the_formula(write):
    path = write(claim(computation="a + wrong"))
    with pytest.raises(UserError, match=f":{where(path, 'wrong')}: claim T1"):
        read_claims(path)


MISSPELT = {"price": {"instance": "g5.xlage", "region": "us-east-1", "basis": "spot"}}
ELSEWHERE = {"price": {"instance": "g5.xlarge", "region": "us-east-9", "basis": "spot"}}
MEDIAN = {"metric": METRIC_OF_CPU, "aggregate": "median"}
NO_BASIS = {"price": {"instance": "g5.xlarge", "region": "us-east-1"}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"computation": "a / (b - 2)"}, "claim T1: computation 'a / (b - 2)' fails: division by zero"),
        ({"verdict": "sure"}, "unknown verdict 'sure'"),
        ({"inputs": {"a": MISSPELT, "b": 1}}, "input 'a': no price with instance 'g5.xlage'"),
        ({"inputs": {"a": NO_BASIS, "b": 1}}, "input 'a': basis: is missing"),
        ({"inputs": {"a": {"metric": {"data": "nih"}}, "b": 1}}, "unknown key 'data'"),
        ({"inputs": {"a": {"cost": {}, "column": "usd"}, "b": 1}}, "no column 'usd'"),
        ({"inputs": {"a": MEDIAN, "b": 1}}, "aggregate: unknown value 'median'"),
        ({"inputs": {"a": {"cost": {}, "column": "kind"}, "b": 1}}, "'kind' of cost.csv has texts"),
        ({"inputs": {"a": {"metric": {"dataset": "nih"}}, "b": 1}}, "key 'architecture' is missing"),
        ({"inputs": {"a": {"metric": METRIC_OF_CPU, "column": "ci_lo"}, "b": 1}}, "no column 'ci_lo'"),
        ({"inputs": {"a": ELSEWHERE, "b": 1}}, "region: unknown value 'us-east-9'; did you mean 'us-east"),
    ],
)  # fmt: skip
def test_a_claim_that_fails_when_computed_stops_the_ledger(verdict, context, changes, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        verdict(context, **changes)
    assert re.search(r"claims\.yaml:\d+:\d+: claim T1", str(error.value))


@pytest.mark.parametrize(
    ("table", "lacks", "entry"),
    [
        ("metrics", "platform", {"metric": METRIC_OF_CPU}),
        ("metrics", "value", {"metric": METRIC_OF_CPU}),
        ("cost", "status", {"share": {"platform": "cpu"}, "of": ["ok"]}),
        ("cost", "cell", {"cells": {}}),
        ("cost", "dataset", {"cost": {"dataset": "nih"}}),
    ],
)
def test_a_table_without_a_column_that_a_claim_needs_is_named_at_the_input(
    write, context, table, lacks, entry
):
    there = replace(context, **{table: getattr(context, table).drop(columns=lacks)})
    path = write(claim(inputs={"b": 1, "a": entry}, computation="a"))
    message = f"claim T1: input 'a': {table}.csv has no column '{lacks}'"
    with pytest.raises(UserError, match=re.escape(message) + ".*delete the table and run again") as error:
        check_claims(read_claims(path), there)
    line = path.read_text().splitlines()[int(str(error.value).split(":")[1]) - 1]
    assert next(iter(entry)) in line, "the place is that of the input"


def test_the_same_id_twice(write):
    with pytest.raises(UserError, match=r"id T1 is taken \(.*claims\.yaml:\d+:\d+\)"):
        read_claims(write(claim(), claim()))


@pytest.mark.parametrize("text", ["", "[1]"])
def test_not_a_claims_file(tmp_path, text):
    path = tmp_path / "claims.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=":1:1: a claims file has the keys"):
        read_claims(path)


# ------------------------------------------------------------------ the shipped claims


def test_every_shipped_claim_has_a_computed_verdict_and_none_drifted(ledger):
    assert list(ledger.reset_index().columns) == list(LEDGER_COLUMNS)
    assert set(ledger["verdict"]) <= set(VERDICTS)
    assert drifted(ledger.reset_index())["id"].tolist() == []
    assert len(ledger) >= 70
    assert (ledger["why"] != "").all()


def test_the_margin_that_claims_of_equality_state_is_the_studys():
    margins = read_study(ROOT / "config/config.yaml").margins
    shipped = {entry.id: entry for entry in read_claims(CLAIMS).claims if "difference" in entry.inputs}
    of = {"P09": ("f1_macro", margins.f1), "O10": ("auroc", margins.auroc_macro)}  # the preprint's is F1
    assert set(shipped) == set(of)
    for name, (metric, margin) in of.items():
        assert shipped[name].inputs["difference"].parity["metric"] == [metric]
        assert shipped[name].check.stated.shown == f"below {margin:g}"


def test_an_undated_source_is_held_against_todays_prices_not_against_a_date_of_ours():
    for claim in read_claims(CLAIMS).claims:
        dated = any(isinstance(given, PriceOf) and given.as_of for given in claim.inputs.values())
        assert claim.source not in ("cloudroute", "cloudexpat") or not dated, claim.id


def checked(prices, cost):
    """The shipped claims against rows of cost.csv of one data set, recorded."""
    rows = pd.DataFrame(cost).assign(dataset="nih128-64px", headline=True)
    return check_claims(read_claims(CLAIMS), Context(prices, cost=rows)).set_index("id")


def test_the_preprints_cost_ratio_is_that_of_usable_models_on_its_instances_only(prices):
    def tested(trainium, gpu, usd=4.0):
        common = {"cell": "c", "architecture": "resnet50", "seed": 0, "kind": "measured", "status": "ok"}
        rows = [
            common | {"platform": "neuron", "instance": trainium, "cost_to_usable": usd},
            common | {"platform": "cuda", "instance": gpu, "cost_to_usable": 1},
        ]
        return checked(prices, rows).loc["P08"]

    assert tested("trn1.2xlarge", "g5.xlarge")["computed_low"] == pytest.approx(4)
    for pair in (("trn2.48xlarge", "g5.xlarge"), ("trn1.2xlarge", "p5.4xlarge")):
        row = tested(*pair)
        assert row["verdict"] == "not testable here" and " on " in row["why"]
    none = tested("trn1.2xlarge", "g5.xlarge", usd=float("nan"))  # as where all attempts failed
    assert none["verdict"] == "not testable here" and "no cost_to_usable" in none["why"]


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (["compile_failed", "load_failed"], "confirmed"),
        (["compile_failed", "out_of_memory"], "confirmed"),
        (["compile_failed", "ok"], "contradicted"),
        (["compile_failed", "diverged"], "contradicted"),
        (["out_of_memory", "timed_out"], "not testable here"),
    ],
)
def test_a_cell_that_crashed_shows_neither_that_it_compiles_nor_that_it_does_not(prices, statuses, verdict):
    common = {"architecture": "convnext_tiny", "platform": "neuron", "kind": "proxy", "origin": "recorded"}
    common |= {"instance": "trn1.2xlarge", "cost_to_usable": 1.0}
    rows = [common | {"cell": str(seed), "status": status} for seed, status in enumerate(statuses)]
    rows.append(rows[0] | {"origin": "fresh"})  # a second run of a cell does not count it twice
    assert checked(prices, rows).loc["P10", "verdict"] == verdict


@pytest.mark.parametrize(
    ("verdict", "under", "names"),
    [
        ("confirmed", "", "H12 K49 S15"),
        ("stale", "", "S10 K12 K23"),
        ("not testable here", "", "P11 K36 C33 K48 H20 S16"),
        ("conditional", "inconsistent", "K31 C10 C11 C12 K47 D01 S05 K50 C38"),
        ("conditional", "adds up", "C25"),
        ("adds up", "", "C06"),
    ],
)
def test_what_a_review_of_the_ledger_corrected_stays_corrected(ledger, verdict, under, names):
    for name in names.split():
        assert (ledger.loc[name, "verdict"], ledger.loc[name, "if_assumed"]) == (verdict, under), name


def test_nothing_is_confirmed_by_the_texts_own_numbers_alone(ledger):
    assert set(ledger.loc[ledger["verdict"] == "confirmed", "basis"]) == {
        "a document", "another source", "prices",
    }  # fmt: skip
    assert set(ledger.loc[ledger["verdict"].isin(["adds up", "inconsistent"]), "basis"]) == {"own arithmetic"}
    assert findings(ledger.reset_index()) < ledger["verdict"].isin(AGAINST).sum()


def test_above_chance_is_judged_by_the_lowest_end_of_the_intervals(prices):
    cell = {"dataset": "nih128-64px", "architecture": "resnet18", "platform": "cpu", "split": "test"}
    rows = [
        cell | {"seed": seed, "label": "macro", "metric": "auroc", "value": 0.6, "ci_low": low}
        for seed, low in enumerate((0.55, 0.49))
    ]
    ledger = check_claims(read_claims(CLAIMS), Context(prices, pd.DataFrame(rows))).set_index("id")
    assert ledger.loc["O09", "verdict"] == "does not follow", "0.6 on average, and 0.49 is no chance excluded"


def test_a_newer_price_warns_with_both_values_and_stops_nothing(tmp_path):
    newer = tmp_path / "prices.csv"
    lines = PRICES.read_text().splitlines()
    row = next(line for line in lines if line.startswith("p4d.24xlarge,us-east-1,on_demand,21.957642"))
    row = row.replace("21.957642", "18").replace("2025-08-04", "2026-10-01")
    newer.write_text("\n".join([*lines, row]) + "\n")
    words = ("claims", "--file", CLAIMS, "--tables", tmp_path, "--out", tmp_path / "claims.csv")
    before, after = (cxrbench(*words, "--prices", prices) for prices in (PRICES, newer))
    assert before.returncode == after.returncode == 0 and "O07" not in before.stderr
    (warning,) = [line for line in after.stderr.splitlines() if line.startswith("O07")]
    assert "2.0842 at the prices that it names, -19.4444 at the newest" in warning
    o07 = pd.read_csv(tmp_path / "claims.csv").set_index("id").loc["O07"]
    assert o07["verdict"] == "follows" and (o07["computed_low"], o07["now_low"]) == pytest.approx(
        (2.0842, -19.4444), rel=1e-4
    )
    assert "O05" not in after.stderr, "a claim about two past days"


def test_our_claims_alone_are_shown_by_their_ids(tmp_path):
    words = ("claims", "--file", CLAIMS, "--prices", PRICES, "--tables", tmp_path)
    shown = cxrbench(*words, "--source", "ours").stdout.splitlines()
    assert [line.split()[0] for line in shown] == [claim.id for claim in read_claims(CLAIMS).ours]
    wrong = cxrbench(*words, "--source", "our")
    assert wrong.returncode == 1 and "did you mean 'ours'?" in wrong.stderr


def test_tolerances_are_half_a_unit_of_what_is_printed_or_say_why():
    text = CLAIMS.read_text().split("\nclaims:")[1]
    for one in text.split("\n  - id: ")[1:]:
        stated = re.search(r"\n    stated: (.*)", one)
        tolerance = re.search(r"\n    tolerance: (.*)", one)
        if stated is None or tolerance is None or tolerance[1] == "0":
            continue
        printed = re.findall(r"\d[\d.]*", stated[1])
        whole = [number for number in printed if "." not in number]
        zeros = max((len(number) - len(number.rstrip("0")) for number in whole), default=0)
        decimals = min(len(number.partition(".")[2]) for number in printed)
        widest = 0.5 * 10.0 ** (zeros if whole else -decimals)
        says = re.search(r"\n    says: (.*)", one)[1]
        told = re.search(r"\n    note: .*Tolerance, ", one) or re.search(
            r"\b(about|up to)\b", says, flags=re.I
        )
        share = tolerance[1].endswith("%")
        assert told or (not share and float(tolerance[1]) <= widest), one.splitlines()[0]


def test_no_claim_about_hardware_that_was_not_run_has_a_number(ledger):
    for name in ("P08", "P09", "P10", "D04", "D06"):
        assert ledger.loc[name, "verdict"] == "not testable here" and pd.isna(
            ledger.loc[name, "computed_low"]
        )


def test_without_todays_prices_nothing_is_stale(prices):
    """Staleness is computed: were prices still those of April 2025, the stale claims would hold."""
    then = prices[(prices["as_of"] <= "2025-04-28") | ~prices["basis"].eq("on_demand")]
    missing = prices[~prices["instance"].isin(then.loc[then["basis"] == "on_demand", "instance"])]
    ledger = check_claims(
        read_claims(CLAIMS), Context(pd.concat([then, missing]).drop_duplicates(list(COLUMNS)))
    )
    stale = ledger[ledger["verdict"] == "stale"]
    assert stale["id"].tolist() == ["K12", "D07", "S10"], "changed documents have nothing to do with prices"


KNOWN_ROWS = list(csv.DictReader(KNOWN.open()))


def expected_of(row):
    """The two ends that a known answer states: one number twice, or a range with two dots."""
    ends = [float(one) for one in row["expected"].split("..")]
    return ends[0], ends[-1]


def test_claims_compute_the_known_answers(ledger):
    compared = 0
    for row in KNOWN_ROWS:
        if row["id"] in ledger.index and pd.notna(ledger.loc[row["id"], "now_low"]):
            found = ledger.loc[row["id"]]
            ends = (found["now_low"], found["now_high"])
            assert ends == pytest.approx(expected_of(row), rel=2e-3), row["id"]
            compared += 1
    assert compared >= 35


def test_the_decision_uses_the_claims_reading_of_price_performance(ledger):
    low, high = ledger.loc["O03", ["computed_low", "computed_high"]]
    ratio = PUBLISHED["transformer"]
    assert ((1 - ratio.high) * 100, (1 - ratio.low) * 100) == pytest.approx((low, high))
