"""What patients and seeds can show: the power of comparisons, simulated coverage, families of verdicts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.analysis import simulated
from cxrbench.analysis.components import ALPHA, POWER
from cxrbench.analysis.estimates import ENDPOINT
from cxrbench.analysis.parity import family
from cxrbench.analysis.power import (
    ASSUMED,
    DIFFERENCE,
    PREPRINT,
    SHARES,
    patients_by_definition,
    seeds_at_upper_limit,
    sufficient_seeds,
)
from cxrbench.evidence.machine import GROUP
from cxrbench.paper import fmt
from cxrbench.paper.blocks import as_markdown
from cxrbench.paper.fmt import Columns, Row, Values
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results, is_phantom

METRICS = {"auroc": "AUROC, main endpoint", "f1_macro": "F1, macro", "f1_micro": "F1, micro"}
REPRODUCTIONS = ("arnoweng_reproduction", "jrzech_reproduction")  # of one network on one split
NONE = r"\emph{none would do}"
NETWORK = "convnext_pico"  # the preprint's


@fmt.table("llrrrrrrrrrrr")
def what_can_be_shown(read: Results) -> Iterator[Row]:
    """Yield what these patients and seeds can show on the main dataset, and what a verdict would need."""
    rows, margin = _main(read), read.study.margins.auroc_macro
    largest = (rows["metric"] == "auroc") & (rows["share"] == SHARES[-1])
    upper = {row.Index: seeds_at_upper_limit(row._asdict(), margin) for row in rows[largest].itertuples()}
    fixed = {
        row.Index: _fixed(read, row)
        for row in rows[rows["difference"].notna() & (rows["share"] == SHARES[0])].itertuples()
    }
    columns: Columns = {
        "Network": "{architecture} {platform}",
        "Metric": lambda row: METRICS[row.metric],
        "Error": "{patient_se:.4f}",
        "SD": "{seed_sd:.4f}",
        "Share": lambda row: f"{row.share:g}" if row.share_from == ASSUMED else f"{row.share:.2f} (measured)",
        "Could show": "{smallest_margin:.3f}",
        "Power": "{power_at_zero:.0%}",
        "Seeds needed": lambda row: fmt.number(row.seeds_needed, ",.0f", "none"),
        "Seeds, upper": lambda row: (
            fmt.number(upper[row.Index], ",.0f", "none") if row.Index in upper else ""
        ),
        "Patients needed": lambda row: fmt.number(row.patients_needed, ",.0f", "none"),
        "Seeds to see": "{seeds_to_see:,.0f}",
        "Patients to see": lambda row: (
            "" if pd.isna(row.difference) else fmt.number(row.patients_to_see, ",.0f", "none")
        ),
        "Patients, fixed": lambda row: (
            fmt.number(fixed[row.Index], ",.0f", "none") if row.Index in fixed else ""
        ),
    }
    yield from fmt.rows(rows, columns)


def _fixed(read: Results, row: Any) -> float:
    """Return the patients that show the preprint's difference if thresholds are taken as they are."""
    found = patients_by_definition(read.spread, fixed=True).set_index([*GROUP, "metric"])["patients"]
    return float(found[row.dataset, row.architecture, row.platform, row.metric])


def numbers(read: Results) -> Values:
    """Return ``power/...`` of the main dataset, ``margin/...``, ``coverage/...``, ``verdicts/...`` and
    ``family/...``."""
    margins = read.study.margins
    return {
        "margin/auroc": f"{margins.auroc_macro:g}",
        "margin/label": f"{margins.auroc_label:g}",
        "margin/f1": f"{margins.f1:g}",
        "power/difference": f"{DIFFERENCE:g}",
        **{f"preprint/f1/{platform}": f"{f1:.4f}" for platform, f1 in PREPRINT.items()},
        "power/level": _percent(POWER),
        **_reproductions(read.literature),
        **_power(read),
        **_coverage(read.recorded),
        **families(read.parity),
    }


def _main(read: Results) -> pd.DataFrame:
    return read.power[read.power["dataset"] == read.main()]


def drawn(read: Results) -> pd.DataFrame:
    """Return the rows of the main endpoint for the preprint's network (else the first) at assumed shares."""
    rows = _main(read)
    rows = rows[(rows["metric"] == "auroc") & (rows["share_from"] == ASSUMED)]
    names = rows["architecture"]
    rows = rows[names == (NETWORK if NETWORK in set(names) else next(iter(names), NETWORK))]
    return rows[rows["platform"] == next(iter(rows["platform"]), "")]


def _percent(value: float) -> str:
    return f"{value:.0%}".replace("%", r"\%")


