"""What ``cxrbench cost mine`` says about a job: its size, what its hours rest on, and the rooflines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cxrbench.cli.cost_columns import duration
from cxrbench.cli.cost_words import with_support
from cxrbench.cli.words import span
from cxrbench.study.platforms import TRAINIUM

if TYPE_CHECKING:
    import pandas as pd

    from cxrbench.cost.mine import Training
    from cxrbench.cost.published import Published
    from cxrbench.study.config import Pricing

# data/claims.yaml, O08: one CNN of 2.5 M parameters at 64 px, on one core of a trn1.2xlarge with SDK 2.30.
_REACHED = "1.1 to 1.2 %"


def cheapest(table: pd.DataFrame) -> list[str]:
    """A sentence with the instance whose dollars have the lowest geometric middle, and whose ranges overlap
    with its own; none where no hours are known."""
    known = table[table["usd_low"].notna()]
    if known.empty:
        return []
    best = known.loc[(known["usd_low"] * known["usd_high"]).idxmin()]
    others = known[known["instance"] != best["instance"]]
    near = ", ".join(others.loc[others["usd_low"] < best["usd_high"], "instance"])
    overlap = f" Its range overlaps those of {near}, so one of these may cost less." if near else ""
    time, usd = duration(best["hours_low"], best["hours_high"]), span(best["usd_low"], best["usd_high"])
    several = known["accelerator"].nunique() > 1  # a speed times its number of GPUs is no other estimate
    opening = "Cheapest by these estimates" if several else f"Estimated for {best['accelerator']} alone"
    return [f"{opening}: {best['instance']}, {usd} USD in {time}.{overlap}"]


def the_job(training: Training, table: pd.DataFrame) -> list[str]:
    """The size of a job in words, and what its hours rest on where they were scaled."""
    from cxrbench.cost.estimate import AUDITED_BATCH
    from cxrbench.cost.published import SOURCE, quality

    network, gib = training.network, training.work.step_gib
    if gib is not None:
        step = f"; a step of {AUDITED_BATCH} images keeps at least {gib:.1f} GiB on the device."
    else:
        arguments = f"{network.architecture} --pixels {network.pixels} --precision {network.precision}"
        step = (
            ". What a step keeps on the device, and the least that it moves, are unknown: no "
            f"{network.precision} step of {AUDITED_BATCH} images is recorded (`cxrbench audit {arguments} "
            "--record` adds one)."
        )
    lines = [
        f"{network.architecture}, {network.pixels} px, {network.precision}: {training.images:,} images x "
        f"{training.epochs} epochs, {training.scored:,} images scored after each (a third of the time of a "
        f"training image). Packed: {training.packed_gb:,.1f} GB, a byte per pixel{step}"
    ]
    timed = _published(training, table)
    if timed and table["rests_on"].fillna("").str.startswith("timm").any():
        lines.append(
            f"timm, scaled: {SOURCE}, {timed.measured:,.0f} images/s at {timed.pixels} px, by area to "
            f"{network.pixels} px and to each GPU between the ratios of bandwidths and of peaks; several "
            f"GPUs are that many times one, if reading images and the link between GPUs keep up. {quality()}"
        )
    return lines


def _published(training: Training, table: pd.DataFrame) -> Published | None:
    """timm's speed of the network on the GPU of the first row of ``table``."""
    from cxrbench.cost.devices import DEVICES
    from cxrbench.cost.published import published_speed

    network = training.network
    return published_speed(network.architecture, network.pixels, DEVICES[table["accelerator"].iloc[0]])


def shortfall(training: Training, table: pd.DataFrame) -> list[str]:
    """A sentence where the user's speed lies outside what timm's predicts, and what that means for the
    other rows of ``table``."""
    timed = _published(training, table)
    if not timed or not training.speed or training.network.precision == "fp32":
        return []
    cores = int(table["accelerators"].iloc[0])
    low, high = timed.low * cores, timed.high * cores
    if low <= training.speed <= high:
        return []
    slower, why = span(low / training.speed, high / training.speed), ""
    if training.speed < low:
        why = (
            ": look at the input, the batch and the precision. What holds this GPU back may hold back other "
            f"GPUs: then their hours and dollars are {slower} times those of the table"
        )
    side = "below" if why else "above"
    return [
        f"Your {training.speed:,.0f} images/s are {side} the {span(low, high)} that timm's speed "
        f"predicts{why}."
    ]


