"""``cxrbench cost`` and ``cxrbench claims`` as users call them: rows, arithmetic, and what is refused."""

import json
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, cxrbench, must_work
from cxrbench.cost.porting import CASES, break_even_table
from cxrbench.cost.prices import read_prices
from cxrbench.cost.spot import RATES, expected_hours
from cxrbench.paper.cost_tables import OF_ITS_BATCH
from cxrbench.study.config import Pricing

PRICES = ROOT / "data/prices.csv"
CELL = ROOT / "data/recorded/nih128-64px/resnet18/cpu/seed0"  # priced as an instance without a spot price
ENDED = "AWS supports no training on trn1 from Neuron SDK 2.30 on."
FIVE = ["--spend", 100_000, "--porting", 20_000, "--horizon", 12, "--capacity", 0.8]


def rows(*words: object) -> list[dict[str, object]]:
    return json.loads(must_work("cost", *words, "--json").stdout)


def unwrapped(*words: object) -> str:
    """What a command prints, in at most 100 columns, as one line."""
    done = must_work(*words)
    assert max(map(len, done.stdout.splitlines())) <= 100
    assert not re.search(r"\b(nan|inf|None)\b|<NA>", done.stdout), done.stdout
    return " ".join(done.stdout.split())


def refused(*words: object) -> str:
    """The one message of a command that fails; nothing stands on standard output."""
    done = cxrbench(*words)
    assert done.returncode == 1 and done.stdout == "" and "Traceback" not in done.stderr
    assert done.stderr.startswith("cxrbench: ")
    return done.stderr.removeprefix("cxrbench: ").strip()


def test_a_table_of_costs_has_its_target_its_price_and_what_is_not_charged() -> None:
    (row,) = rows("table", CELL, "--target-auroc", 0.65, "--runs", 10, "--region", "us-east-1")
    assert 0 < row["usd_to_auroc"] == row["cost_to_auroc"] < row["usd_total"], "one seed, and it reached it"
    assert row["usd_amortised"] == row["usd_total"] and row["amortised_over"] == 10, "nothing was compiled"
    shown = unwrapped("cost", "table", CELL, "--target-auroc", "0.65")
    assert "USD to AUROC" in shown and "2026-07-20" in shown
    assert "Not charged: storage, data transfer, packing the images, boot time and tax." in shown
    assert "The load of the machine was not recorded for 1 of 1 runs." in shown
    assert OF_ITS_BATCH not in shown  # a CPU's cell


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--basis", "on_demnd"], "unknown basis 'on_demnd'; did you mean 'on_demand'?"),
        (["--region", "us-est-1"], "unknown region 'us-est-1'; did you mean 'us-west-1'"),
        (["--as-of", "July"], "'July' is not a date"),
        (["--as-of", "2020-01-01"], "up to 2020-01-01: the oldest row is of"),
        (["--target-auroc", "65"], "--target-auroc 65: give a number from 0 to 1"),
        (["--runs", "0"], "give one run or more"),
    ],
)
def test_what_cannot_be_priced_is_one_message(words: list[str], message: str) -> None:
    assert message in refused("cost", "table", CELL, *words)


def test_the_table_of_costs_fits_a_page_in_words() -> None:
    assert "USD" in unwrapped("cost", "table")


def test_break_even_of_the_published_cases() -> None:
    no_cells = pd.DataFrame(columns=["dataset", "architecture"])
    table = break_even_table(no_cells, read_prices(PRICES), Pricing())
    of_us_east_1 = table["region"].str.startswith("us-east-1")
    found = table[of_us_east_1].dropna(subset="saving").set_index(["case", "basis", "as_of"])
    printed = "30B model, run times as printed", "on_demand"
    assert found.loc[(*printed, "2025-04-28"), "runs"] == 1
    today = found.loc[(*printed, "2026-07-20")]
    assert today["saving"] < 0 and today["runs"] == math.inf and today["note"] == "never: no saving"
    assert found.loc[("30B model, equal tokens", "on_demand", "2025-04-28"), "saving"] < 0
    tuning = found.loc[("fine-tuning", "sagemaker", "undated"), "saving"]
    assert tuning == pytest.approx(68.6063 - 41.435, abs=1e-3)
    assert {*found.index.get_level_values("basis")} == {"on_demand", "spot", "capacity_block", "sagemaker"}
    block = found.loc[(printed[0], "capacity_block", "2026-07-22")]
    assert block["saving"] == pytest.approx(5760 * 11.8 - 6912 * 9.532) and block["runs"] == 10
    assert [*dict.fromkeys(table["case"])] == [case.case for case in CASES]


