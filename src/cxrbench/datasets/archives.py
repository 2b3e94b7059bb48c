"""PNG files below a folder, loose or in tarballs, streamed in a fixed order; nothing is unpacked to disk.

tarfile's stream mode stops silently at a damaged header and reads headers of any size into memory, so the end
of a tarball and the bytes between its members are checked here. gzip checks its own checksum and length.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cxrbench.study.errors import UserError, printable

_LARGEST = 64 << 20  # bytes of one member; NIH's largest PNG has under 2 MB
_HEADERS = 1 << 20  # bytes between two members: headers and padding have a few kilobytes
_RATIO = 100  # unpacked to packed bytes; radiographs hardly compress, zeros a thousandfold
_BLOCK = 1 << 16  # tarfile copies the rest of a block at every read: large blocks are slow
_REPORT_EVERY = 1 << 30  # bytes
_END = bytes(1024)  # of every tarball
_DAMAGED = (tarfile.TarError, EOFError, OSError, ValueError, RecursionError, zlib.error)
_AGAIN = "fetch it again and compare its md5 (data/README.md)"
_FOREIGN = f"not one of NIH's tarballs; {_AGAIN}, or take it out of the folder (nothing of it was unpacked)"


class Found(NamedTuple):
    """A PNG: its name in lower case (NIH's spelling), its place as printed in messages, and its bytes."""

    name: str
    where: str
    data: bytes


def found_in(folder: Path) -> list[Path]:
    """Return tarballs, then loose PNG files below ``folder``, each sorted by path, without hidden ones."""
    shown = [path for path in _files(folder) if not path.name.startswith(".")]
    images = [path for path in shown if path.suffix.lower() == ".png"]
    return [path for path in shown if path.suffix.lower() in (".tar", ".tgz", ".gz")] + images


def unfinished_in(folder: Path) -> list[Path]:
    """Return the partial downloads below ``folder`` whose complete file is absent."""
    parts = (path for path in _files(folder) if path.name.startswith(".") and path.suffix == ".part")
    return [path for path in parts if not path.with_name(path.stem.removeprefix(".")).exists()]


def _files(folder: Path) -> list[Path]:
    """Return every file below ``folder``, sorted by path; links to folders are followed, each folder once."""
    paths, seen = [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(root)) in seen:  # a link back to a folder already visited
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        paths += [path for name in sorted(names) if (path := Path(root) / name).is_file()]
    return paths


def read_images(paths: list[Path], say: Callable[[str], None] = lambda text: None) -> Iterator[Found]:
    """Yield every PNG of ``paths`` in order; report each gigabyte read from a tarball to ``say``.

    Raises UserError with file and member for damaged or hostile content and for repeated names.
    """
    seen: dict[str, str] = {}
    for path in paths:
        for found in _loose(path) if path.suffix.lower() == ".png" else _members(path, say):
            if found.name in seen:
                what = f"image {printable(found.name)} was already read from {seen[found.name]}"
                raise UserError(f"{found.where}: {what}; keep one of them")
            seen[found.name] = found.where
            yield found


def _loose(path: Path) -> Iterator[Found]:
    if (size := path.stat().st_size) > _LARGEST:
        raise UserError(f"{path}: {size:,} bytes are too many for a radiograph; remove it")
    yield Found(path.name.lower(), printable(path), path.read_bytes())


def _members(path: Path, say: Callable[[str], None]) -> Iterator[Found]:
    """Yield the PNG members of a tarball; UserError when the tarball is damaged, cut short or hostile."""
    where = printable(path)
    try:
        with open(path, "rb") as raw:
            tape = _Tape(raw, where, say)
            with tarfile.open(fileobj=tape, mode="r|", bufsize=_BLOCK) as archive:  # type: ignore[call-overload]
                for member in archive:
                    if reason := _hostile(member):
                        raise UserError(f"{where}: member '{printable(member.name)}' {reason}: {_FOREIGN}")
                    tape.allowed = tape.position + member.size + _HEADERS
                    if member.isfile() and member.name.lower().endswith(".png"):
                        file = archive.extractfile(member)
                        assert file is not None  # regular members always have content
                        name = member.name.rsplit("/", 1)[-1].lower()
                        yield Found(name, f"{where}:{printable(member.name)}", file.read())
                while block := archive.fileobj.read(_BLOCK):
                    if any(block):
                        raise tarfile.ReadError("data after a damaged header")
            if tape.end != _END:
                raise tarfile.ReadError("the end is missing")
    except _DAMAGED as error:
        raise UserError(f"{where}: damaged tarball ({error}); {_AGAIN}") from None


class _Tape:
    """The bytes of a tarball, unzipped if necessary; refuses more than its members account for."""

    def __init__(self, raw: BinaryIO, where: str, say: Callable[[str], None]) -> None:
        self._raw, self._where, self._say = raw, where, say
        self._file = gzip.GzipFile(fileobj=raw) if raw.read(2) == b"\x1f\x8b" else raw
        self._size = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        self.position, self.allowed = 0, _HEADERS
        self.end = b""  # the last kilobyte read

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; UserError when an archive unpacks to too much."""
        data = self._file.read(size)
        if self.position // _REPORT_EVERY != (self.position + len(data)) // _REPORT_EVERY:
            self._say(f"{self._where}: {self._raw.tell() / 1e9:.1f} of {self._size / 1e9:.1f} GB read")
        self.position += len(data)
        self.end = (self.end + data)[-len(_END) :]
        if self.position > self.allowed + _BLOCK:
            raise UserError(
                f"{self._where}: over {_HEADERS >> 20} MiB of headers or padding between members: {_FOREIGN}"
            )
        if self.position > _RATIO * self._raw.tell() + _LARGEST:
            raise UserError(f"{self._where}: unpacks to over {_RATIO} times its size: {_FOREIGN}")
        return data


def _hostile(member: tarfile.TarInfo) -> str | None:
    """Return what no tarball of radiographs has: paths that lead out, links, devices, giants."""
    parts = member.name.replace("\\", "/").split("/")
    if parts[0] == "" or parts[0].endswith(":"):
        return "has an absolute path"
    if ".." in parts:
        return "leads out of its folder"
    if member.issym() or member.islnk():
        return f"is a link to '{printable(member.linkname)}'"
    if not member.isfile() and not member.isdir():
        return "is a device or another special file"
    if not 0 <= member.size <= _LARGEST:
        return f"has {member.size:,} bytes, not the size of a radiograph"
    return None
