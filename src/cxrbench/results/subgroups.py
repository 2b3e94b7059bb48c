"""AUROC by sex and by view, with sizes; no claim is made where the interval is wide."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import Estimate, auroc
from cxrbench.statistics.errors import UserError
from cxrbench.statistics.estimates import CellEstimate, areas_with_ends
from cxrbench.statistics.metrics import MACRO
from cxrbench.statistics.sample import Sample, sample_of, scope_of

WIDEST = 0.2  # an interval wider than this supports no claim
NO_CLAIM = f"no claim: the interval is wider than {WIDEST:g} or unknown"
COLUMNS = [
    *("split", "group", "value_of_group", "label", "metric", "value", "ci_low", "ci_high", "ci_method"),
    *("n_images", "n_patients", "n_positive", "left_out", "note"),
]
_PHANTOM_IMAGE = "phantom_"  # a phantom image is named after the NIH row that it was drawn for


class _Group(NamedTuple):
    """Images of one ``kind`` (sex, view) and value, their AUROC, and which labels (L,) have an interval in
    every group of the kind."""

    kind: str
    name: str
    sample: Sample
    areas: Estimate
    shared: np.ndarray

    @property
    def label(self) -> str:
        """The name of its mean over labels."""
        return f"{MACRO}, {self.kind} {self.name}"


def subgroups(predictions: pd.DataFrame, nih: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, CellEstimate]]:
    """AUROC per label and macro (columns ``COLUMNS``) for each ``sex`` (F, M) and ``view`` (PA, AP),
    and the macro of each group with its influence, under a label such as ``macro, sex F``.

    ``nih`` has columns image, sex and view (see :func:`cxrbench.datasets.nih_table.read_nih_table`).
    Intervals are patient-clustered DeLong. The macro of a subgroup is over the labels that have an
    interval in every group of its kind, so that groups compare. Raises UserError for an image that
    ``nih`` lacks.
    """
    groups = list(_groups(predictions, nih))
    joined = pd.concat(map(_table, groups), ignore_index=True).assign(split="test", metric="auroc")[COLUMNS]
    table = joined.astype(dict.fromkeys(["n_images", "n_patients", "n_positive"], "Int64"))
    return table, {group.label: _macro(group) for group in groups}


def _macro(group: _Group) -> CellEstimate:
    why = "" if group.shared.any() else NO_CLAIM
    macro, scope = group.areas.mean(group.shared), scope_of(group.sample, None)
    return CellEstimate(group.sample, ((group.label, "auroc"),), macro, (why,), scope)


def _groups(predictions: pd.DataFrame, nih: pd.DataFrame) -> Iterator[_Group]:
    sample = sample_of(predictions)
    names = [str(image).removeprefix(_PHANTOM_IMAGE) for image in sample.images]
    rows = nih.set_index("image")[["sex", "view"]].reindex(names)
    if (unknown := rows["sex"].isna().to_numpy()).any():
        raise UserError(
            f"image {sample.images[unknown][0]} is not in NIH's table ({unknown.sum()} such images): "
            "sex and view are known for NIH's images only, so leave subgroups out for other data"
        )
    for kind in ("sex", "view"):
        parts = {name: sample.take((rows[kind] == name).to_numpy()) for name in sorted(rows[kind].unique())}
        areas = {name: auroc(part) for name, part in parts.items()}
        shared = np.all([np.isfinite(area.error) for area in areas.values()], axis=0)
        yield from (_Group(kind, name, part, areas[name], shared) for name, part in parts.items())


def _table(group: _Group) -> pd.DataFrame:
    sample, shared = group.sample, group.shared
    both = group.areas.with_mean(shared)
    table = areas_with_ends(sample, both)
    narrow = (table["ci_high"] - table["ci_low"]) <= WIDEST  # false for an unknown interval too
    left_out = ", ".join(np.array(sample.names)[~shared]) if shared.any() else ""
    return table.assign(
        label=[*sample.names, MACRO],
        left_out=[*("" for _ in sample.names), left_out],
        note=np.where(np.isnan(both.value), "undefined: only one class", np.where(narrow, "", NO_CLAIM)),
        group=group.kind,
        value_of_group=group.name,
        ci_method="delong-patient" if sample.by_patient else "delong-image",
        n_images=sample.n_images,
        n_patients=sample.n_clusters if sample.by_patient else pd.NA,
        n_positive=[*sample.labels.sum(axis=0), pd.NA],
    )
