"""What training any network costs on every priced instance: projected where nothing was run on it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.compile.audit import read_audit, survey
from cxrbench.compile.rules import Setting
from cxrbench.cost.devices import DEVICES
from cxrbench.cost.prices import KEY, newest, price
from cxrbench.cost.projection import (
    PUBLISHED,
    NotProjected,
    Speed,
    Work,
    ceiling,
    device_called,
    measured_speeds,
    project,
    reached,
    work_of,
)
from cxrbench.study.config import Pricing, Study
from cxrbench.study.errors import UserError
from cxrbench.study.platform_names import TRAINIUM
from cxrbench.training.plan import ARCHITECTURES, must_be_architectures

COMPILE_MINUTES = 44  # of a small CNN, cold: scttfrdmn/aws-trainium-tutorial-for-research
MINE_COLUMNS = [
    *KEY, "as_of", "accelerator", "cores", "usd_per_hour", "hours_at_peak", "hours_low",
    "hours_high", "usd_low", "usd_high", "break_even_ratio", "kind", "sources", "assumptions", "why_not",
]  # fmt: skip


@dataclass(frozen=True)
class Training:
    """A training run: images seen, in a precision; ``speed``: images/s of the whole instance ``gpu``."""

    work: Work
    images: int
    precision: str
    gpu: str
    speed: float | None = None

    def __post_init__(self) -> None:
        if self.speed is not None and not 0 < self.speed < math.inf:
            raise UserError(f"--gpu-images-per-second: {self.speed:g} is no speed; give images per second")

    def hours(self, images_per_second: float) -> float:
        """Return the hours of the run at a speed."""
        return self.images / images_per_second / 3600


def work_for(
    architecture: str, setting: Setting, recorded: Path, cache: Path, say: Callable[[str], None]
) -> Work:
    """Return the work of a timm network: from recorded audits, else captured here (which takes torch_xla).

    Raises UserError for an unknown name and NotProjected for a network that cannot be traced at this size.
    """
    must_be_architectures([architecture], "name it as timm does")
    of = architecture, setting.pixels, setting.precision
    try:
        return work_of(read_audit(recorded), *of)
    except NotProjected:
        return work_of(survey([architecture], [setting], cache, say), *of)


def published_kind(architecture: str, recorded: Path, cache: Path, say: Callable[[str], None]) -> str:
    """Return for which networks the published cost ratio of a timm network is stated: cnn or transformer.

    Any other name is returned as it is.
    """
    if architecture not in ARCHITECTURES.read_text(encoding="utf-8").split():
        return architecture
    kind = work_for(architecture, Setting(), recorded, cache, say).kind
    published = "transformer" if kind == "transformer" else "cnn"
    say(f"{architecture} is taken as a {published}, for which a cost ratio is published")
    return published


def mine_table(training: Training, study: Study, prices: pd.DataFrame, recorded: Path) -> pd.DataFrame:
    """Return hours and USD of ``training`` on every instance, a row each, the cheapest hour first.

    A price is at the study's region and basis, else in its region, else at its basis. ``hours_at_peak``
    is arithmetic; ``hours_low`` and ``hours_high`` are projected, but where the speed was given they are
    measured, and proxy (proportional to cores) on instances with the same GPU.
    ``break_even_ratio``: price over that of the GPU, which is how much faster it must be to cost the same.
    """
    rates = _rates(prices, study.prices)
    here = price(prices, training.gpu, study.prices.region, study.prices.basis, study.prices.as_of)
    known = [*measured_speeds(study, recorded), *PUBLISHED]
    if training.speed:
        known.append(_given(training, here))
    rows = [_row(training, rate, here, known) for rate in rates.to_dict("records")]
    return pd.DataFrame(rows, columns=MINE_COLUMNS).sort_values("usd_per_hour", ignore_index=True)


def _rates(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return a price per instance: at the study's region and basis where the table has it."""
    rows = newest(prices, pricing.as_of)
    fits = (rows["region"] == pricing.region).astype(int) * 2 + (rows["basis"] == pricing.basis)
    return rows.assign(fits=fits).sort_values("fits", kind="stable").drop_duplicates("instance", keep="last")


