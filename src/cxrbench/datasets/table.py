"""Anybody's radiographs: PNG, JPEG and DICOM files named by a table of any findings."""

import glob
import io
import posixpath
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import PurePath

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.common.errors import UserError, and_more, counted, printable
from cxrbench.datasets.archives import Encoded, complete_in, is_archive, read_images
from cxrbench.datasets.decoding import RESIZE, Decoded, Files, decode
from cxrbench.datasets.packed import Chunks, tables_sha256
from cxrbench.datasets.table_files import ABOUT, DICOM, PICTURES, place_of
from cxrbench.datasets.table_rows import one_class, read_image_table
from cxrbench.study.config import TableSource
from cxrbench.study.recipe import SPLITS

_MAGIC = (b"\x89PNG", b"\xff\xd8")  # how PNG and JPEG files begin: a name need not tell
_FEW_BITS = 14  # of 16: no brighter than a quarter of white
_OTHER_DEPTH = 2  # bits from most others: a fourth of their brightness, or four times it
_DICOM = (*DICOM, "")  # some archives of hospitals name their files without a suffix


class Images(Files):
    """The radiographs of a :class:`TableSource`, in the order of their files."""

    config: TableSource

    @staticmethod
    def present(config: TableSource) -> bool:
        return all(path.is_file() for path in config.files.values()) and config.folder.exists()

    def chunks(self) -> Chunks:
        """Yield names and pixels; UserError for rows without an image, before decoding where it can be."""
        self._dropped: dict[str, str] = {}
        self._table = read_image_table(self.config, self.say, self._dropped)
        about = [name for name in ABOUT if name in self._table]
        self.findings = tuple(self._table.columns.drop(["image", "patient", "split", *about]))
        self._wanted, self._seen, self._left_out = set(self._table["image"]), set[str](), Counter[str]()
        yield from super().chunks()
        self._must_be_there(self._seen)
        self._must_use_their_bits()
        for note, count in sorted(Counter(self._noted).items()):
            self.say(f"{count:,} of {len(self._seen):,} images: {note}")
        for why, count in sorted(self._left_out.items()):
            self.say(f"left out of {self.config.folder}: {counted(count, 'image')} {why}")
        for text in one_class(self._table, self.findings):
            self.say(text)

    def files(self) -> Iterator[Encoded]:
        """Yield the files that the table names."""
        folder = self.config.folder
        if folder.suffix == ".npz":
            yield from self._arrays()
            return
        remedy = "name the one with the images under 'folder'"
        paths = [folder] if folder.is_file() else complete_in(folder, remedy, (*PICTURES, *_DICOM))
        if not any(is_archive(path) for path in paths):
            self._must_be_there({self._named(path.as_posix(), self._wanted) for path in paths})
        for encoded in read_images(paths, self.say, self._name_of):
            self._seen.add(encoded.name)
            yield encoded

    def _arrays(self) -> Iterator[Encoded]:
        """Yield the images of an npz, as PNG files."""
        with np.load(self.config.folder) as arrays:
            for part in SPLITS:
                for k, pixels in enumerate(arrays[f"{part}_images"]):
                    if (name := f"{part}_{k:06}") in self._wanted:
                        self._seen.add(name)
                        Image.fromarray(pixels).save(file := io.BytesIO(), "PNG", compress_level=1)
                        yield Encoded(name, f"{self.config.folder}: {name}", file.getvalue())

    def _name_of(self, path: str) -> str | None:
        """The row of an image at a path; None, and count it, where no kept row names it."""
        name = self._named(path, self._wanted)
        if name is None and posixpath.splitext(path)[1].lower() in (*PICTURES, *DICOM):
            self._left_out[self._dropped.get(self._named(path, self._dropped) or "", "without a row")] += 1
        return name

    def _named(self, path: str, names_there: Container[str]) -> str | None:
        """The image's name among those of rows: its path below the folder or from it on, or its last
        part. Each may be without the suffix.
        """
        folder = self.config.folder
        path = path.removeprefix(f"{folder.as_posix()}/")
        names = (path, f"{folder.name}/{path}", posixpath.basename(path))
        stems = (posixpath.splitext(name)[0] for name in names)
        return next((name for name in (*names, *stems) if name in names_there), None)

    def _must_be_there(self, present: set[str | None] | set[str]) -> None:
        missing = self._table["image"][~self._table["image"].isin(present)]
        if missing.empty:
            return
        name, folder = PurePath(missing.iloc[0]), self.config.folder
        place, more = place_of(self.config, missing.index[0]), and_more(len(missing) - 1)
        alike = (path for path in folder.rglob(f"{glob.escape(name.stem)}*") if path.is_file())
        near = sorted(path for path in alike if name.stem in (path.stem, path.name))
        if found := next((path for path in near if path.name == name.name), near[0] if near else None):
            fault = "not in a format that is read; write it as PNG, JPEG or DICOM"
            if found.suffix.lower() in (*PICTURES, *DICOM):
                fault = f"elsewhere; write its path from {folder} on, or its name alone"
            raise UserError(
                f"{place}: image {printable(name)}{more}: {printable(found)} is there, but {fault}"
            )
        raise UserError(
            f"{place}: there is no image {printable(name)}{more} among the PNG, JPEG and DICOM files and "
            f"archives in {folder}; put what is missing there, or remove its rows"
        )

    def _must_use_their_bits(self) -> None:
        """Name 16-bit images of another depth than most, and say where these use half of the range at most.

        Refuses those of which all are nearly black: pixels of 12 bits saved as they are, say.
        """
        if not self._bits:
            return
        depth, scaled = pd.Series(self._bits), self.config.bits or 16
        count = counted(len(depth), "16-bit image")
        if self.config.bits is None and depth.max() <= _FEW_BITS:
            raise UserError(
                f"{self.config.folder}: the brightest pixel of {count} has {depth.max()} bits, so they would "
                f"be nearly black; state 'bits: {max(8, depth.max())}' in the config, or 'bits: 16' if that "
                "is meant"
            )
        usual = int(depth.quantile(interpolation="lower"))
        others = (depth - usual).abs() >= _OTHER_DEPTH
        for name, bits in depth[others].items():
            self.odd[str(name)] = f"its brightest pixel has {bits} bits, that of most others {usual}"
        if (used := max(8, depth[~others].max())) < scaled:
            deeper = ", and save the odd ones with more in as many" if depth.max() > used else ""
            self.say(
                f"{(~others).sum():,} of {count} use at most half of the range: they have {used} bits and "
                f"are scaled from {scaled}; state 'bits: {used}' in the config{deeper}"
            )

    def decode(self, encoded: Encoded) -> Decoded:
        """One radiograph; UserError for a colour picture or what cannot be read."""
        other = not encoded.data.startswith(_MAGIC) and posixpath.splitext(encoded.where)[1].lower() in _DICOM
        if encoded.data[128:132] == b"DICM" or other:
            from cxrbench.datasets.dicom import decode_dicom  # imported here: few datasets need it

            return decode_dicom(encoded, self.config.pixels)
        return decode(encoded, self.config.pixels, ("PNG", "JPEG"), colour=False, bits=self.config.bits)

    def index(self, names: list[str]) -> pd.DataFrame:
        """The rows of the table for ``names``, in that order."""
        return self._table.set_index("image").loc[names].reset_index()

    def describe(self) -> dict[str, object]:
        config, labels = self.config, self._table[list(self.findings)]
        return {
            "table": {part: str(path) for part, path in config.files.items()},
            "table_sha256": tables_sha256(config.files),
            "folder": str(config.folder),
            "seed": config.seed,
            "fractions": config.fractions,
            "uncertain": config.uncertain,
            "blank": config.blank,
            "patients_known": config.patient is None,
            "stratified": config.stratify,
            "missing_labels": {name: int(count) for name, count in labels.isna().sum().items()},
            "resized": RESIZE,
            **self.formats(),
        }
