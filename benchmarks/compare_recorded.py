"""`cxrbench compare` on recorded runs: false alarms of a reference, and power that is read off a pilot.

A reference: each of ten recorded runs against the nine others of its recipe, so that every alarm is false.
A pilot: the first 3, 5 and 10 recorded runs in fp32 and bf16. Its power to find equal platforms equivalent is
compared with simulated studies. Their patients are drawn with replacement from the recorded ones. What a
patient adds to a difference is the pilot's own mean, scaled to the part that all runs share, plus normal
noise in each run with that patient's variance between the pilot's runs; a run's own part is normal. Seeds are
fixed.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.coverage import _rate_of
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import PREDICTIONS
from cxrbench.results import simulated
from cxrbench.statistics.auroc import Estimate, auroc, mean_influence
from cxrbench.statistics.comparison import MARGIN, difference_of
from cxrbench.statistics.components import Verdict, between_networks, from_reference, verdict_of
from cxrbench.statistics.moderated import FEWEST
from cxrbench.statistics.pilot import VarianceParts, power, variance_parts
from cxrbench.statistics.power import Design
from cxrbench.statistics.sample import sample_of

NETWORKS, PRECISIONS, SEEDS = ("resnet18", "convnext_pico"), ("fp32", "bf16"), range(10)
PILOTS, RUNS = (3, 5, 10), (3, 5, 10)
_MANY = 10  # positive patients of a finding of the endpoint


@cache
def _estimates(recorded: Path, setting: str) -> dict[int, Estimate]:
    """AUROC by seed: the endpoint, the macro mean, and each finding with an interval."""
    found = {}
    for seed in SEEDS:
        sample = sample_of(read_predictions(recorded / setting / f"seed{seed}" / PREDICTIONS))
        areas, positive = auroc(sample), sample.positive_clusters(sample.labels)
        means = areas.mean(positive >= _MANY).with_column(areas.mean(positive > 1))
        kept = positive >= FEWEST
        single = Estimate(areas.value[kept], areas.influence[:, kept], areas.freedom[kept])
        found[seed] = means.with_column(single)
    return found


def _settings() -> Iterator[tuple[str, str]]:
    for network in NETWORKS:
        for precision in PRECISIONS:
            yield network, f"nih128-32px-{precision}/{network}/cpu"


def leave_one_out(recorded: Path) -> pd.DataFrame:
    """How often a recorded run is outside the interval of the nine others, by what is compared."""
    alarms: dict[str, list[bool]] = {name: [] for name in simulated.OF_RUNS}
    noticed: dict[str, list[float]] = {name: [] for name in simulated.OF_RUNS}
    for _, setting in _settings():
        runs = _estimates(recorded, setting)
        for seed, run in runs.items():
            found = from_reference(run, [estimate for number, estimate in runs.items() if number != seed])
            low, high = found.interval(0.95)
            outside, reach = (low > 0) | (high < 0), found.noticeable()
            for name, columns in zip(simulated.OF_RUNS, (slice(1), slice(1, 2), slice(2, None)), strict=True):
                alarms[name] += outside[columns].tolist()
                noticed[name] += reach[columns].tolist()
    rows = [(name, *_rate_of(np.array(alarms[name])), round(np.mean(noticed[name]), 4)) for name in alarms]
    return pd.DataFrame(rows, columns=simulated.REFERENCES.columns)


def simulate_pilots(recorded: Path, studies: int = 400) -> pd.DataFrame:
    """The power that pilots of recorded runs say, and how often simulated studies say "equivalent"."""
    rows = []
    for network in NETWORKS:
        sides = [_estimates(recorded, f"nih128-32px-{precision}/{network}/cpu") for precision in PRECISIONS]
        for count in PILOTS:
            a, b = ({seed: side[seed] for seed in range(count)} for side in sides)
            patients = len(a[0].influence)
            variance = variance_parts(a, b, 0, patients, paired=True)
            rng = np.random.default_rng([6, NETWORKS.index(network), count])
            for runs in RUNS:
                predicted = power(variance, Design(patients, runs), MARGIN)
                hits = [_equivalent(rng, a, b, variance, runs) for _ in range(studies)]
                rows.append((network, count, runs, round(predicted, 4), *_rate_of(np.array(hits))))
    return pd.DataFrame(rows, columns=simulated.PILOTS.columns)


def _equivalent(
    rng: np.random.Generator,
    a: Mapping[int, Estimate],
    b: Mapping[int, Estimate],
    variance: VarianceParts,
    runs: int,
) -> bool:
    """Whether a study of so many ``runs`` on two equal platforms is said to be equivalent."""
    pairs = [between_networks(a[seed], b[seed]) for seed in a]
    influence = np.column_stack([pair.influence[:, 0] for pair in pairs])
    mean = mean_influence(pairs)[:, 0]
    common = mean * np.sqrt(variance.shared / (mean @ mean))
    noise = np.sqrt(((influence - mean[:, None]) ** 2).sum(axis=1) / (len(pairs) - 1))
    patients = len(mean)
    drawn = rng.integers(0, patients, patients)
    first, second = {}, {}
    for run in range(runs):
        added = patients * (common[drawn] + noise[drawn] * rng.normal(size=patients))
        value = added.mean() + np.sqrt(variance.run) * rng.normal()
        deviations = (added - added.mean())[:, None] / np.sqrt(patients * (patients - 1))
        first[run] = Estimate(np.array([value]), deviations, np.array([patients - 1.0]))
        second[run] = Estimate(np.zeros(1), np.zeros((patients, 1)), first[run].freedom)
    found = difference_of(first, second)
    ends = [float(end[0]) for level in (0.9, 0.95) for end in found.interval(level)]
    return verdict_of(ends, MARGIN) is Verdict.EQUIVALENT