def _given(training: Training, here: pd.Series) -> Speed:
    """Return the user's own speed as the share of a peak."""
    device = DEVICES.get(here["accelerator"])
    if device is None or device.family != "gpu" or training.speed is None:
        raise UserError(f"--gpu: {training.gpu} has no GPU; name an instance with one, such as g5.xlarge")
    cores, source = int(here["cores"]), f"your {training.speed:g} images/s on {training.gpu}"
    try:
        return reached(device, cores, training.work, training.speed, source, training.precision)
    except NotProjected:  # its own row needs no peak
        return Speed(device, training.work, 0.0, source, training.precision)


def _row(training: Training, rate: dict[Any, Any], here: pd.Series, known: list[Speed]) -> dict[str, Any]:
    """Return the row of an instance; its speeds are missing, with a reason, where none can be projected."""
    row = rate | {"break_even_ratio": rate["usd_per_hour"] / here["usd_per_hour"]}
    if training.speed and rate["accelerator"] == here["accelerator"]:
        hours = training.hours(training.speed * rate["cores"] / here["cores"])
        kind = "measured" if rate["instance"] == training.gpu else "proxy"
        return row | _ends(rate, hours, hours) | {"kind": kind, "sources": known[-1].source}
    if not rate["accelerator"]:
        return row | {"why_not": "not projected: the speed of its processor is not documented"}
    cores = int(rate["cores"])
    try:
        device = device_called(rate["accelerator"])
        row["hours_at_peak"] = training.hours(ceiling(training.work, device, cores, training.precision))
        made = project(training.work, device, cores, known, training.precision)
    except NotProjected as reason:
        return row | {"why_not": str(reason)}
    ends = _ends(rate, training.hours(made["high"]), training.hours(made["low"]))
    return row | ends | {"kind": made["kind"], "sources": made["sources"], "assumptions": made["assumptions"]}


def _ends(rate: dict[Any, Any], low: float, high: float) -> dict[str, float]:
    usd = rate["usd_per_hour"]
    return {"hours_low": low, "hours_high": high, "usd_low": low * usd, "usd_high": high * usd}


def trial_sentences(table: pd.DataFrame, training: Training, pricing: Pricing) -> list[str]:
    """Return, for the smallest Trainium instance, what it must reach to pay, its projected cost ratio where
    both sides have one, and what an hour of trial costs."""
    rows = table.set_index("instance")
    instance = pricing.instances.get(TRAINIUM[0], "trn1.2xlarge")
    if instance not in rows.index or training.gpu not in rows.index:
        return []
    there, here = rows.loc[instance], rows.loc[training.gpu]
    ratio = float(there["break_even_ratio"])
    at = f" ({ratio * training.speed:,.0f} images/s)" if training.speed else ""
    lines = [
        f"{instance} pays where it trains more than {ratio:.2f} times the images/s of {training.gpu}{at}.",
        f"An hour of trial on {instance} costs {there['usd_per_hour']:.2f} USD ({there['region']}, "
        f"{there['basis'].replace('_', ' ')}, {there['as_of']}); the first compilation of a small CNN alone "
        f"took {COMPILE_MINUTES} minutes elsewhere (published).",
    ]
    if pd.notna(there["usd_low"]) and pd.notna(here["usd_low"]):
        low, high = there["usd_low"] / here["usd_high"], there["usd_high"] / here["usd_low"]
        lines.append(
            f"Cost on {instance} over {training.gpu}: {low:.2f} to {high:.2f} (projected); "
            f"`cxrbench cost decide --ratio {low:.2f} {high:.2f}` weighs it against a port."
        )
    return lines
