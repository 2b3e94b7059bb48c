"""Spot, break-even, decisions and projections: the arithmetic behind the sentences."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, write_audit
from cxrbench.compile.audit import read_audit
from cxrbench.cost.devices import DEVICES, device_of_host
from cxrbench.cost.mine import Training, mine_table, trial_sentences
from cxrbench.cost.porting import Numbers, break_even_runs, decide, ratio_of_cells
from cxrbench.cost.projection import (
    PUBLISHED,
    SPREAD,
    Speed,
    Work,
    backtest,
    measured_speeds,
    project,
    projection_table,
    reached,
    work_of,
)
from cxrbench.cost.ratios import PUBLISHED as RATIOS
from cxrbench.cost.spot import expected_hours, spot_table
from cxrbench.evidence.record import PREDICTIONS, RECORD, Timing
from cxrbench.evidence.sums import write_sums
from cxrbench.study.config import Pricing, read_study
from cxrbench.study.errors import UserError
from cxrbench.study.files import sha256_file

money = st.floats(0, 1e9, allow_subnormal=False)
PAIR = Pricing(instances={"neuron": "trn1.2xlarge", "cuda": "g5.xlarge"})
CELL = "nih128-64px/resnet18/{}/seed0"
STUDY = read_study(ROOT / "config/config.yaml")


# ------------------------------------------------------------------ spot


@settings(deadline=None)
@given(
    stretch=st.floats(0.01, 10), rate=st.floats(0.01, 1), restart=st.floats(0, 3), number=st.integers(1, 5)
)
def test_the_expectation_follows_from_what_happens_first(stretch, rate, restart, number):
    """Either a stretch passes, or it is interrupted and needs a restart and itself, without interruption."""
    passes = math.exp(-rate * stretch)
    lost = 1 / rate - stretch * passes / (1 - passes)  # hours until an interruption inside the stretch
    again = math.expm1(rate * (restart + stretch)) / rate
    expected = passes * stretch + (1 - passes) * (lost + again)
    found = expected_hours(number * stretch, rate, stretch, restart)
    assert found == pytest.approx(number * expected, rel=1e-6)


def test_expected_hours_at_the_ends():
    assert expected_hours(1, rate=1, interval=9) == pytest.approx(math.e - 1), "the textbook's one stretch"
    assert expected_hours(5, rate=0, interval=2, restart=5) == pytest.approx(5)
    assert expected_hours(100, rate=100, interval=10) == math.inf, "it never ends"


def test_a_run_on_spot_costs_its_spot_price_and_what_interruptions_add(prices):
    table = spot_table(2.7, "g5.xlarge", prices, Pricing(), rates=(0.0, 0.2), interval=0.5, restart=0.1)
    calm, rough = table.to_dict("records")
    assert calm["usd"] == pytest.approx(2.7 * 0.4246) and calm["factor"] == 1
    work = expected_hours(2.7, 0.2, 0.5, restart=0.1)
    assert rough["usd"] == pytest.approx(work * 0.4246) and rough["factor"] == pytest.approx(work / 2.7)


@pytest.mark.parametrize(
    "wrong", [{"rate": -1}, {"interval": 0}, {"restart": math.nan}, {"rate": math.inf}, {"work": -1}]
)
def test_impossible_interruptions(wrong):
    with pytest.raises(UserError, match=f"spot {next(iter(wrong))} is"):
        expected_hours(**({"work": 1, "rate": 0.1, "interval": 1} | wrong))


# ------------------------------------------------------------------ break-even and decisions


@settings(deadline=None)
@given(porting=st.integers(0, 10**7), here=st.integers(0, 10**6), saving=st.integers(1, 10**6))
def test_break_even_is_the_first_run_that_pays(porting, here, saving):
    runs = break_even_runs(porting, here + saving, here)
    assert runs * saving >= porting
    assert runs == 0 or (runs - 1) * saving < porting


def test_a_binary_fraction_adds_no_run():
    assert 1 / (0.3 - 0.2) > 10 and break_even_runs(1, 0.3, 0.2) == 10


@settings(deadline=None)
@given(porting=money, here=money, more=money)
def test_without_a_saving_it_never_breaks_even(porting, here, more):
    assert break_even_runs(porting, here, here + more) == math.inf


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf])
def test_an_amount_is_a_finite_number(wrong):
    with pytest.raises(UserError, match="finite number"):
        break_even_runs(wrong, 2, 1)


@pytest.mark.parametrize(("spend", "capacity"), [(0, 1), (10_000, 0)])
def test_what_saves_nothing_is_not_ported(spend, capacity):
    assert decide(RATIOS["transformer"], Numbers(spend, 0, 0, 12, capacity)).verdict == "stay"


amounts = st.integers(0, 10**7)


@settings(deadline=None)
@given(spend=amounts, porting=amounts, months=st.integers(0, 60), capacity=st.floats(0, 1))
def test_more_porting_cost_never_makes_porting_better(spend, porting, months, capacity):
    order = ["stay", "depends", "port"]
    costs = (Numbers(spend, usd, 0, months, capacity) for usd in (porting, porting * 2 + 1))
    cheap, dear = (decide(RATIOS["transformer"], numbers).verdict for numbers in costs)
    assert order.index(dear) <= order.index(cheap)


def test_the_ratio_of_our_own_cells(priced, make_record):
    costs = priced([make_record(CELL.format(platform)) for platform in PAIR.instances], PAIR)
    ratio = ratio_of_cells(costs, "nih128-64px", "resnet18")
    assert ratio.low == ratio.high == pytest.approx(1.34375 / 1.006) and ratio.kind == "proxy"


# ------------------------------------------------------------------ projection


def shares(*some, on=("T4", "V100"), kind="cnn", precision="fp32"):
    """Speeds of which only the share of the peak is known."""
    work = Work(kind, math.nan)
    return [Speed(DEVICES[at], work, share, "x", precision) for at, share in zip(on, some, strict=False)]


def test_one_neuroncore_from_the_published_efficiency():
    made = project(Work("cnn", gmac=109.9 / 64 / 2), DEVICES["Trainium"], 1, PUBLISHED)
    measured = 64 / 0.3073  # images per second of the published step
    assert (made["low"], made["high"]) == pytest.approx((measured / SPREAD, measured * SPREAD), rel=0.01)
    assert made["kind"] == "projected" and "4.65% of peak" in made["sources"]


def test_fp32_is_never_projected_from_a_bf16_peak_or_share():
    """23 TFLOP/s of a NeuronCore in fp32, not 92; nothing where no fp32 peak is known."""
    work, target, on = Work("cnn", 1.0), DEVICES["Trainium"], ("Trainium", "Inferentia2", "Trainium2")
    half = shares(0.1, 0.1, 0.1, on=on, precision="bf16")
    full = shares(0.1, 0.1, 0.1, on=on)
    assert project(work, target, 1, full)["high"] == pytest.approx(0.1 * 23e12 / 6e9)
    assert project(work, target, 1, half, "bf16")["high"] == pytest.approx(0.1 * 92e12 / 6e9)
    with pytest.raises(UserError, match="on a NeuronCore in fp32 is known"):
        project(work, target, 1, half)
    with pytest.raises(UserError, match=r"not projected: no fp32 peak of A10G in cost/devices\.toml"):
        project(work, replace(DEVICES["A10G"], tflops_fp32=None), 1, shares(0.3))


def test_timms_published_speeds_in_training_stand_for_gpus_in_bf16():
    """A GPU of the same peak gets what timm printed, known to a factor; no depthwise network is without."""
    for kind, gmac, printed in (("cnn", 4.11, 1218.01), ("depthwise", 4.47, 819.24)):
        made = project(Work(kind, gmac), DEVICES["A10G"], 1, PUBLISHED, "bf16")
        per_peak = printed * 70 / 71
        assert made["low"] == pytest.approx(per_peak / SPREAD)
        assert made["high"] == pytest.approx(min(per_peak * SPREAD, 70e12 / (6e9 * gmac)))
        assert "2022-07-19" in made["sources"] and f"{printed} images/s" in made["sources"]


@settings(deadline=None)
@given(gmac=st.floats(0.01, 100), moved=st.floats(1e3, 1e10), cores=st.integers(1, 16))
def test_a_projection_is_a_range_under_the_bandwidth(gmac, moved, cores):
    made = project(Work("cnn", gmac, moved), DEVICES["H100"], cores, shares(0.3))
    assert 0 < made["low"] <= made["high"] <= cores * 3350e9 / moved * (1 + 1e-12)


@pytest.mark.parametrize(
    ("on", "spread"),
    [(("T4", "V100", "H100"), 1), (("T4", "V100"), SPREAD), (("T4", "A100-40GB", "A100-80GB"), SPREAD)],
)
def test_three_devices_are_a_range_and_fewer_are_known_to_a_factor_only(on, spread):
    """Sizes of memory of one chip are not two devices."""
    known = [*shares(0.1, 0.2, 0.15, on=on), *shares(0.9, kind="depthwise")]
    made, peak = project(Work("cnn", 1.0), DEVICES["T4"], 4, known), 4 * 8.1e12 / 6e9
    assert (made["low"], made["high"]) == pytest.approx((0.1 / spread * peak, 0.2 * spread * peak))


def test_a_single_device_is_widened_up_to_the_peak():
    some = (shares(*some, on=("T4", "T4")) for some in ((0.30, 0.31), (0.9,)))
    low, high = (project(Work("cnn", 1.0), DEVICES["A100-40GB"], 1, known) for known in some)
    assert low["low"] == pytest.approx(0.30 / SPREAD * 19.5e12 / 6e9)
    assert (low["high"], high["high"]) == pytest.approx([19.5e12 / 6e9] * 2), "never above the peak"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("resnet18", "cnn"), ("regnety_016", "cnn"), ("densenet121", "cnn"),
        ("convnext_pico", "depthwise"), ("convnextv2_huge", "depthwise"), ("efficientnet_b0", "depthwise"),
        ("vit_tiny_patch16_224", "transformer"), ("swin_tiny_patch4_window7_224", "transformer"),
    ],
)  # fmt: skip
def test_the_kind_of_a_network_is_what_its_audit_counted(name, kind):
    assert work_of(read_audit(ROOT / "data/recorded"), name, 224, "fp32").kind == kind


def test_traffic_of_another_precision_is_no_limit(tmp_path):
    """In bf16 a step moves about half the bytes: the bandwidth would limit it too early."""
    audit = read_audit(ROOT / "data/recorded").query("precision == 'fp32'")
    full, half = (work_of(audit, "resnet50", 224, precision) for precision in ("fp32", "bf16"))
    assert full.gmac == half.gmac and full.bytes and half.bytes is None


# ------------------------------------------------------------------ a price for any network


def priced_mine(prices, **changes):
    given = {"images": 3_600_000, "precision": "fp32", "gpu": "g5.xlarge", "speed": 100.0} | changes
    training = Training(Work("cnn", 4.0), **given)
    table = mine_table(training, STUDY, prices, ROOT / "data/recorded")
    return training, table.set_index("instance")


def test_a_given_speed_stands_a_proxy_on_the_same_gpu_and_is_projected_to_more_of_them(prices):
    training, table = priced_mine(prices)
    names = ("g5.xlarge", "g5.2xlarge", "g5.48xlarge", "p5.48xlarge")
    here, same, eight, other = (table.loc[name] for name in names)
    assert here["hours_low"] == here["hours_high"] == pytest.approx(10) and here["kind"] == "given"
    assert here["usd_low"] == pytest.approx(10 * here["usd_per_hour"])
    assert same["hours_low"] == pytest.approx(10) and same["kind"] == "proxy"
    assert eight["hours_low"] == eight["hours_high"] == pytest.approx(10 / 8)
    assert eight["kind"] == "projected" and "speed is proportional to cores" in eight["assumptions"]
    assert other["kind"] == "projected" and 0 < other["hours_low"] < other["hours_high"]
    trainium = table.loc["trn1.2xlarge"]
    assert trainium["break_even_ratio"] == pytest.approx(1.34375 / 1.006)
    assert math.isnan(trainium["hours_at_peak"]), "it would leave out compilation"
    assert any("without compilation" in text for text in trainium["assumptions"])
    said = " ".join(trial_sentences(table.reset_index(), training, PAIR))
    assert "more than 1.34 times the images/s of g5.xlarge (134 images/s)" in said
    assert "An hour of trial on trn1.2xlarge costs 1.34 USD" in said and "(projected)" in said
    assert "about 5 minutes by one page of scttfrdmn/aws-trainium-tutorial-for-research and about 44" in said
    assert "for inference" in table.loc["inf2.xlarge", "why_not"]
    assert math.isnan(table.loc["inf2.xlarge", "hours_at_peak"])


def test_prices_of_other_regions_and_bases_are_not_divided_by_the_gpus(prices):
    training, table = priced_mine(prices, precision="bf16")
    others = table[(table["region"] != "us-east-1") | (table["basis"] != "on_demand")]
    assert {"trn2.3xlarge", "ml.trn1.32xlarge"} <= set(others.index)
    assert others["break_even_ratio"].isna().all()
    assert table.drop(others.index)["break_even_ratio"].notna().all()
    assert table.loc["g5.xlarge", "hours_at_peak"] == pytest.approx(3.6e6 * 24e9 / 70e12 / 3600)
    abroad = PAIR.model_copy(update={"instances": {"neuron": "trn2.3xlarge"}})
    (trial,) = trial_sentences(table.reset_index(), training, abroad)
    assert trial.startswith("An hour of trial on trn2.3xlarge costs 2.74 USD (ap-southeast-4, spot, undated)")


@settings(deadline=None, max_examples=20)
@given(images=st.integers(1, 10**8), speed=st.floats(0.1, 2900))
def test_every_instance_has_a_price_and_a_range_in_order(prices, images, speed):
    _, table = priced_mine(prices, images=images, speed=speed, precision="bf16")
    assert set(table.index) == set(prices["instance"]) and table.index.is_unique
    known = table.dropna(subset="hours_low")
    assert (known["hours_low"] <= known["hours_high"]).all() and known["kind"].notna().all()
    bounded = known.query("kind == 'projected'")
    assert (bounded["hours_at_peak"] <= bounded["hours_low"] * (1 + 1e-9)).all(), "nothing beats its peak"
    assert table[table["hours_low"].isna()]["why_not"].notna().all()


def test_an_accelerator_without_documented_peaks_has_a_reason_in_every_table(prices):
    new = prices[prices["instance"] == "g5.xlarge"].assign(instance="p6.xlarge", accelerator="B200")
    both = pd.concat([prices, new], ignore_index=True)
    _, mine = priced_mine(both)
    why = "no peaks of 'B200' in cost/devices.toml"
    assert why in mine.loc["p6.xlarge", "why_not"]
    table, _ = projection_table(STUDY, both, ROOT / "data/recorded")
    assert why in table.set_index("instance").loc["p6.xlarge", "why_not"].iloc[0]


def test_one_of_two_devices_is_not_left_out():
    speeds = (("T4", 1000), ("V100", 1500))
    tested = backtest([reached(DEVICES[name], 1, Work("cnn", 1.0), ips, name) for name, ips in speeds])
    assert tested["error"].isna().all(), "neither device has a second network to be tested with"
    assert set(tested["method"]) == {"no error: nothing else of this kind measured on this device"}


def test_on_one_device_each_network_and_size_is_left_out_of_its_own_projection():
    tested = backtest([reached(DEVICES["T4"], 1, Work("cnn", gmac), 100, "x") for gmac in (1.0, 1.0, 2.0)])
    assert tested["error"].tolist() == pytest.approx([1, 1, -0.5]), "the same work twice is no test of itself"
    assert set(tested["method"]) == {"leave one network and size out, same device"}
    assert tested["low"].iloc[2] == pytest.approx(50 / SPREAD)


def test_the_assumed_factor_covers_what_our_own_cells_show():
    tested = backtest(measured_speeds(STUDY, ROOT / "data/recorded"))
    tested = tested[tested["source"].str.startswith("cells of ")]
    ends = tested.groupby(["device", "kind", "precision"])["share"].agg(["min", "max"])
    apart = (ends["max"] / ends["min"]).max()
    assert 2 < apart < SPREAD, "a factor of two, as was assumed, is less than what was measured"
    known = tested.dropna(subset="error")
    assert len(known) >= 6 and known["measured"].between(known["low"], known["high"]).all()


@pytest.mark.parametrize(
    ("named", "name"),
    [
        ("NVIDIA H200", "H200"), ("NVIDIA A100-SXM4-40GB", "A100-40GB"), ("Tesla T4", "T4"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA A10G", "A10G"), ("NC_v2", "Trainium"), ("NC_v3d", "Trainium2"), ("NVIDIA L40", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("cpu", None),
    ],
)  # fmt: skip
def test_a_device_is_known_by_what_its_driver_calls_it(named, name):
    found = device_of_host(named)
    assert (found and found.name) == name


def test_a_record_with_a_steady_state_is_a_measurement(tmp_path, make_record):
    write_audit(tmp_path, ("resnet18", 64, 1.0))
    path = tmp_path / CELL.format("cuda") / RECORD
    path.parent.mkdir(parents=True)
    predictions = path.with_name(PREDICTIONS)
    predictions.write_bytes(b"scores")

    def found(precision, speed):
        record = make_record(timing=Timing(train_seconds=60, images_per_second=speed))
        update = {"recipe": {"precision": precision}, "dataset": None}
        update |= {"predictions_sha256": sha256_file(predictions)}
        path.write_text(record.model_copy(update=update).to_json())
        write_sums(tmp_path)
        return measured_speeds(STUDY, tmp_path)

    (speed,) = found("bf16", 1000.0)
    assert speed.device.name == "A10G" and speed.source == f"cell {CELL.format('cuda')}"
    assert speed.share == pytest.approx(1000 * 6e9 / 70e12)
    assert found("fp32", 1000.0)[0].share == pytest.approx(1000 * 6e9 / 35e12)
    assert found("bf16", None) == [], "no steady state, no speed"


def test_every_accelerator_of_the_price_table_has_a_documented_peak(prices):
    assert set(prices["accelerator"]) - {""} <= set(DEVICES)
    assert all(device.source and device.source_fp32 and device.tflops_fp32 for device in DEVICES.values())
