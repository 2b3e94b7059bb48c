"""Synthetic predictions like the real ones: patients with several images that resemble each other."""

import numpy as np
import pandas as pd
from scipy.stats import norm

from columns import LABELS, SCORES
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.statistics.estimates import CellEstimate, estimate_cell
from cxrbench.statistics.sample import Sample
from cxrbench.study.names import Cell

# roughly the share of images of each finding in ChestX-ray14, in the findings' order
PREVALENCE = np.array([10, 2.5, 12, 18, 5, 5.5, 1.3, 4.7, 4.2, 2, 2.2, 1.5, 3, 0.2]) / 100


def draw_predictions(
    seed: int, patients: dict[str, int], prevalence: np.ndarray = PREVALENCE, skill: float = 1.2
) -> pd.DataFrame:
    """A predictions table with ``patients`` per split; one to forty images each, labels and scores alike."""
    rng = np.random.default_rng(seed)
    parts, first = [], 1
    for split, count in patients.items():
        size = np.minimum(rng.geometric(0.25, count), 40)
        patient = np.repeat(np.arange(count), size)
        shape = (len(patient), len(prevalence))
        own = [0.7 * rng.normal(size=(count, shape[1]))[patient] + 0.7 * rng.normal(size=shape) for _ in "ab"]
        labels = own[0] > np.sqrt(0.98) * norm.isf(prevalence)
        scores = 1 / (1 + np.exp(2 - skill * labels - own[1]))
        number = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)  # 0, 1, ... of each patient
        names = [f"{first + p:08d}_{k:03d}.png" for p, k in zip(patient, number, strict=True)]
        part = pd.DataFrame({"image": names, "patient": first + patient, "split": split})
        part[LABELS] = labels.astype("uint8")
        part[SCORES] = scores.astype("float32")
        parts.append(part)
        first += count
    return pd.concat(parts, ignore_index=True)


def estimated(cells: dict) -> dict[Cell, CellEstimate]:
    """Return the estimates of predictions by cell, or by a cell's name."""
    return {Cell.parse(str(cell)): estimate_cell(predictions) for cell, predictions in cells.items()}


def network_of(predictions: pd.DataFrame, seed: int, noise: float = 0.3, shift: float = 0.0) -> pd.DataFrame:
    """Another network's scores of the same images: ``noise`` on the log-odds, ``shift`` more skill."""
    rng = np.random.default_rng(seed)
    odds = np.log(predictions[SCORES].to_numpy(float) / (1 - predictions[SCORES].to_numpy(float)))
    odds += noise * rng.normal(size=odds.shape) + shift * predictions[LABELS].to_numpy()
    other = predictions.copy()
    other[SCORES] = (1 / (1 + np.exp(-odds))).astype("float32")
    return other


def sampled(truth: np.ndarray, scores: np.ndarray, clusters: np.ndarray) -> Sample:
    """A sample of one finding: ``truth``, ``scores`` and ``clusters`` (any numbers), each (n,)."""
    truth, scores = np.asarray(truth, bool)[:, None], np.asarray(scores, float)[:, None]
    codes, numbered = np.unique(clusters, return_inverse=True)
    images, unknown = np.arange(len(truth)), np.zeros_like(truth)
    return Sample(images, truth, scores, numbered.astype(np.int32), len(codes), True, FINDINGS[:1], unknown)


def draw_sample(
    rng: np.random.Generator, patients: int, prevalence: float, networks: list[float], own: float = 0.3
) -> list[Sample]:
    """The same images of ``patients`` scored for one label by networks of the given skills.

    ``own`` is the share of a network's score that it does not share with the others.
    """
    clusters = np.repeat(np.arange(patients), np.minimum(rng.geometric(0.25, patients), 40))

    def clustered() -> np.ndarray:
        return 0.77 * rng.normal(size=patients)[clusters] + 0.64 * rng.normal(size=len(clusters))

    truth, common = clustered() > norm.isf(prevalence), clustered()
    mixed = (skill * truth + np.sqrt(1 - own) * common + np.sqrt(own) * clustered() for skill in networks)
    return [sampled(truth, scores, clusters) for scores in mixed]
