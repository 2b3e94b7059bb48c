"""AUROC by sex and by view, with sizes; no claim is made where the interval is wide."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from cxrbench.analysis.auroc import Estimate, auroc, interval
from cxrbench.analysis.estimates import CellEstimate
from cxrbench.analysis.sample import Sample, sample_of
from cxrbench.analysis.scope import scope_of
from cxrbench.study.errors import UserError

WIDEST = 0.2  # an interval wider than this supports no claim
NO_CLAIM = "no claim: the interval is wider than 0.2 or unknown"
COLUMNS = [
    *("split", "group", "value_of_group", "label", "metric", "value", "ci_low", "ci_high", "ci_method"),
    *("n_images", "n_patients", "n_positive", "note"),
]
PHANTOM = "phantom_"  # a phantom image is named after the NIH row that it was drawn for


def subgroups(predictions: pd.DataFrame, nih: pd.DataFrame, *, split: str = "test") -> pd.DataFrame:
    """AUROC per label and macro (columns ``COLUMNS``) for each ``sex`` (F, M) and ``view`` (PA, AP).

    ``nih`` has columns image, sex and view (see :func:`cxrbench.datasets.nih_table.read_nih_table`).
    Intervals are patient-clustered DeLong. The macro of a subgroup is over the labels that have an
    interval in every group of its kind, so that groups compare. Raises UserError for an image that
    ``nih`` lacks.
    """
    tables = [_table(*group) for group in _groups(predictions, nih, split)]
    joined = pd.concat(tables, ignore_index=True).assign(split=split, metric="auroc")
    return joined[COLUMNS].astype(dict.fromkeys(["n_images", "n_patients", "n_positive"], "Int64"))


def subgroup_estimates(
    predictions: pd.DataFrame, nih: pd.DataFrame, split: str = "test"
) -> dict[str, CellEstimate]:
    """The macro AUROC of each group with its influence, under a label such as ``macro, sex F``."""
    estimates = {}
    for kind, name, sample, areas, shared in _groups(predictions, nih, split):
        label, why = f"macro, {kind} {name}", "" if shared.any() else NO_CLAIM
        keys = ((label, "auroc"),)
        estimates[label] = CellEstimate(sample, keys, areas.mean(shared), (why,), scope_of(sample, None))
    return estimates


def _groups(
    predictions: pd.DataFrame, nih: pd.DataFrame, split: str
) -> Iterator[tuple[str, str, Sample, Estimate, np.ndarray]]:
    """Kind, name and sample of each group, its AUROC, and the labels that have an interval in all of the
    kind."""
    sample = sample_of(predictions, split)
    rows = nih.set_index("image")[["sex", "view"]].reindex(_nih_names(sample))
    if (unknown := rows["sex"].isna().to_numpy()).any():
        raise UserError(
            f"image {sample.images[unknown][0]} is not in NIH's table ({unknown.sum()} such images): "
            "sex and view are known for NIH's images only, so leave subgroups out for other data"
        )
    for kind in ("sex", "view"):
        groups = {name: sample.take((rows[kind] == name).to_numpy()) for name in sorted(rows[kind].unique())}
        areas = {name: auroc(group) for name, group in groups.items()}
        shared = np.all([np.isfinite(area.error) for area in areas.values()], axis=0)
        yield from ((kind, name, groups[name], areas[name], shared) for name in groups)


def _nih_names(sample: Sample) -> list[str]:
    return [str(image).removeprefix(PHANTOM) for image in sample.images]


def _table(kind: str, name: str, sample: Sample, areas: Estimate, shared: np.ndarray) -> pd.DataFrame:
    both = areas.with_mean(shared)
    low, high = interval(both.value, both.error, both.degrees)
    table = pd.DataFrame(
        {"label": [*sample.names, "macro"], "value": both.value, "ci_low": low, "ci_high": high}
    )
    narrow = (high - low) <= WIDEST  # false for an unknown interval too
    table["note"] = np.where(
        np.isnan(both.value), "undefined: only one class", np.where(narrow, "", NO_CLAIM)
    )
    if not shared.all() and shared.any():
        left_out = ", ".join(np.array(sample.names)[~shared])
        note = f"without labels that have no interval in a {kind} group: {left_out}"
        table.loc[table.index[-1], "note"] = "; ".join(filter(None, [note, table["note"].iloc[-1]]))
    return table.assign(
        group=kind,
        value_of_group=name,
        ci_method="delong-patient" if sample.by_patient else "delong-image",
        n_images=sample.n_images,
        n_patients=sample.n_clusters if sample.by_patient else pd.NA,
        n_positive=[*sample.labels.sum(axis=0), pd.NA],
    )
