"""The paper's tables and numbers about money, and how a table names a machine and writes dollars.

Rows with a price say measured, proxy, projected or published, and its region, basis and date.
"""

from collections.abc import Iterator

import pandas as pd

from cxrbench.cost.porting import CASES
from cxrbench.cost.prices import BASES, UNDATED, dates
from cxrbench.evidence.record import BUSY, short_processor
from cxrbench.paper.formats import (
    Columns,
    Fields,
    Parts,
    PlusMinus,
    Range,
    Table,
    WithInterval,
    csv_table,
    listed,
    of_kinds,
    row,
    table,
    words,
)
from cxrbench.paper.results import Results
from cxrbench.study.names import GROUP

# Not part of an hourly price and in no record; printed with every cost.
EXCLUDED = "storage, data transfer, packing the images, boot time and tax"
OF_ITS_BATCH = "A cost is of its batch: a small one leaves an accelerator mostly idle."
MACHINE = ["machine", "origin", "busy"]  # runs that differ in one of these are never averaged
_SOFTWARE = ("torch ", "torch_xla ", "torch_neuronx ", "driver ")
_WHERE: Columns = {"Region": "region", "Basis": ("name", lambda row: words(row.basis)), "Price of": "as_of"}
_PRICE: Columns = {"Instance": "instance", **_WHERE}
# Hours by phase and US dollars of each run, with its machine, what was paid for and what was used.
_COST: Columns = {
    "Cell": "cell",
    "Status": ("name", lambda run: words(run.status)),
    "Kind": "kind",
    "Machine": "named",
    **_PRICE,
    "Cores": ("given", lambda run: Parts((_or(run.cores_used, "none"), run.cores_paid), " of ")),
    "Set-up h": "hours_setup:hours",
    "Compile h": "hours_compile:hours",
    "Train h": "hours_train:hours",
    "Evaluate h": "hours_evaluate:hours",
    "USD": "usd_total:usd",
    "USD, used cores": "usd_used_cores:usd",
}
_UNITS = ("Million images", "Until then", "Usable model", "Compilation shared")


def _or(value: float, word: str) -> float | str:
    return word if pd.isna(value) else value


def cost_of_cells(read: Results) -> Table:
    """Every run with its hours and dollars."""
    return table(read.cost.assign(named=machine_names(read.cost)), _COST)


@of_kinds({**dict.fromkeys(_UNITS, "usd"), "Usable": "count", "AUROC of": "given", "Shared by": "runs"})
def cost_units(read: Results) -> Iterator[Fields]:
    """What a unit costs per group of seeds on one machine: million images, target AUROC, usable model."""
    named = read.cost.assign(named=machine_names(read.cost))
    for group, runs in named.groupby([*GROUP, "instance", *MACHINE], sort=False):
        ok, first = runs[runs["status"] == "ok"], next(runs.itertuples())
        yield {
            "Cells": " ".join(group[:3]),
            "Machine": listed(runs["named"]),
            "Kind": listed(runs["kind"]),
            **row(first, _PRICE),
            "Usable": Parts((len(ok), len(runs)), " of "),
            "Million images": _mean_and_sd(runs["usd_per_million_images"]),
            "AUROC of": first.target_auroc,
            "Until then": PlusMinus(first.cost_to_auroc, ok["usd_to_auroc"].std()),
            "Usable model": PlusMinus(first.cost_to_usable, first.usd_sd),
            "Compilation shared": _mean_and_sd(runs["usd_amortised"]),
            "Shared by": first.amortised_over,
        }


def _mean_and_sd(values: pd.Series) -> PlusMinus:
    return PlusMinus(values.mean(), values.std())


# Price ratios, and the preprint's ratio there with its run times unchanged.
_RATIOS: Columns = {
    "Trainium": "instance",
    "GPU": "baseline",
    "Kind": "kind",
    **_WHERE,
    "USD/h": ("usd_hours", lambda row: Parts((row.usd_instance, row.usd_baseline), " : ")),
    "Price ratio": "price_ratio:ratio",
    "Cost ratio": ("ratio", lambda row: Range(row.ratio_low, row.ratio_high)),
}


def price_ratios(read: Results) -> Table:
    """The ratio of every pair of prices; regions and dates with the same two stand in one row."""
    rows = read.table("ratios")
    if rows.empty:
        return table(rows, _RATIOS)
    cents = rows["usd_baseline"].round(4)  # a source rounds one price in two ways
    alike = rows.groupby(["instance", "baseline", "basis", "usd_instance", cents.rename("cents")], sort=False)
    where = {"region": alike["region"].transform(_counted), "as_of": alike["as_of"].transform(_ends_of_dates)}
    return table(rows.assign(**where)[alike.cumcount() == 0], _RATIOS)


