"""The paper's tables about money.

Each table shows for every row the word measured, proxy, projected or published, and region, basis and date
of the price in it. The CSV files of :mod:`cxrbench.report.cost_report` are read here and nothing is computed.
"""

from __future__ import annotations

import math
from pathlib import Path

import pandas as pd

from cxrbench.cost.prices import BASES
from cxrbench.report.breakeven import months
from cxrbench.report.machines import MACHINE, machine_names, short, spread, usd
from cxrbench.report.provenance import COLUMN, of_cells, of_group
from cxrbench.report.results import Results, Table, group_name, listed

_GROUP = ["dataset", "architecture", "platform", "instance", *MACHINE]


def cost_of_cells(read: Results) -> Table:
    """Hours by phase and US dollars of each run, with its machine, what was paid for and what was used."""
    table = read.cost
    shown = pd.DataFrame(
        {
            "Cell": table["cell"],
            "Status": table["status"].map(_words),
            "Kind": table["kind"],
            "Machine": machine_names(table),
            **_price_columns(table),
            "Cores": [_cores(row) for row in table.itertuples()],
            **{
                f"{phase} h": table[f"hours_{phase.lower().replace('-', '')}"].map(_hours)
                for phase in _PHASES
            },
            "USD": table["usd_total"].map(usd),
            "USD, used cores": table["usd_used_cores"].map(usd),
            COLUMN: [_evidence(read, table.loc[[index]]) for index in table.index],
        }
    )
    return shown, "llllllllrrrrrrrl"


_PHASES = ("Set-up", "Compile", "Train", "Evaluate")


def cost_units(read: Results) -> Table:
    """What a unit costs per group of seeds on one machine: million images, target AUROC, usable model, warm
    run."""
    rows = []
    table = read.cost.assign(named=machine_names(read.cost))
    for group, some in table.groupby(_GROUP, sort=False):
        ok = some[some["status"] == "ok"]
        first, target = some.iloc[0], some["target_auroc"].iloc[0]
        rows.append(
            {
                "Cells": " ".join(group[:3]),
                "Machine": listed(some["named"]),
                "Kind": listed(some["kind"]),
                **{name: column.iloc[0] for name, column in _price_columns(some).items()},
                "Usable": f"{len(ok)} of {len(some)}",
                "Million images": _mean(some["usd_per_million_images"]),
                "AUROC of": "" if pd.isna(target) else f"{target:g}",
                "Until then": spread(first["cost_to_auroc"], ok["usd_to_auroc"].std()),
                "Usable model": spread(first["cost_to_usable"], first["usd_sd"]),
                **_amortised(some),
                COLUMN: _evidence(read, some),
            }
        )
    return pd.DataFrame(rows), "llllllllrrrrrrl"


def _mean(values: pd.Series) -> str:
    return spread(values.mean(), values.std())


def _amortised(some: pd.DataFrame) -> dict[str, str]:
    if "usd_amortised" not in some or some["usd_amortised"].isna().all():
        return {"Compilation shared": "", "Shared by": ""}
    runs = f"{some['amortised_over'].iloc[0]:g} runs"
    return {"Compilation shared": _mean(some["usd_amortised"]), "Shared by": runs}


def _evidence(read: Results, runs: pd.DataFrame) -> str:
    """The names behind ``runs``; a recorded run beside a fresh one of its cell has no row to lead to."""
    origins = dict(zip(read.cells["cell"], read.cells["origin"], strict=True))
    shown = runs["origin"] == runs["cell"].map(origins)
    beside = [] if shown.all() else ["recorded"]
    return ", ".join([*filter(None, [of_cells(read, runs.loc[shown, "cell"])]), *beside])


def cells_by_regime(read: Results) -> Table:
    """The same hours under each basis and date: US dollars per usable model, one column per regime."""
    table = money_csv(read, "regimes")
    if "cell" not in table:
        return pd.DataFrame(), ""
    regimes = list(dict.fromkeys(table["regime"]))
    rows = []
    for group, some in table.assign(named=machine_names(table)).groupby(_GROUP, sort=False):
        first = some.drop_duplicates("regime").set_index("regime")
        paid = {regime: spread(row["cost_to_usable"], row["usd_sd"]) for regime, row in first.iterrows()}
        identity = {
            "Cells": " ".join(group[:3]), "Machine": listed(some["named"]), "Kind": listed(some["kind"]),
            "Instance": group[3], "Region": listed(some["region"]),
        }  # fmt: skip
        by_regime = {_words(name): paid.get(name, "no price") for name in regimes}
        rows.append(identity | by_regime | {COLUMN: _evidence(read, some.drop_duplicates("cell"))})
    return pd.DataFrame(rows), "lllll" + "r" * len(regimes) + "l"


