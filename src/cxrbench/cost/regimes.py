"""The same hours at every price basis and date, and whether the ranking of platforms turns between them."""

import pandas as pd

from cxrbench.cost.costs import charge, comparable, priced_as
from cxrbench.cost.prices import BASES, UNDATED, newest
from cxrbench.study.config import Pricing
from cxrbench.study.platform_names import ACCELERATED

_RUN = ["cell", "origin"]


def regime_table(hours: pd.DataFrame, prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return rows of cost.csv after a column ``regime``, for every basis and date that prices a run.

    A run has the same instance in all regimes (as ml.* if it ran on SageMaker and that is priced), so only
    prices can change a ranking.
    """
    if hours.empty:
        return pd.DataFrame(columns=["regime"])
    tables, usual, own = [], priced_as(hours, prices, pricing), hours["host_instance"]
    named = {*pricing.instances.values(), *usual.dropna(), *own}
    some = prices[prices["instance"].isin(named) & (prices["region"] == pricing.region)]
    for place, date in sorted(set(zip(some["basis"].map(BASES.index), some["as_of"], strict=True))):
        basis = BASES[place]
        rates = newest(some, date or UNDATED, basis=basis)
        same = own.isin(rates["instance"]) & (own.str.removeprefix("ml.") == usual)
        runs = hours.assign(instance=own.where(same, usual))
        if runs["instance"].isin(rates["instance"]).any():
            tables.append(charge(runs, rates))
            undated = f"{basis}, {' or '.join(rates['as_of'].unique())}"
            tables[-1].insert(0, "regime", f"{basis} up to {date}" if date else undated)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["regime"])


def ranking_sentences(table: pd.DataFrame) -> list[str]:
    """Return a sentence per dataset and architecture with two platforms or more: does the ranking turn?

    Platforms are ranked by mean USD per usable model on comparable runs, under the regimes that price all of
    them; where there are other platforms too, a second sentence ranks the accelerators alone.
    """
    sentences = []
    for network, group in table.groupby(["dataset", "architecture"]) if len(table) else ():
        accelerators = group[group["platform"].isin(ACCELERATED)]
        sentences.append(_ranking("/".join(network), group))
        if len(accelerators) < len(group):
            sentences.append(_ranking(f"{'/'.join(network)}, accelerators alone", accelerators))
    none = "no network has usable cells on two platforms: no ranking of our own cells yet"
    return [*filter(None, sentences)] or [none]


def _ranking(name: str, group: pd.DataFrame) -> str:
    """Return the sentence for the rows of a network; empty where no two platforms can be ranked."""
    chosen, differs = comparable(group.drop_duplicates(_RUN))
    runs = group.merge(chosen[_RUN], on=_RUN)
    usd = runs.groupby(["regime", "platform"])["cost_to_usable"].mean().unstack("platform").dropna()
    if usd.empty or len(usd.columns) < 2:
        return ""
    instances = runs.groupby("platform")["instance"].agg(lambda names: ", ".join(dict.fromkeys(names)))
    under: dict[str, list[str]] = {}
    for regime in [regime for regime in dict.fromkeys(runs["regime"]) if regime in usd.index]:
        cheapest = usd.loc[regime].sort_values(kind="stable").index
        order = " < ".join(f"{platform} ({instances[platform]})" for platform in cheapest)
        under.setdefault(order, []).append(regime)
    orders = "; ".join(f"{order} under {', '.join(regimes)}" for order, regimes in under.items())
    verdict = "the ranking turns" if len(under) > 1 else "the ranking is the same"
    if len(usd) == 1:
        verdict = "only one regime prices every platform"
    return f"{name}: {verdict}: {orders}" + (f" ({differs})" if differs else "")