def _counted(regions: pd.Series) -> str:
    areas = ", ".join(sorted({region.split("-")[0] for region in regions}))
    return regions.iloc[0] if regions.nunique() == 1 else f"{regions.nunique()} regions ({areas})"


def _ends_of_dates(shown: pd.Series) -> str:
    dated, others = sorted(set(shown) - {UNDATED}), [UNDATED] * int(shown.eq(UNDATED).any())
    return ", ".join(filter(None, [" to ".join(dict.fromkeys(dated[:1] + dated[-1:])), *others]))


# Runs until a port pays: runs that others published at each date's prices, and our own cells.
_BREAK_EVEN: Columns = {
    "Run": "case",
    "Kind": "kind",
    "GPU": "here",
    "Trainium": "there",
    **_WHERE,
    "USD, GPU": ("usd_or_blank", lambda row: _spent(row.usd_here, row.usd_here_sd)),
    "USD, Trainium": ("usd_or_blank", lambda row: _spent(row.usd_there, row.usd_there_sd)),
    "Saving": "saving:usd_or_blank",
    "Porting": "porting:usd",
    "Runs": ("count", lambda row: _or(row.runs, row.note)),
}
break_even = csv_table("break_even", _BREAK_EVEN)

# Cases made from the thresholds of the sources' decision tables, answered with arithmetic.
_DECISIONS: Columns = {
    "Network": "architecture",
    "Kind": "kind",
    **_WHERE,
    "Cost ratio": ("ratio", lambda row: Range(row.ratio_low, row.ratio_high)),
    "Spend a month": "spend:usd",
    "Porting": "porting:usd",
    "Ongoing a month": "ongoing:usd",
    "Horizon, months": "months:given",
    "Capacity": "capacity:given",
    "Saved a month": ("thousands", lambda row: Range(row.saved_low, row.saved_high)),
    "Net": ("thousands", lambda row: Range(row.net_low, row.net_high)),
    "Breaks even, months": ("months", lambda row: Range(row.break_even_from, row.break_even_to)),
    "Verdict": "verdict:verdict",
    "Source says": "leans",
}
decisions = csv_table("decisions", _DECISIONS)


_BY_BASIS = {basis: words(basis).capitalize() for basis in BASES} | {"sagemaker": "SageMaker"}


@of_kinds({"Cores": "given"} | dict.fromkeys(("On demand before", *_BY_BASIS.values()), "usd_hour"))
def prices_by_basis(read: Results) -> Iterator[Fields]:
    """The newest price of every instance of the region on each basis, and the oldest one on demand."""
    rows = read.table("prices").fillna(dict.fromkeys(("as_of", "until", "assumed"), ""))
    for _, prices in rows.groupby("instance", sort=False):
        note = dates(prices) + prices["assumed"].replace("region", ", region assumed")
        dated = [WithInterval(usd, note=text) for usd, text in zip(prices["usd_per_hour"], note, strict=True)]
        priced: dict[str, list[WithInterval]] = {}
        for basis, price in zip(prices["basis"], dated, strict=True):
            priced.setdefault(basis, []).append(price)
        demand, first = priced.get("on_demand", []), next(prices.itertuples())
        several = f"{first.accelerators:g} {first.accelerator}, {first.memory_gib_per_accelerator:g} GiB each"
        yield {
            "Instance": first.instance,
            "Accelerators": several if first.accelerators else "",
            "Cores": first.cores,
            "Kind": "published",
            "Region": first.region,
            "On demand before": demand[0] if len(demand) > 1 else "",
            **{head: priced.get(basis, [""])[-1] for basis, head in _BY_BASIS.items()},
        }


def machine_names(runs: pd.DataFrame) -> pd.Series:
    """What a table calls the machine of each run, with :func:`mark`.

    Processor and cores; also the software where the machines of a group of cells differ in that alone.
    """
    names = runs["machine"].map(short_machine)
    machines = runs["machine"].groupby([*(runs[column] for column in GROUP), names]).transform("nunique")
    names = names.where(machines == 1, runs["machine"].map(short_processor))
    marks = [mark(run.origin, run.busy, run.others_share) for run in runs.itertuples()]
    marked = ["; ".join([name, *of_run]) for name, of_run in zip(names, marks, strict=True)]
    return pd.Series(marked, runs.index, dtype=str)


