"""What can be downloaded: data/registry.csv, one line per file, with its size, hash, licence and citation."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from cxrbench.errors import UserError, nearest

COLUMNS = ["dataset", "file", "url", "mirrors", "bytes", "hash", "licence", "citation"]
_DIGITS = {"md5": 32, "sha256": 64}


@dataclass(frozen=True)
class RemoteFile:
    """One file of the registry; ``size`` in bytes is None where its publisher does not state it."""

    dataset: str
    name: str
    url: str
    mirrors: tuple[str, ...]
    size: int | None
    algorithm: str
    digest: str
    licence: str
    citation: str


def read_registry(path: Path) -> list[RemoteFile]:
    """Every line of the registry; UserError naming file, line and remedy when one is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); restore it with git") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error}); restore it with git") from None
    rows = list(csv.reader(text.splitlines()))
    if not rows or rows[0] != COLUMNS:
        raise UserError(f"{path}, line 1: the columns are {','.join(COLUMNS)}; restore it with git")
    files = [_parse(row, f"{path}, line {number}") for number, row in enumerate(rows[1:], start=2)]
    seen: set[tuple[str, str]] = set()
    for number, file in enumerate(files, start=2):
        if (key := (file.dataset, file.name.lower())) in seen:
            raise UserError(f"{path}, line {number}: {file.name} of {file.dataset} occurs twice; remove one")
        seen.add(key)
    return files


def _parse(row: list[str], where: str) -> RemoteFile:
    if len(row) != len(COLUMNS):
        raise UserError(f"{where}: {len(row)} fields, not {len(COLUMNS)}; quote fields that hold commas")
    dataset, name, url, mirrors, size, digest, licence, citation = (field.strip() for field in row)
    if not dataset or PurePosixPath(name).name != name or name.startswith(".") or "\\" in name:
        raise UserError(f"{where}: '{name}' is not a plain file name; give a name without a folder")
    addresses = [url, *mirrors.split()]
    for address in addresses:
        if urlsplit(address).scheme not in ("http", "https"):
            raise UserError(f"{where}: '{address}' is not a web address; it starts with https://")
    algorithm, _, digits = digest.partition(":")
    if not re.fullmatch(rf"[0-9a-f]{{{_DIGITS.get(algorithm, 0)}}}", digits) or not digits:
        raise UserError(f"{where}: hash '{digest}' is not md5: or sha256: with 32 or 64 lower hex digits")
    if size and not size.isdecimal():
        raise UserError(f"{where}: bytes '{size}' is not a number; leave it empty when unknown")
    if not licence or not citation:
        raise UserError(f"{where}: licence or citation is empty; say under which terms {name} comes")
    return RemoteFile(
        dataset,
        name,
        url,
        tuple(addresses[1:]),
        int(size) if size else None,
        algorithm,
        digits,
        licence,
        citation,
    )


def choose(files: Iterable[RemoteFile], dataset: str, only: str = "*") -> list[RemoteFile]:
    """The files of ``dataset`` whose names match the shell pattern ``only``; UserError when none do."""
    files = list(files)
    known = list(dict.fromkeys(file.dataset for file in files))
    if dataset not in known:
        raise UserError(
            f"the registry has no dataset '{dataset}'{nearest(dataset, known)} (known: {', '.join(known)})"
        )
    of_dataset = [file for file in files if file.dataset == dataset]
    chosen = [file for file in of_dataset if fnmatch(file.name, only)]
    if not chosen:
        names = ", ".join(file.name for file in of_dataset)
        raise UserError(f"no file of {dataset} matches '{only}'; its files are {names}")
    return chosen
