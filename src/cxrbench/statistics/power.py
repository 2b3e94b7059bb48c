"""What patients and seeds can show about two platforms: power, smallest margins, and the numbers needed.

Two platforms train the same ``seeds`` and score the same ``patients``. The difference of their means has the
variance 2 (luck + share * skill) / seeds. ``luck`` is the variance of one network's score that the choice of
patients causes beyond what networks of one recipe share; it falls as 1/patients. ``skill`` is the remaining
variance between seeds; ``share`` is the part of it that the platforms do not have in common: 1 if a shared
seed helps no more than a different one. Luck counts in full, whatever the share.

The verdict is that of :mod:`cxrbench.statistics.parity`. Its power is averaged over the chi-squared
distribution of the observed variance (Phillips 1990 for the t test), and so over the choice of its error.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtr, ndtri, stdtrit

from cxrbench.statistics.components import ALPHA, FEWEST_PATIENTS, MIN_SEEDS, POWER
from cxrbench.statistics.metrics import COMPARED, DEFINITIONS, METRICS
from cxrbench.statistics.parity import Margins

_GROUP = ["dataset", "architecture", "platform", "metric"]
COLUMNS = [
    *(
        "patient_se",
        "measured_on",
        "seed_sd",
        "seed_freedom",
        "patients",
        "seeds",
        "share",
        "margin",
        "power_at_zero",
    ),
    *("smallest_margin", "seeds_needed", "patients_needed", "difference", "seeds_to_see", "patients_to_see"),
]
# The preprint's F1 of ConvNeXt-Pico (claim P02), the first of two printed values as Trainium's.
PREPRINT = {"cuda": 0.8027, "trainium": 0.8007}
DIFFERENCE = round(PREPRINT["cuda"] - PREPRINT["trainium"], 4)
SHARES = (0.0, 0.2, 0.5, 1.0)
_MOST = 10_000_000  # patients or seeds; what needs more is out of reach
_NODES = 1000  # of the average over observed variances: an error of power below 0.001
_ACCURACY = 0.2  # one minus the level of the upper limit of a seed spread (Browne 1995 uses 80 %)


@dataclass(frozen=True)
class SeedSpread:
    """One network's spread: ``patient_se`` over ``patients`` (the root of luck), ``seed_sd`` of skill.

    ``freedom``: degrees of freedom behind ``seed_sd``, 0 where it is given.
    """

    patient_se: float
    patients: int
    seed_sd: float
    freedom: int = 0


@dataclass(frozen=True)
class Design:
    """A comparison: test ``patients``, ``MIN_SEEDS`` or more ``seeds`` on each platform, and ``share``.

    >>> spread = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.003)
    >>> design = Design(patients=2000, seeds=5)
    >>> [f"{part:.1e}" for part in design.parts(spread)], round(design.deviation(spread), 4)
    (['1.6e-06', '3.6e-06'], 0.0023)
    """

    patients: int
    seeds: int
    share: float = 1.0

    def parts(self, spread: SeedSpread) -> tuple[float, float]:
        """The variance of the difference from patients' luck and from the networks' skill."""
        luck = 2 * spread.patient_se**2 * spread.patients / self.patients / self.seeds
        return luck, 2 * self.share * spread.seed_sd**2 / self.seeds

    def deviation(self, spread: SeedSpread) -> float:
        """The standard deviation of the difference."""
        return float(np.sqrt(sum(self.parts(spread))))


def power_equivalent(spread: SeedSpread, design: Design, margin: float, difference: float = 0.0) -> float:
    """The probability of the verdict "equivalent" within ``margin`` at a true ``difference``.

    >>> spread = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.003)
    >>> round(power_equivalent(spread, Design(patients=500, seeds=5), margin=0.01), 2)
    0.67
    """
    reach, deviation = _reach(spread, design, 1 - ALPHA), design.deviation(spread)
    return _inside(margin - reach, deviation, difference)


def _inside(room: np.ndarray, deviation: float, difference: float = 0.0) -> float:
    """The probability of an observed difference within ``room`` (its mean over equal chances)."""
    inside = ndtr((room - difference) / deviation) - ndtr((-room - difference) / deviation)
    return float(np.maximum(inside, 0).mean())


def power_different(spread: SeedSpread, design: Design, difference: float) -> float:
    """The probability of a two-sided p below five percent at a true ``difference``.

    >>> spread = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.003)
    >>> round(power_different(spread, Design(patients=500, seeds=5), difference=0.01), 2)
    0.67
    """
    reach, deviation = _reach(spread, design, 1 - ALPHA / 2), design.deviation(spread)
    return float((ndtr((difference - reach) / deviation) + ndtr((-difference - reach) / deviation)).mean())


def smallest_margin(spread: SeedSpread, design: Design) -> float:
    """The margin that is shown four times in five when the true difference is zero.

    >>> spread = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.003)
    >>> round(smallest_margin(spread, Design(patients=500, seeds=5)), 4)
    0.0113
    """
    reach, deviation = _reach(spread, design, 1 - ALPHA), design.deviation(spread)
    ends = 1e-3 * deviation, 1e3 * deviation
    return float(brentq(lambda margin: _inside(margin - reach, deviation) - POWER, *ends))


def patients_to_see(spread: SeedSpread, design: Design, difference: float) -> int | None:
    """The fewest patients that show a true ``difference`` (two-sided 5 %, power 80 %) at best.

    At best: as if its variance were known, so that no seeds are spent on finding it out. None where the
    spread between seeds alone hides the difference.

    >>> spread = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.003)
    >>> patients_to_see(spread, Design(patients=500, seeds=3, share=0), difference=0.005)
    1675
    """
    wanted = (difference / (ndtri(1 - ALPHA / 2) + ndtri(POWER))) ** 2  # the variance that is small enough
    luck, skill = design.parts(spread)
    return max(2, math.ceil(luck * design.patients / (wanted - skill))) if wanted > skill else None


def answers(
    spread: SeedSpread, design: Design, margin: float | None, difference: float | None = None
) -> dict[str, float | None]:
    """A row (``COLUMNS``): what ``design`` can show, and what a ``margin`` would need where there is one.

    With a ``difference``, also how many seeds (with these patients) or patients (with these seeds, at best)
    would see it. None where no number suffices.

    >>> row = answers(SeedSpread(0.004, 500, 0.003), Design(patients=500, seeds=5), margin=0.01)
    >>> round(row["power_at_zero"], 2), row["seeds_needed"], row["patients_needed"]
    (0.67, 6, 759)
    """

    def shown(tried: Design) -> float:
        return power_equivalent(spread, tried, margin or 0)

    def seen(tried: Design) -> float:
        return power_different(spread, tried, difference or 0)

    asked = difference is not None
    return {
        **{"patient_se": spread.patient_se, "measured_on": spread.patients, "seed_sd": spread.seed_sd},
        "seed_freedom": spread.freedom,
        **{**asdict(design), "margin": margin, "power_at_zero": shown(design) if margin else None},
        "smallest_margin": smallest_margin(spread, design),
        "seeds_needed": fewest("seeds", shown, design) if margin else None,
        "patients_needed": fewest("patients", shown, design) if margin else None,
        "difference": difference,
        "seeds_to_see": fewest("seeds", seen, design) if asked else None,
        "patients_to_see": patients_to_see(spread, design, difference or 0) if asked else None,
    }


def fewest(quantity: str, chance: Callable[[Design], float], design: Design) -> int | None:
    """The fewest seeds or patients (``quantity``) with which ``chance`` reaches 80 %.

    To one in ten thousand; None where it is out of reach.

    >>> spread = SeedSpread(patient_se=0.004, patients=500, seed_sd=0.003)
    >>> fewest("seeds", lambda design: power_equivalent(spread, design, margin=0.01), Design(500, 3))
    6
    """

    def reached(count: int) -> bool:
        return chance(replace(design, **{quantity: count})) >= POWER

    counts = [MIN_SEEDS if quantity == "seeds" else FEWEST_PATIENTS]
    while counts[-1] < _MOST:
        counts.append(max(counts[-1] + 1, int(counts[-1] * 1.3)))
    first = bisect_left(counts, True, key=reached)
    if first == len(counts):
        return None
    low, high = counts[max(first - 1, 0)], counts[first]
    while high - low > max(1, high // 10_000):
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _reach(spread: SeedSpread, design: Design, level: float) -> np.ndarray:
    """Student's quantile times the standard error that the verdict may use, each of equal probability."""
    luck, skill = design.parts(spread)
    seen = (luck + skill) * chi_squared(design.seeds - 1)
    seeds_count = seen > luck
    of_seeds, of_patients = stdtrit([design.seeds - 1.0, design.patients - 1.0], level)
    return np.where(seeds_count, of_seeds, of_patients) * np.sqrt(np.where(seeds_count, seen, luck))


