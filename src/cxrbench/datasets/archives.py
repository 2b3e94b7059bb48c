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

_TARBALLS = (".tar", ".tar.gz", ".tgz", ".gz")
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
    ours = (path for path in _files(folder) if path.name.lower().endswith((".png", *_TARBALLS)))
    return sorted((path for path in ours if not path.name.startswith(".")), key=_is_png)


def unfinished_in(folder: Path) -> list[Path]:
    """Return the partial downloads below ``folder`` whose complete file is absent."""
    parts = (path for path in _files(folder) if path.name.startswith(".") and path.suffix == ".part")
    return [path for path in parts if not path.with_name(path.stem.removeprefix(".")).exists()]


def _files(folder: Path) -> list[Path]:
    """Every file below ``folder``, sorted by path; links to folders are followed, each folder once."""
    paths, seen = [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(root)) in seen:  # a link back to a folder already visited
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        paths += [path for name in sorted(names) if (path := Path(root) / name).is_file()]
    return paths


def _is_png(path: Path) -> bool:
    return path.suffix.lower() == ".png"


def read_images(paths: list[Path], say: Callable[[str], None] = lambda text: None) -> Iterator[Found]:
    """Yield every PNG of ``paths`` in order; report each gigabyte read from a tarball to ``say``.

    Raises UserError with file and member for damaged or hostile content and for repeated names.
    """
    seen: dict[str, str] = {}
    for path in paths:
        for found in _loose(path) if _is_png(path) else _members(path, say):
            if found.name in seen:
                raise UserError(
                    f"{found.where}: image {printable(found.name)} was already read from "
                    f"{seen[found.name]}; keep one of them"
                )
            seen[found.name] = found.where
            yield found


def _loose(path: Path) -> Iterator[Found]:
    where = printable(path)
    if (size := path.stat().st_size) > _LARGEST:
        raise UserError(f"{where}: {size:,} bytes are too many for a radiograph; remove it")
    yield Found(path.name.lower(), where, path.read_bytes())


def _members(path: Path, say: Callable[[str], None]) -> Iterator[Found]:
    """The PNG members of a tarball; UserError when the tarball is damaged, cut short or hostile."""
    where = printable(path)
    try:
        with open(path, "rb") as raw:
            tape = _Tape(raw, where, path.stat().st_size, say)
            with tarfile.open(fileobj=tape, mode="r|", bufsize=_BLOCK) as archive:  # type: ignore[call-overload]
                for member in archive:
                    if reason := _hostile(member):
                        raise UserError(f"{where}: member '{printable(member.name)}' {reason}: {_FOREIGN}")
                    tape.allow(member.size)
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

    def __init__(self, raw: BinaryIO, where: str, size: int, say: Callable[[str], None]) -> None:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        self._raw, self._where, self._size, self._say = raw, where, size, say
        self._file = gzip.GzipFile(fileobj=raw) if zipped else raw
        self._position, self._allowed = 0, _HEADERS
        self.end = b""  # the last kilobyte read

    def allow(self, size: int) -> None:
        """Allow the ``size`` bytes of a member and the headers of the next one to be read."""
        self._allowed = self._position + size + _HEADERS

    def read(self, size: int) -> bytes:
        """Return at most ``size`` bytes; UserError when an archive unpacks to too much."""
        data = self._file.read(size)
        if self._position // _REPORT_EVERY != (self._position + len(data)) // _REPORT_EVERY:
            self._say(f"{self._where}: {self._raw.tell() / 1e9:.1f} of {self._size / 1e9:.1f} GB read")
        self._position += len(data)
        self.end = (self.end + data)[-len(_END) :] if data else self.end
        if self._position > self._allowed + _BLOCK:
            raise UserError(
                f"{self._where}: over {_HEADERS >> 20} MiB of headers or padding between members: {_FOREIGN}"
            )
        if self._position > _RATIO * self._raw.tell() + _LARGEST:
            raise UserError(f"{self._where}: unpacks to over {_RATIO} times its size: {_FOREIGN}")
        return data


def _hostile(member: tarfile.TarInfo) -> str | None:
    """What no tarball of radiographs has: paths that lead out, links, devices, giants."""
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
