"""The table of a :class:`TableSource`: read as a whole, checked in columns, every mistake with its line.

A million rows take seconds: nothing here loops over rows. Texts stay as they are written (patient 007).
"""

import csv
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import compute, parquet
from pyarrow import csv as arrow_csv

from cxrbench.datasets.findings import SPLITS
from cxrbench.datasets.split import draw_split
from cxrbench.study.config import TableSource
from cxrbench.study.errors import UserError, nearest
from cxrbench.study.readers import shortened

ABOUT = ("view", "sex", "age")  # kept as texts; nothing is computed from them
_KNOWN = ("image", "patient", "split", *ABOUT)
_RESERVED = ("macro", "all", "every")  # what stands for several findings in result tables
_UNCERTAIN = -1.0
_MEANS = {"mask": np.nan, "positive": 1.0, "negative": 0.0}
_BLANK = ("", "nan", "NaN", "NA")  # an empty label, also as pandas and R write it
_OUTSIDE = r"^/|^~|^[A-Za-z]:|\\|(^|/)\.{1,2}(/|$)|//|[\x00-\x1f]"


def read_table(config: TableSource) -> pd.DataFrame:
    """Return image, patient, split, what is known about it, and a column per finding (0, 1 or missing).

    ``patient`` is empty with ``patient: none``. Raises UserError naming file, line and remedy.
    """
    return _Table(config).checked()


