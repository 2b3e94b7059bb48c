"""What every metric starts from: a split as arrays, draws of its patients, thresholds, which labels count.

Thresholds are chosen from validation images only. An image is called positive at score >= threshold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
import pandas as pd

from cxrbench.statistics.errors import UserError
from cxrbench.statistics.predictions import findings_of, labels_of, scores_of

_S = TypeVar("_S")
_T = TypeVar("_T")
_MANY = 500_000  # values: with fewer, threads cost more than they save
BLOCK_BYTES = 32 << 20  # of weights held at a time
BLOCK_LEAST = 16  # replicates in a block, however many clusters
MIN_PATIENTS = 10  # a label with fewer positive (or negative) validation patients gets no threshold
SPECIFICITY = 0.9  # at which sensitivity is reported
REFITS = 200  # draws of validation patients: the spread they give has an error of five percent


@dataclass(frozen=True)
class Sample:
    """Images of one split, sorted by name, so that the order of rows in a file never matters.

    ``images`` (n,) names; ``labels`` (n, L) bool; ``scores`` (n, L) float64; ``clusters`` (n,) int32,
    numbering the patients 0..n_clusters-1; ``by_patient`` is false when each image is its own cluster;
    ``names`` (L,) the findings; ``unknown`` (n, L) bool where a label is missing (false among ``labels``).

    >>> from cxrbench.statistics.examples import predictions
    >>> sample = sample_of(predictions())
    >>> sample.labels.shape, sample.n_clusters, sample.positive_clusters(sample.labels).tolist()
    ((80, 2), 40, [14, 11])
    >>> sample.take(sample.abnormal).n_images, sample.as_images().n_clusters
    (44, 80)
    """

    images: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    clusters: np.ndarray
    n_clusters: int
    by_patient: bool
    names: tuple[str, ...]
    unknown: np.ndarray
    _ranks: dict[int, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def n_images(self) -> int:
        """Number of images."""
        return len(self.images)

    @cached_property
    def abnormal(self) -> np.ndarray:
        """Whether each image (n,) has any finding."""
        return np.asarray(self.labels.any(axis=1))

    @cached_property
    def negative(self) -> np.ndarray:
        """Whether each image is known not to have each finding (n, L)."""
        return ~self.labels & ~self.unknown

    @cached_property
    def counts(self) -> np.ndarray:
        """Which labels count (n, L)."""
        return ~self.unknown

    def of_label(self, k: int | np.integer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Labels, scores and clusters (m,) of the images whose label ``k`` is known."""
        rows = ~self.unknown[:, k]
        return self.labels[:, k][rows], self.scores[:, k][rows], self.clusters[rows]

    def ranks(self, k: int) -> np.ndarray:
        """The place of each of these images' scores (m,) among the different ones; sorted once."""
        if k not in self._ranks:
            self._ranks[k] = np.unique(self.of_label(k)[1], return_inverse=True)[1]
        return self._ranks[k]

    @cached_property
    def complete(self) -> np.ndarray:
        """Whether all labels of each image (n,) are known: image-level measures use only these."""
        return np.asarray(~self.unknown.any(axis=1))

    def by_cluster(self, images: np.ndarray) -> np.ndarray:
        """Each patient's sums (clusters, K) of what is by image (n, K); of a mask, counts."""
        if images.dtype == bool:
            columns = [np.bincount(self.clusters[part], minlength=self.n_clusters) for part in images.T]
        else:
            columns = [np.bincount(self.clusters, part, self.n_clusters) for part in images.T]
        return np.column_stack(columns) if columns else np.zeros((self.n_clusters, 0))

    def as_images(self) -> Sample:
        """The same images, each its own cluster: the assumption that patients do not matter."""
        own = np.arange(self.n_images, dtype=np.int32)
        return replace(self, clusters=own, n_clusters=self.n_images, by_patient=False)

    def take(self, rows: np.ndarray) -> Sample:
        """The images of the boolean mask ``rows`` (n,), their patients renumbered."""
        taken = {name: getattr(self, name)[rows] for name in ("images", "labels", "scores", "unknown")}
        clusters, count = _numbered(self.clusters[rows])
        return replace(self, **taken, clusters=clusters, n_clusters=count)

    def positive_clusters(self, positive: np.ndarray) -> np.ndarray:
        """The number of clusters with a true image in each column of ``positive`` (n, K)."""
        return np.count_nonzero(self.by_cluster(positive), axis=0)


