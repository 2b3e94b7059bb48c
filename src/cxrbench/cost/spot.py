"""Spot: expected paid hours of a run that may be interrupted. All times are hours.

Interruptions are a Poisson process of ``rate`` per running hour. A run saves after every ``interval`` hours
of work, and each interruption costs the work since the last save plus ``restart`` hours, themselves
interruptible. Waiting for a new instance is neither paid nor counted.
"""

import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.cost.prices import price
from cxrbench.study.config import Pricing

RATES = (0.05, 0.2, 1.0)  # interruptions per hour, assumed: AWS publishes bands per month, not rates


def expected_hours(work: float, rate: float, interval: float, restart: float = 0.0) -> float:
    """The expected paid hours to finish ``work`` hours; infinite when the expectation overflows.

    A stretch of s hours takes exp(rate*restart) * (exp(rate*s) - 1) / rate (Daly, Future Generation
    Computer Systems 22, 2006, for exponential failures).
    """
    for name, value in (("rate", rate), ("interval", interval), ("restart", restart), ("work", work)):
        if not math.isfinite(value) or value < 0 or (name == "interval" and value == 0):
            least = "above zero" if name == "interval" else "zero or more"
            raise UserError(f"spot {name} is {value}: it must be finite and {least} (hours, or per hour)")
    if rate == 0:
        return float(work)
    full = max(math.ceil(work / interval) - 1, 0)
    with np.errstate(over="ignore"):
        whole, rest = np.expm1(rate * np.array([interval, work - full * interval]))
        return float(np.exp(rate * restart) * ((full * whole if full else 0.0) + rest) / rate)


def spot_table(
    work: float,
    instance: str,
    prices: pd.DataFrame,
    pricing: Pricing,
    rates: Iterable[float] = RATES,
    interval: float = 5 / 60,
    restart: float = 5 / 60,
) -> pd.DataFrame:
    """Expected hours and USD on spot of ``work`` hours on ``instance``, a row per interruption rate.

    ``factor`` is over the uninterrupted hours. Raises NoPrice where the table has no spot price.
    """
    spot = price(prices, instance, pricing.region, "spot", pricing.as_of)
    hours = [expected_hours(work, rate, interval, restart) for rate in rates]
    table = pd.DataFrame({"rate": [*rates], "expected_hours": hours})
    return table.assign(
        factor=table["expected_hours"] / work if work else math.nan,
        usd=table["expected_hours"] * spot["usd_per_hour"],
        kind="projected",
        **spot[["instance", "region", "basis", "as_of", "usd_per_hour"]],
    )
