"""One file of the registry, fetched so that its final name never stands on anything but its bytes.

Bytes go to a hidden ``.NAME.part`` beside it, which outlives a kill and is continued by byte range. A lock
keeps two processes off the same file. Size and hash are checked before the part gets its name.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock, Timeout

from cxrbench.datasets.progress import Reporter
from cxrbench.datasets.registry import RemoteFile
from cxrbench.datasets.streams import CHUNK, Broken, Refused, below, is_address, new_session, opened
from cxrbench.errors import UserError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True)
class Patience:
    """How long a bad network is borne. Only tries without a single new byte count against ``retries``."""

    retries: int = 8
    timeout: float = 60.0  # seconds
    first_wait: float = 1.0  # seconds; doubles with every try that brought nothing
    longest_wait: float = 60.0


class Stopped(Exception):
    """Somebody asked all downloads to stop."""


def part_of(folder: Path, name: str) -> Path:
    """Where the bytes of file ``name`` are gathered."""
    return folder / f".{name}.part"


def digest_of(path: Path, algorithm: str, read: Callable[[int], object] = int) -> str:
    """Hex digest of a file; ``read`` is told how many bytes were read, chunk by chunk."""
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            read(len(chunk))
    return digest.hexdigest()


def sources_of(file: RemoteFile, mirrors: tuple[str, ...]) -> list[str]:
    """Where ``file`` may be had, in the order to be tried: ``mirrors`` (addresses or folders) come first."""
    return [*(below(mirror, file.name) for mirror in mirrors), file.url, *file.mirrors]


class Download:
    """The transfer of one file into ``folder``; :meth:`run` does it."""

    def __init__(
        self, file: RemoteFile, folder: Path, patience: Patience, tell: Reporter, stop: threading.Event
    ) -> None:
        self.file, self.folder, self.patience, self.tell, self.stop = file, folder, patience, tell, stop
        self.part, self.path = part_of(folder, file.name), folder / file.name
        self.session = new_session()
        self.size = 0
        self.digest = hashlib.new(file.algorithm, usedforsecurity=False)

    def run(self, sources: list[str]) -> None:
        """Fetch the file from the first of ``sources`` that gives it.

        Raises UserError with what each source answered; what was fetched by then is kept.
        """
        with self._alone():
            if self.path.exists():
                self._must_be_the_file()
                return  # another process brought it while this one waited
            self._take_up()
            complaints = []
            for source in sources:
                try:
                    self._from(source)
                    return
                except Refused as refusal:
                    complaints.append(f"\n  {source}: {refusal}")
                    self.tell.say(f"{self.file.name}: {source}: {refusal}")
            kept = f"; {self.size:,} bytes are kept" if self.size else ""
            raise UserError(
                f"{self.file.name}: no source gave it{''.join(complaints)}\n  run the same command again to "
                f"go on{kept}, or name a copy with --mirror (an address or a folder)"
            )

    def _must_be_the_file(self) -> None:
        """UserError when what stands under the name is not the registry's file, or not yet."""
        if (
            not self.path.is_file()
            or digest_of(self.path, self.file.algorithm, self.tell.gained) != self.file.digest
        ):
            raise UserError(
                f"{self.path}: came to stand there meanwhile and is not the registry's file; wait for "
                "whoever writes it, or move it away, and run the same command again"
            )

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Only this process writes the file; a second one waits until the first has it."""
        lock = FileLock(self.folder / f".{self.file.name}.lock")
        said = False
        while True:
            try:
                lock.acquire(timeout=0.2)
                break
            except Timeout:
                self._not_stopped()
                if not said:
                    self.tell.say(f"{self.file.name}: another process is fetching it; waiting for that")
                    said = True
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)  # held: whoever waits makes a new one
            lock.release()

    def _take_up(self) -> None:
        """Count and hash what an earlier run left."""
        if self.part.exists():
            with open(self.part, "rb") as part:
                while chunk := part.read(CHUNK):
                    self._count(chunk)
            if self.file.size is not None and self.size > self.file.size:
                self._forget("what an earlier run left is too long; from the start again")
            elif self.size:
                self.tell.say(f"{self.file.name}: going on after {self.size:,} bytes")

    def _count(self, chunk: bytes) -> None:
        self.digest.update(chunk)
        self.size += len(chunk)
        self.tell.gained(len(chunk))

    def _from(self, source: str) -> None:
        """Fetch from one source, again and again while that may help; Refused when it does not."""
        vain, most, wrong = 0, self.size, 0
        while True:
            self._not_stopped()
            try:
                self._append(source)
                if self._kept_its_promise():
                    return
                wrong += 1
                if wrong == 2:  # the first time, an older part may have been to blame
                    raise Refused("twice sent bytes with another hash than the registry's")
                self.tell.say(f"{self.file.name}: the bytes have a wrong hash; fetching them again")
            except Broken as broken:
                vain = 0 if self.size > most else vain + 1
                most = max(most, self.size)
                if vain > self.patience.retries:
                    raise Refused(f"{broken}; given up after {vain} tries without a new byte") from None
                self._wait(broken, vain, source)

    def _append(self, source: str) -> None:
        """One request: append what comes to the part, until the file is whole."""
        if self.size and self.digest.hexdigest() == self.file.digest:
            return  # all there: a kill came between the last byte and the check
        with opened(self.session, source, self.size, self.patience.timeout) as stream:
            if self.file.size is not None and stream.total not in (None, self.file.size):
                raise Refused(
                    f"offers {stream.total:,} bytes, the file has {self.file.size:,}: it is another file"
                )
            if stream.start != self.size:
                self._forget(f"{source} cannot continue; from the start again")
            with self._writing() as part:
                for chunk in stream.chunks:
                    self._not_stopped()
                    part.write(chunk)
                    self._count(chunk)
                    if self.file.size is not None and self.size > self.file.size:
                        break
                part.flush()
                os.fsync(part.fileno())
            self._must_be_whole(stream.total)

    def _must_be_whole(self, total: int | None) -> None:
        expected = total if self.file.size is None else self.file.size
        if expected is not None and self.size > expected:
            self._forget("")
            raise Refused(f"sends more than the {expected:,} bytes of the file")
        if expected is not None and self.size < expected:
            raise Broken(f"cut after {self.size:,} of {expected:,} bytes")

    @contextmanager
    def _writing(self) -> Iterator[BinaryIO]:
        try:
            with open(self.part, "ab") as part:
                yield part
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise UserError(
                f"{self.path}: the disk is full; the {self.part.stat().st_size:,} bytes fetched are kept in "
                f"{self.part.name}: free some space and run the same command again"
            ) from None

    def _kept_its_promise(self) -> bool:
        """Give the part its name when its hash is the registry's; else drop it."""
        if self.digest.hexdigest() == self.file.digest:
            os.replace(self.part, self.path)
            return True
        self._forget("")
        return False

    def _forget(self, why: str) -> None:
        if why and self.size:
            self.tell.say(f"{self.file.name}: {why}")
        self.part.unlink(missing_ok=True)
        self.tell.gained(-self.size)
        self.size, self.digest = 0, hashlib.new(self.file.algorithm, usedforsecurity=False)

    def _wait(self, broken: Broken, vain: int, source: str) -> None:
        longest = self.patience.longest_wait
        doubled = min(longest, self.patience.first_wait * 2 ** max(0, vain - 1))
        seconds = max(doubled * random.uniform(0.5, 1), min(broken.wait, 5 * longest))
        what = "going on" if is_address(source) else "trying again"
        self.tell.say(f"{self.file.name}: {broken}; {what} in {seconds:.1f} s")
        self.stop.wait(seconds)

    def _not_stopped(self) -> None:
        if self.stop.is_set():
            raise Stopped