def _thousands(values: pd.Series) -> str:
    """Return the range of numbers of patients, rounded to thousands."""
    return fmt.range_of(values.astype(float).round(-3), "{:,.0f}", NONE)


def _power(read: Results) -> Values:
    """Return ``power/...``: by the main dataset's networks on the first platform, which ``power/platform``
    names; the preprint's difference by all recipes on real radiographs."""
    table = _main(read)
    if table.empty:
        return {}
    platform = table["platform"].iloc[0]
    table = table[table["platform"] == platform]
    whole, measured = (
        table[(table["metric"] == "auroc") & (assumed == (table["share_from"] == ASSUMED))]
        for assumed in (True, False)
    )
    of_f1 = table[(table["metric"] != "auroc") & (table["share"] == SHARES[-1])]
    values = {
        "power/platform": escape(platform),
        "power/could show": fmt.range_of(whole["smallest_margin"], "{:.3f}", NONE),
        "power/seeds": fmt.range_of(whole["measured_seeds"], "{:,.0f}", NONE),
        "power/patients": fmt.range_of(whole["patients"], "{:,.0f}", NONE),
        "power/shares": ", ".join(f"{share:g}" for share in SHARES),
        "power/seed freedom": fmt.range_of(whole["seed_freedom"], "{:.0f}", NONE),
        "power/plan/f1": fmt.number(of_f1["seeds_needed"].max(), ",.0f", "none"),
        **_preprint(read),
    }
    for network, some in whole.groupby("architecture"):
        powers = [_percent(value) for value in some["power_at_zero"]]
        values[f"power/{network}/at zero"] = ", ".join(powers)
        values[f"power/{network}/ends"] = f"{powers[-1]} to {powers[0]}"  # power falls with the share
    for row in measured.itertuples():
        values[f"power/{row.architecture}/measured share"] = f"{row.share:.2f}"
        values[f"power/{row.architecture}/at measured share"] = _percent(row.power_at_zero)
    needed = sufficient_seeds(whole, str(whole["dataset"].iloc[0]))
    for network, seeds in needed.items():  # also with the true seed spread at its upper limit
        row = whole[(whole["architecture"] == network) & (whole["share"] == SHARES[-1])].iloc[0]
        upper = seeds_at_upper_limit(row, read.study.margins.auroc_macro)
        values[f"power/plan/{network}"] = str(seeds)
        values[f"power/plan/{network}/upper"] = fmt.number(upper, ",.0f", "none")
    words = (f"{seeds} for \\code{{{escape(name)}}}" for name, seeds in needed.items())
    return values | {"power/plan": ", ".join(words)}


def _preprint(read: Results) -> Values:
    """Return ``power/preprint/...``: what the preprint's difference takes by the spread of every recipe."""
    real = read.spread[~is_phantom(read.spread["dataset"])]
    anew, fixed = (patients_by_definition(real, given) for given in (False, True))
    table = read.power[~is_phantom(read.power["dataset"]) & read.power["difference"].notna()]
    apart = table[(table["share"] == SHARES[-1]) & (table["share_from"] == ASSUMED)]
    if anew.empty or apart.empty:
        return {}
    values = {"power/recipes": str(len(anew.drop_duplicates(GROUP)))}
    for name, metric in (("macro", "f1_macro"), ("micro", "f1_micro")):
        patients = anew.loc[anew["metric"] == metric, "patients"]
        seeds = apart.loc[apart["metric"] == metric, "seeds_to_see"]
        values |= {
            f"power/preprint/{name}": _thousands(patients),
            f"power/preprint/{name}/median": _thousands(pd.Series([patients.median()])),
            f"power/preprint/{name}/fixed": _thousands(fixed.loc[fixed["metric"] == metric, "patients"]),
            f"power/preprint/{name}/seeds": fmt.range_of(seeds, "{:,.0f}", NONE),
        }
    return values


def _reproductions(literature: pd.DataFrame) -> Values:
    """Return how far two published reproductions of one network on one split lie apart."""
    rows = literature.drop_duplicates(["source", "label"])
    published = rows.pivot(index="label", columns="source", values="published")
    if not set(REPRODUCTIONS) <= set(published):
        return {}
    apart = (published[REPRODUCTIONS[0]] - published[REPRODUCTIONS[1]]).abs()
    return {
        "margin/reproductions": f"{apart['macro']:.4f}",
        "margin/reproductions/largest": f"{apart.drop('macro').max():.3f}",
    }


