"""The data in tables: splits and label noise for the paper, and the generated parts of data/README.md."""

from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.analysis.label_noise import EXACT, NONE, label_noise
from cxrbench.datasets.decoding import contrast_table
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.registry import read_files
from cxrbench.datasets.split import PUBLISHED, splits
from cxrbench.paper import fmt
from cxrbench.paper.blocks import renew
from cxrbench.paper.fmt import Columns, Values
from cxrbench.paper.results import Results

SPLITS: Columns = {
    "Split": "{split}",
    "Part": "{part}",
    "Images": "{images:,}",
    "Patients": "{patients:,}",
    "SHA-256 (first digits)": "{sha256:.16}",
}
MEASURES = {"sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "kappa": "Kappa"}
_INTERVALS: Columns = {
    name: f"{{{name}:.2f}} ({{{name}_low:.2f}} to {{{name}_high:.2f}})" for name in MEASURES
}


def _labels(row: Any) -> str:
    if row.relation == EXACT:
        return str(row.nih_labels)
    return row.relation if row.relation == NONE else f"{row.nih_labels} ({row.relation})"


NOISE: Columns = {
    "Adjudicated finding": "{finding}",
    "NIH's labels": _labels,
    "Adjudicated": "{adjudicated_positive:,}",
    "NIH": "{nih_positive:,.0f}",
    **{MEASURES[name]: form for name, form in _INTERVALS.items()},
}
FILES: Columns = {
    "Dataset": lambda file: file.dataset,
    "File": lambda file: file.name,
    "Bytes": lambda file: "not stated" if file.size is None else f"{file.size:,}",
    "Terms": lambda file: file.licence,
}
splits_of_images = fmt.csv_table("splits", "llrrl", SPLITS)
noise_of_labels = fmt.csv_table("label_noise", "llrrllll", NOISE)


def numbers(read: Results) -> Values:
    """Return ``split/<name>/<part>/patients``, ``label noise/<finding>/<what>``; of two unions the first."""
    noise = read.csv("label_noise")
    first = noise.drop_duplicates("finding")
    key = "label noise/{finding}"
    patients: Columns = {"patients": "{patients:,}"}
    images: Columns = {"images": "{images:,}", "official test": "{official_test_images:,}"}
    return {
        **fmt.keyed(read.csv("splits"), "split/{split}/{part}", patients),
        **fmt.keyed(noise.head(1), "label noise", patients | images),
        **fmt.keyed(first, key, {"adjudicated": "{adjudicated_positive:,}"}),
        **fmt.keyed(first[first["relation"] != NONE], key, _INTERVALS | {"both": "{both:,.0f}"}),
    }


def write_card(card: Path, registry: Path) -> None:
    """Renew every generated part of ``card``; UserError when one has lost its place."""
    images, parts = read_nih_table(), splits()
    tables = {
        "counts": _counts(images),
        "views": _views(images),
        "splits": pd.DataFrame(fmt.rows(parts, SPLITS)),
        "labels": _positive(images, parts),
        "noise": pd.DataFrame(fmt.rows(label_noise(), NOISE)),
        "files": pd.DataFrame([fmt.row(file, FILES) for file in read_files(registry)]),
        "resizing": contrast_table(),
    }
    texts = {name: table.to_markdown(index=False, disable_numparse=True) for name, table in tables.items()}
    renew(card, {name: f"\n{text}\n\n" for name, text in texts.items()})


def _counts(table: pd.DataFrame) -> pd.DataFrame:
    findings, per_patient = table[list(FINDINGS)].sum(axis=1), table.groupby("patient").size()
    rows = {
        "Images": len(table),
        "Patients": len(per_patient),
        "Images without a finding": (findings == 0).sum(),
        "Images with several findings": (findings > 1).sum(),
        "Patients with one image": (per_patient == 1).sum(),
        "Most images of one patient": per_patient.max(),
        "Median age in years, over images": int(table["age"].median()),
        "Oldest in years": table["age"].max(),
    }
    return pd.DataFrame([(name, f"{count:,}") for name, count in rows.items()], columns=["What", "How many"])


def _views(table: pd.DataFrame) -> pd.DataFrame:
    """Return images by view and sex, and the share of each without a finding."""
    rows = [
        (*group, f"{len(some):,}", f"{100 * (some[list(FINDINGS)].sum(axis=1) == 0).mean():.1f} %")
        for group, some in table.groupby(["view", "sex"])
    ]
    return pd.DataFrame(rows, columns=["View", "Sex", "Images", "Without a finding"])


def _positive(table: pd.DataFrame, parts: pd.DataFrame) -> pd.DataFrame:
    """Return positive images per finding, for each part of the published splits."""
    counts = {"All": table[list(FINDINGS)].sum()}
    for row in parts[parts["split"].isin(PUBLISHED)].to_dict("records"):
        counts[f"{row['split']} {row['part']}"] = row
    rows = {name: [f"{count[finding]:,}" for finding in FINDINGS] for name, count in counts.items()}
    return pd.DataFrame({"Finding": FINDINGS, **rows})
