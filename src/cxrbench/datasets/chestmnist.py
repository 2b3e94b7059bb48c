"""ChestMNIST: ChestX-ray14 as MedMNIST reduced it; the medmnist package says how its files are known.

MedMNIST v2 (Yang et al., Scientific Data 2023) gives the part of each image, but not its patient:
``patient``, ``view``, ``sex`` and ``age`` are empty in the index, and intervals are by image.
"""

import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.datasets.decoding import Decoded
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.datasets.packed import Checked, Say
from cxrbench.study.config import ChestMnistSource
from cxrbench.study.recipe import SPLITS

_GROUP = 1024  # images
_NAMES = {"pleural": "Pleural_Thickening"}  # MedMNIST's other spelling
_UNKNOWN = {"patient": "Int64", "view": "string", "sex": "string", "age": "Int16"}


def present(config: ChestMnistSource) -> bool:
    """Whether the published file is there."""
    return _npz(config).is_file()


def read(config: ChestMnistSource, say: Say) -> pd.DataFrame:
    """Names, parts and labels in NIH's spelling; what MedMNIST does not publish is empty.

    UserError for any file but the published one, before a byte of it is unpacked.
    """
    _refuse_other_files(_npz(config), config.pixels)
    spelt = [_info()["label"][str(k)] for k in range(len(FINDINGS))]
    columns = [_NAMES.get(name, name.capitalize()) for name in spelt]
    if set(columns) != set(FINDINGS):
        raise UserError(f"medmnist names other findings than NIH: {spelt}; install medmnist 3.0.2")
    with np.load(_npz(config)) as arrays:
        parts = {part: arrays[f"{part}_labels"].astype(np.uint8) for part in SPLITS}
    frames = [
        pd.DataFrame({"image": [f"chestmnist_{part}_{k:05}" for k in range(len(labels))], "split": part})
        for part, labels in parts.items()
    ]
    index = pd.concat(frames, ignore_index=True)
    index.insert(1, "patient", pd.NA)
    index = index.assign(view=pd.NA, sex=pd.NA, age=pd.NA).astype(_UNKNOWN)
    labels = pd.DataFrame(np.concatenate([*parts.values()]), columns=columns)
    return pd.concat([index, labels[list(FINDINGS)]], axis=1)


def images(
    config: ChestMnistSource, labels: pd.DataFrame, workers: int | None, say: Say
) -> Iterator[list[Decoded]]:
    """The images as in the file: training, validation and test part, each in its own order.

    A part is read as a whole: at 224 px that of training takes 3.9 GB of memory.
    """
    for part in SPLITS:
        names = labels["image"][labels["split"] == part]
        with np.load(_npz(config)) as arrays:
            pixels = arrays[f"{part}_images"]
        pairs = map(Decoded, pixels, names)
        while group := list(islice(pairs, _GROUP)):
            yield group


def check(
    config: ChestMnistSource, labels: pd.DataFrame, seen: pd.DataFrame, recorded: Path | None, say: Say
) -> Checked:
    """The labels as they are."""
    facts = {
        "file": str(_npz(config)),
        "md5": _published_md5(_npz(config)),  # or `read` had refused it
        "split": "MedMNIST's; the sizes of its parts are those of chexnet",
        "resized": "by MedMNIST from 1024 px; not resized again",
        "patients_known": False,
    }
    return Checked(labels, facts)


def _refuse_other_files(path: Path, pixels: int) -> None:
    """Refuse an absent file, and any but the published one of this size."""
    where = f"chestmnist --only {path.name} --folder {path.parent}`"
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; fetch it with `cxrbench data download {where}")
    with open(path, "rb") as file:
        md5 = hashlib.file_digest(file, "md5").hexdigest()
    if md5 != _published_md5(path):
        raise UserError(
            f"{path}: damaged, or not ChestMNIST at {pixels} px as it was published (its md5 "
            f"is {md5}); fetch it again with `cxrbench data download --repair {where}"
        )


def _published_md5(path: Path) -> str:
    return str(_info()[f"MD5{path.stem.removeprefix('chestmnist')}"])


def _npz(config: ChestMnistSource) -> Path:
    size = "" if config.pixels == 28 else f"_{config.pixels}"
    return config.folder / f"chestmnist{size}.npz"


def _info() -> dict[str, Any]:
    try:
        from medmnist import INFO
    except ImportError:
        raise UserError("medmnist is not installed; it reads ChestMNIST: run `make setup`") from None
    return INFO["chestmnist"]
