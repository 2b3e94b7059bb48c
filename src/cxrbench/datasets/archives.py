"""Images below a folder, loose, in tarballs or in zip files, in a fixed order; nothing is unpacked to disk.

tarfile's stream mode stops silently at a damaged header and reads headers of any size into memory, so the end
of a tarball and the bytes between its members are checked here. gzip checks its own checksum and length.
"""

import gzip
import os
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from cxrbench.common.errors import UserError, printable

_LARGEST = 64 << 20  # bytes of one member; NIH's largest PNG has under 2 MB
_HEADERS = 1 << 20  # bytes between two members: headers and padding have a few kilobytes
_RATIO = 100  # unpacked to packed bytes; radiographs hardly compress, zeros a thousandfold
_BLOCK = 1 << 16  # tarfile copies the rest of a block at every read: large blocks are slow
_REPORT_EVERY = 1 << 30  # bytes
_END = bytes(1024)  # of every tarball
_DAMAGED = (tarfile.TarError, EOFError, OSError, ValueError, RecursionError, zlib.error)
_DAMAGED_ZIP = (zipfile.BadZipFile, NotImplementedError, RuntimeError, *_DAMAGED)
_ARCHIVES = (".tar", ".tgz", ".tar.gz", ".zip")

Naming = Callable[[str], str | None]


class Content(NamedTuple):
    """What an archive should hold, and what to do about one that is damaged or holds something else."""

    kind: str
    again: str

    @property
    def foreign(self) -> str:
        return f"not an archive of {self.kind}; {self.again}, or move it elsewhere (nothing was unpacked)"


RADIOGRAPHS = Content("radiographs", "fetch it again and compare its md5 (data/README.md)")


class Encoded(NamedTuple):
    """An image: its name in the dataset, its place as printed in messages, and its bytes."""

    name: str
    where: str
    data: bytes


def found_in(folder: Path, suffixes: tuple[str, ...] = (".png",)) -> list[Path]:
    """Archives, then loose files with these ``suffixes`` below ``folder``, each sorted by path.

    Hidden ones are left out.
    """
    shown = [path for path in _files(folder) if not path.name.startswith(".")]
    images = [path for path in shown if path.suffix.lower() in suffixes]
    return [path for path in shown if is_archive(path)] + images


def is_archive(path: Path) -> bool:
    """Whether a file's name is that of a tarball or a zip file."""
    return path.name.lower().endswith(_ARCHIVES)


def complete_in(folder: Path, remedy: str, suffixes: tuple[str, ...] = (".png",)) -> list[Path]:
    """:func:`found_in`; UserError for no folder, with its ``remedy``, and for a partial download."""
    if not folder.exists():
        raise UserError(f"{folder}: there is no such folder; {remedy}")
    for path in _files(folder):
        part = path.name.startswith(".") and path.suffix == ".part"
        if part and not path.with_name(path.stem.removeprefix(".")).exists():
            raise UserError(
                f"{path}: an unfinished download; continue it (cxrbench data download), or delete this file "
                "to pack the other files"
            )
    return found_in(folder, suffixes)


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


def _nih_name(path: str) -> str | None:
    """The name of a PNG without its folder, in lower case as NIH spells it; None for other files."""
    name = path.rsplit("/", 1)[-1].lower()
    return name if name.endswith(".png") else None


def read_images(
    paths: list[Path],
    say: Callable[[str], None] = lambda text: None,
    name_of: Naming = _nih_name,
    content: Content = RADIOGRAPHS,
) -> Iterator[Encoded]:
    """Yield the images of ``paths`` in order; report each gigabyte read from a tarball to ``say``.

    ``name_of`` gives the name of the image at a path, of a file or in an archive, or None to leave it out.
    Raises UserError with file and member for damaged or hostile content and for repeated names.
    """
    seen: dict[str, str] = {}
    for path in paths:
        for encoded in _read(path, say, name_of, content):
            if encoded.name in seen:
                kind = "image" if content is RADIOGRAPHS else "file"
                fault = f"{kind} {printable(encoded.name)} was already read from {seen[encoded.name]}"
                raise UserError(f"{encoded.where}: {fault}; keep one of them")
            seen[encoded.name] = encoded.where
            yield encoded


def _read(path: Path, say: Callable[[str], None], name_of: Naming, content: Content) -> Iterator[Encoded]:
    if path.suffix.lower() == ".zip":
        yield from _zipped(path, name_of)
    elif is_archive(path):
        yield from _members(path, say, name_of, content)
    elif name := name_of(path.as_posix()):
        if (size := path.stat().st_size) > _LARGEST:
            raise UserError(f"{path}: {size:,} bytes are too many for a radiograph; remove it")
        yield Encoded(name, printable(path), path.read_bytes())


