"""Every table about money: what the paper's section on cost is made of."""

from contextlib import suppress
from itertools import product
from pathlib import Path

import pandas as pd

from cxrbench.cost.devices import SUPPORTED
from cxrbench.cost.estimate import AUDITED_BATCH, NotKnown, equal_shares, work_of
from cxrbench.cost.porting import break_even_table, decision_table
from cxrbench.cost.prices import KEY, NoPrice, price
from cxrbench.cost.ratios import PREPRINT_RATIO, ratio_table
from cxrbench.neuron.audit import read_audit
from cxrbench.study.config import Pricing, Study
from cxrbench.study.platforms import GPU, TRAINIUM

_SHARED = ("convnext_pico", "convnext_tiny", "resnet18", "resnet50")
_ROOFLINES = ["architecture", "precision", "batch", "ratio", "share_low", "share_high"]


def money_tables(
    costs: pd.DataFrame, prices: pd.DataFrame, study: Study, recorded: Path
) -> dict[str, pd.DataFrame]:
    """Each table about money but that of ``costs`` (:func:`~cxrbench.cost.costs.cost_of`), by its name.

    ``recorded``: the folder that has the audit of networks.
    """
    return {
        "prices": _price_table(prices, study.prices.region),
        "ratios": ratio_table(prices, study.prices),
        "break_even": break_even_table(costs, prices, study.prices),
        "decisions": decision_table(prices, study.prices),
        "rooflines": _rooflines(prices, study.prices, recorded),
    }


def _rooflines(prices: pd.DataFrame, pricing: Pricing, recorded: Path) -> pd.DataFrame:
    """The cost of an image on the study's Trainium instance over its GPU where both reach equal shares
    of their rooflines (``ratio``), and how many times smaller Trainium's share was at the ends of the
    preprint's ratio; no rows where a price or an audit is missing."""
    audit, rows = read_audit(recorded), []
    with suppress(NotKnown, NoPrice, KeyError):
        chip, gpu = (
            price(prices, pricing.instances[name], pricing.region, "on_demand", pricing.as_of).to_dict()
            for name in (TRAINIUM[0], GPU)
        )
        for name, precision in product(_SHARED, ("bf16", "fp32")):
            work = work_of(audit, name, 224, precision)
            if ratio := equal_shares(work, precision, chip, gpu):
                shares = (PREPRINT_RATIO.low / ratio, PREPRINT_RATIO.high / ratio)
                rows.append((name, precision, AUDITED_BATCH, ratio, *shares))
    return pd.DataFrame(rows, columns=_ROOFLINES)


def _price_table(prices: pd.DataFrame, region: str) -> pd.DataFrame:
    """All rows of the price table in ``region``, instances in order of their highest price. A Trainium that
    AWS supports for training and does not sell there has those of its cheapest region."""
    sold = prices["region"] == region
    away = prices["accelerator"].isin(SUPPORTED) & ~prices["instance"].isin(prices.loc[sold, "instance"])
    cheapest = prices[away].sort_values("usd_per_hour", kind="stable").groupby("instance")["region"].first()
    elsewhere = away & (prices["region"] == prices["instance"].map(cheapest))
    rows = prices[sold | elsewhere]
    highest = rows.groupby("instance")["usd_per_hour"].transform("max")
    order = ["highest", *KEY, "as_of"]
    return rows.assign(highest=highest).sort_values(order, kind="stable")[rows.columns]
