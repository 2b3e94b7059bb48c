"""Kept weights of a cell, applied to the images of another dataset."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import load_file

from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.datasets.packed import MANIFEST, Packed, read_packed
from cxrbench.evidence.predictions import write_scores
from cxrbench.evidence.record import Record, UsedWeights
from cxrbench.platforms.base import Platform
from cxrbench.study import platforms
from cxrbench.study.config import Limits, Recipe
from cxrbench.study.names import Cell
from cxrbench.training.method import Batches, Scoring, build_network, sigmoid
from cxrbench.training.weights import read_metadata


def predict(cell: Cell, record: Record, kept: Path, packed: Packed, out: Path, platform: str) -> list[str]:
    """Write scores of the validation and test parts of ``packed`` by the weights in ``kept``; return notes.

    ``record`` is that of ``cell``, which kept them. The notes say what was left out: findings that only one
    of network and dataset has, the training part, and images of patients that the network was trained on.
    UserError where the weights were not kept, are not those of the record, or need pixels of another size.
    """
    again = f"set limits.keep_weights in the study and train it again: cxrbench train {cell}"
    if record.kept_weights_sha256 is None or record.weights is None:
        raise UserError(f"{cell}: its weights were not kept; {again}")
    if not kept.is_file():
        raise UserError(
            f"{kept}: missing, though its record names it; copy it from where it was kept, or {again}"
        )
    if sha256_file(kept) != record.kept_weights_sha256:
        raise UserError(f"{kept}: its sha256 is not that in the record of {cell}; copy it again, or {again}")
    about = read_metadata(kept)
    if about["pixels"] != packed.manifest["pixels"]:
        raise UserError(
            f"{packed.folder}: has {packed.manifest['pixels']} px, the network of {cell} was trained with "
            f"{about['pixels']}; name a dataset of that size"
        )
    shared = [finding for finding in about["findings"] if finding in packed.findings]
    if not shared:
        trained = ", ".join(about["findings"])
        raise UserError(
            f"{packed.folder}: has none of the findings of {cell} ({trained}); name another dataset"
        )
    notes = [_left_out(about["findings"], shared, packed)]
    packed, seen = _without_training_patients(cell, record, packed)
    scores = _scores(cell, record, kept, packed, len(about["findings"]), platform)
    columns = [about["findings"].index(finding) for finding in shared]
    positive = {finding: packed.manifest["positive_images"][finding] for finding in shared}
    chosen = replace(packed, manifest=packed.manifest | {"positive_images": positive})
    write_scores(out, chosen, {split: values[:, columns] for split, values in scores.items()})
    return [*notes, seen]


def _left_out(trained: list[str], shared: list[str], packed: Packed) -> str:
    """The findings and splits that are not scored."""
    untrained = [finding for finding in packed.findings if finding not in shared]
    absent = [finding for finding in trained if finding not in shared]
    trained_on = len(packed.rows("train"))
    parts = [f"the training part ({trained_on:,} images)"] if trained_on else []
    parts += [f"findings that the network does not know: {', '.join(untrained)}"] if untrained else []
    parts += [f"findings that {packed.folder.name} does not have: {', '.join(absent)}"] if absent else []
    return f"left out: {'; '.join(parts) or 'nothing'}"


def _without_training_patients(cell: Cell, record: Record, packed: Packed) -> tuple[Packed, str]:
    """``packed`` without the patients that the network was trained on, and a note about them."""
    own = packed.folder.parent / cell.dataset
    unknown = (
        f"not checked: whether {cell} was trained on some of these patients; {own} is not here or changed"
    )
    if record.dataset is None or not (own / MANIFEST).exists():
        return packed, unknown
    trained = read_packed(own)
    if trained.manifest["packed"] != record.dataset.packed:
        return packed, unknown
    patients = trained.index["patient"].iloc[trained.rows("train")].dropna()
    if packed.manifest["source"] != trained.manifest["source"] or patients.empty:
        return packed, f"not compared with the patients of {cell.dataset}: of another source, or unknown"
    seen = packed.index["patient"].isin(patients) & (packed.index["split"] != "train")
    kept = packed.index.assign(split=packed.index["split"].mask(seen, "train"))
    if (kept["split"] == "train").all():
        raise UserError(f"{packed.folder}: {cell} was trained on all its patients; name another dataset")
    return replace(packed, index=kept), f"left out: {seen.sum():,} images whose patient ids it was trained on"


def _scores(
    cell: Cell, record: Record, kept: Path, packed: Packed, findings: int, platform_name: str
) -> dict[str, np.ndarray]:
    """The network's scores of each scored split (images x findings, float32)."""
    assert record.weights is not None
    recipe = Recipe.model_validate(record.recipe | {"weights": "scratch"})
    platform: Platform = platforms.load(
        platform_name, recipe.threads, recipe.precision, recipe.compiler, recipe.arithmetic
    )
    network: Any = build_network(cell.architecture, packed.manifest["pixels"], recipe, np.full(findings, 0.5))
    network.load_state_dict(load_file(kept))
    network = platform.network(network)
    batches = Batches(packed, platform, Limits().resident_gib * 2**30, UsedWeights(**vars(record.weights)))
    scores, scoring = {}, Scoring(network, platform)
    for split in ("val", "test"):
        batches_of_split = batches.over(packed.rows(split), record.micro_batch or recipe.batch)
        logits = scoring.logits({}, batches_of_split)
        scores[split] = sigmoid(np.concatenate([np.zeros((0, findings), np.float32), *logits]))
    return scores
