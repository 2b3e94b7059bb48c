"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from __future__ import annotations

import io
import struct
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.datasets.archives import Found, found_in, read_images, unfinished_in
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.sources import Chunks, Source
from cxrbench.datasets.split import assign_split
from cxrbench.study.config import NihSource
from cxrbench.study.errors import UserError, printable

RESIZE = "Pillow BILINEAR (triangle filter widened by the reduction: antialiased, no ringing)"
FILTER = Image.Resampling.BILINEAR
_CHUNK = 8  # files that a thread decodes at a time
_AHEAD = 4  # chunks in flight per worker: this bounds memory
_MOST_PIXELS = 64 << 20  # of an image; NIH's originals have up to 12 million
_UNREADABLE = (OSError, EOFError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


class Images(Source):
    """The radiographs of a :class:`NihSource`, decoded and resized in one pass over the files."""

    config: NihSource
    findings = FINDINGS

    @staticmethod
    def present(config: NihSource) -> bool:
        return bool(found_in(config.folder))

    def chunks(self) -> Chunks:
        """Yield names and pixels: tarballs by name in their own order, then files.

        The bytes do not depend on the number of workers. Raises UserError naming the file.
        """
        self._formats: list[tuple[str, str]] = []  # mode and size of each image, in no order
        self._known = frozenset(read_nih_table()["image"])
        waiting: deque[Future[tuple[list[str], np.ndarray]]] = deque()
        # Pillow releases the interpreter lock while it decodes and resizes: threads are enough.
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            try:
                for files in self._groups():
                    waiting.append(pool.submit(self._decode_all, files))
                    if len(waiting) == _AHEAD * self.workers:
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)
        if not self._formats:
            raise UserError(f"{self.config.folder}: its tarballs hold no PNG; are they NIH's tarballs?")

    def _groups(self) -> Iterator[list[Found]]:
        """Yield files in groups: handing over small images singly would take most of the time."""
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
        images = read_images(paths, self.say)
        while group := list(islice(images, _CHUNK)):
            yield group

    def _decode_all(self, files: list[Found]) -> tuple[list[str], np.ndarray]:
        for found in files:
            if found.name not in self._known:
                raise UserError(
                    f"{found.where}: image {printable(found.name)} is not in NIH's label table; "
                    "move files that are not NIH's out of the folder"
                )
        decoded = [decode(found, self.config.pixels) for found in files]
        self._formats += [(mode, size) for _, mode, size in decoded]
        return [found.name for found in files], np.stack([pixels for pixels, _, _ in decoded])

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return the rows of NIH's label table for ``names``, in that order, with the split of each."""
        rows = read_nih_table().set_index("image").loc[names].reset_index()
        rows.insert(2, "split", assign_split(rows, self.config.split, self.config.folder))
        images = {split: int((rows["split"] == split).sum()) for split in SPLITS}
        if self.config.expect_images not in (None, {}, images):
            raise UserError(
                f"{self.config.folder}: the split gives {images} images, but the config expects "
                f"{self.config.expect_images}; is the folder complete?"
            )
        return rows

    def describe(self) -> dict[str, object]:
        modes, sizes = (Counter(values) for values in zip(*self._formats, strict=True))
        return {
            "folder": str(self.config.folder),
            "split": self.config.split,
            "resized": RESIZE,
            "source_sizes": dict(sorted(sizes.items())),
            "source_modes": dict(sorted(modes.items())),
        }


def decode(found: Found, pixels: int) -> tuple[np.ndarray, str, str]:
    """Return an image reduced to (pixels, pixels) uint8, its mode and size; UserError when it cannot be."""
    try:
        with Image.open(io.BytesIO(found.data), formats=["PNG"]) as image:
            where = f"{found.where}: {image.width} x {image.height} px"
            if min(image.size) < pixels:
                raise UserError(
                    f"{where}, less than the {pixels} px asked for; choose a smaller 'pixels' in the config"
                )
            if image.width * image.height > _MOST_PIXELS:
                raise UserError(f"{where} are too many for a radiograph; remove it")
            grey, size = _to_grey(image), (pixels, pixels)
            reduced = np.asarray(grey if grey.size == size else grey.resize(size, FILTER))
            return reduced, image.mode, f"{image.width}x{image.height}"
    except _UNREADABLE as error:
        raise UserError(f"{found.where}: not a readable PNG ({error}); fetch it again or remove it") from None


def _to_grey(image: Image.Image) -> Image.Image:
    """Return 8-bit grey: 16-bit is scaled, not clipped; colour is luminance; alpha is dropped."""
    image.load()
    if image.mode == "L":
        return image
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.float64)
        return Image.fromarray(np.rint(wide / 257).astype(np.uint8))  # 65535 / 257 = 255
    return image.convert("RGB").convert("L")