def sample_of(predictions: pd.DataFrame, split: str = "test") -> Sample:
    """The rows of ``split`` in a predictions table (``patient`` may be absent); UserError if none.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"image": list("abcdef"), "patient": [1, 1, 2, 3, 4, 4], "split": "test"})
    >>> table = table.assign(label_Mass=[1, 0, 1, 0, 0, 0], score_Mass=[0.9, 0.4, 0.6, 0.7, 0.2, 0.1])
    >>> sample = sample_of(table)
    >>> sample.n_images, sample.n_clusters, sample.names
    (6, 4, ('Mass',))
    """
    rows = predictions[predictions["split"] == split].sort_values("image", kind="stable")
    if rows.empty:
        splits = ", ".join(sorted(predictions["split"].astype(str).unique()))
        raise UserError(f"the predictions have no '{split}' rows, only: {splits}; name one of these")
    by_patient = "patient" in rows
    clusters, count = _numbered(rows["patient" if by_patient else "image"].to_numpy())
    given, scores, names = labels_of(rows), scores_of(rows).astype(np.float64), tuple(findings_of(rows))
    labels, unknown = np.nan_to_num(given).astype(bool), np.isnan(given)
    return Sample(rows["image"].to_numpy(), labels, scores, clusters, count, by_patient, names, unknown)


def validation_of(predictions: pd.DataFrame) -> Sample | None:
    """The validation images of a predictions table; None where there are none.

    >>> from cxrbench.statistics.examples import predictions
    >>> validation_of(predictions()).n_clusters
    20
    """
    return sample_of(predictions, "val") if (predictions["split"] == "val").any() else None


def _numbered(keys: np.ndarray) -> tuple[np.ndarray, int]:
    codes, numbers = np.unique(keys, return_inverse=True)
    return numbers.astype(np.int32), len(codes)


