"""ChestMNIST: ChestX-ray14 as MedMNIST reduced it, read with the medmnist package.

MedMNIST v2 (Yang et al., Scientific Data 2023) gives the part of each image, but not its patient:
``patient``, ``view``, ``sex`` and ``age`` are empty in the index, and intervals are by image.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.sources import Chunks
from cxrbench.study.config import ChestMnistSource
from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    from medmnist import ChestMNIST

_CHUNK = 1024  # images
_NAMES = {"pleural": "Pleural_Thickening"}  # MedMNIST's other spelling
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class ChestMnistImages:
    """The images of a :class:`ChestMnistSource`: training, validation and test part, each in its own order.

    The medmnist package reads a part as a whole: at 224 px the training part takes 3.9 GB of memory.
    """

    findings = FINDINGS

    def __init__(
        self, config: ChestMnistSource, workers: int | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        self.config, self.path = config, _npz(config)
        self._info = _info()
        if not self.path.is_file():
            raise UserError(
                f"{self.path}: there is no such file; fetch it with `cxrbench data download chestmnist "
                f"--only {self.path.name} --folder {config.folder}`"
            )
        self._labels: list[np.ndarray] = []
        self._parts: list[str] = []

    @staticmethod
    def present(config: ChestMnistSource) -> bool:
        """Whether MedMNIST's file of this size is there."""
        return _npz(config).is_file()

    def chunks(self) -> Chunks:
        """Names and pixels as in the file; UserError when it is not ChestMNIST at this size."""
        self._must_not_be_larger()
        for part in SPLITS:
            data = self._read(part)
            self._labels.append(data.labels.astype(np.uint8))
            self._parts += [part] * len(data.imgs)
            for start in range(0, len(data.imgs), _CHUNK):
                images = data.imgs[start : start + _CHUNK]
                yield [f"chestmnist_{part}_{start + k:05}" for k in range(len(images))], images

    def _must_not_be_larger(self) -> None:
        """Refuse a file that unpacks to more than ChestMNIST before anything is unpacked."""
        images = sum(self._info["n_samples"].values())
        most = images * (self.config.pixels**2 + 8 * len(FINDINGS)) + (1 << 20)  # labels may be int64
        try:
            with zipfile.ZipFile(self.path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except _DAMAGED as error:
            raise self._wrong(f"damaged ({error})") from None
        if size > most:
            raise self._wrong(f"it unpacks to {size:,} bytes")

    def _read(self, part: str) -> ChestMNIST:
        from medmnist import ChestMNIST

        pixels, expected = self.config.pixels, self._info["n_samples"][part]
        try:
            data = ChestMNIST(split=part, root=str(self.config.folder), size=pixels)
        except _DAMAGED as error:
            raise self._wrong(f"damaged ({error})") from None
        if data.imgs.shape != (expected, pixels, pixels) or data.imgs.dtype != np.uint8:
            raise self._wrong(f"its {part} images are {data.imgs.dtype} {data.imgs.shape}")
        if data.labels.shape != (expected, len(FINDINGS)) or not np.isin(data.labels, (0, 1)).all():
            raise self._wrong(f"its {part} labels are {data.labels.shape}, not fourteen of 0 or 1 per image")
        return data

    def _wrong(self, what: str) -> UserError:
        return UserError(
            f"{self.path}: {what}: not ChestMNIST at {self.config.pixels} px; see what is wrong with "
            f"`cxrbench data verify chestmnist --only {self.path.name} --folder {self.config.folder}`"
        )

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return names, parts and labels; columns that MedMNIST does not publish are empty."""
        labels = pd.DataFrame(np.concatenate(self._labels), columns=self._columns())
        unknown = pd.Series([pd.NA] * len(names))
        known = pd.DataFrame(
            {
                "image": names,
                "patient": unknown.astype("Int64"),
                "split": self._parts,
                "view": unknown.astype("string"),
                "sex": unknown.astype("string"),
                "age": unknown.astype("Int16"),
            }
        )
        return pd.concat([known, labels[list(FINDINGS)]], axis=1)

    def _columns(self) -> list[str]:
        """NIH's spelling of MedMNIST's labels, in MedMNIST's order."""
        spelt = [self._info["label"][str(k)] for k in range(len(FINDINGS))]
        columns = [_NAMES.get(name, name.capitalize()) for name in spelt]
        if set(columns) != set(FINDINGS):
            raise UserError(f"medmnist names other findings than NIH: {spelt}; install medmnist 3.0.2")
        return columns

    def describe(self) -> dict[str, object]:
        """Return where the pixels come from, and whether the file is the published one."""
        with open(self.path, "rb") as file:
            md5 = hashlib.file_digest(file, "md5").hexdigest()
        return {
            "file": str(self.path),
            "md5": md5,
            "as_published": md5 == self._info[f"MD5{self.path.stem.removeprefix('chestmnist')}"],
            "split": "MedMNIST's; the sizes of its parts are those of chexnet",
            "resized": "by MedMNIST from 1024 px; not resized again",
            "patients_known": False,
        }


def _npz(config: ChestMnistSource) -> Path:
    size = "" if config.pixels == 28 else f"_{config.pixels}"
    return config.folder / f"chestmnist{size}.npz"


def _info() -> dict:
    try:
        from medmnist import INFO
    except ImportError:
        raise UserError("medmnist is not installed; it reads ChestMNIST: run `make setup`") from None
    info: dict = INFO["chestmnist"]
    return info
