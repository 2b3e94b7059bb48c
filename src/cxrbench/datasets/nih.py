"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both.

Reduced ones have check values: ``data/recorded/pixels/<reduction>.parquet`` has a row per image that cells
were recorded from: its name, and the CRC-32 of its pixels after the last step of the reduction.
"""

import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.common.errors import UserError, and_more, printable
from cxrbench.common.files import written_aside
from cxrbench.datasets.archives import Encoded, complete_in, found_in, read_images
from cxrbench.datasets.decoding import RESIZE, Decoded, Files, decode, in_steps, reduced
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table
from cxrbench.datasets.packed import Packed
from cxrbench.datasets.split import assign_split
from cxrbench.study.config import NihSource
from cxrbench.study.recipe import SPLITS

PUBLISHED_PIXELS = 1024  # pixels a side of NIH's own images


class Images(Files):
    """The radiographs of a :class:`NihSource`, decoded and resized in one pass over the files."""

    config: NihSource
    findings = FINDINGS

    @staticmethod
    def present(config: NihSource) -> bool:
        return bool(found_in(config.folder))

    def files(self) -> Iterator[Encoded]:
        """Yield the PNG images below the folder: tarballs by name in their own order, then files."""
        self._names = frozenset(read_nih_table()["image"])
        self._checks, self._unlike = self._recorded_values(), list[str]()
        folder = self.config.folder
        if not (paths := complete_in(folder, "put or link NIH's images there (data/README.md)")):
            raise UserError(f"{folder}: no PNG file and no tarball below it; put NIH's images there")
        images = read_images(paths, self.say)
        if (first := next(images, None)) is None:
            raise UserError(f"{folder}: its tarballs hold no PNG; put NIH's archives there (data/README.md)")
        return chain([first], images)

    def decode(self, encoded: Encoded) -> Decoded:
        """One of NIH's images."""
        if encoded.name not in self._names:
            raise UserError(
                f"{encoded.where}: image {printable(encoded.name)} is not in NIH's label table; "
                "move files that are not NIH's out of the folder"
            )
        if not self.config.steps:
            return decode(encoded, self.config.pixels)
        last, pixels = self.config.steps[-1], self.config.pixels
        image = decode(encoded, last, reduce=self._in_steps)
        if self._checks.get(encoded.name, value := check_value(image.pixels)) != value:
            self._unlike.append(encoded.name)
        if last == pixels:
            return image
        return image._replace(pixels=reduced(Image.fromarray(image.pixels), pixels))

    def _in_steps(self, grey: Image.Image, pixels: int, where: str) -> np.ndarray:
        return in_steps(grey, self.config.steps, PUBLISHED_PIXELS, where)

    def _recorded_values(self) -> dict[str, int]:
        """The check values of reduced images that cells were recorded from; none if none are known."""
        if self.recorded is None or self.config.reduced is None:
            return {}
        return read_checks(checks_file(self.recorded, self.config.reduced))

    def index(self, names: list[str]) -> pd.DataFrame:
        """The rows of NIH's label table for ``names``, in that order, with the split of each."""
        rows = read_nih_table().set_index("image").loc[names].reset_index()
        rows.insert(2, "split", assign_split(rows, self.config.split, self.config.folder))
        images = {split: int((rows["split"] == split).sum()) for split in SPLITS}
        if self.config.expect_images not in (None, {}, images):
            absent = sorted(self._checks.keys() - set(names))
            first = f"{absent[0]}{and_more(len(absent) - 1)}" if absent else ""
            which = f" ({first} of the recorded ones are missing)" if absent else ""
            raise UserError(
                f"{self.config.folder}: the split gives {images} images, but the config expects "
                f"{self.config.expect_images}{which}; complete the folder, or correct expect_images"
            )
        return rows

    def describe(self) -> dict[str, object]:
        return {
            "folder": str(self.config.folder),
            "split": self.config.split,
            "resized": f"{self.config.reduced}, then {RESIZE}" if self.config.reduced else RESIZE,
            "unlike_recorded": sorted(self._unlike),
            **self.formats(),
        }


def checks_file(recorded: Path, reduction: str) -> Path:
    """The path of the check values of a reduction, below the ``recorded`` evidence."""
    return recorded / "pixels" / f"{reduction}.parquet"


def check_value(pixels: np.ndarray) -> int:
    """The CRC-32 of an image (H x W uint8)."""
    return zlib.crc32(np.ascontiguousarray(pixels).data)


def read_checks(path: Path) -> dict[str, int]:
    """The check value of each image; nothing where no file is; UserError when it is damaged."""
    if not path.is_file():
        return {}
    try:
        table = pd.read_parquet(path)
        return dict(zip(table["image"], table["crc32"].astype(int), strict=True))
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error}); restore it with git checkout") from None


def write_checks(packed: Packed, config: NihSource, recorded: Path) -> Path:
    """Write the check values of a dataset that is packed at the size of its reduction; return the file."""
    if config.reduced is None or packed.manifest["pixels"] != config.steps[-1]:
        raise UserError(f"{packed.folder}: not as large as a reduction leaves images; name such a dataset")
    table = pd.DataFrame({"image": packed.index["image"], "crc32": map(check_value, packed.images)})
    path = checks_file(recorded, config.reduced)
    with written_aside(path) as aside:
        table.astype({"crc32": "uint32"}).to_parquet(aside, index=False, compression="zstd")
    return path
