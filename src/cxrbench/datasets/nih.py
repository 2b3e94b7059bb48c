"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both."""

from __future__ import annotations

import io
import os
import tarfile
import zlib
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.config import NihSource
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.split import assign_split
from cxrbench.errors import UserError

RESIZE = "Pillow BILINEAR (triangle filter widened by the reduction: antialiased, no ringing)"
_TARBALLS = (".tar", ".tar.gz", ".tgz", ".gz")
_CHUNK, _AHEAD = 256, 512  # images per chunk written, images in flight: what bounds memory


class NihImages:
    """The radiographs of a :class:`NihSource`, decoded and resized in one pass over the files."""

    def __init__(self, config: NihSource) -> None:
        self.config = config
        self.modes: Counter[str] = Counter()  # pixel formats met; anything but L was converted
        self.sizes: Counter[str] = Counter()

    def chunks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """(names, uint8 images of n x pixels x pixels): tarballs by name in their own order, then files.

        Memory stays flat: at most a few hundred files are in flight. Raises UserError naming the file.
        """
        names: list[str] = []
        images: list[np.ndarray] = []
        for name, image in self._decoded(_files(self.config.folder)):
            names.append(name)
            images.append(image)
            if len(names) == _CHUNK:
                yield names, np.stack(images)
                names, images = [], []
        if names:
            yield names, np.stack(images)

    def _decoded(self, files: Iterable[tuple[str, str, bytes]]) -> Iterator[tuple[str, np.ndarray]]:
        waiting: deque[tuple[str, Future[np.ndarray]]] = deque()
        # Pillow releases the interpreter lock while it decodes and resizes: threads are enough.
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for name, where, data in files:
                waiting.append((name, pool.submit(self._decode, where, data)))
                if len(waiting) == _AHEAD:
                    name, future = waiting.popleft()
                    yield name, future.result()
            for name, future in waiting:
                yield name, future.result()

    def _decode(self, where: str, data: bytes) -> np.ndarray:
        pixels = self.config.pixels
        try:
            with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
                image.load()
                self.modes[image.mode] += 1
                self.sizes[f"{image.width}x{image.height}"] += 1
                if min(image.size) < pixels:
                    raise UserError(
                        f"{where}: {image.width} x {image.height} px, less than the {pixels} px asked for; "
                        "choose a smaller 'pixels' in the config"
                    )
                grey = _to_grey(image)
                if grey.size != (pixels, pixels):
                    grey = grey.resize((pixels, pixels), Image.Resampling.BILINEAR)
                return np.asarray(grey)
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(f"{where}: not a readable PNG ({error}); fetch it again or remove it") from None

    def index(self, names: list[str]) -> pd.DataFrame:
        """Rows of NIH's label table for ``names``, in that order, with the split of each."""
        table = read_nih_table().set_index("image")
        if unknown := [name for name in names if name not in table.index]:
            raise UserError(
                f"{self.config.folder}: image {unknown[0]} ({len(unknown)} in all) is not in NIH's label "
                "table; move files that are not NIH's out of the folder"
            )
        rows = table.loc[names].reset_index()
        rows.insert(2, "split", assign_split(rows, self.config.split, self.config.folder))
        return rows

    def describe(self) -> dict[str, object]:
        """What the manifest says of the pixels; complete after :meth:`chunks` ran to its end."""
        return {
            "folder": str(self.config.folder),
            "split": self.config.split,
            "resized": RESIZE,
            "source_sizes": dict(sorted(self.sizes.items())),
            "source_modes": dict(sorted(self.modes.items())),
        }


def present(config: NihSource) -> bool:
    """Whether the folder is there and holds an image or a tarball."""
    return config.folder.is_dir() and next(_paths(config.folder), None) is not None


def _paths(folder: Path) -> Iterator[Path]:
    """PNG files and tarballs below ``folder``."""
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.lower().endswith((".png", *_TARBALLS)):
                yield Path(root) / name


def _files(folder: Path) -> Iterator[tuple[str, str, bytes]]:
    """(image name, where it lies, bytes) of every PNG: tarballs first, each once."""
    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; put or link NIH's images there (data/README.md)")
    paths = list(_paths(folder))
    if not paths:
        raise UserError(f"{folder}: no PNG file and no tarball below it; put NIH's images there")
    tarballs = [p for p in paths if p.suffix.lower() != ".png"]
    seen: dict[str, str] = {}
    loose = ((p.name, str(p), p.read_bytes()) for p in paths if p.suffix.lower() == ".png")
    for name, where, data in _chain(map(_members, tarballs), loose):
        if name in seen:
            raise UserError(f"{where}: image {name} was already read from {seen[name]}; keep one of them")
        seen[name] = where
        yield name, where, data
    if not seen:
        raise UserError(f"{folder}: its tarballs hold no PNG; are they NIH's images_*.tar.gz?")


def _chain(
    tarballs: Iterable[Iterator[tuple[str, str, bytes]]], loose: Iterator[tuple[str, str, bytes]]
) -> Iterator[tuple[str, str, bytes]]:
    for members in tarballs:
        yield from members
    yield from loose


def _members(tarball: Path) -> Iterator[tuple[str, str, bytes]]:
    """The PNG members of a tarball, streamed; nothing is unpacked to disk."""
    try:
        with tarfile.open(tarball, mode="r|*") as archive:
            for member in archive:
                if member.isfile() and member.name.lower().endswith(".png"):
                    file = archive.extractfile(member)
                    assert file is not None  # isfile() members always have content
                    yield Path(member.name).name, f"{tarball}:{member.name}", file.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise UserError(
            f"{tarball}: damaged tarball ({error}); fetch it again and compare its md5 (data/README.md)"
        ) from None


def _to_grey(image: Image.Image) -> Image.Image:
    """8-bit grey: 16-bit is scaled, not clipped; palette and colour by luminance; alpha is dropped."""
    if image.mode == "L":
        return image
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.float64)
        return Image.fromarray(np.rint(wide / 257).astype(np.uint8))  # 65535 / 257 = 255
    return image.convert("RGB").convert("L")