def test_interruptions_on_spot_stand_beside_the_hours_of_the_named_gpu() -> None:
    mine = ("cost", "mine", "resnet50", "--images", 200000, "--epochs", 10, "--why")
    shown = unwrapped(*mine, "--gpu-speed", 100)
    (said,) = re.findall(r"On spot, g5\.xlarge is expected to take (\S+) to (\S+) times these hours", shown)
    hours = 10 * (200_000 + 20_000 / 3) / 100 / 3600
    ends = [expected_hours(hours, rate, 5 / 60, 5 / 60) / hours for rate in (RATES[0], RATES[-1])]
    assert [float(text) for text in said] == pytest.approx(ends, abs=6e-4)
    assert "0.425 USD/h (spot, us-east-1, undated), with 0.05 to 1 interruptions an hour" in shown
    assert "On spot" not in unwrapped(*mine, "--precision", "fp32"), "no speed, so no hours"
    assert "On spot" not in unwrapped(*mine, "--gpu", "g5.4xlarge"), "no spot price"


def test_a_price_for_any_network_is_one_page() -> None:
    mine = ("cost", "mine", "resnet50", "--images", 200000, "--epochs", 10, "--gpu-speed", 100)
    done = must_work(*mine)
    shown = " ".join(done.stdout.split())
    assert shown.startswith("Cheapest by these estimates: ") and ENDED in shown
    assert len(done.stdout.splitlines()) <= 38
    pays = "On trn2.3xlarge, on spot, Trainium pays only above 6.45 times the images/s of g5.xlarge "
    pays += "(645 images/s): "
    assert f"{pays}2.74 USD/h (spot, ap-southeast-4, undated) over 0.425 USD/h (spot, us-east-1," in shown
    assert (
        "On trn2.3xlarge, paid in advance for whole days (Capacity Block), Trainium pays only above 2.22"
        in shown
    )
    assert "A port of 20,000 USD would pay for 3,463 such runs." in shown and "trn1.2xlarge, on" not in shown
    assert (
        re.search(r"trn2\.3xlarge +2\.74 +not measured +not measured +", done.stdout)
        and "took 5 to 44 minutes" in shown
        and "5.7 h" in shown
    )
    assert re.search(r"trn1\.2xlarge +1\.344 +no training", done.stdout)
    assert OF_ITS_BATCH not in shown and shown.endswith("add --why.")
    assert OF_ITS_BATCH in unwrapped(*mine, "--why")
    table = json.loads(must_work(*mine, "--json").stdout)
    assert {row["kind"] for row in table} == {"given", "projected", None} and len(table) == 8
    assert "100 images/s are below the 781 to 1,197 that timm's speed predicts" in shown
    assert re.search(r"The newest of these prices is \d+ days old \(2026-07-22\)", shown)
    assert "MB/s" not in shown, "the images fit on the instances' own disks"


def test_your_speed_counts_for_every_instance_with_that_gpu_and_other_regions_are_named() -> None:
    """Four of a card stood at a tenth of the time that the user's speed on one of them gives."""
    mine = (
        "cost",
        "mine",
        "convnext_tiny",
        "--images",
        60000,
        "--epochs",
        10,
        "--gpu-speed",
        250,
    )
    one, four, *_ = json.loads(must_work(*mine, "--json").stdout)
    assert (one["instance"], four["instance"]) == ("g5.xlarge", "g5.12xlarge")
    assert four["hours_low"] == four["hours_high"] == pytest.approx(one["hours_low"] / 4)
    assert (one["kind"], four["kind"], four["rests_on"]) == ("given", "projected", "your speed, times 4")
    shown = must_work(*mine, "--region", "eu-central-1").stdout
    (trn1,) = re.findall(r"^trn1\.2xlarge.*(?:\n .*)?", shown, re.M)
    (g6,) = re.findall(r"^g6\.xlarge.*", shown, re.M)
    assert "us-east-1" in trn1 and "us-east" not in g6, "prices of another region are named"
    assert "hightpu" not in shown, "only Trainium is shown at a price of another region"


