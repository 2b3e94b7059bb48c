"""Spot, break-even, decisions and the estimate of hours: the arithmetic behind the sentences."""

import math
from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.cost.devices import DEVICES, device_of_host
from cxrbench.cost.estimate import (
    Network,
    Speed,
    Work,
    ceiling,
    equal_shares,
    hours_of_training,
    measured_speeds,
    work_of,
)
from cxrbench.cost.mine import Training, mine_table
from cxrbench.cost.porting import Numbers, break_even_runs, decide, ratio_of_cells
from cxrbench.cost.published import INFERENCE, by_area, leave_one_card_out, published_speed
from cxrbench.cost.ratios import PUBLISHED_RATIOS as RATIOS
from cxrbench.cost.ratios import Ratio, thresholds
from cxrbench.cost.spot import expected_hours, spot_table
from cxrbench.evidence.record import PREDICTIONS, RECORD, Timing
from cxrbench.evidence.sums import write_sums
from cxrbench.neuron.audit import read_audit
from cxrbench.study.config import Pricing, read_study

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
    assert 1e12 < expected_hours(1e12, rate=0.2, interval=5 / 60) < 1.1e12, "in no memory, stretch by stretch"


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
cases = st.builds(Numbers, amounts, amounts, st.just(0.0), st.integers(1, 60), st.floats(0, 1))
OWN = replace(RATIOS["transformer"], own=True)


@settings(deadline=None)
@given(cases)
def test_more_porting_cost_never_makes_porting_better(numbers):
    order = ["stay", "depends", "port"]
    cheap, dear = (
        decide(OWN, numbers._replace(porting=usd)) for usd in (numbers.porting, 2 * numbers.porting + 1)
    )
    assert order.index(dear.verdict) <= order.index(cheap.verdict)


@settings(deadline=None)
@given(cases, st.floats(0, 3), st.floats(0, 3))
def test_a_ratio_that_is_not_ones_own_never_decides_for_a_port(numbers, one, other):
    published = Ratio(min(one, other), max(one, other), "published", "a text")
    theirs, own = (decide(ratio, numbers) for ratio in (published, replace(published, own=True)))
    assert theirs.verdict == ("stay" if own.verdict == "stay" else "not shown")
    assert theirs._replace(verdict=own.verdict) == own, "the arithmetic is the same"


def test_thresholds_are_of_supported_instances_and_of_one_basis_where_the_table_allows(prices):
    table = thresholds(prices, "g5.xlarge", PAIR).set_index("instance")
    assert list(table.index) == ["trn2.3xlarge", "trn2.48xlarge"], "none of trn1, which cannot be trained on"
    small, large = table.loc["trn2.3xlarge"], table.loc["trn2.48xlarge"]
    assert small["mixed"] == "two regions" and small["price_ratio"] == pytest.approx(2.7396 / 0.4246)
    assert large["mixed"] == "" and large["price_ratio"] == pytest.approx(23.0631 / 0.377), "us-east-2, spot"
    on_demand = prices[(prices["instance"] != "g5.xlarge") | (prices["basis"] == "on_demand")]
    mixed = thresholds(on_demand, "g5.xlarge", PAIR).set_index("instance")["mixed"]
    assert dict(mixed) == {"trn2.3xlarge": "two bases and two regions", "trn2.48xlarge": "two bases"}
    assert thresholds(prices, "c1.large", PAIR).empty


def test_the_ratio_of_our_own_cells(priced, prices, make_record):
    costs = priced([make_record(CELL.format(platform)) for platform in PAIR.instances], PAIR)
    ratio = ratio_of_cells(costs, prices, "nih128-64px", "resnet18")
    assert ratio.low == ratio.high == pytest.approx(1.34375 / 1.006) and ratio.kind == "proxy"
    assert ratio.own and ratio.hardware == "Trainium"


# ------------------------------------------------------------------ hours of a training

NETWORK = Network("resnet18", 64, "fp32")


def test_hours_are_images_over_the_speeds_measured_with_this_network_on_this_chip():
    speeds = [Speed(NETWORK, "A10G", speed, f"cell {speed:g}") for speed in (100.0, 200.0)]
    speeds.append(Speed(NETWORK._replace(pixels=224), "A10G", 1.0, "another size"))
    made = hours_of_training(720_000, NETWORK, "A10G", 2, speeds, fastest=1e9)
    assert (made["hours_low"], made["hours_high"]) == pytest.approx((0.5, 1.0))
    assert made["kind"] == "proxy" and made["rests_on"] == "cell 100; cell 200"


def test_without_a_speed_there_is_a_bound_or_nothing_and_never_a_range():
    bound = hours_of_training(3600, NETWORK, "T4", 1, [], fastest=10.0)
    assert bound["hours_at_least"] == pytest.approx(0.1) and "hours_low" not in bound
    assert "was measured on T4" in bound["why_not"]
    assert hours_of_training(3600, NETWORK, "Trainium", 1, [], None).keys() == {"why_not"}


