"""Seeds against platforms: how the paper counts pairs of networks, and the share of seed variance they
measure."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from cxrbench.paper.formats import (
    Columns,
    Fields,
    Filled,
    Range,
    Table,
    Value,
    Values,
    WithInterval,
    of_kinds,
    range_or,
    table,
    text,
)
from cxrbench.paper.results import Results, difference, is_phantom, seeds_of
from cxrbench.results.pairs import PLATFORM, PRECISION, PROCESSOR, SEED
from cxrbench.statistics.metrics import ALL, COMPARED, DEFINITIONS, ENDPOINT, METRICS, in_words
from cxrbench.statistics.power import DIFFERENCE
from cxrbench.statistics.shares import AND_PROCESSOR
from cxrbench.statistics.sources import SETTING

_SETTINGS = {SEED: "seed", PLATFORM: "backend", "precision": "precision", "threads": "threads"}
WORDS = {  # of what is changed, in the order of figure and table
    **{name + more: f"{word}{more}" for name, word in _SETTINGS.items() for more in ("", AND_PROCESSOR)},
    PROCESSOR: "processor",
}
SOURCES = {
    "patients": "test patients, common to all networks",
    "patients x network": "test patients by network",
    "seed": "the seed itself",
}
SCORES = {name: in_words(METRICS[name].label, name) for name in (*COMPARED[1:], COMPARED[0])}  # F1 first


def pairs_drawn(read: Results) -> pd.DataFrame:
    """Return the pairs on real radiographs, of AUROC the main endpoint's."""
    rows = read.pairs[~is_phantom(read.pairs["dataset"])]
    return rows[(rows["metric"] != "auroc") | (rows["label"] == ENDPOINT)].dropna(subset="difference")


@of_kinds({"Pairs": "plain", f"Above {DIFFERENCE}": "plain", "Median": "fine"})
def counts(read: Results) -> Iterator[Fields]:
    """How far two networks on real radiographs lie apart, by what is changed, against the preprint's F1."""
    rows = pairs_drawn(read)
    for metric, score in SCORES.items():
        for kind, words in WORDS.items():
            if len(sizes := _sizes(rows, kind, metric)):
                above = (sizes > DIFFERENCE).sum()
                yield {
                    **{"Score": score, "What is changed": words, "Pairs": len(sizes)},
                    f"Above {DIFFERENCE}": above if metric in DEFINITIONS else "-",
                    "Median": sizes.median(),
                }


def sources(read: Results) -> Table:
    """The variance of one run's score by source: patients, patients x network, the seed, the precision."""
    rows = read.sources
    if rows.empty:
        return Table(rows)
    columns: Columns = {
        "Score": ("name", lambda row: SCORES["auroc" if row.metric == ENDPOINT else row.metric]),
        "Source": ("name", _source_in_words),
        "SD": "sd:fine",
        "Variance": ("scientific", lambda row: row.variance),
        "Fraction": ("share", lambda row: row.fraction),
        "p": "p:ratio",
    }
    return table(rows, columns)


def _source_in_words(row: pd.Series) -> str:
    return f"precision, {row.network}" if row.source == SETTING else SOURCES[row.source]


def shares(read: Results) -> Table:
    """The share of the variance between seeds that two settings do not have in common, by network."""
    rows = read.shares
    if rows.empty:
        return Table(rows)
    shown = [(METRICS[metric].label, metric) for metric in COMPARED]
    rows = rows[pd.MultiIndex.from_frame(rows[["label", "metric"]]).isin(shown)]
    columns: Columns = {
        "Score": ("name", lambda row: SCORES[row.metric]),
        "Network and what is changed": ("name", _in_words),
        "Pairs": "pairs:plain",
        "SD of differences": "sd_of_difference:fine",
        "SD of seeds": "sd_of_seeds:fine",
        "Share": "share:ratio",
        "95 % interval": ("ratio", lambda row: Range(row.share_low, row.share_high)),
    }
    return table(rows.sort_values("metric", kind="stable"), columns)


def _in_words(row: pd.Series) -> str:
    network = "all networks" if row.architecture == ALL else row.architecture
    if row.changed == ALL or row.dataset == ALL:
        return f"{network}, {'everything' if row.changed == ALL else row.changed}"
    sides = (row.platform, row.platform_b) if row.changed == PLATFORM else (row.dataset, row.dataset_b)
    return f"{network}, {row.changed}: {' - '.join(sides)}"