def test_a_decision_takes_a_gpu_that_is_priced_elsewhere_and_prints_no_minus_zero() -> None:
    """It is sold on spot and by Capacity Block alone, and not in the study's region."""
    of = ("cost", "decide", "--architecture", "cnn", "--porting", 0, "--horizon", 1, "--capacity", 0)
    shown = unwrapped(*of, "--spend", 0, "--gpu", "p5e.48xlarge")
    assert "USD on p5e.48xlarge (spot, us-east-2" in shown
    assert "= 0 USD" in shown and "-0" not in shown


def test_a_volume_that_its_price_makes_too_slow_is_said() -> None:
    """Found by a reader: the hours of a g6e.xlarge take four times what a gp3 volume gives."""
    job = ("cost", "mine", "efficientnet_b0", "--images", 2_000_000, "--pixels", 512, "--epochs", 10)
    shown = unwrapped(*job)
    least = min(row["hours_low"] for row in json.loads(must_work(*job, "--json").stdout) if row["usd_volume"])
    speed = 2_200_000 * 512**2 * 10 / least / 3600 / 1e6
    assert f"read at up to {speed:,.0f} MB/s for these hours (g6e.xlarge)" in shown
    assert "A gp3 volume gives 131 unless you order more." in shown


@pytest.mark.slow
def test_the_bound_names_its_prices_and_the_preprint_only_beside_what_it_compares() -> None:
    mine = ("cost", "mine", "resnet50", "--images", 1000, "--epochs", 1, "--why")
    shown = unwrapped(*mine)
    assert (
        "on trn1.2xlarge (no training from SDK 2.30) as on g5.xlarge, at 1.34 USD/h (on demand, us-" in shown
    )
    assert re.search(
        r"times on trn2\.3xlarge, at 2\.74 USD/h \(spot, ap-southeast-4, undated\) over 0\.425 USD/h \(spot, "
        r"us-east-1, undated\); the prices are of two regions\. It rests",
        shown,
    )
    share = "So the preprint's 3 to 5 times the cost would mean that Trainium's share was"
    assert share in shown
    for gpu in ("p6-b200.48xlarge", "g5.12xlarge", "g6.xlarge"):
        other = unwrapped(*mine, "--gpu", gpu)
        assert "the preprint" not in other and "perfect. The one CNN measured" in other


def test_what_a_step_keeps_is_said_to_be_unknown_where_no_such_step_is_recorded() -> None:
    shown = unwrapped("cost", "mine", "vit_base_patch16_224", "--images", 1000, "--epochs", 1, "--why")
    assert (
        "a byte per pixel. What a step keeps on the device, and the least that it moves, are unknown" in shown
    )
    assert "audit vit_base_patch16_224 --pixels 224 --precision bf16 --record` adds one)" in shown


def test_a_job_is_priced_in_another_region() -> None:
    words = ("mine", "resnet50", "--images", 1000, "--epochs", 1, "--why", "--region", "us-west-2")
    assert rows(*words)[0]["region"] == "us-west-2"
    assert "unknown region 'us-west-9'" in refused("cost", *words[:-1], "us-west-9")


JOBS = {  # the three jobs of one engineer: words, hours on one A10G within, GB packed
    "convnext_tiny": ("--images 120000 --epochs 20", (0.5, 2.0), 6.6),
    "efficientnet_b0": ("--images 2000000 --epochs 10 --pixels 512", (10, 40), 576.7),
    "vit_base_patch16_224": ("--images 120000 --epochs 20", (1.0, 4.0), 6.6),
}


