"""Anybody's radiographs: PNG, JPEG and DICOM files named by a table of any findings."""

import glob
import io
import posixpath
from collections import Counter
from collections.abc import Container, Iterator, Set
from functools import partial
from pathlib import Path, PurePath
from typing import NamedTuple

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.common.errors import UserError, and_more, counted, printable
from cxrbench.datasets.archives import Encoded, complete_in, is_archive, read_images
from cxrbench.datasets.decoding import RESIZE, Decoded, decode, decode_all, formats
from cxrbench.datasets.packed import Checked, Say, tables_sha256
from cxrbench.datasets.table_files import DICOM, KNOWN_COLUMNS, PICTURES, place_of
from cxrbench.datasets.table_rows import one_class, read_image_table
from cxrbench.study.config import TableSource
from cxrbench.study.recipe import SPLITS

_MAGIC = (b"\x89PNG", b"\xff\xd8")  # how PNG and JPEG files begin: a name need not tell
_FEW_BITS = 14  # of 16: no brighter than a quarter of white
_OTHER_DEPTH = 2  # bits from most others: a fourth of their brightness, or four times it
_DICOM = (*DICOM, "")  # some archives of hospitals name their files without a suffix


class _Labels(NamedTuple):
    rows: pd.DataFrame  # of `read_image_table`
    dropped: dict[str, str]  # by image, why its row was left out


def present(config: TableSource) -> bool:
    """Whether the tables and the folder of the images are there."""
    return all(path.is_file() for path in config.files.values()) and config.folder.exists()


def read(config: TableSource, say: Say) -> _Labels:
    """The table's rows; UserError for what is wrong in them."""
    dropped: dict[str, str] = {}
    return _Labels(read_image_table(config, say, dropped), dropped)


def images(config: TableSource, labels: _Labels, workers: int | None, say: Say) -> Iterator[list[Decoded]]:
    """The images that rows name, in the order of their files; images without a row are counted.

    UserError for rows without an image, before decoding where the folder holds no archive.
    """
    folder, left_out, names = config.folder, Counter[str](), frozenset(labels.rows["image"])
    if folder.suffix == ".npz":
        yield from decode_all(_arrays(folder, names), partial(decode_radiograph, config), workers)
        return

    def name_of(path: str) -> str | None:
        """The row of an image at a path; None where no kept row names it."""
        name = _named(folder, path, names)
        if name is None and posixpath.splitext(path)[1].lower() in (*PICTURES, *DICOM):
            left_out[labels.dropped.get(_named(folder, path, labels.dropped) or "", "without a row")] += 1
        return name

    remedy = "name the one with the images under 'folder'"
    paths = [folder] if folder.is_file() else complete_in(folder, remedy, (*PICTURES, *_DICOM))
    if not any(is_archive(path) for path in paths):
        _must_be_there(config, labels.rows, {_named(folder, path.as_posix(), names) for path in paths})
    yield from decode_all(read_images(paths, say, name_of), partial(decode_radiograph, config), workers)
    for why, count in sorted(left_out.items()):
        say(f"left out of {folder}: {counted(count, 'image')} {why}")


def _arrays(path: Path, names: Container[str]) -> Iterator[Encoded]:
    """The named images of an npz, as PNG files."""
    with np.load(path) as arrays:
        for part in SPLITS:
            for k, pixels in enumerate(arrays[f"{part}_images"]):
                if (name := f"{part}_{k:06}") in names:
                    Image.fromarray(pixels).save(file := io.BytesIO(), "PNG", compress_level=1)
                    yield Encoded(name, f"{path}: {name}", file.getvalue())


def decode_radiograph(config: TableSource, encoded: Encoded) -> Decoded:
    """One radiograph; UserError for a colour picture or what cannot be read."""
    dicom = not encoded.data.startswith(_MAGIC) and posixpath.splitext(encoded.where)[1].lower() in _DICOM
    if encoded.data[128:132] == b"DICM" or dicom:
        from cxrbench.datasets.dicom import decode_dicom  # imported here: few datasets need it

        return decode_dicom(encoded, config.pixels)
    return decode(encoded, config.pixels, ("PNG", "JPEG"), colour=False, bits=config.bits)


