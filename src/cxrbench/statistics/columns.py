"""Columns of a table from anywhere, CSV or Parquet; what cannot be read is one message with the reason."""

import csv
import gzip
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pandas as pd
import pyarrow as pa
from pyarrow import compute, parquet
from pyarrow import csv as arrow_csv

from cxrbench.statistics.errors import UserError, shortened

# From the names of all columns, those that are wanted and the type of each: "str" for texts, which are
# stripped; "category" for texts of few kinds; None for texts or numbers, as they come.
Choose = Callable[[list[str]], dict[str, str | None]]
_PLAIN = ("string", "large_string", "string_view", "integer", "floating", "boolean", "decimal", "null")
# An empty value, also as R, spreadsheets and Python write it.
_MISSING = (*arrow_csv.ConvertOptions().null_values, "None", "<NA>")
MOST_VALUES, MOST_BYTES = 100_000_000, 2 << 30  # of a Parquet file, rows times columns; of a CSV file
_LESS = "keep the rows and columns that are needed"
_BLOCK = 1 << 24  # bytes read at a time
_MARK = b"PAR1"  # at both ends of a Parquet file
_GZIP, _ZIP, _EXCEL = b"\x1f\x8b", b"PK\3\4", b"\xd0\xcf\x11\xe0"  # how files begin; Excel's before 2007
_UTF16 = "it is in UTF-16; save it as CSV in UTF-8"
_OTHER = {
    _EXCEL: "it is an Excel file; save it as CSV in UTF-8",
    _MARK: "it is a Parquet file; give it a name in .parquet",
    b"\xff\xfe": _UTF16,
    b"\xfe\xff": _UTF16,
}
CSV = (".csv", ".csv.gz")  # how names of CSV files end


def read_columns(
    path: Path,
    is_csv: bool,
    choose: Choose,
    remedy: Callable[[], str],
    missing: Sequence[str] = _MISSING,
    delimiters: str = ",",
) -> pd.DataFrame:
    """The columns that ``choose`` wants; the index numbers the rows of the file from 0.

    A CSV file's columns are separated by the one of ``delimiters`` that its first line has most of; its blank
    lines are left out, and what it has of ``missing`` is a missing value. Raises UserError for a file that
    cannot be read, ending in its ``remedy``, for one above :data:`MOST_VALUES` or :data:`MOST_BYTES`, which
    fits no memory, and for columns of one name or of an odd type.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     pd.DataFrame({"seed": [0, 1], "score": [0.71, 0.72]}).to_csv(path := Path(folder) / "runs.csv")
    ...     read_columns(path, True, lambda names: {"score": None}, lambda: "write it again").to_dict("list")
    {'score': [0.71, 0.72]}
    """
    try:
        table, chosen = _csv(path, choose, missing, delimiters) if is_csv else _parquet(path, choose)
        columns = {name: _plain(path, table, name, kind) for name, kind in chosen.items()}
        few = [name for name, kind in chosen.items() if kind == "category"]
        rows = pa.table(columns).to_pandas(categories=few)
    except (pa.ArrowException, OSError, EOFError, ValueError, csv.Error, zlib.error) as error:
        kind = "CSV" if is_csv else "Parquet"
        first_line = shortened(next(iter(str(error).splitlines()), "no reason is known"))
        if is_csv and path.is_file() and (fault := _no_csv(path)):
            raise UserError(f"{path}: not a readable CSV file: {fault}") from None
        reason = first_line if is_csv or isinstance(error, OSError) else _no_parquet(path) or first_line
        raise UserError(f"{path}: not a readable {kind} file ({reason}); {remedy()}") from None
    return rows.dropna(how="all") if is_csv else rows