@pytest.mark.parametrize("network", JOBS)
def test_three_jobs_have_hours_within_a_factor_of_two_a_disk_and_one_gpu_or_four(
    network: str, tmp_path: Path
) -> None:
    words, (least, most), packed = JOBS[network]
    recorded = ROOT / "data/recorded"
    if network == "efficientnet_b0":  # its graph at 512 px is not recorded; a smaller picture's stands for it
        audit = tmp_path / "audit/audit.csv"
        audit.parent.mkdir()
        lines = (recorded / "audit/audit.csv").read_text().splitlines()
        of_it = [line.replace(",224,", ",512,", 1) for line in lines if line.startswith(f"{network},")]
        audit.write_text("\n".join([lines[0], *of_it]) + "\n")
        recorded = tmp_path
    called = ["mine", network, *words.split(), "--recorded", recorded]
    table = {row["instance"]: row for row in rows(*called)}
    one, four = table["g5.xlarge"], table["g5.12xlarge"]
    assert least < one["hours_low"] < one["hours_high"] < most and one["hours_high"] < 2 * one["hours_low"]
    assert four["hours_low"] == pytest.approx(one["hours_low"] / 4)
    assert one["packed_gb"] == pytest.approx(packed, abs=0.1)
    assert (one["usd_volume"] == 0) == (packed < 250) and four["usd_volume"] == 0
    assert table["trn2.3xlarge"]["hours_low"] is None, "no training speed of a CNN on trn2 is published"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet50", "--precision", "fp8"], "--precision: unknown value 'fp8'"),
        (["resnet50", "--gpu-speed", "-5"], "-5 is no speed"),
        (["resnet50", "--gpu", "a100"], "a100 is an accelerator; name an instance that has it: p4d.24xl"),
        (["resnet50", "--gpu", "g5.extralarge"], "no price with instance 'g5.extralarge'"),
        (["resnet50", "--gpu", "trn1.2xlarge", "--gpu-speed", "9"], "trn1.2xlarge has no GPU"),
        (["resnet50", "--gpu", "c7a.large"], "c7a.large has no GPU"),
        (
            ["resnet50", "--gpu", "g4dn.xlarge", "--gpu-speed", "1000", "--precision", "fp32"],
            "times what the documented fp32 peak of T4 lets through: correct it; if TF32 was on",
        ),
    ],
)
def test_a_price_that_cannot_be_made_is_refused(words: list[str], message: str) -> None:
    assert message in refused("cost", "mine", *words, "--images", 100, "--epochs", 1)


def test_a_decision_takes_any_network() -> None:
    done = cxrbench("cost", "decide", *FIVE, "--architecture", "vit_base_patch16_224")
    assert "cost ratio: 0.6667 to 0.7692 (published" in done.stdout
    assert "vit_base_patch16_224 is taken as a transformer" in done.stderr


@pytest.mark.parametrize("spend", [20_000, 1_000_000])
@pytest.mark.parametrize("network", ["vit_base_patch16_224", "transformer"])
def test_no_ratio_of_somebody_else_decides_for_a_port(network: str, spend: int) -> None:
    """The vendor's ratio is of other hardware than trn1, and of no network that was named."""
    words = [
        "--architecture",
        network,
        "--spend",
        spend,
        "--porting",
        20_000,
        "--horizon",
        12,
        "--capacity",
        1,
    ]
    shown = unwrapped("cost", "decide", *words)
    first = (
        "Not shown: by a published ratio for Trainium2 (public beta since SDK 2.33), not of your network, a"
    )
    assert (
        shown.startswith(first)
        and "Measure first. An hour of measuring costs 2.74 USD on trn2.3xlarge" in shown
    )
    row = json.loads(must_work("cost", "decide", *words, "--json").stdout)
    assert (row["verdict"], row["pays"], row["own"]) == ("not shown", "at both ends", False)
    assert {at["instance"] for at in row["measure_on"]} == {"trn2.3xlarge", "trn2.48xlarge"}


def test_two_speeds_of_ones_own_decide() -> None:
    def decided(*words: object) -> dict[str, object]:
        words = ("--architecture", "mine", "--speeds", *words, "--json")
        return json.loads(must_work("cost", "decide", *FIVE, *words).stdout)

    fast, between, slow = decided(250, 2000), decided(250, 1300), decided(250, 500)
    assert fast["ratio_high"] == pytest.approx(2.7396 / 0.4246 / 8) and fast["verdict"] == "port"
    assert fast["ratio_low"] == pytest.approx(2.235 / 1.006 / 8), "a Capacity Block over on demand"
    assert fast["own"] and fast["kind"] == "given" and fast["hardware"] == "Trainium2"
    assert between["ratio_low"] < 1 < between["ratio_high"] and between["verdict"] == "depends"
    assert slow["ratio_low"] > 1 and slow["verdict"] == "stay"
    large = decided(250, 20_000, "--trainium", "trn2.48xlarge", "--gpu", "g5.2xlarge")
    at_spot = pytest.approx(23.0631 / 0.3596 / 80)  # both of us-east-2
    assert at_spot in (large["ratio_low"], large["ratio_high"])


