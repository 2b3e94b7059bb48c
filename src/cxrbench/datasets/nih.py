"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from collections.abc import Iterator

import pandas as pd

from cxrbench.datasets.archives import Found, found_in, read_images, unfinished_in
from cxrbench.datasets.decoding import RESIZE, Decoded, Files, decode
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.sources import Chunks
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

    def chunks(self) -> Chunks:
        """Yield names and pixels: tarballs by name in their own order, then files."""
        self._known = frozenset(read_nih_table()["image"])
        empty = True
        for chunk in super().chunks():
            empty = False
            yield chunk
        if empty:
            raise UserError(
                f"{self.config.folder}: its tarballs hold no PNG; put NIH's archives there (data/README.md)"
            )

    def files(self) -> Iterator[Found]:
        """Yield the PNG files and members below the folder."""
        folder = self.config.folder
        if not folder.is_dir():
            raise UserError(
                f"{folder}: there is no such folder; put or link NIH's images there (data/README.md)"
            )
        if unfinished := unfinished_in(folder):
            raise UserError(
                f"{unfinished[0]}: an unfinished download; continue it (cxrbench data download), "
                "or delete this file to pack the other files"
            )
        if not (paths := found_in(folder)):
            raise UserError(f"{folder}: no PNG file and no tarball below it; put NIH's images there")
        return read_images(paths, self.say)

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
