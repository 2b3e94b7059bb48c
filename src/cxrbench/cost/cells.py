"""What a cell cost: its hours by phase times the hourly price of the instance it is priced as.

Two steps, so that the same hours can be charged at any price: :func:`hours_of` turns a run record into
hours, :func:`charge` multiplies hours with price rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cxrbench.cells import Cell
from cxrbench.cost.prices import UNDATED, price
from cxrbench.errors import UserError
from cxrbench.machine import headline, is_busy, machine_of, processor_of
from cxrbench.platform_names import ACCELERATED

if TYPE_CHECKING:  # pydantic takes a third of a second; `cxrbench cost` must answer in one
    from cxrbench.config import Pricing
    from cxrbench.evidence import Record

# What a price per hour does not hold, and what no record holds: said wherever a cost is printed.
EXCLUDED = "storage, data transfer, packing the images, boot time and tax"
PHASES = ("setup", "compile", "train", "evaluate")
COST_COLUMNS = (
    "cell", "dataset", "architecture", "platform", "seed", "status", "kind", "instance", "region", "basis",
    "as_of", "usd_per_hour", "cores_used", "cores_paid", "attempts",
    *(f"hours_{phase}" for phase in PHASES), "hours_total",
    *(f"usd_{phase}" for phase in PHASES), "usd_total", "usd_used_cores", "usd_per_epoch",
    "usd_per_million_images", "target_auroc", "usd_to_auroc", "cost_to_auroc", "cost_to_usable", "source",
    "note", "origin", "machine", "processor", "others_share", "busy", "headline", "seeds", "usd_sd",
)  # fmt: skip
_SAME_PRICE = [
    "dataset", "architecture", "platform", "instance", "region", "basis", "as_of", "origin", "machine",
    "busy",
]  # fmt: skip


def hours_of(record: Record, target_auroc: float | None = None, origin: str = "recorded") -> dict[str, Any]:
    """What of a record its cost depends on: hours by phase, epochs, images, cores used, host, its load.

    ``hours_to_auroc`` is set-up, compilation and every epoch up to the first whose validation AUROC
    reaches ``target_auroc``; NaN when none does. Hours include all attempts that led to the record.
    """
    cell = Cell.parse(record.cell)
    timing, host, history = record.timing, record.host, record.history
    hours = {f"hours_{phase}": getattr(timing, f"{phase}_seconds") / 3600 for phase in PHASES}
    train_images = record.dataset.images.get("train", 0) if record.dataset else 0
    return {
        "cell": record.cell,
        "dataset": cell.dataset,
        "architecture": cell.architecture,
        "platform": cell.platform,
        "seed": cell.seed,
        "status": record.status,
        "attempts": record.attempts,
        **hours,
        "epochs": len(history),
        "images": len(history) * train_images,
        "used": host.devices_used if cell.platform in ACCELERATED else host.cores_used,
        "accelerated": cell.platform in ACCELERATED,
        "host_instance": host.instance or "",
        "host_device": host.device if cell.platform in ACCELERATED else host.cpu,
        "target_auroc": _or_nan(target_auroc),
        "hours_to_auroc": _hours_to(record, target_auroc),
        "origin": origin,
        "machine": machine_of(record, cell.platform),
        "processor": processor_of(record),
        "others_share": _or_nan(record.timing.others_share),
        "busy": is_busy(record.timing.others_share),
    }


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _hours_to(record: Record, target: float | None) -> float:
    if target is None:
        return math.nan
    seconds = record.timing.setup_seconds + record.timing.compile_seconds
    for epoch in record.history:
        seconds += epoch.train_seconds + epoch.eval_seconds
        if epoch.val_auroc is not None and epoch.val_auroc >= target:
            return seconds / 3600
    return math.nan


def charge(hours: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Cost rows (:data:`COST_COLUMNS`) from hours and the price row of each, aligned by position.

    ``usd_total`` is the whole instance for all phases. ``usd_used_cores`` is the part of it that the
    occupied cores stand for: half of it when one of two NeuronCores is idle; NaN when the run used a
    kind of core that the instance is not counted in. ``usd_per_epoch`` is training and evaluation,
    ``usd_per_million_images`` is training alone, per million training images passed.
    """
    table = pd.concat(
        [hours.reset_index(drop=True), rows.drop(columns="note").reset_index(drop=True)], axis=1
    )
    rate = table["usd_per_hour"]
    for phase in PHASES:
        table[f"usd_{phase}"] = table[f"hours_{phase}"] * rate
    table["hours_total"] = sum(table[f"hours_{phase}"] for phase in PHASES)
    table["usd_total"] = table["hours_total"] * rate
    comparable = table["accelerated"] == (table["accelerators"] > 0)
    table["cores_paid"] = table["cores"]
    table["cores_used"] = np.minimum(table["used"], table["cores"]).where(comparable)
    table["usd_used_cores"] = table["usd_total"] * table["cores_used"] / table["cores_paid"]
    table["usd_per_epoch"] = (table["usd_train"] + table["usd_evaluate"]) / _positive(table["epochs"])
    table["usd_per_million_images"] = table["usd_train"] / _positive(table["images"]) * 1e6
    table["usd_to_auroc"] = table["hours_to_auroc"] * rate
    own = table["instance"] == table["host_instance"]
    table["kind"] = np.where(own, "measured", "proxy")
    table["as_of"] = table["as_of"].where(table["as_of"] != "", UNDATED)
    table["note"] = _notes(table, own)
    ok = table["status"] == "ok"
    table["cost_to_usable"] = table["usd_total"].where(ok)
    table["cost_to_auroc"] = table["usd_to_auroc"].where(ok)
    table["headline"] = headline(table)
    table["seeds"], table["usd_sd"] = ok.astype(int), math.nan
    return table[list(COST_COLUMNS)]


