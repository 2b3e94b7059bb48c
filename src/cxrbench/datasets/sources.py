"""What the packer asks of a source of images, and which sources there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import pandas as pd

from cxrbench.config import ChestMnistSource, Dataset, NihSource, PhantomSource
from cxrbench.datasets.nih_table import read_nih_table


class Made(NamedTuple):
    """An image that was made for the array: its name, and what it was made from where that matters.

    ``file`` and ``stamp`` (bytes and time of change) tell a later run whether it is still the same source.
    """

    name: str
    mode: str = ""
    size: str = ""
    file: str = ""
    stamp: str = ""


Chunks = Iterator[tuple[list[Made], np.ndarray]]


class Source(Protocol):
    """Images in a fixed order, their rows, and what the manifest says of them."""

    def key(self) -> str | None:
        """What decides the images and their order; None when a run cannot go on from an earlier one."""

    def keep(self, made: list[Made]) -> int:
        """How many of the images that an earlier run made, from the first on, are still as they would be."""

    def chunks(self, done: list[Made]) -> Chunks:
        """(what was made, n x H x W uint8) in the order to be packed, without the first ones in ``done``."""

    def index(self, names: list[str]) -> pd.DataFrame:
        """One row per name, in that order."""

    def describe(self, made: list[Made]) -> dict[str, object]:
        """What the manifest says of the source."""


class PhantomImages:
    """Drawn radiographs with NIH's label rows (datasets/phantom.py)."""

    def __init__(self, config: PhantomSource) -> None:
        from cxrbench.datasets import phantom  # imported late: drawing needs scipy, reading packs does not

        self.config = config
        self._draw = phantom.draw
        self.rows = phantom.choose_rows(
            read_nih_table(), {str(split): n for split, n in config.images.items()}, config.seed
        )

    def key(self) -> None:
        """Phantoms are drawn in seconds."""

    def keep(self, made: list[Made]) -> int:
        return 0

    def chunks(self, done: list[Made]) -> Chunks:
        names, start = self.rows["image"].tolist(), 0
        for images in self._draw(self.rows, self.config.pixels, self.config.seed):
            yield [Made(name) for name in names[start : start + len(images)]], images
            start += len(images)

    def index(self, names: list[str]) -> pd.DataFrame:
        return self.rows.set_index("image").loc[names].reset_index()

    def describe(self, made: list[Made]) -> dict[str, object]:
        return {
            "seed": self.config.seed,
            "split": "drawn by patient; rare findings oversampled, so prevalence is not NIH's",
            "resized": "not resized: drawn at this size",
        }


def source_of(config: Dataset, workers: int | None = None) -> Source:
    """The images that a dataset's config names; ``workers`` decode side by side (none: one per core)."""
    if isinstance(config, NihSource):
        from cxrbench.datasets.nih import NihImages  # imported late: decoding needs Pillow

        return NihImages(config, workers)
    if isinstance(config, ChestMnistSource):
        from cxrbench.datasets.chestmnist import ChestMnistImages  # imported late: medmnist loads torch

        return ChestMnistImages(config)
    return PhantomImages(config)


def npz_name(pixels: int) -> str:
    """MedMNIST's name of ChestMNIST at ``pixels`` a side."""
    return "chestmnist.npz" if pixels == 28 else f"chestmnist_{pixels}.npz"


def data_present(config: Dataset) -> bool:
    """Whether the images can be packed on this machine without a download."""
    if isinstance(config, NihSource):
        from cxrbench.datasets.archives import found_in

        return bool(found_in(config.folder))
    if isinstance(config, ChestMnistSource):
        return (config.folder / npz_name(config.pixels)).is_file()
    return True
