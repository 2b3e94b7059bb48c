"""What a run cost, hours by phase times the hourly price of an instance, and which runs may be compared."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError, suggestion
from cxrbench.cost.devices import device_of_host
from cxrbench.cost.prices import BASES, KEY, REGIONS, newest, price, read_prices, regions
from cxrbench.evidence.record import RECORD, Record, read_record, short_processor
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.config import Pricing, read_study
from cxrbench.study.names import GROUP, Cell
from cxrbench.study.platforms import ACCELERATED, GPU, TRAINIUM

_PHASES = ("setup", "compile", "train", "evaluate")
COST_COLUMNS = (
    "cell", "dataset", "architecture", "platform", "seed", "status", "kind", "instance", "region", "basis",
    "as_of", "usd_per_hour", "cores_used", "cores_paid", "attempts",
    *(f"hours_{phase}" for phase in _PHASES), "hours_total",
    *(f"usd_{phase}" for phase in _PHASES), "usd_total", "usd_used_cores",
    "usd_per_million_images", "target_auroc", "usd_to_auroc", "cost_to_auroc", "cost_to_usable", "source",
    "note", "origin", "machine", "processor", "others_share", "busy", "headline", "seeds", "usd_sd",
)  # fmt: skip
_MACHINE = ["dataset", "architecture", "platform", "origin", "machine", "busy"]


def cost_table(
    paths: Iterable[Path],
    prices: Path,
    pricing: Pricing,
    *,
    recorded: Path | None = None,
    target_auroc: float | None = None,
    runs: float | None = None,
) -> pd.DataFrame:
    """Cost.csv for the runs in ``paths`` at the prices in the file ``prices``; with ``runs`` also
    USD of a run when so many share its compilation."""
    if target_auroc is not None and not 0 <= target_auroc <= 1:
        raise UserError(f"--target-auroc {target_auroc:g}: give a number from 0 to 1")
    if runs is not None and not 1 <= runs < math.inf:
        raise UserError(f"--runs {runs:g}: they share the cost of a compilation; give one run or more")
    table = cost_of(hours_of(_runs_of(paths, recorded), target_auroc), read_prices(prices), pricing)
    if runs is not None:
        table["usd_amortised"] = table["usd_total"] - table["usd_compile"] + table["usd_compile"] / runs
        table["amortised_over"] = runs
    return table


def pricing_of(
    study: Path, region: str | None = None, basis: str | None = None, as_of: str | None = None
) -> Pricing:
    """The study's pricing with what is given in its place; UserError for an unknown name."""
    for name, value, allowed in (("region", region, REGIONS), ("basis", basis, BASES)):
        if value is not None and value not in allowed:
            raise UserError(f"unknown {name} '{value}'{suggestion(value, allowed)}")
    given = {"region": region, "basis": basis, "as_of": as_of}
    changes = {name: value for name, value in given.items() if value is not None}
    return read_study(study).prices.model_copy(update=changes)


def _runs_of(paths: Iterable[Path], recorded: Path | None = None) -> list[tuple[Record, str]]:
    """The runs in ``paths`` (record.json files, or folders) with their origin.

    A run is fresh if it differs from its record below ``recorded``, which follows if recipe and images agree.
    """
    files = []
    for path in paths:
        files += (found := sorted(path.rglob(RECORD)) if path.is_dir() else [path])
        if not found:
            raise UserError(f"{path}: there is no {RECORD} in it; name one, or a folder of them")
    evidence, runs = EvidenceStore(recorded) if recorded else None, []
    for record in map(read_record, files):
        theirs = evidence.record(Cell.parse(record.cell)) if evidence else record
        runs.append((record, "recorded" if record == theirs else "fresh"))
        if theirs is not None and record != theirs and record.recipe_hash == theirs.recipe_hash:
            images = {run.dataset.packed for run in (record, theirs) if run.dataset}
            runs += [(theirs, "recorded")] if len(images) < 2 else []
    return runs


def hours_of(runs: Iterable[tuple[Record, str]], target_auroc: float | None = None) -> pd.DataFrame:
    """The facts that the cost of each run depends on, all attempts included: hours, images, cores, host."""
    table = pd.DataFrame([_hours(record, origin, target_auroc) for record, origin in runs])
    may_be_none = table.columns.intersection(["target_auroc", "hours_to_auroc", "others_share"])
    return table.astype(dict.fromkeys(may_be_none, float))


