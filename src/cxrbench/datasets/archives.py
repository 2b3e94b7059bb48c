"""PNG files below a folder, loose or in tarballs, streamed in a fixed order; nothing is unpacked to disk.

tarfile's stream mode checks neither gzip's checksum nor that an archive ends where it should (it stops at a
damaged header without a word), so both are checked here.
"""

from __future__ import annotations

import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cxrbench.datasets.inflate import ERRORS, inflate
from cxrbench.datasets.sources import Made
from cxrbench.errors import UserError

_TARBALLS = (".tar", ".tar.gz", ".tgz", ".gz")
_LARGEST = 64 << 20  # bytes of one PNG; NIH's largest have under 2 MB
_BLOCK = 1 << 16  # tarfile copies what is left of a block at every read: large ones are slow
_DAMAGED: tuple[type[Exception], ...] = (tarfile.TarError, EOFError, OSError, *ERRORS)
_GZIP = 31  # zlib's number for data in gzip's wrapping
_END = 1024  # zero bytes at the end of every tarball
_AGAIN = "fetch it again and compare its md5 (data/README.md)"


class Found(NamedTuple):
    """A PNG: its name in lower case (NIH's own spelling), where it lies, for messages, and its bytes."""

    name: str
    where: str
    file: str
    stamp: str
    data: bytes


def found_in(folder: Path) -> list[Path]:
    """Tarballs, then loose PNG files below ``folder``, each sorted by path; hidden ones are left out."""
    ours = (path for path in _files(folder) if path.name.lower().endswith((".png", *_TARBALLS)))
    return sorted(
        (path for path in ours if not path.name.startswith(".")), key=_is_png
    )  # tarballs come first


def unfinished_in(folder: Path) -> list[Path]:
    """Parts of downloads below ``folder`` whose whole file is not there."""
    parts = (path for path in _files(folder) if path.name.startswith(".") and path.suffix == ".part")
    return [path for path in parts if not path.with_name(path.stem.removeprefix(".")).exists()]


def _files(folder: Path) -> list[Path]:
    """Every file below ``folder``, sorted by path; links to folders are followed, each folder once."""
    paths, seen = [], set()
    for root, folders, names in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(root)) in seen:  # a link led back here
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        paths += [path for name in sorted(names) if (path := Path(root) / name).is_file()]
    return paths


def _is_png(path: Path) -> bool:
    return path.suffix.lower() == ".png"


def stamp(path: Path) -> str:
    """Size and time of change: whether a file is still the one that was read."""
    status = path.stat()
    return f"{status.st_size}:{status.st_mtime_ns}"


def read_images(paths: list[Path], done: list[Made]) -> Iterator[Found]:
    """Every PNG of ``paths`` in order, each name once, without the first ones, which are ``done``.

    Raises UserError naming file and member for what is damaged, hostile or there twice.
    """
    seen = {made.name: made.file for made in done}
    skip = Counter(made.file for made in done)
    first = paths.index(Path(done[-1].file)) if done else 0
    for path in paths[first:]:
        images = _loose(path) if _is_png(path) else _members(path, skip[str(path)])
        for found in images if not (_is_png(path) and skip[str(path)]) else ():
            if found.name in seen:
                raise UserError(
                    f"{found.where}: image {found.name} was already read from {seen[found.name]}; "
                    "keep one of them"
                )
            seen[found.name] = found.where
            yield found


def _loose(path: Path) -> Iterator[Found]:
    if path.stat().st_size > _LARGEST:
        raise UserError(f"{path}: {path.stat().st_size:,} bytes are too many for a radiograph; remove it")
    yield Found(path.name.lower(), str(path), str(path), stamp(path), path.read_bytes())


def _members(tarball: Path, skip: int) -> Iterator[Found]:
    """The PNG members of a tarball after the first ``skip``."""
    mark = stamp(tarball)
    try:
        with _opened(tarball) as archive:
            for member in archive:
                if reason := _hostile(member):
                    raise UserError(
                        f"{tarball}: member '{member.name}' {reason}: this is none of NIH's tarballs; "
                        f"{_AGAIN}, or take it out of the folder (nothing of it was unpacked)"
                    )
                if not member.isfile() or not member.name.lower().endswith(".png"):
                    continue
                if skip:
                    skip -= 1
                    continue
                file = archive.extractfile(member)
                assert file is not None  # isfile() members always have content
                name = member.name.rsplit("/", 1)[-1].lower()
                yield Found(name, f"{tarball}:{member.name}", str(tarball), mark, file.read())
    except _DAMAGED as error:
        raise UserError(f"{tarball}: damaged tarball ({error}); {_AGAIN}") from None


class _Tape:
    """The bytes of a tarball in blocks, unzipped where need be, and the last of them.

    zlib checks gzip's checksum and length at the end of the data. gzip.GzipFile does so too, but in steps of
    eight kilobytes, which costs half as much again as unzipping itself.
    """

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self.last = raw, b""
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        self._inflate = inflate.decompressobj(_GZIP) if zipped else None

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; none at the end. EOFError when the zipped data end early."""
        data = self._unzip(size) if self._inflate else self._raw.read(size)
        self.last = (self.last + data)[-_END:] if data else self.last
        return data

    def _unzip(self, size: int) -> bytes:
        assert self._inflate is not None
        while True:
            if self._inflate.eof:
                # Several zipped parts may follow each other, and zeros may follow the last.
                rest = self._inflate.unused_data.lstrip(b"\0")
                while not rest and (more := self._raw.read(_BLOCK)):
                    rest = more.lstrip(b"\0")
                if not rest:
                    return b""
                self._inflate = inflate.decompressobj(_GZIP)
            else:
                rest = self._inflate.unconsumed_tail or self._raw.read(_BLOCK)
            data = self._inflate.decompress(rest, size)
            if data:
                return data
            if not rest and not self._inflate.eof:
                raise EOFError("the compressed data end early")


@contextmanager
def _opened(tarball: Path) -> Iterator[tarfile.TarFile]:
    """The tarball as a stream; at the end, whether it was whole."""
    with open(tarball, "rb") as raw:
        tape = _Tape(raw)
        with tarfile.open(fileobj=tape, mode="r|", bufsize=_BLOCK) as archive:  # type: ignore[call-overload]
            yield archive
            while block := archive.fileobj.read(_BLOCK):
                if any(block):
                    raise tarfile.ReadError("a damaged header: there is more behind what could be read")
        if tape.last != bytes(_END):
            raise tarfile.ReadError("the end is missing")


def _hostile(member: tarfile.TarInfo) -> str | None:
    """What no tarball of radiographs has: paths that lead out, links, devices, giants."""
    parts = member.name.replace("\\", "/").split("/")
    if parts[0] == "" or parts[0].endswith(":"):
        return "has an absolute path"
    if ".." in parts:
        return "leads out of its folder"
    if member.issym() or member.islnk():
        return f"is a link to '{member.linkname}'"
    if not member.isfile() and not member.isdir():
        return "is a device or another special file"
    if member.size > _LARGEST:
        return f"has {member.size:,} bytes, too many for a radiograph"
    return None
