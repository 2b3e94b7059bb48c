"""What a record must agree on with itself, its platform and its predictions; for ``cxrbench verify``."""

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from pydantic import ValidationError

from cxrbench.evidence.allowed import EPOCH, RESUMED
from cxrbench.evidence.predictions import macro_auroc
from cxrbench.evidence.record import Record
from cxrbench.statistics.predictions import labels_of, scores_of
from cxrbench.study.config import Recipe
from cxrbench.study.platforms import ENTRIES, Entry

AUROC_TOLERANCE = 5e-4  # of the last epoch's: 4e-16 on CPUs; devices that add in any order may move ranks
CLOCKS = 3600.0  # seconds by which the clocks of two machines may differ
# Test minus validation of the macro AUROC: -0.021 to 0.054 in 97 recorded cells. The last epoch's gain: up to
# 0.060 (three epochs of phantoms), below 0.001 after twenty epochs.
_USUAL_GAP, _USUAL_GAIN = 0.1, 0.15
_MOST_RANKED = 4000  # test images by which the scores of two cells are compared
_LOG_SLACK = 1.001  # of half a printed digit: binary fractions round either way
_SLACK = 1.25  # of the speed over the fastest and slowest epoch: it leaves out the first steps


def record_problems(record: Record, platform: str, starts: int = 1) -> Iterator[str]:
    """Yield what in a record contradicts the rest of it, its cell's platform, or the starts in its log."""
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
    yield from _status_problems(record)
    if record.attempts < starts:
        yield f"attempts is {record.attempts}, and its log tells of {starts} starts of the trainer"
    epochs = [epoch.epoch for epoch in record.history]
    whole = record.status != "ok" or len(epochs) == recipe.epochs
    if not whole or epochs != list(range(1, len(epochs) + 1)):
        yield f"history has the epochs {epochs}, the recipe {recipe.epochs}"
    if recipe.batch % (record.micro_batch or recipe.batch):
        yield f"micro_batch is {record.micro_batch}, which does not divide the batch of {recipe.batch}"
    yield from _time_problems(record)
    yield from _speed_problems(record, recipe, starts)
    if record.phase != "setup" and platform in ENTRIES:
        yield from _machine_problems(record, platform, ENTRIES[platform])


def _status_problems(record: Record) -> Iterator[str]:
    """Yield what does not fit the outcome: a scored run ended, has no failure, and says what was trained."""
    scored = record.status == "ok"
    if scored != (record.phase == "done"):
        yield f"phase is {record.phase}, which does not fit status {record.status}"
    if scored != (record.failure is None):
        yield f"failure is {'null' if record.failure is None else 'given'}, but status is {record.status}"
    known = {"dataset": record.dataset, "parameters": record.parameters}
    for name, value in (known | {"versions.torch": record.versions.get("torch")}).items():
        if scored and value is None:
            yield f"{name} is null, but the run was scored"


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
        if ended.timestamp() > time.time() + CLOCKS:
            yield f"ended ({record.ended}) after this machine's clock"
        if wall < 0:
            yield f"ended ({record.ended}) before it started ({record.started})"
        elif spent > wall * 1.01 + 2:
            yield f"its phases took {spent:.0f} s of the {wall:.0f} s between start and end"
    for phase, key in (("train_seconds", "train_seconds"), ("evaluate_seconds", "eval_seconds")):
        whole, epochs = getattr(timing, phase), sum(getattr(epoch, key) for epoch in record.history)
        if epochs > whole * 1.001 + 0.01:
            yield f"the epochs of history took {epochs:.1f} s, timing.{phase} is {whole:.1f}"


def _speed_problems(record: Record, recipe: Recipe, starts: int) -> Iterator[str]:
    """Yield a speed that is not that of the epochs, where most of them were trained in one go."""
    speed, train = record.timing.images_per_second, record.dataset and record.dataset.images.get("train")
    seconds = [epoch.train_seconds for epoch in record.history if epoch.train_seconds > 0]
    if not speed or not train or starts >= len(seconds):
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
    """A moment in ISO 8601 with its offset; None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def starts_in(log: Path) -> int:
    """The starts of the trainer in its log: the first, and each that went on from a checkpoint."""
    return 1 + sum(RESUMED.fullmatch(line) is not None for line in _lines(log))


def _lines(log: Path) -> list[str]:
    """The lines of a log that may be a trainer's own; none where there is no log."""
    text = log.read_bytes().decode(errors="replace") if log.is_file() else ""
    return [line for line in text.splitlines() if len(line) < 200]