def _hours(record: Record, origin: str, target_auroc: float | None) -> dict[str, Any]:
    cell, timing, host = Cell.parse(record.cell), record.timing, record.host
    accelerated = cell.platform in ACCELERATED
    train_images = record.dataset.images.get("train", 0) if record.dataset else 0
    return {
        "cell": record.cell,
        **vars(cell),
        "status": record.status,
        "attempts": record.attempts,
        **{f"hours_{phase}": getattr(timing, f"{phase}_seconds") / 3600 for phase in _PHASES},
        "images": len(record.history) * train_images,
        "used": host.devices_used if accelerated else host.cores_used,
        "accelerated": accelerated,
        "host_instance": host.instance or "",
        "host_device": host.device if accelerated else host.cpu,
        "target_auroc": target_auroc,
        "hours_to_auroc": _hours_to(record, target_auroc),
        "origin": origin,
        "machine": record.machine,
        "processor": record.processor,
        "others_share": timing.others_share,
        "busy": record.busy,
    }


def _hours_to(record: Record, target: float | None) -> float | None:
    """The hours of set-up, compilation and epochs until validation AUROC reaches ``target``."""
    seconds = record.timing.setup_seconds + record.timing.compile_seconds
    for epoch in record.history:
        seconds += epoch.train_seconds + epoch.eval_seconds
        if target is not None and epoch.val_auroc is not None and epoch.val_auroc >= target:
            return seconds / 3600
    return None


