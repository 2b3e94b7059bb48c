"""NIH's label table (v2020) and its findings, read from the data files of the torchxrayvision wheel."""

import importlib.util
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from cxrbench.common.errors import UserError

FINDINGS = (  # of ChestX-ray14, in NIH's order and spelling
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
_IMAGES, _PATIENTS = 112_120, 30_805  # the counts NIH publishes; asserted at every read
_COLUMNS = ["Image Index", "Patient ID", "View Position", "Patient Gender", "Patient Age"]


def wheel_file(name: str) -> Path:
    """Path of a data file in the torchxrayvision wheel, found without importing it (that loads torch)."""
    spec = importlib.util.find_spec("torchxrayvision")
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "torchxrayvision is not installed; its wheel carries NIH's label table: run `make setup`"
        )
    path = Path(spec.submodule_search_locations[0]) / "data" / name
    if not path.is_file():
        raise UserError(f"{path}: missing from the torchxrayvision wheel; reinstall it with `make setup`")
    return path


@cache
def read_nih_table() -> pd.DataFrame:
    """All 112,120 rows, sorted by image: image, patient (int), view, sex, age (years), 14 findings (uint8).

    Cached and shared: treat it as read-only. Raises UserError for a finding that NIH does not list or
    when the counts are not NIH's.
    """
    raw = pd.read_csv(wheel_file("Data_Entry_2017_v2020.csv.gz"))
    table = raw[_COLUMNS].set_axis(["image", "patient", "view", "sex", "age"], axis=1)
    table = table.astype({"patient": "int64", "age": "int16"})
    texts = raw["Finding Labels"].astype("category")  # 836 texts of 112,120 rows
    labels = texts.cat.categories.to_series().str.get_dummies(sep="|").astype("uint8")
    labels = labels.iloc[texts.cat.codes].reset_index(drop=True)
    if unknown := set(labels.columns) - set(FINDINGS) - {"No Finding"}:
        raise UserError(f"NIH's label table names an unknown finding: {sorted(unknown)}; is it v2020?")
    table = pd.concat([table, labels.reindex(columns=list(FINDINGS), fill_value=0)], axis=1)
    if (len(table), table["patient"].nunique()) != (_IMAGES, _PATIENTS):
        raise UserError(
            f"NIH's label table has {len(table)} images of {table['patient'].nunique()} patients, "
            f"not {_IMAGES} of {_PATIENTS}; reinstall torchxrayvision with `make setup`"
        )
    return table.sort_values("image", ignore_index=True)


def drawn_rows(kinds: Sequence[str], count: int) -> pd.DataFrame:
    """Random rows, ``count`` of each kind: a finding alone, or PA or AP, a view without a finding."""
    table = read_nih_table().sample(frac=1, random_state=0)
    labels = table[list(FINDINGS)]
    table.insert(0, "kind", labels.idxmax(axis=1).where(labels.any(axis=1), table["view"]))
    alone = table[labels.sum(axis=1) < 2]
    return pd.concat(alone[alone["kind"] == kind][:count] for kind in kinds)