def _named(folder: Path, path: str, names: Container[str]) -> str | None:
    """An image's name among those of rows: its path below the folder or from it on, or its last part.
    Each may be without the suffix.
    """
    path = path.removeprefix(f"{folder.as_posix()}/")
    ways = (path, f"{folder.name}/{path}", posixpath.basename(path))
    stems = (posixpath.splitext(way)[0] for way in ways)
    return next((way for way in (*ways, *stems) if way in names), None)


def check(
    config: TableSource, labels: _Labels, seen: pd.DataFrame, recorded: Path | None, say: Say
) -> Checked:
    """The rows of the images; UserError for rows without an image, and for images that are nearly black."""
    rows = labels.rows
    _must_be_there(config, rows, set(seen["name"]))
    odd = _odd_depths(config, seen, say)
    for note, count in seen["notes"].explode().value_counts().sort_index().items():
        say(f"{count:,} of {len(seen):,} images: {note}")
    findings = rows.columns.drop([name for name in KNOWN_COLUMNS if name in rows])
    for text in one_class(rows, tuple(findings)):
        say(text)
    facts = {
        "table": {part: str(path) for part, path in config.files.items()},
        "table_sha256": tables_sha256(config.files),
        "folder": str(config.folder),
        "seed": config.seed,
        "fractions": config.fractions,
        "uncertain": config.uncertain,
        "blank": config.blank,
        "patients_known": config.patient is None,
        "stratified": config.stratify,
        "missing_labels": {name: int(count) for name, count in rows[findings].isna().sum().items()},
        "resized": RESIZE,
        **formats(seen),
    }
    return Checked(rows.set_index("image").loc[seen["name"]].reset_index(), facts, odd)


def _must_be_there(config: TableSource, rows: pd.DataFrame, present: Set[str | None]) -> None:
    """UserError naming the first row whose image is not ``present``, and what is there instead."""
    missing = rows["image"][~rows["image"].isin(present)]
    if missing.empty:
        return
    name, folder = PurePath(missing.iloc[0]), config.folder
    place, more = place_of(config, missing.index[0]), and_more(len(missing) - 1)
    alike = (path for path in folder.rglob(f"{glob.escape(name.stem)}*") if path.is_file())
    near = sorted(path for path in alike if name.stem in (path.stem, path.name))
    if found := next((path for path in near if path.name == name.name), near[0] if near else None):
        fault = "not in a format that is read; write it as PNG, JPEG or DICOM"
        if found.suffix.lower() in (*PICTURES, *DICOM):
            fault = f"elsewhere; write its path from {folder} on, or its name alone"
        raise UserError(f"{place}: image {printable(name)}{more}: {printable(found)} is there, but {fault}")
    raise UserError(
        f"{place}: there is no image {printable(name)}{more} among the PNG, JPEG and DICOM files and "
        f"archives in {folder}; put what is missing there, or remove its rows"
    )


def _odd_depths(config: TableSource, seen: pd.DataFrame, say: Say) -> dict[str, str]:
    """The 16-bit images of another depth than most, by name; says where these use half of the range at most.

    UserError where all are nearly black: pixels of 12 bits saved as they are, say.
    """
    depth, scaled = seen.set_index("name")["bits"].dropna().astype(int), config.bits or 16
    if depth.empty:
        return {}
    count = counted(len(depth), "16-bit image")
    if config.bits is None and depth.max() <= _FEW_BITS:
        raise UserError(
            f"{config.folder}: the brightest pixel of {count} has {depth.max()} bits, so they would "
            f"be nearly black; state 'bits: {max(8, depth.max())}' in the config, or 'bits: 16' if that "
            "is meant"
        )
    usual = int(depth.quantile(interpolation="lower"))
    others = (depth - usual).abs() >= _OTHER_DEPTH
    if (used := max(8, depth[~others].max())) < scaled:
        deeper = ", and save the odd ones with more in as many" if depth.max() > used else ""
        say(
            f"{(~others).sum():,} of {count} use at most half of the range: they have {used} bits and "
            f"are scaled from {scaled}; state 'bits: {used}' in the config{deeper}"
        )
    return {
        str(name): f"its brightest pixel has {bits} bits, that of most others {usual}"
        for name, bits in depth[others].items()
    }
