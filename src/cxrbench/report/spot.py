"""What interruptions add to runs on spot: expectation and simulation beside each other, as projections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.config import Pricing
from cxrbench.cost.prices import UNDATED, NoPrice, price
from cxrbench.cost.spot import Interruptions, expected_hours, simulated_hours

COLUMNS = [
    *(
        "run",
        "kind",
        "instance",
        "region",
        "basis",
        "as_of",
        "usd_per_hour",
        "setup_hours",
        "work_hours",
        "rate",
        "interval",
    ),
    *("restart", "expected_hours", "simulated_hours", "standard_error", "factor", "usd", "usd_sd", "note"),
]
RATES = (0.05, 0.2, 1.0)  # interruptions per hour, assumed: AWS publishes bands per month, not rates
EXAMPLE_HOURS = 24.0
_TRIALS = 400


@dataclass(frozen=True)
class Spot:
    """How often runs are assumed to be interrupted, and how they protect themselves; hours."""

    rates: tuple[float, ...] = RATES
    interval: float = 5 / 60
    restart: float | None = None  # none: the set-up that was measured
    trials: int = _TRIALS


def spot_table(costs: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing, how: Spot) -> pd.DataFrame:
    """Expected and simulated hours and USD of each group of ``costs`` and of a day of work on each instance.

    The measured mean over the seeds of the group's headline machine of compilation, training and evaluation
    is the work. The first set-up is paid as it is, so that a run that is never interrupted costs what its
    cell costs at the spot price; a restart costs another one, or what ``how`` says. ``factor`` is over the
    uninterrupted hours, ``usd_sd`` the standard deviation of the expectations of the seeds. USD are none,
    with the reason in ``note``, where the table has no spot price.
    """
    rows: list[dict[str, Any]] = []
    ok = costs[(costs["status"] == "ok") & costs["headline"].astype(bool)]
    for (dataset, architecture, platform), some in ok.groupby(["dataset", "architecture", "platform"]):
        work = some[["hours_compile", "hours_train", "hours_evaluate"]].sum(axis=1)
        runs = list(zip(some["hours_setup"], work, strict=True))
        mean = (float(some["hours_setup"].mean()), float(work.mean()))
        found = _rows(
            f"{dataset} {architecture} {platform}", some["instance"].iloc[0], _restarting(mean, how),
            prices, pricing, how,
        )  # fmt: skip
        for row in found:
            seeds = [_expected(_restarting(one, how), how, row["rate"]) for one in runs]
            row["usd_sd"] = pd.Series(seeds).std() * row["usd_per_hour"]
        rows += found
    for instance in dict.fromkeys(pricing.instances.values()):
        name = f"{EXAMPLE_HOURS:g} hours of work, an example"
        hours = (0.0, EXAMPLE_HOURS, how.restart or 0.1)
        rows += _rows(name, instance, hours, prices, pricing, how)
    return pd.DataFrame(rows, columns=COLUMNS)


def _restarting(setup_and_work: tuple[float, float], how: Spot) -> tuple[float, float, float]:
    """Set-up, work and restart of a run: without an answer in ``how`` a restart is another set-up."""
    setup, work = setup_and_work
    return setup, work, setup if how.restart is None else how.restart


def _expected(hours: tuple[float, float, float], how: Spot, rate: float) -> float:
    setup, work, restart = hours
    return setup + expected_hours(work, Interruptions(rate, how.interval, restart=restart))


def _rows(
    name: str,
    instance: str,
    hours: tuple[float, float, float],
    prices: pd.DataFrame,
    pricing: Pricing,
    how: Spot,
) -> list[dict[str, Any]]:
    """One row per rate for ``hours`` of first set-up, work and restart."""
    setup, work, restart = hours
    try:
        found = price(prices, instance, pricing.region, "spot", pricing.as_of)
        usd, as_of, note = found["usd_per_hour"], found["as_of"] or UNDATED, ""
    except NoPrice as missing:
        usd, as_of, note = math.nan, "", missing.reason
    rows = []
    for rate in how.rates:
        model = Interruptions(rate, how.interval, restart=restart)
        expected = _expected(hours, how, rate)
        trials = setup + _simulated(work, model, how.trials)
        rows.append(
            {
                "run": name, "kind": "projected", "instance": instance, "region": pricing.region,
                "basis": "spot", "as_of": as_of, "usd_per_hour": usd, "setup_hours": setup,
                "work_hours": work, "rate": rate, "interval": how.interval, "restart": restart,
                "expected_hours": expected,
                "simulated_hours": trials.mean(),
                "standard_error": trials.std(ddof=1) / math.sqrt(len(trials)),
                "factor": expected / (setup + work) if work else math.nan,
                "usd": expected * usd, "note": note,
            }
        )  # fmt: skip
    return rows


@cache
def _simulated(work: float, model: Interruptions, trials: int) -> np.ndarray:
    """One simulation per question, however many instances share it."""
    return simulated_hours(work, model, trials)
