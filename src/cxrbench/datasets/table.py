"""Anybody's radiographs: PNG, JPEG and DICOM files named by a table of any findings."""

import posixpath
from collections.abc import Iterator

import pandas as pd

from cxrbench.datasets.archives import Encoded, complete_in, is_archive, read_images
from cxrbench.datasets.decoding import RESIZE, Decoded, Files, decode
from cxrbench.datasets.packed import Chunks
from cxrbench.datasets.table_rows import ABOUT, one_class, place_of, read_image_table
from cxrbench.study.config import TableSource
from cxrbench.study.files import sha256_file
from cxrbench.study.names import UserError, and_more, printable

_PICTURES = (".png", ".jpg", ".jpeg")
_DICOM = (".dcm", ".dicom", "")  # some archives of hospitals name their files without a suffix


class Images(Files):
    """The radiographs of a :class:`TableSource`, in the order of their files."""

    config: TableSource

    @staticmethod
    def present(config: TableSource) -> bool:
        return config.table.is_file() and config.folder.exists()

    def chunks(self) -> Chunks:
        """Yield names and pixels; UserError for rows without an image, before decoding where it can be."""
        self._table = read_image_table(self.config)
        about = [name for name in ABOUT if name in self._table]
        self.findings = tuple(self._table.columns.drop(["image", "patient", "split", *about]))
        self._wanted, self._seen, self._left_out = set(self._table["image"]), set[str](), 0
        yield from super().chunks()
        self._must_be_there(self._seen)
        if self._left_out:
            self.say(f"{self._left_out:,} images of {self.config.folder} have no row in {self.config.table}")
        for text in one_class(self._table, self.findings):
            self.say(text)

    def files(self) -> Iterator[Encoded]:
        """Yield the files that the table names."""
        folder = self.config.folder
        remedy = "name the one with the images under 'folder'"
        paths = [folder] if folder.is_file() else complete_in(folder, remedy, (*_PICTURES, *_DICOM))
        if not any(is_archive(path) for path in paths):
            self._must_be_there({self._named(path.as_posix()) for path in paths})
        for encoded in read_images(paths, self.say, self._name_of):
            self._seen.add(encoded.name)
            yield encoded

    def _name_of(self, path: str) -> str | None:
        """Return the row of an image at a path; None, and count it, where no row names it."""
        name = self._named(path)
        self._left_out += name is None and posixpath.splitext(path)[1].lower() in (*_PICTURES, ".dcm")
        return name

    def _named(self, path: str) -> str | None:
        """Return the image's name in the table: its path below the folder or from it on, or its last part."""
        folder = self.config.folder
        path = path.removeprefix(f"{folder.as_posix()}/")
        names = (path, f"{folder.name}/{path}", posixpath.basename(path))
        return next((name for name in names if name in self._wanted), None)

    def _must_be_there(self, present: set[str | None] | set[str]) -> None:
        missing = self._table["image"][~self._table["image"].isin(present)]
        if len(missing):
            absent = f"there is no image {printable(missing.iloc[0])}{and_more(len(missing) - 1)}"
            raise UserError(
                f"{place_of(self.config, missing.index[0])}: {absent} among the PNG, JPEG and DICOM files "
                f"and archives in {self.config.folder}; put what is missing there, or remove its rows"
            )

    def decode(self, encoded: Encoded) -> Decoded:
        """Return one radiograph; UserError for a colour picture or what cannot be read."""
        if encoded.data[128:132] == b"DICM" or posixpath.splitext(encoded.name)[1].lower() in _DICOM:
            from cxrbench.datasets.dicom import decode_dicom  # imported here: few datasets need it

            return decode_dicom(encoded, self.config.pixels)
        return decode(encoded, self.config.pixels, ("PNG", "JPEG"), colour=False)

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return the rows of the table for ``names``, in that order."""
        return self._table.set_index("image").loc[names].reset_index()

    def describe(self) -> dict[str, object]:
        config, labels = self.config, self._table[list(self.findings)]
        return {
            "table": str(config.table),
            "table_sha256": sha256_file(config.table),
            "folder": str(config.folder),
            "seed": config.seed,
            "fractions": config.fractions,
            "uncertain": config.uncertain,
            "blank": config.blank,
            "patients_known": config.patient is None,
            "missing_labels": {name: int(count) for name, count in labels.isna().sum().items()},
            "resized": RESIZE,
            **self.formats(),
        }