def cost_of(hours: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Cost rows (:data:`COST_COLUMNS`) for rows of :func:`hours_of`, sorted by cell.

    UserError when a run has no instance to be priced as (:func:`priced_as`).
    """
    if hours.empty:
        return pd.DataFrame(columns=list(COST_COLUMNS))
    instances = priced_as(hours, prices, pricing)
    for run in hours[instances.isna()].itertuples():
        own = f"{run.host_instance} ({pricing.region}, {pricing.basis})"
        unpriced = f", and prices.csv has no price of {own}, which it ran on: add a row there, or"
        raise UserError(
            f"config: prices.instances names no instance for platform '{run.platform}' ({run.cell})"
            f"{unpriced if run.host_instance else ':'} add '{run.platform}: INSTANCE' there, with an "
            "instance of data/prices.csv"
        )
    where = (pricing.region, pricing.basis, pricing.as_of)
    rates = pd.DataFrame([price(prices, instance, *where) for instance in instances.unique()])
    order = ["dataset", "architecture", "platform", "seed", "instance", "origin"]
    table = charge(hours.assign(instance=instances), rates)
    return table.sort_values(order, kind="stable").reset_index(drop=True)


def priced_as(hours: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.Series:
    """The instance of each row: the one it ran on where that has a price, else a proxy: the EC2
    instance of a SageMaker one (ml.*), the cheapest with its GPU, the study's for its platform, or NaN."""
    there = prices[(prices["region"] == pricing.region) & (prices["basis"] == pricing.basis)]
    priced, ran_on = there["instance"], hours["host_instance"]
    on_ec2, of_platform = ran_on.str.removeprefix("ml."), hours["platform"].map(dict(pricing.instances))
    rates = newest(there, pricing.as_of)
    with_its_gpu = [_with_gpu(rates, run) for run in hours.itertuples()]
    proxy = on_ec2.where(on_ec2.isin(priced), pd.Series(with_its_gpu, hours.index).fillna(of_platform))
    return ran_on.where(ran_on.isin(priced), proxy)


def _with_gpu(rates: pd.DataFrame, run: Any) -> str | None:
    """The cheapest instance with enough of the GPUs that a run was on; None for no such price."""
    gpu = device_of_host(run.host_device) if run.platform == GPU else None
    fits = rates[(rates["accelerator"] == (gpu.name if gpu else "")) & (rates["cores"] >= run.used)]
    return fits.loc[fits["usd_per_hour"].idxmin(), "instance"] if gpu and len(fits) else None


def charge(hours: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """Cost rows (:data:`COST_COLUMNS`) of the ``hours`` whose ``instance`` has a row in ``rates``.

    The whole instance is paid for in all phases; ``usd_used_cores`` is the share of the cores in use, NaN if
    the instance's ``cores`` are of another kind. ``usd_per_million_images`` is of training alone.
    """
    table = hours.merge(rates.assign(region=regions(rates)).drop(columns="note"), on="instance")
    rate = table["usd_per_hour"]
    table["hours_total"] = sum(table[f"hours_{phase}"] for phase in _PHASES)
    for phase in (*_PHASES, "total", "to_auroc"):
        table[f"usd_{phase}"] = table[f"hours_{phase}"] * rate
    same_kind = table["accelerated"] == (table["accelerators"] > 0)
    table["cores_paid"] = table["cores"]
    table["cores_used"] = np.minimum(table["used"], table["cores"]).where(same_kind)
    table["usd_used_cores"] = table["usd_total"] * table["cores_used"] / table["cores_paid"]
    table["usd_per_million_images"] = table["usd_train"] / table["images"].where(table["images"] > 0) * 1e6
    proxy, failed = table["instance"] != table["host_instance"], table["status"] != "ok"
    table["kind"] = np.where(proxy, "proxy", "measured")
    host = "run on " + table["host_device"] + ", priced as " + table["instance"]
    status = "ended as " + table["status"] + ": paid for, no usable model"
    table["note"] = (host.where(proxy, "") + "; " + status.where(failed, "")).str.strip("; ")
    table["headline"] = headline(table)
    return _charge_failures(table)[list(COST_COLUMNS)]


def _charge_failures(costs: pd.DataFrame) -> pd.DataFrame:
    """Add what each group spent on a success: a usable model, or one that reached the target AUROC.

    A group is the seeds of one network and platform at one price on one machine; its failed runs are paid by
    the others. ``seeds`` are the usable ones, ``usd_sd`` their deviation (NaN for one run).
    """
    ok = costs["status"] == "ok"
    reached = ok & costs["usd_to_auroc"].notna()
    until = costs["usd_to_auroc"].where(reached, costs["usd_total"])
    groups = [costs[column] for column in (*_MACHINE, *KEY, "as_of")]

    def total(values: pd.Series) -> pd.Series:
        return values.groupby(groups).transform("sum")

    usable = costs["usd_total"].where(ok).groupby(groups)
    return costs.assign(
        cost_to_usable=total(costs["usd_total"]) / total(ok).replace(0, np.nan),
        cost_to_auroc=total(until) / total(reached).replace(0, np.nan),
        seeds=usable.transform("count"),
        usd_sd=usable.transform("std"),
    )


def headline(runs: pd.DataFrame) -> pd.Series:
    """A mask of the rows that stand for their group (:data:`GROUP`) where a single speed or cost is printed.

    Columns ``origin``, ``machine``, ``busy`` and ``status`` decide. All chosen rows of a group are of one
    machine, one origin and one load: quiet before busy, recorded before fresh, then the machine with the most
    usable seeds, then the first in order. So neither a busy run nor a fresh one moves a recorded headline.
    """
    chosen = pd.Series(False, index=runs.index)
    for _, group in runs.groupby(GROUP, sort=False):
        alike = [rows for _, rows in group.groupby(["busy", "origin", "machine"], sort=False)]
        chosen[min(alike, key=_rank).index] = True
    return chosen


def _rank(rows: pd.DataFrame) -> tuple[bool, bool, int]:
    first = rows.iloc[0]
    return bool(first["busy"]), first["origin"] != "recorded", -int((rows["status"] == "ok").sum())


def both_sides(costs: pd.DataFrame) -> tuple[dict[str, pd.DataFrame], str, list[str]]:
    """The runs of a network on GPU and on Trainium, what differs between them beside the platform, and
    the platforms without a usable one; where there are none of these, :func:`comparable` runs alone."""
    usable = costs[costs["status"] == "ok"]
    there = set(usable["platform"])
    sides = (GPU, next((name for name in TRAINIUM if name in there), TRAINIUM[0]))
    missing, differs = [name for name in sides if name not in there], ""
    if not missing:
        costs, differs = comparable(usable[usable["platform"].isin(sides)])
    return {name: costs[costs["platform"] == name] for name in sides}, differs, missing


def comparable(runs: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The rows of one dataset and network that compare its platforms, and what differs between them.

    Platforms on the processor itself are compared on one that all of them ran on: quiet before busy, recorded
    before fresh, then where most runs are. Otherwise, and for accelerators, each headline stands.
    """
    chosen = runs[headline(runs)]
    hosts = runs[~runs["platform"].isin(ACCELERATED)]
    wanted = set(hosts["platform"])
    groups = {key: rows for key, rows in hosts.groupby(["busy", "origin", "processor"], sort=False)}
    shared = [key for key, rows in groups.items() if set(rows["platform"]) == wanted]
    if len(wanted) > 1 and shared:
        best = groups[min(shared, key=lambda key: (key[0], key[1] != "recorded", -len(groups[key])))]
        same = best[headline(best)]  # one software stack per platform
        chosen = pd.concat([same, chosen[chosen["platform"].isin(ACCELERATED)]])
    return chosen, _differences(chosen)


def _differences(chosen: pd.DataFrame) -> str:
    """The differences between platforms beside the platform, in words; empty if there are none."""
    runs = chosen.drop_duplicates("platform").set_index("platform").sort_index()
    processors = runs.loc[~runs.index.isin(ACCELERATED), "processor"].map(short_processor)
    sentences = [
        f"{name} differ: {', '.join(values.index + ' ' + values)}"
        for name, values in (("processors", processors), ("origins", runs["origin"]))
        if values.nunique() > 1
    ]
    busy = ", ".join(runs.index[runs["busy"].astype(bool)])
    return "; ".join(sentences + ([f"busy machine: {busy}"] if busy else []))
