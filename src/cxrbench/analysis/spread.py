"""What varies in a mean over seeds: training seeds, test patients, each alone and both together."""

from collections.abc import Iterator, Mapping
from itertools import groupby

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import mean_influence, mean_value
from cxrbench.analysis.components import (
    over_seeds,
    patient_sampling_variance,
    seed_variance,
)
from cxrbench.analysis.estimates import CellEstimate, bounds, patients_part
from cxrbench.analysis.parity import MIN_SEEDS
from cxrbench.study.cells import Cell

COLUMNS = [
    *("dataset", "architecture", "platform", "label", "metric", "seeds", "n_seeds", "mean", "ci_low"),
    *("ci_high", "too_few", "lowest", "highest", "seed_sd", "seed_sd_beyond_patients", "patient_se"),
    *("patient_se_of_mean", "patient_se_fixed", "patient_se_of_mean_fixed", "n_images", "n_patients", "note"),
]


def spread(cells: Mapping[Cell, CellEstimate]) -> pd.DataFrame:
    """Return one row per dataset, architecture, platform, label and metric (columns ``COLUMNS``).

    ``ci_*`` is the 95 % interval of the mean, for this recipe on this platform, over patients and seeds;
    there is none with fewer than ``MIN_SEEDS`` seeds, nor for a finding with ``too_few`` patients. The other
    columns keep the two apart: ``seed_sd`` is the standard deviation over seeds on these test images, and
    ``seed_sd_beyond_patients`` takes off what the choice of patients alone adds to it; ``patient_se`` is one
    network's clustered standard error (root mean square over seeds), ``patient_se_of_mean`` that of the seed
    mean, both blind to seeds; ``..._fixed``: the same with the thresholds of F1 taken as fixed. With one seed
    the seed columns are empty.
    """
    rows: list[dict] = []
    for named, group in groupby(
        sorted(cells), key=lambda cell: (cell.dataset, cell.architecture, cell.platform)
    ):
        place = dict(zip(COLUMNS, named, strict=False))
        rows += [place | row for row in _rows({cell.seed: cells[cell] for cell in group})]
    return pd.DataFrame(rows, columns=COLUMNS)


def _rows(seeds: dict[int, CellEstimate]) -> Iterator[dict]:
    first, *others = seeds.values()
    estimates = [network.estimate for network in seeds.values()]
    values = np.array([network.value for network in estimates])
    paired = all(first.same_images(other) for other in others)
    columns = {"mean": mean_value(estimates), "lowest": values.min(axis=0), "highest": values.max(axis=0)}
    tested = first.sample.n_clusters  # rows of influence; those below are of validation patients
    for name, rows in (("", slice(None)), ("_fixed", slice(tested))):
        squares = [(network.influence[rows] ** 2).sum(axis=0) for network in estimates]
        columns[f"patient_se{name}"] = np.sqrt(np.mean(squares, axis=0))
        if paired:
            of_mean = mean_influence(estimates)[rows]
            columns[f"patient_se_of_mean{name}"] = np.sqrt((of_mean**2).sum(axis=0))
    if len(seeds) >= MIN_SEEDS and paired:
        mean = over_seeds(estimates, patients_part(list(seeds.values())))
        columns["ci_low"], columns["ci_high"] = bounds(first.keys, mean.value, mean.error, mean.freedom)
    if len(seeds) > 1:
        variance = seed_variance(estimates)
        columns["seed_sd"] = np.sqrt(variance)
        if paired:
            beyond = np.maximum(variance - patient_sampling_variance(estimates), 0)
            columns["seed_sd_beyond_patients"] = np.sqrt(beyond)
    note = _note(len(seeds), paired)
    for k, (label, metric) in enumerate(first.keys):
        why = next((network.why[k] for network in seeds.values() if network.why[k]), "")
        yield {
            **{"label": label, "metric": metric, "note": "; ".join(filter(None, [note, why]))},
            "too_few": bool(first.too_few[k]),
            **{"seeds": ",".join(map(str, seeds)), "n_seeds": len(seeds)},
            **{"n_images": first.sample.n_images, "n_patients": tested},
            **{name: float(column[k]) for name, column in columns.items()},
        }


def _note(seeds: int, paired: bool) -> str:
    if not paired:
        return "the seeds scored different images: their spreads are not separated"
    if seeds == 1:
        return "one seed: the spread over seeds is unknown"
    return f"{seeds} seeds: too few for an interval of their mean" if seeds < MIN_SEEDS else ""
