"""When a port pays: runs to break even, the line of indifference, and the utilisation for a reservation."""

from __future__ import annotations

import math
from typing import NamedTuple

import pandas as pd

from cxrbench.cost.comparable import both_sides, comparable
from cxrbench.cost.prices import UNDATED, newest
from cxrbench.cost.ratios import pair_prices
from cxrbench.study.config import Pricing
from cxrbench.study.errors import UserError

CHAPTER = "Training Silicon: Trn1 (Trainium) Architecture"
PORTING_USD = 20_000.0  # the chapter's 2 to 4 engineer-weeks, section 6.3.19
BREAK_EVEN_COLUMNS = [
    "case", "kind", "here", "there", "region", "basis", "as_of", "usd_here", "usd_there", "saving",
    "porting", "runs", "source", "note", "usd_here_sd", "usd_there_sd",
]  # fmt: skip


class Case(NamedTuple):
    """A published run on a GPU (``here``) and on Trainium (``there``), with its instance-hours on each.

    Hours are the source's own. Cases of one source are readings of the same comparison, and count once.
    """

    name: str
    here: str
    hours_here: float
    there: str
    hours_there: float
    source: str


_GPU_HOURS, _BLOG = 8 * 24 * 30, "AWS blog, Trainium and Amazon SageMaker"
CASES = tuple(
    Case(name, "p4d.24xlarge", here, "trn1.32xlarge", there, source)
    for name, here, there, source in (
        ("30B model, run times as printed", _GPU_HOURS, 16 * 24 * 18, CHAPTER),
        ("30B model, equal tokens", _GPU_HOURS, 16 * 24 * 30 * 42 / 48, CHAPTER),
        ("fine-tuning", 6553 / 3600, 6033 / 3600, _BLOG),
    )
)


