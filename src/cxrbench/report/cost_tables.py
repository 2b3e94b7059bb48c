"""The paper's tables about money, and every number that its section on cost may name.

Each table shows for every row the word measured, proxy, projected or published, and region, basis and date
of the price in it. The CSV files of :mod:`cxrbench.report.cost_report` are read here and nothing is computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from cxrbench.cost.prices import BASES
from cxrbench.report.breakeven import months
from cxrbench.report.cost_report import SENTENCES
from cxrbench.report.latex import escape
from cxrbench.report.projection import NOT_AUDITED
from cxrbench.report.provenance import COLUMN, of_cells, of_group
from cxrbench.report.results import Results, Table, group_name, listed

_GROUP = ["dataset", "architecture", "platform", "instance"]
_NONE = "none"


def cost_of_cells(read: Results) -> Table:
    """Hours by phase and US dollars of each cell, with what was paid for and what was used."""
    table = read.cost
    shown = pd.DataFrame(
        {
            "Cell": table["cell"],
            "Status": table["status"].map(_words),
            "Kind": table["kind"],
            **_price_columns(table),
            "Cores": [_cores(row) for row in table.itertuples()],
            **{
                f"{phase} h": table[f"hours_{phase.lower().replace('-', '')}"].map(_hours)
                for phase in _PHASES
            },
            "USD": table["usd_total"].map(_usd),
            "USD, used cores": table["usd_used_cores"].map(_usd),
            COLUMN: [of_cells(read, [cell]) for cell in table["cell"]],
        }
    )
    return shown, "lllllllrrrrrrrl"


_PHASES = ("Set-up", "Compile", "Train", "Evaluate")


def cost_units(read: Results) -> Table:
    """What a unit costs per group of seeds: epoch, million images, target AUROC, usable model, warm run."""
    rows = []
    for group, some in read.cost.groupby(_GROUP, sort=False):
        ok = some[some["status"] == "ok"]
        target = some["target_auroc"].iloc[0]
        rows.append(
            {
                "Cells": " ".join(group[:3]),
                "Kind": listed(some["kind"]),
                **{name: column.iloc[0] for name, column in _price_columns(some).items()},
                "Usable": f"{len(ok)} of {len(some)}",
                "Epoch": _usd(some["usd_per_epoch"].mean()),
                "Million images": _usd(some["usd_per_million_images"].mean()),
                "AUROC of": "" if pd.isna(target) else f"{target:g}",
                "Until then": _usd(some["cost_to_auroc"].iloc[0]),
                "Usable model": _usd(some["cost_to_usable"].iloc[0]),
                "Compilation shared": _amortised(some),
                COLUMN: of_cells(read, some["cell"]),
            }
        )
    return pd.DataFrame(rows), "lllllllrrrrrrl"


def _amortised(some: pd.DataFrame) -> str:
    if "usd_amortised" not in some or some["usd_amortised"].isna().all():
        return ""
    return f"{_usd(some['usd_amortised'].mean())} ({some['amortised_over'].iloc[0]:g} runs)"


def cells_by_regime(read: Results) -> Table:
    """The same hours under each basis and date: US dollars per usable model, one column per regime."""
    table = _csv(read, "regimes")
    if "cell" not in table:
        return pd.DataFrame(), ""
    regimes = list(dict.fromkeys(table["regime"]))
    rows = []
    for group, some in table.groupby(_GROUP, sort=False):
        usd = some.groupby("regime")["cost_to_usable"].mean()
        identity = {
            "Cells": " ".join(group[:3]), "Kind": listed(some["kind"]), "Instance": group[3],
            "Region": listed(some["region"]),
        }  # fmt: skip
        by_regime = {_words(name): _usd(usd.get(name, math.nan), "no price") for name in regimes}
        rows.append(identity | by_regime | {COLUMN: of_group(read, *group[:3])})
    return pd.DataFrame(rows), "llll" + "r" * len(regimes) + "l"


def ratio_by_regime(read: Results) -> Table:
    """Price ratios by region, basis and date, and the preprint's ratio there with its run times unchanged."""
    table = _csv(read, "ratios")
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
            "USD": _usd(row.usd),
            COLUMN: evidence.get(row.run, "published"),
        }
        for row in _csv(read, "spot").dropna(subset="usd").itertuples()
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
            "USD, GPU": _usd(row.usd_here, ""),
            "USD, Trainium": _usd(row.usd_there, ""),
            "Saving": _usd(row.saving, ""),
            "Porting": _usd(row.porting),
            "Runs": _runs(row),
        }
        for row in _csv(read, "break_even").itertuples()
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
            "Spend a month": _usd(row.spend),
            "Porting": _usd(row.porting),
            "Months": f"{row.months:g}",
            "Capacity": f"{row.capacity:g}",
            "Saved a month": _thousands(row.saved_low, row.saved_high),
            "Net": _thousands(row.net_low, row.net_high),
            "Breaks even": _months(row.break_even_from, row.break_even_to),
            "Verdict": row.verdict,
            "Source leans": row.leans,
        }
        for row in _csv(read, "decisions").itertuples()
    ]
    return pd.DataFrame(rows), "lllllrrrrrrrrll"


def projected_speeds(read: Results) -> Table:
    """Projected speed and cost on the study's instances; why not, where nothing can be projected."""
    table = _csv(read, "projection")
    own = set(read.study.prices.instances.values())
    table = table[table["instance"].isna() | table["instance"].isin(own)]
    rows = [
        {
            "Network": row.architecture,
            "Pixels": f"{row.pixels}",
            "Kind": "projected" if pd.isna(row.why_not) else row.why_not,
            **_price_of(row),
            "Cores": "" if pd.isna(row.cores) else f"{row.cores:g}",
            "Images/s": _range(row.low, row.high, "{:,.0f}"),
            "USD per million": _range(row.usd_per_million_low, row.usd_per_million_high, "{:.2g}"),
            "Error elsewhere": "" if pd.isna(row.error) else row.error,
        }
        for row in table.itertuples()
    ]
    return pd.DataFrame(rows), "lrp{4cm}llllrrrp{4cm}"


