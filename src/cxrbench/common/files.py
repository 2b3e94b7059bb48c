"""What processes of a machine share: files, written whole or not at all, and read; locks; and its cores."""

from __future__ import annotations

import csv
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from cxrbench.common.errors import UserError, printable

if TYPE_CHECKING:
    import pandas as pd

_Parsed = TypeVar("_Parsed")
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
    """The system's refusal, as a message about ``path`` (else the file it names) with a remedy.

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
    """The output of git in ``folder``, given ``lines``, or None where it fails or is not installed."""
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True)
    except (OSError, ValueError):  # no git, or a name that no file can have
        return None
    return None if done.returncode else done.stdout.decode(errors="replace")


def why_git_fails(folder: Path) -> str | None:
    """git's reason and remedy where it refuses a checkout that belongs to another user; else None."""
    try:
        done = subprocess.run(["git", "-C", str(folder), "rev-parse"], capture_output=True)
    except (OSError, ValueError):
        return None
    complaint = done.stderr.decode(errors="replace")
    if not done.returncode or "safe.directory" not in complaint:
        return None
    reason = complaint.splitlines()[0].removeprefix("fatal: ")
    command = next((line.strip() for line in complaint.splitlines() if "--add safe.directory" in line), "")
    return f"git says: {reason}; trust it with: {command or 'git config --global --add safe.directory PATH'}"


def remedy(path: Path) -> str:
    """The command that restores a damaged file from git, or the advice to make it again."""
    there = next(folder for folder in path.absolute().parents if folder.is_dir())
    options = ("--porcelain", "--no-renames", "--untracked-files=no", "--")
    changes = git(there, "status", *options, str(path.absolute()))
    can = changes and not changes.startswith("A")  # A: added since, so HEAD has no copy
    return f"restore it: git checkout HEAD -- {path}" if can else "make it again"