class _Table:
    """The columns of a table and the lines that its rows stand in."""

    def __init__(self, config: TableSource) -> None:
        self.config, self.path = config, config.table
        self.is_csv = self.path.suffix.lower() != ".parquet"
        if not self.path.is_file():
            raise UserError(f"{self.path}: there is no such table; name a CSV or Parquet file under 'table'")
        try:
            self.columns = self._read_csv() if self.is_csv else self._read_parquet()
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
            kind = "CSV" if self.is_csv else "Parquet"
            reason = next(iter(str(error).splitlines()), "no reason is known")
            what = f"not a readable {kind} file ({shortened(reason)}); save it as {kind}"
            raise UserError(f"{self.path}: {what} in UTF-8") from None
        self._drop_empty_lines()

    def _read_csv(self) -> pa.Table:
        with open(self.path, encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file, strict=True), [])
        self._check_header([name.strip() for name in header])
        few = pa.dictionary(pa.int32(), pa.string())  # a million labels have three distinct values
        types = {name: pa.string() if name.strip() in ("image", "patient") else few for name in header}
        table = arrow_csv.read_csv(
            self.path,
            # Arrow's threads may abort a process that ends soon after (apache/arrow issue 34314).
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(ignore_empty_lines=False),  # so that lines can be counted
            convert_options=arrow_csv.ConvertOptions(column_types=types),
        )
        return table.rename_columns([name.strip() for name in header])

    def _read_parquet(self) -> pa.Table:
        with parquet.ParquetFile(self.path) as file:
            self._check_header(file.schema_arrow.names)
            table = file.read(use_threads=False)
        for k, field in enumerate(table.schema):
            if pa.types.is_nested(field.type):
                raise UserError(f"{self.path}: column {field.name} has the type {field.type}; write numbers")
            if field.name in ("image", "patient", "split"):
                table = table.set_column(k, field.name, table[field.name].cast(pa.string()))
        return table

    def _check_header(self, names: list[str]) -> None:
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{self.path}:1: two columns have the name '{shortened(name)}'; rename one")
        if "image" not in names:
            hint = nearest("image", names, 1)
            raise UserError(f"{self.path}:1: there is no column image{hint}; add one with each image's path")
        if "patient" not in names and self.config.patient is None:
            hint = nearest("patient", names, 1)
            raise UserError(
                f"{self.path}:1: there is no column patient{hint}; add one, or state 'patient: none' in the "
                "config: each image then counts as a patient, and intervals are too narrow"
            )

    def _drop_empty_lines(self) -> None:
        """Leave out blank lines of a CSV file and keep the numbers of the others."""
        rows = np.arange(len(self.columns))
        if self.is_csv and compute.any(compute.equal(self.columns["image"], "")).as_py():
            blank = np.ones(len(rows), dtype=bool)
            for name in self.columns.column_names:
                blank &= compute.equal(self._texts(name), "").to_numpy(zero_copy_only=False)
            self.columns, rows = self.columns.filter(pa.array(~blank)), rows[~blank]
        self.rows = rows
        if not len(rows):
            raise UserError(f"{self.path}: the table has no rows; write one for each image")

    def _texts(self, name: str) -> pa.Array:
        """Return a column as one array of texts; a missing value is an empty one."""
        texts = self.columns[name].cast(pa.string()).combine_chunks()
        return compute.utf8_trim_whitespace(compute.fill_null(texts, ""))

    def wrong(self, bad: Any, column: str, what: str) -> UserError:
        """Return a complaint about the first row of the mask ``bad``, and how many there are."""
        numbers = np.flatnonzero(bad)
        more = f" ({len(numbers):,} such rows)" if len(numbers) > 1 else ""
        return UserError(f"{self._at(numbers[0])}: column {column}: {what}{more}")

    def _at(self, row: int) -> str:
        number = int(self.rows[row])
        return f"{self.path}:{number + 2}" if self.is_csv else f"{self.path}: row {number + 1}"

    def checked(self) -> pd.DataFrame:
        """Return the rows in order."""
        image = self._texts("image")
        table = pd.DataFrame({"image": image.to_pandas()})
        self._check_images(image, table["image"])
        table["patient"] = self._patients(len(table))
        table["split"] = self._split(table)
        for name in ABOUT:
            if name in self.columns.column_names:
                table[name] = self._texts(name).to_pandas()
        labels = {name: self._labels(name) for name in self._findings()}
        self._check_classes(table["split"], labels)
        whole = {name: _compact(values) for name, values in labels.items()}
        return pd.concat([table, pd.DataFrame(whole)], axis=1)

    def _check_images(self, texts: pa.Array, image: pd.Series) -> None:
        if (empty := image == "").any():
            raise self.wrong(empty, "image", "is empty; write the image's path, or remove the row")
        outside = compute.match_substring_regex(texts, _OUTSIDE).to_numpy(zero_copy_only=False)
        if outside.any():
            first = shortened(image[int(outside.argmax())])
            what = f"'{first}' is not a path below the folder; write it from {self.config.folder} on, with /"
            raise self.wrong(outside, "image", what)
        if (again := image.duplicated()).any():
            first = image[again].iloc[0]
            before = self._at(int((image == first).to_numpy().argmax()))
            what = f"second row for {shortened(first)} (first in {before}); keep one of the two"
            raise self.wrong(again, "image", what)

    def _patients(self, count: int) -> pd.Series:
        if self.config.patient == "none":
            return pd.Series(pd.NA, index=range(count), dtype="Int64")
        patients = self._texts("patient").to_pandas()
        if (empty := patients == "").any():
            raise self.wrong(empty, "patient", "is empty; fill it in, or state 'patient: none' in the config")
        return patients

    def _split(self, table: pd.DataFrame) -> pd.Series:
        units = table["image"] if self.config.patient == "none" else table["patient"]
        if "split" not in self.columns.column_names:
            shares = self.config.fractions
            return draw_split(units, self.config.seed, shares["train"], shares["val"])
        split = self._texts("split").to_pandas()
        if (bad := ~split.isin(SPLITS)).any():
            what = f"'{shortened(split[bad].iloc[0])}' is none of {', '.join(SPLITS)}; correct it, or leave "
            raise self.wrong(bad, "split", f"{what}the column out for a split by patient")
        pairs = pd.DataFrame({"unit": units, "split": split}).drop_duplicates()
        if (shared := pairs["unit"].duplicated()).any():
            unit = pairs["unit"][shared].iloc[0]
            rows = pairs.index[pairs["unit"] == unit][:2]
            places = " and ".join(f"{split[row]} ({self._at(row)})" for row in rows)
            count = pairs["unit"][shared].nunique()
            raise UserError(
                f"{self.path}: patient {shortened(unit)} is in {places}; {count:,} such patients in all: put "
                "all images of a patient into one part, or leave the column split out"
            )
        return split

    def _findings(self) -> list[str]:
        names = [name for name in self.columns.column_names if name not in _KNOWN]
        if (wanted := self.config.findings) is not None:
            for name in wanted:
                if name not in names:
                    hint = nearest(name, names)
                    raise UserError(f"{self.path}:1: the config's finding '{name}' is not a column{hint}")
            names = wanted
        if not names:
            raise UserError(f"{self.path}:1: there is no column of labels; add one for each finding")
        for name in names:
            if name in _RESERVED or not name.strip() or not name.isprintable() or len(name) > 60:
                raise UserError(
                    f"{self.path}:1: no finding can be called '{shortened(name)}'; rename the column (up to "
                    f"60 printable characters, not {', '.join(_RESERVED)})"
                )
        return names

    def _labels(self, name: str) -> np.ndarray:
        """Return the labels of a finding (n,) float64, NaN where one is to be left out."""
        kind = self.columns[name].type
        if pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
            values = self.columns[name].cast(pa.float64()).to_numpy()
            blank = np.isnan(values)
            texts = None
        else:
            texts = self._texts(name).dictionary_encode()
            words = texts.dictionary.to_pylist()
            codes = texts.indices.to_numpy()
            blank = np.array([word in _BLANK for word in words], dtype=bool)[codes]
            values = np.array([_number(word) for word in words], dtype=np.float64)[codes]
        good = np.isin(values, (0, 1, _UNCERTAIN)) | blank
        if not good.all():
            k = int((~good).argmax())
            shown = shortened(values[k] if texts is None else words[codes[k]])
            raise self.wrong(
                ~good,
                name,
                f"'{shown}' is not a label; write 0, 1, -1 (uncertain) or nothing, or, if {name} is no "
                "finding, list the findings under 'findings' in the config",
            )
        values = self._meant(name, values, values == _UNCERTAIN, "uncertain")
        return self._meant(name, values, blank, "blank")

    def _meant(self, name: str, values: np.ndarray, which: np.ndarray, key: str) -> np.ndarray:
        """Return ``values`` with what the config says that the labels ``which`` mean."""
        if not which.any():
            return values
        meaning = getattr(self.config, key)
        if meaning is None:
            what = "-1, so uncertain" if key == "uncertain" else "empty"
            remedy = f"state in the config what that means: '{key}: mask' (left out), positive or negative"
            raise self.wrong(which, name, f"a label is {what}; {remedy}")
        return np.where(which, _MEANS[meaning], values)

    def _check_classes(self, split: pd.Series, labels: dict[str, np.ndarray]) -> None:
        """Refuse an empty part, and a finding that a network could not learn."""
        for part in SPLITS:
            rows = (split == part).to_numpy()
            if not any((~np.isnan(values[rows])).any() for values in labels.values()):
                given = "split" in self.columns.column_names
                how = "such rows" if given else "more patients or other fractions"
                raise UserError(f"{self.path}: no image with a label is in part {part}; give {how}")
        train = (split == "train").to_numpy()
        for name, values in labels.items():
            for value, word in ((1, "positive"), (0, "negative")):
                if not (values[train] == value).any():
                    raise UserError(
                        f"{self.path}: column {name}: no training image is {word}; add such images, or leave "
                        "the finding out (list the others under 'findings' in the config)"
                    )


def one_class(table: pd.DataFrame, findings: tuple[str, ...]) -> Iterator[str]:
    """Yield in words which findings have images of one class only in the validation or the test part."""
    for part in ("val", "test"):
        rows = table[table["split"] == part]
        for name in findings:
            values = set(rows[name].dropna().unique())
            for value, word in ((1, "positive"), (0, "negative")):
                if value not in values:
                    yield f"{name}: no {part} image is {word}, so what needs one is undefined"


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return np.inf  # no label


def _compact(values: np.ndarray) -> pd.Series:
    """Return labels as uint8, nullable where one is missing."""
    if not np.isnan(values).any():
        return pd.Series(values.astype(np.uint8))
    return pd.Series(values).astype("UInt8")
