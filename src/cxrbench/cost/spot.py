"""Spot: expected paid hours of runs that may be interrupted. All times are hours.

Interruptions are a Poisson process of ``rate`` per running hour. A run saves after every ``interval`` hours
of work, and each interruption costs the work since the last save plus ``restart`` hours, themselves
interruptible. Waiting for a new instance is neither paid nor counted.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.cost.prices import NoPrice, price
from cxrbench.study.config import Pricing
from cxrbench.study.errors import UserError

RATES = (0.05, 0.2, 1.0)  # interruptions per hour, assumed: AWS publishes bands per month, not rates
EXAMPLE_HOURS, EXAMPLE_RESTART = 24.0, 0.1
SPOT_COLUMNS = [
    "run", "kind", "instance", "region", "basis", "as_of", "usd_per_hour", "setup_hours", "work_hours",
    "rate", "interval", "restart", "expected_hours", "factor", "usd", "usd_sd", "note",
]  # fmt: skip


def expected_hours(work: float, rate: float, interval: float, restart: float = 0.0) -> float:
    """Return the expected paid hours to finish ``work`` hours; infinite when the expectation overflows.

    A stretch of s hours takes exp(rate*restart) * (exp(rate*s) - 1) / rate (Daly, Future Generation
    Computer Systems 22, 2006, for exponential failures).
    """
    for name, value in (("rate", rate), ("interval", interval), ("restart", restart), ("work", work)):
        if not math.isfinite(value) or value < 0 or (name == "interval" and value == 0):
            least = "above zero" if name == "interval" else "zero or more"
            raise UserError(f"spot {name} is {value}: it must be finite and {least} (hours, or per hour)")
    full = max(math.ceil(work / interval) - 1, 0)
    stretches = np.array([interval] * full + [work - full * interval])
    if rate == 0:
        return float(stretches.sum())
    with np.errstate(over="ignore"):
        return float((np.exp(rate * restart) * np.expm1(rate * stretches) / rate).sum())


def spot_table(
    costs: pd.DataFrame,
    prices: pd.DataFrame,
    pricing: Pricing,
    rates: Iterable[float] = RATES,
    interval: float = 5 / 60,
    restart: float | None = None,
) -> pd.DataFrame:
    """Return expected hours and USD of each group of ``costs`` and of a day of work on each instance.

    The mean over the seeds of the headline machine is the work: compilation, training, evaluation. A restart
    costs ``restart`` or another set-up. ``factor`` is over the uninterrupted hours. Without a spot price
    USD are NaN, and ``note`` has the reason.
    """

    def expected(hours: pd.Series, rate: float) -> float:
        return hours["setup_hours"] + expected_hours(hours["work_hours"], rate, interval, hours["restart"])

    ok = costs[(costs["status"] == "ok") & costs["headline"].astype(bool)]
    work = ok[["hours_compile", "hours_train", "hours_evaluate"]].sum(axis=1)
    hours = pd.DataFrame({"setup_hours": ok["hours_setup"], "work_hours": work, "restart": ok["hours_setup"]})
    example = pd.DataFrame([{"setup_hours": 0.0, "work_hours": EXAMPLE_HOURS, "restart": EXAMPLE_RESTART}])
    groups = ok.groupby(["dataset", "architecture", "platform"])
    runs = [(" ".join(group), some["instance"].iloc[0], hours.loc[some.index]) for group, some in groups]
    named = f"{EXAMPLE_HOURS:g} hours of work, an example"
    runs += [(named, instance, example) for instance in dict.fromkeys(pricing.instances.values())]
    rows = []
    for run, instance, seeds in runs:
        seeds = seeds if restart is None else seeds.assign(restart=restart)
        row: dict[str, Any] = {
            "run": run,
            "kind": "projected",
            "interval": interval,
            "basis": "spot",
            "note": "",
        }
        row |= {"instance": instance, "region": pricing.region, "as_of": "", "usd_per_hour": math.nan}
        try:
            found = price(prices, instance, pricing.region, "spot", pricing.as_of)
            row |= {"as_of": found["as_of"], "usd_per_hour": found["usd_per_hour"]}
        except NoPrice as missing:
            row["note"] = missing.reason
        mean = seeds.mean()
        for rate in rates:
            paid, deviation = expected(mean, rate), seeds.apply(expected, axis=1, args=(rate,)).std()
            calm = mean["setup_hours"] + mean["work_hours"] if mean["work_hours"] else math.nan
            row |= {**mean, "rate": rate, "expected_hours": paid, "factor": paid / calm}
            usd = row["usd_per_hour"]
            rows.append(row | {"usd": paid * usd, "usd_sd": deviation * usd})
    return pd.DataFrame(rows, columns=SPOT_COLUMNS)
