"""Seeds against platforms: how the paper counts pairs of networks, and the share of seed variance they
measure."""

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.paper.formats import (
    Columns,
    Fields,
    Judgement,
    Range,
    Table,
    WithInterval,
    of_kinds,
    table,
    text,
)
from cxrbench.paper.results import Results, difference, seeds_of
from cxrbench.results.pairs import ARITHMETIC, EMULATED_PLATFORMS, PLATFORM, PRECISION, PROCESSOR, SEED
from cxrbench.statistics.folds import SPLIT
from cxrbench.statistics.metrics import ALL, COMPARED, DEFINITIONS, ENDPOINT, METRICS, in_words
from cxrbench.statistics.power import DIFFERENCE
from cxrbench.statistics.shares import AND_PROCESSOR
from cxrbench.statistics.sources import MIN_RUNS, SETTING
from cxrbench.study.names import GROUP

_SETTINGS = {SEED: "seed", PLATFORM: "backend", "precision": "precision", "threads": "threads"}
WORDS = {  # of what is changed, in the order of figure and table
    **{name + more: f"{word}{more}" for name, word in _SETTINGS.items() for more in ("", AND_PROCESSOR)},
    PROCESSOR: "processor",
}
SOURCE_NAMES = {
    "patients": "test patients, common to all runs",
    "patients x network": "patients x run",
    "seed": "the seed itself",
    SPLIT: "the split",
}
SCORE_NAMES = {name: in_words(METRICS[name].label, name) for name in (*COMPARED[1:], COMPARED[0])}  # F1 first


def _in_prose(network: str) -> str:
    """A network's name in its own paper, or timm's as code."""
    return {"resnet18": "ResNet-18", "convnext_pico": "ConvNeXt-Pico"}.get(network, f"`{network}`")


def pairs_drawn(read: Results) -> pd.DataFrame:
    """The pairs on real radiographs without emulated arithmetic, of AUROC the main endpoint's."""
    rows = read.pairs[~read.pairs["drawn"]]
    apart = [name for name in {*rows["dataset"], *rows["dataset_b"]} if read.study.set_apart(name)]
    rows = rows[~rows["dataset"].isin(apart) & ~rows["dataset_b"].isin(apart)]
    return rows[(rows["metric"] != "auroc") | (rows["label"] == ENDPOINT)].dropna(subset="difference")


@of_kinds({"Pairs": "plain", f"Above {DIFFERENCE}": "plain", "Median": "fine"})
def counts(read: Results) -> Iterator[Fields]:
    """How far two networks on real radiographs lie apart, by what is changed, against the preprint's F1."""
    rows = pairs_drawn(read)
    for metric, score in SCORE_NAMES.items():
        for kind, words in WORDS.items():
            if len(sizes := _sizes(rows, kind, metric)):
                above = (sizes > DIFFERENCE).sum()
                yield {
                    **{"Score": score, "What is changed": words, "Pairs": len(sizes)},
                    f"Above {DIFFERENCE}": above if metric in DEFINITIONS else "-",
                    "Median": sizes.median(),
                }


def behind_sources(read: Results) -> pd.DataFrame:
    """The number of networks and the image size of the settings whose variance is divided by source: of those
    with enough seeds, the size that most runs have. None without any."""
    runs = [(group, len(read.of(group, "auroc", ENDPOINT))) for group in read.scored()]
    rows = pd.DataFrame(
        [
            {"pixels": read.study.dataset(group[0]).pixels, "network": group[1], "runs": count}
            for group, count in runs
            if count >= MIN_RUNS and group[0] not in read.drawn and not read.study.dataset(group[0]).block
        ]
    )
    if rows.empty:
        return rows
    by_size = rows.groupby("pixels").agg(networks=("network", "nunique"), runs=("runs", "sum"))
    return by_size.nlargest(1, "runs").reset_index()


def seed_fractions(read: Results) -> pd.DataFrame:
    """The seed's fraction of the variance of one run's main endpoint, by ``network``: a row per setting on
    real radiographs with enough seeds."""
    rows = read.not_set_apart(read.spread[~read.spread["drawn"]])
    rows = rows[(rows["label"] == ENDPOINT) & (rows["metric"] == "auroc") & (rows["n_seeds"] >= MIN_RUNS)]
    seed, patients = rows["seed_sd_beyond_patients"] ** 2, rows["patient_se"] ** 2
    return pd.DataFrame({"network": rows["architecture"], "fraction": seed / (seed + patients)})