def _coverage(recorded: Path) -> Values:
    """Return the simulated coverage of intervals (``coverage/...``) and errors of verdicts."""
    rows = simulated.COVERAGE.read(recorded)
    findings, macro = (rows[rows["what"] == what] for what in (simulated.FINDING, simulated.MACRO))
    fewest = findings["positive_patients"].str.split().str[0].astype(int)
    by_seeds = simulated.VERDICTS.read(recorded)
    verdicts = by_seeds.set_index("what")["rate"]
    means = simulated.MEANS.read(recorded).query("positive_patients == ''").set_index("metric")
    refit = means.loc[~means["what"].str.endswith(simulated.FIXED), "rate"]
    anew, fixed = (
        means.loc[means["what"] == what, "rate"]
        for what in (simulated.MEAN, simulated.MEAN + simulated.FIXED)
    )
    rates = {
        "coverage/many": findings.loc[fewest >= 15, "rate"],
        "coverage/few": findings.loc[fewest < 15, "rate"],
        "coverage/many/wide": findings.loc[fewest >= 15, "wide"],
        "coverage/macro": macro["rate"],
        "coverage/f1": anew[anew.index.isin(simulated.F1_WHOLE.values())],
        "coverage/f1 fixed": fixed[fixed.index.isin(simulated.F1_WHOLE.values())],
        "coverage/precision": refit[refit.index.isin(simulated.PRECISION_WHOLE.values())],
        "coverage/brier": refit[refit.index.isin(simulated.CALIBRATION_WHOLE.values())],
        "coverage/seeds": verdicts[verdicts.index == simulated.MEAN_HOLDS],
        "verdicts/different": verdicts[verdicts.index == simulated.SOME_DIFFERENT],
        "verdicts/equivalent": verdicts[verdicts.index == simulated.EVERY_EQUIVALENT],
    }
    single = {"macro different": simulated.DIFFERENT, "finding equivalent": simulated.EQUIVALENT}
    for name, what in single.items():
        for seeds, some in by_seeds[by_seeds["what"] == what].groupby("seeds"):
            rates[f"verdicts/{name}/{seeds}"] = some["rate"]
    form = r"\SI{{{:.1f}}}{{\percent}}"
    return {name: fmt.range_of(100 * each, form, r"\emph{not simulated}") for name, each in rates.items()}


def families(parity: pd.DataFrame) -> Values:
    """Return ``family/<real or phantoms>/<what>``: verdicts, and how many Holm's correction leaves."""
    drawn = is_phantom(parity["dataset"])
    values: Values = {}
    for name, rows in (("real", family(parity[~drawn])), ("phantoms", family(parity[drawn]))):
        holds = rows["p_family"] < ALPHA
        masks = {verdict: rows["verdict"] == verdict for verdict in ("equivalent", "different")}
        counts = {
            "verdicts": len(rows),
            "pairs": len(rows.drop_duplicates([*GROUP[:2], "platform_a", "platform_b"])),
            "decided": sum(mask.sum() for mask in masks.values()),
            **{verdict: mask.sum() for verdict, mask in masks.items()},
            **{f"{verdict} after correction": (mask & holds).sum() for verdict, mask in masks.items()},
        }
        main = rows["label"] == ENDPOINT
        counts["endpoint equivalent after correction"] = (masks["equivalent"] & holds & main).sum()
        values |= {f"family/{name}/{what}": str(count) for what, count in counts.items()}
    return values


def coverage_tables(recorded: Path) -> dict[str, str]:
    """Return the tables of docs/statistics.md in Markdown, by the names of their places."""
    tables = simulated.COVERAGE, simulated.VERDICTS, simulated.MEANS
    covered, erred, held = (table.read(recorded) for table in tables)
    covered["auroc"] = covered["auroc"].map(
        lambda skill: skill if skill == simulated.REAL else f"AUROC {skill}"
    )
    erred["platform_share"] = erred["platform_share"].map("share {}".format)
    return {
        "coverage": _markdown(covered, ["what", "positive_patients"], "auroc"),
        "means": _markdown(held, ["metric", "positive_patients"], "what"),
        "verdicts": _markdown(erred, ["what", "seeds"], "platform_share"),
    }


def _markdown(rows: pd.DataFrame, index: list[str], columns: str) -> str:
    """Return rates with their Monte-Carlo errors; of intervals also the mean width and how many are wide."""
    names = {"what": "Statement", "positive_patients": "Positive patients", "seeds": "Seeds"}
    shown = rows["rate"].map("{:.1%}".format) + " ± " + rows["monte_carlo_error"].map("{:.1%}".format)
    if "mean_width" in rows:
        shown += "; " + rows["mean_width"].map("{:.3f}".format) + "; " + rows["wide"].map("{:.1%}".format)
    wide = rows.assign(rate=shown).pivot_table("rate", index, columns, aggfunc="first", sort=False)
    return as_markdown(wide.fillna("").reset_index().rename(columns={**names, "metric": "Metric"}))
