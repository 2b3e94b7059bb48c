"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.config import NihSource
from cxrbench.cores import cores
from cxrbench.datasets.archives import Found, found_in, read_images, stamp, unfinished_in
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.png import decode_grey
from cxrbench.datasets.sources import Chunks, Made
from cxrbench.datasets.split import assign_split
from cxrbench.errors import UserError
from cxrbench.files import sha256_json

RESIZE = "Pillow BILINEAR (triangle filter widened by the reduction: antialiased, no ringing)"
FILTER = Image.Resampling.BILINEAR
_CHUNK_BYTES = 8 << 20  # of images handed on at a time
_TASK_BYTES, _TASK_FILES = 256 << 10, 32  # of files given to a thread at a time, at most
_AHEAD = 4  # tasks in flight per worker: with the chunk, what bounds memory
_MOST_PIXELS = 64 << 20  # of one image; NIH's originals have up to 12 million


class NihImages:
    """The radiographs of a :class:`NihSource`, decoded and resized in one pass over the files."""

    def __init__(self, config: NihSource, workers: int | None = None) -> None:
        self.config = config
        self.workers = workers or cores()
        self.paths = found_in(config.folder)
        self._known = frozenset(read_nih_table()["image"])
        if not config.folder.is_dir():
            raise UserError(
                f"{config.folder}: there is no such folder; put or link NIH's images there (data/README.md)"
            )
        if unfinished := unfinished_in(config.folder):
            raise UserError(
                f"{unfinished[0]}: a download that is not finished; go on with it (cxrbench data download), "
                "or delete this file to pack what is there"
            )
        if not self.paths:
            raise UserError(f"{config.folder}: no PNG file and no tarball below it; put NIH's images there")

    def key(self) -> str:
        return sha256_json([RESIZE, self.config.pixels, [str(path) for path in self.paths]])

    def keep(self, made: list[Made]) -> int:
        """Images up to the first whose file has changed since."""
        marks = {str(path): stamp(path) for path in self.paths}
        changed = (k for k, one in enumerate(made) if marks.get(one.file) != one.stamp)
        return next(changed, len(made))

    def chunks(self, done: list[Made]) -> Chunks:
        """(what was made, uint8 n x pixels x pixels): tarballs by name in their own order, then files.

        The bytes do not depend on the number of workers. Memory stays flat: a few megabytes per worker are
        in flight. Raises UserError naming the file.
        """
        made: list[Made] = []
        images: list[np.ndarray] = []
        chunk, total = max(1, min(256, _CHUNK_BYTES // self.config.pixels**2)), len(done)
        for one, image in self._decoded(read_images(self.paths, done)):
            made.append(one)
            images.append(image)
            total += 1
            if len(made) == chunk:
                yield made, np.stack(images)
                made, images = [], []
        if made:
            yield made, np.stack(images)
        if total == 0:
            raise UserError(f"{self.config.folder}: its tarballs hold no PNG; are they NIH's tarballs?")

    def _decoded(self, files: Iterator[Found]) -> Iterator[tuple[Made, np.ndarray]]:
        waiting: deque[Future[list[tuple[Made, np.ndarray]]]] = deque()
        # Pillow releases the interpreter lock while it decodes and resizes: threads are enough.
        with ThreadPoolExecutor(max_workers=self.workers) as pool:
            try:
                for some in self._tasks(files):
                    waiting.append(pool.submit(self._decode_all, some))
                    if len(waiting) == _AHEAD * self.workers:
                        yield from waiting.popleft().result()
                while waiting:
                    yield from waiting.popleft().result()
            finally:
                pool.shutdown(cancel_futures=True)

    def _tasks(self, files: Iterator[Found]) -> Iterator[list[Found] | UserError]:
        """Files in groups that are worth handing to a thread: small images would be all hand-over.

        What is wrong with a file comes as the last task, after all images before it.
        """
        some: list[Found] = []
        size = 0
        try:
            for found in files:
                self._must_be_known(found)
                some.append(found)
                size += len(found.data)
                if size >= _TASK_BYTES or len(some) == _TASK_FILES:
                    yield some
                    some, size = [], 0
        except UserError as error:
            yield some
            yield error
            return
        yield some

    def _must_be_known(self, found: Found) -> None:
        if found.name not in self._known:
            raise UserError(
                f"{found.where}: image {found.name} is not in NIH's label table; "
                "move files that are not NIH's out of the folder"
            )

    def _decode_all(self, some: list[Found] | UserError) -> list[tuple[Made, np.ndarray]]:
        if isinstance(some, UserError):
            raise some
        return [self.decode(found) for found in some]

    def decode(self, found: Found) -> tuple[Made, np.ndarray]:
        """One image, decoded and reduced; UserError naming it when it cannot be."""
        pixels = decode_grey(found.data, _MOST_PIXELS)
        if pixels is not None:
            return self._made(found, Image.fromarray(pixels))
        try:
            with Image.open(io.BytesIO(found.data), formats=["PNG"]) as image:
                self._must_fit(image, found.where)
                image.load()
                return self._made(found, image)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(
                f"{found.where}: not a readable PNG ({error}); fetch it again or remove it"
            ) from None

    def _made(self, found: Found, image: Image.Image) -> tuple[Made, np.ndarray]:
        self._must_fit(image, found.where)
        made = Made(found.name, image.mode, f"{image.width}x{image.height}", found.file, found.stamp)
        return made, self._reduced(image)

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
        """Rows of NIH's label table for ``names``, in that order, with the split of each."""
        rows = read_nih_table().set_index("image").loc[names].reset_index()
        rows.insert(2, "split", assign_split(rows, self.config.split, self.config.folder))
        return rows

    def describe(self, made: list[Made]) -> dict[str, object]:
        """What the manifest says of the pixels; formats other than L were converted."""
        return {
            "folder": str(self.config.folder),
            "split": self.config.split,
            "resized": RESIZE,
            "source_sizes": dict(sorted(Counter(one.size for one in made).items())),
            "source_modes": dict(sorted(Counter(one.mode for one in made).items())),
        }


def to_grey(image: Image.Image) -> Image.Image:
    """8-bit grey: 16-bit is scaled, not clipped; palette and colour by luminance; alpha is dropped."""
    if image.mode == "L":
        return image
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.float64)
        return Image.fromarray(np.rint(wide / 257).astype(np.uint8))  # 65535 / 257 = 255
    return image.convert("RGB").convert("L")