def ratio_by_regime(read: Results) -> Table:
    """Price ratios by region, basis and date, and the preprint's ratio there with its run times unchanged."""
    table = money_csv(read, "ratios")
    rows = [
        {
            "Trainium": row.instance,
            "GPU": row.baseline,
            "Kind": row.kind,
            "Region": row.region,
            "Basis": _words(row.basis),
            "Price of": row.as_of,
            "USD/h": f"{row.usd_instance:.4g} : {row.usd_baseline:.4g}",
            "Price ratio": f"{row.price_ratio:.2f}",
            "Stated": _range(row.published_low, row.published_high, "{:g}"),
            "Then": _range(row.ratio_low, row.ratio_high, "{:.2f}"),
            "Ranking": "" if pd.isna(row.ranking) else row.ranking,
        }
        for row in table.itertuples()
    ]
    return pd.DataFrame(rows), "llllllrrrrl"


def spot_runs(read: Results) -> Table:
    """Hours on spot with interruptions, the first set-up included, where a spot price is known: expectation
    beside simulation."""
    evidence = {group_name(group): of_group(read, *group) for group in read.scored()}
    rows = [
        {
            "Run": row.run,
            "Kind": row.kind,
            **_price_of(row),
            "Work h": _hours(row.work_hours),
            "Per hour": f"{row.rate:g}",
            "Saved every": f"{row.interval * 60:g} min",
            "Restart": f"{row.restart * 60:.1f} min",
            "Expected h": _hours(row.expected_hours),
            "Simulated h": f"{row.simulated_hours:.3f} ± {row.standard_error:.3f}",
            "Factor": f"{row.factor:.3f}",
            "USD": usd(row.usd) if pd.isna(row.usd_sd) else spread(row.usd, row.usd_sd),
            COLUMN: evidence.get(row.run, "published"),
        }
        for row in money_csv(read, "spot").dropna(subset="usd").itertuples()
    ]
    return pd.DataFrame(rows), "llllllrrrrrrrrl"


def break_even(read: Results) -> Table:
    """Runs until a port pays: published runs at each date's prices, and our own cells."""
    rows = [
        {
            "Run": row.case,
            "Kind": row.kind,
            "GPU": row.here,
            "Trainium": row.there,
            "Region": row.region,
            "Basis": _words(row.basis),
            "Price of": "" if pd.isna(row.as_of) else row.as_of,
            "USD, GPU": _spent(row.usd_here, row.usd_here_sd),
            "USD, Trainium": _spent(row.usd_there, row.usd_there_sd),
            "Saving": usd(row.saving, ""),
            "Porting": usd(row.porting),
            "Runs": _runs(row),
        }
        for row in money_csv(read, "break_even").itertuples()
    ]
    return pd.DataFrame(rows), "lllllllrrrrr"


def decisions(read: Results) -> Table:
    """The sources' decision tables, answered with arithmetic."""
    rows = [
        {
            "Network": row.architecture,
            "Kind": row.kind,
            "Region": row.region,
            "Basis": _words(row.basis),
            "Price of": row.as_of,
            "Cost ratio": _range(row.ratio_low, row.ratio_high, "{:.2f}"),
            "Spend a month": usd(row.spend),
            "Porting": usd(row.porting),
            "Ongoing a month": usd(row.ongoing),
            "Months": f"{row.months:g}",
            "Capacity": f"{row.capacity:g}",
            "Saved a month": _thousands(row.saved_low, row.saved_high),
            "Net": _thousands(row.net_low, row.net_high),
            "Breaks even": _months(row.break_even_from, row.break_even_to),
            "Verdict": row.verdict,
            "Source leans": row.leans,
        }
        for row in money_csv(read, "decisions").itertuples()
    ]
    return pd.DataFrame(rows), "lllllrrrrrrrrrll"


def projected_speeds(read: Results) -> Table:
    """Projected speed and cost on the study's instances; why not, where nothing can be projected."""
    table = money_csv(read, "projection")
    own = set(read.study.prices.instances.values())
    table = table[table["instance"].isna() | table["instance"].isin(own)]
    rows = [
        {
            "Network": row.architecture,
            "Pixels": f"{row.pixels}",
            "Precision": row.precision,
            "Kind": "projected" if pd.isna(row.why_not) else row.why_not,
            **_price_of(row),
            "Cores": "" if pd.isna(row.cores) else f"{row.cores:g}",
            "Images/s": _range(row.low, row.high, "{:,.0f}"),
            "USD per million": _range(row.usd_per_million_low, row.usd_per_million_high, "{:.2g}"),
            "Error elsewhere": "" if pd.isna(row.error) else row.error,
        }
        for row in table.itertuples()
    ]
    return pd.DataFrame(rows), "lrlp{4cm}llllrrrp{4cm}"


