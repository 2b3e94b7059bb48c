"""Simulated studies: how often intervals hold the truth, and how often verdicts on platforms err.

``python -m benchmarks.coverage data/recorded`` (`make coverage`) records the tables. Patients are drawn with
replacement from NIH's label table, with their images and findings. Scores are drawn: normal, alike within a
patient, higher by the network's skill where a finding is; or they are a recorded network's, drawn with its
patients, whose scores as a whole are then the truth: of each network in turn. The networks' spread over seeds
(``SKILL_SD``) is large: the harder case. Seeds are fixed.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
from scipy.special import ndtri

from cxrbench.common.files import cores, write_csv
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS
from cxrbench.evidence.sums import updated_sums
from cxrbench.results import simulated
from cxrbench.statistics.auroc import Estimate, auroc
from cxrbench.statistics.components import ALPHA, between_platforms, over_seeds
from cxrbench.statistics.estimates import areas_with_ends, interval
from cxrbench.statistics.metrics import MACRO
from cxrbench.statistics.moderated import FEWEST
from cxrbench.statistics.parity import holm
from cxrbench.statistics.sample import Sample

T = TypeVar("T")
PATIENTS = 510  # of nih128's test part
_PATIENT_SHARE = 0.6  # of the variance of a score, common to the images of a patient
_BANDS = ((FEWEST, 14), (15, 29), (30, 99), (100, PATIENTS))  # of positive patients
AUROCS = (0.65, 0.75, 0.9)  # the skill of all findings
SCORED = (  # whose recorded scores are drawn, validation and test
    *("nih128-128px/tf_efficientnet_lite0", "nih128-128px-scratch/tf_efficientnet_lite0"),
    *("nih128-128px-scratch/resnet18", "nih128-64px/resnet18", "nih128-64px/resnet50"),
    *("nih128-64px/convnext_pico", "nih128-32px/resnet18", "nih128-32px/convnext_pico"),
)
TRUTH, MARGIN = 0.8, 0.1  # mean AUROC of each finding; what the first finding lacks on the third platform
SKILL_SD, OWN = 0.15, 0.1  # over seeds; a network's own share of the variance of its scores
SHARES, SEEDS = (0.2, 0.5, 1.0), (3, 5)  # of both variances, what a platform changes in a seed


@dataclass(frozen=True)
class Archive:
    """Findings (images, L) by patient; where each patient's images begin, and how many they are; scores
    (images, L) or none."""

    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    scores: np.ndarray

    def of(self, drawn: np.ndarray) -> Sample:
        """Return a study of the patients of these numbers, without scores unless the archive has them."""
        patients = len(drawn)
        sizes = self.sizes[drawn]
        clusters = np.repeat(np.arange(patients), sizes).astype(np.int32)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = np.repeat(self.starts[drawn], sizes) + within
        labels, scores = self.labels[rows], self.scores[rows] if len(self.scores) else self.scores
        images, unknown = np.arange(len(labels)), np.zeros_like(labels)
        return Sample(images, labels, scores, clusters, patients, True, FINDINGS, unknown)


@cache
def archive(network: Path | None = None) -> Archive:
    """Return all patients of NIH's label table, or those that a recorded network (the folder of its seeds)
    scored, with their scores."""
    table = read_predictions(network / "cpu/seed0" / PREDICTIONS) if network else read_nih_table()
    table = table.sort_values(["patient", "image"])
    _, starts, sizes = np.unique(table["patient"], return_index=True, return_counts=True)
    labels = table[[f"label_{name}" if network else name for name in FINDINGS]].to_numpy(dtype=bool)
    scores = table[[f"score_{name}" for name in FINDINGS]].to_numpy(dtype=float) if network else np.empty(0)
    return Archive(labels, starts, sizes, scores)


def draw(rng: np.random.Generator, patients: int) -> Sample:
    """Return a study of so many ``patients`` of NIH's label table."""
    everyone = archive()
    return everyone.of(rng.integers(0, len(everyone.starts), patients))


def drawn(study: Callable[[int], T], studies: int, together: int = 10) -> list[T]:
    """Return what ``study`` makes of the numbers of all studies, over all cores."""
    archive()  # once, for all processes
    with ProcessPoolExecutor(cores()) as pool:
        return list(pool.map(study, range(studies), chunksize=together))


def noise(rng: np.random.Generator, study: Sample) -> np.ndarray:
    """Return standard normal noise (images, L), alike within a patient."""
    patients = rng.normal(size=(study.n_clusters, study.labels.shape[1]))[study.clusters]
    images = rng.normal(size=study.labels.shape)
    return np.sqrt(_PATIENT_SHARE) * patients + np.sqrt(1 - _PATIENT_SHARE) * images


def skill_noise(rng: np.random.Generator, study: Sample) -> np.ndarray:
    """Return standard normal noise (L,), half of its variance common to all findings."""
    return np.sqrt(0.5) * (rng.normal() + rng.normal(size=study.labels.shape[1]))


