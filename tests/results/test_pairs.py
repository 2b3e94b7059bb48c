"""Pairs of networks that differ in one thing, and the share of seed variance that they measure."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cxrbench.results.pairs import COLUMNS, SEED, pairs
from cxrbench.statistics.metrics import ALL
from cxrbench.statistics.shares import AND_PROCESSOR, SHARE_COLUMNS, shares
from cxrbench.study.names import Cell
from synthetic import draw_predictions, estimated, network_of

from .test_contrasts import NIH, study_of

# Datasets that were planned after the count was made.
LATER = (
    "nih128-32px-fp32",
    "nih128-32px-bf16",
    "nih128-32px-emulated-nearest",
    "nih128-32px-emulated-stochastic",
)
IMAGES = draw_predictions(3, {"val": 150, "test": 150}, np.linspace(0.1, 0.3, 14))


def paired(first: np.ndarray, second: np.ndarray, **place: str) -> pd.DataFrame:
    """Rows of pairs.csv: a score of each seed under two settings."""
    where = {"changed": "precision", "dataset": "a", "architecture": "net", "platform": "cpu"}
    where |= {"dataset_b": "b", "platform_b": "cpu", "label": "macro", "metric": "f1_macro"} | place
    seeds = {"seed": range(len(first)), "seed_b": range(len(first))}
    values = {"value": first, "value_b": second, "difference": first - second}
    return pd.DataFrame({**seeds, **values}).assign(**where)


@pytest.mark.slow
def test_recorded_networks_differ_by_the_seed_alone_in_most_pairs(from_all_evidence: Path) -> None:
    """Of the recipes with three seeds, on whatever processors: as counted apart from this code."""
    table = pd.read_csv(from_all_evidence / "results/tables/pairs.csv")
    rows = table[~table["dataset"].str.contains("phantom|-arith-|-fold")]  # blocks grow
    rows = rows[~rows["dataset"].isin(LATER) & ~rows["dataset_b"].isin(LATER)]
    setting = rows["changed"].str.removesuffix(AND_PROCESSOR)
    sizes = rows.assign(size=rows["difference"].abs()).groupby([setting, "metric"])["size"]
    counts = sizes.agg(pairs="size", above=lambda size: (size > 0.002).sum(), median="median")
    for changed, metric, number, above in (
        *((SEED, "f1_macro", 39, 36), (SEED, "f1_micro", 39, 38)),
        *(("platform", "f1_macro", 6, 3), ("platform", "f1_micro", 6, 5)),
    ):
        found = counts.loc[(changed, metric)]
        assert (found["pairs"], found["above"]) == (number, above), (changed, metric)
    assert counts.loc[(SEED, "f1_macro"), "median"] == pytest.approx(0.0071, abs=5e-5)
    assert counts.loc[(SEED, "f1_micro"), "median"] == pytest.approx(0.0141, abs=5e-5)
    f1 = [metric for _, metric in counts.index if metric.startswith("f1_")]
    assert len(set(f1)) == 9 and (counts.loc[SEED].loc[sorted(set(f1)), "above"] >= 28).all()


def test_a_pair_differs_in_exactly_one_thing() -> None:
    names = {
        *(f"nih128-64px/resnet18/cpu/seed{seed}" for seed in (0, 1)),
        *(f"nih128-64px/resnet18/cuda/seed{seed}" for seed in (0, 1)),
        *("nih128-64px-bf16/resnet18/cpu/seed0", "nih128-32px/resnet18/cpu/seed0"),
        "nih128-64px/resnet50/cpu/seed0",
    }
    cells = estimated({name: network_of(IMAGES, k, 0.1) for k, name in enumerate(sorted(names))})
    facts = pd.DataFrame(
        {
            "cell": str(cell),
            "recipe_hash": "bf16" if "bf16" in cell.dataset else "fp32",
            "packed": "32" if "32px" in cell.dataset else "64",
            **{"norm_images": "64", "processor": "A"},
        }
        for cell in cells
    )
    table = pairs(cells, facts, study_of(NIH))
    assert list(table.columns) == COLUMNS
    found = table.groupby("changed").apply(
        lambda rows: len(rows.drop_duplicates(["platform", "seed", "dataset_b"]))
    )
    assert found.to_dict() == {"seed": 2, "platform": 2, "precision": 1}
    row = table.query("changed == 'precision' and metric == 'f1_macro'").iloc[0]
    both = (cells[Cell.parse(f"{row[d]}/resnet18/cpu/seed0")] for d in ("dataset", "dataset_b"))
    k = next(iter(cells.values())).keys.index(("macro", "f1_macro"))
    first, second = (cell.estimate.value[k] for cell in both)
    assert row["difference"] == pytest.approx(first - second)


def test_a_processor_that_changed_too_is_named() -> None:
    names = [
        *("nih128-64px/resnet18/cpu/seed0", "nih128-64px-bf16/resnet18/cpu/seed0"),
        *("nih128-64px/resnet18/cpu/seed1", "nih128-64px/resnet18/cuda/seed0"),
    ]
    cells = estimated({name: network_of(IMAGES, k, 0.1) for k, name in enumerate(names)})
    facts = pd.DataFrame({"cell": names, "processor": ["A", "B", "B", "B"]})
    facts = facts.assign(recipe_hash=facts["cell"].str.split("/").str[0], packed="64", norm_images="64")
    table = pairs(cells, facts, study_of(NIH))
    changed = {f"{name} and processor" for name in ("precision", "seed", "platform")}
    assert set(table["changed"]) == changed
    seeds = paired(*np.random.default_rng(5).normal(size=(2, 9)), changed="seed and processor")
    assert len(shares(seeds)) and shares(seeds.assign(seed_b=seeds["seed"] + 1)).empty


def test_a_share_is_of_all_pairs_of_two_settings_and_names_the_processor_of_any() -> None:
    table = paired(*np.random.default_rng(6).normal(size=(2, 5)))
    table.loc[0, "changed"] += AND_PROCESSOR
    row = shares(table).iloc[0]
    assert (row["changed"], row["pairs"]) == ("precision and processor", 5)


def test_a_pool_takes_each_network_once() -> None:
    rng = np.random.default_rng(4)
    large, small, other = (paired(rng.normal(size=n), rng.normal(size=n)) for n in (9, 6, 5))
    small = small.assign(dataset_b="c")  # shares dataset a with the first
    other = other.assign(dataset="d", dataset_b="e")
    found = shares(pd.concat([small, large, other])).groupby("architecture")["pairs"].max()
    assert found[ALL] == 14


def test_the_share_is_one_less_the_correlation_and_its_interval_is_pitmans_and_morgans() -> None:
    rng = np.random.default_rng(0)
    common = rng.normal(size=400)
    first, second = (np.sqrt(0.7) * common + np.sqrt(0.3) * rng.normal(size=400) for _ in "ab")
    table = shares(paired(first, second))
    assert list(table.columns) == SHARE_COLUMNS
    row = table.iloc[0]
    equal = first.std() / second.std()  # of equal variances it is the correlation itself
    assert row["share"] == pytest.approx(1 - np.corrcoef(first, second)[0, 1], abs=0.05) and 0.9 < equal < 1.1
    assert row["share_low"] < 0.3 < row["share_high"] and row["freedom"] == 399
    ratio = np.var(first - second) / np.var(first + second)
    tail = stats.f.sf(ratio / (row["share_low"] / (2 - row["share_low"])), 399, 399)
    assert tail == pytest.approx(0.025)


def test_five_pairs_say_little_and_four_have_no_share() -> None:
    rng = np.random.default_rng(1)
    row = shares(paired(rng.normal(size=5), rng.normal(size=5))).iloc[0]
    assert row["share_high"] / row["share_low"] > 5
    assert shares(paired(rng.normal(size=4), rng.normal(size=4))).empty


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_the_interval_holds_the_share(share: float) -> None:
    rng, inside = np.random.default_rng(2), []
    for _ in range(300):
        common, *own = rng.normal(size=(3, 10))
        first, second = (np.sqrt(1 - share) * common + np.sqrt(share) * each for each in own)
        row = shares(paired(first, second)).iloc[0]
        inside.append(row["share_low"] <= share <= row["share_high"])
    assert 0.92 <= np.mean(inside) <= 0.98


def test_a_share_is_pooled_over_one_kind_of_change_and_needs_five_pairs() -> None:
    rng = np.random.default_rng(3)
    parts = [
        paired(rng.normal(size=pairs), rng.normal(size=pairs), architecture=name, changed=changed, **sides)
        for name, pairs in (("one", 9), ("two", 9), ("three", 4))
        for changed, sides in (("precision", {}), ("platform", {"dataset": "c", "dataset_b": "c"}))
    ]
    table = shares(pd.concat(parts))
    assert set(table["architecture"]) == {"one", "two", ALL} and ALL not in set(table["changed"])
    pooled = table[table["architecture"] == ALL].set_index("changed")["pairs"]
    assert pooled.to_dict() == {"precision": 18, "platform": 18}
