"""Writing files whole or not at all, and hashing them."""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cxrbench.study.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

Table = TypeVar("Table")
_REMEDIES = {
    errno.ENOENT: "there is no such file or folder; check the path",
    errno.EISDIR: "this is a folder; name a file, for example one in it",
    errno.ENOTDIR: "a part of this path is a file, not a folder; check the path",
    errno.EEXIST: "a file stands where a folder is needed; name another place",
    errno.EACCES: "this may not be read or written; change its permissions or name another place",
    errno.EPERM: "this may not be changed; name another place",
    errno.EROFS: "this is on a read-only disk; name another place",
    errno.EFBIG: "File too large for a limit on file sizes (ulimit -f) or for this disk; raise the limit",
    errno.ENAMETOOLONG: "this name is too long; name a shorter one",
}
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explained(error: OSError, path: Path | str | None = None) -> UserError | None:
    """Return what the system refused, as a message about ``path`` (else the file it names) with a remedy.

    None for an error that is about no file, or that a user cannot correct.
    """
    path = path or error.filename
    if not isinstance(path, str | Path) or error.errno is None:
        return None
    remedy = _REMEDIES.get(error.errno)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        space = f"free some space on {Path(path).parent} and run again"
        remedy = f"the disk is full; {space} (nothing half-written is left)"
    return UserError(f"{path}: {remedy}") if remedy else None


def git(folder: Path, *words: str, lines: Iterable[str] = ()) -> str | None:
    """Return what git prints in ``folder``, given ``lines``; None where it fails or is not installed."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True)
    except (OSError, ValueError):  # no git, or a name that no file can have
        return None
    return None if done.returncode else done.stdout.decode(errors="replace")


def remedy(path: Path) -> str:
    """Return the command that restores a damaged file from git, or the advice to make it again."""
    there = next(folder for folder in path.absolute().parents if folder.is_dir())
    options = ("--porcelain", "--no-renames", "--untracked-files=no", "--")
    changes = git(there, "status", *options, str(path.absolute()))
    can = changes and not changes.startswith("A")  # A: added since, so HEAD has no copy
    return f"restore it: git checkout HEAD -- {path}" if can else "make it again"


@contextmanager
def written_aside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it on success, remove it on any failure.

    Bytes, then name, are on the disk when this returns: a power cut leaves the old file or the new one.
    A full disk, a folder of that name and a place that may not be written become a UserError.
    """
    path, aside = Path(path), None
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "", str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        unfinished.touch(exist_ok=False)
        aside = unfinished
        yield aside
        synced(aside)
        os.replace(aside, path)
        synced(path.parent)
    except OSError as error:
        ours = error.errno in DISK_FULL or aside is None or error.filename == str(aside)
        if ours and (message := explained(error, path)):  # else about another file, read meanwhile
            raise message from error
        raise
    finally:
        if aside:
            aside.unlink(missing_ok=True)


def synced(path: Path) -> None:
    """Wait until the disk has ``path``: a file's bytes, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network disks sync no folders
            raise
    finally:
        os.close(handle)


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


def read_csv(path: Path | str, **options: Any) -> pd.DataFrame:
    """Return a table that :func:`write_csv` wrote; UserError where it is missing or was damaged since.

    ``options`` are those of pandas.
    """
    import pandas as pd  # imported here: many commands do without it

    return _parsed(path, lambda text: pd.read_csv(io.StringIO(text), **options))


def read_texts(path: Path | str) -> list[dict[str, str]]:
    """Return the rows of such a table as texts, without pandas, which is slow to load."""

    def parse(text: str) -> list[dict[str, str]]:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
        if any(None in row or None in row.values() for row in rows):
            raise ValueError("its rows differ in length")
        return rows

    return _parsed(path, parse)


def _parsed(path: Path | str, parse: Callable[[str], Table]) -> Table:
    try:
        text = Path(path).read_text(encoding="utf-8")
        if not text.endswith("\n"):
            raise ValueError("its last line is cut")
        return parse(text)
    except FileNotFoundError:
        raise UserError(f"{path}: missing; a build makes it: run `make paper-from-evidence`") from None
    except OSError as error:
        raise explained(error, path) or UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, csv.Error) as error:  # of pandas too
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{path}: a damaged table ({reason}); remove it, then build it again") from None