@settings(deadline=None)
@given(gmac=st.floats(0.01, 100), moved=st.floats(1e3, 1e10), cores=st.integers(1, 16))
def test_the_bound_is_under_the_peak_of_its_precision_and_under_the_bandwidth(gmac, moved, cores):
    work = Work("cnn", gmac, moved)
    for precision, peak in (("fp32", 67e12), ("bf16", 989e12)):
        fastest = ceiling(work, DEVICES["H100"], cores, precision)
        assert fastest == pytest.approx(cores * min(peak / (6e9 * gmac), 3350e9 / moved))
    with pytest.raises(UserError, match=r"no fp32 peak of H100 in cost/devices\.toml"):
        ceiling(work, replace(DEVICES["H100"], tflops_fp32=None), cores, "fp32")


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


def priced_mine(prices, precision="bf16", **changes):
    given = {"images": 360_000, "epochs": 10, "scored": 0, "gpu": "g5.xlarge", "speed": 100.0} | changes
    network = given.pop("network", Network("resnet50", 224, precision))
    training = Training(network, Work("cnn", 4.0), **given)
    return mine_table(training, STUDY, prices, ROOT / "data/recorded").set_index("instance")


UNTIMED = Network("resnet50", 1024, "bf16")  # too large to be scaled from timm's size


def test_a_given_speed_stands_on_its_own_instance_and_what_timm_did_not_time_is_bounded(prices):
    table = priced_mine(prices, network=UNTIMED)
    names = ["g5.xlarge", "g5.12xlarge", "trn2.3xlarge", "trn1.2xlarge", "g6.xlarge", "g6e.xlarge"]
    assert list(table.index[:6]) == names
    assert table.loc["trn1.2xlarge", "support"] == "no training from SDK 2.30"
    here, _, elsewhere, trainium, other = (table.loc[name] for name in table.index[:5])
    assert here["hours_low"] == here["hours_high"] == pytest.approx(10) and here["kind"] == "given"
    assert here["usd_low"] == pytest.approx(10 * 1.006 + here["usd_volume"])
    assert other["hours_at_least"] == pytest.approx(3.6e6 * 24e9 / 121e12 / 3600)
    assert math.isnan(other["hours_low"]), "no range without a measurement"
    assert trainium["price_ratio"] == pytest.approx(1.34375 / 1.006)
    assert trainium[["hours_low", "hours_at_least"]].isna().all(), "there is no training on it"
    assert elsewhere["hours_at_least"] == pytest.approx(3.6e6 * 24e9 / (8 * 83.59375e12) / 3600)
    assert math.isnan(elsewhere["hours_low"]), "no speed of Trainium is a guess"
    assert math.isnan(elsewhere["price_ratio"]), "prices of two regions are not divided"


def test_only_what_fits_the_job_is_shown(prices):
    for precision in ("fp32", "bf16"):
        table = priced_mine(prices, precision=precision, speed=None)
        assert len(table) <= 8 and not table.index.str.contains("inf2|48xlarge|32xlarge").any()
        assert ("g4dn.xlarge" in table.index) == (precision == "fp32"), "a T4 computes in fp16"
    eight = priced_mine(prices, gpu="p5.48xlarge", speed=None)
    assert eight.index[0] == "p5.48xlarge" and len(eight) == 8


def test_one_gpu_and_several_stand_together_and_several_share_the_hours(prices):
    table = priced_mine(prices, speed=None, scored=36_000)
    one, four = table.loc["g5.xlarge"], table.loc["g5.12xlarge"]
    assert (
        one["hours_low"] == pytest.approx(4 * four["hours_low"])
        and four["rests_on"] == "timm, scaled, times 4"
    )
    speed = published_speed("resnet50", 224, DEVICES["A10G"])
    assert one["hours_high"] == pytest.approx(10 * (360_000 + 12_000) / speed.low / 3600), "scored: a third"
    assert one["usd_high"] == pytest.approx(one["hours_high"] * 1.006) and one["kind"] == "projected"
    fp32 = priced_mine(prices, speed=None, precision="fp32")
    assert fp32["hours_low"].isna().all(), "timm's speeds are under autocast"


@pytest.mark.parametrize(("pixels", "fits"), [(224, True), (512, True), (900, False)])
def test_the_packed_images_fit_on_the_disk_or_cost_a_volume(prices, pixels, fits):
    table = priced_mine(prices, network=Network("resnet50", pixels, "bf16"), scored=0)
    here = table.loc["g5.xlarge"]
    assert here["packed_gb"] == pytest.approx(360_000 * pixels**2 / 1e9) and here["disk_gb"] == 250
    hours = 10.0
    assert here["usd_volume"] == pytest.approx(0 if fits else 0.08 * here["packed_gb"] * hours / 730)
    assert here["usd_low"] == here["usd_high"] == pytest.approx(hours * 1.006 + here["usd_volume"])
    assert math.isnan(table.loc["trn2.3xlarge", "disk_gb"]), "not in the source: unknown, not zero"
    assert math.isnan(table.loc["trn2.3xlarge", "usd_volume"])