def test_a_ratio_of_two_prices_names_bases_and_regions() -> None:
    """A spot price of one region over an on-demand price of another was divided without a word."""
    words = ("cost", "decide", *FIVE, "--architecture", "mine", "--speeds")
    shown = unwrapped(*words, 100, 2000)
    assert shown.startswith(
        "Port: by your ratio for trn2.3xlarge (public beta since SDK 2.33), at prices of two regions, a port"
    )
    prices = "at 2.74 USD/h (spot, ap-southeast-4, undated) over 0.425 USD/h (spot, us-east-1, undated); the"
    assert f"{prices} prices are of two regions: 0.32; or 2.23 USD/h (capacity block," in shown
    shown = unwrapped(*words, 100, 900, "--gpu", "g7e.48xlarge")
    assert "at prices of two bases and two regions, a port pays" in shown
    assert "over 33.1 USD/h (on demand, us-east-1, 2026-07-20); the prices are of two bases and two" in shown
    alike = unwrapped(*words, 250, 20_000, "--trainium", "trn2.48xlarge", "--gpu", "g5.2xlarge")
    assert (
        "at prices of" not in alike and "(spot, us-east-2, undated) over 0.36 USD/h (spot, us-east-2" in alike
    )


def test_a_port_by_a_given_ratio_names_its_instance_or_that_there_is_none() -> None:
    words = ("cost", "decide", *FIVE, "--architecture", "mine", "--ratio", 0.6, 0.7)
    first = (
        "Port, if AWS supports training on your instance: by your ratio, which names no instance, a port pays"
    )
    assert unwrapped(*words).startswith(first)
    shown = unwrapped(*words, "--trainium", "trn2.3xlarge")
    assert shown.startswith("Port: by your ratio for trn2.3xlarge (public beta since SDK 2.33) a port pays")
    assert "(given: your own ratio of trn2.3xlarge over g5.xlarge)" in shown


@pytest.mark.parametrize("network", ["convnext_tiny", "efficientnet_b0"])
def test_a_network_without_a_published_ratio_is_to_be_measured_first(network: str) -> None:
    shown = unwrapped("cost", "decide", *FIVE, "--architecture", network)
    assert shown.startswith(
        "Not shown: no cost ratio is published for depthwise convolutions alone. Measure first. An "
        "hour of measuring costs 2.74 USD on trn2.3xlarge"
    )
    assert "cost ratio: unknown (" in shown and shown.endswith("= 80,000 USD: no ratio saves more")
    row = json.loads(must_work("cost", "decide", *FIVE, "--architecture", network, "--json").stdout)
    assert (row["verdict"], row["kind"], row["ratio_high"]) == ("not shown", "unknown", None)
    for capacity in (0, 1):
        little = ("--spend", 1, "--porting", 20_000, "--horizon", 12, "--capacity", capacity)
        shown = unwrapped("cost", "decide", *little, "--architecture", network)
        assert shown.startswith("Stay: a port does not pay even where Trainium costs nothing.")


