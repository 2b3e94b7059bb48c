"""Thresholds, chosen from validation images only, and which labels count in which metric.

An image is called positive at score >= threshold.
"""

from dataclasses import dataclass

import numpy as np

from cxrbench.analysis.sample import Sample, weight_blocks

MIN_PATIENTS = 10  # a label with fewer positive (or negative) validation patients gets no threshold
SPECIFICITY = 0.9  # at which sensitivity is reported
REFITS = 200  # draws of validation patients: the spread they give has an error of five percent


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of one set of scores; NaN where the validation part cannot support one.

    ``f1`` (L,) maximise each label's F1; ``specificity`` (L,) are the lowest with a specificity of at
    least ``SPECIFICITY``; ``any_finding`` and ``no_finding`` apply to an image's highest score;
    ``positive_patients`` (L,) positive validation patients.
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
    """Return the thresholds that the validation part supports (see ``MIN_PATIENTS``)."""
    return _chosen(val, np.ones((1, val.n_clusters)))[0]


def refitted(val: Sample) -> list[Thresholds]:
    """Return the thresholds of ``REFITS`` other draws of the validation patients, for the same labels.

    The draws are the same for every network that scored these patients.
    """
    return _chosen(val, np.vstack(list(weight_blocks(val.n_clusters, REFITS, seed=0))))


def _chosen(val: Sample, weights: np.ndarray) -> list[Thresholds]:
    """Return thresholds for each row of ``weights`` (R, clusters), how often each patient is drawn."""
    patients = val.positive_clusters(val.labels)
    enough = (patients >= MIN_PATIENTS) & (val.positive_clusters(val.negative) >= MIN_PATIENTS)
    f1, specificity = np.full((2, len(weights), len(enough)), np.nan)
    for k in np.flatnonzero(enough):
        positive, scores, clusters = val.of_label(k)
        drawn = weights[:, clusters]
        f1[:, k] = best_f1_thresholds(positive, scores, drawn)
        specificity[:, k] = specificity_thresholds(scores[~positive], drawn[:, ~positive])
    rows = zip(f1, specificity, *_image_thresholds(val, weights).tolist(), strict=True)
    return [Thresholds(best, strict, finding, none, patients) for best, strict, finding, none in rows]


def _image_thresholds(val: Sample, weights: np.ndarray) -> np.ndarray:
    whole = val.complete
    drawn = weights[:, val.clusters[whole]]
    finding, score = val.abnormal[whole], val.scores[whole].max(axis=1)
    both = np.column_stack([val.abnormal & whole, ~val.abnormal & whole])
    if (val.positive_clusters(both) < MIN_PATIENTS).any():
        return np.full((2, len(drawn)), np.nan)
    # "no finding" is called below its threshold: the same search upside down, then one step up
    highest_clear = -best_f1_thresholds(~finding, -score, drawn)
    return np.array([best_f1_thresholds(finding, score, drawn), np.nextafter(highest_clear, np.inf)])


def best_f1_thresholds(positive: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the highest scores (R,) at which calling ``scores >= threshold`` positive gives the best F1.

    ``positive`` (n,) bool with at least one true; ``scores`` (n,); ``weights`` (R, n), how often each counts.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, hit = scores[order], positive[order]
    ends = np.flatnonzero(np.append(np.diff(ordered) != 0, True))  # a threshold cannot part equal scores
    hits = np.cumsum(hit)[ends]
    ends, hits = (part[np.diff(hits, prepend=0) > 0] for part in (ends, hits))  # the best calls one more
    counts = weights[:, order]
    called, hits = np.cumsum(counts, axis=1)[:, ends], np.cumsum(counts[:, hit], axis=1)[:, hits - 1]
    return np.asarray(ordered[ends][np.argmax(2 * hits / np.maximum(called + hits[:, -1:], 1), axis=1)])


def specificity_thresholds(negative_scores: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the lowest thresholds (R,) that keep ``SPECIFICITY`` of ``negative_scores`` (n,) below them.

    ``weights`` (R, n) is how often each counts.
    """
    order = np.argsort(negative_scores, kind="stable")
    kept = np.cumsum(weights[:, order], axis=1)
    enough = kept >= np.ceil(SPECIFICITY * kept[:, -1:] - 1e-9)
    return np.asarray(np.nextafter(negative_scores[order][np.argmax(enough, axis=1)], np.inf))


@dataclass(frozen=True)
class Scope:
    """Masks over labels (L,): ``counted`` have both classes, ``estimable`` at least two clusters of each
    class, ``tuned`` are counted and have a threshold, ``many`` have the positive test patients (``patients``,
    L) that the main endpoint asks for (``least``). ``unit`` is what is drawn: patient or image. ``whole``
    says how many images have all their labels, where some have not."""

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
        """Return why a label (by number) has no value or no threshold; empty if it has both."""
        if not self.counted[label]:
            return "undefined: only one class among the images"
        if self.thresholds is None or self.tuned[label]:
            return ""
        few = self.thresholds.positive_patients[label]
        positives = f"{few} positive validation {self.unit}{'s' if few != 1 else ''}"
        many = f"fewer than {MIN_PATIENTS} negative validation {self.unit}s"
        return f"no tuned threshold: {positives if few < MIN_PATIENTS else many}"

    def averaged(self, included: np.ndarray) -> np.ndarray:
        """Return which ``included`` labels (L,) a mean is over: those with an interval, all if none has."""
        kept = included & self.estimable
        return kept if kept.any() else included

    def mean_note(self, included: np.ndarray) -> str:
        """Return what a figure over the ``included`` labels (L,) leaves out, and why."""
        single = f"one class has a single {self.unit}"
        left_out = np.flatnonzero(~included).tolist()
        missing = [f"{self.names[k]} ({self.reason(k) or single})" for k in left_out]
        labels = f"{included.sum()} label{'' if included.sum() == 1 else 's'}"
        return f"{labels}, without {', '.join(missing)}" if missing else ""

    @property
    def many(self) -> np.ndarray:
        """Which labels (L,) the main endpoint is over, of those with an interval."""
        return np.asarray(self.patients >= self.least)

    def endpoint_note(self) -> str:
        """Return what the main endpoint leaves out, and why."""
        left_out = np.flatnonzero(~(self.many & self.averaged(self.counted))).tolist()
        if len(left_out) == len(self.names):
            return f"undefined: no label has {self.least} positive test {self.unit}s"
        few = [f"{self.names[k]} ({self.patients[k]})" for k in left_out]
        without = f"fewer than {self.least} positive test {self.unit}s: {', '.join(few)}"
        labels = f"{len(self.names) - len(left_out)} labels"
        return f"{labels}, without those of {without}" if few else ""


def scope_of(sample: Sample, thresholds: Thresholds | None, least: int = 0) -> Scope:
    """Return the scope of ``sample`` when scored with ``thresholds``.

    ``least``: how many positive patients a finding of the main endpoint has at least.
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