@cache
def chi_squared(freedom: int) -> np.ndarray:
    """Quantiles of chi-squared over its degrees of freedom, each of equal probability.

    >>> values = chi_squared(4)
    >>> values.shape, values.mean().round(2).tolist(), np.median(values).round(2).tolist()
    ((1000,), 1.0, 0.84)
    """
    return _chi_quantile((np.arange(_NODES) + 0.5) / _NODES, freedom) / freedom


def _chi_quantile(level: np.ndarray | float, freedom: int) -> np.ndarray:
    """Quantiles as scipy.stats.chi2.ppf has them, whose module takes a second to load."""
    return np.asarray(2 * gammaincinv(freedom / 2, level))


def recorded_spreads(
    spread: pd.DataFrame, metrics: Iterable[str] = COMPARED, fixed: bool = False
) -> list[tuple[dict[str, Any], SeedSpread, int]]:
    """The groups of spread.csv whose seeds and patients are known apart: names, spread, seeds.

    A network's own part of the patients' error is what is left of it when that of the mean over the seeds,
    which they have in common, is taken off (``patient_sampling_variance`` in components.py). The variance of
    skill is pooled over the groups of a metric, those on ``drawn`` images apart: three seeds alone say little
    of it. AUROC is that of the main endpoint. ``fixed``: with the thresholds of F1 taken as fixed.

    >>> from cxrbench.statistics.components import spread
    >>> from cxrbench.statistics.examples import cells
    >>> names, of_run, seeds = recorded_spreads(spread(cells()).assign(drawn=False))[0]
    >>> names["platform"], names["metric"], round(of_run.patient_se, 4), of_run.patients, seeds
    ('one', 'auroc', 0.0125, 100, 3)
    """
    end = "_fixed" if fixed else ""
    labels = {name: METRICS[name].label for name in metrics}
    rows = spread[(spread["label"] == spread["metric"].map(labels)) & (spread["n_seeds"] > 1)]
    rows = rows.assign(freedom=rows["n_seeds"] - 1, luck=_luck(rows, end))
    rows = rows[(rows["luck"] > 0) & rows["seed_sd_beyond_patients"].notna()]
    skill = rows["freedom"] * (rows["seed_sd"] ** 2 - _luck(rows, ""))  # seeds choose their thresholds anew
    kind = [rows["metric"], rows["drawn"]]
    freedom = rows["freedom"].groupby(kind).transform("sum")
    pooled = (skill.groupby(kind).transform("sum") / freedom).clip(lower=0)
    rows = rows.assign(seed_sd_pooled=np.sqrt(pooled), pooled=freedom)
    return [
        (
            {name: row[name] for name in (*_GROUP, "drawn")},
            SeedSpread(row["luck"] ** 0.5, row["n_patients"], row["seed_sd_pooled"], int(row["pooled"])),
            int(row["n_seeds"]),
        )
        for row in rows.to_dict("records")
    ]


