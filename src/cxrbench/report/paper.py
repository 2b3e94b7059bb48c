"""What the paper takes from the evidence: tables (LaTeX, CSV, Markdown) and a macro for every number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from cxrbench.config import Study, read_study
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.evidence import RECORD, DatasetIdentity, read_record
from cxrbench.files import write_csv, write_text
from cxrbench.report.cells import NOT_RUN
from cxrbench.report.evaluation import read_metrics
from cxrbench.report.latex import escape, macros, tabular

UNDEFINED = "undefined"
F1_NAMES = {
    "f1_macro": "macro",
    "f1_micro": "micro",
    "f1_weighted": "support-weighted",
    "f1_samples": "samples",
}


@dataclass(frozen=True)
class Results:
    """The tables that the graph has made, read once."""

    folder: Path
    study: Study
    cells: pd.DataFrame
    metrics: pd.DataFrame
    cost: pd.DataFrame

    @classmethod
    def read(cls, folder: Path, study: Path) -> Results:
        """Read ``folder``/tables."""
        tables = folder / "tables"
        return cls(
            folder,
            read_study(study),
            pd.read_csv(tables / "cells.csv", keep_default_na=False, na_values=[""]),
            read_metrics(tables / "metrics.csv"),
            pd.read_csv(tables / "cost.csv"),
        )

    def scored(self) -> list[tuple[str, str, str]]:
        """(dataset, architecture, platform) of the groups with scores, in the study's order."""
        ok = self.cells[self.cells["status"] == "ok"]
        return list(
            dict.fromkeys(ok[["dataset", "architecture", "platform"]].itertuples(index=False, name=None))
        )

    def of(self, group: tuple[str, str, str], metric: str, label: str) -> pd.DataFrame:
        """The rows of a metric for a group, one per seed."""
        m = self.metrics
        rows = (m["dataset"] == group[0]) & (m["architecture"] == group[1]) & (m["platform"] == group[2])
        return m[rows & (m["metric"] == metric) & (m["label"] == label)]

    def identity(self, dataset: str) -> DatasetIdentity | None:
        """What a cell of ``dataset`` says of its data; None when no cell has evidence."""
        for cell in self.cells.loc[self.cells["dataset"] == dataset, "cell"]:
            path = self.folder / "cells" / cell / RECORD
            if path.exists() and (identity := read_record(path).dataset):
                return identity
        return None


def write_tables(results: Path, out: Path, study: Path) -> None:
    """Write every table to ``out`` (LaTeX) and ``results``/tables (CSV, Markdown), and macros.tex last."""
    read = Results.read(results, study)
    for name, (table, preamble) in {
        "table_cells": cells_by_status(read),
        "table_dataset": dataset_counts(read),
        "table_auroc": auroc_per_label(read),
        "table_f1": f1_by_definition(read),
        "table_cost": cost_of_cells(read),
    }.items():
        write_csv(results / "tables" / f"{name}.csv", table)
        write_text(results / "tables" / f"{name}.md", table.to_markdown(index=False) + "\n")
        shown = table.map(escape).rename(columns=escape)
        text = tabular(shown, preamble) if len(table) else r"\emph{No cell has run.}" + "\n"
        write_text(out / f"{name}.tex", text)
    write_text(out / "macros.tex", macros(numbers(read)))


# -- tables ----------------------------------------------------------------------------------------


def cells_by_status(read: Results) -> tuple[pd.DataFrame, str]:
    """Cells per group with status, origin, date, device and commit."""
    rows = []
    for group, cells in read.cells.groupby(["dataset", "architecture", "platform"], sort=False):
        for status, some in cells.groupby("status", sort=False):
            run = status != NOT_RUN
            rows.append(
                {
                    "Dataset": group[0],
                    "Architecture": group[1],
                    "Platform": group[2],
                    "Seeds": len(some),
                    "Status": f"{status}, {_list(some['origin'])}" if run else status,
                    "Run on": _list(some["ended"].str[:10]) if run else "",
                    "Device": _list(some["device"]) if run else "",
                    "Commit": _list(some["commit"].str[:7]) if run else "",
                }
            )
    return pd.DataFrame(rows), "lllrllp{3cm}l"


def dataset_counts(read: Results) -> tuple[pd.DataFrame, str]:
    """Images, patients and positive images per finding and split, one column per dataset and split."""
    columns: dict[str, list[str]] = {"": ["Images", "Patients", *map(_finding, FINDINGS)]}
    for dataset in dict.fromkeys(read.cells["dataset"]):
        if identity := read.identity(dataset):
            for split in SPLITS:
                positive = [identity.positive_images[finding][split] for finding in FINDINGS]
                counts = [identity.images[split], identity.patients[split], *positive]
                columns[f"{dataset} {split}"] = [f"{count:,}" for count in counts]
    return pd.DataFrame(columns), "l" + "r" * (len(columns) - 1)


def auroc_per_label(read: Results) -> tuple[pd.DataFrame, str]:
    """Test AUROC per finding and group: mean over seeds with the mean patient-clustered interval."""
    columns = {"Finding": [*map(_finding, FINDINGS), "Macro"]}
    for group in read.scored():
        columns[_group_name(group)] = [
            _with_interval(read.of(group, "auroc", label)) for label in (*FINDINGS, "macro")
        ]
    return pd.DataFrame(columns), "l" + "c" * (len(columns) - 1)