def break_even_table(costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return the runs until a port pays at every price, for published cases and the networks of ``costs``.

    ``costs`` are rows of cost.csv. Infinite ``runs``: there is no saving. NaN: a side was not run or has
    no price, and ``note`` names it. ``usd_*_sd`` is over seeds; none for published runs.
    """
    parts = [
        _published(case, prefix, prices, pricing)
        for case in CASES
        for prefix in ("", "ml.")  # SageMaker's instances have prices of their own
    ]
    for (dataset, architecture), some in costs.groupby(["dataset", "architecture"]):
        ours = _own(some, prices, pricing)
        parts.append(ours.assign(case=f"{dataset} {architecture}", source="this paper's cells"))
    return pd.concat(parts, ignore_index=True).reindex(columns=BREAK_EVEN_COLUMNS)


def _published(case: Case, prefix: str, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    pair = (prefix + case.here, prefix + case.there)
    at = pair_prices(prices, pair, pricing.region)
    usd = at["usd"] * case.hours_here, at["usd_other"] * case.hours_there
    rows = _with_runs(at, pair, *usd, "published hours times listed prices")
    return rows.assign(case=case.name, kind="published", source=case.source)


def _own(costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return what comparable runs of a network cost on the GPU and on Trainium at every price."""
    usable, platforms, missing = both_sides(costs)
    if missing:
        return _not_run(costs, missing, platforms, pricing)
    runs, differs = comparable(usable)
    ends = [runs[runs["platform"] == name].iloc[0] for name in platforms]
    pair = (ends[0]["instance"], ends[1]["instance"])
    at = pair_prices(prices, pair, pricing.region)
    rates = [at[usd] / end["usd_per_hour"] for usd, end in zip(("usd", "usd_other"), ends, strict=True)]
    here, other = (rate * end["cost_to_usable"] for rate, end in zip(rates, ends, strict=True))
    here_sd, other_sd = (rate * end["usd_sd"] for rate, end in zip(rates, ends, strict=True))
    note = "mean over seeds, failed attempts charged" + (f"; {differs}" if differs else "")
    rows = _with_runs(at, pair, here, other, note)
    kind = " and ".join(dict.fromkeys(end["kind"] for end in ends))
    return rows.assign(kind=kind, usd_here_sd=here_sd, usd_there_sd=other_sd)


def _not_run(
    costs: pd.DataFrame, missing: list[str], platforms: tuple[str, str], pricing: Pricing
) -> pd.DataFrame:
    """Return the row of a network that did not run on both platforms."""
    run = costs[costs["platform"].isin(platforms)]
    here, there = (
        " and ".join(run.loc[run["platform"] == name, "instance"].unique()) or pricing.instances.get(name, "")
        for name in platforms
    )
    row = {
        "kind": " and ".join(run["kind"].unique()) or "not run", "here": here, "there": there,
        "region": pricing.region, "basis": pricing.basis, "as_of": "", "porting": PORTING_USD,
        "note": f"not run: {', '.join(missing)}",
    }  # fmt: skip
    return pd.DataFrame([row])


def _with_runs(
    at: pd.DataFrame, pair: tuple[str, str], here: pd.Series, there: pd.Series, note: str
) -> pd.DataFrame:
    """Return rows of :func:`~cxrbench.cost.ratios.pair_prices` with USD per run here and there, and runs."""
    runs = [break_even_runs(PORTING_USD, *usd) for usd in zip(here, there, strict=True)]
    return at[["region", "basis", "as_of"]].assign(
        here=pair[0],
        there=pair[1],
        usd_here=here,
        usd_there=there,
        saving=here - there,
        porting=PORTING_USD,
        runs=runs,
        note=[note if math.isfinite(number) else "never: no saving" for number in runs],
    )


def break_even_runs(porting: float, usd_here: float, usd_there: float) -> float:
    """Return the runs after which ``porting`` USD are earned back; infinite when a run there saves nothing.

    ``usd_here`` and ``usd_there`` are USD per run before and after the port.
    """
    saving = amount("cost per run here", usd_here) - amount("cost per run there", usd_there)
    return math.inf if saving <= 0 else float(math.ceil(amount("porting cost", porting) / saving))


def arithmetic(days: float, usd_per_day: float, here: float, there: float) -> list[str]:
    """Return the break-even of a user's own numbers, line by line: engineer-days, and USD per day and run."""
    porting = amount("porting days", days) * amount("rate per day", usd_per_day)
    runs = break_even_runs(porting, here, there)
    answer = "never: a run there saves nothing" if math.isinf(runs) else f"after {runs:,.0f} runs"
    return [
        f"porting = days x rate = {days:g} x {usd_per_day:,.0f} = {porting:,.0f} USD",
        f"saving per run = {here:,.2f} - {there:,.2f} = {here - there:,.2f} USD",
        f"runs to break even = porting / saving, rounded up: {answer}",
    ]


def reservations(prices: pd.DataFrame) -> pd.DataFrame:
    """Return the utilisation from which each reservation pays: its newest rate over that on demand.

    A reservation is paid for every hour of its term, an on-demand instance for the hours it runs: the first
    is cheaper where the instance would run more than ``utilisation`` (0 to 1) of the time.
    """
    latest = newest(prices)
    latest["as_of"] = latest["as_of"].replace("", UNDATED)
    reserved = latest[latest["basis"].str.startswith("reserved")]
    demand = latest[latest["basis"] == "on_demand"]
    both = reserved.merge(demand, on=["instance", "region"], suffixes=("", "_on_demand"))
    return pd.DataFrame(
        {
            **both[["instance", "region", "basis"]],
            "usd_reserved": both["usd_per_hour"],
            "usd_on_demand": both["usd_per_hour_on_demand"],
            "as_of": both["as_of"] + " and " + both["as_of_on_demand"],
            "utilisation": both["usd_per_hour"] / both["usd_per_hour_on_demand"],
        }
    )


def amount(name: str, value: float) -> float:
    """Return ``value``; UserError unless it is finite and zero or more."""
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{name} is {value}: it must be a finite number, zero or more")
    return value