def _luck(rows: pd.DataFrame, end: str) -> pd.Series:
    own = rows[f"patient_se{end}"] ** 2 - rows[f"patient_se_of_mean{end}"] ** 2
    return own * rows["n_seeds"] / (rows["n_seeds"] - 1)


def power_table(spread: pd.DataFrame, margins: Margins) -> pd.DataFrame:
    """A row per group of spread.csv, metric and assumed share of the seed variance that is made anew.

    What two settings share as measured is in :mod:`cxrbench.statistics.pilot`.

    >>> from cxrbench.statistics.components import spread
    >>> from cxrbench.statistics.examples import cells
    >>> row = power_table(spread(cells()).assign(drawn=False), Margins(auroc_macro=0.03)).iloc[0]
    >>> row["platform"], row["metric"], round(float(row["power_at_zero"]), 2), int(row["seeds_needed"])
    ('one', 'auroc', 0.51, 5)
    """
    rows: list[dict[str, Any]] = []
    for named, recipe, seeds in recorded_spreads(spread):
        of_auroc = named["metric"] == "auroc"
        asked = (margins.auroc_macro, None) if of_auroc else (None, DIFFERENCE)
        for share in SHARES:
            design = Design(recipe.patients, max(seeds, MIN_SEEDS), share)
            rows.append(named | {"measured_seeds": seeds} | answers(recipe, design, *asked))
    return pd.DataFrame(rows, columns=[*_GROUP, "measured_seeds", *COLUMNS]).convert_dtypes()


