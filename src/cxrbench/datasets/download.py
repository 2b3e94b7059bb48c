"""Download the files of data/registry.csv, resume after a break, and check size and hash before renaming.

Bytes are collected in a hidden ``.NAME.part``, which survives a kill and is continued by a byte range
(RFC 9110, section 14). Sources are read by :mod:`streams`; back-off, resuming and verification are here.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock, Timeout
from tqdm import tqdm

from cxrbench.datasets.registry import RemoteFile
from cxrbench.datasets.streams import Broken, Refused, below, opened
from cxrbench.study.errors import UserError, printable
from cxrbench.study.files import DISK_FULL


@dataclass(frozen=True)
class Patience:
    """When to give up on a source. Only tries without a single new byte count against ``retries``."""

    retries: int = 8
    timeout: float = 60.0  # seconds
    first_wait: float = 1.0  # seconds; doubled after every try without a new byte
    longest_wait: float = 60.0


class FileState(NamedTuple):
    """The state of a registry file in a folder, and the reason for it."""

    file: RemoteFile
    state: Literal["present", "missing", "damaged"]
    why: str = ""


class Link(NamedTuple):
    """The answer of an address; ``ok`` when it offers the file at the registry's size."""

    file: RemoteFile
    url: str
    ok: bool
    answer: str


def inspect(files: list[RemoteFile], folder: Path, jobs: int) -> list[FileState]:
    """Return each file's state by size and hash, in order; reads everything that is there."""
    total = sum(_size(folder / file.name) for file in files)
    with _progress("checking", total) as bar, ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda file: _inspect(file, folder, bar), files))


def _inspect(file: RemoteFile, folder: Path, bar: tqdm | None = None) -> FileState:
    path = folder / file.name
    if not path.is_file():
        begun = _size(part_of(folder, file.name))
        return FileState(file, "missing", f"{begun:,} bytes of it are fetched" if begun else "")
    if file.size is not None and (size := path.stat().st_size) != file.size:
        return FileState(file, "damaged", f"{size:,} bytes instead of {file.size:,}")
    digest = _digest(path, file.algorithm)
    if bar is not None:
        bar.update(_size(path))
    if digest != file.digest:
        return FileState(file, "damaged", f"{file.algorithm} is {digest} instead of {file.digest}")
    return FileState(file, "present")


