"""What training any network costs on every priced instance: projected where nothing was run on it."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.compile.audit import read_audit, survey
from cxrbench.compile.rules import Setting
from cxrbench.cost.devices import DEVICES, Device
from cxrbench.cost.prices import KEY, newest, price, regions
from cxrbench.cost.projection import (
    PROPORTIONAL,
    NotProjected,
    Speed,
    Work,
    ceiling,
    device_called,
    dollars,
    hours_on,
    known_speeds,
    reached,
    work_of,
)
from cxrbench.cost.ratios import PUBLISHED
from cxrbench.study.config import Pricing, Study
from cxrbench.study.errors import UserError, nearest
from cxrbench.study.platform_names import TRAINIUM
from cxrbench.training.plan import ARCHITECTURES, must_be_architectures

_COMPILED = (  # data/reported.csv, claim K13
    "the first compilation of a small CNN on trn1.2xlarge took about 5 minutes by one page of "
    "scttfrdmn/aws-trainium-tutorial-for-research and about 44 by another (published)"
)
_FED = "the host prepares images as fast as they are trained on"
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

    These two and ``dataset/network`` are returned as they are. UserError where no ratio is published.
    """
    known = ARCHITECTURES.read_text(encoding="utf-8").split()
    if architecture in PUBLISHED or "/" in architecture:
        return architecture
    if architecture not in known:
        raise UserError(
            f"architecture '{architecture}': no published cost ratio"
            f"{nearest(architecture, [*PUBLISHED, *known])} (known: {', '.join(PUBLISHED)}, names of timm, "
            "DATASET/NETWORK of your cells); give --ratio LOW HIGH"
        )
    kind = work_for(architecture, Setting(), recorded, cache, say).kind
    if kind not in PUBLISHED:
        raise UserError(
            f"architecture '{architecture}': no published cost ratio names {kind} networks (the preprint's "
            "is of CNNs that its abstract does not list); give --ratio LOW HIGH, or take that one with "
            "--architecture cnn"
        )
    say(f"{architecture} is taken as a {kind}, for which a cost ratio is published")
    return kind


def mine_table(training: Training, study: Study, prices: pd.DataFrame, recorded: Path) -> pd.DataFrame:
    """Return hours and USD of ``training`` on every instance, a row each, the cheapest hour first.

    A price is at the study's region and basis, else in its region, else at its basis. ``hours_at_peak`` is
    arithmetic; ``hours_low`` and ``hours_high`` are projected, but where the speed was given they are given,
    on instances with the same GPUs proxy, and with more or fewer of them projected in proportion.
    ``break_even_ratio``: price over that of the GPU, which is how much faster it must be to cost the same;
    NaN where the two prices differ in region or basis.
    """
    here = price(prices, training.gpu, study.prices.region, study.prices.basis, study.prices.as_of)
    gpu = DEVICES.get(here["accelerator"])
    if gpu is None or gpu.family != "gpu":
        what = "has no GPU with documented peaks; name one that has, such as g5.xlarge"
        raise UserError(f"--gpu: {training.gpu} {what}")
    known = known_speeds(study, recorded)
    if training.speed:
        known.append(_given(training, gpu, int(here["cores"])))
    rows = [_row(training, rate, here, known) for rate in _rates(prices, study.prices).to_dict("records")]
    table = pd.DataFrame(rows, columns=[*MINE_COLUMNS, "assumed"])
    table = table.assign(region=regions(table)).drop(columns="assumed")
    return table.sort_values("usd_per_hour", ignore_index=True)


def _rates(prices: pd.DataFrame, pricing: Pricing) -> pd.DataFrame:
    """Return a price per instance: at the study's region and basis where the table has it."""
    rows = newest(prices, pricing.as_of)
    fits = (rows["region"] == pricing.region).astype(int) * 2 + (rows["basis"] == pricing.basis)
    return rows.assign(fits=fits).sort_values("fits", kind="stable").drop_duplicates("instance", keep="last")


