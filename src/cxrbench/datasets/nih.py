"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from collections.abc import Iterator
from itertools import chain

import pandas as pd

from cxrbench.datasets.archives import Found, complete_in, found_in, read_images
from cxrbench.datasets.decoding import RESIZE, Decoded, Files, decode
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import assign_split
from cxrbench.study.config import NihSource
from cxrbench.study.errors import UserError, printable


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
        return decode(found, self.config.pixels)

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return the rows of NIH's label table for ``names``, in that order, with the split of each."""
        rows = read_nih_table().set_index("image").loc[names].reset_index()
        rows.insert(2, "split", assign_split(rows, self.config.split, self.config.folder))
        images = {split: int((rows["split"] == split).sum()) for split in SPLITS}
        if self.config.expect_images not in (None, {}, images):
            raise UserError(
                f"{self.config.folder}: the split gives {images} images, but the config expects "
                f"{self.config.expect_images}; complete the folder, or correct expect_images"
            )
        return rows

    def describe(self) -> dict[str, object]:
        return {
            "folder": str(self.config.folder),
            "split": self.config.split,
            "resized": RESIZE,
            **self.formats(),
        }
