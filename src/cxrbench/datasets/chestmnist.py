"""ChestMNIST: ChestX-ray14 as MedMNIST reduced it, read with the medmnist package.

MedMNIST v2 (Yang et al., Scientific Data 2023) gives the part of each image, but not its patient:
``patient``, ``view``, ``sex`` and ``age`` are empty in the index, and intervals are by image.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.datasets.packed import Chunks, ImageSource
from cxrbench.study.config import ChestMnistSource
from cxrbench.study.recipe import SPLITS

_CHUNK = 1024  # images
_NAMES = {"pleural": "Pleural_Thickening"}  # MedMNIST's other spelling
_UNKNOWN = {"patient": "Int64", "view": "string", "sex": "string", "age": "Int16"}


class Images(ImageSource):
    """The images of a :class:`ChestMnistSource`: training, validation and test part, each in its own order.

    The medmnist package reads a part as a whole: at 224 px the training part takes 3.9 GB of memory.
    """

    config: ChestMnistSource
    findings = FINDINGS

    @staticmethod
    def present(config: ChestMnistSource) -> bool:
        return _npz(config).is_file()

    def chunks(self) -> Chunks:
        """Yield names and pixels as in the file; UserError when it is not the published one."""
        self._refuse_other_files()
        from medmnist import ChestMNIST

        self._labels: list[np.ndarray] = []
        for part in SPLITS:
            data = ChestMNIST(split=part, root=str(self.config.folder), size=self.config.pixels)
            self._labels.append(data.labels.astype(np.uint8))
            for start in range(0, len(data.imgs), _CHUNK):
                images = data.imgs[start : start + _CHUNK]
                yield [f"chestmnist_{part}_{start + k:05}" for k in range(len(images))], images

    def _refuse_other_files(self) -> None:
        """Refuse an absent file, and any but the published one before a byte of it is unpacked."""
        path = _npz(self.config)
        where = f"chestmnist --only {path.name} --folder {path.parent}`"
        if not path.is_file():
            raise UserError(f"{path}: there is no such file; fetch it with `cxrbench data download {where}")
        with open(path, "rb") as file:
            self.md5 = hashlib.file_digest(file, "md5").hexdigest()
        if self.md5 != _info()[f"MD5{path.stem.removeprefix('chestmnist')}"]:
            raise UserError(
                f"{path}: damaged, or not ChestMNIST at {self.config.pixels} px as it was published (its md5 "
                f"is {self.md5}); fetch it again with `cxrbench data download --repair {where}"
            )

    def index(self, names: list[str]) -> pd.DataFrame:
        """Names, parts and labels in NIH's spelling; what MedMNIST does not publish is empty."""
        spelt = [_info()["label"][str(k)] for k in range(len(FINDINGS))]
        columns = [_NAMES.get(name, name.capitalize()) for name in spelt]
        if set(columns) != set(FINDINGS):
            raise UserError(f"medmnist names other findings than NIH: {spelt}; install medmnist 3.0.2")
        labels = pd.DataFrame(np.concatenate(self._labels), columns=columns)
        index = pd.DataFrame({"image": names, "patient": pd.NA, "split": [n.split("_")[1] for n in names]})
        index = index.assign(view=pd.NA, sex=pd.NA, age=pd.NA).astype(_UNKNOWN)
        return pd.concat([index, labels[list(FINDINGS)]], axis=1)

    def describe(self) -> dict[str, object]:
        return {
            "file": str(_npz(self.config)),
            "md5": self.md5,
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
    return INFO["chestmnist"]
