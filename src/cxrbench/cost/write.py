"""Every table about money as CSV, in one step of the graph: what the paper's section on cost is made of."""

from pathlib import Path

import pandas as pd

from cxrbench.cost.porting import break_even_table, decision_table
from cxrbench.cost.prices import KEY, read_prices
from cxrbench.cost.ratios import ratio_table
from cxrbench.study.config import read_study
from cxrbench.study.files import read_csv, write_csv


def write_cost_tables(results: Path, study_path: Path, prices_path: Path) -> None:
    """Write every table about money into ``results``/tables."""
    study, prices = read_study(study_path), read_prices(prices_path)
    costs = read_csv(results / "tables/cost.csv")
    tables = {
        "prices": _price_table(prices, study.prices.region),
        "ratios": ratio_table(prices, study.prices),
        "break_even": break_even_table(costs, prices, study.prices),
        "decisions": decision_table(prices, study.prices),
    }
    for name, table in tables.items():
        write_csv(results / "tables" / f"{name}.csv", table)


def _price_table(prices: pd.DataFrame, region: str) -> pd.DataFrame:
    """Return all rows of the price table in ``region``, instances in order of their highest price."""
    rows = prices[prices["region"] == region]
    highest = rows.groupby("instance")["usd_per_hour"].transform("max")
    order = ["highest", *KEY, "as_of"]
    return rows.assign(highest=highest).sort_values(order, kind="stable")[rows.columns]