def skill_of(auroc: float | np.ndarray, seed_sd: float = 0.0) -> np.ndarray:
    """Return the mean skill of networks of that mean ``auroc`` whose skill has the deviation ``seed_sd``."""
    return np.asarray(np.sqrt(2 + seed_sd**2) * ndtri(auroc))


def scored(study: Sample, skill: float | np.ndarray, unexplained: np.ndarray) -> Sample:
    """Return the study as scored by a network of that ``skill`` (L,), with ``unexplained`` (images, L)."""
    return replace(study, scores=skill * study.labels + unexplained)


def _rate_of(hits: np.ndarray) -> tuple[int, float, float]:
    """Return the number of cases, the share of ``hits`` (cases,) and its Monte-Carlo error."""
    rate = float(np.mean(hits))
    error = float(np.sqrt(rate * (1 - rate) / len(hits)))
    return len(hits), round(rate, 4), round(error, 4)


def judged(
    names: tuple, low: np.ndarray, high: np.ndarray, truth: np.ndarray, patients: np.ndarray | None = None
) -> Iterator[tuple]:
    """Yield ``names``, a band of positive ``patients`` and the figures of its intervals, of one shape all:
    number, share that holds the truth with its error, mean width, share wider than ``simulated.WIDE``.

    An interval that does not exist holds nothing; one whose truth is NaN does not count. Without
    ``patients`` there is one band of all.
    """
    holds, counted = (low <= truth) & (truth <= high), np.isfinite(truth)
    bands = {"": counted}
    if patients is not None:
        bands = {
            f"{least} or more" if most == PATIENTS else f"{least} to {most}": counted
            & (patients >= least)
            & (patients <= most)
            for least, most in _BANDS
        }
    for band, inside in bands.items():
        widths = (high - low)[inside & np.isfinite(low)]
        width, wide = float(widths.mean()), float((widths > simulated.WIDE).mean())
        yield *names, band, *_rate_of(holds[inside]), round(width, 4), round(wide, 4)


def simulate_intervals(
    recorded: Path, studies: int = 700, skills: Sequence[float | str] = (*AUROCS, simulated.REAL)
) -> pd.DataFrame:
    """Return one row per kind of interval, skill and band of positive patients; twice the ``studies`` of real
    scores."""
    rows: list[tuple] = []
    for skill in skills:
        if isinstance(skill, float):
            made = drawn(partial(_drawn, skill), studies)
        else:
            made = drawn(partial(_scored, recorded), 2 * studies)
        positive = np.concatenate([patients for patients, _ in made])
        for kind in made[0][1]:
            low, high, truth = np.hstack([intervals[kind] for _, intervals in made])
            rows += judged((kind, skill), low, high, truth, None if kind == MACRO else positive)
    return pd.DataFrame(rows, columns=simulated.COVERAGE.columns)


Intervals = dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]


def _drawn(skill: float, number: int) -> tuple[np.ndarray, Intervals]:
    """Return the positive patients (L,) of a study with drawn scores and, by kind, ends and truth."""
    rng = np.random.default_rng([AUROCS.index(skill), number])
    study = draw(rng, PATIENTS)
    sample = scored(study, skill_of(skill), noise(rng, study))
    return sample.positive_clusters(sample.labels), _intervals(sample, np.full(len(FINDINGS), skill))


def _scored(recorded: Path, number: int) -> tuple[np.ndarray, Intervals]:
    """Return the same with real scores, also by whether a finding's heaviest patient is in the study."""
    network = recorded / SCORED[number % len(SCORED)]
    patients = archive(network)
    numbers = np.random.default_rng([len(AUROCS), number]).integers(0, len(patients.starts), PATIENTS)
    sample, (truth, heaviest) = patients.of(numbers), _truth_of(network)
    ends, held = _intervals(sample, truth), np.isin(heaviest, numbers)
    low, high, _ = ends[simulated.FINDING]
    ends[simulated.FINDING_WITH] = low, high, np.where(held, truth, np.nan)
    ends[simulated.FINDING_WITHOUT] = low, high, np.where(held, np.nan, truth)
    return sample.positive_clusters(sample.labels), ends


