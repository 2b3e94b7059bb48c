"""Which cost ratio a decision rests on: a published one, the user's own, or that of recorded cells."""

from __future__ import annotations

import json
import math
from pathlib import Path

from cxrbench.cost.breakeven import Decision, Ratio, published, ratio_of_cells, repriced_ratio
from cxrbench.cost.cases import PREPRINT, PREPRINT_DATE
from cxrbench.cost.prices import read_prices
from cxrbench.cost.regimes import Regime
from cxrbench.errors import UserError
from cxrbench.report.breakeven import study_pair
from cxrbench.report.pricing import Asked, cost_table, pricing_of


def ratio_for(
    architecture: str,
    own: tuple[float, float] | None,
    basis: str | None,
    records: Path,
    study: Path,
    prices: Path,
) -> Ratio:
    """The cost ratio (Trainium over GPU) for ``architecture``.

    ``own``: given on the command line. A name with a slash: the ratio of the recorded cells of that data
    set and network, priced as ``basis``. Otherwise a published one, the preprint's put at ``basis``.
    UserError when none of these exists.
    """
    if own is not None:
        return Ratio(*own, "projected", "your own ratio")
    if "/" in architecture:
        dataset, _, network = architecture.partition("/")
        costs = cost_table([records], study, prices, Asked(basis=basis))
        there = set(costs.loc[costs["dataset"] == dataset, "platform"])
        ours = "torchneuron" if "torchneuron" in there and "neuron" not in there else "neuron"
        return ratio_of_cells(costs, dataset, network, ours, "cuda")
    ratio = published(architecture)
    return ratio if basis is None else _at(ratio, architecture, basis, study, prices)


def _at(ratio: Ratio, architecture: str, basis: str, study: Path, prices: Path) -> Ratio:
    pricing = pricing_of(study, Asked(basis=basis))
    pair = study_pair(pricing)
    if ratio is not PREPRINT or pair is None:
        raise UserError(
            f"the published ratio of '{architecture}' names no instances: it cannot be put at other prices; "
            "leave --basis out or give --ratio"
        )
    then = Regime("on_demand", PREPRINT_DATE)
    return repriced_ratio(ratio, read_prices(prices), pair, then, Regime(basis), pricing.region)


def as_json(told: Decision, ratio: Ratio) -> str:
    """The decision as JSON; infinitely many months are null."""
    months = [None if math.isinf(one) else one for one in told.months_to_break_even]
    value = {
        "verdict": told.verdict, "ratio": [ratio.low, ratio.high], "kind": ratio.kind, "source": ratio.source,
        "saving_per_month": told.saving_per_month, "net_over_horizon": told.net_over_horizon,
        "months_to_break_even": months, "arithmetic": told.arithmetic,
    }  # fmt: skip
    return json.dumps(value, indent=1)
