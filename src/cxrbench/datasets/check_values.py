"""Check values of reduced radiographs: they name each image that is not one that cells were recorded from.

``data/recorded/pixels/<reduction>.parquet`` has a row per image: its name, and the CRC-32 of its pixels after
the last step of the reduction, row by row.
"""

import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from cxrbench.datasets.packed import Packed
from cxrbench.study.config import NihSource
from cxrbench.study.errors import UserError
from cxrbench.study.files import written_aside


def checks_file(recorded: Path, reduction: str) -> Path:
    """Return where the check values of a reduction are, below the ``recorded`` evidence."""
    return recorded / "pixels" / f"{reduction}.parquet"


def check_value(pixels: np.ndarray) -> int:
    """Return the CRC-32 of an image (H x W uint8)."""
    return zlib.crc32(np.ascontiguousarray(pixels).data)


def read_checks(path: Path) -> dict[str, int]:
    """Return the check value of each image; nothing where no file is; UserError when it is damaged."""
    if not path.is_file():
        return {}
    try:
        table = pd.read_parquet(path)
        return dict(zip(table["image"], table["crc32"].astype(int), strict=True))
    except (OSError, KeyError, ValueError) as error:
        raise UserError(f"{path}: damaged ({error}); restore it with git checkout") from None


def write_checks(packed: Packed, config: NihSource, recorded: Path) -> Path:
    """Write the check values of a dataset that is packed at the size of its reduction; return the file."""
    if config.reduced is None or packed.manifest["pixels"] != config.steps[-1]:
        raise UserError(f"{packed.folder}: not as large as a reduction leaves images; name such a dataset")
    table = pd.DataFrame({"image": packed.index["image"], "crc32": map(check_value, packed.images)})
    path = checks_file(recorded, config.reduced)
    with written_aside(path) as aside:
        table.astype({"crc32": "uint32"}).to_parquet(aside, index=False, compression="zstd")
    return path
