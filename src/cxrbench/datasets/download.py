"""Download the files of data/registry.csv: resume after a break, check size and hash, then rename.

Bytes are collected in a hidden ``.NAME.part``, which survives a kill and is continued by a byte range
(RFC 9110, section 14). Sources are web addresses, read with requests, or local folders.
"""

import os
import random
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock
from urllib.parse import quote

import requests
from tqdm import tqdm
from urllib3.exceptions import HTTPError

from cxrbench.common.errors import UserError, printable
from cxrbench.common.files import DISK_FULL, locked
from cxrbench.datasets.registry import FileState, RemoteFile, inspect, part_of, size_of

_CHUNK = 1 << 18  # bytes read at a time at most
_LEAST_RATE = 64  # bytes per second, averaged over a time-out; less counts as a stall
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
_HOPELESS = (requests.TooManyRedirects, requests.exceptions.SSLError, ValueError)
Answer = tuple[Iterator[bytes], int, int | None]
_is_address = re.compile("https?://").match


class Broken(Exception):
    """A failure that may pass: worth ``retries`` at most, each after ``wait`` seconds at least."""

    def __init__(self, why: str, wait: float = 0.0, retries: int = sys.maxsize) -> None:
        super().__init__(why)
        self.wait, self.retries = wait, retries


class Refused(Exception):
    """The source does not have the file; another try would give the same answer."""


@dataclass(frozen=True)
class Options:
    """How to download. Only tries without a single new byte count against ``retries``."""

    jobs: int = 4  # files at a time
    mirrors: tuple[str, ...] = ()  # addresses or folders that are asked first
    retries: int = 8
    timeout: float = 60.0  # seconds
    first_wait: float = 1.0  # seconds; doubled after every try without a new byte
    longest_wait: float = 60.0