def volume_speed(training: Training, table: pd.DataFrame) -> list[str]:
    """A sentence on how fast a network volume must be, where the fastest hours ask for more than its price
    includes."""
    from cxrbench.cost.mine import EBS_MB_S

    rows = table[table["usd_volume"] > 0]
    needed = 1000 * training.packed_gb * training.epochs / (3600 * rows["hours_low"])
    if not (needed > EBS_MB_S).any():
        return []
    instance = rows.loc[needed.idxmax(), "instance"]
    return [
        f"A network volume must be read at up to {needed.max():,.0f} MB/s for these hours ({instance}), "
        f"because the images are read in every epoch. A gp3 volume gives {EBS_MB_S:.0f} unless you order "
        "more."
    ]


def at_equal_shares(
    training: Training, needed: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing
) -> list[str]:
    """The cost of an image on Trainium over the GPU where both reach equal fractions of their rooflines,
    and what the preprint's ratio then says of the shares.

    Of the study's Trainium instance, which the preprint's ratio is of, and of the first of
    :func:`~cxrbench.cost.ratios.thresholds`.
    """
    from cxrbench.cost.estimate import AUDITED_BATCH, equal_shares
    from cxrbench.cost.prices import NoPrice, price
    from cxrbench.cost.ratios import two_prices

    where, precision = (pricing.region, pricing.basis, pricing.as_of), training.network.precision
    try:
        gpu = price(prices, training.gpu, *where).to_dict()
        chip = price(prices, pricing.instances[TRAINIUM[0]], *where).to_dict()
    except (KeyError, NoPrice):
        return []
    ratio = equal_shares(training.work, precision, chip, gpu)
    if ratio is None:
        return []
    pair = chip | {f"{name}_gpu": value for name, value in gpu.items()} | {"mixed": ""}
    also = ""
    if len(needed):
        row = needed.iloc[0].to_dict()
        spot = gpu | {"usd_per_hour": row["usd_per_hour_gpu"]}
        times = equal_shares(training.work, precision, row, spot)
        also = f"; {times:.2f} times on {row['instance']}, at {two_prices(row)}"
    return [
        f"Bound: where both reach the same share of their rooflines, an image costs {ratio:.2f} times as "
        f"much on {with_support(chip['instance'], prices)} as on {gpu['instance']}, at {two_prices(pair)}"
        f"{also}. It rests on documented peaks and bandwidths, those of GPUs second hand, and on the least "
        f"traffic of a step of {AUDITED_BATCH} images, all fusions perfect. "
        f"{_of_the_preprint(ratio, gpu, chip, pricing.basis)}The one CNN measured in training on a "
        f"NeuronCore reached {_REACHED} of its bf16 peak (published, SDK 2.30)."
    ]


def _of_the_preprint(ratio: float, gpu: dict[str, Any], chip: dict[str, Any], basis: str) -> str:
    """What the preprint's ratio says of the shares; empty but for what it compares, trn1 and one A10G."""
    from cxrbench.cost.ratios import PREPRINT_RATIO

    compared = chip["accelerator"], gpu["accelerator"], gpu["accelerators"], basis
    if compared != ("Trainium", "A10G", 1, "on_demand"):
        return ""
    low, high = PREPRINT_RATIO.low / ratio, PREPRINT_RATIO.high / ratio
    return (
        f"So the preprint's {PREPRINT_RATIO.low:g} to {PREPRINT_RATIO.high:g} times the cost would mean that "
        f"{chip['accelerator']}'s share was {low:.1f} to {high:.1f} times smaller than A10G's. "
    )
