"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.datasets.archives import Found, complete_in, found_in, read_images
from cxrbench.datasets.check_values import check_value, checks_file, read_checks
from cxrbench.datasets.decoding import RESIZE, Decoded, Files, decode, in_steps, reduced
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import assign_split
from cxrbench.study.config import NihSource
from cxrbench.study.errors import UserError, and_more, printable
from cxrbench.study.recipe import SPLITS

PUBLISHED = 1024  # pixels a side of NIH's own images


class Images(Files):
    """The radiographs of a :class:`NihSource`, decoded and resized in one pass over the files."""

    config: NihSource
    findings = FINDINGS

    @staticmethod
    def present(config: NihSource) -> bool:
        return bool(found_in(config.folder))

    def files(self) -> Iterator[Found]:
        """Yield the PNG images below the folder: tarballs by name in their own order, then files."""
        self._known = frozenset(read_nih_table()["image"])
        self._checks, self._unlike = self._recorded_values(), list[str]()
        folder = self.config.folder
        if not (paths := complete_in(folder, "put or link NIH's images there (data/README.md)")):
            raise UserError(f"{folder}: no PNG file and no tarball below it; put NIH's images there")
        images = read_images(paths, self.say)
        if (first := next(images, None)) is None:
            raise UserError(f"{folder}: its tarballs hold no PNG; put NIH's archives there (data/README.md)")
        return chain([first], images)

    def decode(self, found: Found) -> Decoded:
        """Return one of NIH's images."""
        if found.name not in self._known:
            raise UserError(
                f"{found.where}: image {printable(found.name)} is not in NIH's label table; "
                "move files that are not NIH's out of the folder"
            )
        if not self.config.steps:
            return decode(found, self.config.pixels)
        last, pixels = self.config.steps[-1], self.config.pixels
        small, mode, size = decode(found, last, reduce=self._in_steps)
        if self._checks.get(found.name, value := check_value(small)) != value:
            self._unlike.append(found.name)
        return small if last == pixels else reduced(Image.fromarray(small), pixels), mode, size

    def _in_steps(self, grey: Image.Image, pixels: int, where: str) -> np.ndarray:
        return in_steps(grey, self.config.steps, PUBLISHED, where)

    def _recorded_values(self) -> dict[str, int]:
        """Return the check values of reduced images that cells were recorded from; none if none are known."""
        if self.recorded is None or self.config.reduced is None:
            return {}
        return read_checks(checks_file(self.recorded, self.config.reduced))

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return the rows of NIH's label table for ``names``, in that order, with the split of each."""
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
