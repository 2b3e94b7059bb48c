"""The published runs and decision tables that break-even and decisions are worked out for, as data.

Hours and budgets are the sources' own; prices are looked up, so that each case has a cost per date.
"""

from __future__ import annotations

from dataclasses import dataclass

from cxrbench.cost.breakeven import PUBLISHED

CHAPTER = "Training Silicon: Trn1 (Trainium) Architecture"
BLOG = "AWS blog, Trainium and Amazon SageMaker"
EXPAT = "CloudExpat, AWS Trainium vs NVIDIA H100"
PORTING_USD = 20_000.0  # the chapter's 2 to 4 engineer-weeks, section 6.3.19
WEEK_USD = 10_000.0  # the dearer end of what that makes per week
PREPRINT = PUBLISHED["cnn"]
PREPRINT_DATE = "2025-12-23"  # the day of the preprint: the newest price up to then is taken


@dataclass(frozen=True)
class Side:
    """One side of a published comparison: an EC2 instance and its instance-hours per run."""

    instance: str
    hours: float


@dataclass(frozen=True)
class Case:
    """A published run on a GPU (``here``) and on Trainium (``there``); cases of one source are readings of
    the same comparison, and count once."""

    name: str
    here: Side
    there: Side
    source: str


_GPU = Side("p4d.24xlarge", 8 * 24 * 30)
CASES = (
    Case("30B model, run times as printed", _GPU, Side("trn1.32xlarge", 16 * 24 * 18), CHAPTER),
    Case("30B model, equal tokens", _GPU, Side("trn1.32xlarge", 16 * 24 * 30 * 42 / 48), CHAPTER),
    Case("fine-tuning", Side("p4d.24xlarge", 6553 / 3600), Side("trn1.32xlarge", 6033 / 3600), BLOG),
)


@dataclass(frozen=True)
class Scenario:
    """Four of the five numbers as a source's decision table draws its line, and where it leans.

    No source states what a second platform goes on costing: ``ongoing`` is zero, an assumption.
    """

    spend: float  # USD per month
    porting: float  # USD
    months: float
    capacity: float
    leans: str
    source: str
    ongoing: float = 0.0  # USD per month


SCENARIOS = (
    Scenario(50_000, PORTING_USD, 12, 1.0, "GPU", f"{CHAPTER}; horizon assumed"),
    Scenario(200_000, PORTING_USD, 12, 1.0, "Trainium", f"{CHAPTER}; horizon assumed"),
    Scenario(30_000, 4 * WEEK_USD, 12, 1.0, "GPU", f"{EXPAT}; a week at the chapter's rate"),
    Scenario(100_000, 8 * WEEK_USD, 24, 1.0, "Trainium", f"{EXPAT}; a week at the chapter's rate"),
    Scenario(100_000, 8 * WEEK_USD, 24, 0.5, "Trainium", f"{EXPAT}; half the capacity, assumed"),
)
