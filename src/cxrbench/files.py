"""Writing files so that a final name never stands on half-written content, and hashing them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrbench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd


@contextmanager
def written_aside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it on success, remove it on any failure.

    A full disk becomes a UserError that names the file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        aside.chmod(0o666 & ~_umask())
        os.replace(aside, path)
    except OSError as error:
        if error.errno in (28, 122):  # ENOSPC, EDQUOT
            raise UserError(
                f"{path}: the disk is full; free some space on {path.parent} and run again "
                "(nothing half-written is left)"
            ) from error
        raise
    finally:
        aside.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text with Unix line ends, aside and renamed."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8", newline="\n")


def write_if_changed(path: Path | str, text: str) -> None:
    """Write ``text`` unless the file holds it already: its time of change stays what it was."""
    path = Path(path)
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        write_text(path, text)


def write_json(path: Path | str, value: Any) -> None:
    """Write indented JSON with a final newline, aside and renamed."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def sha256_file(path: Path | str) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex sha256 of a value's canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_csv(path: Path | str, table: pd.DataFrame) -> None:
    """Write a table as CSV with Unix line ends, aside and renamed."""
    write_text(path, table.to_csv(index=False, lineterminator="\n"))