def download(files: list[RemoteFile], folder: Path, options: Options, mend: bool = False) -> list[FileState]:
    """Download what is missing of ``files`` into ``folder``; return the states before.

    A damaged file is an error, or with ``mend`` replaced (continued, when it was cut short). Raises UserError
    before the first byte when the disk has no room, and at the end with all files that no source gave; the
    others are in place by then. Only one process at a time downloads into a folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".download.lock", folder, "fetching into it", wait=True):
        return _download(files, folder, options, mend)


def _download(files: list[RemoteFile], folder: Path, options: Options, mend: bool) -> list[FileState]:
    states = inspect(files, folder, options.jobs)
    for file, state, why in states:
        path, part = folder / file.name, part_of(folder, file.name)
        if state == "damaged" and not mend:
            raise UserError(
                f"{path}: is not the registry's file ({why}); wait for the process that writes it, move it "
                f"away, or replace it: cxrbench data download {file.dataset} --folder {folder} --repair"
            )
        if state == "damaged" and size_of(path) < (file.size or 0) and not part.exists():
            path.rename(part)
        elif state == "damaged":
            path.unlink()
    missing = [state.file for state in states if state.state != "present"]
    total = sum(file.size or 0 for file in missing)
    begun = sum(size_of(part_of(folder, file.name)) for file in missing if file.size)
    _must_have_room(len(missing), total - begun, folder)
    bar = tqdm(desc="fetching", total=total or None, initial=begun, unit="B", unit_scale=True, disable=None)
    transfers = _Transfers(folder, options, bar, _Pace(total - begun) if bar.disable and total else None)
    with bar, ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(transfers.run, file) for file in missing]
        try:
            failures = list(filter(None, [future.result() for future in running]))
        except BaseException:
            transfers.stop.set()  # Ctrl-C: the parts stay, and the next run continues them
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise UserError("\n".join(failures))
    return states


def check_links(files: list[RemoteFile], timeout: float) -> list[tuple[str, ...]]:
    """Ask for the headers of each address: its dataset, file, state ('ok' or 'dead'), answer and address."""

    def check(file: RemoteFile, url: str) -> tuple[str, ...]:
        try:
            with _answer(url, file.size, 0, timeout) as (_, _first, total):
                state, answer = "ok", "answers without a size" if total is None else f"{total:,} bytes"
        except (Broken, Refused) as error:
            state, answer = "dead", str(error)
        return file.dataset, file.name, state, answer, url

    with ThreadPoolExecutor(4) as pool:
        asked = [(file, url) for file in files for url in (file.url, *file.mirrors)]
        return list(pool.map(check, *zip(*asked, strict=True)))


class _Pace:
    """Says at each tenth of ``total`` bytes how fast they come, where no terminal shows a bar."""

    def __init__(self, total: int) -> None:
        self.total, self.taken, self.told = total, 0, 0
        self.since, self.lock = time.monotonic(), Lock()

    def update(self, count: int) -> None:
        """Count bytes, less than none where a server starts again."""
        with self.lock:
            self.taken += count
            if (tenths := 10 * self.taken // self.total) <= self.told or tenths > 9:
                return
            self.told = tenths
            rate = self.taken / max(time.monotonic() - self.since, 1e-3)
            left = time.strftime("%H:%M:%S", time.gmtime((self.total - self.taken) / rate))
        done = f"{self.taken / 1e9:.2f} of {self.total / 1e9:.2f} GB fetched"
        _say(f"{done}, {rate / 1e6:.1f} MB/s, {left} left at this speed")


class _Transfers:
    """Transfers of files into ``folder``."""

    def __init__(self, folder: Path, options: Options, bar: tqdm, pace: _Pace | None = None) -> None:
        self.folder, self.options, self.bar, self.pace, self.stop = folder, options, bar, pace, Event()

    def came(self, count: int) -> None:
        """Show that ``count`` bytes more have come."""
        self.bar.update(count)
        if self.pace:
            self.pace.update(count)

    def run(self, file: RemoteFile) -> str:
        """Fetch a file from the first source that gives it; return what is wrong when none does."""
        name, part, answers = file.name, part_of(self.folder, file.name), ""
        if size := size_of(part):
            _say(f"{name}: continuing after {size:,} bytes")
        mirrors = (f"{m.rstrip('/')}/{quote(name) if _is_address(m) else name}" for m in self.options.mirrors)
        for source in (*mirrors, file.url, *file.mirrors):
            try:
                (self._fetch if _is_address(source) else self._copy)(source, file, part)
                os.replace(part, self.folder / name)
                _say(f"{name}: complete")
                return ""
            except Refused as refusal:
                answers += f"\n  {source}: {refusal}"
                _say(f"{name}: {source}: {refusal}")
            except OSError as error:
                if error.errno not in DISK_FULL:
                    raise
                kept = f"{size_of(part):,} bytes fetched are kept in {part.name}"
                return f"{self.folder / name}: the disk is full; the {kept}: free some space and run it again"
        kept = f"; {size:,} bytes are kept" if (size := size_of(part)) else ""
        again = f"run the same command again to continue{kept}, or name a copy with --mirror"
        return f"{name}: no source had the file{answers}\n  {again} (an address or a folder)"

    def _copy(self, source: str, file: RemoteFile, part: Path) -> None:
        """Copy the file from a folder if its hash is right; otherwise keep what was fetched so far."""
        try:
            if file.hash_of(Path(source)) != file.hash:
                raise Refused("has another hash than the registry's")
        except OSError as error:
            raise Refused(str(error.strerror)) from None
        self.came(size_of(Path(source)) - size_of(part))
        shutil.copyfile(source, part)

    def _fetch(self, url: str, file: RemoteFile, part: Path) -> None:
        """Fetch from ``url``, with repeats while they may help; Refused when they do not."""
        failures, most, wrong, options = 0, size_of(part), 0, self.options
        while not self.stop.is_set():
            try:
                if size_of(part) != file.size:  # else a kill had come between the last byte and the check
                    self._append(url, file, part)
                if file.hash_of(part) == file.hash:
                    return
                part.unlink()
                wrong += 1  # the first time, an earlier part may be at fault
                if wrong == 2:
                    raise Refused("twice sent bytes with another hash than the registry's")
            except Broken as broken:
                failures = 0 if size_of(part) > most else failures + 1
                most = max(most, size_of(part))
                if failures > min(options.retries, broken.retries):
                    raise Refused(f"{broken}; gave up after {failures} attempts without progress") from None
                doubled = min(options.longest_wait, options.first_wait * 2 ** max(0, failures - 1))
                seconds = max(doubled * random.uniform(0.5, 1), min(broken.wait, 5 * options.longest_wait))
                _say(f"{file.name}: {broken}; trying again in {seconds:.1f} s")
                self.stop.wait(seconds)
        raise UserError(f"{file.name}: stopped; run the same command again to go on")

    def _append(self, url: str, file: RemoteFile, part: Path) -> None:
        """Request what is missing of the file and append it; start again where the server cannot continue."""
        with _answer(url, file.size, size_of(part), self.options.timeout) as (chunks, start, total):
            if file.size is None and total is not None:
                _must_have_room(1, total - start, self.folder)
            self.came(start - size_of(part))  # less than 0 where the server starts again
            with open(part, "ab" if start else "wb", buffering=0) as out:
                for chunk in chunks:
                    self.came(out.write(chunk))
                    if self.stop.is_set() or (total is not None and out.tell() > total):
                        break
                os.fsync(out.fileno())
        if total is not None and (size := size_of(part)) < total:
            raise Broken(f"cut after {size:,} of {total:,} bytes")
        if total is not None and size > total:
            part.unlink()
            raise Refused(f"sends more than the {total:,} bytes of the file")


@contextmanager
def _answer(url: str, size: int | None, start: int, timeout: float) -> Iterator[Answer]:
    """Yield the bytes of ``url``, the offset where they begin (``start`` or 0), and the file's size if known.

    Raises Broken or Refused, now or while the bytes are read. ``timeout``: seconds to wait for data.
    """
    asked = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        with requests.get(url, headers=asked, stream=True, timeout=timeout) as response:
            first, total = _range(response.status_code, response.reason, response.headers, start)
            if total not in (None, size or total):
                raise Refused(f"offers {total:,} bytes, the file has {size:,}: it is another file")
            yield _chunks(response, timeout), first, size or total
    except (requests.RequestException, HTTPError, ValueError) as error:
        reason = error.__context__ or error
        while reason.__context__ is not None:  # requests and urllib3 wrap errors in each other
            reason = reason.__context__
        why = " ".join(str(reason).split())[:200] or type(reason).__name__
        if isinstance(error, _HOPELESS):
            raise Refused(why) from None
        no_address = isinstance(
            reason, socket.gaierror
        )  # no network, as a rule: asked a second time, not a ninth
        raise Broken(why, retries=1 if no_address else sys.maxsize) from None


def _range(code: int, reason: str, headers: Mapping[str, str], start: int) -> tuple[int, int | None]:
    """The first byte of an answer, and the file's size where it is known."""
    if code == 416 and start:  # it has less than is here already
        return 0, None
    if code == 200:
        length = headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    if code != 206:
        why, seconds = f"the server answers {code} {reason}", headers.get("Retry-After", "")
        if code not in _TEMPORARY:
            raise Refused(why)
        raise Broken(why, float(seconds) if seconds.isdecimal() else 0.0)
    answered = headers.get("Content-Range", "")
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


def _must_have_room(files: int, need: int, folder: Path) -> None:
    if need > (free := shutil.disk_usage(folder).free):
        gb = [f"{size / 1e9:,.3f} GB" for size in (need, free, need - free)]
        raise UserError(
            f"{folder}: {files} files need {gb[0]} more and the disk has {gb[1]} free; "
            f"free {gb[2]}, choose another place with --folder, or fewer files with --only"
        )


def _say(text: str) -> None:
    """Print a message above the bar."""
    tqdm.write(printable(text), file=sys.stderr)
