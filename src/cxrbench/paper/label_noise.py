"""How noisy the labels are: NIH's text-mined ones against labels that radiologists adjudicated.

Reference: Majkowska et al., Radiology 2020 (doi:10.1148/radiol.2019191293), 4,376 images of ChestX-ray14,
whose table the torchxrayvision wheel carries. They are no random sample of the whole: nearly half are in the
official test part, which holds a quarter of all images and more findings. So what depends on prevalence
(positive predictive value, kappa) is that of this set. Intervals are from resampling patients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cxrbench.analysis.bootstrap import percentile_interval, weight_blocks
from cxrbench.datasets.nih_table import read_nih_table, wheel_file
from cxrbench.datasets.split import assign_split
from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    from cxrbench.paper.results import Results

IMAGES = 4376
EXACT, APPROXIMATE, NONE = "the same finding", "approximate", "NIH has no such label"
# The findings of NIH's that stand for an adjudicated one, chosen for their meaning. Airspace
# opacity is what fills the air spaces; Atelectasis is loss of volume, so it is only in the wider union.
COMPARISONS = (
    ("Pneumothorax", ("Pneumothorax",), EXACT),
    ("Nodule or mass", ("Nodule", "Mass"), EXACT),
    ("Airspace opacity", ("Consolidation", "Infiltration", "Pneumonia", "Edema"), APPROXIMATE),
    (
        "Airspace opacity",
        ("Consolidation", "Infiltration", "Pneumonia", "Edema", "Atelectasis"),
        APPROXIMATE,
    ),
    ("Fracture", (), NONE),
)
MEASURES = ("sensitivity", "specificity", "ppv", "kappa")
NAME = "label_noise"
_ADJUDICATED = "adjudicated "


def read_adjudicated() -> pd.DataFrame:
    """4,376 rows of NIH's table with the four adjudicated labels as booleans: ``adjudicated Fracture`` ..."""
    raw = pd.read_csv(wheel_file("google2019_nih-chest-xray-labels.csv.gz"))
    findings = list(dict.fromkeys(name for name, _, _ in COMPARISONS))
    if len(raw) != IMAGES or not raw[findings].isin(["YES", "NO"]).all(axis=None):
        raise UserError(
            f"the adjudicated labels are {len(raw)} rows, not {IMAGES} of YES or NO; reinstall "
            "torchxrayvision with `make setup`"
        )
    adjudicated = (raw[findings] == "YES").add_prefix(_ADJUDICATED).assign(image=raw["Image Index"])
    return adjudicated.merge(read_nih_table(), on="image", how="left", validate="one_to_one")


def label_noise(replicates: int = 2000, seed: int = 0) -> pd.DataFrame:
    """One row per comparison: counts, and each measure with its patient-clustered 95 % interval.

    ``sensitivity``: share of adjudicated positives that NIH labels; ``specificity``: share of adjudicated
    negatives that it does not; ``ppv``: share of NIH's positives that were adjudicated positive; ``kappa``:
    Cohen's (1960). All NaN where NIH has no such label.
    """
    table = read_adjudicated()
    codes, patients = np.unique(table["patient"].to_numpy(), return_inverse=True)
    official_test = int((assign_split(table, "official") == "test").sum())
    rows = []
    for finding, labels, relation in COMPARISONS:
        truth = table[_ADJUDICATED + finding].to_numpy()
        called = table[list(labels)].any(axis=1).to_numpy() if labels else np.zeros(len(table), dtype=bool)
        row = {
            "finding": finding,
            "nih_labels": " or ".join(labels),
            "relation": relation,
            "images": len(table),
            "patients": len(codes),
            "official_test_images": official_test,
            "adjudicated_positive": int(truth.sum()),
            "nih_positive": int(called.sum()) if labels else pd.NA,
            "both": int((truth & called).sum()) if labels else pd.NA,
        }
        counts = np.column_stack([truth & called, ~truth & called, truth & ~called, ~truth & ~called])
        rows.append(row | (_measured(counts, patients, replicates, seed) if labels else _unmeasured()))
    return pd.DataFrame(rows)