def download(
    files: list[RemoteFile], folder: Path, mirrors: tuple[str, ...], jobs: int, patience: Patience
) -> list[FileState]:
    """Download what is missing of ``files`` into ``folder``, ``jobs`` at a time; returns the states before.

    ``mirrors`` (addresses or folders) are asked first. Raises UserError before the first byte when the disk
    has no room or another file has a name of the registry, and at the end with all files that no source
    gave; the others are in place by then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    states = inspect(files, folder, jobs)
    for file, state, why in states:
        if state == "damaged":
            raise UserError(
                f"{folder / file.name}: is not the registry's file ({why}); move it away, or replace it: "
                f"cxrbench data verify {file.dataset} --folder {folder} --mend"
            )
    missing = [state.file for state in states if state.state == "missing"]
    begun = sum(_size(part_of(folder, file.name)) for file in missing if file.size)
    total = sum(file.size or 0 for file in missing)
    _must_have_room(len(missing), total - begun, folder)
    stop, failures = threading.Event(), []
    with _progress("fetching", total) as bar, ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(Transfer(f, folder, patience, bar, stop).run, mirrors): f for f in missing}
        try:
            for done, future in enumerate(as_completed(running), start=1):
                try:
                    future.result()
                    _say(f"{running[future].name}: complete ({done} of {len(missing)})")
                except UserError as error:
                    failures.append(str(error))
        except BaseException:
            stop.set()  # Ctrl-C: the parts stay, and the next run continues them
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise UserError("\n".join(failures))
    return states


def mend(
    states: list[FileState], folder: Path, mirrors: tuple[str, ...], jobs: int, patience: Patience
) -> None:
    """Download the damaged and missing files, and no others; a file cut short is continued."""
    for file, state, _ in states:
        path, part = folder / file.name, part_of(folder, file.name)
        if state == "damaged" and file.size and _size(path) < file.size and not part.exists():
            path.rename(part)
        elif state == "damaged":
            path.unlink()
    download([state.file for state in states if state.state != "present"], folder, mirrors, jobs, patience)


def check_links(files: list[RemoteFile], timeout: float, jobs: int = 4) -> list[Link]:
    """Ask every address and mirror of ``files`` for its headers; ``timeout`` in seconds. Fetches no file."""
    asked = [(file, url) for file in files for url in (file.url, *file.mirrors)]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda pair: _check(pair[0], pair[1], timeout), asked))


def _check(file: RemoteFile, url: str, timeout: float) -> Link:
    try:
        with opened(url, 0, timeout) as (_, total, _chunks):
            answer = "answers without a size" if total is None else f"{total:,} bytes"
    except (Broken, Refused) as error:
        return Link(file, url, False, str(error))
    if total is None or file.size in (None, total):
        return Link(file, url, True, answer)
    return Link(file, url, False, f"{answer}, the registry has {file.size:,}")


class Transfer:
    """The transfer of a file into ``folder``; only one process at a time writes it."""

    def __init__(
        self, file: RemoteFile, folder: Path, patience: Patience, bar: tqdm, stop: threading.Event
    ) -> None:
        self.file, self.folder, self.patience, self.bar, self.stop = file, folder, patience, bar, stop
        self.part, self.path = part_of(folder, file.name), folder / file.name
        self.size = 0  # of the part

    def run(self, mirrors: tuple[str, ...] = ()) -> None:
        """Fetch the file from the first source that gives it; UserError with all answers when none does."""
        with self._locked():
            if self.path.exists():  # another process wrote it meanwhile
                if (state := _inspect(self.file, self.folder)).state != "present":
                    raise UserError(
                        f"{self.path}: appeared during the download and is not the registry's file "
                        f"({state.why}); wait for the process that writes it, or move it away, and run the "
                        "same command again"
                    )
                return
            self.size = _size(self.part)
            self.bar.update(self.size)
            if self.size:
                _say(f"{self.file.name}: continuing after {self.size:,} bytes")
                if self.file.size in (None, self.size) and self._renamed():
                    return  # a kill had come between the last byte and the check
            answers = []
            for source in (*(below(m, self.file.name) for m in mirrors), self.file.url, *self.file.mirrors):
                try:
                    return self._fetch(source)
                except Refused as refusal:
                    answers.append(f"\n  {source}: {refusal}")
                    _say(f"{self.file.name}: {source}: {refusal}")
            kept = f"; {self.size:,} bytes are kept" if self.size else ""
            raise UserError(
                f"{self.file.name}: no source gave it{''.join(answers)}\n  run the same command again to "
                f"continue{kept}, or name a copy with --mirror (an address or a folder)"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = FileLock(self.folder / f".{self.file.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _say(f"{self.file.name}: another process is fetching it; waiting for that")
            lock.acquire(poll_interval=0.2, cancel_check=self.stop.is_set)
        try:
            yield
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)  # while held: a waiting process makes a new one
            lock.release()

    def _fetch(self, source: str) -> None:
        """Fetch from ``source``, with repeats while they may help; Refused when they do not."""
        vain, most, wrong = 0, self.size, 0
        while not self.stop.is_set():
            try:
                self._append(source)
                if self._renamed():
                    return
                self._restart("the bytes have a wrong hash")
                wrong += 1
                if wrong == 2:  # the first time, an earlier part may have been at fault
                    raise Refused("twice sent bytes with another hash than the registry's")
            except Broken as broken:
                vain = 0 if self.size > most else vain + 1
                most = max(most, self.size)
                if vain > self.patience.retries:
                    raise Refused(f"{broken}; given up after {vain} tries without a new byte") from None
                longest = self.patience.longest_wait
                doubled = min(longest, self.patience.first_wait * 2 ** max(0, vain - 1))
                seconds = max(doubled * random.uniform(0.5, 1), min(broken.wait, 5 * longest))
                _say(f"{self.file.name}: {broken}; trying again in {seconds:.1f} s")
                self.stop.wait(seconds)
        raise UserError(f"{self.file.name}: stopped")

    def _append(self, source: str) -> None:
        """Request what is missing of the file and append it to the part."""
        with opened(source, self.size, self.patience.timeout) as (start, total, chunks):
            expected = self.file.size or total
            if total not in (None, expected):
                raise Refused(f"offers {total:,} bytes, the file has {expected:,}: it is another file")
            if start != self.size:
                self._restart(f"{source} cannot continue; starting again")
            if self.file.size is None and total is not None:
                _must_have_room(1, total - self.size, self.folder)
            try:
                self._write(chunks, expected)
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                raise UserError(
                    f"{self.path}: the disk is full; the {_size(self.part):,} bytes fetched are kept in "
                    f"{self.part.name}: free some space and run the same command again"
                ) from None
        if expected is not None and self.size > expected:
            self._restart()
            raise Refused(f"sends more than the {expected:,} bytes of the file")
        if expected is not None and self.size < expected:
            raise Broken(f"cut after {self.size:,} of {expected:,} bytes")

    def _write(self, chunks: Iterator[bytes], most: int | None) -> None:
        with open(self.part, "ab") as part:
            for chunk in chunks:
                if self.stop.is_set():
                    return
                part.write(chunk)
                self.size += len(chunk)
                self.bar.update(len(chunk))
                if most is not None and self.size > most:
                    return
            part.flush()
            os.fsync(part.fileno())

    def _renamed(self) -> bool:
        """Give the part its name if its hash is the registry's."""
        right = _digest(self.part, self.file.algorithm) == self.file.digest
        if right:
            os.replace(self.part, self.path)
        return right

    def _restart(self, why: str = "") -> None:
        if why and self.size:
            _say(f"{self.file.name}: {why}")
        self.part.unlink(missing_ok=True)
        self.bar.update(-self.size)
        self.size = 0


def part_of(folder: Path, name: str) -> Path:
    """Return where the bytes of file ``name`` are collected."""
    return folder / f".{name}.part"


def _digest(path: Path, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _must_have_room(files: int, need: int, folder: Path) -> None:
    if need > (free := shutil.disk_usage(folder).free):
        raise UserError(
            f"{folder}: {files} files need {_bytes(need)} more and the disk has {_bytes(free)} free; "
            f"free {_bytes(need - free)}, choose another place with --folder, or fewer files with --only"
        )


def _bytes(count: int) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e7 else f"{count:,} bytes"


def _progress(what: str, total: int) -> tqdm:
    """One bar over ``total`` bytes on a terminal, none elsewhere."""
    return tqdm(desc=what, total=total or None, unit="B", unit_scale=True, disable=None, leave=total > 0)


def _say(text: str) -> None:
    """Print a message above the bar."""
    tqdm.write(printable(text), file=sys.stderr)
