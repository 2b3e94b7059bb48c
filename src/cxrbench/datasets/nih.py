"""NIH-named radiographs of any size, from a folder of PNG files, of tarballs, or of both.

Reduced ones have check values: ``data/recorded/pixels/<reduction>.parquet`` has a row per image that cells
were recorded from: its name, and the CRC-32 of its pixels after the last step of the reduction.
"""

import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.common.errors import UserError, and_more, printable
from cxrbench.common.files import written_aside
from cxrbench.datasets.archives import Encoded, complete_in, found_in, read_images
from cxrbench.datasets.decoding import RESIZE, Decoded, decode, decode_all, formats, in_steps, reduced
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import Checked, Packed, Say
from cxrbench.datasets.split import assign_split
from cxrbench.study.config import NihSource
from cxrbench.study.recipe import SPLITS

PUBLISHED_PIXELS = 1024  # pixels a side of NIH's own images


def present(config: NihSource) -> bool:
    """Whether the folder has files of images."""
    return bool(found_in(config.folder))


def read(config: NihSource, say: Say) -> pd.DataFrame:
    """NIH's label table."""
    return read_nih_table()


def images(config: NihSource, labels: pd.DataFrame, workers: int | None, say: Say) -> Iterator[list[Decoded]]:
    """The PNG images below the folder: those of tarballs by name in their own order, then files.

    UserError for a folder without images, and for an image that NIH's table does not have.
    """
    folder, known = config.folder, frozenset(labels["image"])
    if not (paths := complete_in(folder, "put or link NIH's images there (data/README.md)")):
        raise UserError(f"{folder}: no PNG file and no tarball below it; put NIH's images there")
    files = read_images(paths, say)
    if (first := next(files, None)) is None:
        raise UserError(f"{folder}: its tarballs hold no PNG; put NIH's archives there (data/README.md)")

    def decoded(encoded: Encoded) -> Decoded:
        if encoded.name not in known:
            raise UserError(
                f"{encoded.where}: image {printable(encoded.name)} is not in NIH's label table; "
                "move files that are not NIH's out of the folder"
            )
        return _in_steps(encoded, config) if config.steps else decode(encoded, config.pixels)

    return decode_all(chain([first], files), decoded, workers)


def _in_steps(encoded: Encoded, config: NihSource) -> Decoded:
    """An image after the steps of its reduction, with their check value, made as small as is asked for."""

    def reduce(grey: Image.Image, pixels: int, where: str) -> np.ndarray:
        return in_steps(grey, config.steps, PUBLISHED_PIXELS, where)

    image = decode(encoded, config.steps[-1], reduce=reduce)
    small = reduced(Image.fromarray(image.pixels), config.pixels)
    return image._replace(pixels=small, crc32=check_value(image.pixels))


def check(
    config: NihSource, labels: pd.DataFrame, seen: pd.DataFrame, recorded: Path | None, say: Say
) -> Checked:
    """The rows of NIH's table with the split of each; UserError for other counts than the config expects.

    Images that differ from those that cells were recorded from are among the facts.
    """
    values = {}
    if recorded is not None and config.reduced is not None:
        values = read_checks(checks_file(recorded, config.reduced))
    index = labels.set_index("image").loc[seen["name"]].reset_index()
    index.insert(2, "split", assign_split(index, config.split, config.folder))
    counts = {split: int((index["split"] == split).sum()) for split in SPLITS}
    if config.expect_images not in (None, {}, counts):
        absent = sorted(values.keys() - set(seen["name"]))
        first = f"{absent[0]}{and_more(len(absent) - 1)}" if absent else ""
        which = f" ({first} of the recorded ones are missing)" if absent else ""
        raise UserError(
            f"{config.folder}: the split gives {counts} images, but the config expects "
            f"{config.expect_images}{which}; complete the folder, or correct expect_images"
        )
    sums = zip(seen["name"], seen["crc32"], strict=True)
    unlike = [name for name, value in sums if values.get(name, value) != value]
    facts = {
        "folder": str(config.folder),
        "split": config.split,
        "resized": f"{config.reduced}, then {RESIZE}" if config.reduced else RESIZE,
        "unlike_recorded": sorted(unlike),
        **formats(seen),
    }
    return Checked(index, facts)


def checks_file(recorded: Path, reduction: str) -> Path:
    """The path of the check values of a reduction, below the ``recorded`` evidence."""
    return recorded / "pixels" / f"{reduction}.parquet"


def check_value(pixels: np.ndarray) -> int:
    """The CRC-32 of an image (H x W uint8)."""
    return zlib.crc32(np.ascontiguousarray(pixels).data)


def read_checks(path: Path) -> dict[str, int]:
    """The check value of each image; nothing where no file is; UserError when it is damaged."""
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
