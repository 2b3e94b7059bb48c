"""Three paired runs: how often can any interval find equal platforms equivalent, and how often does ours?

``python -m benchmarks.three_runs`` (3 s). The mean of three differences has the variance V/3. V is at least
the part of patients in one run, which many patients tell: the unit here. The spread of the three is V times
an exponential variable, independent of their mean. A rule makes an interval of half-width k(spread). It errs
at the margin in E[Phi(-k / sqrt V)] of studies, which may exceed five percent for no V. Of all such rules,
even those that toss a coin, a linear program finds the one that calls equal platforms equivalent most often.
No estimator of the variance from these data can do better.
"""

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import identity, kron
from scipy.special import ndtr, stdtrit

ALPHA = 0.05
# Of simulated studies of 500 patients (compare_coverage.py): V, and the margin over the error of the mean.
VARIANCE, MARGIN = 1.81, 3.41
VARIANCES = np.geomspace(1, 60, 28)  # values of V that a rule has to be right for
Rule = Callable[[np.ndarray, float], np.ndarray]


def ours(spread: np.ndarray, level: float) -> np.ndarray:
    """Half-widths of components.py: Student's t with two degrees of freedom, but of patients alone where the
    spread is below their part."""
    return np.where(spread > 1, stdtrit(2, level) * np.sqrt(spread), stdtrit(400, level))


def moderated(spread: np.ndarray, level: float, weight: float, prior: float) -> np.ndarray:
    """The same where the spread is averaged with a ``prior`` of so many degrees of freedom (``weight``)."""
    return stdtrit(2 + weight, level) * np.sqrt((weight * prior + 2 * spread) / (2 + weight))


def rates(variance: float, rule: Rule = ours, nodes: int = 4000) -> tuple[float, float, float]:
    """How often a rule says equivalent of equal platforms, errs at the margin, and covers (95 %), at V."""
    spread = -variance * np.log1p(-(np.arange(nodes) + 0.5) / nodes)
    narrow, wide = rule(spread, 1 - ALPHA), rule(spread, 1 - ALPHA / 2)
    error = np.sqrt(variance)
    room = MARGIN * np.sqrt(VARIANCE) - narrow
    found = np.maximum(2 * ndtr(room / error) - 1, 0).mean()
    return float(found), float(ndtr(-narrow / error).mean()), float(1 - 2 * ndtr(-wide / error).mean())


def most_power(alpha: float = ALPHA, cells: int = 90, widths: int = 70) -> float:
    """The probability of "equivalent" of the best rule that errs in ``alpha`` of studies for no V."""
    edges = np.concatenate([[0], np.geomspace(0.02, 400, cells)])
    half = np.concatenate([np.linspace(0, 8, widths), np.geomspace(8.3, 120, widths // 3)])

    def chance(variance: float) -> np.ndarray:
        return np.exp(-edges[:-1] / variance) - np.exp(-edges[1:] / variance)

    errs = [np.outer(chance(v), ndtr(-half / np.sqrt(v))).ravel() for v in VARIANCES]
    room = (MARGIN * np.sqrt(VARIANCE) - half) / np.sqrt(VARIANCE)
    found = np.outer(chance(VARIANCE), np.maximum(2 * ndtr(room) - 1, 0)).ravel()
    one_rule = kron(identity(cells), np.ones((1, len(half))), format="csr")
    best = linprog(-found, errs, [alpha] * len(errs), one_rule, np.ones(cells), method="highs")
    return float(-best.fun)


if __name__ == "__main__":
    print(f"ours: equivalent {rates(VARIANCE)[0]:.3f}")
    for variance in (1.0, 1.81, 4.0, 8.0, 20.0):
        _, errs, covers = rates(variance)
        print(f"  V {variance:5.2f}: errs at the margin {errs:.4f}, 95 % interval covers {covers:.4f}")
    for weight, prior in product((1, 2, 4, 8), (1, 1.5, 2)):
        rule = partial(moderated, weight=weight, prior=prior)
        worst = np.array([rates(variance, rule)[1:] for variance in VARIANCES])
        print(
            f"averaged with {prior} of weight {weight}: equivalent {rates(VARIANCE, rule)[0]:.3f}, "
            f"errs in up to {worst[:, 0].max():.3f}, covers {worst[:, 1].min():.3f} or more"
        )
    print(f"any interval that errs in 5 %: equivalent at most {most_power():.3f}")