@cache
def _truth_of(network: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the AUROC of all patients of a network, and which of them has most of its variance, each
    (L,)."""
    scored = archive(network)
    areas = auroc(scored.of(np.arange(len(scored.starts))))
    return areas.value, np.argmax(areas.influence**2, axis=0)


def _intervals(sample: Sample, truth: np.ndarray) -> Intervals:
    """Return by kind the ends of intervals and what is true (L,)."""
    areas = auroc(sample)
    estimable = np.isfinite(areas.error)
    macro, by_image = areas.mean(estimable), auroc(sample.as_images())
    moderated = areas_with_ends(sample, areas)
    return {
        simulated.FINDING: (*moderated[["ci_low", "ci_high"]].to_numpy().T, truth),
        simulated.FINDING_OWN: (*interval(areas.value, areas.error, areas.degrees), truth),
        simulated.FINDING_BY_IMAGE: (*interval(by_image.value, by_image.error, by_image.degrees), truth),
        MACRO: (
            *interval(macro.value, macro.error, macro.degrees),
            truth[estimable].mean(keepdims=True),
        ),
    }


def simulate_verdicts(
    studies: int = 1000, shares: Sequence[float] = SHARES, seeds: Sequence[int] = SEEDS
) -> pd.DataFrame:
    """Return one row per kind of statement, share and number of seeds."""
    rows = []
    for share in shares:
        made = drawn(partial(_compared, share, seeds), studies, together=50)
        for statement, count in product((*simulated.ERRORS, simulated.MEAN_HOLDS), seeds):
            rate = _rate_of(np.array([study[statement, count] for study in made]))
            rows.append((statement, share, count, *rate))
    return pd.DataFrame(rows, columns=simulated.VERDICT_RATES.columns)


def _compared(share: float, seeds: Sequence[int], number: int) -> dict[tuple[str, int], bool]:
    """Return whether each statement is made in a study of three platforms; the first two are equal."""
    rng = np.random.default_rng([2, round(10 * share), number])
    study = draw(rng, PATIENTS)
    truth = np.full((2, study.labels.shape[1]), TRUTH)
    truth[1, 0] -= MARGIN
    same, worse = skill_of(truth, SKILL_SD)
    areas = _trained(rng, study, share, max(seeds), [same, same, worse])
    estimable = np.isfinite(areas[0][0].error)
    platforms = [[network.with_mean(estimable) for network in platform] for platform in areas]
    return {
        (statement, count): made
        for count in seeds
        for statement, made in _statements([dict(enumerate(p[:count])) for p in platforms], estimable)
    }


def _trained(
    rng: np.random.Generator, study: Sample, share: float, seeds: int, means: list[np.ndarray]
) -> list[list[Estimate]]:
    """Return, for each platform of mean skills (L,), the AUROC of its networks of all seeds."""
    common = np.sqrt(1 - OWN) * noise(rng, study)
    platforms: list[list[Estimate]] = [[] for _ in means]
    for _ in range(seeds):
        start = skill_noise(rng, study), noise(rng, study)
        for networks, mean in zip(platforms, means, strict=True):
            change = skill_noise(rng, study), noise(rng, study)
            skill, own = (
                np.sqrt(1 - share) * first + np.sqrt(share) * second
                for first, second in zip(start, change, strict=True)
            )
            unexplained = common + np.sqrt(OWN) * own
            networks.append(auroc(scored(study, mean + SKILL_SD * skill, unexplained)))
    return platforms


def _statements(platforms: list[dict[int, Estimate]], estimable: np.ndarray) -> Iterator[tuple[str, bool]]:
    first, second, third = platforms
    null = between_platforms(first, second)
    yield simulated.DIFFERENT, bool(null.p_different()[-1] < ALPHA)
    rejected = holm(null.p_among_many(len(first))[:-1][estimable]) < ALPHA
    yield simulated.SOME_DIFFERENT, bool(rejected.any())
    apart = between_platforms(first, third)
    margin = np.append(np.full(len(estimable), MARGIN), MARGIN / estimable.sum())
    equivalent = apart.p_equivalent(margin) < ALPHA
    yield simulated.EQUIVALENT, bool(equivalent[0])
    yield simulated.EVERY_EQUIVALENT, bool(equivalent[:-1][estimable].all())
    yield simulated.MACRO_EQUIVALENT, bool(equivalent[-1])
    mean = over_seeds(list(first.values()))
    low, high = interval(mean.value, mean.error, mean.freedom)
    yield simulated.MEAN_HOLDS, bool(low[-1] <= TRUTH <= high[-1])


def main(recorded: Path) -> None:
    """Simulate, write the tables below ``recorded`` and list them in SHA256SUMS."""
    from benchmarks.compare_coverage import simulate_comparisons
    from benchmarks.compare_recorded import leave_one_out, simulate_pilots
    from benchmarks.mean_coverage import simulate_means

    with updated_sums(recorded):
        write_csv(recorded / simulated.COVERAGE.file, simulate_intervals(recorded))
        write_csv(recorded / simulated.VERDICT_RATES.file, simulate_verdicts())
        write_csv(recorded / simulated.MEAN_COVERAGE.file, simulate_means())
        write_csv(recorded / simulated.COMPARISONS.file, simulate_comparisons(recorded))
        write_csv(recorded / simulated.REFERENCES.file, leave_one_out(recorded))
        write_csv(recorded / simulated.PILOTS.file, simulate_pilots(recorded))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