def projection_errors(read: Results) -> Table:
    """What the projection got wrong where something was measured."""
    rows = [
        {
            "Device": short(row.device),
            "Network": row.kind,
            "Precision": row.precision,
            "Measured images/s": f"{row.measured:,.0f}",
            "Projected": _range(row.low, row.high, "{:,.0f}"),
            "Error": "" if pd.isna(row.error) else f"{row.error:+.0%}",
            "How": row.method,
        }
        for row in money_csv(read, "backtest").itertuples()
    ]
    return pd.DataFrame(rows), "lllrrrl"


def documented_peaks(read: Results) -> Table:
    """The peaks that projections rest on; second hand where the data sheet itself was not read."""
    rows = [
        {
            "Accelerator": row.accelerator,
            "TFLOP/s per core, half": f"{row.tflops:.4g}",
            "fp32": "none documented" if pd.isna(row.tflops_fp32) else f"{row.tflops_fp32:.4g}",
            "GB/s per core": "" if pd.isna(row.bandwidth_gb_s) else f"{row.bandwidth_gb_s:.4g}",
            "Kind": "published",
            "Source": row.source if pd.isna(row.source_fp32) else f"{row.source}; fp32: {row.source_fp32}",
            "How known": row.evidence,
        }
        for row in money_csv(read, "peaks").itertuples()
    ]
    return pd.DataFrame(rows), "lrrrlp{9cm}l"


def prices_by_basis(read: Results) -> Table:
    """The newest price of every instance of the region on each basis, and the oldest one on demand."""
    table = money_csv(read, "prices")
    rows = []
    for instance, some in table.groupby("instance", sort=False):
        first = some.iloc[0]
        by_basis = {basis: rows for basis, rows in some.groupby("basis", sort=False)}
        old = by_basis.get("on_demand", some[:0])
        rows.append(
            {
                "Instance": instance,
                "Accelerators": "" if first["accelerators"] == 0 else _accelerators(first),
                "Cores": f"{first['cores']:g}",
                "Kind": "published",
                "Region": first["region"],
                "On demand before": _dated(old.iloc[0]) if len(old) > 1 else "",
                **{
                    _words(b).capitalize(): _dated(by_basis[b].iloc[-1]) if b in by_basis else ""
                    for b in BASES
                },
            }
        )
    return pd.DataFrame(rows), "llrll" + "r" * (len(BASES) + 1)


def money_csv(read: Results, name: str) -> pd.DataFrame:
    """A table of :mod:`cxrbench.report.cost_report`; empty where it has no columns."""
    path: Path = read.folder / "tables" / f"{name}.csv"
    return pd.read_csv(path) if path.stat().st_size > 1 else pd.DataFrame()


def _price_columns(table: pd.DataFrame) -> dict[str, pd.Series]:
    return {
        "Instance": table["instance"],
        "Region": table["region"],
        "Basis": table["basis"].map(_words),
        "Price of": table["as_of"],
    }


def _price_of(row: object) -> dict[str, str]:
    """Instance, region, basis and date of one row of itertuples."""
    keys = {"Instance": "instance", "Region": "region", "Basis": "basis", "Price of": "as_of"}
    found = {name: getattr(row, key) for name, key in keys.items()}
    return {name: "" if pd.isna(value) else _words(str(value)) for name, value in found.items()}


def _words(text: str) -> str:
    return text.replace("_", " ")


def _cores(row: object) -> str:
    used, paid = row.cores_used, row.cores_paid  # type: ignore[attr-defined]
    return f"none of {paid:g}" if pd.isna(used) else f"{used:g} of {paid:g}"


def _spent(value: float, deviation: float) -> str:
    return usd(value, "") if pd.isna(deviation) else spread(value, deviation)


def _hours(value: float) -> str:
    return f"{value:.3f}"


def _range(low: float, high: float, form: str) -> str:
    if pd.isna(low) or pd.isna(high):
        return ""
    ends = dict.fromkeys(form.format(one) for one in (low, high))
    return " to ".join(ends)


def _thousands(low: float, high: float) -> str:
    return _range(low / 1000, high / 1000, "{:,.0f} k")


def _months(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys((months(low), months(high))))


def _runs(row: object) -> str:
    runs = row.runs  # type: ignore[attr-defined]
    if pd.isna(runs):
        return str(row.note)  # type: ignore[attr-defined]
    return "never" if math.isinf(runs) else f"{runs:,.0f}"


def _accelerators(row: pd.Series) -> str:
    return f"{row['accelerators']:g} {row['accelerator']}, {row['memory_gib_per_accelerator']:g} GiB each"


def _dated(row: pd.Series) -> str:
    return f"{row['usd_per_hour']:.4g} ({'undated' if pd.isna(row['as_of']) else row['as_of']})"
