"""Variance by source: known parts of drawn runs come out, and identical runs have none of their own."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score

from cxrbench.statistics.estimates import CellEstimate, estimate_cell
from cxrbench.statistics.sample import validation_of
from cxrbench.statistics.sources import ESTIMATE_KEYS, MIN_RUNS, _halves, halved_scores, sources
from synthetic import draw_predictions, network_of

Runs = dict[int, tuple[CellEstimate, np.ndarray]]
COMMON = np.full(14, 0.1)  # so frequent that all halves have all findings


def runs_of(change: Callable[[int], pd.DataFrame]) -> Runs:
    tables = {seed: change(seed) for seed in range(MIN_RUNS)}
    estimates = {seed: estimate_cell(table) for seed, table in tables.items()}
    return {seed: (of, halved_scores(of, validation_of(tables[seed]))) for seed, of in estimates.items()}


@pytest.fixture(scope="module")
def base() -> pd.DataFrame:
    return draw_predictions(1, {"val": 150, "test": 300}, COMMON)


@pytest.fixture(scope="module")
def equal(base: pd.DataFrame) -> Runs:
    """Networks of one skill that err on patients of their own."""
    return runs_of(lambda seed: network_of(base, seed, noise=0.6))


@pytest.fixture(scope="module")
def unequal(base: pd.DataFrame) -> Runs:
    """The same with a skill that a seed decides."""
    return runs_of(lambda seed: network_of(base, seed, noise=0.6, shift=0.12 * (seed % 5 - 2)))


def part(table: pd.DataFrame, metric: str, source: str, column: str = "variance") -> float:
    return float(table.set_index(["metric", "source"]).loc[(metric, source), column])


def test_halves_are_scored_as_scikit_learn_scores_their_images(base: pd.DataFrame) -> None:
    run, val = estimate_cell(base), validation_of(base)
    assert val is not None
    scores = halved_scores(run, val, halvings=2)
    test, names = run.sample, run.sample.names
    rows = _halves(test.n_clusters, 2)[:, test.clusters] > 0
    of_val = _halves(val.n_clusters, 2)[:, val.clusters] > 0
    assert (rows[0] ^ rows[1]).all() and not set(test.clusters[rows[0]]) & set(test.clusters[rows[1]])
    for number in range(4):
        cut, half = divmod(number, 2)
        mine, theirs = rows[number], of_val[number]
        areas, best = [], []
        for k in range(len(names)):
            areas.append(roc_auc_score(test.labels[mine, k], test.scores[mine, k]))
            true, tried = val.labels[theirs, k], np.unique(val.scores[theirs, k])
            called = val.scores[theirs, k] >= tried[:, None]
            of_tried = 2 * (called & true).sum(axis=1) / (called.sum(axis=1) + true.sum())
            threshold = tried[len(tried) - 1 - np.argmax(of_tried[::-1])]
            best.append(f1_score(test.labels[mine, k], test.scores[mine, k] >= threshold))
        assert scores[0, cut, half] == pytest.approx(np.mean(areas), abs=1e-12)
        assert scores[1, cut, half] == pytest.approx(np.mean(best), abs=1e-12)


def test_what_equal_networks_differ_by_is_patients_and_not_the_seed(equal: Runs, unequal: Runs) -> None:
    """A seed that decides the skill is told from one that does not, in both metrics."""
    of_equal, of_unequal = sources({"a": equal}), sources({"a": unequal})
    skill = np.var([run.estimate.value[run.keys.index(("endpoint", "auroc"))] for run, _ in unequal.values()])
    for metric in ("endpoint", "f1_macro"):
        luck = part(of_equal, metric, "patients x network")
        assert luck > 0 and abs(part(of_equal, metric, "seed")) < luck
        assert part(of_unequal, metric, "seed") > 3 * luck
    assert part(of_unequal, "endpoint", "seed") == pytest.approx(skill * 10 / 9, rel=0.25)


@pytest.mark.slow
def test_the_patients_part_is_that_of_new_patients() -> None:
    """Against the variance over studies with patients drawn anew, which no formula of ours enters."""
    studies = [draw_predictions(seed, {"val": 100, "test": 150}, COMMON) for seed in range(30)]
    means, parts = [], []
    for study in studies:
        run = estimate_cell(study)
        halves = halved_scores(run, validation_of(study))
        parts.append((halves[..., 0] - halves[..., 1]) ** 2 / 4)
        means.append([run.estimate.value[run.keys.index(key)] for key in ESTIMATE_KEYS])
    over_studies = np.var(means, axis=0, ddof=1)
    assert np.mean(parts, axis=(0, 2)) == pytest.approx(over_studies, rel=0.7)  # 30 studies: error 0.26


def test_one_network_scored_again_has_neither_seed_nor_patients_of_its_own(base: pd.DataFrame) -> None:
    table = sources({"a": runs_of(lambda seed: base)}).set_index(["metric", "source"])["variance"]
    for metric in ("endpoint", "f1_macro"):
        assert abs(table[(metric, "seed")]) < 1e-30 > abs(table[(metric, "patients x network")])
        assert table[(metric, "patients")] > 1e-6


@pytest.mark.slow
def test_a_setting_that_moves_all_seeds_is_found_and_one_that_moves_none_is_not(
    base: pd.DataFrame, equal: Runs
) -> None:
    better = runs_of(lambda seed: network_of(base, seed, noise=0.6, shift=0.3))
    again = runs_of(lambda seed: network_of(base, seed + 100, noise=0.6))
    runs = {"a": equal, "b": better, "c": again}
    pairs = {("arithmetic", "moved"): "ab", ("precision", "still"): "ac", ("precision", "absent"): "ad"}
    table = sources(runs, pairs)
    rows = table[table["source"] == "setting"].set_index(["metric", "network"])
    assert rows.loc[("endpoint", "moved"), "p"] < 1e-4 and rows.loc[("endpoint", "still"), "p"] > 0.05
    assert rows.loc[("endpoint", "moved"), "variance"] > 0 and len(rows) == 4
    assert rows.loc["endpoint", "setting"].to_dict() == {"moved": "arithmetic", "still": "precision"}


def test_settings_that_repeat_others_are_in_the_row_of_their_block_alone(equal: Runs, unequal: Runs) -> None:
    alone = sources({"a": equal})
    both = sources({"a": equal, "b": unequal}, {("arithmetic", "net"): "ab"}, repeats="b")
    of_parts, columns = (
        both[both["source"] != "setting"],
        ["metric", "source", "variance", "settings", "runs"],
    )
    assert of_parts[columns].to_numpy().tolist() == alone[columns].to_numpy().tolist()
    assert both.query("source == 'setting'")["setting"].tolist() == ["arithmetic"] * 2
    assert sources({"a": equal}, repeats="a").empty


def test_too_few_runs_say_nothing(equal: Runs) -> None:
    assert sources({"a": {seed: equal[seed] for seed in range(MIN_RUNS - 1)}}).empty
