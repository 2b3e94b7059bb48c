"""Every table about money as CSV, in one step of the graph: what the paper's section on cost is made of."""

from pathlib import Path

import pandas as pd

from cxrbench.cost.porting import break_even_table, decision_table
from cxrbench.cost.prices import KEY, read_prices
from cxrbench.cost.ratios import ratio_sources, ratio_table, turning_sentences
from cxrbench.study.config import read_study
from cxrbench.study.files import read_csv, write_csv, write_json

SENTENCES = "money.json"  # besides the tables: sentences, each a field


def write_cost_tables(results: Path, study_path: Path, prices_path: Path) -> None:
    """Write every table about money, and their sentences, into ``results``/tables."""
    study, prices = read_study(study_path), read_prices(prices_path)
    costs = read_csv(results / "tables/cost.csv")
    tables = {
        "prices": price_table(prices, study.prices.region),
        "ratios": ratio_table(prices, study.prices),
        "break_even": break_even_table(costs, prices, study.prices),
        "decisions": decision_table(prices, study.prices),
    }
    for name, table in tables.items():
        write_csv(results / "tables" / f"{name}.csv", table)
    at_spot, over_all = turning_sentences(prices, study.prices)
    sentences = {
        "ratio_at_spot": at_spot,
        "ratio_over_all_prices": over_all,
        "ratio_sources": ratio_sources(prices, study.prices),
    }
    write_json(results / "tables" / SENTENCES, sentences)


def price_table(prices: pd.DataFrame, region: str) -> pd.DataFrame:
    """Return all rows of the price table in ``region``, instances in order of their highest price."""
    rows = prices[prices["region"] == region]
    highest = rows.groupby("instance")["usd_per_hour"].transform("max")
    order = ["highest", *KEY, "as_of"]
    return rows.assign(highest=highest).sort_values(order, kind="stable")[rows.columns]
