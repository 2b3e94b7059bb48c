"""Packed datasets: one uint8 array and its index, made by the project's only packer.

``data/packed/<dataset>/``: images.npy (N x H x W uint8), index.parquet (image, patient, split, view, sex,
age, 14 findings), manifest.json (source, counts, sha256 of both, how pixels were made).
"""

from __future__ import annotations

import errno
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.config import Dataset, NihSource
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.partial import Partial
from cxrbench.datasets.sources import Source, data_present, source_of
from cxrbench.datasets.split import part_hash
from cxrbench.errors import UserError
from cxrbench.files import sha256_file, sha256_json, write_json, written_aside

__all__ = ["Packed", "data_present", "pack", "read_packed"]
MANIFEST, IMAGES, INDEX = "manifest.json", "images.npy", "index.parquet"
_TELL_EVERY = 10_000  # images


def pack(
    name: str,
    config: Dataset,
    root: Path,
    workers: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Pack the dataset called ``name`` below ``root``; returns the manifest. Built aside, then renamed.

    ``workers`` decode side by side (none: one per core) and do not change a byte. A run that was killed or
    failed is continued by the next one from where it had last secured its work.
    """
    root.mkdir(parents=True, exist_ok=True)
    if (root / name).is_symlink():
        raise UserError(f"{root / name}: is a link, which packing would replace; link {root} itself instead")
    with _alone(root / f".{name}.lock", name):
        source = source_of(config, workers)
        partial = Partial(root / f".{name}.part", config.pixels, source.key())
        try:
            partial.resume(source.keep)
            _make_images(partial, source, say)
            manifest = _complete(name, config, source, partial)
            _put_in_place(partial.folder, root / name)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise UserError(
                f"{root / name}: the disk is full; free some space on {root} and run again"
            ) from None
        finally:
            if partial.folder.exists() and (kept := partial.abandon()):
                say(f"{kept:,} finished images are kept; the next run goes on from there")
    return manifest


def _put_in_place(folder: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``; what was there goes when the new one stands."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _alone(path: Path, name: str) -> Iterator[None]:
    """Hold the lock ``path``, or raise UserError when another process packs the same dataset."""
    from filelock import FileLock, Timeout  # imported late: rebuilding the paper needs neither lock nor it

    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"{name}: another process is packing it; wait for that one, or stop it") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _make_images(partial: Partial, source: Source, say: Callable[[str], None]) -> None:
    started, before = time.monotonic(), len(partial.made)
    if before:
        say(f"going on after {before:,} images of an earlier run")
    told = before
    for made, images in source.chunks(list(partial.made)):
        partial.append(made, images)
        if len(partial.made) - told >= _TELL_EVERY:
            told = len(partial.made)
            rate = (told - before) / (time.monotonic() - started)
            say(f"{told:,} images, {rate:.0f} per second")


def _complete(name: str, config: Dataset, source: Source, partial: Partial) -> dict[str, Any]:
    """Write index and manifest beside the images."""
    folder, moments = partial.folder, partial.finish()
    index = source.index([one.name for one in partial.made])
    partial.images.rename(folder / IMAGES)
    try:
        with written_aside(folder / INDEX) as path:
            index.to_parquet(path, index=False, compression="zstd")
        manifest = {"dataset": name, **_manifest(config, source.describe(partial.made), index, folder)}
        manifest |= _train_moments(moments, index)
        write_json(folder / MANIFEST, manifest)
    except BaseException:
        (folder / IMAGES).rename(partial.images)
        for unwanted in (INDEX, MANIFEST):
            (folder / unwanted).unlink(missing_ok=True)
        raise
    partial.tidy()
    return manifest


def _train_moments(moments: np.ndarray, index: pd.DataFrame) -> dict[str, float]:
    """Mean and standard deviation of the training pixels, on a 0..1 scale."""
    train = moments[(index["split"] == "train").to_numpy()]
    if len(train) == 0:
        raise UserError("the split leaves no training image; choose another split or add images")
    mean, square = train.mean(axis=0)
    return {"pixel_mean": mean / 255, "pixel_std": float(np.sqrt(square - mean**2)) / 255}


def _manifest(
    config: Dataset, described: dict[str, object], index: pd.DataFrame, folder: Path
) -> dict[str, Any]:
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
        **described,
        "split_sha256": sha256_json(index[["image", "split"]].to_numpy().tolist()),
        "split_parts_sha256": {split: part_hash(part["image"]) for split, part in parts.items()},
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

    def check_sums(self) -> None:
        """UserError when a file is not the one whose sum the manifest has and its cells will name."""
        for name, wanted in self.manifest["sha256"].items():
            if sha256_file(self.folder / name) != wanted:
                raise UserError(
                    f"{self.folder / name}: not the file that was packed; copy it again whole, or run "
                    f"`cxrbench data pack {self.folder.name}` again"
                )

    def labels(self) -> np.ndarray:
        """N x 14 uint8."""
        return self.index[list(FINDINGS)].to_numpy(dtype=np.uint8)


def read_packed(folder: Path | str) -> Packed:
    """Open a packed dataset; UserError when it is missing or its parts do not fit together."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not {"source", "pixels", "packed", "images", "sha256"} <= manifest.keys():
            raise ValueError(f"{MANIFEST} is not one that packing wrote")
        images = np.load(folder / IMAGES, mmap_mode="r")
        index = pd.read_parquet(folder / INDEX)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: not packed yet; run `cxrbench data pack {folder.name}`") from None
    except (OSError, EOFError, ValueError, AttributeError) as error:
        raise UserError(f"{folder}: damaged ({error}); run `cxrbench data pack {folder.name}`") from None
    if len(images) != len(index):
        raise UserError(
            f"{folder}: {len(images)} images but {len(index)} index rows; "
            f"run `cxrbench data pack {folder.name}` again"
        )
    return Packed(folder, manifest, images, index)


def must_be_packed_from(config: Dataset, folder: Path) -> None:
    """UserError when what is packed in ``folder``, if anything, has another source, size, seed or split."""
    if not (folder / MANIFEST).exists():
        return  # whoever reads it says so
    manifest = read_packed(folder).manifest
    for key in ("source", "pixels", "seed", *(["split"] if isinstance(config, NihSource) else [])):
        wanted = getattr(config, key, None)
        if wanted is not None and manifest.get(key) != wanted:
            raise UserError(
                f"{folder}: packed with {key} {manifest.get(key)}, the study says {wanted}; "
                f"run `cxrbench data pack {manifest['dataset']}`"
            )