def weight_blocks(n_clusters: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks (r, n_clusters) float32 of how often each cluster is drawn with replacement.

    The same for the same arguments. Source: Field & Welsh, J. R. Statist. Soc. B 2007 (cluster bootstrap).

    >>> [block.sum(axis=1).tolist() for block in weight_blocks(n_clusters=5, replicates=3, seed=0)]
    [[5.0, 5.0, 5.0]]
    """
    size = max(BLOCK_LEAST, BLOCK_BYTES // (4 * n_clusters))
    if replicates <= size:
        yield _drawn(n_clusters, replicates, seed)
        return
    rng = np.random.default_rng(seed)
    for start in range(0, replicates, size):
        yield _block(rng, n_clusters, min(size, replicates - start))


@lru_cache(maxsize=4)  # networks that scored the same images share their draws
def _drawn(n_clusters: int, replicates: int, seed: int) -> np.ndarray:
    return _block(np.random.default_rng(seed), n_clusters, replicates)


def _block(rng: np.random.Generator, n_clusters: int, replicates: int) -> np.ndarray:
    block = np.empty((replicates, n_clusters), dtype=np.float32)
    for row in block:
        row[:] = np.bincount(rng.integers(0, n_clusters, n_clusters), minlength=n_clusters)
    return block


def in_threads(work: Callable[[_S], _T], items: Sequence[_S], values: int) -> list[_T]:
    """What ``work`` gives of each item; of many ``values`` in threads, since NumPy computes without the lock.

    >>> in_threads(abs, [-1, 2], values=2)
    [1, 2]
    """
    if values < _MANY:
        return [work(item) for item in items]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of one set of scores; NaN where the validation part cannot support one.

    ``f1`` (L,) maximise each label's F1; ``specificity`` (L,) are the lowest with a specificity of at
    least ``SPECIFICITY``; ``any_finding`` and ``no_finding`` apply to an image's highest score;
    ``positive_patients`` (L,) positive validation patients.

    >>> f1, specificity, patients = np.array([[0.3, np.nan], [0.8, np.nan], [25, 8]])
    >>> Thresholds(f1, specificity, 0.5, 0.7, patients).tuned.tolist()
    [True, False]
    """

    f1: np.ndarray
    specificity: np.ndarray
    any_finding: float
    no_finding: float
    positive_patients: np.ndarray

    @property
    def tuned(self) -> np.ndarray:
        """Which labels (L,) have a threshold."""
        return np.isfinite(self.f1)


def choose_thresholds(val: Sample) -> Thresholds:
    """The thresholds that the validation part supports (see ``MIN_PATIENTS``).

    >>> from cxrbench.statistics.examples import predictions
    >>> choose_thresholds(validation_of(predictions())).positive_patients.tolist()
    [8, 12]
    """
    return _chosen(val, np.ones((1, val.n_clusters)))[0]


def refitted(val: Sample) -> list[Thresholds]:
    """The thresholds of ``REFITS`` other draws of the validation patients, for the same labels.

    The draws are the same for every network that scored these patients.

    >>> from cxrbench.statistics.examples import predictions
    >>> draws = refitted(validation_of(predictions(patients=150)))
    >>> len(draws), draws[0].f1.tolist()
    (200, [0.5211, 0.2363])
    """
    return _chosen(val, np.vstack(list(weight_blocks(val.n_clusters, REFITS, seed=0))))


def _chosen(val: Sample, weights: np.ndarray) -> list[Thresholds]:
    """Thresholds for each row of ``weights`` (R, clusters), how often each patient is drawn."""
    patients = val.positive_clusters(val.labels)
    enough = (patients >= MIN_PATIENTS) & (val.positive_clusters(val.negative) >= MIN_PATIENTS)
    f1, specificity = np.full((2, len(weights), len(enough)), np.nan)

    def search(k: int) -> None:
        positive, scores, clusters = val.of_label(k)
        f1[:, k] = best_f1_thresholds(positive, scores, weights, clusters)
        specificity[:, k] = specificity_thresholds(scores[~positive], weights, clusters[~positive])

    in_threads(search, np.flatnonzero(enough).tolist(), len(weights) * val.n_images)
    rows = zip(f1, specificity, *_image_thresholds(val, weights).tolist(), strict=True)
    return [Thresholds(best, strict, finding, none, patients) for best, strict, finding, none in rows]


def _image_thresholds(val: Sample, weights: np.ndarray) -> np.ndarray:
    whole = val.complete
    clusters = val.clusters[whole]
    finding, score = val.abnormal[whole], val.scores[whole].max(axis=1)
    both = np.column_stack([val.abnormal & whole, ~val.abnormal & whole])
    if (val.positive_clusters(both) < MIN_PATIENTS).any():
        return np.full((2, len(weights)), np.nan)
    # "no finding" is called below its threshold: the same search upside down, then one step up
    highest_clear = -best_f1_thresholds(~finding, -score, weights, clusters)
    highest = best_f1_thresholds(finding, score, weights, clusters)
    return np.array([highest, np.nextafter(highest_clear, np.inf)])


def best_f1_thresholds(
    positive: np.ndarray, scores: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None = None
) -> np.ndarray:
    """The highest scores (R,) at which calling ``scores >= threshold`` positive gives the best F1.

    ``positive`` (n,) bool with at least one true; ``scores`` (n,); ``weights`` (R, n), how often each counts,
    or with ``clusters`` (n,) how often each of those does.

    >>> positive, scores = np.array([True, True, False, False]), np.array([0.9, 0.6, 0.7, 0.1])
    >>> best_f1_thresholds(positive, scores, np.ones((1, 4))).tolist()
    [0.6]
    """
    order = np.argsort(-scores, kind="stable")
    ordered, hit = scores[order], positive[order]
    ends = np.flatnonzero(np.append(np.diff(ordered) != 0, True))  # a threshold cannot part equal scores
    hits = np.cumsum(hit)[ends]
    ends, hits = (part[np.diff(hits, prepend=0) > 0] for part in (ends, hits))  # the best calls one more
    counts = weights.take(order if clusters is None else clusters[order], axis=1)
    called, hits = np.cumsum(counts, axis=1)[:, ends], np.cumsum(counts[:, hit], axis=1)[:, hits - 1]
    return np.asarray(ordered[ends][np.argmax(2 * hits / np.maximum(called + hits[:, -1:], 1), axis=1)])


def specificity_thresholds(
    negative_scores: np.ndarray, weights: np.ndarray, clusters: np.ndarray | None = None
) -> np.ndarray:
    """The lowest thresholds (R,) that keep ``SPECIFICITY`` of ``negative_scores`` (n,) below them.

    ``weights`` and ``clusters`` are those of :func:`best_f1_thresholds`.

    >>> specificity_thresholds(np.arange(10) / 10, np.ones((1, 10))).round(3).tolist()
    [0.8]
    """
    order = np.argsort(negative_scores, kind="stable")
    kept = np.cumsum(weights.take(order if clusters is None else clusters[order], axis=1), axis=1)
    enough = kept >= np.ceil(SPECIFICITY * kept[:, -1:] - 1e-9)
    return np.asarray(np.nextafter(negative_scores[order][np.argmax(enough, axis=1)], np.inf))


@dataclass(frozen=True)
class Scope:
    """Masks over labels (L,): ``counted`` have both classes, ``estimable`` at least two clusters of each
    class, ``tuned`` are counted and have a threshold, ``many`` have the positive test patients (``patients``,
    L) that the main endpoint asks for (``least``). ``unit`` is what is drawn: patient or image. ``whole``
    says how many images have all their labels, where some have not.

    >>> from cxrbench.statistics.examples import predictions
    >>> scope = scope_of(sample_of(predictions()), choose_thresholds(validation_of(predictions())), least=12)
    >>> scope.reason(0)
    'no tuned threshold: 8 positive validation patients'
    >>> scope.endpoint_note()
    '1 label, without those of fewer than 12 positive test patients: Mass (11)'
    """

    counted: np.ndarray
    estimable: np.ndarray
    tuned: np.ndarray
    patients: np.ndarray
    least: int
    unit: str
    names: tuple[str, ...]
    thresholds: Thresholds | None
    whole: int | None = None

    def reason(self, label: int) -> str:
        """The reason a label (by number) has no value or no threshold; empty if it has both."""
        if not self.counted[label]:
            return "undefined: only one class among the images"
        if self.thresholds is None or self.tuned[label]:
            return ""
        few = self.thresholds.positive_patients[label]
        positives = f"{few} positive validation {self.unit}{'s' if few != 1 else ''}"
        many = f"fewer than {MIN_PATIENTS} negative validation {self.unit}s"
        return f"no tuned threshold: {positives if few < MIN_PATIENTS else many}"

    def averaged(self, included: np.ndarray) -> np.ndarray:
        """The ``included`` labels (L,) that a mean is over: those with an interval, all if none has."""
        kept = included & self.estimable
        return kept if kept.any() else included

    def mean_note(self, included: np.ndarray, valued: np.ndarray) -> str:
        """The labels that a value over the ``included`` ones (L,) leaves out, with reasons; ``valued`` (L,)
        are those that have a value."""
        single = f"one class has a single {self.unit}"
        left_out = np.flatnonzero(~included).tolist()
        missing = [f"{self.names[k]} ({single if valued[k] else self.reason(k)})" for k in left_out]
        labels = f"{included.sum()} label{'' if included.sum() == 1 else 's'}"
        return f"{labels}, without {', '.join(missing)}" if missing else ""

    @property
    def many(self) -> np.ndarray:
        """Which labels (L,) the main endpoint is over, of those with an interval."""
        return np.asarray(self.patients >= self.least)

    def endpoint_note(self) -> str:
        """The labels that the main endpoint leaves out, with reasons."""
        left_out = np.flatnonzero(~(self.many & self.averaged(self.counted))).tolist()
        if len(left_out) == len(self.names):
            return f"undefined: no label has {self.least} positive test {self.unit}s"
        few = [f"{self.names[k]} ({self.patients[k]})" for k in left_out]
        without = f"fewer than {self.least} positive test {self.unit}s: {', '.join(few)}"
        kept = len(self.names) - len(left_out)
        labels = f"{kept} label{'' if kept == 1 else 's'}"
        return f"{labels}, without those of {without}" if few else ""


def scope_of(sample: Sample, thresholds: Thresholds | None, least: int = 0) -> Scope:
    """The scope of ``sample`` when scored with ``thresholds``.

    ``least``: how many positive patients a finding of the main endpoint has at least.

    >>> from cxrbench.statistics.examples import predictions
    >>> scope = scope_of(sample_of(predictions()), None, least=15)
    >>> scope.patients.tolist(), scope.many.tolist()
    ([14, 11], [False, False])
    """
    positive, negative = sample.labels, sample.negative
    counted = np.asarray(positive.any(axis=0) & negative.any(axis=0))
    fewest = np.minimum(sample.positive_clusters(positive), sample.positive_clusters(negative))
    return Scope(
        counted=counted,
        estimable=counted & (fewest > 1),
        tuned=counted & thresholds.tuned if thresholds else np.zeros_like(counted),
        patients=sample.positive_clusters(positive),
        least=least,
        unit="patient" if sample.by_patient else "image",
        names=sample.names,
        thresholds=thresholds,
        whole=int(sample.complete.sum()) if sample.unknown.any() else None,
    )