def log_problems(record: Record, log: Path) -> Iterator[str]:
    """Yield epochs whose losses or seconds in the log are not those in history: one trainer wrote both.

    An epoch that was trained again after an interruption has several lines, and its last one counts.
    """
    if not log.is_file():
        if record.status == "ok":
            yield "missing, and every trainer writes one; make the run again"
        return
    told = {int(line[1]): line for text in _lines(log) if (line := EPOCH.fullmatch(text))}
    for epoch in record.history:
        if (line := told.get(epoch.epoch)) is None:
            yield f"epoch {epoch.epoch} of history is not in the log"
            return
        for name, printed, value, digits in (
            ("train loss", line[3], epoch.train_loss, 4),
            ("val loss", line[4], epoch.val_loss, 4),
            ("seconds", line[5], epoch.train_seconds, 1),
        ):
            if abs(float(printed) - value) > _LOG_SLACK * 0.5 * 10.0**-digits:
                yield f"epoch {epoch.epoch}: {name} is {printed} in the log, {value:.{digits}f} in history"
                return


class Scored(NamedTuple):
    """The labels and scores of an ok cell, taken from its table once; the images of the parts are masks."""

    image: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    parts: dict[str, np.ndarray]
    aurocs: dict[str, float | None]  # macro, by part

    @classmethod
    def of(cls, predictions: pd.DataFrame) -> Self:
        """Those of a table of predictions."""
        labels, scores = labels_of(predictions), scores_of(predictions)
        split = predictions["split"].to_numpy()
        parts = {name: split == name for name in ("val", "test")}
        aurocs = {name: macro_auroc(labels[rows], scores[rows]) for name, rows in parts.items()}
        return cls(predictions["image"].to_numpy(), labels, scores, parts, aurocs)


def doubts(record: Record, scored: Scored) -> Iterator[str]:
    """Yield what is unusual in a run and may be true: somebody should look at it."""
    val, test = scored.aurocs["val"], scored.aurocs["test"]
    if val is not None and test is not None and abs(test - val) > _USUAL_GAP:
        yield f"macro AUROC is {test:.3f} on test and {val:.3f} on validation images"
    of_epochs = [epoch.val_auroc for epoch in record.history if epoch.val_auroc is not None]
    if len(of_epochs) > 1 and (gain := of_epochs[-1] - of_epochs[-2]) > _USUAL_GAIN:
        yield f"the last epoch gains {gain:.3f} of macro AUROC in validation"
    if len(scored.scores) > 1 and (np.ptp(scored.scores, axis=0) == 0).any():
        yield "a finding has the same score for all images"


def ranks(scored: Scored) -> np.ndarray:
    """The ranks of each finding's test scores by image, centred, as one vector of length one."""
    rows = np.flatnonzero(scored.parts["test"])
    rows = rows[np.argsort(scored.image[rows])][:_MOST_RANKED]
    order = scored.scores[rows].argsort(axis=0, kind="stable")
    centred = np.empty(order.shape, np.float32)
    np.put_along_axis(centred, order, np.arange(len(order), dtype=np.float32)[:, None], axis=0)
    centred -= (len(order) - 1) / 2
    return (centred / (np.linalg.norm(centred) or 1)).ravel()


def score_problems(record: Record, scored: Scored) -> Iterator[str]:
    """Check that the validation scores have the macro AUROC of the last epoch: the same weights gave both."""
    recorded = record.history[-1].val_auroc if record.history else None
    auroc = scored.aurocs["val"]
    if auroc is None or recorded is None:
        if auroc != recorded:
            yield f"macro AUROC of the validation part is {recorded} in history, against its labels"
    elif abs(auroc - recorded) > AUROC_TOLERANCE:
        yield (
            f"macro AUROC of the validation part is {auroc:.4f}, in history it is {recorded:.4f} "
            f"(tolerance {AUROC_TOLERANCE:g})"
        )
