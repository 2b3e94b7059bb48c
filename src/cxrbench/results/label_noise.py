"""How noisy the labels are: NIH's text-mined ones against labels that radiologists adjudicated.

Reference: Majkowska et al., Radiology 2020 (doi:10.1148/radiol.2019191293); the torchxrayvision wheel has its
table. Nearly half of its images are in the official test part, which has more findings: what depends on
prevalence (ppv, kappa) is that of this set. Intervals are from resampling patients.
"""

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import read_nih_table, wheel_file
from cxrbench.datasets.split import assign_split
from cxrbench.statistics.sample import weight_blocks

_IMAGES, _REPLICATES = 4376, 2000
EXACT, APPROXIMATE, NONE = "the same finding", "approximate", "NIH has no such label"
# The findings of NIH's that stand for an adjudicated one, chosen for their meaning. Airspace
# opacity is what fills the air spaces; Atelectasis is loss of volume, so it is only in the wider union.
_FILLED = ("Consolidation", "Infiltration", "Pneumonia", "Edema")
_COUNTERPARTS = (
    ("Pneumothorax", ("Pneumothorax",), EXACT),
    ("Nodule or mass", ("Nodule", "Mass"), EXACT),
    ("Airspace opacity", _FILLED, APPROXIMATE),
    ("Airspace opacity", (*_FILLED, "Atelectasis"), APPROXIMATE),
    ("Fracture", (), NONE),
)
MEASURES = ("sensitivity", "specificity", "ppv", "kappa")
_ADJUDICATED = "adjudicated "


def read_adjudicated() -> pd.DataFrame:
    """4,376 rows of NIH's table with four adjudicated labels, such as ``adjudicated Fracture``."""
    raw = pd.read_csv(wheel_file("google2019_nih-chest-xray-labels.csv.gz"))
    findings = list(dict.fromkeys(name for name, _, _ in _COUNTERPARTS))
    if len(raw) != _IMAGES or not raw[findings].isin(["YES", "NO"]).all(axis=None):
        raise UserError(
            f"the adjudicated labels are {len(raw)} rows, not {_IMAGES} of YES or NO; reinstall "
            "torchxrayvision with `make setup`"
        )
    adjudicated = (raw[findings] == "YES").add_prefix(_ADJUDICATED).assign(image=raw["Image Index"])
    return adjudicated.merge(read_nih_table(), on="image", how="left", validate="one_to_one")


def label_noise() -> pd.DataFrame:
    """One row per comparison: counts, and each measure with its patient-clustered 95 % interval.

    ``sensitivity``: share of adjudicated positives that NIH labels; ``specificity``: share of adjudicated
    negatives that it does not; ``ppv``: share of NIH's positives that were adjudicated positive; ``kappa``:
    Cohen's (1960). All NaN where NIH has no such label.
    """
    table = read_adjudicated()
    codes, patients = np.unique(table["patient"].to_numpy(), return_inverse=True)
    official_test = int((assign_split(table, "official") == "test").sum())
    rows = []
    for finding, labels, relation in _COUNTERPARTS:
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
        rows.append(row | (_measured(truth, called, patients) if labels else {}))
    return pd.DataFrame(rows)


def _measured(truth: np.ndarray, called: np.ndarray, patients: np.ndarray) -> dict[str, float]:
    """Measures and interval ends from what was found and called in each image, by patient."""
    clusters = int(patients.max()) + 1
    counts = (truth & called, ~truth & called, truth & ~called, ~truth & ~called)
    sums = np.column_stack([np.bincount(patients, images, clusters) for images in counts])
    values = _measures(sums.sum(axis=0, keepdims=True))
    blocks = [_measures(weights @ sums) for weights in weight_blocks(clusters, _REPLICATES, seed=0)]
    measured: dict[str, float] = {}
    for name in MEASURES:
        drawn = np.concatenate([block[name] for block in blocks])
        low, high = np.nanquantile(drawn, [0.5 - 0.95 / 2, 0.5 + 0.95 / 2])
        measured |= {name: float(values[name][0]), f"{name}_low": float(low), f"{name}_high": float(high)}
    return measured


def _measures(sums: np.ndarray) -> dict[str, np.ndarray]:
    """Every measure (R,) of ``sums`` (R, 4): hits, false alarms, misses, rightly none."""
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
