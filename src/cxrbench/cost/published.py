"""Training speeds that timm measured on one card, scaled to another GPU and to another image size.

``data/timm_training.csv`` has timm's rates on an RTX 3090 (:data:`SOURCE`). A different GPU is taken to be
faster by a factor between the ratio of peaks and the ratio of memory bandwidths, and an image to cost as its
area. How well this predicts, :func:`leave_one_card_out` and :func:`by_area` say on timm's own inference on
three cards (``data/timm_inference.csv``).
"""

import math
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.common.files import read_csv
from cxrbench.cost.devices import DEVICES, Device

TRAINING, INFERENCE = Path("data/timm_training.csv"), Path("data/timm_inference.csv")
CARD = "RTX-3090"
SOURCE = "timm's training speeds of 2022-07 on an RTX 3090 (fp16 autocast, channels last, PyTorch 1.12)"
_NEAR = 2.5  # times the published side, or its part: timm's own pairs of sizes reach two


class Published(NamedTuple):
    """Training images/s of one GPU, between two scalings of one published speed; ``pixels``: of that one."""

    low: float
    high: float
    pixels: int
    measured: float


@cache
def _training(path: Path) -> pd.DataFrame:
    return _read(path, "images_per_second").set_index("architecture")


def _read(path: Path, *columns: str) -> pd.DataFrame:
    """A table of timm's speeds; UserError where it lacks a column."""
    table = read_csv(path)
    for name in ("architecture", "pixels", *columns):
        if name not in table:
            raise UserError(f"{path}:1: there is no column '{name}'; restore the file with git")
    return table


def published_speed(
    architecture: str, pixels: int, device: Device, path: Path = TRAINING
) -> Published | None:
    """The speed of one ``device`` on ``architecture`` under autocast, by timm's speed on its card.

    None for a network that timm did not time, a device whose peak or bandwidth is not documented, and an
    image size too far from the published one.
    """
    table = _training(path)
    if architecture not in table.index or device.family != "gpu" or device.bandwidth_gb_s is None:
        return None
    row = table.loc[architecture]
    if not 1 / _NEAR <= pixels / row["pixels"] <= _NEAR:
        return None
    low, high = _between(DEVICES[CARD], device)
    rate = float(row["images_per_second"]) * (row["pixels"] / pixels) ** 2
    return Published(rate * low, rate * high, int(row["pixels"]), float(row["images_per_second"]))


def _between(card: Device, other: Device) -> tuple[float, float]:
    """The factors by which ``other`` is taken to be faster: ratios of bandwidths and peaks, sorted."""
    assert card.bandwidth_gb_s and other.bandwidth_gb_s, "both are documented"
    ratios = other.bandwidth_gb_s / card.bandwidth_gb_s, other.tflops / card.tflops
    return min(ratios), max(ratios)


def leave_one_card_out(path: Path = INFERENCE) -> pd.DataFrame:
    """A row per pair of cards that timm timed with one release: each is predicted from the other.

    ``inside``: the share of networks between the two scalings; ``within_two``: that of less than twice or
    more than half their geometric mean; ``median``: measured over that mean.
    """
    rows = []
    for software, table in _read(path, "software").groupby("software"):
        cards = [name for name in table.columns if name in DEVICES and table[name].notna().any()]
        for card, other in ((card, other) for card in cards for other in cards if card != other):
            low, high = _between(DEVICES[card], DEVICES[other])
            factor = (table[other] / table[card]).dropna()
            off = factor / math.sqrt(low * high)
            inside, near = factor.between(low, high), off.between(0.5, 2, inclusive="neither")
            rows.append(
                {"software": software, "card": card, "predicted": other, "networks": len(factor)}
                | {"low": low, "high": high, "inside": inside.mean(), "within_two": near.mean()}
                | {"median": off.median()}
            )
    return pd.DataFrame(rows)


def by_area(path: Path = INFERENCE) -> pd.Series:
    """Measured over predicted speed for each pair of image sizes of a network that timm timed."""
    given = ["architecture", "pixels", "software"]
    table = _read(path, "software").melt(given, var_name="card", value_name="rate")
    # A tag names the weights, not the network.
    table = table.assign(network=table["architecture"].str.split(".").str[0]).dropna()
    pairs = table.merge(table, on=["network", "software", "card"], suffixes=("", "_other"))
    pairs = pairs[pairs["pixels"] < pairs["pixels_other"]]
    area = (pairs["pixels"] / pairs["pixels_other"]) ** 2
    return pd.Series(np.asarray(pairs["rate_other"] / pairs["rate"] / area))


def quality() -> str:
    """The error of the scaling on timm's own other cards and sizes, in one sentence."""
    cards, sizes = leave_one_card_out(), by_area()
    ends = sizes.quantile([0.01, 0.99])
    names, inside = ", ".join(sorted(set(cards["predicted"]))), 100 * cards["inside"]
    return (
        f"Each left out in turn, timm's own cards ({names}; inference) lie in this range for "
        f"{inside.min():.0f} to {inside.max():.0f} % of networks, and within a factor of two of its "
        f"geometric middle for {100 * cards['within_two'].min():.0f} % or more. Area predicts timm's other "
        f"image sizes to within {ends.iloc[0]:.2f} to {ends.iloc[1]:.2f} times (98 % of pairs)."
    )