def patients_by_definition(spread: pd.DataFrame, fixed: bool = False) -> pd.DataFrame:
    """The patients at best that show ``DIFFERENCE``, a row per recorded recipe and definition of F1.

    Columns ``metric`` and ``patients``, those of ``_GROUP`` beside. ``fixed``: with thresholds as they are,
    else with thresholds chosen anew. Platforms that give a seed equal skill (share 0).

    >>> from cxrbench.statistics.components import spread
    >>> from cxrbench.statistics.examples import cells
    >>> table = patients_by_definition(spread(cells()).assign(drawn=False)).round(-3)
    >>> table[["platform", "metric", "patients"]][:2].to_numpy().tolist()
    [['one', 'f1_macro', 48000], ['one', 'f1_micro', 40000]]
    """
    rows = []
    for named, recipe, _ in recorded_spreads(spread, DEFINITIONS, fixed):
        design = Design(recipe.patients, MIN_SEEDS, SHARES[0])
        rows.append(named | {"patients": patients_to_see(recipe, design, DIFFERENCE)})
    return pd.DataFrame(rows, columns=[*_GROUP, "patients"])


def upper_seeds(table: pd.DataFrame, margin: float) -> dict[Any, int | None]:
    """The seeds needed at the upper limit of the spread (:func:`_seeds_at_upper_limit`), by the index of
    power.csv's rows of AUROC at the largest share.

    >>> known = {"patient_se": 0.004, "measured_on": 500, "seed_sd": 0.003, "seed_freedom": 8}
    >>> upper_seeds(pd.DataFrame([{"metric": "auroc", "share": 1.0} | known]), margin=0.01)
    {0: 9}
    """
    rows = table[(table["metric"] == "auroc") & (table["share"] == SHARES[-1])]
    return {index: _seeds_at_upper_limit(row, margin) for index, row in rows.iterrows()}


def fixed_patients(table: pd.DataFrame, spread: pd.DataFrame) -> dict[Any, float]:
    """The patients that show the preprint's difference if thresholds are taken as they are, by the
    index of power.csv's rows of F1 at the smallest share.

    >>> from cxrbench.statistics.components import spread
    >>> from cxrbench.statistics.examples import cells
    >>> table = spread(cells()).assign(drawn=False)
    >>> found = fixed_patients(power_table(table, Margins()), table)
    >>> {row: round(patients, -3) for row, patients in found.items()}
    {4: 30000.0, 8: 26000.0, 16: 31000.0, 20: 31000.0}
    """
    rows = table[table["difference"].notna() & (table["share"] == SHARES[0])]
    patients = rows[_GROUP].merge(patients_by_definition(spread, fixed=True), "left")["patients"]
    return dict(zip(rows.index, patients.astype(float), strict=True))


def _seeds_at_upper_limit(row: Any, margin: float) -> int | None:
    """The seeds needed where the variance between networks is at its upper limit.

    ``row`` of power.csv gives the spread and its degrees of freedom.
    """
    freedom = int(row["seed_freedom"])
    luck, factor = row["patient_se"] ** 2, freedom / _chi_quantile(_ACCURACY, freedom)
    seed_sd = float(np.sqrt(factor * (luck + row["seed_sd"] ** 2) - luck))
    larger = SeedSpread(row["patient_se"], int(row["measured_on"]), seed_sd)
    design = Design(larger.patients, MIN_SEEDS)
    return fewest("seeds", lambda tried: power_equivalent(larger, tried, margin), design)
