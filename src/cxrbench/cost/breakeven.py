"""When porting pays: runs to break even, the line of indifference, and a decision from five numbers.

The sources' decision tables (the chapter's decision framework, CloudExpat's checklist, CloudRoute's
scenarios) sort by spend, architecture, porting budget, horizon and capacity; :func:`decide` takes exactly
these and answers with the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from cxrbench.cost.comparable import comparable
from cxrbench.cost.prices import UNDATED, newest
from cxrbench.cost.regimes import Regime, reprice
from cxrbench.errors import UserError, nearest


def porting_usd(days: float, usd_per_day: float) -> float:
    """What a port costs: engineer days times the rate of a day."""
    return _amount("porting days", days) * _amount("rate per day", usd_per_day)


def break_even_runs(porting: float, usd_here: float, usd_there: float) -> float:
    """Runs after which ``porting`` USD are earned back; infinite when a run there saves nothing.

    ``usd_here`` and ``usd_there`` are USD per run before and after the port.
    """
    saving = _amount("cost per run here", usd_here) - _amount("cost per run there", usd_there)
    return math.inf if saving <= 0 else float(math.ceil(_amount("porting cost", porting) / saving))


def arithmetic(
    days: float | None, usd_per_day: float | None, here: float | None, there: float | None
) -> list[str]:
    """Break-even of one's own numbers, line by line; UserError names the number that is missing."""
    named = {"--days": days, "--usd-per-day": usd_per_day, "--here": here, "--there": there}
    if missing := [name for name, value in named.items() if value is None]:
        raise UserError(f"{missing[0]} is missing: break-even needs {', '.join(named)}")
    porting = porting_usd(*(float(named[name] or 0) for name in ("--days", "--usd-per-day")))
    now, after = (float(named[name] or 0) for name in ("--here", "--there"))
    runs = break_even_runs(porting, now, after)
    answer = "never: a run there saves nothing" if math.isinf(runs) else f"after {runs:,.0f} runs"
    return [
        f"porting = days x rate = {days:g} x {usd_per_day:,.0f} = {porting:,.0f} USD",
        f"saving per run = {now:,.2f} - {after:,.2f} = {now - after:,.2f} USD",
        f"runs to break even = porting / saving, rounded up: {answer}",
    ]


def indifference(porting: float, runs: Iterable[float]) -> pd.DataFrame:
    """The line on which porting neither pays nor costs: columns ``runs``, ``usd_saved_per_run``.

    Above it (more saved per run, or more runs) porting pays.
    """
    runs = [_amount("runs", number) for number in runs]
    if not all(runs):
        raise UserError("0 runs: the line of indifference begins at a positive number of runs")
    return pd.DataFrame({"runs": runs, "usd_saved_per_run": [_amount("porting", porting) / r for r in runs]})


@dataclass(frozen=True)
class Ratio:
    """Cost on Trainium over cost on the GPU for the same work, as a range, and where it is from."""

    low: float
    high: float
    kind: str  # measured, proxy, projected or published
    source: str

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high:
            raise UserError(f"cost ratio {self.low} to {self.high}: write low and high, both zero or more")


# 30 to 50 % more work per dollar is a cost of 1/1.5 to 1/1.3, not of 0.5 to 0.7.
PUBLISHED = {
    "transformer": Ratio(
        1 / 1.5, 1 / 1.3, "published",
        "AWS's 30 to 50 % better price-performance of Trainium2, as quoted by CloudRoute, Trainium vs GPU",
    ),
    "cnn": Ratio(
        3.0, 5.0, "published",
        "Fisher, medRxiv 2025.12.23.25342933, abstract: trn1 against g5 for CNN training",
    ),
}  # fmt: skip


def ratio_of_cells(costs: pd.DataFrame, dataset: str, architecture: str, ours: str, baseline: str) -> Ratio:
    """The cost ratio of two platforms from cost rows: lowest to highest over seeds, with its kind.

    Only :func:`~cxrbench.cost.comparable.comparable` runs; what still differs stands in the source.
    """
    here = costs[(costs["dataset"] == dataset) & (costs["architecture"] == architecture)]
    usable = here[here["platform"].isin((ours, baseline)) & (here["status"] == "ok")]
    runs, differs = comparable(usable)
    usd = {platform: runs[runs["platform"] == platform] for platform in (ours, baseline)}
    for platform, rows in usd.items():
        if rows.empty:
            raise UserError(
                f"no usable cell {dataset}/{architecture}/{platform}: not run yet, so its cost ratio is not "
                "known; record one or give the ratio yourself"
            )
    kinds = {kind for rows in usd.values() for kind in rows["kind"]}
    there, base = usd[ours]["usd_total"], usd[baseline]["usd_total"]
    return Ratio(
        there.min() / base.max(), there.max() / base.min(),
        "measured" if kinds == {"measured"} else "proxy",
        f"cells {dataset}/{architecture}" + (f"; {differs}" if differs else ""),
    )  # fmt: skip