def mark(origin: str, busy: bool, others_share: float) -> list[str]:
    """The mark beside a speed or a cost: ``fresh``, and the load of a busy machine or device."""
    fresh = ["fresh"] if origin != "recorded" else []
    of_cores = others_share > BUSY
    load = f"busy ({100 * others_share:.0f} % used by others)" if of_cores else "busy (others on the device)"
    return fresh + ([load] if busy else [])


def short_machine(machine: str) -> str:
    """Device, processor and cores of a machine, without marks of trade and without its software."""
    return ", ".join(part for part in short_processor(machine).split(", ") if not part.startswith(_SOFTWARE))


def _spent(value: float, deviation: float) -> float | PlusMinus:
    """Dollars, with a spread where there is one: a published run has none."""
    return value if pd.isna(deviation) else PlusMinus(value, deviation)


# -- for values.toml --------------------------------------------------------------------------------


def sources_of_prices(read: Results) -> str:
    """Every source of a price, with its number of rows."""
    counts = _unversioned(read.table("prices")["source"]).value_counts()
    return "; ".join(f"{name} ({rows})" for name, rows in counts.items())


def _unversioned(sources: pd.Series) -> pd.Series:
    """Sources without their version: several versions of a file are one source."""
    return sources.str.split(r" @| \(", n=1, regex=True).str[0]


def sources_of_ratios(ratios: pd.DataFrame) -> str:
    """Every source of the prices behind some ratios, with what is sold there."""
    both = pd.concat([ratios, ratios.assign(source=ratios["source_other"])], ignore_index=True)
    bases = both["basis"].map(words).groupby(_unversioned(both["source"]), sort=False).unique()
    return "; ".join(f"{name} ({', '.join(sold)})" for name, sold in bases.items())


def ends_of_ratios(ratios: pd.DataFrame) -> Range:
    """The lowest and the highest end of some cost ratios."""
    return Range(ratios["ratio_low"].min(), ratios["ratio_high"].max())


def loads(runs: pd.DataFrame) -> str:
    """Of how many runs the load of the machine is known, and how many ran on a busy one, in a sentence."""
    return load_sentence(len(runs), int(runs["others_share"].isna().sum()), int(runs["busy"].sum()))


def load_sentence(runs: int, unknown: int, busy: int) -> str:
    """As :func:`loads`, from the counts."""
    of_load = "known how busy the machine was otherwise."
    parts = []
    if unknown:
        parts = [
            f"For {unknown} of the {runs} runs it is not {of_load}"
            if unknown < runs
            else f"For none of the {runs} runs is it {of_load}"
        ]
    if busy:
        parts.append(f"Marked: {busy} on a busy machine.")
    elif unknown < runs:
        parts.append("Where it is known, no machine was busy.")
    return " ".join(parts)


def instance_of(read: Results, platform: str) -> str | None:
    """The instance as which a platform is priced, if the study names one."""
    return read.study.prices.instances.get(platform)


def usd_of_a_day(read: Results, platform: str) -> float | str | None:
    """The newest price of a day of that instance on demand; a word where none is known."""
    prices = read.table("prices").fillna({"as_of": ""})
    demand = prices[prices["basis"] == "on_demand"].sort_values("as_of").set_index("instance")
    newest = demand["usd_per_hour"].groupby("instance").last() * 24
    instance = instance_of(read, platform)
    return None if instance is None else newest.get(instance, "none")


def first_case(read: Results) -> pd.DataFrame:
    """The rows of the first of the ports that others published."""
    return _case(read, 0)


def last_case(read: Results) -> pd.DataFrame:
    """The rows of the last of the ports that others published."""
    return _case(read, -1)


def _case(read: Results, number: int) -> pd.DataFrame:
    cases = read.table("break_even")
    return cases[cases["case"] == CASES[number].case]


def first_cut(case: pd.DataFrame) -> str:
    """The day from which the GPU of a case costs less on demand than before."""
    demand = case[case["basis"] == "on_demand"].sort_values("as_of")
    cut = demand.loc[demand["usd_here"] < demand["usd_here"].cummax(), "as_of"]
    return next(iter(cut), "none")


def handicap(rooflines: pd.DataFrame) -> Range:
    """How many times smaller Trainium's share of its roofline was if the preprint's ratio holds."""
    return Range(rooflines["share_low"].min(), rooflines["share_high"].max())