def sources_on_more_patients(read: Results) -> pd.DataFrame:
    """The fractions of the endpoint's variance by source on as many test patients as the reproductions of
    CheXNet have, if both parts of patients shrink with their number and the seed's stays."""
    rows, splits = read.sources, read.table("splits")
    rows = rows[(rows["metric"] == ENDPOINT) & (rows["source"] != SETTING)]
    if rows.empty:
        return rows
    part = splits[(splits["split"] == "chexnet") & (splits["part"] == "test")]
    shrunk = rows["variance"].clip(lower=0) * rows["patients"] / part["patients"].iloc[0]
    variance = shrunk.where(rows["source"] != "seed", rows["variance"].clip(lower=0))
    return rows.assign(variance=variance, fraction=variance / variance.sum())


def sources(read: Results) -> Table:
    """The variance of one run's score by source: patients, patients x network, the seed, the precision."""
    rows = read.sources
    if rows.empty:
        return Table(rows)
    rows = rows[rows["setting"] != SPLIT]  # in the table of folds
    columns: Columns = {
        "Score": ("name", lambda row: SCORE_NAMES["auroc" if row.metric == ENDPOINT else row.metric]),
        "Source": ("name", _source_in_words),
        "SD": ("fine", lambda row: _deviation(row.variance)),
        "Variance": "variance:scientific",
        "Error": "error:scientific",
        "Fraction": ("share", _fraction),
        "p": "p:ratio",
    }
    return table(rows.sort_values("metric", kind="stable"), columns)


def _deviation(variance: float) -> float:
    """Its root; NaN for an estimate below zero."""
    return variance**0.5 if variance >= 0 else math.nan


def _fraction(row: pd.Series) -> float:
    """Its fraction of the variance; NaN for an estimate below zero."""
    return row.fraction if row.variance >= 0 else math.nan


def _source_in_words(row: pd.Series) -> str:
    return f"{row.setting}, {row.network}" if row.source == SETTING else SOURCE_NAMES[row.source]


def over_folds(read: Results) -> Table:
    """The variance of one run's main endpoint by source over folds: patients, runs, seed and split."""
    rows = read.table("folds")
    if rows.empty:
        return Table(rows)
    columns: Columns = {
        "Network": "architecture",
        "Source": ("name", lambda row: SOURCE_NAMES[row.source]),
        "SD": ("fine", lambda row: _deviation(row.variance)),
        "95 % interval": ("fine", lambda row: Range(row.low**0.5, row.high**0.5)),
        "Variance": "variance:scientific",
        # Of the split the interval is the measure: the error holds at the estimate, which may lie below zero.
        "Error": ("scientific", lambda row: math.nan if row.source == SPLIT else row.error),
        "Fraction": ("share", _fraction),
        "p": "p:ratio",
    }
    return table(rows, columns)


def shares(read: Results) -> Table:
    """The share of the variance between seeds that two settings do not have in common, by network."""
    rows = read.shares
    if rows.empty:
        return Table(rows)
    shown = [(METRICS[metric].label, metric) for metric in COMPARED]
    rows = rows[pd.MultiIndex.from_frame(rows[["label", "metric"]]).isin(shown)]
    columns: Columns = {
        "Score": ("name", lambda row: SCORE_NAMES[row.metric]),
        "Network and what is changed": ("name", _in_words),
        "Pairs": "pairs:plain",
        "SD of differences": "sd_of_difference:fine",
        "SD of seeds": "sd_of_seeds:fine",
        "Not shared": "share:ratio",
        "95 % interval": ("ratio", lambda row: Range(row.share_low, row.share_high)),
    }
    return table(rows.sort_values("metric", kind="stable"), columns)


def _in_words(row: pd.Series) -> str:
    network = "all networks" if row.architecture == ALL else row.architecture
    if row.changed == ALL or row.dataset == ALL:
        return f"{network}, {'everything' if row.changed == ALL else row.changed}"
    sides = (row.platform, row.platform_b) if row.changed == PLATFORM else (row.dataset, row.dataset_b)
    return f"{network}, {row.changed}: {' - '.join(sides)}"


