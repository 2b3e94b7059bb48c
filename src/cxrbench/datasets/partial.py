"""What a packing run has made so far, in a hidden folder: it outlives a kill, and the next run goes on.

Images, their names and their moments are appended to three files; now and then these are put on the disk for
good and ``progress.json`` says up to where they count. What was written after that is cut off on resuming.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from cxrbench.datasets.sources import Made
from cxrbench.files import write_json

_EVERY = 2048  # images between two points from which a later run can go on
_PROGRESS = "progress.json"


class Partial:
    """The growing parts of a packed dataset below ``folder``, for images of ``pixels`` a side."""

    def __init__(self, folder: Path, pixels: int, key: str | None) -> None:
        self.folder, self.pixels, self.key = folder, pixels, key
        self.made: list[Made] = []
        self.images = folder / "images"
        self._made, self._moments = folder / "made.jsonl", folder / "moments.f8"
        self._safe = 0

    def resume(self, keep: Callable[[list[Made]], int]) -> None:
        """Take up what an earlier run left as far as ``keep`` says it still holds; else begin anew."""
        made = self._left()
        count = min(keep(made), self._held()) if made else 0
        if count == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self.images.write_bytes(npy_header(0, self.pixels))
            self._made.touch()
            self._moments.touch()
            return
        self.made, self._safe = made[:count], count
        os.truncate(self.images, len(npy_header(0, self.pixels)) + count * self.pixels**2)
        os.truncate(self._moments, count * 16)
        os.truncate(self._made, len(_lines(self.made)))

    def _left(self) -> list[Made]:
        try:
            progress = json.loads((self.folder / _PROGRESS).read_text(encoding="utf-8"))
            if self.key is None or progress["key"] != self.key:
                return []
            with open(self._made, encoding="utf-8") as lines:
                return [Made(*json.loads(line)) for line in islice(lines, progress["images"])]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def _held(self) -> int:
        """How many images both files of numbers have, whatever progress.json says."""
        header = len(npy_header(0, self.pixels))
        images = (self.images.stat().st_size - header) // self.pixels**2
        return max(0, min(images, self._moments.stat().st_size // 16))

    def append(self, made: list[Made], images: np.ndarray) -> None:
        """Add n images (n x H x W uint8)."""
        squares = np.square(images, dtype=np.uint16).mean(axis=(1, 2))
        moments = np.stack([images.mean(axis=(1, 2)), squares], axis=1)
        # Plain writes, not a memory map: a full disk must be an error, not a killed process.
        for path, data in (
            (self.images, np.ascontiguousarray(images).data),
            (self._moments, moments.data),
            (self._made, _lines(made)),
        ):
            with open(path, "ab") as file:
                file.write(data)
        self.made += made
        if self.key is not None and len(self.made) - self._safe >= _EVERY:
            self._checkpoint()

    def _checkpoint(self) -> None:
        for path in (self.images, self._moments, self._made):
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        write_json(self.folder / _PROGRESS, {"key": self.key, "images": len(self.made)})
        self._safe = len(self.made)

    def finish(self) -> np.ndarray:
        """Complete the header of the images; returns (mean, mean square) pixel of each (n x 2)."""
        if self._safe:
            self._checkpoint()
        with open(self.images, "r+b") as file:
            file.write(npy_header(len(self.made), self.pixels))
        return np.fromfile(self._moments).reshape(-1, 2)

    def tidy(self) -> None:
        """Remove what only a later run would need."""
        for path in (self.folder / _PROGRESS, self._made, self._moments):
            path.unlink(missing_ok=True)

    def abandon(self) -> int:
        """After a failure: keep what a later run can use, and say how many images that is."""
        if self._safe == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            with suppress(OSError):  # on a full disk, the last point that was secured stays
                self._checkpoint()
        return self._safe


def npy_header(count: int, pixels: int) -> bytes:
    """An .npy header; numpy pads it so that its length does not depend on ``count``."""
    header = io.BytesIO()
    shape = (count, pixels, pixels)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return header.getvalue()


def _lines(made: list[Made]) -> bytes:
    return "".join(json.dumps(one) + "\n" for one in made).encode()
