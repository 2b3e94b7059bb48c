"""Variance over folds: a split that does nothing is not found, one that moves every run of a fold is."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from conftest import ROOT
from cxrbench.results.comparisons import cross_fitted_networks
from cxrbench.statistics.estimates import CellEstimate, estimate
from cxrbench.statistics.folds import fold_sources, pooled_spread
from cxrbench.statistics.sample import sample_of
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell
from documents_twin import Network, Scored
from synthetic import draw_predictions, network_of

FOLDS, SEEDS = 5, 3
FREQUENT = np.append(np.full(13, 0.15), 0.012)  # the last is too rare in a fold for its endpoint


def folds_of(draw: int, skills: list[float], patients: int = 120) -> list[dict[int, CellEstimate]]:
    """Runs on ``patients`` of each fold, whose networks have more or less skill by ``skills``."""
    folds = []
    for number, skill in enumerate(skills):
        seed = 1000 * draw + 10 * number
        drawn = draw_predictions(seed, {"test": patients}, FREQUENT)
        runs = (network_of(drawn, seed + run, noise=0.6, shift=skill) for run in range(SEEDS))
        samples = [sample_of(run) for run in runs]
        folds.append({run: estimate(of, None, metrics=["auroc"]) for run, of in enumerate(samples)})
    return folds


def split_of(folds: list[dict[int, CellEstimate]]) -> dict[str, float]:
    return fold_sources(folds).set_index("source").loc["split"].to_dict()


def test_parts_are_those_of_the_runs_and_of_findings_that_every_fold_has_enough_of() -> None:
    folds = folds_of(1, [0.0] * FOLDS)
    table = fold_sources(folds).set_index("source")
    assert set(table["findings"]) == {13} and set(table["patients"]) == {600} and set(table["runs"]) == {15}
    scores = [
        [roc_auc_score(run.sample.labels[:, :13], run.sample.scores[:, :13]) for run in seeds.values()]
        for seeds in folds
    ]
    between, within = np.var(np.mean(scores, axis=1), ddof=1), np.var(scores, axis=1, ddof=1).mean()
    parts = table["variance"]
    assert parts["patients x network"] + parts["seed"] == pytest.approx(within)
    rest = parts["patients"] + (parts["patients x network"] + max(parts["seed"], 0)) / SEEDS
    assert rest == pytest.approx(between - parts["split"], abs=(abs(min(parts["seed"], 0)) + 1e-9))


@pytest.mark.slow
def test_a_split_that_does_nothing_is_found_as_often_as_its_level_says() -> None:
    found = [split_of(folds_of(draw, [0.0] * FOLDS)) for draw in range(60)]
    variances, p = (np.array([one[name] for one in found]) for name in ("variance", "p"))
    assert abs(variances.mean()) < 3 * variances.std(ddof=1) / len(found) ** 0.5
    assert (p < 0.05).mean() < 0.15 and 0.35 < p.mean() < 0.65
    assert np.mean([one["low"] == 0 for one in found]) > 0.9


@pytest.mark.slow
def test_a_split_that_moves_all_runs_of_a_fold_is_found_with_its_variance() -> None:
    rng, found, moved = np.random.default_rng(3), [], []
    for draw in range(30):
        skills = rng.normal(0.5, 0.5, FOLDS)
        found.append(split_of(folds_of(draw, skills.tolist())))
        still = fold_sources(folds_of(draw, [0.5] * FOLDS)).set_index("source")["variance"]
        moved.append(found[-1]["variance"] - still["split"])
    variances = np.array([one["variance"] for one in found])
    assert variances.mean() > 3 * variances.std(ddof=1) / len(found) ** 0.5
    assert np.mean([one["p"] < 0.05 for one in found]) > 0.8
    truth = np.mean(moved)
    held = np.mean([one["low"] <= truth <= one["high"] for one in found])
    assert held > 0.75, "the variance of five skills that are drawn anew varies itself"


def test_a_finding_that_folds_are_too_small_for_is_scored_on_all_of_them() -> None:
    folds = folds_of(2, [0.0] * FOLDS)
    runs = {Cell("pooled", "net", "cpu", seed): [fold[seed] for fold in folds] for seed in range(SEEDS)}
    rows = pooled_spread(runs).set_index("label")
    truth = np.concatenate([fold[0].sample.labels[:, 13] for fold in folds])
    scores = [np.concatenate([fold[seed].sample.scores[:, 13] for fold in folds]) for seed in range(SEEDS)]
    rare = rows.loc["Hernia"]
    assert rare["mean"] == pytest.approx(np.mean([roc_auc_score(truth, of) for of in scores]))
    assert rare["n_patients"] == 600 and rare["ci_low"] < rare["mean"] < rare["ci_high"]


def test_a_network_is_cross_fitted_when_all_its_folds_have_three_seeds_in_common() -> None:
    study, folds = read_study(ROOT / "config/config.yaml"), folds_of(4, [0.0] * FOLDS)
    cells = {
        Cell(f"nih128-32px-fold{number}", "net", "cpu", seed): run
        for number, runs in enumerate(folds, 1)
        for seed, run in runs.items()
    }
    whole = {("reference-fp32", "net", "cpu"): folds}
    assert cross_fitted_networks(cells, study) == whole
    other = {Cell("nih128-32px", "net", "cpu", seed): run for seed, run in folds[0].items()}
    assert cross_fitted_networks(cells | other, study) == whole
    rounded = {
        name: of.model_copy(update={"recipe": "reference-bf16"}) for name, of in study.datasets.items()
    }
    both = {f"{name}-bf16": of for name, of in rounded.items()} | study.datasets
    again = {Cell(f"{cell.dataset}-bf16", "net", "cpu", cell.seed): run for cell, run in cells.items()}
    two = cross_fitted_networks(cells | again, study.model_copy(update={"datasets": both}))
    assert two == whole | {("reference-bf16", "net", "cpu"): folds}, "one recipe replaced the other"
    for lacking in (cell for cell in cells if cell.dataset.endswith("fold3")):
        some = {cell: run for cell, run in cells.items() if cell != lacking}
        assert cross_fitted_networks(some, study) == {}, "two seeds in common"
    assert cross_fitted_networks(dict([*cells.items()][SEEDS:]), study) == {}, "no first fold"


@pytest.mark.slow
def test_the_recorded_folds_are_divided_as_the_twin_divides_them(from_all_evidence: Path) -> None:
    table = pd.read_csv(from_all_evidence / "results/tables/folds.csv")
    assert set(table["architecture"]) == {"convnext_pico", "resnet18"}
    for network, found in table.groupby("architecture"):
        paths = [[*ROOT.glob(f"data/recorded/*fold{k}/{network}/cpu/seed*")] for k in range(1, FOLDS + 1)]
        folds = [[Network(path) for path in of_fold] for of_fold in paths]
        positive = [pd.DataFrame(runs[0].test[0]).groupby(runs[0].test[2]).any().sum() for runs in folds]
        many = np.min(positive, axis=0) >= 10
        scored = []
        for runs in folds:
            for run in runs:
                truth, scores, patients = run.test
                run.test = truth[:, many], scores[:, many], patients
            areas = [(value.mean(), parts.mean(axis=1)) for value, parts, _ in map(Network.auroc, runs)]
            values, parts = map(np.array, zip(*areas, strict=True))
            scored.append(Scored(np.arange(len(runs)), values, parts, 1))
        luck = np.mean([of.luck for of in scored])
        common = np.mean([(of.parts.mean(axis=0) ** 2).sum() for of in scored])
        seed = np.mean([of.value.var(ddof=1) for of in scored]) - luck
        between = np.var([of.value.mean() for of in scored], ddof=1)
        expected = {
            **{"patients": common - luck / SEEDS, "patients x network": luck, "seed": seed},
            "split": between - common - max(seed, 0) / SEEDS,
        }
        variance = found.set_index("source")["variance"]
        for source, value in expected.items():
            assert variance[source] == pytest.approx(value, rel=1e-6), (network, source)
        assert (found["findings"] == many.sum()).all() and (found["runs"] == FOLDS * SEEDS).all()