def numbers(read: Results) -> Values:
    """Return ``pairs/seed/<metric>/...``, ``pairs/...``, ``share/...`` and ``precision/...``."""
    rows = pairs_drawn(read)
    seeds = rows[rows["changed"] == SEED]
    by = ["dataset", "architecture", "platform"]
    recipes = seeds.groupby(by)
    counts = pd.Series([len({*both["seed"], *both["seed_b"]}) for _, both in recipes], dtype=int)
    values: Filled = {"pairs/recipes": len(recipes), "pairs/recipes/seeds": range_or(counts, "plain", "0")}
    for metric in ("f1_macro", "f1_micro"):
        sizes = _sizes(rows, SEED, metric)
        values[f"pairs/seed/{metric}/pairs"] = len(sizes)
        values[f"pairs/seed/{metric}/above"] = int((sizes > DIFFERENCE).sum())
        values[f"pairs/seed/{metric}/median"] = Value(sizes.median(), "fine") if len(sizes) else "none"
    over = seeds[seeds["difference"].abs() > DIFFERENCE].groupby("metric").size()
    definitions = over.reindex([name for name in DEFINITIONS if name in set(seeds["metric"])]).fillna(0)
    values["pairs/definitions"] = len(definitions)
    values["pairs/definitions/fewest"] = int(definitions.min()) if len(definitions) else 0
    medians = [of["difference"].abs().median() for _, of in seeds[seeds["metric"] == "f1_macro"].groupby(by)]
    values["pairs/recipes/above"] = sum(median > DIFFERENCE for median in medians)
    return {**values, **_source_numbers(read), **_share_numbers(read), **_precision_numbers(read)}


def _source_numbers(read: Results) -> Values:
    """``sources/<score>/<source>``: its fraction of the variance, with its ``sd``; and the ``sd`` of all."""
    rows = read.sources
    values: Filled = {}
    if rows.empty:
        return values
    rows = rows[rows["source"] != SETTING]
    values |= {f"sources/{name}": int(rows[name].iloc[0]) for name in ("patients", "settings", "runs")}
    for metric, parts in rows.groupby("metric"):
        whole = parts["variance"].clip(lower=0).sum()
        values[f"sources/{metric}/sd"] = Value(whole**0.5, "score")
        values[f"sources/{metric}/reach"] = Value(1.96 * whole**0.5, "f1_given")
        for row in parts.itertuples():
            key = f"sources/{metric}/{row.source.replace(' x ', ' by ')}"
            values |= {key: Value(row.fraction, "share"), f"{key}/sd": Value(row.sd, "fine")}
    return values


def _sizes(rows: pd.DataFrame, kind: str, metric: str) -> pd.Series:
    return rows.loc[(rows["changed"] == kind) & (rows["metric"] == metric), "difference"].abs()


def _share_numbers(read: Results) -> Values:
    """Return ``share/<network or all>/<metric>``: the share over all pairs with its interval, and of how
    many."""
    values: Filled = {}
    rows = read.shares
    for row in rows[rows["changed"] == ALL].itertuples() if len(rows) else ():
        if row.label == METRICS[row.metric].label:
            key = f"share/{row.architecture}/{row.metric}"
            values[key] = Value(WithInterval(row.share, row.share_low, row.share_high), "ratio")
            values[f"{key}/pairs"] = int(row.pairs)
    return values


def _precision_numbers(read: Results) -> Values:
    """Return ``precision/...``: verdicts between two precisions, and those of the pairs with most seeds, of
    those that ran on one kind of processor."""
    rows = read.contrasts
    rows = rows[(rows["differs"] == PRECISION) & (rows["label"] == ENDPOINT) & ~is_phantom(rows["dataset_a"])]
    alike = [row for row in rows.itertuples() if row.same_processor_by_seed]
    most = max(map(seeds_of, alike), default=0)
    main = _precision_of(read, [row for row in alike if seeds_of(row) == most]) if alike else {}
    return {
        **main,
        "precision/seeds": most,
        "precision/pairs": len(rows),
        "precision/equivalent": int((rows["verdict"] == "equivalent").sum()),
    }


def _precision_of(read: Results, rows: list[Any]) -> Values:
    first, second = (read.study.recipe(name).precision for name in (rows[0].dataset_a, rows[0].dataset_b))
    verdicts = {row.verdict for row in rows}
    return {
        "precision/first": first,
        "precision/second": second,
        "precision/verdict": verdicts.pop() if len(verdicts) == 1 else "not all equivalent",
        "precision/networks": " and ".join(f"`{row.architecture}`" for row in rows),
        "precision/differences": ", ".join(
            f"{text(difference(row, 'ci90'), 'difference')} for `{row.architecture}`" for row in rows
        ),
    }
