"""Spot: paid hours of a run that may be interrupted, analytically and by simulation.

Interruptions are a Poisson process of ``rate`` per running hour. A run does ``work`` hours, saves after
every ``interval`` hours of it (``save`` hours each, none after the last stretch), and each interruption
costs the work since the last save plus ``restart`` hours, themselves interruptible. Waiting for a new
instance is not paid and not counted. All times are hours.

The expectation of one stretch of s hours is exp(rate*restart) * (exp(rate*s) - 1) / rate
(Daly, Future Generation Computer Systems 22, 2006, for exponential failures).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cxrbench.errors import UserError

_TOO_RARELY = 8.0  # expected interruptions per stretch above which a simulation would hardly ever end


@dataclass(frozen=True)
class Interruptions:
    """How a spot run is interrupted and how it protects itself; hours, and interruptions per hour."""

    rate: float
    interval: float
    save: float = 0.0
    restart: float = 0.0

    def __post_init__(self) -> None:
        for name in ("rate", "interval", "save", "restart"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (name == "interval" and value == 0):
                least = "above zero" if name == "interval" else "zero or more"
                raise UserError(f"spot {name} is {value}: it must be finite and {least} (hours, or per hour)")

    def stretches(self, work: float) -> np.ndarray:
        """Hours between saves: full intervals with their save, then the rest without one."""
        if not math.isfinite(work) or work < 0:
            raise UserError(f"{work} hours of work: it must be finite and zero or more")
        full = max(math.ceil(work / self.interval) - 1, 0)
        return np.array([self.interval + self.save] * full + [work - full * self.interval])


def expected_hours(work: float, how: Interruptions) -> float:
    """Expected paid hours to finish ``work`` hours; infinite when the expectation overflows."""
    stretches = how.stretches(work)
    if how.rate == 0:
        return float(stretches.sum())
    with np.errstate(over="ignore"):
        each = np.exp(how.rate * how.restart) * np.expm1(how.rate * stretches) / how.rate
    return float(each.sum())


def simulated_hours(work: float, how: Interruptions, trials: int = 2000, seed: int = 0) -> np.ndarray:
    """Paid hours of ``trials`` simulated runs, interruption by interruption."""
    stretches = how.stretches(work)
    if how.rate * (stretches.max() + how.restart) > _TOO_RARELY:
        raise UserError(
            f"{how.rate} interruptions per hour with {how.interval} hours between saves: such a run hardly "
            "ever ends; save more often"
        )
    rng = np.random.default_rng(seed)
    return np.array([_one_run(stretches, how, rng) for _ in range(trials)])


def _one_run(stretches: np.ndarray, how: Interruptions, rng: np.random.Generator) -> float:
    if how.rate == 0:
        return float(stretches.sum())
    paid = 0.0
    until_next = rng.exponential(1 / how.rate)
    for stretch in stretches:
        needed = stretch
        while until_next < needed:  # interrupted: the stretch starts again, after a restart
            paid += until_next
            until_next = rng.exponential(1 / how.rate)
            needed = how.restart + stretch
            while until_next < how.restart:
                paid += until_next
                until_next = rng.exponential(1 / how.rate)
        paid += needed
        until_next -= needed
    return paid
