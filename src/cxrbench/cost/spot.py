"""Spot: expected paid hours of runs that may be interrupted. All times are hours.

Interruptions are a Poisson process of ``rate`` per running hour. A run saves after every ``interval`` hours
of work, and each interruption costs the work since the last save plus ``restart`` hours, themselves
interruptible. Waiting for a new instance is neither paid nor counted.
"""

import itertools
import math
from collections.abc import Iterable

import numpy as np
import pandas as pd

from cxrbench.cost.prices import NoPrice, price
from cxrbench.study.config import Pricing
from cxrbench.study.errors import UserError

RATES = (0.05, 0.2, 1.0)  # interruptions per hour, assumed: AWS publishes bands per month, not rates
EXAMPLE_HOURS, EXAMPLE_RESTART = 24.0, 0.1
ASSUMPTIONS = (
    "interruptions come at the given rates, which AWS does not publish",
    "waiting for an instance is neither paid nor counted",
    "writing a checkpoint takes no time",
    "the first set-up is never interrupted",
)
_RUN, _HOURS = ["run", "instance"], ["setup_hours", "work_hours", "restart"]
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

    seeds = pd.concat([_cells(costs), _example(pricing)], ignore_index=True)
    if restart is not None:
        seeds["restart"] = restart
    rows = []
    for ((run, instance), some), rate in itertools.product(seeds.groupby(_RUN, sort=False), rates):
        mean, each = some[_HOURS].mean(), some.apply(expected, axis=1, args=(rate,))
        row = {"run": run, "instance": instance, "rate": rate, "expected_hours": expected(mean, rate)}
        rows.append(row | {**mean, "deviation": each.std()})
    spot = _spot_prices(seeds["instance"].unique(), prices, pricing)
    columns = [*_RUN, *_HOURS, "rate", "expected_hours", "deviation"]
    table = pd.DataFrame(rows, columns=columns).merge(spot, on="instance")
    calm = (table["setup_hours"] + table["work_hours"]).where(table["work_hours"] > 0)
    return table.assign(
        kind="projected",
        region=pricing.region,
        basis="spot",
        interval=interval,
        factor=table["expected_hours"] / calm,
        usd=table["expected_hours"] * table["usd_per_hour"],
        usd_sd=table["deviation"] * table["usd_per_hour"],
    )[SPOT_COLUMNS]


def _cells(costs: pd.DataFrame) -> pd.DataFrame:
    """Return the hours of set-up, of work and of a restart of each usable run on a headline machine."""
    ok = costs[(costs["status"] == "ok") & costs["headline"].astype(bool)]
    table = ok.rename(columns={"hours_setup": "setup_hours"}).assign(
        run=ok["dataset"] + " " + ok["architecture"] + " " + ok["platform"],
        work_hours=ok[["hours_compile", "hours_train", "hours_evaluate"]].sum(axis=1),
        restart=ok["hours_setup"],
    )
    table["instance"] = table.groupby("run")["instance"].transform("first")
    return table.sort_values("run", kind="stable")[[*_RUN, *_HOURS]].astype(dict.fromkeys(_HOURS, float))


def _example(pricing: Pricing) -> pd.DataFrame:
    """Return a day of work on each instance of the study."""
    run = f"{EXAMPLE_HOURS:g} hours of work, an example"
    hours = {"setup_hours": 0.0, "work_hours": EXAMPLE_HOURS, "restart": EXAMPLE_RESTART}
    instances = [*dict.fromkeys(pricing.instances.values())]
    return pd.DataFrame({"run": run, "instance": instances, **hours})


def _spot_prices(instances: Iterable[str], prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return the spot price of each instance, NaN with the reason in ``note`` where there is none."""
    rows = []
    for instance in instances:
        try:
            found = price(prices, instance, pricing.region, "spot", pricing.as_of)
            rows.append((instance, found["as_of"], found["usd_per_hour"], ""))
        except NoPrice as missing:
            rows.append((instance, "", math.nan, missing.reason))
    return pd.DataFrame(rows, columns=["instance", "as_of", "usd_per_hour", "note"])