def _unmeasured() -> dict[str, float]:
    return {f"{name}{end}": np.nan for name in MEASURES for end in ("", "_low", "_high")}


def _measured(counts: np.ndarray, patients: np.ndarray, replicates: int, seed: int) -> dict[str, float]:
    """Measures and interval ends from ``counts`` (images, 4): hits, false alarms, misses, rightly none."""
    clusters = int(patients.max()) + 1
    sums = np.column_stack([np.bincount(patients, column, clusters) for column in counts.T])
    values = _measures(sums.sum(axis=0, keepdims=True))
    blocks = [_measures(weights @ sums) for weights in weight_blocks(clusters, replicates, seed)]
    measured: dict[str, float] = {}
    for name in MEASURES:
        low, high, _ = percentile_interval(np.concatenate([block[name] for block in blocks]))
        measured |= {name: float(values[name][0]), f"{name}_low": low, f"{name}_high": high}
    return measured


def _measures(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Every measure (R,) of ``sums`` (R, 4)."""
    hits, false, missed, clear = sums.T
    total = sums.sum(axis=1)
    agreed = (hits + clear) / total
    chance = ((hits + false) * (hits + missed) + (missed + clear) * (false + clear)) / total**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "sensitivity": hits / (hits + missed),
            "specificity": clear / (clear + false),
            "ppv": hits / (hits + false),
            "kappa": (agreed - chance) / (1 - chance),
        }


_HEADER = {"sensitivity": "Sensitivity", "specificity": "Specificity", "ppv": "PPV", "kappa": "Kappa"}


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table as it is read: counts and ``0.81 (0.77 to 0.85)``, as text."""
    rows = []
    for row in table.to_dict("records"):
        labels, relation = row["nih_labels"], row["relation"]
        rows.append(
            {
                "Adjudicated finding": row["finding"],
                "NIH's labels": labels
                if relation == EXACT
                else f"{labels} ({relation})"
                if labels
                else relation,
                "Adjudicated": f"{row['adjudicated_positive']:,}",
                "NIH": f"{int(row['nih_positive']):,}" if labels else "",
                **{_HEADER[name]: _with_interval(row, name) for name in MEASURES},
            }
        )
    return pd.DataFrame(rows)


def _with_interval(row: dict, name: str) -> str:
    if pd.isna(row[name]):
        return ""
    return f"{row[name]:.2f} ({row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f})"


def typeset(read: Results) -> tuple[pd.DataFrame, str]:
    """The paper's table, from ``tables/label_noise.csv``, and its LaTeX preamble."""
    return shown(read_table(read)), "lp{4.5cm}rrllll"


def numbers(read: Results) -> dict[str, str]:
    """What the prose may name: ``label noise/<finding>/<measure>``; of two unions the first."""
    table = read_table(read)
    values = {
        "label noise/images": f"{table['images'].iloc[0]:,}",
        "label noise/patients": f"{table['patients'].iloc[0]:,}",
        "label noise/official test": f"{table['official_test_images'].iloc[0]:,}",
    }
    for row in table.drop_duplicates("finding").to_dict("records"):
        key = f"label noise/{row['finding']}"
        values[f"{key}/adjudicated"] = f"{row['adjudicated_positive']:,}"
        if row["relation"] != NONE:
            values |= {f"{key}/{name}": _with_interval(row, name) for name in MEASURES}
            values[f"{key}/nih"] = f"{int(row['nih_positive']):,}"
            values[f"{key}/both"] = f"{int(row['both']):,}"
    return values


def read_table(read: Results) -> pd.DataFrame:
    """``tables/label_noise.csv`` as :func:`label_noise` made it."""
    return pd.read_csv(read.folder / "tables" / f"{NAME}.csv", keep_default_na=False, na_values=[""]).fillna(
        {"nih_labels": ""}
    )
