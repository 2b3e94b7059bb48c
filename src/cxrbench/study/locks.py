"""The package's one lock: a file held with flock(2), which the system releases however its holder ends."""

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from cxrbench.study.errors import UserError, printable

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


@contextmanager
def locked(path: Path, subject: object, doing: str, wait: bool = False) -> Iterator[None]:
    """Hold lock file ``path``, whose text says since when this process is ``doing`` that to ``subject``.

    Where another process holds it: UserError with that text, or print it once and ``wait``. A holder on
    another host may be lost: it gets the time in which a shared disk gives up its lock.
    """
    here, deadline, told = socket.gethostname(), time.monotonic() + _LEASE, False
    while isinstance(file := _take(path), str):
        holder = file or f"another process on {here} is {doing}"
        if wait and not told:
            told = True
            print(printable(f"{subject}: {holder}; waiting for its end"), file=sys.stderr, flush=True)
        elif not wait and (f" on {here} " in holder or time.monotonic() > deadline):
            raise UserError(f"{subject}: {holder}; wait for its end or stop it, then run this again")
        time.sleep(_PAUSE)
    try:
        with suppress(OSError):  # a full disk: the lock holds without its holder's name
            since, mine = datetime.now(UTC).isoformat(timespec="seconds"), os.getpid()
            file.truncate(0)
            file.write(f"process {mine} on {here} has been {doing} since {since} (to stop it: kill {mine})")
            file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # while held: a waiting process makes a new one
        with suppress(OSError):
            file.close()


def _take(path: Path) -> IO[str] | str:
    """Return lock file ``path``, held; or the text of whoever holds it."""
    while True:
        file = path.open("a+", encoding="utf-8")
        if (alone := taken(file)) is False:
            with file:
                file.seek(0)
                return file.read()
        if alone is None:
            print(f"{path}: this disk has no locks; do not run this twice at a time", file=sys.stderr)
        with suppress(FileNotFoundError):
            if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                return file
        file.close()  # the last holder removed it after it was opened here
