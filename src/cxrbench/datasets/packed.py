"""Packed datasets: one uint8 array and its index, made by the project's only packer.

``data/packed/<dataset>/``: images.npy (N x H x W uint8), index.parquet (image, patient, split, view, sex,
age, findings, empty where a label is missing), manifest.json (source, counts, sha256 of both, how pixels
were made).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol, cast

import numpy as np
import pandas as pd
from pyarrow import parquet

from cxrbench.common.errors import UserError
from cxrbench.common.files import (
    DISK_FULL,
    locked,
    sha256_file,
    sha256_json,
    write_json,
    written_aside,
)
from cxrbench.datasets.odd import oddness
from cxrbench.datasets.split import part_hash
from cxrbench.study.config import Dataset
from cxrbench.study.recipe import SPLITS

if TYPE_CHECKING:  # a packed dataset is read without a decoder
    from cxrbench.datasets.decoding import Decoded

MANIFEST, IMAGES, INDEX = "manifest.json", "images.npy", "index.parquet"
_REPORT_EVERY = 10_000  # images
Say = Callable[[str], None]
_BEFORE_FINDINGS = ["image", "patient", "split", "view", "sex", "age"]  # columns of an index


class Checked(NamedTuple):
    """What a source says about its images when all were read."""

    index: pd.DataFrame  # a row per image, in the order packed
    facts: dict[str, object]  # entries of the manifest
    odd: Mapping[str, str] = {}  # by an image's name, what only its file shows


class Source(Protocol):
    """The functions of module ``cxrbench.datasets.NAME`` for source NAME, in the order of their calls."""

    def present(self, config: Any) -> bool:
        """Whether the images can be packed on this machine without a download."""

    def read(self, config: Any, say: Say) -> Any:
        """The labels of the source, as its two other functions take them; no image is read."""

    def images(self, config: Any, labels: Any, workers: int | None, say: Say) -> Iterator[list[Decoded]]:
        """The images in groups, in the order to be packed."""

    def check(self, config: Any, labels: Any, seen: pd.DataFrame, recorded: Path | None, say: Say) -> Checked:
        """The index of the images; UserError where they are not those of the labels.

        ``seen`` has the fields of :class:`~cxrbench.datasets.decoding.Decoded` but pixels, a row per image.
        ``recorded``: the folder of evidence whose images these may be.
        """


def _source(config: Dataset) -> Source:
    # Imported here: reading a packed dataset needs no decoder, and planning a build needs no medmnist.
    return cast("Source", import_module(f"cxrbench.datasets.{config.source}"))


def data_present(config: Dataset) -> bool:
    """Whether the images can be packed on this machine without a download."""
    return _source(config).present(config)


def pack(
    name: str,
    config: Dataset,
    root: Path,
    workers: int | None = None,
    say: Say = lambda text: None,
    recorded: Path | None = None,
) -> dict[str, Any]:
    """Pack the dataset called ``name`` below ``root``; return the manifest.

    Its images are held against the check values below ``recorded``. ``workers`` decode in parallel (None: one
    per core) and do not change a byte. The dataset is built in a hidden folder and renamed when it is
    complete; a failed run removes that folder, and what a killed run left is removed by the next.
    """
    root.mkdir(parents=True, exist_ok=True)
    if (root / name).is_symlink():
        raise UserError(f"{root / name}: is a link, which packing would replace; link {root} itself instead")
    aside = root / f".{name}.part"
    with locked(root / f".{name}.lock", name, "packing it"):
        try:
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir()
            manifest = _write(aside, name, config, workers, recorded, say)
            _put_in_place(aside, root / name)
            return manifest
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            full = f"{root / name}: the disk is full; free some space on {root} and run again"
            raise UserError(full) from None
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def _put_in_place(folder: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``, then remove the previous one."""
    old = target.with_name(f".{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    folder.rename(target)
    shutil.rmtree(old, ignore_errors=True)


def _write(
    folder: Path, name: str, config: Dataset, workers: int | None, recorded: Path | None, say: Say
) -> dict[str, Any]:
    """Write images, index and manifest of a dataset into ``folder``; return the manifest."""
    source = _source(config)
    labels = source.read(config, say)
    images = source.images(config, labels, workers, say)
    seen, moments = _write_images(folder / IMAGES, config.pixels, images, say)
    index, facts, odd = source.check(config, labels, seen, recorded, say)
    findings = tuple(index.columns.drop(_BEFORE_FINDINGS, errors="ignore"))
    train = moments[(index["split"] == "train").to_numpy()]
    if len(train) == 0:
        if not config.scored_only:
            raise UserError(f"{name}: the split leaves no training image; choose another split or add images")
        train = moments  # of nobody's use: a network brings the mean and deviation of its own training
    with written_aside(folder / INDEX) as path:
        index.to_parquet(path, index=False, compression="zstd")
    mean, square = train.mean(axis=0)
    parts = {split: index[index["split"] == split] for split in SPLITS}
    sums = {file: sha256_file(folder / file) for file in (IMAGES, INDEX)}
    look = zip(seen["name"], oddness(np.load(folder / IMAGES, mmap_mode="r"))["why"], strict=True)
    odd = {name: ", ".join(filter(None, (odd.get(name), why))) for name, why in look}
    manifest = {
        "dataset": name,
        "source": config.source,
        "pixels": config.pixels,
        "settings": config.settings(),
        **facts,
        "split_sha256": sha256_json(index[["image", "split"]].to_numpy().tolist()),
        "split_parts_sha256": {split: part_hash(part["image"]) for split, part in parts.items()},
        "images": {split: len(part) for split, part in parts.items()},
        "patients": {split: int(part["patient"].nunique()) for split, part in parts.items()},
        "positive_images": {f: {s: int(part[f].sum()) for s, part in parts.items()} for f in findings},
        "positive_patients": _positive_patients(index, findings),
        "odd": {name: why for name, why in odd.items() if why},
        "sha256": sums,
        "packed": sha256_json(sums),
        "pixel_mean": mean / 255,  # of the training images (of all where there are none), on a 0..1 scale
        "pixel_std": float(np.sqrt(square - mean**2)) / 255,
    }
    write_json(folder / MANIFEST, manifest)
    return manifest


def _positive_patients(index: pd.DataFrame, findings: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Each finding's positive patients per part, or images where patients are unknown."""
    units = index["image"] if index["patient"].isna().all() else index["patient"]
    return {
        name: {
            split: int(units[(index[name] == 1) & (index["split"] == split)].nunique()) for split in SPLITS
        }
        for name in findings
    }


def _write_images(
    path: Path, pixels: int, groups: Iterator[list[Decoded]], say: Say
) -> tuple[pd.DataFrame, np.ndarray]:
    """Write the array; return the images' other fields, and each one's mean and mean square (n x 2)."""
    seen: list[dict[str, Any]] = []
    moments: list[np.ndarray] = []
    started = time.monotonic()
    with open(path, "wb") as file:  # not a memory map: a full disk must be an error, not a killed process
        _write_header(file, 0, pixels)
        for group in groups:
            images = np.stack([image.pixels for image in group])
            file.write(images.data)
            squares = np.square(images, dtype=np.uint16).mean(axis=(1, 2))
            moments.append(np.stack([images.mean(axis=(1, 2)), squares], axis=1))
            before = len(seen)
            seen += [image.without_pixels() for image in group]
            if before // _REPORT_EVERY != len(seen) // _REPORT_EVERY:
                say(f"{len(seen):,} images, {len(seen) / (time.monotonic() - started):.0f} per second")
        file.seek(0)
        _write_header(file, len(seen), pixels)
        file.flush()
        os.fsync(file.fileno())
    return pd.DataFrame(seen), np.concatenate(moments)


def _write_header(file: BinaryIO, count: int, pixels: int) -> None:
    """Write an .npy header; numpy pads it so that its length does not depend on ``count``."""
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, pixels, pixels)}
    np.lib.format.write_array_header_1_0(file, header)


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
        """Raise UserError when a file does not have the sum that the manifest has."""
        for name, wanted in self.manifest["sha256"].items():
            if sha256_file(self.folder / name) != wanted:
                raise UserError(
                    f"{self.folder / name}: not the file that was packed; copy it again whole, or run "
                    f"`cxrbench data pack {self.folder.name}` again"
                )

    @property
    def findings(self) -> tuple[str, ...]:
        """The labels of the dataset, in the order of :meth:`labels`."""
        return tuple(self.manifest["positive_images"])

    def labels(self) -> np.ndarray:
        """N x findings float32: 0, 1, or NaN for a missing label."""
        return self.index[list(self.findings)].to_numpy(dtype=np.float32, na_value=np.nan)