def test_a_decision_may_rest_on_a_given_ratio_or_on_other_prices() -> None:
    def decided(*ratio: object) -> dict[str, object]:
        words = ("--architecture", "mine", "--ratio", *ratio, "--json")
        return json.loads(cxrbench("cost", "decide", *FIVE, *words).stdout)

    between, sure, dear = decided(0.5, 1.2), decided(0.5, 0.5), decided(0.5, 0.5, "--ongoing", 45_000)
    assert [between["saved_low"], between["saved_high"]] == pytest.approx([-16_000, 40_000])
    assert between["verdict"] == "depends"
    assert [between["break_even_from"], between["break_even_to"]] == [0.5, None]
    assert sure["saved_low"] == sure["saved_high"] == 40_000 and sure["verdict"] == "port"
    assert dear["saved_low"] == dear["saved_high"] == -5_000 and dear["verdict"] == "stay"
    shown = unwrapped("cost", "decide", *FIVE, "--architecture", "cnn", "--basis", "spot")
    assert shown.startswith(
        "Stay: by a projected ratio for Trainium (no training from SDK 2.30), not of your network, a port "
        "pays at neither end of its range. An hour of measuring costs 2.74 USD on trn2.3xlarge"
    )
    assert ENDED in shown
    assert "cost ratio: 1.163 to 1.938 (projected" in shown
    assert shown.endswith("Nothing is saved in any month: the port of 20,000 USD never pays.")
    assert "trn1.2xlarge against g5.xlarge in us-east-1 at spot, undated (catalogue snapshot" in shown
    shown = unwrapped("cost", "decide", *FIVE, "--architecture", "mine", "--ratio", 0.5, 1.2)
    assert (
        shown.startswith("It depends:")
        and "of its range only. Measure again." in shown
        and "months to break even = porting / saved = 0.5 to never" in shown
    )
    exact = ("--speeds", 250, 600, "--gpu", "g6e.xlarge")
    bought = unwrapped("cost", "decide", *FIVE, "--architecture", "cnn", *exact)
    assert "of its range only. Its ends are two prices: choose the one that you can buy." in bought
    assert "the port is complete, and paid for, on the first day; the second platform costs no" in shown
    exact = ("--speeds", 250, 600, "--gpu", "g6e.xlarge")
    bought = unwrapped("cost", "decide", *FIVE, "--architecture", "cnn", *exact)
    assert "of its range only. Its ends are two prices: choose the one that you can buy." in bought


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--architecture", "CNN"], "no published cost ratio; did you mean 'cnn'?"),
        (["--architecture", "cnn", "--gpu", "banana"], "no price with instance 'banana'"),
        (["--architecture", "cnn", "--gpu", "trn1.2xlarge"], "trn1.2xlarge has no GPU with documented peaks"),
        (["--architecture", "cn"], "architecture 'cn': no published cost ratio; did you mean 'cnn'?"),
        (["--architecture", "resnet5"], "no published cost ratio; did you mean 'resnet50'"),
        (["--architecture", "convnext_pico", "--basis", "spot"], "names no instances"),
        (["--architecture", "x", "--ratio", "0.6", "0.7", "--trainium", "trn1.2xlarge"], "that AWS supports"),
        (["--architecture", "cnn", "--trainium", "trn1.32xlarge"], "supports for training (known: trn2.3x"),
        (["--architecture", "x", "--ratio", "1", "2", "--basis", "spot"], "--basis converts the preprint's"),
        (["--architecture", "x", "--ratio", "1", "inf"], "--ratio: inf is no cost ratio"),
        (["--architecture", "nih128-64px/resnet18"], "nih128-64px/resnet18/neuron: not run yet"),
        (["--architecture", "transformer", "--basis", "spot"], "names no instances"),
        (["--architecture", "cnn", "--basis", "reserved_3y"], "no prices of trn1.2xlarge against g5.xlarge"),
        (["--architecture", "x", "--ratio", "2", "1"], "write the low end first"),
        (["--architecture", "x", "--ratio", "1", "2", "--speeds", "1", "2"], "leave one of them out"),
        (["--architecture", "x", "--speeds", "0", "2"], "0 is not a valid speed"),
        (
            ["--architecture", "x", "--speeds", "9", "9", "--trainium", "trn1.2xlarge"],
            "supports for training",
        ),
        (
            ["--architecture", "x", "--speeds", "9", "9", "--gpu", "c1.large"],
            "no price with instance 'c1.large'",
        ),
        (["--architecture", "cnn", "--ongoing", "-1"], "ongoing engineering is -1.0"),
        (["--architecture", "cnn", "--capacity", "80"], "between 0 and 1"),
        (["--architecture", "cnn", "--horizon", "0"], "horizon is 0: give the months of"),
    ],
)
def test_a_decision_without_a_ratio_is_refused(words: list[str], message: str) -> None:
    assert message in refused("cost", "decide", *FIVE, *words, "--records", CELL)


def test_the_five_numbers_are_asked_for() -> None:
    done = cxrbench("cost", "decide", given="100000\ntransformer\n20000\n12\n0.8\n")
    assert done.returncode == 0, done.stderr
    assert "18,462 to 26,667 USD" in " ".join(done.stdout.split())