# ------------------------------------------------------------------ timm's speeds, scaled


@pytest.mark.parametrize("chip", ["A10G", "L4", "L40S", "A100-40GB", "H100", "H200"])
def test_a_published_speed_is_scaled_between_bandwidths_and_peaks(chip):
    device, card = DEVICES[chip], DEVICES["RTX-3090"]
    found = published_speed("convnext_tiny", 448, device)
    ratios = sorted([device.bandwidth_gb_s / card.bandwidth_gb_s, device.tflops / card.tflops])
    assert [found.low, found.high] == pytest.approx([819.24 / 4 * ratio for ratio in ratios])
    assert published_speed("convnext_tiny", 224, card)[:2] == (819.24, 819.24), "its own card, its own size"


def test_what_timm_did_not_time_or_a_device_without_bandwidth_has_no_published_speed():
    assert published_speed("convnext_pico", 224, DEVICES["A10G"]) is None
    assert published_speed("resnet50", 32, DEVICES["A10G"]) is None, "at 32 px launches count, not pixels"
    assert published_speed("resnet50", 224, replace(DEVICES["A10G"], bandwidth_gb_s=None)) is None
    assert published_speed("resnet50", 224, DEVICES["Trainium2"]) is None, "a scaled GPU would be a guess"


def test_the_scaling_predicts_timms_own_other_cards_and_sizes_and_the_check_sees_wrong_ones(tmp_path):
    cards, sizes = leave_one_card_out(), by_area()
    assert cards["inside"].min() > 0.9 and cards["within_two"].min() > 0.99 and cards["networks"].min() > 800
    assert sizes.quantile([0.01, 0.99]).between(0.9, 1.1).all() and len(sizes) > 1000
    table = pd.read_csv(INFERENCE)
    wrong = table.assign(**{"RTX-4090": table["RTX-4090"] / 3})  # a card that is entered a third as fast
    wrong.to_csv(tmp_path / "wrong.csv", index=False)
    assert leave_one_card_out(tmp_path / "wrong.csv")["inside"].max() < 0.1
    small = table["pixels"] < 200
    wrong = table.assign(**{name: table[name].mask(small, table[name] * 2) for name in table.columns[3:]})
    wrong.to_csv(tmp_path / "sizes.csv", index=False)
    assert not by_area(tmp_path / "sizes.csv").quantile([0.01, 0.99]).between(0.9, 1.1).all()


# ------------------------------------------------------------------ equal shares of the rooflines


@settings(deadline=None)
@given(gmac=st.floats(0.01, 100), moved=st.floats(1e6, 1e10))
def test_equal_shares_are_the_ratio_of_dollars_at_the_rooflines(gmac, moved):
    """Between the ratio of prices over peaks and that over bandwidths, whatever the network."""
    here = {"accelerator": "A10G", "cores": 1, "usd_per_hour": 1.006}
    there = {"accelerator": "Trainium", "cores": 2, "usd_per_hour": 1.34375}
    found = equal_shares(Work("cnn", gmac, moved), "bf16", there, here)
    ends = 1.34375 / 184 / (1.006 / 70), 1.34375 / 880.4683 / (1.006 / 600)
    assert min(ends) * 0.999 <= found <= max(ends) * 1.001
    assert equal_shares(Work("cnn", gmac), "bf16", there, here) is None, "without traffic no roofline"


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


def test_a_record_with_a_steady_state_is_a_speed(tmp_path, make_record):
    path = tmp_path / CELL.format("cuda") / RECORD
    path.parent.mkdir(parents=True)
    predictions = path.with_name(PREDICTIONS)
    predictions.write_bytes(b"scores")

    def measured(speed, share=None):
        timing = Timing(train_seconds=60, images_per_second=speed, others_share=share)
        update = {"recipe": {"precision": "bf16"}, "dataset": None}
        update |= {"predictions_sha256": sha256_file(predictions)}
        path.write_text(make_record(timing=timing).model_copy(update=update).to_json())
        write_sums(tmp_path)
        return measured_speeds(STUDY, tmp_path)

    assert measured(1000.0) == [
        Speed(Network("resnet18", 64, "bf16"), "A10G", 1000.0, "recorded on NVIDIA A10G")
    ]
    assert measured(None) == [], "no steady state, no speed"
    assert measured(1000.0, share=0.5) == [], "others used the machine"
    path.write_text('{"schema_version": 0}')
    assert measured_speeds(STUDY, tmp_path) == [], "refused evidence has no speed"


def test_every_accelerator_of_the_price_table_has_a_documented_peak(prices):
    assert set(prices["accelerator"]) - {"", "B300"} <= set(DEVICES), "of the B300 none was found"
    assert all(device.source and device.tflops for device in DEVICES.values())
    # Google documents none; that of the B200 was not looked up.
    with_fp32 = [one for one in DEVICES.values() if one.family != "tpu" and one.name != "B200"]
    assert all(device.source_fp32 and device.tflops_fp32 for device in with_fp32)
