from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cxrbench.statistics.auroc import Estimate, auroc
from cxrbench.statistics.components import (
    Difference,
    between_platforms,
    patient_sampling_variance,
    within_platform,
)
from cxrbench.statistics.sample import Sample
from synthetic import draw_sample


def known(values, influence=None) -> list[Estimate]:
    """Seeds of one platform whose patients add nothing unless ``influence`` says so."""
    influence = np.zeros((3, 1)) if influence is None else influence
    return [Estimate(np.array([value]), influence, np.array([50.0])) for value in values]


def between(a: list[Estimate], b: list[Estimate], shared: bool = False) -> Difference:
    """The difference of two platforms, whose seeds are the same or others."""
    return between_platforms(dict(enumerate(a)), dict(enumerate(b, 0 if shared else len(a))))


@pytest.mark.parametrize("shared", [True, False])
def test_without_patient_noise_seeds_are_compared_by_students_or_welchs_t_test(shared):
    a, b = [0.80, 0.82, 0.85], [0.79, 0.75, 0.845]
    ours = between(known(a), known(b), shared)
    theirs = stats.ttest_rel(a, b) if shared else stats.ttest_ind(a, b, equal_var=False)
    assert ours.freedom[0] == pytest.approx(theirs.df)
    assert ours.p_different()[0] == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval(0.95)
    assert [bound[0] for bound in ours.interval(0.95)] == pytest.approx([interval.low, interval.high])


def test_what_a_seed_does_to_both_platforms_is_no_difference():
    a, b = known([0.70, 0.80, 0.90]), known([0.69, 0.79, 0.89])
    assert between(a, b, shared=True).error[0] == pytest.approx(0, abs=1e-12)
    assert between(a, b).error[0] > 0.05


def test_tost_and_ninety_percent_interval_say_the_same():
    difference = between(known([0.80, 0.81, 0.82]), known([0.80, 0.82, 0.84]))
    low, high = difference.interval(0.9)
    edge = np.maximum(-low, high)
    assert difference.p_equivalent(edge)[0] == pytest.approx(0.05)
    assert difference.p_equivalent(edge * 1.01)[0] < 0.05 < difference.p_equivalent(edge * 0.99)[0]


def test_equal_seeds_leave_patients_only():
    influence = np.array([[0.01], [-0.02], [0.01]])
    same = known([0.8, 0.8], influence)
    other = known([0.8, 0.8], -influence)
    difference = between(same, other)
    assert difference.seed_variance[0] == 0
    assert difference.freedom[0] == 2  # (1 + 4 + 1)^2 / (1 + 16 + 1): in effect two patients
    assert difference.error[0] == pytest.approx(np.sqrt((4 * influence**2).sum()))
    assert between(same, known([0.7, 0.7], influence)).error[0] == 0  # the same patients cancel


def test_patient_sampling_variance_is_the_variance_that_patients_cause():
    """Networks of one true skill: over many draws their observed variance is luck alone."""
    rng = np.random.default_rng(3)
    observed, luck = [], []
    for _ in range(150):
        seeds = [auroc(sample) for sample in draw_sample(rng, 200, 0.15, [1.0] * 3)]
        observed.append(np.var([seed.value for seed in seeds], ddof=1))
        luck.append(patient_sampling_variance(seeds)[0])
    assert np.mean(luck) == pytest.approx(np.mean(observed), rel=0.25)


def test_seed_variance_is_what_luck_leaves():
    influence = np.array([[0.01], [-0.02], [0.01]])
    seeds = [*known([0.70], influence), *known([0.80], -influence)]
    difference = between(seeds, known([0.5, 0.5]))
    luck = 2 * (influence**2).sum()  # of two influences around their mean, which is zero
    assert patient_sampling_variance(seeds)[0] == pytest.approx(luck)
    assert difference.seed_variance[0] == pytest.approx((0.005 - luck) / 2)
    assert difference.patient_variance[0] == 0


def test_smallest_margin_is_shown_four_times_in_five():
    rng = np.random.default_rng(0)
    samples = [(known(rng.normal(0.8, 0.01, 20)), known(rng.normal(0.8, 0.01, 20))) for _ in range(600)]
    margin = np.array([2.93 * 0.01 * np.sqrt(2 / 20)])  # anchors: 2.93 standard errors
    shown = np.mean([between(a, b).p_equivalent(margin)[0] < 0.05 for a, b in samples])
    assert shown == pytest.approx(0.8, abs=0.05)
    typical = np.median([between(a, b).smallest_margin()[0] for a, b in samples])
    assert typical == pytest.approx(margin[0], rel=0.05)


def other_seeds(rng: np.random.Generator) -> list[Sample]:
    """Six networks, three a platform, that share nothing but the images."""
    return draw_sample(rng, 300, 0.12, list(1.2 + 0.08 * rng.normal(size=6)), own=0.2)


def same_seeds(rng: np.random.Generator) -> list[Sample]:
    """Three networks on two platforms, each of which changes their skill and noise by a part of them."""
    networks = draw_sample(rng, 300, 0.12, list(1.2 + 0.08 * rng.normal(size=3)), own=0.2)

    def elsewhere(one: Sample) -> Sample:
        skill, noise = 0.3 * 0.08 * rng.normal(), 0.3 * 0.2 * rng.normal(size=one.scores.shape)
        return replace(one, scores=one.scores + skill * one.labels + noise)

    return [elsewhere(one) for one in networks * 2]


@pytest.mark.parametrize(("draw", "shared"), [(other_seeds, False), (same_seeds, True)])
def test_intervals_hold_the_true_difference_0_only_with_their_seed_part(draw, shared):
    rng, inside = np.random.default_rng(5), []
    for _ in range(400):
        seeds = [auroc(sample) for sample in draw(rng)]
        difference, apart = between(seeds[:3], seeds[3:], shared), between(seeds[:3], seeds[3:])
        (low, high), (far_low, far_high) = difference.interval(0.95), apart.interval(0.95)
        reach = 1.96 * np.sqrt(difference.patient_variance[0])
        holds = low[0] <= 0 <= high[0], abs(difference.value[0]) <= reach, far_low[0] <= 0 <= far_high[0]
        inside.append(holds)
    both, patients_only, as_if_independent = np.mean(inside, axis=0)
    assert 0.92 <= both <= 0.97 and patients_only < 0.85
    assert as_if_independent == both or (shared and as_if_independent < 0.88)


def test_noise_floor_splits_the_seeds_and_pools_their_variance():
    floor = within_platform(known([0.80, 0.82, 0.87]))
    assert floor.value[0] == pytest.approx(0.80 - 0.845)
    assert floor.error[0] == pytest.approx(np.std([0.80, 0.82, 0.87], ddof=1) * np.sqrt(1 + 1 / 2))
    assert floor.freedom[0] == 2