def test_where_nobody_answers_all_that_is_missing_is_named_at_once() -> None:
    done = cxrbench("cost", "decide", "--capacity", 1, given="100000\n")
    missing = re.findall(r"--(\w+) is missing: ", done.stderr)
    assert done.returncode == 1 and missing == ["architecture", "porting", "horizon"], done.stderr


def test_every_command_that_reads_prices_names_a_bad_one(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(PRICES.read_text().replace("us-east-1,on_demand,0.1785,", "us-east-1,on_demand,-1,"))
    for words in (["cost", "table"], ["claims"]):
        message = refused(*words, "--prices", path)
        assert message.startswith(f"{path}:4: column usd_per_hour: ") and "'-1' must be above 0" in message


def test_the_ledger_fails_when_our_own_claim_no_longer_follows(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text((ROOT / "data/claims.yaml").read_text().replace("stated: 17.6\n", "stated: 17.7\n"))
    done = cxrbench("claims", "--file", path, "--why")
    assert done.returncode == 1 and "our claim O04 does not follow" in done.stderr
    assert "O04   does not follow" in done.stdout and "17.5781" in done.stdout


def test_a_single_estimate_is_not_called_the_cheapest() -> None:
    """At 64 px timm's speeds are too far to be scaled, so the own speed is the only one."""
    mine = ("cost", "mine", "resnet18", "--images", 7077, "--epochs", 20, "--pixels", 64, "--gpu-speed", 500)
    assert unwrapped(*mine).startswith("Estimated for A10G alone: g5.xlarge, ")


def test_the_cheapest_instance_comes_first_with_those_that_may_cost_less() -> None:
    mine = ("cost", "mine", "convnext_tiny", "--images", 60000, "--epochs", 10)
    rows = {row["instance"]: row for row in json.loads(must_work(*mine, "--json").stdout) if row["usd_low"]}
    best = min(rows.values(), key=lambda row: row["usd_low"] * row["usd_high"])
    first = unwrapped(*mine).partition(" AWS supports")[0]
    assert first.startswith(f"Cheapest by these estimates: {best['instance']}, ")
    near = {name for name, row in rows.items() if row["usd_low"] < best["usd_high"] and row is not best}
    assert near and {name for name in rows if name in first} == {best["instance"], *near}
    assert "Cheapest" not in unwrapped(*mine, "--precision", "fp32"), "no hours are known"


def test_a_region_names_the_gpus_that_it_has_no_price_of() -> None:
    mine = ("cost", "mine", "convnext_tiny", "--images", 60000, "--epochs", 10)
    shown = unwrapped(*mine, "--region", "eu-west-1")
    assert "No price of g6.xlarge, g6e.xlarge, g7e.2xlarge, p5.4xlarge is listed in eu-west-1." in shown
    assert "No price of" not in unwrapped(*mine)


def test_a_published_ratio_is_not_of_the_gpu_that_is_named() -> None:
    words = ("cost", "decide", "--architecture", "cnn", *FIVE)
    note = "--gpu g6e.xlarge sets the hour of measuring alone: the ratio is of its source's instances."
    assert note in unwrapped(*words, "--gpu", "g6e.xlarge") and "sets the hour" not in unwrapped(*words)
    own = unwrapped(*words[:2], *FIVE, "--architecture", "mine", "--ratio", 0.5, 0.9, "--gpu", "g6e.xlarge")
    assert "sets the hour" not in own
    unknown = ("cost", "decide", "--architecture", "convnext_tiny", *FIVE, "--gpu", "g6e.xlarge")
    assert "sets the hour" not in unwrapped(*unknown), "no ratio is published for it"
    assert note in unwrapped(*words, "--basis", "spot", "--gpu", "g6e.xlarge"), "converted, and as published"


def test_seeds_on_one_busy_machine_stand_together_whatever_others_used() -> None:
    """Of three busy runs two had 42 % used by others and one 43 %: the same mean stood twice."""
    shown = must_work("cost", "table", "nih128-32px-fp32/resnet18/cpu").stdout
    assert "42 % used" in " ".join(shown.split())
    over_seeds = shown.partition("SD of USD over seeds")[2]
    assert over_seeds.count("busy (43 %") == 1 and "42 %" not in over_seeds
