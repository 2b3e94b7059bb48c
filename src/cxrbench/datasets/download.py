"""Download the files of data/registry.csv: resume after a break, check size and hash, then rename.

Bytes are collected in a hidden ``.NAME.part``, which survives a kill and is continued by a byte range
(RFC 9110, section 14). Sources are web addresses, read with requests, or local folders.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import requests
from filelock import FileLock, Timeout
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from cxrbench.datasets.registry import RemoteFile
from cxrbench.study.errors import UserError, printable
from cxrbench.study.files import DISK_FULL

_CHUNK = 1 << 18  # bytes read at a time at most
_LEAST_RATE = 64  # bytes per second, averaged over a time-out; less counts as a stall
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
_is_address = re.compile("https?://").match


class Broken(Exception):
    """A failure that may pass: worth another try, after ``wait`` seconds at least."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class Refused(Exception):
    """The source does not have the file; another try would give the same answer."""


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


def inspect(files: list[RemoteFile], folder: Path, jobs: int) -> list[FileState]:
    """Return each file's state by size and hash, in order; reads everything that is there."""
    states, total = [], sum(_size(folder / file.name) for file in files)
    with _progress("checking", total) as bar, ThreadPoolExecutor(jobs) as pool:
        for state in pool.map(partial(_inspect, folder=folder), files):
            bar.update(_size(folder / state.file.name))
            states.append(state)
    return states


def _inspect(file: RemoteFile, folder: Path) -> FileState:
    path, begun = folder / file.name, _size(part_of(folder, file.name))
    if not path.is_file():
        return FileState(file, "missing", f"{begun:,} bytes of it are fetched" if begun else "")
    if file.size not in (None, size := _size(path)):
        return FileState(file, "damaged", f"{size:,} bytes instead of {file.size:,}")
    if (found := file.hash_of(path)) != file.hash:
        return FileState(file, "damaged", f"{found} instead of {file.hash}")
    return FileState(file, "present")


def download(
    files: list[RemoteFile],
    folder: Path,
    mirrors: tuple[str, ...],
    jobs: int,
    patience: Patience,
    mend: bool = False,
) -> list[FileState]:
    """Download what is missing of ``files`` into ``folder``, ``jobs`` at a time; return the states before.

    ``mirrors`` (addresses or folders) are asked first. A damaged file is an error, or with ``mend`` replaced
    (continued, when it was cut short). Raises UserError before the first byte when the disk has no room, and
    at the end with all files that no source gave; the others are in place by then.
    """
    folder.mkdir(parents=True, exist_ok=True)
    states = inspect(files, folder, jobs)
    for state in states:
        path, part, size = folder / state.file.name, part_of(folder, state.file.name), state.file.size
        if not mend:
            _refuse_damaged(state, path)
        elif state.state == "damaged" and size and _size(path) < size and not part.exists():
            path.rename(part)
        elif state.state == "damaged":
            path.unlink()
    missing = [state.file for state in states if state.state != "present"]
    begun = sum(_size(part_of(folder, file.name)) for file in missing if file.size)
    total = sum(file.size or 0 for file in missing)
    _must_have_room(len(missing), total - begun, folder)
    stop, failures = threading.Event(), []
    with _progress("fetching", total) as bar, ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(Transfer(f, folder, patience, bar, stop).run, mirrors): f for f in missing}
        try:
            for done, future in enumerate(as_completed(running), start=1):
                if isinstance(error := future.exception(), UserError):
                    failures.append(str(error))
                else:
                    future.result()
                    _say(f"{running[future].name}: complete ({done} of {len(missing)})")
        except BaseException:
            stop.set()  # Ctrl-C: the parts stay, and the next run continues them
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise UserError("\n".join(failures))
    return states


def check_links(files: list[RemoteFile], timeout: float, jobs: int = 4) -> list[tuple[str, ...]]:
    """Ask every address and mirror of ``files`` for its headers; ``timeout`` in seconds. Fetches no file.

    Returns dataset, file, state ('ok' or 'dead'), answer and address.
    """

    def check(file: RemoteFile, url: str) -> tuple[str, ...]:
        try:
            with _answer(url, file.size, 0, timeout) as (_, _first, total):
                state, answer = "ok", "answers without a size" if total is None else f"{total:,} bytes"
        except (Broken, Refused) as error:
            state, answer = "dead", str(error)
        return file.dataset, file.name, state, answer, url

    with ThreadPoolExecutor(jobs) as pool:
        asked = [(file, url) for file in files for url in (file.url, *file.mirrors)]
        return list(pool.map(check, *zip(*asked, strict=True)))