def _positive(counts: pd.Series) -> pd.Series:
    """Counts as divisors: none instead of zero."""
    return counts.where(counts > 0)


def _notes(table: pd.DataFrame, own: pd.Series) -> pd.Series:
    proxy = "run on " + table["host_device"] + ", priced as " + table["instance"]
    failed = "ended as " + table["status"] + ": paid for, no usable model"
    notes = proxy.where(~own, "")
    is_failed = table["status"] != "ok"
    joined = notes + np.where((notes != "") & is_failed, "; ", "")
    return joined + failed.where(is_failed, "")


def charge_failures(costs: pd.DataFrame) -> pd.DataFrame:
    """The same rows with what their group spent on each success: ``cost_to_usable``, ``cost_to_auroc``; and
    ``seeds``, its usable runs, with ``usd_sd``, the standard deviation of their dollars (NaN for one run).

    A group is one dataset, architecture and platform at one price on one machine, over all seeds. A usable
    model costs all that was spent over the number of usable models. A model of the target AUROC costs what
    was spent until each seed reached it, and all that was spent on seeds that failed or never did, over the
    number that did. NaN where every attempt failed, because no sum of money bought a model there.
    """
    costs = costs.copy()
    ok = costs["status"] == "ok"
    reached = ok & costs["usd_to_auroc"].notna()
    until = costs["usd_to_auroc"].where(reached, costs["usd_total"])
    for column, spent, success in (
        ("cost_to_usable", costs["usd_total"], ok),
        ("cost_to_auroc", until, reached),
    ):
        groups = [costs[c] for c in _SAME_PRICE]
        successes = success.groupby(groups).transform("sum")
        costs[column] = spent.groupby(groups).transform("sum") / _positive(successes)
    usable = costs["usd_total"].where(ok).groupby([costs[c] for c in _SAME_PRICE])
    costs["seeds"], costs["usd_sd"] = usable.transform("count"), usable.transform("std")
    return costs


def cost_table(
    records: Iterable[Record],
    prices: pd.DataFrame,
    pricing: Pricing,
    target_auroc: float | None = None,
    origins: Iterable[str] | None = None,
) -> pd.DataFrame:
    """Cost rows (:data:`COST_COLUMNS`) of all ``records``, failed attempts charged, sorted by cell.

    ``origins`` says of each whether it is recorded or fresh; none: all are recorded.

    A record is priced as the instance it ran on (measured); where that is unknown or has no such price, as
    another (proxy): see :func:`priced_as`. UserError when there is neither.
    """
    known = (
        zip(records, repeat("recorded"), strict=False)
        if origins is None
        else zip(records, origins, strict=True)
    )
    hours = pd.DataFrame([hours_of(record, target_auroc, origin) for record, origin in known])
    if hours.empty:
        return pd.DataFrame(columns=list(COST_COLUMNS))
    chosen = priced_as(hours, prices, pricing.instances, pricing.region, pricing.basis)
    if chosen.isna().any():
        raise _no_instance(hours[chosen.isna()].iloc[0], pricing)
    row_of = {
        instance: price(prices, instance, pricing.region, pricing.basis, pricing.as_of)
        for instance in dict.fromkeys(chosen)
    }
    rows = pd.DataFrame([row_of[instance] for instance in chosen])
    table = charge_failures(charge(hours, rows))
    return table.sort_values(
        ["dataset", "architecture", "platform", "seed", "instance", "origin"], kind="stable"
    ).reset_index(drop=True)


def _no_instance(hours: pd.Series, pricing: Pricing) -> UserError:
    """The message for a row of hours that nothing prices."""
    own, where = hours["host_instance"], f"{pricing.region}, {pricing.basis}"
    unpriced = (
        f", and prices.csv has no price of {own} ({where}), which it ran on: add a row there, or"
        if own
        else ":"
    )
    platform = hours["platform"]
    return UserError(
        f"config: prices.instances names no instance for platform '{platform}' ({hours['cell']}){unpriced} "
        f"add one to the config, for example '{platform}: trn1.2xlarge'"
    )


def priced_as(
    hours: pd.DataFrame,
    prices: pd.DataFrame,
    instances: Mapping[Any, str],
    region: str = "us-east-1",
    basis: str = "on_demand",
) -> pd.Series:
    """The instance that each row of ``hours`` is priced as: the one it ran on, where ``region`` and ``basis``
    have a price of it. Else a proxy: the EC2 instance of a SageMaker one (ml.*), then the one that
    ``instances`` gives its platform, or NaN."""
    here = prices[(prices["region"] == region) & (prices["basis"] == basis)]["instance"]
    ran_on = hours["host_instance"]
    on_ec2 = ran_on.str.removeprefix("ml.")
    proxy = on_ec2.where(on_ec2.isin(here), hours["platform"].map(dict(instances)))
    return ran_on.where(ran_on.isin(here), proxy)


def amortised(usd_once: float, usd_each: float, runs: float) -> float:
    """USD per run when ``usd_once`` (compilation, cached afterwards) is shared by ``runs`` runs."""
    if runs < 1:
        raise UserError(f"{runs} runs: a cost is shared by one run or more")
    return usd_each + usd_once / runs


def amortised_compile(costs: pd.DataFrame, runs: float) -> pd.Series:
    """USD per run of each cost row when its compilation is shared by ``runs`` runs."""
    each = costs["usd_total"] - costs["usd_compile"]
    return pd.Series(
        [amortised(c, e, runs) for c, e in zip(costs["usd_compile"], each, strict=True)], index=costs.index
    )
