"""Every table about money as CSV, in one step of the graph: what the paper's section on cost is made of."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.config import read_study
from cxrbench.cost.cells import hours_of
from cxrbench.cost.devices import DEVICES
from cxrbench.cost.prices import read_prices
from cxrbench.cost.projection import backtest
from cxrbench.evidence import RECORD
from cxrbench.files import write_csv, write_text
from cxrbench.report.breakeven import break_even_table, decision_table
from cxrbench.report.pricing import runs_of
from cxrbench.report.projection import cpu_speeds, measured_speeds, projection_table
from cxrbench.report.regimes import (
    price_table,
    ranking_sentences,
    ratio_table,
    regime_table,
    turning_sentences,
)
from cxrbench.report.spot import Spot, spot_table

SENTENCES = "regimes.txt"
TABLES = (
    "prices", "regimes", "ratios", "spot", "break_even", "decisions", "projection", "backtest", "peaks",
)  # fmt: skip


def write_cost_report(results: Path, study_path: Path, prices_path: Path, recorded: Path) -> None:
    """Write one CSV per name in ``TABLES``, and the ranking's sentences, into ``results``/tables."""
    study, prices = read_study(study_path), read_prices(prices_path)
    costs = pd.read_csv(results / "tables/cost.csv")
    paths = [results / "cells" / cell / RECORD for cell in dict.fromkeys(costs["cell"])]
    hours = pd.DataFrame([hours_of(run, origin=origin) for run, origin in runs_of(paths, recorded)])
    regimes = regime_table(hours, prices, study.prices)
    spot = Spot(interval=max(study.limits.checkpoint_minutes, 1) / 60, trials=2000)
    tables = {
        "prices": price_table(prices, study.prices.region),
        "regimes": regimes,
        "ratios": ratio_table(prices, study.prices),
        "spot": spot_table(costs, prices, study.prices, spot),
        "break_even": break_even_table(costs, prices, study.prices),
        "decisions": decision_table(prices, study.prices),
        "projection": projection_table(study, prices, recorded),
        "backtest": pd.concat(
            [backtest(speeds(study, recorded)) for speeds in (measured_speeds, cpu_speeds)], ignore_index=True
        ),
        "peaks": peak_table(),
    }
    for name in TABLES:
        write_csv(results / "tables" / f"{name}.csv", tables[name])
    sentences = [
        *turning_sentences(prices, study.prices, tables["ratios"]),
        *ranking_sentences(regimes),
    ]
    write_text(results / "tables" / SENTENCES, "\n".join(sentences) + "\n")


def peak_table() -> pd.DataFrame:
    """The documented peaks that projections rest on, with their sources and whether those were read."""
    rows = [
        {
            "accelerator": device.name, "family": device.family, "tflops": device.peak_tflops,
            "tflops_fp32": device.fp32_tflops, "bandwidth_gb_s": device.bandwidth_gb_s,
            "evidence": "read" if device.read else "second hand", "source": device.source,
            "source_fp32": device.fp32_source or None,
        }
        for device in DEVICES.values()
    ]  # fmt: skip
    return pd.DataFrame(rows)
