"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from __future__ import annotations

import io
import struct
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.datasets.archives import Found, found_in, read_images, unfinished_in
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.sources import Chunks
from cxrbench.datasets.split import assign_split
from cxrbench.study.config import NihSource
from cxrbench.study.cores import cores
from cxrbench.study.errors import UserError, printable

RESIZE = "Pillow BILINEAR (triangle filter widened by the reduction: antialiased, no ringing)"
FILTER = Image.Resampling.BILINEAR
_CHUNK_BYTES, _CHUNK_FILES = 256 << 10, 32  # of files decoded by a thread at a time, at most
_AHEAD = 4  # chunks in flight per worker: this bounds memory
_MOST_PIXELS = 64 << 20  # of an image; NIH's originals have up to 12 million
_UNREADABLE = (OSError, EOFError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)


class NihImages:
    """The radiographs of a :class:`NihSource`, decoded and resized in one pass over the files."""

    findings = FINDINGS

    def __init__(
        self, config: NihSource, workers: int | None = None, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.config, self.workers, self.say = config, workers or cores(), say
        self.paths = found_in(config.folder)
        self._formats: list[tuple[str, str]] = []  # mode and size of each image, in no order
        if not config.folder.is_dir():
            raise UserError(
                f"{config.folder}: there is no such folder; put or link NIH's images there (data/README.md)"
            )
        if unfinished := unfinished_in(config.folder):
            raise UserError(
                f"{printable(unfinished[0])}: an unfinished download; continue it (cxrbench data download), "
                "or delete this file to pack the other files"
            )
        if not self.paths:
            raise UserError(f"{config.folder}: no PNG file and no tarball below it; put NIH's images there")

    @staticmethod
    def present(config: NihSource) -> bool:
        """Whether the folder has any image or tarball."""
        return bool(found_in(config.folder))

    def chunks(self) -> Chunks:
        """Names and pixels: tarballs by name in their own order, then files.

        The bytes do not depend on the number of workers. Raises UserError naming the file.
        """
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
        """Files in groups: for small images, handing them over singly would take most of the time."""
        known = frozenset(read_nih_table()["image"])
        group: list[Found] = []
        for found in read_images(self.paths, self.say):
            if found.name not in known:
                raise UserError(
                    f"{found.where}: image {printable(found.name)} is not in NIH's label table; "
                    "move files that are not NIH's out of the folder"
                )
            group.append(found)
            if len(group) == _CHUNK_FILES or sum(len(f.data) for f in group) >= _CHUNK_BYTES:
                yield group
                group = []
        if group:
            yield group

    def _decode_all(self, files: list[Found]) -> tuple[list[str], np.ndarray]:
        return [found.name for found in files], np.stack([self.decode(found) for found in files])

    def decode(self, found: Found) -> np.ndarray:
        """Decode and reduce an image; UserError naming it when that is impossible."""
        try:
            with Image.open(io.BytesIO(found.data), formats=["PNG"]) as image:
                self._must_fit(image, found.where)
                image.load()
                self._formats.append((image.mode, f"{image.width}x{image.height}"))
                return self._reduced(image)
        except _UNREADABLE as error:
            raise UserError(
                f"{found.where}: not a readable PNG ({error}); fetch it again or remove it"
            ) from None

    def _must_fit(self, image: Image.Image, where: str) -> None:
        if min(image.size) < (pixels := self.config.pixels):
            raise UserError(
                f"{where}: {image.width} x {image.height} px, less than the {pixels} px asked for; "
                "choose a smaller 'pixels' in the config"
            )
        if image.width * image.height > _MOST_PIXELS:
            raise UserError(
                f"{where}: {image.width} x {image.height} px are too many for a radiograph; remove it"
            )

    def _reduced(self, image: Image.Image) -> np.ndarray:
        grey, size = to_grey(image), (self.config.pixels, self.config.pixels)
        return np.asarray(grey if grey.size == size else grey.resize(size, FILTER))

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return the rows of NIH's label table for ``names``, in that order, with the split of each."""
        rows = read_nih_table().set_index("image").loc[names].reset_index()
        rows.insert(2, "split", assign_split(rows, self.config.split, self.config.folder))
        return rows

    def describe(self) -> dict[str, object]:
        """Return the manifest's entries about the pixels; modes other than L were converted."""
        modes, sizes = (Counter(values) for values in zip(*self._formats, strict=True))
        return {
            "folder": str(self.config.folder),
            "split": self.config.split,
            "resized": RESIZE,
            "source_sizes": dict(sorted(sizes.items())),
            "source_modes": dict(sorted(modes.items())),
        }


def to_grey(image: Image.Image) -> Image.Image:
    """8-bit grey: 16-bit is scaled, not clipped; palette and colour by luminance; alpha is dropped."""
    if image.mode == "L":
        return image
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.float64)
        return Image.fromarray(np.rint(wide / 257).astype(np.uint8))  # 65535 / 257 = 255
    return image.convert("RGB").convert("L")
