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

# Claim D07 and docs/neuron.md have the sources.
TRAINIUM_ENDED = (
    "AWS supports no training on trn1 from Neuron SDK 2.30 on. The successor, TorchNeuron, is a public beta, "
    "for trn2 and trn3 only."
)
_COMPILED = (  # data/reported.csv, claim K13
    "The first compilation of a small CNN on trn1.2xlarge with SDK 2.30 took 5 to 44 minutes by two pages of "
    "one tutorial (published)."
)
SPOT_ASSUMES = (
    "interruptions come at the given rates, which AWS does not publish",
    "waiting for an instance is neither paid nor counted",
    "writing a checkpoint takes no time",
)
_VERDICTS = {
    "port": "Port: it pays at both ends of the range.",
    "stay": "Stay: a port pays at neither end of the range.",
    "depends": "It depends: a port pays at one end of the range only. Measure the cost ratio first.",
}


def supported(instances: pd.Series, prices: pd.DataFrame) -> list[str]:
    """Return the sentence on training that AWS no longer supports where it concerns one of ``instances``."""
    from cxrbench.cost.devices import DEVICES

    accelerators = prices.loc[prices["instance"].isin(instances), "accelerator"].unique()
    ended = any(DEVICES[name].training == "before SDK 2.30" for name in accelerators if name in DEVICES)
    return [TRAINIUM_ENDED] if ended else []


def when_it_pays(table: pd.DataFrame, training: Training) -> list[str]:
    """Return from which speed on Trainium pays for the rows of :func:`~cxrbench.cost.mine.mine_table`, how
    many runs a port is, and what an hour of trial costs."""
    from cxrbench.cost.devices import DEVICES
    from cxrbench.cost.porting import PORTING_USD

    on_neuron = table["accelerator"].map(lambda name: DEVICES[name].family == "neuron")
    rows = table[on_neuron & table["price_ratio"].notna()]
    if rows.empty:
        return []
    here, there = table.iloc[0], rows.iloc[0]
    at = f" ({there['price_ratio'] * training.speed:,.0f} images/s)" if training.speed else ""
    pays = (
        f"Trainium pays only above {there['price_ratio']:.2f} times the images/s of {training.gpu}{at}, on "
        f"{there['instance']}"
    )
    port = f"a port of {PORTING_USD:,.0f} USD"
    if math.isnan(here["usd_high"]):
        runs = f"{port[0].upper()}{port[1:]} is so many runs: unknown without --gpu-images-per-second."
        pays += "."
    else:
        runs = ""
        pays += f"; {port} is {PORTING_USD / here['usd_high']:,.0f} such runs."
    trial = f"An hour of trial on {there['instance']} costs {there['usd_per_hour']:.2f} USD. {_COMPILED}"
    return [*filter(None, [pays, runs]), trial]


def reasoning(ratio: Ratio, given: Numbers, decided: Decision) -> list[str]:
    """Return a decision, what AWS supports, and then the arithmetic line by line."""
    worst, best = (f"{end:,.0f}" for end in (decided.saved_low, decided.saved_high))
    lines = [
        _VERDICTS[decided.verdict],
        TRAINIUM_ENDED,
        f"cost ratio: {span(ratio.low, ratio.high, 'seen')} ({ratio.kind}: {ratio.source})",
        f"saved per month = spend x capacity x (1 - ratio) - ongoing = {given.spend:,.0f} x "
        f"{given.capacity:g} x (1 - ratio) - {given.ongoing:,.0f} = "
        f"{' to '.join(dict.fromkeys([worst, best]))} USD",
    ]
    even = span(decided.break_even_from, decided.break_even_to, "one")
    if decided.saved_high <= 0:
        return [*lines, f"Nothing is saved in any month: the port of {given.porting:,.0f} USD never pays."]
    return [
        *lines,
        f"net over {given.months:g} months = saved x months - porting = {decided.net_low:,.0f} to "
        f"{decided.net_high:,.0f} USD",
        f"months to break even = porting / saved = {even}",
        "Assumed: the port is complete, and paid for, on the first day"
        + ("." if given.ongoing else "; the second platform costs no engineering afterwards."),
    ]


def arithmetic(days: float, usd_per_day: float, here: float, there: float) -> list[str]:
    """Return after how many runs a port pays, then the arithmetic: engineer-days, USD per day and run."""
    from cxrbench.cost.porting import break_even_runs

    porting = days * usd_per_day
    runs = break_even_runs(porting, here, there)
    never = "A port never pays: a run there saves nothing."
    return [
        never if math.isinf(runs) else f"A port pays after {runs:,.0f} runs.",
        f"porting = days x rate = {days:g} x {usd_per_day:,.0f} = {porting:,.0f} USD",
        f"saving per run = {here:,.2f} - {there:,.2f} = {here - there:,.2f} USD",
        "runs = porting / saving, rounded up",
    ]
