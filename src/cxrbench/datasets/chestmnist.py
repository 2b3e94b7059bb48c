"""ChestMNIST: ChestX-ray14 as MedMNIST reduced it, read with the medmnist package.

MedMNIST v2 (Yang et al., Scientific Data 2023) says which part an image is in, and not which patient it
shows: ``patient``, ``view``, ``sex`` and ``age`` are empty in the index, and intervals are by image.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cxrbench.config import ChestMnistSource
from cxrbench.datasets.download import digest_of
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.sources import Chunks, Made, npz_name
from cxrbench.errors import UserError

if TYPE_CHECKING:
    from medmnist import ChestMNIST

_CHUNK = 1024  # images
_NAMES = {"pleural": "Pleural_Thickening"}  # the one label that MedMNIST spells otherwise


class ChestMnistImages:
    """The images of a :class:`ChestMnistSource`: training, validation and test part, each in its own order.

    The medmnist package reads a part as a whole: at 224 px the training part takes 3.9 GB of memory.
    """

    def __init__(self, config: ChestMnistSource) -> None:
        self.config = config
        self.path = config.folder / npz_name(config.pixels)
        self._info = _info()
        if not self.path.is_file():
            raise UserError(
                f"{self.path}: there is no such file; fetch it with `cxrbench data download chestmnist "
                f"--only {self.path.name} --folder {config.folder}`"
            )
        self._labels: list[np.ndarray] = []
        self._parts: list[str] = []

    def key(self) -> None:
        """Nothing is decoded: packing takes seconds."""

    def keep(self, made: list[Made]) -> int:
        return 0

    def chunks(self, done: list[Made]) -> Chunks:
        """Images as they are in the file; UserError when it is not ChestMNIST at this size."""
        for part in SPLITS:
            data = self._read(part)
            self._labels.append(data.labels.astype(np.uint8))
            self._parts += [part] * len(data.imgs)
            for start in range(0, len(data.imgs), _CHUNK):
                images = data.imgs[start : start + _CHUNK]
                yield [Made(f"chestmnist_{part}_{start + k:05}") for k in range(len(images))], images

    def _read(self, part: str) -> ChestMNIST:
        from medmnist import ChestMNIST

        pixels, expected = self.config.pixels, self._info["n_samples"][part]
        try:
            data = ChestMNIST(split=part, root=str(self.config.folder), size=pixels)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
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
        """Names, parts and labels; what MedMNIST does not tell is empty."""
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

    def describe(self, made: list[Made]) -> dict[str, object]:
        """Where the pixels come from, and whether the file is the published one."""
        md5 = digest_of(self.path, "md5")
        flag = self.path.stem.removeprefix("chestmnist")
        return {
            "file": str(self.path),
            "md5": md5,
            "as_published": md5 == self._info[f"MD5{flag}"],
            "split": "MedMNIST's; the sizes of its parts are those of chexnet",
            "resized": "by MedMNIST from 1024 px; not resized again",
            "patients_known": False,
        }


def _info() -> dict:
    try:
        from medmnist import INFO
    except ImportError:
        raise UserError("medmnist is not installed; it reads ChestMNIST: run `make setup`") from None
    info: dict = INFO["chestmnist"]
    return info
