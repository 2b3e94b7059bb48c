"""Seeds against platforms: how the paper counts pairs of networks, and the share of seed variance they
measure."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from cxrbench.analysis.estimates import ENDPOINT
from cxrbench.analysis.measures import DEFINITIONS
from cxrbench.analysis.pairs import ALL, AND_PROCESSOR, BETWEEN, JUDGED, OF_METRIC, PLATFORM, PROCESSOR, SEED
from cxrbench.analysis.power import DIFFERENCE
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Row, Values
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results, is_phantom, processors_differ

_SETTINGS = {SEED: "seed", PLATFORM: "backend", "precision": "precision", "threads": "threads"}
WORDS = {  # of what is changed, in the order of figure and table
    **{name + more: f"{word}{more}" for name, word in _SETTINGS.items() for more in ("", AND_PROCESSOR)},
    PROCESSOR: "processor",
}
SHOWN = {"f1_macro": "macro F1", "f1_micro": "micro F1", "auroc": "main endpoint"}


def drawn(read: Results) -> pd.DataFrame:
    """Return the pairs on real radiographs, of AUROC the main endpoint's."""
    rows = read.pairs[~is_phantom(read.pairs["dataset"])]
    return rows[(rows["metric"] != "auroc") | (rows["label"] == ENDPOINT)].dropna(subset="difference")


@fmt.table("llrrr")
def counts(read: Results) -> Iterator[Row]:
    """How far two networks on real radiographs lie apart, by what is changed, against the preprint's F1."""
    rows = drawn(read)
    for metric, score in SHOWN.items():
        for kind, words in WORDS.items():
            if len(sizes := _sizes(rows, kind, metric)):
                above = str((sizes > DIFFERENCE).sum())
                yield {
                    **{"Score": score, "What is changed": words, "Pairs": str(len(sizes))},
                    f"Above {DIFFERENCE}": above if metric in DEFINITIONS else "-",
                    "Median": f"{sizes.median():.4f}",
                }


@fmt.table("llrrrrr")
def shares(read: Results) -> Iterator[Row]:
    """The share of the variance between seeds that two settings do not have in common, by network."""
    rows = read.shares
    shown = [(OF_METRIC.get(metric, ALL), metric) for metric in ("auroc", "f1_macro", "f1_micro")]
    rows = rows[pd.MultiIndex.from_frame(rows[["label", "metric"]]).isin(shown)] if len(rows) else rows
    for row in rows.sort_values("metric", kind="stable").itertuples() if len(rows) else ():
        yield {
            "Score": SHOWN[row.metric],
            "Network and what is changed": _in_words(row),
            "Pairs": f"{row.pairs:.0f}",
            "SD of differences": f"{row.sd_of_difference:.4f}",
            "SD of seeds": f"{row.sd_of_seeds:.4f}",
            "Share": f"{row.share:.2f}",
            "95 % interval": f"{row.share_low:.2f} to {row.share_high:.2f}",
        }


def _in_words(row: pd.Series) -> str:
    network = "all networks" if row.architecture == ALL else row.architecture
    if row.changed == ALL or row.dataset == ALL:
        return f"{network}, {'everything' if row.changed == ALL else row.changed}"
    sides = (row.platform, row.platform_b) if row.changed == PLATFORM else (row.dataset, row.dataset_b)
    return f"{network}, {row.changed}: {' - '.join(sides)}"


def numbers(read: Results) -> Values:
    """Return ``pairs/<changed>/<metric>/...``, ``pairs/...``, ``share/...`` and ``precision/...``."""
    rows = drawn(read)
    seeds = rows[rows["changed"] == SEED]
    recipes = seeds.groupby(["dataset", "architecture", "platform"])
    counts = pd.Series([len({*both["seed"], *both["seed_b"]}) for _, both in recipes], dtype=int)
    values = {
        "pairs/recipes": str(len(recipes)),
        "pairs/recipes/seeds": fmt.range_of(counts, "{:.0f}", "0"),
    }
    for kind in (SEED, *BETWEEN):
        for metric in ("f1_macro", "f1_micro", "auroc"):
            values |= _counted(rows, kind, metric)
    over = seeds[seeds["difference"].abs() > DIFFERENCE].groupby("metric").size()
    definitions = over.reindex([name for name in DEFINITIONS if name in set(seeds["metric"])]).fillna(0)
    values["pairs/definitions"] = str(len(definitions))
    values["pairs/definitions/fewest"] = f"{definitions.min():.0f}" if len(definitions) else "0"
    return values | _share_numbers(read) | _precision_numbers(read)