def pairs_by_setting(read: Results) -> pd.DataFrame:
    """A row per setting on radiographs with two seeds or more on a processor: whether the median difference
    of two in macro F1 is above the preprint's."""
    rows = pairs_drawn(read)
    rows = rows[rows["changed"] == SEED]
    settings = []
    for name, pairs in rows.groupby(["dataset", "architecture", "platform"]):
        f1 = pairs.loc[pairs["metric"] == "f1_macro", "difference"].abs()
        settings.append({"setting": "/".join(name), "above": f1.median() > DIFFERENCE})
    return pd.DataFrame(settings, columns=["setting", "above"])


SECOND_MARGIN = 0.005  # of the emulated arithmetic, declared beside the margin (docs/arithmetic.md)
ARMS = {  # of a block, by the arithmetic of their recipe
    "own": "fp32",
    "fp32_reordered": "other order",
    "matmult_bf16": "Neuron",
    "tf32_conv": "A10G",
    "bf16_nearest": "bf16, nearest",
    "bf16_stochastic": "bf16, stochastic",
}


def arms_compared(read: Results) -> pd.DataFrame:
    """The rows of contrasts.csv about the main endpoint of two arms of a block whose planned seeds are all
    recorded: fewer cannot answer what was declared."""
    rows = read.contrasts
    rows = rows[(rows["differs"] == ARITHMETIC) & (rows["label"] == ENDPOINT) & ~rows["drawn"]]
    planned = read.cells.groupby(GROUP).size()
    seeds = [planned[row.dataset_a, row.architecture, row.platform] for row in rows.itertuples()]
    whole = [seeds_of(row) == count for row, count in zip(rows.itertuples(), seeds, strict=True)]
    return rows[np.array(whole, dtype=bool)]


def arms(read: Results) -> Table:
    """Two emulated kinds of arithmetic and nothing else changed, by the main endpoint, with its verdict."""
    columns: Columns = {
        "Network": "architecture",
        "Arithmetic": ("name", lambda row: arms_of(read, row)),
        "Seeds": ("count", seeds_of),
        "Difference": ("difference", lambda row: difference(row, "ci90")),
        "p, corrected": "p_family:p",
        "Verdict": ("verdict", lambda row: Judgement(row.verdict)),
        f"Within {SECOND_MARGIN}": ("name", lambda row: "yes" if within(row) else "not shown"),
        "Last step": ("difference", last_difference),
    }
    return table(arms_compared(read), columns)


def within(row: Any) -> bool:
    """Whether a contrast's 90 % interval lies inside the second declared margin."""
    return bool(max(abs(row.ci90_low), abs(row.ci90_high)) < SECOND_MARGIN)


def last_difference(row: Any) -> WithInterval:
    """The difference that the weights after the last step have, with its 90 % interval."""
    return WithInterval(row.last_difference, row.last_ci90_low, row.last_ci90_high)


def arms_of(read: Results, row: Any) -> str:
    """The two kinds of arithmetic that a row of contrasts.csv compares, as the first minus the second."""
    return " - ".join(ARMS[read.study.recipe(name).arithmetic] for name in (row.dataset_a, row.dataset_b))


