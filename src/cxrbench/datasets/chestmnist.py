"""ChestMNIST: ChestX-ray14 as MedMNIST reduced it, read with the medmnist package.

MedMNIST v2 (Yang et al., Scientific Data 2023) gives the part of each image, but not its patient:
``patient``, ``view``, ``sex`` and ``age`` are empty in the index, and intervals are by image.
"""

from __future__ import annotations

import hashlib
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.sources import Chunks, Source
from cxrbench.study.config import ChestMnistSource
from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    from medmnist import ChestMNIST

_CHUNK = 1024  # images
_NAMES = {"pleural": "Pleural_Thickening"}  # MedMNIST's other spelling
_UNKNOWN = {"patient": "Int64", "view": "string", "sex": "string", "age": "Int16"}
_DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class Images(Source):
    """The images of a :class:`ChestMnistSource`: training, validation and test part, each in its own order.

    The medmnist package reads a part as a whole: at 224 px the training part takes 3.9 GB of memory.
    """

    config: ChestMnistSource
    findings = FINDINGS

    @staticmethod
    def present(config: ChestMnistSource) -> bool:
        return _npz(config).is_file()

    def chunks(self) -> Chunks:
        """Yield names and pixels as in the file; UserError when it is not ChestMNIST at this size."""
        self._refuse_other_files()
        self._labels: list[np.ndarray] = []
        for part in SPLITS:
            data = self._read(part)
            self._labels.append(data.labels.astype(np.uint8))
            for start in range(0, len(data.imgs), _CHUNK):
                images = data.imgs[start : start + _CHUNK]
                yield [f"chestmnist_{part}_{start + k:05}" for k in range(len(images))], images

    def _refuse_other_files(self) -> None:
        """Refuse no file, and one that unpacks to more than ChestMNIST before anything is unpacked."""
        path, images = _npz(self.config), sum(_info()["n_samples"].values())
        if not path.is_file():
            raise UserError(
                f"{path}: there is no such file; fetch it with `cxrbench data download chestmnist "
                f"--only {path.name} --folder {path.parent}`"
            )
        most = images * (self.config.pixels**2 + 8 * len(FINDINGS)) + (1 << 20)  # labels may be int64
        try:
            with zipfile.ZipFile(path) as archive:
                size = sum(entry.file_size for entry in archive.infolist())
        except _DAMAGED as error:
            raise self._wrong(f"damaged ({error})") from None
        if size > most:
            raise self._wrong(f"it unpacks to {size:,} bytes")

    def _read(self, part: str) -> ChestMNIST:
        from medmnist import ChestMNIST

        pixels, expected = self.config.pixels, _info()["n_samples"][part]
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
        path = _npz(self.config)
        return UserError(
            f"{path}: {what}: not ChestMNIST at {self.config.pixels} px; see what is wrong with "
            f"`cxrbench data verify chestmnist --only {path.name} --folder {path.parent}`"
        )

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return names, parts and labels in NIH's spelling; what MedMNIST does not publish is empty."""
        spelt = [_info()["label"][str(k)] for k in range(len(FINDINGS))]
        columns = [_NAMES.get(name, name.capitalize()) for name in spelt]
        if set(columns) != set(FINDINGS):
            raise UserError(f"medmnist names other findings than NIH: {spelt}; install medmnist 3.0.2")
        labels = pd.DataFrame(np.concatenate(self._labels), columns=columns)
        index = pd.DataFrame({"image": names}).assign(split=lambda rows: rows["image"].str.split("_").str[1])
        for column, kind in _UNKNOWN.items():
            index[column] = pd.Series(pd.NA, index.index, dtype=kind)
        return pd.concat([index, labels], axis=1)[
            ["image", "patient", "split", "view", "sex", "age", *FINDINGS]
        ]

    def describe(self) -> dict[str, object]:
        path = _npz(self.config)
        with open(path, "rb") as file:
            md5 = hashlib.file_digest(file, "md5").hexdigest()
        return {
            "file": str(path),
            "md5": md5,
            "as_published": md5 == _info()[f"MD5{path.stem.removeprefix('chestmnist')}"],
            "split": "MedMNIST's; the sizes of its parts are those of chexnet",
            "resized": "by MedMNIST from 1024 px; not resized again",
            "patients_known": False,
        }


def _npz(config: ChestMnistSource) -> Path:
    size = "" if config.pixels == 28 else f"_{config.pixels}"
    return config.folder / f"chestmnist{size}.npz"


def _info() -> dict[str, Any]:
    try:
        from medmnist import INFO
    except ImportError:
        raise UserError("medmnist is not installed; it reads ChestMNIST: run `make setup`") from None
    info: dict[str, Any] = INFO["chestmnist"]
    return info
