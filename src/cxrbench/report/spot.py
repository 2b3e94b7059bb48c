"""What interruptions add to runs on spot: expectation and simulation beside each other, as projections."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.config import Pricing
from cxrbench.cost.prices import UNDATED, price
from cxrbench.cost.spot import Interruptions, expected_hours, simulated_hours
from cxrbench.errors import UserError

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
    *("restart", "expected_hours", "simulated_hours", "standard_error", "factor", "usd", "note"),
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

    The measured mean over seeds of compilation, training and evaluation is the work. The first set-up is
    paid as it is, so that a run that is never interrupted costs what its cell costs at the spot price;
    a restart costs another one, or what ``how`` says. ``factor`` is over the uninterrupted hours. USD are
    none, with the reason in ``note``, where the table has no spot price.
    """
    rows: list[dict[str, Any]] = []
    ok = costs[costs["status"] == "ok"]
    for (dataset, architecture, platform), some in ok.groupby(["dataset", "architecture", "platform"]):
        phases = some[["hours_setup", "hours_compile", "hours_train", "hours_evaluate"]].mean()
        work = float(phases.sum() - phases["hours_setup"])
        setup = float(phases["hours_setup"])
        restart = setup if how.restart is None else how.restart
        name = f"{dataset} {architecture} {platform}"
        rows += _rows(name, some["instance"].iloc[0], (setup, work, restart), prices, pricing, how)
    for instance in dict.fromkeys(pricing.instances.values()):
        name = f"{EXAMPLE_HOURS:g} hours of work, an example"
        hours = (0.0, EXAMPLE_HOURS, how.restart or 0.1)
        rows += _rows(name, instance, hours, prices, pricing, how)
    return pd.DataFrame(rows, columns=COLUMNS)


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
    except UserError as error:
        usd, as_of, note = math.nan, "", str(error).split(": add a row")[0]
    rows = []
    for rate in how.rates:
        model = Interruptions(rate, how.interval, restart=restart)
        expected = setup + expected_hours(work, model)
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
