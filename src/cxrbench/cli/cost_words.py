"""The sentences of ``cxrbench cost``: the answer first, then its arithmetic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from cxrbench.cli.words import span

if TYPE_CHECKING:
    import pandas as pd

    from cxrbench.cost.mine import Training
    from cxrbench.cost.porting import Decision, Numbers
    from cxrbench.cost.ratios import Ratio
    from cxrbench.study.config import Pricing

# Claim D07 and docs/neuron.md have the sources.
TRAINIUM_ENDED = (
    "AWS supports no training on trn1 from Neuron SDK 2.30 on. The successor, TorchNeuron, is a public beta, "
    "for trn2 and trn3 only."
)
_COMPILED = (  # data/reported.csv, claim K13
    "The first compilation of a small CNN on trn1.2xlarge with SDK 2.30 took 5 to 44 minutes by two pages of "
    "one tutorial (published)."
)
_BASES = {
    "spot": "on spot",
    "on_demand": "on demand",
    "capacity_block": "paid in advance for whole days (Capacity Block)",
}


def supported(instances: pd.Series, prices: pd.DataFrame) -> list[str]:
    """The sentence on training that AWS no longer supports where it concerns one of ``instances``."""
    from cxrbench.cost.devices import DEVICES

    accelerators = prices.loc[prices["instance"].isin(instances), "accelerator"].unique()
    ended = any(DEVICES[name].training == "before SDK 2.30" for name in accelerators if name in DEVICES)
    return [TRAINIUM_ENDED] if ended else []


def with_support(instance: str, prices: pd.DataFrame) -> str:
    """The name of an instance; in brackets what is said of its support where training on it ended."""
    from cxrbench.cost.devices import DEVICES

    accelerators = prices.loc[prices["instance"] == instance, "accelerator"].unique()
    ended = [DEVICES[name].support for name in accelerators if name in DEVICES]
    return f"{instance} ({ended[0]})" if ended and ended[0].startswith("no training") else instance


def when_it_pays(
    table: pd.DataFrame, training: Training, needed: pd.DataFrame, block: pd.DataFrame
) -> list[str]:
    """From which speed on Trainium pays, on the first instance of
    :func:`~cxrbench.cost.ratios.thresholds` and by its capacity ``block``, how many runs a port is, and
    what an hour of measuring costs."""
    from cxrbench.cost.porting import PORTING_USD
    from cxrbench.cost.ratios import two_prices

    lines = []
    for rows in (needed.head(1), block):
        for row in rows.to_dict("records"):
            how = _BASES.get(row["basis"], row["basis"].replace("_", " "))
            speed = f" ({row['price_ratio'] * training.speed:,.0f} images/s)" if training.speed else ""
            lines.append(
                f"On {row['instance']}, {how}, Trainium pays only above {row['price_ratio']:.2f} times the "
                f"images/s of {training.gpu}{speed}: {two_prices(row)}."
            )
    usd, port = table["usd_high"].iloc[0], f"A port of {PORTING_USD:,.0f} USD"
    unknown = "how many of these runs is unknown without --gpu-speed"
    lines.append(
        f"{port} would pay for {unknown if math.isnan(usd) else f'{PORTING_USD / usd:,.0f} such runs'}."
    )
    return [*lines, *trial(needed), _COMPILED]


def on_spot(table: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> list[str]:
    """The hours and USD of the GPU instance, the first row of ``table``, with interruptions on spot;
    nothing where its hours are unknown or it has no spot price."""
    from cxrbench.cost.prices import NoPrice
    from cxrbench.cost.ratios import where
    from cxrbench.cost.spot import RATES, spot_table

    gpu = table.iloc[0]
    if math.isnan(gpu["hours_low"]):
        return []
    try:
        least, most = (
            spot_table(gpu[f"hours_{end}"], gpu["instance"], prices, pricing) for end in ("low", "high")
        )
    except NoPrice:
        return []
    low, high = least.iloc[0].to_dict(), most.iloc[-1].to_dict()
    return [
        f"On spot, {gpu['instance']} is expected to take {span(low['factor'], high['factor'], 'seen')} times "
        f"these hours, for {span(low['usd'], high['usd'])} USD at {low['usd_per_hour']:.3g} USD/h "
        f"({where(low)}), with {RATES[0]:g} to {RATES[-1]:g} interruptions an hour (AWS publishes no rates) "
        "and 5 minutes between checkpoints and for a restart. Waiting for an instance is not counted."
    ]


def trial(needed: pd.DataFrame) -> list[str]:
    """The cost of an hour of measuring on the cheapest supported Trainium instance and on the GPU; the
    rows are those of :func:`~cxrbench.cost.ratios.thresholds`."""
    from cxrbench.cost.devices import DEVICES
    from cxrbench.cost.ratios import where

    if needed.empty:
        return []
    first = needed.iloc[0].to_dict()
    support = DEVICES[first["accelerator"]].support
    return [
        f"An hour of measuring costs {first['usd_per_hour']:.2f} USD on {first['instance']} ({support}; "
        f"{where(first)}) and {first['usd_per_hour_gpu']:.2f} USD on {first['instance_gpu']} "
        f"({where(first, '_gpu')})."
    ]


def age_of(as_of: pd.Series, where: str = "of these prices") -> str:
    """The age of the newest price by its day, and how to renew prices; ``where`` says which they are."""
    from datetime import UTC, date, datetime

    dated = [text for text in as_of.dropna() if text[:1].isdigit()]
    if not dated:
        return "No price here has a date: `cxrbench cost refresh` reads today's."
    newest = max(text[:10] for text in dated)
    days = (datetime.now(UTC).date() - date.fromisoformat(newest)).days
    return f"The newest {where} is {days} days old ({newest}): `cxrbench cost refresh` reads today's."


def reasoning(ratio: Ratio, given: Numbers, decided: Decision, needed: pd.DataFrame) -> list[str]:
    """A decision, what measuring costs, what AWS supports, and then the arithmetic line by line."""
    head = [_verdict(ratio, decided), *([] if ratio.own else trial(needed)), TRAINIUM_ENDED]
    if ratio.kind == "unknown":
        return [
            *head,
            f"cost ratio: unknown ({ratio.source})",
            f"saved per month, at a ratio of zero = spend x capacity - ongoing = {given.spend:,.0f} x "
            f"{given.capacity:g} - {given.ongoing:,.0f} = {decided.saved_high:,.0f} USD: no ratio saves more",
        ]
    worst, best = (f"{end:,.0f}" for end in (decided.saved_low, decided.saved_high))
    lines = [
        *head,
        f"cost ratio: {span(ratio.low, ratio.high, 'seen')} ({ratio.kind}: {ratio.source})",
        f"saved per month = spend x capacity x (1 - ratio) - ongoing = {given.spend:,.0f} x "
        f"{given.capacity:g} x (1 - ratio) - {given.ongoing:,.0f} = "
        f"{' to '.join(dict.fromkeys([worst, best]))} USD",
    ]
    net = dict.fromkeys(f"{end:,.0f}" for end in (decided.net_low, decided.net_high))
    even = span(decided.break_even_from, decided.break_even_to, "one")
    if decided.saved_high <= 0:
        return [*lines, f"Nothing is saved in any month: the port of {given.porting:,.0f} USD never pays."]
    return [
        *lines,
        f"net over {given.months:g} months = saved x months - porting = {' to '.join(net)} USD",
        f"months to break even = porting / saved = {even}",
        "Assumed: the port is complete, and paid for, on the first day"
        + ("." if given.ongoing else "; the second platform costs no engineering afterwards."),
    ]


def _verdict(ratio: Ratio, decided: Decision) -> str:
    """The verdict as a sentence that names what it rests on and the hardware it is about."""
    from cxrbench.cost.devices import DEVICES

    if ratio.kind == "unknown":
        if decided.verdict == "stay":
            return "Stay: a port does not pay even where Trainium costs nothing."
        return "Not shown: no cost ratio is published for depthwise convolutions alone. Measure first."
    chip = DEVICES.get(ratio.hardware)
    hardware = f" for {ratio.instance or chip.name} ({chip.support})" if chip else ""
    whose = f"your ratio{hardware}" if ratio.own else f"a {ratio.kind} ratio{hardware}, not of your network,"
    if ratio.own and not chip:
        whose += ", which names no instance,"
    if ratio.mixed:
        whose += f", at prices of {ratio.mixed},"
    pays = f"by {whose} a port pays {decided.pays} of its range"
    if ratio.low == ratio.high:
        pays = f"by {whose} a port {'pays' if decided.net_low > 0 else 'does not pay'}"
    if decided.verdict == "not shown":
        return f"Not shown: {pays}, and no other ratio is known. Measure first."
    if decided.verdict == "depends":
        then = (
            "Its ends are two prices: choose the one that you can buy"
            if ratio.two_prices
            else "Measure again"
        )
        return f"It depends: {pays} only. {then}."
    if decided.verdict == "port" and chip is None:
        return f"Port, if AWS supports training on your instance: {pays}."
    if decided.verdict == "stay" and decided.pays != "at neither end":
        return f"Stay: AWS supports no training there, though {pays}."
    return f"{decided.verdict.capitalize()}: {pays}."
