"""Packed datasets: one uint8 array and its index, made by the project's only packer.

``data/packed/<dataset>/``: images.npy (N x H x W uint8), index.parquet (image, patient, split, view, sex,
age, 14 findings), manifest.json (source, counts, sha256 of both, how pixels were made).
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from cxrbench.config import Dataset, NihSource, PhantomSource
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.errors import UserError
from cxrbench.files import sha256_file, sha256_json, write_json, written_aside

MANIFEST, IMAGES, INDEX = "manifest.json", "images.npy", "index.parquet"


class Source(Protocol):
    """What the packer asks of a source of images."""

    def chunks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        """(names, n x H x W uint8) in the order to be packed."""

    def index(self, names: list[str]) -> pd.DataFrame:
        """One row per name, in that order."""

    def describe(self) -> dict[str, object]:
        """What the manifest says of it, after :meth:`chunks`."""


class PhantomImages:
    """Drawn radiographs with NIH's label rows (datasets/phantom.py)."""

    def __init__(self, config: PhantomSource) -> None:
        from cxrbench.datasets import phantom  # imported late: drawing needs scipy, reading packs does not

        self.config = config
        self._draw = phantom.draw
        self.rows = phantom.choose_rows(
            read_nih_table(), {str(split): n for split, n in config.images.items()}, config.seed
        )

    def chunks(self) -> Iterator[tuple[list[str], np.ndarray]]:
        names, start = self.rows["image"].tolist(), 0
        for images in self._draw(self.rows, self.config.pixels, self.config.seed):
            yield names[start : start + len(images)], images
            start += len(images)

    def index(self, names: list[str]) -> pd.DataFrame:
        return self.rows.set_index("image").loc[names].reset_index()

    def describe(self) -> dict[str, object]:
        return {
            "seed": self.config.seed,
            "split": "drawn by patient; rare findings oversampled, so prevalence is not NIH's",
            "resized": "not resized: drawn at this size",
        }


def source_of(config: Dataset) -> Source:
    """The images that a dataset's config names."""
    if isinstance(config, NihSource):
        from cxrbench.datasets.nih import NihImages  # imported late: decoding needs Pillow

        return NihImages(config)
    return PhantomImages(config)


def data_present(config: Dataset) -> bool:
    """Whether the images can be packed on this machine without a download."""
    if isinstance(config, NihSource):
        from cxrbench.datasets.nih import present

        return present(config)
    return True


def pack(name: str, config: Dataset, root: Path) -> dict[str, Any]:
    """Pack the dataset called ``name`` below ``root``; returns the manifest. Built aside, then renamed."""
    source = source_of(config)
    folder = root / name
    aside = root / f".{name}.part"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        names, moments = _write_images(aside / IMAGES, source, config.pixels)
        index = source.index(names)
        with written_aside(aside / INDEX) as path:
            index.to_parquet(path, index=False, compression="zstd")
        manifest = {"dataset": name, **_manifest(config, source, index, aside)}
        manifest |= _train_moments(moments, index)
        write_json(aside / MANIFEST, manifest)
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return manifest


def _write_images(path: Path, source: Source, pixels: int) -> tuple[list[str], np.ndarray]:
    """Stream the images into an .npy file; returns their names and (mean, mean square) pixel of each."""
    names: list[str] = []
    moments: list[np.ndarray] = []
    with written_aside(path) as aside, open(aside, "wb") as file:
        file.write(_npy_header(0, pixels))
        for chunk_names, chunk in source.chunks():
            # Plain writes, not a memory map: a full disk must be an error, not a killed process.
            file.write(np.ascontiguousarray(chunk).data)
            names += chunk_names
            squares = np.square(chunk, dtype=np.uint16).mean(axis=(1, 2))
            moments.append(np.stack([chunk.mean(axis=(1, 2)), squares], axis=1))
        file.seek(0)
        file.write(_npy_header(len(names), pixels))
    return names, np.concatenate(moments)


def _npy_header(count: int, pixels: int) -> bytes:
    """An .npy header; numpy pads it so that its length does not depend on ``count``."""
    header = io.BytesIO()
    shape = (count, pixels, pixels)
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return header.getvalue()


def _train_moments(moments: np.ndarray, index: pd.DataFrame) -> dict[str, float]:
    """Mean and standard deviation of the training pixels, on a 0..1 scale."""
    train = moments[(index["split"] == "train").to_numpy()]
    if len(train) == 0:
        raise UserError("the split leaves no training image; choose another split or add images")
    mean, square = train.mean(axis=0)
    return {"pixel_mean": mean / 255, "pixel_std": float(np.sqrt(square - mean**2)) / 255}


def _manifest(config: Dataset, source: Source, index: pd.DataFrame, folder: Path) -> dict[str, Any]:
    parts = {split: index[index["split"] == split] for split in SPLITS}
    images = {split: len(part) for split, part in parts.items()}
    if isinstance(config, NihSource) and config.expect_images and config.expect_images != images:
        raise UserError(
            f"{config.folder}: the split gives {images} images, but the config expects "
            f"{config.expect_images}; is the folder complete?"
        )
    sums = {IMAGES: sha256_file(folder / IMAGES), INDEX: sha256_file(folder / INDEX)}
    return {
        "source": config.source,
        "pixels": config.pixels,
        **source.describe(),
        "split_sha256": sha256_json(index[["image", "split"]].to_numpy().tolist()),
        "images": images,
        "patients": {split: int(part["patient"].nunique()) for split, part in parts.items()},
        "positive_images": {f: {s: int(part[f].sum()) for s, part in parts.items()} for f in FINDINGS},
        "sha256": sums,
        "packed": sha256_json(sums),
    }


@dataclass(frozen=True)
class Packed:
    """A packed dataset in memory; ``images`` is a read-only memory map of N x H x W uint8."""

    folder: Path
    manifest: dict[str, Any]
    images: np.ndarray
    index: pd.DataFrame

    def rows(self, split: str) -> np.ndarray:
        """Positions of a split's images."""
        return np.flatnonzero((self.index["split"] == split).to_numpy())

    def labels(self) -> np.ndarray:
        """N x 14 uint8."""
        return self.index[list(FINDINGS)].to_numpy(dtype=np.uint8)


def read_packed(folder: Path | str) -> Packed:
    """Open a packed dataset; UserError when it is missing or its parts do not fit together."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        images = np.load(folder / IMAGES, mmap_mode="r")
        index = pd.read_parquet(folder / INDEX)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: not packed yet; run `cxrbench data pack {folder.name}`") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}: damaged ({error}); run `cxrbench data pack {folder.name}`") from None
    if len(images) != len(index):
        raise UserError(
            f"{folder}: {len(images)} images but {len(index)} index rows; "
            f"run `cxrbench data pack {folder.name}` again"
        )
    return Packed(folder, manifest, images, index)