def projection_errors(read: Results) -> Table:
    """What the projection got wrong where something was measured."""
    rows = [
        {
            "Device": row.device,
            "Network": row.kind,
            "Measured images/s": f"{row.measured:,.0f}",
            "Projected": _range(row.low, row.high, "{:,.0f}"),
            "Error": "" if pd.isna(row.error) else f"{row.error:+.0%}",
            "How": row.method,
        }
        for row in _csv(read, "backtest").itertuples()
    ]
    return pd.DataFrame(rows), "llrrrl"


def documented_peaks(read: Results) -> Table:
    """The peaks that projections rest on; second hand where the data sheet itself was not read."""
    rows = [
        {
            "Accelerator": row.accelerator,
            "TFLOP/s per core": f"{row.tflops:.4g}",
            "GB/s per core": "" if pd.isna(row.bandwidth_gb_s) else f"{row.bandwidth_gb_s:.4g}",
            "Kind": "published",
            "Source": row.source,
            "How known": row.evidence,
        }
        for row in _csv(read, "peaks").itertuples()
    ]
    return pd.DataFrame(rows), "lrrlp{9cm}l"


def prices_by_basis(read: Results) -> Table:
    """The newest price of every instance of the region on each basis, and the oldest one on demand."""
    table = _csv(read, "prices")
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


COST_TABLES: dict[str, Callable[[Results], Table]] = {
    "table_cost": cost_of_cells,
    "table_cost_units": cost_units,
    "table_regimes": cells_by_regime,
    "table_ratios": ratio_by_regime,
    "table_spot": spot_runs,
    "table_break_even": break_even,
    "table_decisions": decisions,
    "table_projection": projected_speeds,
    "table_backtest": projection_errors,
    "table_peaks": documented_peaks,
    "table_prices": prices_by_basis,
}


def cost_values(read: Results) -> dict[str, str]:
    """Every number that the paper's section on cost may name, as text for a macro."""
    cases, ratios, spot = (_csv(read, name) for name in ("break_even", "ratios", "spot"))
    spot = spot.drop_duplicates(["work_hours", "rate", "restart"])  # instances share a simulation
    projection, decided = _csv(read, "projection"), _csv(read, "decisions")
    said = (read.folder / "tables" / SENTENCES).read_text(encoding="utf-8").splitlines()
    published = cases[(cases["kind"] == "published") & cases["runs"].notna()]
    # A run of seconds is never interrupted in the simulation: there is no spread to count distances in.
    spot = spot[spot["standard_error"] > 1e-9 * spot["work_hours"]]
    away = (spot["simulated_hours"] - spot["expected_hours"]).abs() / spot["standard_error"]
    never = published["runs"].map(math.isinf).groupby(published["case"]).agg(["all", "any"])
    values = {
        "cost/regime sentence": escape(said[0], 1000),
        "cost/regimes sentence": escape(said[1], 1000),
        "cost/ranking sentence": escape("; ".join(said[2:]) + ".", 2000),
        "cost/regimes": escape(listed(_csv(read, "regimes").get("regime", pd.Series()).map(_words)) or _NONE),
        "cost/price rows": str(len(_csv(read, "prices"))),
        "price/sources": escape(_price_sources(_csv(read, "prices")), 2000),
        "cost/ratio rows": str(len(ratios)),
        "cost/porting": f"{published['porting'].iloc[0]:,.0f}",
        "cost/cases": str(len(never)),
        "cost/cases never": str(never["all"].sum()),
        "cost/cases by date": str((never["any"] & ~never["all"]).sum()),
        "cost/spot away": f"{away.max():.1f}",
        "cost/spot comparisons": str(len(spot)),
        "cost/decisions": str(len(decided)),
        "cost/projected": str(projection.loc[projection["why_not"].isna(), "architecture"].nunique()),
        "cost/projection assumptions": _assumptions(projection["assumptions"].dropna()),
        "cost/not audited": str(projection["why_not"].fillna("").str.startswith(NOT_AUDITED).sum()),
    }
    for verdict in ("port", "stay", "depends"):
        values[f"cost/decisions {verdict}"] = str(int((decided["verdict"] == verdict).sum()))
    target = read.cost["target_auroc"].dropna()
    values["cost/target"] = f"{target.iloc[0]:g}" if len(target) else r"\emph{none}"
    return values


def _assumptions(told: pd.Series) -> str:
    """What projections assume, each once; a limit that differs from row to row in general words."""
    each = dict.fromkeys(
        "at most what the documented memory bandwidth lets through" if one.startswith("at most ") else one
        for row in told
        for one in row.split("; ")
    )
    return escape("; ".join(each), 1000) if each else r"\emph{none}"


def _price_sources(prices: pd.DataFrame) -> str:
    """``owner/repository file (3 rows); ...``: where prices are from, versions of one file together."""
    counts = prices["source"].str.split(r" @| \(", n=1, regex=True).str[0].value_counts()
    return "; ".join(f"{source} ({rows})" for source, rows in counts.items())


def _csv(read: Results, name: str) -> pd.DataFrame:
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
    return f"{_NONE} of {paid:g}" if pd.isna(used) else f"{used:g} of {paid:g}"


def _hours(value: float) -> str:
    return f"{value:.3f}"


def _usd(value: float, missing: str = _NONE) -> str:
    if pd.isna(value):
        return missing
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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