@contextmanager
def written_aside(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it on success, remove it on any failure.

    Bytes, then name, are on the disk when this returns: a power cut leaves the old file or the new one.
    What a link names is written, and the link stays; a device or pipe is written to. A full disk, a folder
    of that name and a place that may not be written become a UserError.
    """
    path, aside = Path(path), None
    if path.is_symlink():
        path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file() and not path.is_dir():
        with _poured_into(path) as held:
            yield held
        return
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


@contextmanager
def _poured_into(device: Path) -> Iterator[Path]:
    """Yield a temporary path; what is in it is written to ``device`` on success."""
    with TemporaryDirectory() as folder:
        yield (held := Path(folder) / device.name)
        try:
            with held.open("rb") as made, device.open("wb", buffering=0) as taken:
                shutil.copyfileobj(made, taken)
        except OSError as error:
            raise (explained(error, device) or error) from error


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
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Indented JSON with a final newline."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def sha256_file(path: Path | str) -> str:
    """Hex sha256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_json(value: Any) -> str:
    """Hex sha256 of a value's canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_csv(path: Path | str, table: pd.DataFrame) -> None:
    """Write a table as CSV with Unix line ends, aside and renamed.

    A text that a spreadsheet would run as a formula is quoted by ', which :func:`read_csv` takes off again;
    control and bidirectional characters are escaped.
    """
    safe = table.copy(deep=False)
    for position, kind in enumerate(table.dtypes):
        if kind in ("object", "string"):
            column = table.iloc[:, position]
            safe.isetitem(position, column.__class__([*map(_quoted, column)], column.index, "object"))
    write_text(path, safe.to_csv(index=False, lineterminator="\n"))


# A sign alone or before a number or a space begins none; with a bar it could start a program.
_FORMULA = re.compile(r"'*(?:[=@\t\r]|[+-](?:[^\d.\s]|.*\|))", re.S)


def _quoted(value: Any) -> Any:
    """A cell of a table as a CSV has it."""
    if not isinstance(value, str):
        return value
    text = "\n".join(map(printable, value.split("\n")))
    return f"'{text}" if _FORMULA.match(text) else text


def _unquoted(value: Any) -> Any:
    quoted = isinstance(value, str) and value.startswith("'") and _FORMULA.match(value)
    return value[1:] if quoted else value


def read_csv(path: Path | str, **options: Any) -> pd.DataFrame:
    """A table that :func:`write_csv` wrote; UserError where it is missing or was damaged since.

    ``options`` are those of pandas.
    """
    import pandas as pd  # imported here: many commands do without it

    def parse(text: str) -> pd.DataFrame:
        # A commit is a text whatever it looks like. Python's parser reads the numbers, because that of pandas
        # crashes on a text such as 70522e89776423859854.
        kinds = {"commit": str} | options.pop("dtype", {})
        table = pd.read_csv(io.StringIO(text), float_precision="round_trip", dtype=kinds, **options)
        if "'" not in text:
            return table
        for name in table.select_dtypes("object"):
            table[name] = pd.Series([*map(_unquoted, table[name])], table.index, "object")
        return table

    return _parsed(path, parse)


def read_texts(path: Path | str) -> list[dict[str, str]]:
    """The rows of such a table as texts, without pandas, which is slow to load."""

    def parse(text: str) -> list[dict[str, str]]:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
        if any(None in row or None in row.values() for row in rows):
            raise ValueError("its rows differ in length")
        return [{name: _unquoted(text) for name, text in row.items()} for row in rows]

    return _parsed(path, parse)


def _parsed(path: Path | str, parse: Callable[[str], _Parsed]) -> _Parsed:
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


# -- locks: held with flock(2), which the system releases however their holder ends --------------------

_LEASE = 120.0  # seconds until a shared disk gives up the lock of a node that died
_PAUSE = 0.2  # seconds between two tries


def taken(file: IO[str]) -> bool | None:
    """Lock an open file for this process alone; False where another holds it, None without locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def share(file: IO[str]) -> None:
    """Hold an open file together with others, once nobody has it alone."""
    fcntl.flock(file, fcntl.LOCK_SH)


class Holder(NamedTuple):
    """Who holds a lock file, as it is written there."""

    host: str
    process: int
    doing: str
    since: str  # ISO, UTC

    def __str__(self) -> str:
        to_stop = f"(to stop it: kill {self.process})"
        return f"process {self.process} on {self.host} has been {self.doing} since {self.since} {to_stop}"


@contextmanager
def locked(path: Path, subject: object, doing: str, wait: bool = False) -> Iterator[None]:
    """Hold lock file ``path``, which says since when this process is ``doing`` that to ``subject``.

    Where another process holds it: UserError that names it, or print that once and ``wait``. A holder on
    another host may be lost: it gets the time in which a shared disk gives up its lock.
    """
    host, deadline, told = socket.gethostname(), time.monotonic() + _LEASE, False
    while not isinstance(held := _take(path), TextIOWrapper):
        holder = held or f"another process on {host} is {doing}"
        if wait and not told:
            told = True
            print(printable(f"{subject}: {holder}; waiting for its end"), file=sys.stderr, flush=True)
        elsewhere = held is not None and held.host != host
        if not wait and (not elsewhere or time.monotonic() > deadline):
            raise UserError(f"{subject}: {holder}; wait for its end or stop it, then run this again")
        time.sleep(_PAUSE)
    try:
        with suppress(OSError):  # a full disk: the lock holds without its holder's name
            since = datetime.now(UTC).isoformat(timespec="seconds")
            held.truncate(0)
            json.dump(Holder(host, os.getpid(), doing, since), held)
            held.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # while held: a waiting process makes a new one
        with suppress(OSError):
            held.close()


def _take(path: Path) -> TextIOWrapper | Holder | None:
    """Lock file ``path``, held; else its holder, none where that is not written yet."""
    while True:
        file = path.open("a+", encoding="utf-8")
        if (alone := taken(file)) is False:
            with file:
                file.seek(0)
                with suppress(ValueError, TypeError):
                    return Holder(*json.load(file))
                return None
        if alone is None:
            print(f"{path}: this disk has no locks; do not run this twice at a time", file=sys.stderr)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()  # the last holder removed it after it was opened here


# -- cores, and threads that work ahead --------------------------------------------------------------


def cores() -> int:
    """Cores this process may use; fewer than the machine has under taskset, Slurm or a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ahead(make: Callable[[Any], Any], items: Iterable[Any], threads: int, most: int) -> Iterator[Any]:
    """``map(make, items)`` on ``threads``, at most ``most`` items at a time; errors are raised here."""
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(make, item))
                if len(waiting) == most:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