def repriced_ratio(
    ratio: Ratio,
    prices: pd.DataFrame,
    pair: tuple[str, str],
    published_at: Regime,
    asked: Regime,
    region: str,
) -> Ratio:
    """``ratio`` of the pair (Trainium instance, GPU instance) at other prices, its run times unchanged."""
    told = reprice((ratio.low, ratio.high), prices, *pair, published_at, asked, region)
    source = f"{ratio.source}; run times unchanged, {' against '.join(pair)} in {region} at {asked}"
    return Ratio(*told.ratio, ratio.kind, source)


@dataclass(frozen=True)
class Decision:
    """The answer to :func:`decide`. Ranges run from the worst to the best end of the cost ratio."""

    verdict: str  # port, stay, depends
    saving_per_month: tuple[float, float]
    net_over_horizon: tuple[float, float]
    months_to_break_even: tuple[float, float]
    arithmetic: tuple[str, ...]


def decide(
    spend: float,
    architecture: str | Ratio,
    porting: float,
    horizon_months: float,
    capacity: float,
    ongoing: float = 0.0,
) -> Decision:
    """Whether to port, from the five numbers of the sources' decision tables and what a port goes on costing.

    ``spend``: USD per month paid for GPU training now. ``architecture``: a kind in :data:`PUBLISHED`, or
    a :class:`Ratio` of one's own. ``porting``: USD. ``horizon_months``: how long the model will be
    trained. ``capacity``: share (0 to 1) of that work for which Trainium capacity can be had. ``ongoing``:
    USD per month of engineering that the second platform needs as long as it is used.
    """
    ratio = architecture if isinstance(architecture, Ratio) else published(architecture)
    amounts = {"spend": spend, "porting budget": porting, "horizon": horizon_months}
    for name, value in (amounts | {"ongoing engineering": ongoing}).items():
        _amount(name, value)
    if not 0 <= capacity <= 1:
        raise UserError(f"capacity is {capacity}: it is the share of the work, between 0 and 1")
    saved = [spend * capacity * (1 - end) - ongoing for end in (ratio.high, ratio.low)]
    net = [usd * horizon_months - porting for usd in saved]
    months = [math.inf if usd <= 0 else porting / usd for usd in saved]
    verdict = "port" if net[0] > 0 else "stay" if net[1] <= 0 else "depends"
    lines = (
        f"cost ratio {ratio.low:.2f} to {ratio.high:.2f} ({ratio.kind}: {ratio.source})",
        f"ongoing engineering of a second platform: {ongoing:,.0f} USD per month"
        + ("" if ongoing else ", an assumption"),
        f"saved per month = spend x capacity x (1 - ratio) - ongoing = {spend:,.0f} x {capacity:g} x (1 - "
        f"{ratio.high:.2f} to {ratio.low:.2f}) - {ongoing:,.0f} = {saved[0]:,.0f} to {saved[1]:,.0f} USD",
        f"net over {horizon_months:g} months = saved x months - porting = {net[0]:,.0f} to {net[1]:,.0f} USD",
        f"months to break even = porting / saved = {_months(months[0])} to {_months(months[1])}",
        _VERDICTS[verdict],
    )
    return Decision(verdict, (saved[0], saved[1]), (net[0], net[1]), (months[0], months[1]), lines)


_VERDICTS = {
    "port": "port: it pays at both ends of the range",
    "stay": "stay: it pays at neither end of the range",
    "depends": "depends: it pays at one end of the range only; measure the cost ratio on this network first",
}


def _months(value: float) -> str:
    return "never" if math.isinf(value) else f"{value:.1f}"


def published(architecture: str) -> Ratio:
    """The published ratio of a kind of network in :data:`PUBLISHED`; UserError with the nearest name."""
    if architecture not in PUBLISHED:
        raise UserError(
            f"architecture '{architecture}': no published cost ratio{nearest(architecture, PUBLISHED)} "
            f"(known: {', '.join(PUBLISHED)}); give your own ratio, low and high"
        )
    return PUBLISHED[architecture]


RESERVATION_COLUMNS = [
    "instance", "region", "basis", "usd_reserved", "usd_on_demand", "as_of", "utilisation",
]  # fmt: skip


def reservations(prices: pd.DataFrame) -> pd.DataFrame:
    """The utilisation at which each reservation pays, at the newest prices: reserved over on-demand rate.

    A reservation is paid for every hour of its term, an on-demand instance for the hours it runs: the first
    is cheaper where the instance would run more than ``utilisation`` (0 to 1) of the time.
    """
    latest = newest(prices).set_index(["instance", "region", "basis"])
    rows = []
    for instance, region, basis in latest.index:
        other = (instance, region, "on_demand")
        if basis.startswith("reserved") and other in latest.index:
            here, there = latest.loc[(instance, region, basis)], latest.loc[other]
            usd, base = here["usd_per_hour"], there["usd_per_hour"]
            dates = " and ".join(row["as_of"] or UNDATED for row in (here, there))
            rows.append((instance, region, basis, usd, base, dates, usd / base))
    return pd.DataFrame(rows, columns=RESERVATION_COLUMNS)


def _amount(name: str, value: float) -> float:
    if not math.isfinite(value) or value < 0:
        raise UserError(f"{name} is {value}: it must be a finite number, zero or more")
    return value
