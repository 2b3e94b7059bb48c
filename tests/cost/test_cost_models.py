"""Spot, regimes, break-even, decisions and projections: the arithmetic behind the sentences."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conftest import ROOT
from cxrbench.config import Pricing, read_study
from cxrbench.cost.breakeven import (
    PUBLISHED as RATIOS,
)
from cxrbench.cost.breakeven import (
    Ratio,
    arithmetic,
    break_even_runs,
    decide,
    indifference,
    porting_usd,
    ratio_of_cells,
    repriced_ratio,
)
from cxrbench.cost.cells import cost_table, hours_of
from cxrbench.cost.devices import device, device_of_host
from cxrbench.cost.prices import newest
from cxrbench.cost.projection import (
    PUBLISHED,
    SPREAD,
    Efficiency,
    Measured,
    Work,
    backtest,
    kind_of,
    measured_of,
    project,
    projections,
)
from cxrbench.cost.regimes import Regime, available, rankings, regimes, reprice
from cxrbench.cost.spot import Interruptions, expected_hours, simulated_hours
from cxrbench.errors import UserError
from cxrbench.evidence import Timing
from cxrbench.report.projection import cpu_speeds
from cxrbench.report.spot import Spot, spot_table

money = st.floats(0, 1e9, allow_subnormal=False)


# ------------------------------------------------------------------ spot


@settings(max_examples=15, deadline=None, derandomize=True)  # a statistical test must not fail by chance
@given(
    work=st.floats(0.5, 20),
    rate=st.just(0) | st.floats(0.05, 0.5),
    interval=st.floats(0.5, 4),
    save=st.floats(0, 0.2),
    restart=st.floats(0, 0.5),
    seed=st.integers(0, 99),
)
@example(work=12, rate=0.5, interval=3, save=0.1, restart=0.5, seed=1)
@example(work=12, rate=0.3, interval=1, save=0.2, restart=2, seed=2)
def test_simulation_and_analysis_agree(work, rate, interval, save, restart, seed):
    how = Interruptions(rate, interval, save, restart)
    hours = simulated_hours(work, how, trials=1500, seed=seed)
    standard_error = hours.std() / math.sqrt(len(hours))
    assert abs(hours.mean() - expected_hours(work, how)) <= 5 * standard_error + 1e-9


def test_without_interruptions_only_saving_costs():
    how = Interruptions(rate=0, interval=2, save=0.1, restart=5)
    assert expected_hours(5, how) == pytest.approx(5.2)  # saved after 2 and after 4 hours, not at the end
    assert set(simulated_hours(5, how, trials=3).round(9)) == {5.2}
    assert expected_hours(0, how) == 0


def test_one_stretch_is_the_textbook_expectation():
    assert expected_hours(1, Interruptions(rate=1, interval=9)) == pytest.approx(math.e - 1)
    assert expected_hours(1, Interruptions(rate=1, interval=9, restart=1)) == pytest.approx(
        math.e * (math.e - 1)
    )


def test_never_finishing_is_infinite_and_not_simulated():
    how = Interruptions(rate=100, interval=10)
    assert expected_hours(100, how) == math.inf
    with pytest.raises(UserError, match="save more often"):
        simulated_hours(100, how)


def test_a_cell_on_spot_costs_its_spot_price_and_what_interruptions_add(prices, make_record):
    pricing = Pricing()
    costs = cost_table([make_record()], prices, pricing)
    table = spot_table(costs, prices, pricing, Spot(rates=(0.0, 0.2), interval=0.5, trials=50))
    calm, rough = table[table["run"] == "nih128-64px resnet18 cuda"].to_dict("records")
    at_spot = cost_table([make_record()], prices, Pricing(basis="spot"))["usd_total"].iloc[0]
    assert calm["usd"] == pytest.approx(at_spot) and calm["simulated_hours"] == pytest.approx(2.8)
    assert calm["factor"] == pytest.approx(1)
    work = expected_hours(2.7, Interruptions(0.2, 0.5, restart=0.1))
    assert rough["usd"] == pytest.approx((0.1 + work) * 0.4246) and rough["usd"] > calm["usd"]
    assert rough["factor"] == pytest.approx((0.1 + work) / 2.8)


@pytest.mark.parametrize(
    "wrong", [{"rate": -1}, {"interval": 0}, {"save": -0.1}, {"restart": math.nan}, {"rate": math.inf}]
)
def test_impossible_interruptions(wrong):
    with pytest.raises(UserError, match=f"spot {next(iter(wrong))} is"):
        Interruptions(**({"rate": 0.1, "interval": 1} | wrong))
    with pytest.raises(UserError, match="hours of work"):
        expected_hours(-1, Interruptions(0.1, 1))


# ------------------------------------------------------------------ regimes

INSTANCES = {"neuron": "trn1.2xlarge", "cuda": "g5.xlarge"}


@pytest.fixture
def two_platforms(make_record):
    """The same hours on both platforms: only prices can rank them."""
    return pd.DataFrame([hours_of(make_record(f"nih128-64px/resnet18/{p}/seed0")) for p in INSTANCES])


def test_equal_hours_rank_by_price_and_the_ranking_turns_on_spot(prices, two_platforms):
    table = regimes(two_platforms, prices, INSTANCES, [Regime("on_demand"), Regime("spot")])
    assert table.columns[0] == "regime" and set(table["kind"]) == {"proxy"}
    (sentence,) = rankings(table)
    assert "the ranking turns" in sentence
    assert "cuda (g5.xlarge) < neuron (trn1.2xlarge) under on_demand" in sentence
    assert "neuron (trn1.2xlarge) < cuda (g5.xlarge) under spot" in sentence


def test_a_regime_without_a_price_is_left_out_not_filled_in(prices, two_platforms):
    wanted = [Regime("on_demand"), Regime("on_demand", "2025-05-01"), Regime("reserved_1y")]
    table = regimes(two_platforms, prices, INSTANCES, wanted)
    assert set(table["regime"]) == {"on_demand", "on_demand up to 2025-05-01"}
    assert "the ranking is the same" in rankings(table)[0]
    with pytest.raises(UserError, match="no price in sa-east-1"):
        regimes(two_platforms, prices, INSTANCES, wanted, region="sa-east-1")


def test_a_missing_price_is_not_a_cheap_one(prices, two_platforms):
    pair = {"neuron": "trn1.32xlarge", "cuda": "p4d.24xlarge"}  # p4d has no spot price in the table
    table = regimes(two_platforms, prices, pair, [Regime("on_demand"), Regime("spot")])
    assert set(table.loc[table["regime"] == "spot", "platform"]) == {"neuron"}
    (sentence,) = rankings(table)
    assert "only one regime prices every platform" in sentence and "spot" not in sentence


def test_a_cpu_with_one_price_does_not_hide_how_the_accelerators_rank(prices, make_record, two_platforms):
    instances = INSTANCES | {"cpu": "c7a.large"}  # no spot price in the table
    cpu = hours_of(make_record("nih128-64px/resnet18/cpu/seed0"))
    cells = pd.concat([two_platforms, pd.DataFrame([cpu])], ignore_index=True)
    table = regimes(cells, prices, instances, [Regime("on_demand"), Regime("spot")])
    everyone, accelerators = rankings(table)
    assert "only one regime prices every platform: cpu (c7a.large) < cuda" in everyone
    assert accelerators.startswith("nih128-64px/resnet18, accelerators alone: the ranking turns: ")
    assert "neuron (trn1.2xlarge) < cuda (g5.xlarge) under spot" in accelerators


def test_one_platform_alone_is_not_ranked(prices, two_platforms):
    table = regimes(two_platforms, prices, {"cuda": "g5.xlarge"}, [Regime("on_demand")])
    assert set(table["platform"]) == {"cuda"} and rankings(table) == []


def test_the_preprints_ratio_at_a_spot_snapshot(prices):
    told = reprice((3, 5), prices, "trn1.2xlarge", "g5.xlarge", Regime("on_demand"), Regime("spot"))
    assert told.time_ratio == pytest.approx((2.246, 3.743), abs=1e-3)
    assert told.ratio == pytest.approx((1.163, 1.938), abs=1e-3)
    assert "published" in told.sentence and "undated" in told.sentence
    assert "the ranking does not turn" in told.sentence
    assert (told.turns, told.price_ratio) == ("does not turn", pytest.approx(0.5177, abs=1e-4))
    turned = reprice((1, 1.5), prices, "trn1.2xlarge", "g5.xlarge", Regime("on_demand"), Regime("spot"))
    assert "the ranking turns." in turned.sentence


def test_every_basis_and_date_of_the_table_is_a_regime(prices):
    found = available(prices, ["trn1.2xlarge", "g5.xlarge"], "us-east-1")
    dates = ("2025-04-28", "2025-08-04", "2026-07-20")
    assert found == [*(Regime("on_demand", date) for date in dates), Regime("spot", "undated")]
    assert str(found[-1]) == "spot, undated"
    assert available(prices, ["trn1.2xlarge"], "sa-east-1") == []


def test_the_undated_rows_can_be_asked_for(prices, two_platforms):
    table = regimes(two_platforms, prices, INSTANCES, [Regime("spot", "undated")])
    assert set(table["as_of"]) == {"undated"} and len(table) == 2
    with pytest.raises(UserError, match="under any of these regimes"):
        regimes(two_platforms, prices, INSTANCES, [Regime("on_demand", "undated")])


# ------------------------------------------------------------------ break-even


@settings(deadline=None)
@given(porting=st.integers(0, 10**7), here=st.integers(0, 10**6), saving=st.integers(1, 10**6))
def test_break_even_is_the_first_run_that_pays(porting, here, saving):
    runs = break_even_runs(porting, here + saving, here)
    assert runs * saving >= porting
    assert runs == 0 or (runs - 1) * saving < porting


@settings(deadline=None)
@given(porting=money, here=money, more=money)
def test_without_a_saving_it_never_breaks_even(porting, here, more):
    assert break_even_runs(porting, here, here + more) == math.inf


def test_the_chapters_own_numbers_break_even_after_one_run():
    assert break_even_runs(porting_usd(20, 1000), 184320, 148608) == 1
    assert break_even_runs(20000, 184320, 216720) == math.inf
    for wrong in (-1, math.nan, math.inf):
        with pytest.raises(UserError, match="finite number"):
            break_even_runs(wrong, 2, 1)


def test_break_even_of_ones_own_numbers_shows_each_step():
    lines = arithmetic(20, 1000, 100, 60)
    assert "= 20,000 USD" in lines[0] and "= 40.00 USD" in lines[1] and "after 500 runs" in lines[2]
    assert "never" in arithmetic(20, 1000, 60, 60)[2]
    with pytest.raises(UserError, match="--there is missing"):
        arithmetic(1, 1, 1, None)


def test_a_published_ratio_at_other_prices_says_which(prices):
    pair, then = ("trn1.2xlarge", "g5.xlarge"), Regime("on_demand", "2025-12-23")
    ratio = repriced_ratio(RATIOS["cnn"], prices, pair, then, Regime("spot", "undated"), "us-east-1")
    assert (ratio.low, ratio.high) == pytest.approx((1.163, 1.938), abs=1e-3)
    assert ratio.kind == "published" and "us-east-1 at spot, undated" in ratio.source


def test_on_the_line_of_indifference_porting_exactly_pays():
    line = indifference(20000, [1, 10, 100])
    assert (line["runs"] * line["usd_saved_per_run"] == 20000).all()
    with pytest.raises(UserError, match="positive number of runs"):
        indifference(1, [0])


def test_a_decision_is_arithmetic():
    told = decide(100_000, "transformer", porting=20_000, horizon_months=12, capacity=0.8)
    assert told.verdict == "port"
    assert told.saving_per_month == pytest.approx((80_000 * (1 - 1 / 1.3), 80_000 * (1 - 1 / 1.5)))
    assert told.months_to_break_even == pytest.approx((20_000 / told.saving_per_month[0], 0.75))
    assert any("18,462 to 26,667 USD" in line for line in told.arithmetic)
    assert any("published" in line for line in told.arithmetic)


def test_a_decision_against_and_one_that_depends():
    against = decide(100_000, "cnn", 0, 12, 1)
    assert against.verdict == "stay" and against.months_to_break_even == (math.inf, math.inf)
    assert any("never to never" in line for line in against.arithmetic)
    between = decide(10_000, Ratio(0.5, 1.5, "measured", "two cells"), 20_000, 12, 1)
    assert between.verdict == "depends" and between.net_over_horizon == pytest.approx((-80_000, 40_000))
    assert decide(0, "transformer", 0, 12, 1).verdict == "stay", "nothing spent, nothing saved"
    assert decide(10_000, "transformer", 0, 12, 0).verdict == "stay", "no capacity, nothing saved"


@settings(deadline=None)
@given(
    spend=st.integers(0, 10**7),
    porting=st.integers(0, 10**7),
    months=st.integers(0, 60),
    capacity=st.floats(0, 1),
)
def test_more_porting_cost_never_makes_porting_better(spend, porting, months, capacity):
    order = ["stay", "depends", "port"]
    cheap = decide(spend, "transformer", porting, months, capacity)
    dear = decide(spend, "transformer", porting * 2 + 1, months, capacity)
    assert order.index(dear.verdict) <= order.index(cheap.verdict)


def test_a_decision_refuses_what_it_cannot_know():
    with pytest.raises(UserError, match="did you mean 'transformer'"):
        decide(1, "transformers", 1, 1, 1)
    with pytest.raises(UserError, match="between 0 and 1"):
        decide(1, "cnn", 1, 1, 80)
    with pytest.raises(UserError, match="low and high"):
        Ratio(2, 1, "measured", "x")


def test_the_ratio_of_our_own_cells(prices, make_record):
    pricing = Pricing(instances=INSTANCES)
    costs = cost_table([make_record(f"nih128-64px/resnet18/{p}/seed0") for p in INSTANCES], prices, pricing)
    ratio = ratio_of_cells(costs, "nih128-64px", "resnet18", "neuron", "cuda")
    assert ratio.low == ratio.high == pytest.approx(1.34375 / 1.006) and ratio.kind == "proxy"
    with pytest.raises(UserError, match="nih128-64px/resnet50/neuron: not run yet"):
        ratio_of_cells(costs, "nih128-64px", "resnet50", "neuron", "cuda")


# ------------------------------------------------------------------ projection


def test_one_neuroncore_from_the_published_efficiency():
    made = project(Work("cnn", gmacs=109.9 / 64 / 2), device("Trainium"), 1, PUBLISHED)
    assert made.kind == "projected"
    measured = 64 / 0.3073  # images per second of the published step
    assert made.low == pytest.approx(measured / SPREAD, rel=0.01)
    assert made.high == pytest.approx(measured * SPREAD, rel=0.01)
    assert any("4.65% of peak" in source for source in made.sources)
    assert any(f"factor of {SPREAD:g}" in text for text in made.assumptions)


def test_fp32_is_never_projected_from_a_bf16_peak_or_share():
    """23 TFLOP/s of a NeuronCore in fp32, not 92; nothing where no fp32 peak is documented."""
    share = [Efficiency("cnn", 0.1, "A", "x", "neuron"), Efficiency("cnn", 0.1, "B", "y", "neuron")]
    assert project(Work("cnn", 1.0), device("Trainium"), 1, share).high == pytest.approx(0.1 * 23e12 / 6e9)
    half = [replace(known, precision="bf16") for known in share]
    made = project(Work("cnn", 1.0), device("Trainium"), 1, half, "bf16")
    assert made.high == pytest.approx(0.1 * 92e12 / 6e9)
    with pytest.raises(UserError, match="on a NeuronCore in fp32 is known"):
        project(Work("cnn", 1.0), device("Trainium"), 1, half)
    with pytest.raises(UserError, match="not projected: no documented fp32 peak of A10G"):
        project(Work("cnn", 1.0), device("A10G"), 1, [Efficiency("cnn", 0.3, "T4", "x")])


def test_two_efficiencies_are_the_range_and_cores_multiply_it():
    known = [
        Efficiency("cnn", 0.1, "A", "x"),
        Efficiency("cnn", 0.2, "B", "y"),
        Efficiency("other", 0.9, "C", "z"),
    ]
    one, four = (project(Work("cnn", 1.0), device("T4"), cores, known) for cores in (1, 4))
    assert (one.low, one.high) == pytest.approx((0.1 * 8.1e12 / 6e9, 0.2 * 8.1e12 / 6e9))
    assert four.high == pytest.approx(4 * one.high)


@settings(deadline=None)
@given(gmacs=st.floats(0.01, 100), moved=st.floats(1e3, 1e10), cores=st.integers(1, 16))
def test_a_projection_is_a_range_under_the_bandwidth(gmacs, moved, cores):
    made = project(Work("cnn", gmacs, moved), device("H100"), cores, [Efficiency("cnn", 0.3, "T4", "x")])
    assert 0 < made.low <= made.high <= cores * 3350e9 / moved * (1 + 1e-12)


def test_one_device_is_known_to_a_factor_only_however_many_of_its_runs_agree():
    known = [Efficiency("cnn", share, "T4", "x") for share in (0.30, 0.31)]
    made = project(Work("cnn", 1.0), device("A100-40GB"), 1, known)
    assert made.low == pytest.approx(0.30 / SPREAD * 19.5e12 / 6e9)
    whole = project(Work("cnn", 1.0), device("A100-40GB"), 1, [Efficiency("cnn", 0.9, "T4", "x")])
    assert made.high == whole.high == pytest.approx(19.5e12 / 6e9), "never above the peak"


def test_a_share_does_not_cross_from_one_family_of_devices_to_another():
    with pytest.raises(UserError, match="no efficiency of a cnn network on a GPU in fp32 is known"):
        project(Work("cnn", 1.0), device("A10G"), 1, PUBLISHED)
    with pytest.raises(UserError, match="a transformer network on a NeuronCore"):
        project(Work("transformer", 1.0), device("Trainium"), 1, [Efficiency("transformer", 0.3, "T4", "x")])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("resnet18", "cnn"),
        ("convnext_pico", "depthwise"),
        ("convnextv2_huge", "depthwise"),
        ("vit_tiny_patch16_224", "transformer"),
        ("vitamin_small_224", None),
        ("test_resnet", None),
    ],
)
def test_the_kind_of_a_network_by_its_name(name, kind):
    assert kind_of(name) == kind


def test_leaving_one_device_out_needs_three():
    work = Work("cnn", 1.0)
    runs = [Measured(device(name), 1, work, ips, name) for name, ips in (("T4", 1000), ("V100", 1500))]
    two = backtest(runs)
    assert two["error"].isna().all(), "neither device has a second network to be tested with"
    alone = backtest([*runs[:1], *runs[:1]])
    assert alone["error"].isna().all() and set(alone["method"]) == {
        "no error: nothing else of this kind measured on this device"
    }
    three = backtest([*runs, Measured(device("H100"), 1, work, 9000, "H100")])
    assert set(three["method"]) == {"leave one device out"}
    t4 = three.set_index("device").loc["T4"]
    shares = [1500 / 15.7, 9000 / 67]
    assert t4["low"] == pytest.approx(min(shares) * 8.1) and t4["high"] == pytest.approx(max(shares) * 8.1)
    assert t4["error"] == pytest.approx(math.sqrt(shares[0] * shares[1]) * 8.1 / 1000 - 1)
    assert backtest([]).empty


def test_on_one_device_each_network_and_size_is_left_out_of_its_own_projection():
    runs = [Measured(device("T4"), 1, Work("cnn", gmacs), 100, "x") for gmacs in (1.0, 1.0, 2.0)]
    tested = backtest(runs)
    assert tested["error"].tolist() == pytest.approx([1, 1, -0.5]), "the same work twice is no test of itself"
    assert set(tested["method"]) == {"leave one network and size out, same device"}
    assert tested["low"].iloc[2] == pytest.approx(50 / SPREAD)


def test_the_assumed_factor_covers_what_our_own_cells_show():
    study, recorded = read_study(ROOT / "config/config.yaml"), ROOT / "data/recorded"
    tested = backtest(cpu_speeds(study, recorded))
    shares = tested.groupby(["device", "kind", "precision"])["share"].agg(["min", "max"])
    apart = (shares["max"] / shares["min"]).max()
    assert 2 < apart < SPREAD, "a factor of two, as was assumed, is less than what was measured"
    known = tested.dropna(subset="error")
    assert len(known) >= 6 and known["measured"].between(known["low"], known["high"]).all()


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"),
        ("NC_v2", "Trainium"),
        ("NC_v3d", "Trainium2"),
        ("NVIDIA L40", None),
        ("cpu", None),
    ],
)
def test_a_device_is_known_by_what_its_driver_calls_it(named, name):
    found = device_of_host(named)
    assert (found and found.name) == name


def test_a_record_with_a_steady_state_is_a_measurement(make_record):
    timing = Timing(train_seconds=60, images_per_second=1000.0)
    record = make_record(timing=timing).model_copy(update={"recipe": {"precision": "bf16"}})
    told = measured_of(record, Work("cnn", 1.0))
    assert told.device.name == "A10G" and told.source == "cell nih128-64px/resnet18/cuda/seed0"
    assert told.efficiency().share == pytest.approx(1000 * 6e9 / 70e12)
    assert measured_of(make_record(timing=timing), Work("cnn", 1.0)) is None, "no fp32 peak of it is known"
    assert measured_of(make_record(), Work("cnn", 1.0)) is None, "no steady state, no speed"


def test_projected_rows_of_every_instance_with_an_accelerator(prices):
    rows = newest(prices, region="us-east-1", bases=["on_demand"])
    known = [*PUBLISHED, Efficiency("cnn", 0.3, "T4", "x")]
    table = projections(Work("cnn", 1.37), rows, known).set_index("instance")
    neuron = projections(Work("cnn", 1.37), rows, PUBLISHED)
    assert {name.split(".")[0] for name in neuron["instance"]} == {"inf2", "trn1", "trn1n"}
    assert set(table["kind"]) == {"projected"} and "c7a.large" not in table.index
    assert table.loc["trn1.32xlarge", "high"] == pytest.approx(16 * table.loc["trn1.2xlarge", "high"])
    assert "g5.xlarge" not in table.index, "no fp32 peak of an A10G is documented"
    row = table.loc["g4dn.xlarge"]
    assert row["usd_per_million_low"] == pytest.approx(0.526 / row["high"] / 3600 * 1e6)
    assert row["usd_per_million_low"] < row["usd_per_million_high"]


def test_a_projection_from_nothing_is_refused():
    with pytest.raises(UserError, match="not projected: no efficiency of a mamba network"):
        project(Work("mamba", 1.0), device("T4"), 1, PUBLISHED)
    with pytest.raises(UserError, match=r"no documented peak for 'A10'.*did you mean 'A10G'"):
        device("A10")
    with pytest.raises(UserError, match="above zero"):
        Work("cnn", 0.0)
    with pytest.raises(UserError, match="one or more"):
        project(Work("cnn", 1.0), device("Trainium"), 0, PUBLISHED)


def test_every_accelerator_of_the_price_table_has_a_documented_peak(prices):
    for name in set(prices["accelerator"]) - {""}:
        assert device(name).source