def _refuse_damaged(state: FileState, path: Path) -> None:
    if state.state == "damaged":
        raise UserError(
            f"{path}: is not the registry's file ({state.why}); wait for the process that writes it, move it "
            f"away, or replace it: cxrbench data verify {state.file.dataset} --folder {path.parent} --mend"
        )


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
        lock = FileLock(self.folder / f".{self.file.name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            _say(f"{self.file.name}: another process is fetching it; waiting for that")
            lock.acquire(poll_interval=0.2, cancel_check=self.stop.is_set)
        try:
            if self.path.exists():  # it appeared meanwhile
                _refuse_damaged(_inspect(self.file, self.folder), self.path)
            else:
                self._try_all(mirrors)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            raise UserError(
                f"{self.path}: the disk is full; the {_size(self.part):,} bytes fetched are kept in "
                f"{self.part.name}: free some space and run the same command again"
            ) from None
        finally:
            Path(lock.lock_file).unlink(missing_ok=True)  # while held: a waiting process makes a new one
            lock.release()

    def _try_all(self, mirrors: tuple[str, ...]) -> None:
        name, answers = self.file.name, ""
        self._count(_size(self.part))
        if self.size:
            _say(f"{name}: continuing after {self.size:,} bytes")
        copies = (f"{m.rstrip('/')}/{quote(name)}" if _is_address(m) else f"{m}/{name}" for m in mirrors)
        for source in (*copies, self.file.url, *self.file.mirrors):
            try:
                return self._fetch(source) if _is_address(source) else self._copy(Path(source))
            except Refused as refusal:
                answers += f"\n  {source}: {refusal}"
                _say(f"{name}: {source}: {refusal}")
        kept = f"; {self.size:,} bytes are kept" if self.size else ""
        raise UserError(
            f"{name}: no source gave it{answers}\n  run the same command again to continue{kept}, "
            "or name a copy with --mirror (an address or a folder)"
        )

    def _copy(self, path: Path) -> None:
        """Copy the file from a folder, unless it is another file: what was fetched is kept then."""
        try:
            if self.file.hash_of(path) != self.file.hash:
                raise Refused("has another hash than the registry's")
        except OSError as error:
            raise Refused(str(error.strerror)) from None
        shutil.copyfile(path, self.part)
        self._count(_size(self.part) - self.size)
        os.replace(self.part, self.path)

    def _fetch(self, url: str) -> None:
        """Fetch from ``url``, with repeats while they may help; Refused when they do not."""
        vain, most, doubted, patience = 0, self.size, False, self.patience
        while not self.stop.is_set():
            try:
                if self.size != self.file.size:  # else a kill had come between the last byte and the check
                    self._append(url)
                if self.file.hash_of(self.part) == self.file.hash:
                    os.replace(self.part, self.path)
                    return
                self._restart("the bytes have a wrong hash")
                if doubted:
                    raise Refused("twice sent bytes with another hash than the registry's")
                doubted = True  # the first time, an earlier part may have been at fault
            except Broken as broken:
                vain = 0 if self.size > most else vain + 1
                most = max(most, self.size)
                if vain > patience.retries:
                    raise Refused(f"{broken}; given up after {vain} tries without a new byte") from None
                doubled = min(patience.longest_wait, patience.first_wait * 2 ** max(0, vain - 1))
                seconds = max(doubled * random.uniform(0.5, 1), min(broken.wait, 5 * patience.longest_wait))
                _say(f"{self.file.name}: {broken}; trying again in {seconds:.1f} s")
                self.stop.wait(seconds)
        raise UserError(f"{self.file.name}: stopped")

    def _append(self, url: str) -> None:
        """Request what is missing of the file and append it to the part."""
        with _answer(url, self.file.size, self.size, self.patience.timeout) as (chunks, start, total):
            if start != self.size:
                self._restart(f"{url} cannot continue; starting again")
            if self.file.size is None and total is not None:
                _must_have_room(1, total - self.size, self.folder)
            with open(self.part, "ab") as part:
                for chunk in chunks:
                    part.write(chunk)
                    self._count(len(chunk))
                    if self.stop.is_set() or (total is not None and self.size > total):
                        break
                part.flush()
                os.fsync(part.fileno())
        if total is not None and self.size > total:
            self._restart()
            raise Refused(f"sends more than the {total:,} bytes of the file")
        if total is not None and self.size < total:
            raise Broken(f"cut after {self.size:,} of {total:,} bytes")

    def _count(self, size: int) -> None:
        self.size += size
        self.bar.update(size)

    def _restart(self, why: str = "") -> None:
        if why and self.size:
            _say(f"{self.file.name}: {why}")
        self.part.unlink(missing_ok=True)
        self._count(-self.size)


@contextmanager
def _answer(
    url: str, size: int | None, start: int, timeout: float
) -> Iterator[tuple[Iterator[bytes], int, int | None]]:
    """Yield bytes of ``url`` from ``start`` on, or from 0; the first one's place; ``size``, else as offered.

    ``timeout`` in seconds holds for connecting, for each silence and for a stall. Raises Broken or Refused,
    now or while the bytes are read.
    """
    headers = {"Accept-Encoding": "identity"}  # ranges count the file's own bytes
    if start:
        headers["Range"] = f"bytes={start}-"
    try:
        with requests.get(url, headers=headers, stream=True, timeout=timeout) as response:
            if response.status_code != 416 or not start:
                first, total = _range(response, start)
                if total not in (None, size or total):
                    raise Refused(f"offers {total:,} bytes, the file has {size:,}: it is another file")
                yield _chunks(response, timeout), first, size or total
                return
        with _answer(url, size, 0, timeout) as again:  # it has less than is here already
            yield again
    except (requests.TooManyRedirects, requests.exceptions.SSLError, ValueError) as error:
        raise Refused(f"cannot be asked ({_reason(error)})") from None
    except requests.Timeout:
        raise Broken(f"no answer for {timeout:g} s") from None
    except (requests.RequestException, HTTPError) as error:
        raise Broken(_reason(error)) from None


def _range(response: requests.Response, start: int) -> tuple[int, int | None]:
    """Return the first byte of an answer, and the file's size where it is known."""
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    if response.status_code != 206:
        why = f"the server answers {response.status_code} {response.reason}"
        if response.status_code not in _TEMPORARY:
            raise Refused(why)
        wait = response.headers.get("Retry-After", "")
        raise Broken(why, float(wait) if wait.isdecimal() else 0.0)
    answered = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answered)
    if match is None or int(match[1]) != start:
        raise Refused(f"it was asked for bytes from {start} on and answers '{answered}'")
    return start, None if match[2] == "*" else int(match[2])