def read_packed(folder: Path | str) -> Packed:
    """Open a packed dataset; UserError when it is missing or its parts do not fit together."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if not {"source", "pixels", "packed", "images", "positive_images", "sha256"} <= manifest.keys():
            raise ValueError(f"{MANIFEST} lacks entries")
        images = np.load(folder / IMAGES, mmap_mode="r")
        # Not through a file object as pandas does: Arrow's threads may abort a process that ends soon after
        # (apache/arrow issue 34314).
        with parquet.ParquetFile(folder / INDEX) as file:
            index = file.read(use_threads=False).to_pandas(use_threads=False)
        if len(images) != len(index):
            raise ValueError(f"{len(images)} images but {len(index)} index rows")
    except FileNotFoundError as error:
        raise UserError(
            f"{error.filename or folder / INDEX}: not packed yet; run `cxrbench data pack {folder.name}`, "
            "with --study FILE if it is your own"
        ) from None
    except (OSError, EOFError, ValueError, AttributeError) as error:
        raise UserError(f"{folder}: damaged ({error}); run `cxrbench data pack {folder.name}`") from None
    return Packed(folder, manifest, images, index)


def must_be_packed_from(config: Dataset, folder: Path, study: Path | None = None) -> None:
    """Raise UserError when ``folder`` holds a dataset that was packed with other settings than ``config``.

    ``study``: the file that the config is from; then nothing in ``folder`` is an error too.
    """
    again = f"run `cxrbench data pack {folder.name}{f' --study {study}' if study else ''}`"
    if not (folder / MANIFEST).exists():
        if study is None:
            return  # reading it reports that
        raise UserError(f"{folder / MANIFEST}: not packed yet; {again}")
    manifest = read_packed(folder).manifest
    settings = manifest.get("settings", manifest)
    if steps := getattr(config, "steps", ()):  # what was packed before reductions had names had none
        plain = {f"{steps[-1]}x{steps[-1]}"} >= set(manifest.get("source_sizes", ()))
        settings = {"reduced": config.settings()["reduced"] if plain else None} | settings
    for key, wanted in config.settings().items():
        if (packed := settings.get(key, wanted)) != wanted:
            raise UserError(f"{folder}: packed with {key} {packed}, the study says {wanted}; {again}")
    files: dict[str, Path] = getattr(config, "files", {})
    if all(path.is_file() for path in files.values()):
        given, packed = tables_sha256(files), manifest.get("table_sha256", {})
        packed = {"": packed} if isinstance(packed, str) else packed  # as earlier versions have it
        for part, path in files.items():
            if packed.get(part) != given[part]:
                raise UserError(f"{folder}: packed from another version of {path}; {again}")


def tables_sha256(files: Mapping[str, Path]) -> dict[str, str]:
    """The sha256 of each file of a table, by its part or number."""
    return {part: sha256_file(path) for part, path in files.items()}