def _zipped(path: Path, name_of: Naming) -> Iterator[Encoded]:
    """Yield the images in a zip file; UserError when it is damaged, encrypted or hostile."""
    where = printable(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            if sum(member.file_size for member in members) > _RATIO * path.stat().st_size + _LARGEST:
                raise UserError(f"{where}: unpacks to over {_RATIO} times its size: {RADIOGRAPHS.foreign}")
            for member in members:
                if reason := _leads_out(member.filename) or _too_large(member.file_size):
                    raise UserError(
                        f"{where}: member '{printable(member.filename)}' {reason}: {RADIOGRAPHS.foreign}"
                    )
                if name := name_of(posixpath.normpath(member.filename)):
                    yield Encoded(name, f"{where}:{printable(member.filename)}", archive.read(member))
    except _DAMAGED_ZIP as error:
        raise UserError(f"{where}: damaged or locked zip file ({error}); {RADIOGRAPHS.again}") from None


def _members(path: Path, say: Callable[[str], None], name_of: Naming, content: Content) -> Iterator[Encoded]:
    """Yield the named files of a tarball; UserError when the tarball is damaged, cut short or hostile."""
    where = printable(path)
    try:
        with open(path, "rb") as raw:
            tape = _Tape(raw, where, say, content)
            with tarfile.open(fileobj=tape, mode="r|", bufsize=_BLOCK) as archive:  # type: ignore[call-overload]
                for member in archive:
                    if reason := _hostile(member):
                        raise UserError(
                            f"{where}: member '{printable(member.name)}' {reason}: {content.foreign}"
                        )
                    tape.allowed = tape.position + member.size + _HEADERS
                    name = name_of(posixpath.normpath(member.name)) if member.isfile() else None
                    if name:
                        file = archive.extractfile(member)
                        assert file is not None  # regular members always have content
                        yield Encoded(name, f"{where}:{printable(member.name)}", file.read())
                while block := archive.fileobj.read(_BLOCK):
                    if any(block):
                        raise tarfile.ReadError("data after a damaged header")
            if tape.end != _END:
                raise tarfile.ReadError("the end is missing")
    except _DAMAGED as error:
        raise UserError(f"{where}: damaged tarball ({error}); {content.again}") from None


class _Tape:
    """The bytes of a tarball, unzipped if necessary; refuses more than its members account for."""

    def __init__(self, raw: BinaryIO, where: str, say: Callable[[str], None], content: Content) -> None:
        self._raw, self._where, self._say, self._content = raw, where, say, content
        self._file = gzip.GzipFile(fileobj=raw) if raw.read(2) == b"\x1f\x8b" else raw
        self._size = raw.seek(0, os.SEEK_END)
        raw.seek(0)
        self.position, self.allowed = 0, _HEADERS
        self.end = b""  # the last kilobyte read

    def read(self, size: int) -> bytes:
        """At most ``size`` bytes; UserError when an archive unpacks to too much."""
        block = self._file.read(size)
        if self.position // _REPORT_EVERY != (self.position + len(block)) // _REPORT_EVERY:
            self._say(f"{self._where}: {self._raw.tell() / 1e9:.1f} of {self._size / 1e9:.1f} GB read")
        self.position += len(block)
        self.end = (self.end + block)[-len(_END) :]
        if self.position > self.allowed + _BLOCK:
            fault = f"over {_HEADERS >> 20} MiB of headers or padding between members"
            raise UserError(f"{self._where}: {fault}: {self._content.foreign}")
        if self.position > _RATIO * self._raw.tell() + _LARGEST:
            raise UserError(
                f"{self._where}: unpacks to over {_RATIO} times its size: {self._content.foreign}"
            )
        return block


def _hostile(member: tarfile.TarInfo) -> str | None:
    """The reason an archive member is refused (a path that leads out, a link, a device, a giant), or None."""
    if reason := _leads_out(member.name):
        return reason
    if member.issym() or member.islnk():
        return f"is a link to '{printable(member.linkname)}'"
    if not member.isfile() and not member.isdir():
        return "is a device or another special file"
    return _too_large(member.size)


def _leads_out(name: str) -> str | None:
    parts = name.replace("\\", "/").split("/")
    if parts[0] == "" or parts[0].endswith(":"):
        return "has an absolute path"
    return "leads out of its folder" if ".." in parts else None


def _too_large(size: int) -> str | None:
    return None if 0 <= size <= _LARGEST else f"has {size:,} bytes, more than one may have"