def _given(training: Training, gpu: Device, cores: int) -> Speed:
    """Return the user's own speed as the share of a peak; UserError for one above it."""
    speed, precision = training.speed or 0.0, training.precision
    source = f"your {speed:g} images/s on {training.gpu}"
    try:
        given = reached(gpu, cores, training.work, speed, source, precision)
    except NotProjected:  # its own row needs no peak
        return Speed(gpu, training.work, 0.0, source, precision)
    if given.share > 1:
        faster = "; if TF32 was on, measure without; if it was bf16, give --precision bf16"
        raise UserError(
            f"--gpu-images-per-second: {speed:g} on {training.gpu} is {given.share:.3g} times what the "
            f"documented {precision} peak of {gpu.name} lets through: correct it"
            f"{faster if precision == 'fp32' else ''}"
        )
    return given


def _row(training: Training, rate: dict[Any, Any], here: pd.Series, known: list[Speed]) -> dict[str, Any]:
    """Return the row of an instance; its speeds are missing, with a reason, where none can be projected."""
    alike = (rate["region"], rate["basis"]) == (here["region"], here["basis"])
    row = rate | {"break_even_ratio": rate["usd_per_hour"] / here["usd_per_hour"] if alike else math.nan}
    work, cores, precision = training.work, int(rate["cores"]), training.precision
    if training.speed and rate["accelerator"] == here["accelerator"]:
        made = _in_proportion(training, rate, here) | {"sources": known[-1].source}
    elif not rate["accelerator"]:
        made = {"why_not": "not projected: no speed of its processor is known here"}
    else:
        try:
            device = device_called(rate["accelerator"])
            made = hours_on(device, cores, work, training.images, known, precision)
        except NotProjected as reason:
            made = {"why_not": str(reason)}
        if "assumptions" in made:
            made["assumptions"] = [*made["assumptions"], _FED]
    return row | made | dollars(made, rate["usd_per_hour"])


def _in_proportion(training: Training, rate: dict[Any, Any], here: pd.Series) -> dict[str, Any]:
    """Return the hours on an instance with the GPU of the given speed."""
    device, cores = DEVICES[rate["accelerator"]], int(rate["cores"])
    hours = training.hours((training.speed or 0.0) * cores / here["cores"])
    made: dict[str, Any] = {"hours_low": hours, "hours_high": hours, "kind": "given"}
    with suppress(NotProjected):
        fastest = ceiling(training.work, device, cores, training.precision)
        made["hours_at_peak"] = training.hours(fastest)
    if cores != here["cores"]:
        made |= {"kind": "projected", "assumptions": [PROPORTIONAL, _FED]}
    elif rate["instance"] != training.gpu:
        made |= {"kind": "proxy", "assumptions": [_FED]}
    return made


def trial_sentences(table: pd.DataFrame, training: Training, pricing: Pricing) -> list[str]:
    """Return, for the smallest Trainium instance, what an hour of trial costs; where its price is of the
    GPU's region and basis, also what it must reach to pay, and its projected cost ratio if there is one."""
    rows = table.set_index("instance")
    instance = pricing.instances.get(TRAINIUM[0], "trn1.2xlarge")
    if instance not in rows.index or training.gpu not in rows.index:
        return []
    there, here = rows.loc[instance], rows.loc[training.gpu]
    trial = (
        f"An hour of trial on {instance} costs {there['usd_per_hour']:.2f} USD ({there['region']}, "
        f"{there['basis'].replace('_', ' ')}, {there['as_of']}); {_COMPILED}."
    )
    ratio = float(there["break_even_ratio"])
    if math.isnan(ratio):
        return [trial]
    at = f" ({ratio * training.speed:,.0f} images/s)" if training.speed else ""
    pays = f"{instance} pays where it trains more than {ratio:.2f} times the images/s of {training.gpu}{at}."
    if pd.isna(there["usd_low"]) or pd.isna(here["usd_low"]):
        return [pays, trial]
    low, high = there["usd_low"] / here["usd_high"], there["usd_high"] / here["usd_low"]
    weigh = (
        f"Cost on {instance} over {training.gpu}: {low:.4g} to {high:.4g} (projected); "
        f"`cxrbench cost decide --ratio {low:.4g} {high:.4g}` weighs it against a port."
    )
    return [pays, trial, weigh]
