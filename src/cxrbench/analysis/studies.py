"""Studies to simulate: real patients with their images and findings, and networks that score them.

Patients are drawn with replacement from NIH's label table, so numbers of images and of findings are as they
are there. Scores are drawn: normal, alike within a patient, higher by the network's skill where a finding is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from cxrbench.analysis.sample import Sample
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table

PATIENT_SHARE = 0.6  # of the variance of a score, common to the images of a patient


@dataclass(frozen=True)
class Archive:
    """Findings (images, L) by patient; where each patient's images begin, and how many they are."""

    labels: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray

    @classmethod
    def read(cls) -> Archive:
        """All patients of NIH's label table."""
        table = read_nih_table().sort_values(["patient", "image"])
        _, starts, sizes = np.unique(table["patient"], return_index=True, return_counts=True)
        return cls(table[list(FINDINGS)].to_numpy(dtype=bool), starts, sizes)

    def draw(self, rng: np.random.Generator, patients: int) -> Sample:
        """A study of so many ``patients``; its scores are empty."""
        drawn = rng.integers(0, len(self.starts), patients)
        sizes = self.sizes[drawn]
        clusters = np.repeat(np.arange(patients), sizes).astype(np.int32)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        labels = self.labels[np.repeat(self.starts[drawn], sizes) + within]
        return Sample(np.arange(len(labels)), labels, np.empty(0), clusters, patients, by_patient=True)


def noise(rng: np.random.Generator, study: Sample) -> np.ndarray:
    """Standard normal noise (images, L), alike within a patient."""
    patients = rng.normal(size=(study.n_clusters, study.labels.shape[1]))[study.clusters]
    images = rng.normal(size=study.labels.shape)
    return np.sqrt(PATIENT_SHARE) * patients + np.sqrt(1 - PATIENT_SHARE) * images


def skill_of(auroc: float | np.ndarray, seed_sd: float = 0.0) -> np.ndarray:
    """The mean skill of networks with that mean ``auroc`` when their skill has the deviation ``seed_sd``."""
    return np.asarray(np.sqrt(2 + seed_sd**2) * ndtri(auroc))


def auroc_of(skill: np.ndarray) -> np.ndarray:
    """The true AUROC of networks of that ``skill``."""
    return np.asarray(ndtr(skill / np.sqrt(2)))


def scored(study: Sample, skill: float | np.ndarray, unexplained: np.ndarray) -> Sample:
    """The study as a network of that ``skill`` (L,) scores it, with the ``unexplained`` part (images, L)."""
    return replace(study, scores=skill * study.labels + unexplained)


@dataclass(frozen=True)
class Spread:
    """How networks differ: ``skill_sd`` between seeds, and the ``own`` share of a score's noise.

    ``platform_share`` is the part of both variances that a platform changes in a seed; the rest is the
    seed's on all platforms.
    """

    skill_sd: float
    own: float
    platform_share: float

    def networks(
        self, rng: np.random.Generator, study: Sample, seeds: int, skills: list[np.ndarray]
    ) -> list[list[Sample]]:
        """For each platform, of mean skills (L,), the study as its networks of the ``seeds`` score it."""
        common = np.sqrt(1 - self.own) * noise(rng, study)
        platforms: list[list[Sample]] = [[] for _ in skills]
        for _ in range(seeds):
            start = skill_noise(rng, study), noise(rng, study)
            for networks, mean in zip(platforms, skills, strict=True):
                change = skill_noise(rng, study), noise(rng, study)
                skill, own = (
                    np.sqrt(1 - self.platform_share) * first + np.sqrt(self.platform_share) * second
                    for first, second in zip(start, change, strict=True)
                )
                unexplained = common + np.sqrt(self.own) * own
                networks.append(scored(study, mean + self.skill_sd * skill, unexplained))
        return platforms


def skill_noise(rng: np.random.Generator, study: Sample) -> np.ndarray:
    """Standard normal (L,), half of its variance common to all findings."""
    return np.sqrt(0.5) * (rng.normal() + rng.normal(size=study.labels.shape[1]))