def _csv(
    path: Path, choose: Choose, missing: Sequence[str], delimiters: str
) -> tuple[pa.Table, dict[str, str | None]]:
    if (size := path.stat().st_size) > MOST_BYTES:
        raise UserError(f"{path}: {size:,} bytes, more than {MOST_BYTES:,}; {_LESS}")
    hexadecimal = _scanned(path)
    with _opened(path) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as file:
        delimiter = max(delimiters, key=file.readline().count)
        file.seek(0)
        header = next(csv.reader(file, strict=True, delimiter=delimiter), [])
    names = [name.strip() for name in header]
    chosen = choose(names)
    # Arrow would take 0x1 for 1: such a file's columns stay texts, in which it is no number.
    texts = {name: pa.string() for name in header if hexadecimal or chosen.get(name.strip())}
    table = arrow_csv.read_csv(
        path,
        # Arrow's threads may abort a process that ends soon after (apache/arrow issue 34314).
        read_options=arrow_csv.ReadOptions(use_threads=False),
        # Empty lines count, so that rows can be numbered.
        parse_options=arrow_csv.ParseOptions(ignore_empty_lines=False, delimiter=delimiter),
        convert_options=arrow_csv.ConvertOptions(
            column_types=texts, null_values=missing, strings_can_be_null=True
        ),
    )
    return table.rename_columns(names), chosen


def _opened(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.name.lower().endswith(".gz") else open(path, "rb"))


def _scanned(path: Path) -> bool:
    """Whether a CSV file may hold a hexadecimal number; ValueError for a NUL byte."""
    hexadecimal, lines, last, size = False, 1, b"", 0
    with _opened(path) as file:
        while block := file.read(_BLOCK):
            if (size := size + len(block)) > MOST_BYTES:  # of a compressed file
                raise UserError(f"{path}: more than {MOST_BYTES:,} bytes when unpacked; {_LESS}")
            before, nul, _ = block.partition(b"\0")
            lines += before.count(b"\n")
            if nul:
                raise ValueError(f"a NUL byte in line {lines}")
            if not hexadecimal and (b"x" in block or b"X" in block):  # one sign is found far sooner than two
                hexadecimal = any(mark in last + block for mark in (b"0x", b"0X"))
            last = block[-1:]
    return hexadecimal


def _parquet(path: Path, choose: Choose) -> tuple[pa.Table, dict[str, str | None]]:
    with parquet.ParquetFile(path) as file:
        rows, columns = file.metadata.num_rows, file.metadata.num_columns
        if rows * columns > MOST_VALUES:
            size = f"{rows:,} rows of {columns:,} columns, more than {MOST_VALUES:,} values"
            raise UserError(f"{path}: {size}; {_LESS}")
        chosen = choose(file.schema_arrow.names)
        return file.read(use_threads=False), chosen


def _no_parquet(path: Path) -> str:
    """The reason a file is not Parquet, by the mark at both its ends; empty where it has them."""
    with open(path, "rb") as file:
        begin = file.read(len(_MARK))
        file.seek(-len(begin), os.SEEK_END)
        end = file.read()
    if begin != _MARK:
        return "it has another format; give a CSV file a name in .csv" if begin else "it is empty"
    return "" if end == _MARK else "its end is missing: it was cut short"


def _no_csv(path: Path) -> str:
    """What a file is instead of CSV, by its first bytes, and what to do; empty where these do not tell."""
    with open(path, "rb") as file:
        begin = file.read(4)
    zipped = path.name.lower().endswith(".gz")
    if begin.startswith(_GZIP) != zipped:
        return (
            "it is not gzipped; take .gz off its name" if zipped else f"it is gzipped; call it {path.name}.gz"
        )
    if begin != _ZIP:
        return next((fault for mark, fault in _OTHER.items() if begin.startswith(mark)), "")
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, zipfile.BadZipFile):
        names = []
    if any(name.endswith(".npy") for name in names):
        return "it holds arrays of NumPy; give it a name in .npz, if it is MedMNIST's, or save a table as CSV"
    if any(name.startswith("xl/") for name in names):
        return _OTHER[_EXCEL]
    return "it is a zip file; unpack it"


def _plain(path: Path, table: pa.Table, name: str, wanted: str | None) -> pa.ChunkedArray:
    """A column of texts or numbers, without its dictionary and what pandas noted about it."""
    if table.column_names.count(name) > 1:
        raise UserError(f"{path}:1: two columns have the name '{shortened(name)}'; rename one")
    kind = table[name].type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not any(getattr(pa.types, f"is_{plain}")(kind) for plain in _PLAIN):
        raise UserError(f"{path}: column {name} has the type {kind}; write texts or numbers")
    column = table[name].cast(pa.string() if wanted else kind)
    return compute.utf8_trim_whitespace(column) if wanted == "str" else column