def f1_by_definition(read: Results) -> tuple[pd.DataFrame, str]:
    """Test F1 by definition, thresholds from validation."""
    columns: dict[str, list[str]] = {"F1": list(F1_NAMES.values())}
    for group in read.scored():
        columns[_group_name(group)] = [
            _with_interval(read.of(group, metric, "macro" if metric == "f1_macro" else "all"))
            for metric in F1_NAMES
        ]
    return pd.DataFrame(columns), "l" + "c" * (len(columns) - 1)


def cost_of_cells(read: Results) -> tuple[pd.DataFrame, str]:
    """Hours and US dollars of each cell, with the instance, the price basis, its date and the kind."""
    table = read.cost
    shown = pd.DataFrame(
        {
            "Cell": table["cell"],
            "Kind": table["kind"],
            "Instance": table["instance"],
            "Basis": table["basis"].str.replace("_", " "),
            "Price of": table["as_of"],
            "Hours": table["hours_total"].map("{:.3f}".format),
            "USD": table["usd_total"].map("{:.4f}".format),
        }
    )
    return shown, "llllrrr"


# -- numbers in prose ------------------------------------------------------------------------------


def numbers(read: Results) -> dict[str, str]:
    """Every number that the prose may name; ``dataset/architecture/platform/metric`` and counts."""
    cells = read.cells
    run = cells[cells["status"] != NOT_RUN]
    values = {
        "cells/total": str(len(cells)),
        "cells/run": str(len(run)),
        "cells/ok": str((cells["status"] == "ok").sum()),
        "cells/failed": str((run["status"] != "ok").sum()),
        "cells/not run": str(len(cells) - len(run)),
        "cells/recorded": str((cells["origin"] == "recorded").sum()),
        "cells/fresh": str((cells["origin"] == "fresh").sum()),
        "price/region": escape(read.study.prices.region),
        "price/basis": escape(read.study.prices.basis.replace("_", " ")),
    }
    for dataset in dict.fromkeys(cells["dataset"]):
        values |= _dataset_numbers(dataset, read)
    for group in dict.fromkeys(
        cells[["dataset", "architecture", "platform"]].itertuples(index=False, name=None)
    ):
        values |= _group_numbers(group, read)
    return values


def _dataset_numbers(dataset: str, read: Results) -> dict[str, str]:
    recipe = read.study.recipe(dataset)
    values = {
        f"{dataset}/epochs": str(recipe.epochs),
        f"{dataset}/batch": str(recipe.batch),
        f"{dataset}/learning rate": f"{recipe.learning_rate:g}",
        f"{dataset}/precision": recipe.precision,
        f"{dataset}/threads": str(recipe.threads),
        f"{dataset}/recipe": recipe.hash(),
        f"{dataset}/pixels": str(read.study.dataset(dataset).pixels),
    }
    if identity := read.identity(dataset):
        for split in SPLITS:
            values[f"{dataset}/{split}/images"] = f"{identity.images[split]:,}"
            values[f"{dataset}/{split}/patients"] = f"{identity.patients[split]:,}"
        values[f"{dataset}/images"] = f"{sum(identity.images.values()):,}"
        values[f"{dataset}/patients"] = f"{sum(identity.patients.values()):,}"
    return values


def _group_numbers(group: tuple[str, str, str], read: Results) -> dict[str, str]:
    key = "/".join(group)
    cells = read.cells[(read.cells[["dataset", "architecture", "platform"]] == group).all(axis=1)]
    ok = cells[cells["status"] == "ok"]
    values = {f"{key}/seeds": str(len(ok)), f"{key}/status": escape(_list(cells["status"]))}
    if ok.empty:
        return values
    for metric, label in (
        ("auroc", "macro"),
        ("average_precision", "macro"),
        ("f1_macro", "macro"),
        ("f1_micro", "all"),
    ):
        values[f"{key}/{metric}"] = escape(_with_interval(read.of(group, metric, label)))
    aurocs = read.of(group, "auroc", "macro")
    cost = read.cost[read.cost["cell"].isin(ok["cell"])]
    return values | {
        f"{key}/auroc/patients": f"{aurocs['n_patients'].iloc[0]:,}",
        f"{key}/images per second": f"{ok['images_per_second'].mean():.0f}",
        f"{key}/minutes": f"{ok['total_seconds'].mean() / 60:.1f}",
        f"{key}/device": escape(_list(ok["device"])),
        f"{key}/usd": f"{cost['usd_total'].mean():.3f}",
        f"{key}/usd kind": escape(_list(cost["kind"])),
        f"{key}/instance": escape(_list(cost["instance"])),
        f"{key}/price date": escape(_list(cost["as_of"])),
    }


# -- how things are written ------------------------------------------------------------------------


def _with_interval(rows: pd.DataFrame) -> str:
    """``0.712 (0.690 to 0.734)``: means over seeds of the value and of both ends of its interval."""
    if rows.empty or rows["value"].isna().all():
        return UNDEFINED
    value, low, high = rows[["value", "ci_low", "ci_high"]].astype(float).mean()
    return f"{value:.3f}" + (f" ({low:.3f} to {high:.3f})" if pd.notna(low) else "")


def _group_name(group: tuple[str, str, str]) -> str:
    return f"{group[0]} {group[1]} {group[2]}"


def _finding(name: str) -> str:
    return name.replace("_", " ")


def _list(values: pd.Series) -> str:
    """Different values in order, joined."""
    return ", ".join(dict.fromkeys(values.dropna().astype(str)))
