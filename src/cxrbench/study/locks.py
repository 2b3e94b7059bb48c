"""The package's one lock: a file held with flock(2), which the system releases however its holder ends."""

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import IO, NamedTuple

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
    here, deadline, told = socket.gethostname(), time.monotonic() + _LEASE, False
    while not isinstance(held := _take(path), TextIOWrapper):
        holder = held or f"another process on {here} is {doing}"
        if wait and not told:
            told = True
            print(printable(f"{subject}: {holder}; waiting for its end"), file=sys.stderr, flush=True)
        elsewhere = held is not None and held.host != here
        if not wait and (not elsewhere or time.monotonic() > deadline):
            raise UserError(f"{subject}: {holder}; wait for its end or stop it, then run this again")
        time.sleep(_PAUSE)
    try:
        with suppress(OSError):  # a full disk: the lock holds without its holder's name
            since = datetime.now(UTC).isoformat(timespec="seconds")
            held.truncate(0)
            json.dump(Holder(here, os.getpid(), doing, since), held)
            held.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # while held: a waiting process makes a new one
        with suppress(OSError):
            held.close()


def _take(path: Path) -> TextIOWrapper | Holder | None:
    """Return lock file ``path``, held; else its holder, none where that is not written yet."""
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
