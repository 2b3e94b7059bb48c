"""Costs as files: every cell with evidence, priced as the study says."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.config import read_study
from cxrbench.cost import cells as cost
from cxrbench.cost.prices import read_prices
from cxrbench.evidence import RECORD, read_record


def cost_table(paths: list[Path], study: Path, prices: Path) -> pd.DataFrame:
    """cost.csv for the records in ``paths`` (record.json files, or folders that hold them)."""
    files = [found for path in paths for found in (sorted(path.rglob(RECORD)) if path.is_dir() else [path])]
    records = [read_record(path) for path in files]
    return cost.cost_table(records, read_prices(prices), read_study(study).prices)


def readable(table: pd.DataFrame) -> str:
    """The columns a person wants on a terminal."""
    columns = ["cell", "kind", "instance", "region", "basis", "as_of", "hours_total", "usd_total"]
    return table[columns].to_string(index=False, float_format=lambda value: f"{value:.4g}")