def arithmetic_of_platforms(read: Results) -> pd.DataFrame:
    """A row about the emulated arithmetic of two platforms, for networks whose blocks are whole: seeds,
    verdict, each difference, whether it goes further than that of orders of summation, and the declared
    networks that are unfinished. None without any."""
    compared = arms_compared(read)
    arithmetic = {
        name: recipe_of.arithmetic for name in read.study.datasets if (recipe_of := read.study.recipe(name))
    }
    of_arms = read.cells["dataset"].map(arithmetic).isin(EMULATED_PLATFORMS)
    declared = list(read.cells.loc[of_arms, "architecture"].unique())
    compared = compared.sort_values(
        "architecture", key=lambda names: names.map(declared.index), kind="stable"
    )
    sides = compared[["dataset_a", "dataset_b"]].replace(arithmetic)
    platforms = compared[(sides == EMULATED_PLATFORMS).all(axis=1)]
    if platforms.empty:
        return pd.DataFrame()
    networks = [*platforms["architecture"]]
    beyond = read.table("arithmetic").set_index("architecture").loc[networks]
    verdicts = {*platforms["verdict"]}
    unfinished = [network for network in declared if network not in networks]
    inside = [row.architecture for row in platforms.itertuples() if within(row)]

    def in_words(names: Iterable[str]) -> str:
        return " and ".join(map(_in_prose, names))

    def each(values: Iterable[str]) -> str:
        pairs = zip(values, networks, strict=True)
        return ", ".join(f"{value} for {_in_prose(name)}" for value, name in pairs)

    answer = {
        "networks": in_words(networks),
        "unfinished": len(unfinished),
        "unfinished networks": in_words(unfinished),
        "seeds": max(map(seeds_of, platforms.itertuples())),
        "verdict": verdicts.pop() if len(verdicts) == 1 else "not all equivalent",
        "differences": each(text(difference(row, "ci90"), "difference") for row in platforms.itertuples()),
        "intervals": " and ".join(
            f"{text(Range(row.ci90_low, row.ci90_high), 'signed')} for {_in_prose(row.architecture)}"
            for row in platforms.itertuples()
        ),
        "beyond": each(
            text(WithInterval(row.beyond, row.ci_low, row.ci_high), "difference")
            for row in beyond.itertuples()
        ),
        "second margin": SECOND_MARGIN,
        "second": (in_words(inside) or "no network") + " alone" * (0 < len(inside) < len(networks)),
        "spread": each(
            f"{text(row.seed_sd, 'margin')} ({text(row.seed_sd_of_orders, 'margin')} between the orders)"
            for row in beyond.itertuples()
        ),
        "further": ((beyond["ci_low"] > 0) | (beyond["ci_high"] < 0)).sum(),
    }
    return pd.DataFrame([answer])


def _sizes(rows: pd.DataFrame, kind: str, metric: str) -> pd.Series:
    return rows.loc[(rows["changed"] == kind) & (rows["metric"] == metric), "difference"].abs()


def deviation(rows: pd.DataFrame) -> float:
    """The standard deviation of one run's score by its patients and its seed, from rows of sources.csv."""
    parts = rows.loc[rows["source"] != SETTING, "variance"].clip(lower=0)
    return float(parts.sum() ** 0.5)


def error_of_seed(rows: pd.DataFrame) -> float:
    """The standard error of the seed's variance, as a fraction of that score's variance."""
    return float(rows.loc[rows["source"] == "seed", "error"].iloc[0] / deviation(rows) ** 2)


def reach(rows: pd.DataFrame) -> float:
    """The half-width of a 95 % interval of that score."""
    return 1.96 * deviation(rows)


def precisions_of_most_seeds(read: Results) -> pd.DataFrame:
    """A row about two precisions, by the networks with most seeds of those that ran on one kind of processor:
    the precisions, the seeds, their verdict, and the networks with their differences. None without any."""
    rows = read.contrasts
    rows = rows[(rows["differs"] == PRECISION) & (rows["label"] == ENDPOINT) & ~rows["drawn"]]
    on_one_processor = [row for row in rows.itertuples() if row.same_processor_by_seed]
    most = max(map(seeds_of, on_one_processor), default=0)
    chosen = [row for row in on_one_processor if seeds_of(row) == most]
    if not chosen:
        return pd.DataFrame()
    verdicts = {row.verdict for row in chosen}
    sides = chosen[0].dataset_a, chosen[0].dataset_b
    first, second = (read.study.recipe(name).precision for name in sides)
    answer = {
        "first": first,
        "second": second,
        "seeds": most,
        "pixels": read.study.dataset(sides[0]).pixels,
        "verdict": verdicts.pop() if len(verdicts) == 1 else "not all equivalent",
        "networks": " and ".join(_in_prose(row.architecture) for row in chosen),
        "differences": ", ".join(
            f"{text(difference(row, 'ci90'), 'difference')} for {_in_prose(row.architecture)}"
            for row in chosen
        ),
    }
    return pd.DataFrame([answer])