def _sizes(rows: pd.DataFrame, kind: str, metric: str) -> pd.Series:
    return rows.loc[(rows["changed"] == kind) & (rows["metric"] == metric), "difference"].abs()


def _counted(rows: pd.DataFrame, kind: str, metric: str) -> Values:
    sizes = _sizes(rows, kind, metric)
    key = f"pairs/{kind}/{metric}"
    return {
        f"{key}/pairs": str(len(sizes)),
        f"{key}/above": str((sizes > DIFFERENCE).sum()),
        f"{key}/median": fmt.number(sizes.median(), ".4f", "none"),
    }


def _share_numbers(read: Results) -> Values:
    """Return ``share/<network or all>/<metric>``: the share over all pairs with its interval, and of how
    many."""
    values: Values = {}
    rows = read.shares
    for row in rows[rows["changed"] == ALL].itertuples() if len(rows) else ():
        if row.label == OF_METRIC.get(row.metric, ALL):
            key = f"share/{row.architecture}/{row.metric}"
            values[key] = f"{row.share:.2f} ({row.share_low:.2f} to {row.share_high:.2f})"
            values[f"{key}/pairs"] = f"{row.pairs:.0f}"
    return values


def _precision_numbers(read: Results) -> Values:
    """Return ``precision/verdicts``: the verdict on each network between two precisions, in words; and
    ``precision/...`` of the pairs with most seeds, of those that ran on one kind of processor."""
    rows = read.contrasts
    rows = rows[(rows["differs"] == JUDGED) & (rows["label"] == ENDPOINT) & ~is_phantom(rows["dataset_a"])]
    said = [
        rf"\code{{{escape(row.architecture)}}} {row.verdict} (\code{{{escape(row.dataset_a)}}} less "
        rf"\code{{{escape(row.dataset_b)}}}, {_seeds_of(row)}~seeds: {_signed(row)}"
        rf"{', on two kinds of processor' if processors_differ(row) else ''})"
        for row in rows.itertuples()
    ]
    alike = [row for row in rows.itertuples() if not processors_differ(row)]
    most = max(map(_seeds_of, alike), default=0)
    main = _precision_of(read, [row for row in alike if _seeds_of(row) == most]) if alike else {}
    return main | {
        "precision/seeds": str(most),
        "precision/pairs": str(len(said)),
        "precision/equivalent": str((rows["verdict"] == "equivalent").sum()),
        "precision/verdicts": "; ".join(said),
    }


def _precision_of(read: Results, rows: list[Any]) -> Values:
    first, second = (read.study.recipe(name).precision for name in (rows[0].dataset_a, rows[0].dataset_b))
    verdicts = {row.verdict for row in rows}
    verdict = verdicts.pop() if len(verdicts) == 1 else "not all equivalent"
    texts = {"first": first, "second": second, "verdict": verdict}
    differences = ", ".join(rf"{_signed(row)} for \code{{{escape(row.architecture)}}}" for row in rows)
    return {
        **{f"precision/{name}": escape(text) for name, text in texts.items()},
        "precision/networks": " and ".join(rf"\code{{{escape(row.architecture)}}}" for row in rows),
        "precision/differences": differences,
    }


def _seeds_of(row: Any) -> int:
    return len(str(row.seeds_a).split(","))


def _signed(row: pd.Series) -> str:
    return fmt.difference(row, "ci90").replace("-", "$-$")
