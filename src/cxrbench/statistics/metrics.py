"""The metrics, and the labels that stand for several findings at once: facts of each, without its formula."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MACRO = "macro"  # the label of a mean over findings
ENDPOINT = "endpoint"  # of the mean over findings with enough positive test patients
ALL = "all"  # of what pools all findings' decisions, or calls whole images
EVERY = "every"  # of a verdict on each finding at once
MEANS = (MACRO, ALL, EVERY, ENDPOINT)  # so no finding can have one of these names


class Basis(StrEnum):
    """What of the scores a metric looks at."""

    ORDER = "order"
    VALUE = "value"
    BINS = "bins"  # of the values: biased, so that there is no interval
    CALLS = "calls"  # at a threshold from validation images


class Over(StrEnum):
    """What a metric's value for all findings is over."""

    FINDINGS = "findings"  # the mean of the values of each
    DECISIONS = "decisions"  # of each finding in each image
    IMAGES = "images"  # an abnormal one against a clear one


@dataclass(frozen=True)
class Metric:
    """A metric: its ``name`` in tables; ``score``, in words, and ``how`` it is averaged over findings;
    ``short``, for narrow tables; its lowest value (the highest is 1) and the ``digits`` that are printed.

    >>> METRICS["auroc"].label, METRICS["f1_macro"].label, METRICS["f1_micro"].label
    ('endpoint', 'macro', 'all')
    """

    name: str
    score: str
    basis: Basis
    how: str = MACRO
    over: Over = Over.FINDINGS
    single: bool = True  # whether single findings have a value of this name
    endpoint: bool = False  # whether it has the main endpoint beside the mean over all findings
    compared: bool = False  # between platforms
    lowest: float = 0.0
    digits: int = 3
    short: str = ""

    @property
    def label(self) -> str:
        """The label of the value that stands for the metric where one is wanted."""
        if self.endpoint:
            return ENDPOINT
        return MACRO if self.over is Over.FINDINGS else ALL


_CALLED = ("sensitivity_at_specificity_90", "sensitivity"), ("specificity_at_that_threshold", "specificity")
_POOLED = {
    **{"f1_micro": "micro", "f1_weighted": "weighted", "f1_samples": "samples"},
    "f1_samples_empty_is_1": "samples, empty is 1",
    "f1_both_class_weighted": "both classes weighted",
    "f1_both_class_macro": "both classes macro",
}
METRICS = {
    metric.name: metric
    for metric in (
        Metric("auroc", "AUROC", Basis.ORDER, endpoint=True, compared=True),
        Metric("auroc_patient_weighted", "AUROC, each patient once", Basis.ORDER, endpoint=True),
        Metric("average_precision", "average precision", Basis.ORDER, short="AP"),
        Metric("brier", "Brier score", Basis.VALUE),
        Metric("calibration_in_the_large", "calibration in the large", Basis.VALUE, lowest=-1),
        Metric("calibration_error", "calibration error", Basis.BINS, short="calib."),
        Metric("calibration_error_by_chance", "calibration error by chance", Basis.BINS),
        Metric("f1", "F1", Basis.CALLS, short="F1"),
        *(Metric(name, score, Basis.CALLS) for name, score in _CALLED),
        Metric("f1_macro", "F1", Basis.CALLS, single=False, compared=True),
        *(
            Metric(name, "F1", Basis.CALLS, how, Over.DECISIONS, single=False, compared=name == "f1_micro")
            for name, how in _POOLED.items()
        ),
        *(
            Metric(f"f1_{kind}_finding", "F1", Basis.CALLS, f"{kind} finding", Over.IMAGES, single=False)
            for kind in ("any", "no")
        ),
    )
}


def _named(metrics: Iterable[Metric]) -> tuple[str, ...]:
    return tuple(metric.name for metric in metrics)


_ALL = METRICS.values()
RANKED = _named(m for m in _ALL if m.basis is Basis.ORDER)
PLAIN = _named(m for m in _ALL if m.basis is Basis.VALUE)
TUNED = _named(m for m in _ALL if m.basis is Basis.CALLS and m.single)
POOLED = _named(m for m in _ALL if m.over is Over.DECISIONS)
IMAGE_LEVEL = _named(m for m in _ALL if m.over is Over.IMAGES)
DEFINITIONS = _named(m for m in _ALL if m.basis is Basis.CALLS and not m.single)  # of F1, over all findings
WITH_THRESHOLDS = _named(m for m in _ALL if m.basis is Basis.CALLS)
COMPARED = _named(m for m in _ALL if m.compared)


def findings_among(labels: Iterable[str]) -> list[str]:
    """The different ``labels`` that are findings, and no means of them, in their order.

    >>> findings_among(["Mass", "Edema", "Mass", "macro", "endpoint"])
    ['Mass', 'Edema']
    """
    return [label for label in dict.fromkeys(labels) if label not in MEANS]


def in_words(label: str, metric: str) -> str:
    """What a row of a table is of, in running text; of a finding it is the score alone.

    >>> in_words("macro", "f1_macro"), in_words("all", "f1_micro"), in_words("Mass", "f1")
    ('macro F1', 'micro F1', 'F1')
    >>> in_words("endpoint", "auroc"), in_words("every", "auroc")
    ('main endpoint', 'every finding')
    """
    of_several = {ENDPOINT: "main endpoint", EVERY: "every finding"}
    if label in of_several:
        return of_several[label]
    return f"{METRICS[metric].how} {METRICS[metric].score}" if label in MEANS else METRICS[metric].score


def as_title(label: str, metric: str) -> str:
    """The same with the score first, as heads of tables have it.

    >>> as_title("all", "f1_micro"), as_title("endpoint", "auroc"), as_title("Mass", "f1")
    ('F1, micro', 'AUROC, main endpoint', 'F1')
    """
    if label not in MEANS:
        return METRICS[metric].score
    how = METRICS[metric].how if label in (MACRO, ALL) else in_words(label, metric)
    return f"{METRICS[metric].score}, {how}"
