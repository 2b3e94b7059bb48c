"""What a record must agree on with itself, its platform and its predictions; for ``cxrbench verify``."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pandas as pd
from pydantic import ValidationError

from cxrbench.evidence.predictions import macro_auroc
from cxrbench.evidence.record import Record
from cxrbench.statistics.predictions import labels_of, scores_of
from cxrbench.study.config import Recipe
from cxrbench.study.platforms import ENTRIES, Entry

AUROC_TOLERANCE = 5e-4  # of the last epoch's: 4e-16 on CPUs; devices that add in any order may move ranks
_SLACK = 1.25  # of the speed over the fastest and slowest epoch: it leaves out the first steps


def record_problems(record: Record, platform: str) -> Iterator[str]:
    """Yield what in a record contradicts the rest of it, or its cell's platform."""
    try:
        recipe = Recipe.model_validate(record.recipe)
    except ValidationError as error:
        first = error.errors()[0]
        yield f"recipe.{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return
    for name, number in numbers_in(record.model_dump(exclude={"platform", "recipe"})):
        if number < 0:
            yield f"{name} is {number}"
    if recipe.hash() != record.recipe_hash:
        yield f"recipe_hash is {record.recipe_hash}, that of its recipe is {recipe.hash()}"
    if record.status == "ok" and record.dataset is None:
        yield "dataset is null, but the run was scored"
    epochs = [epoch.epoch for epoch in record.history]
    whole = record.status != "ok" or len(epochs) == recipe.epochs
    if not whole or epochs != list(range(1, len(epochs) + 1)):
        yield f"history has the epochs {epochs}, the recipe {recipe.epochs}"
    yield from _time_problems(record)
    yield from _speed_problems(record, recipe)
    if record.phase != "setup" and platform in ENTRIES:
        yield from _machine_problems(record, platform, ENTRIES[platform])


def _time_problems(record: Record) -> Iterator[str]:
    """Yield moments out of order, phases longer than the run, epochs longer than their phase."""
    timing, started, ended = record.timing, moment_of(record.started), moment_of(record.ended)
    if started is None or ended is None:
        yield f"started or ended is not a moment with its time zone: {record.started}, {record.ended}"
    else:
        wall = (ended - started).total_seconds()
        spent = timing.total_seconds
        match record.platform.get("precompile"):
            case {"seconds": int() | float() as before}:
                spent -= before  # of `cxrbench precompile`, which ran before
        if wall < 0:
            yield f"ended ({record.ended}) before it started ({record.started})"
        elif spent > wall * 1.01 + 2:
            yield f"its phases took {spent:.0f} s of the {wall:.0f} s between start and end"
    for phase, key in (("train_seconds", "train_seconds"), ("evaluate_seconds", "eval_seconds")):
        whole, epochs = getattr(timing, phase), sum(getattr(epoch, key) for epoch in record.history)
        if epochs > whole * 1.001 + 0.01:
            yield f"the epochs of history took {epochs:.1f} s, timing.{phase} is {whole:.1f}"


def _speed_problems(record: Record, recipe: Recipe) -> Iterator[str]:
    """Yield a speed that is not that of the epochs, where most of them were trained in one go."""
    speed, train = record.timing.images_per_second, record.dataset and record.dataset.images.get("train")
    seconds = [epoch.train_seconds for epoch in record.history if epoch.train_seconds > 0]
    if not speed or not train or record.attempts >= len(seconds):
        return
    images = train // recipe.batch * recipe.batch
    low, high = images / max(seconds) / _SLACK, images / min(seconds) * _SLACK
    if not low <= speed <= high:
        yield f"images_per_second is {speed:.1f}, the epochs of history allow {low:.1f} to {high:.1f}"


def _machine_problems(record: Record, platform: str, entry: Entry) -> Iterator[str]:
    """Yield what a platform always reports and this record lacks; see study/platforms.py."""
    host, compiles = record.host, record.timing.compiles
    if not 1 <= host.devices_used <= host.device_count:
        yield f"host.devices_used is {host.devices_used} of {host.device_count} devices"
    if entry.accelerated and (not host.device_memory_gib or host.device.startswith("CPU")):
        yield f"host.device is {host.device} of {host.device_memory_gib} GiB, no device of {platform}"
    if entry.sdk not in (host.sdk or ""):
        yield f"host.sdk is {host.sdk}, which does not name {entry.sdk}"
    if record.status == "ok" and entry.compiles not in (None, bool(compiles)):
        yield f"timing.compiles is {compiles}, which cannot be on {platform}"
    missing = [f"platform.{key}" for key in entry.reports if key not in record.platform]
    if entry.software and not record.versions.get(entry.software):
        missing.append(f"versions.{entry.software}")
    if entry.accelerated and not host.driver:
        missing.append("host.driver")
    yield from (f"{key} is missing, which every run on {platform} records" for key in missing)


def numbers_in(value: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers in nested values with their dotted names."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from numbers_in(part, f"{name}.{key}" if name else str(key))
    elif isinstance(value, int | float):
        yield name, value


def moment_of(text: str) -> datetime | None:
    """Return a moment in ISO 8601 with its offset; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def score_problems(record: Record, predictions: pd.DataFrame) -> Iterator[str]:
    """Check that the validation scores have the macro AUROC of the last epoch: the same weights gave both."""
    recorded = record.history[-1].val_auroc if record.history else None
    part = predictions[predictions["split"] == "val"]
    auroc = macro_auroc(labels_of(part), scores_of(part))
    if auroc is None or recorded is None:
        if auroc != recorded:
            yield f"macro AUROC of the validation part is {recorded} in history, against its labels"
    elif abs(auroc - recorded) > AUROC_TOLERANCE:
        yield (
            f"macro AUROC of the validation part is {auroc:.4f}, in history it is {recorded:.4f} "
            f"(tolerance {AUROC_TOLERANCE:g})"
        )