def _chunks(response: requests.Response, timeout: float) -> Iterator[bytes]:
    """Yield bytes as they come; a server that keeps a connection alive with a trickle has stalled too."""
    since, taken = time.monotonic(), 0
    # read1 returns what has arrived; iter_content would wait for a whole chunk and hide a trickle.
    while chunk := response.raw.read1(_CHUNK, decode_content=False):
        yield chunk
        taken += len(chunk)
        if (passed := time.monotonic() - since) > timeout:
            if taken < _LEAST_RATE * passed:
                raise Broken(f"stalled: {taken} bytes in {passed:.0f} s")
            since, taken = time.monotonic(), 0


def _reason(error: BaseException) -> str:
    """Return the innermost reason in a line: requests and urllib3 wrap errors in each other."""
    while error.__context__ is not None:
        error = error.__context__
    return " ".join(str(error).split())[:200] or type(error).__name__


def part_of(folder: Path, name: str) -> Path:
    """Return where the bytes of file ``name`` are collected."""
    return folder / f".{name}.part"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _must_have_room(files: int, need: int, folder: Path) -> None:
    if need > (free := shutil.disk_usage(folder).free):
        gb = [f"{size / 1e9:,.3f} GB" for size in (need, free, need - free)]
        raise UserError(
            f"{folder}: {files} files need {gb[0]} more and the disk has {gb[1]} free; "
            f"free {gb[2]}, choose another place with --folder, or fewer files with --only"
        )


def _progress(what: str, total: int) -> tqdm:
    """Return a bar over ``total`` bytes on a terminal, none elsewhere."""
    return tqdm(desc=what, total=total or None, unit="B", unit_scale=True, disable=None, leave=total > 0)


def _say(text: str) -> None:
    """Print a message above the bar."""
    tqdm.write(printable(text), file=sys.stderr)
