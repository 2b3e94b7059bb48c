"""Projected speed and cost of networks that an audit has counted, and how wrong projections were."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

from cxrbench.config import Study
from cxrbench.cost.devices import DEVICES, Device
from cxrbench.cost.prices import newest
from cxrbench.cost.projection import (
    PUBLISHED,
    Efficiency,
    Measured,
    Work,
    backtest,
    kind_of,
    measured_of,
    projections,
    why_not,
)
from cxrbench.errors import UserError
from cxrbench.evidence import RECORD, Record, read_record
from cxrbench.machine import is_busy, machine_of

AUDIT = Path("audit/audit.csv")
NEEDED = ("architecture", "pixels", "gmac")
COLUMNS = [
    *("architecture", "pixels", "precision", "instance", "region", "basis", "as_of", "cores", "low", "high"),
    *("usd_per_million_low", "usd_per_million_high", "kind", "sources", "assumptions", "error", "why_not"),
]
_FAMILIES = {"cuda": "gpu", "neuron": "neuron", "torchneuron": "neuron"}  # by platform; others run on CPUs
NOT_AUDITED = "not projected: no audit of this network"


def read_audit(recorded: Path) -> pd.DataFrame:
    """``recorded``/audit/audit.csv, one row per network and setting; no rows where it does not exist.

    Only what a projection needs is looked at; UserError with line and column where that is not usable.
    """
    path = recorded / AUDIT
    if not path.exists():
        return pd.DataFrame(columns=[*NEEDED, "problem"])
    try:
        table = pd.read_csv(path, dtype={"problem": str})
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable table ({error}); restore it with git") from None
    if missing := [name for name in NEEDED if name not in table]:
        raise UserError(f"{path}:1: column {missing[0]} is missing; make the audit again")
    table["problem"] = table["problem"].fillna("") if "problem" in table else ""
    bad = ~(pd.to_numeric(table["gmac"], errors="coerce") > 0) & (table["problem"] == "")
    if bad.any():
        row = int(bad.to_numpy().argmax())
        raise UserError(
            f"{path}:{row + 2}: column gmac: '{table['gmac'].iloc[row]}' is not a number above zero; "
            "make the audit again"
        )
    return table


def work_of(audit: pd.DataFrame, architecture: str, pixels: int) -> Work | str:
    """The training work of one image, or why it is not known.

    Bytes are the least that a step moves per image: activations written and read once, weights and moments
    once per step, at the audited batch where that is least, so that the limit they give is never too low.
    """
    kind = kind_of(architecture)
    if kind is None:
        return "not projected: its kind of network is not known"
    rows = audit[(audit["architecture"] == architecture) & (audit["pixels"] == pixels)]
    if rows.empty:
        return f"{NOT_AUDITED} at {pixels} px"
    counted = rows[rows["problem"] == ""]
    if counted.empty:
        return f"not projected: the audit failed: {rows['problem'].iloc[0]}"
    least = counted["traffic_least_mib_per_image"].min() if "traffic_least_mib_per_image" in counted else 0
    return Work(kind, float(counted["gmac"].iloc[0]), float(least) * 2**20 if least > 0 else None)


def measured_speeds(study: Study, recorded: Path) -> list[Measured]:
    """Every recorded speed whose share of a peak is known: cells on documented devices, and benchmarks."""
    audit = read_audit(recorded)
    found = []
    for path in sorted(recorded.glob(f"*/*/*/seed*/{RECORD}")):
        if (one := _of_record(read_record(path), study, audit)) is not None:
            found.append(one)
    for path in sorted((recorded / "bench").glob("*/train.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            if (one := _of_bench(row, path.parent.name, audit)) is not None:
                found.append(one)
    return found


def cpu_speeds(study: Study, recorded: Path) -> list[Measured]:
    """What recorded quiet cells reached on each machine: a mean over seeds per network, size and precision.

    A processor has no documented peak, so a share here is of one TFLOP/s and each machine is a family of its
    own: shares compare runs on one processor, which is all that a backtest asks of them.
    """
    audit = read_audit(recorded)
    speeds: dict[tuple[str, str, Work], list[float]] = {}
    for path in sorted(recorded.glob(f"*/*/cpu/seed*/{RECORD}")):
        record = read_record(path)
        work = _work_of_record(record, study, audit)
        speed = record.timing.images_per_second
        if isinstance(work, Work) and speed and not is_busy(record.timing.others_share):
            precision = str(record.recipe.get("precision", "fp32"))
            speeds.setdefault((machine_of(record, "cpu"), precision, work), []).append(speed)
    return [
        Measured(_anything(machine, 1.0, machine), 1, work, mean(some), "our own cells", precision)
        for (machine, precision, work), some in speeds.items()
    ]


def _anything(name: str, tflops: float, family: str) -> Device:
    """A device whose peak is ``tflops`` in every precision."""
    return Device(name, tflops, None, "measured beside it", family, True, tflops, "measured beside it")


def _work_of_record(record: Record, study: Study, audit: pd.DataFrame) -> Work | str:
    dataset, architecture = record.cell.split("/")[:2]
    if dataset not in study.datasets:
        return f"not projected: the study has no {dataset}"
    return work_of(audit, architecture, study.dataset(dataset).pixels)


def _of_record(record: Record, study: Study, audit: pd.DataFrame) -> Measured | None:
    work = _work_of_record(record, study, audit)
    return measured_of(record, work) if isinstance(work, Work) else None


def _of_bench(row: dict[str, Any], host: str, audit: pd.DataFrame) -> Measured | None:
    """A benchmark row against the matrix product measured beside it, whatever its device's documents say.

    Its work is the audit's: the FLOP that a benchmark counts take grouped convolutions for dense ones.
    """
    peak, speed = row.get("matmul_flops_per_second"), row.get("ours")
    work = work_of(audit, str(row.get("architecture")), int(row.get("pixels") or 0))
    if not isinstance(work, Work) or not peak or not speed:
        return None
    family = _FAMILIES.get(str(row.get("platform")), "cpu")
    device = _anything(f"{row.get('platform')} of {host}", peak / 1e12, family)
    source = f"benchmark of {row['architecture']}, {row['pixels']} px, on {host}"
    return Measured(device, 1, work, speed, source, str(row.get("precision", "fp32")))


def efficiencies(measured: list[Measured]) -> list[Efficiency]:
    """Our own, and the two published ones of a NeuronCore."""
    return [*(one.efficiency() for one in measured), *PUBLISHED]


def projection_table(study: Study, prices: pd.DataFrame, recorded: Path) -> pd.DataFrame:
    """Every network of the study on every instance with an accelerator, projected; ``why_not`` otherwise.

    Sizes and precisions are those of the study's data sets. Columns: :data:`COLUMNS`; ``error`` is what the
    projection of that kind of network got wrong elsewhere.
    """
    audit, measured = read_audit(recorded), measured_speeds(study, recorded)
    tested = backtest(measured)
    wanted = dict.fromkeys(
        (cell.architecture, study.dataset(cell.dataset).pixels, study.recipe(cell.dataset).precision)
        for cell in study.all_cells()
    )
    parts = [_one(which, audit, study, prices, efficiencies(measured), tested) for which in wanted]
    return pd.DataFrame([row for part in parts for row in part], columns=COLUMNS)


def _one(
    which: tuple[str, int, str],
    audit: pd.DataFrame,
    study: Study,
    prices: pd.DataFrame,
    known: list[Efficiency],
    tested: pd.DataFrame,
) -> list[dict[str, Any]]:
    name, pixels, precision = which
    identity = {"architecture": name, "pixels": pixels, "precision": precision}
    work = work_of(audit, name, pixels)
    if isinstance(work, str):
        return [identity | {"why_not": work}]
    rows = newest(prices, study.prices.as_of, study.prices.region, [study.prices.basis])
    made = projections(work, rows, known, precision).to_dict("records")
    told = [identity | row | {"error": error_of(work.kind, row["instance"], tested, rows)} for row in made]
    for row in rows[rows["accelerator"].isin(list(DEVICES))].itertuples():
        if reason := why_not(work, DEVICES[row.accelerator], known, precision):
            where = {name: getattr(row, name) for name in ("instance", "region", "basis", "as_of", "cores")}
            told.append(identity | where | {"why_not": reason})
    return told


def error_of(kind: str, instance: str, tested: pd.DataFrame, rows: pd.DataFrame) -> str:
    """What the projection of this kind of network got wrong on devices of the instance's family, in words."""
    accelerator = rows.loc[rows["instance"] == instance, "accelerator"].iloc[0]
    some = tested[(tested["kind"] == kind) & (tested["family"] == DEVICES[accelerator].family)]
    if some.empty:
        return "not tested: no such device measured by us"
    if some["error"].isna().all():
        return "not tested: nothing to leave out"
    each = some.groupby("device", sort=True)["error"].mean()  # of one device: over what was measured on it
    return "; ".join(f"{name}: {error:+.0%}" for name, error in each.items())
