"""The variance of one run's score by source where each patient is a test patient once: what the split does.

A fold's mean over seeds differs from another's by its test patients, by its seeds, and by the split: which
patients were trained on, and all that comes with them. The patients' part is known from their influence, the
seeds' from the runs of a fold, so the rest of the variance between folds is the split's.

Training parts of folds overlap, so a training set drawn anew would move a score further; without assumptions
no estimate of this is unbiased (Bengio & Grandvalet, JMLR 2004, section 4).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import chdtrc, chdtri

from cxrbench.statistics.auroc import Estimate, mean_influence, mean_value
from cxrbench.statistics.components import patient_sampling_variance, seed_variance, spread
from cxrbench.statistics.estimates import ENDPOINT, CellEstimate, RunT, estimate
from cxrbench.statistics.sample import Sample

FOLD_COLUMNS = [
    *("source", "variance", "error", "low", "high", "p", "fraction", "findings", "folds", "runs", "patients"),
]
SPLIT = "split"
_LEVEL = 0.95


def fold_sources(folds: Sequence[Mapping[int, CellEstimate]]) -> pd.DataFrame:
    """The variance of one run's mean AUROC by source (columns ``FOLD_COLUMNS``), from the runs of each fold
    by seed, which have two seeds or more and the same ones.

    The mean is over the findings of the main endpoint of every fold. ``fraction`` is of the sum of patients,
    patients x network and seed, for one fold's test patients. ``error`` is the standard error from the
    folds. Only the split has an interval (95 %, by chi-square between folds, the other parts taken as known)
    and ``p`` of "the split adds nothing".

    >>> from cxrbench.statistics.estimates import estimate_cell
    >>> from cxrbench.statistics.examples import predictions
    >>> runs = [{seed: estimate_cell(predictions(10 * k + seed), 5) for seed in (0, 1)} for k in range(3)]
    >>> fold_sources(runs).set_index("source")["variance"].round(4).to_dict()
    {'patients': 0.0009, 'patients x network': 0.0004, 'seed': -0.0003, 'split': -0.0002}
    """
    first = next(iter(folds[0].values()))
    of_endpoint = [
        run.averaged[run.keys.index((ENDPOINT, "auroc"))] for seeds in folds for run in seeds.values()
    ]
    names = [name for name, kept in zip(first.sample.names, np.all(of_endpoint, axis=0), strict=True) if kept]
    runs = [[_mean(run, names) for run in seeds.values()] for seeds in folds]
    count, seeds = len(runs), len(runs[0])
    luck = np.array([float(patient_sampling_variance(of_fold)[0]) for of_fold in runs])
    own = np.array([float(seed_variance(of_fold)[0]) for of_fold in runs]) - luck
    of_mean = np.array([float((mean_influence(of_fold) ** 2).sum()) for of_fold in runs])
    between = float(np.var([mean_value(of_fold)[0] for of_fold in runs], ddof=1))
    explained = float(of_mean.mean()) + max(float(own.mean()), 0.0) / seeds
    tails = np.array([(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    low, high = np.maximum((count - 1) * between / chdtri(count - 1, tails) - explained, 0)
    parts = {"patients": of_mean - luck / seeds, "patients x network": luck, "seed": own}
    whole = sum(max(float(of_folds.mean()), 0.0) for of_folds in parts.values())
    rows = [
        {"source": name, "variance": of_folds.mean(), "error": of_folds.std(ddof=1) / count**0.5}
        for name, of_folds in parts.items()
    ]
    rows.append(
        {
            **{"source": SPLIT, "variance": between - explained, "low": low, "high": high},
            **{"error": between * (2 / (count - 1)) ** 0.5},
            "p": float(chdtrc(count - 1, (count - 1) * between / explained)),
        }
    )
    table = pd.DataFrame(rows, columns=FOLD_COLUMNS)
    table["fraction"] = table["variance"].clip(lower=0) / whole
    patients = sum(next(iter(of_fold.values())).sample.n_clusters for of_fold in folds)
    return table.assign(findings=len(names), folds=count, runs=count * seeds, patients=patients)


def _mean(run: CellEstimate, names: Sequence[str]) -> Estimate:
    return run.estimate.mean(np.array([metric == "auroc" and name in names for name, metric in run.keys]))


def pooled_spread(folds: Mapping[RunT, Sequence[CellEstimate]]) -> pd.DataFrame:
    """The spread (:func:`~cxrbench.statistics.components.spread`) of AUROC over the patients of all folds
    together, by the name of a seed's run: for findings that a fold has too few patients of.

    Networks of different folds scored its images, whose scores are taken as they are.

    >>> from cxrbench.statistics.examples import cells
    >>> table = pooled_spread({name: [run] for name, run in cells().items()})
    >>> table.query("platform == 'one' and label == 'Mass'")["mean"].round(3).tolist()
    [0.767]
    """
    runs = {name: _pooled([run.sample for run in of_folds]) for name, of_folds in folds.items()}
    return spread({name: estimate(sample, None, metrics=["auroc"]) for name, sample in runs.items()})


def _pooled(samples: Sequence[Sample]) -> Sample:
    """The images of all ``samples``, which share no patient and have the same findings."""
    first, starts = samples[0], np.cumsum([0, *(sample.n_clusters for sample in samples)])
    named = (sample.clusters + start for sample, start in zip(samples, starts[:-1], strict=True))
    parts = ("images", "labels", "scores", "unknown")
    joined: dict[str, Any] = {
        name: np.concatenate([getattr(sample, name) for sample in samples]) for name in parts
    }
    clusters = np.concatenate([*named]).astype(np.int32)
    return replace(first, **joined, clusters=clusters, n_clusters=int(starts[-1]))
