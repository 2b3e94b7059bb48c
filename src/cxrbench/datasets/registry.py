"""What can be downloaded: data/registry.csv, one line per file, and what a dataset is packed from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, ClassVar, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from cxrbench.common.errors import UserError, and_more, nearest
from cxrbench.common.readers import OR_NONE, Row, Text, matching, read_rows
from cxrbench.datasets.archives import found_in
from cxrbench.study.config import ChestMnistSource, Dataset, NihSource

_Address = Annotated[str, matching(r"https?://[^/\s]\S*", "a web address such as https://example.org/a.gz")]


class RemoteFile(Row):
    """One file of the registry; ``size`` in bytes is None where its publisher does not state it."""

    KEY: ClassVar = ("dataset", "file")
    ANY_CASE: ClassVar = True  # as file systems may have it
    dataset: Text
    name: Annotated[Text, matching(r"[^./\\][^/\\]*", "a file's name without a folder")] = Field(alias="file")
    url: _Address
    mirrors: Annotated[tuple[_Address, ...], BeforeValidator(str.split)]
    size: Annotated[Annotated[int, Field(ge=0, lt=2**63)] | None, OR_NONE] = Field(alias="bytes")
    hash: Annotated[str, matching("md5:[0-9a-f]{32}|sha256:[0-9a-f]{64}", "md5: and 32 hex digits")]
    licence: Text
    citation: Text

    def hash_of(self, path: Path) -> str:
        """The hash of a file, by the algorithm and in the form of ``hash``."""
        algorithm = self.hash.partition(":")[0]
        with open(path, "rb") as file:
            return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"

    def state_in(self, folder: Path) -> FileState:
        """The state of the file in ``folder``, by size and hash."""
        path, begun = folder / self.name, size_of(part_of(folder, self.name))
        if not path.is_file():
            return FileState(self, "missing", f"{begun:,} bytes downloaded so far" if begun else "")
        if self.size not in (None, size := size_of(path)):
            return FileState(self, "damaged", f"{size:,} bytes instead of {self.size:,}")
        if (actual := self.hash_of(path)) != self.hash:
            return FileState(self, "damaged", f"{actual} instead of {self.hash}")
        return FileState(self, "present")


class FileState(NamedTuple):
    """The state of a registry file in a folder, and the reason for it."""

    file: RemoteFile
    state: Literal["present", "missing", "damaged"]
    why: str = ""


def inspect(files: list[RemoteFile], folder: Path, jobs: int) -> list[FileState]:
    """Each file's state, in order, ``jobs`` at a time; reads everything that is there."""
    from tqdm import tqdm  # imported here: the paper reads the registry without it

    sizes = [size_of(folder / file.name) for file in files]
    bar = tqdm(desc="checking", total=sum(sizes), unit="B", unit_scale=True, disable=None, leave=False)
    states = []
    with bar, ThreadPoolExecutor(jobs) as pool:
        for state, size in zip(pool.map(lambda file: file.state_in(folder), files), sizes, strict=True):
            states.append(state)
            bar.update(size)
    return states


def part_of(folder: Path, name: str) -> Path:
    """The path where the bytes of file ``name`` are collected."""
    return folder / f".{name}.part"


def size_of(path: Path) -> int:
    """The bytes of a file; 0 where there is none."""
    return path.stat().st_size if path.is_file() else 0


def read_files(path: Path, dataset: str | None = None, only: str = "*") -> list[RemoteFile]:
    """The files of the registry at ``path``, those of ``dataset`` alone if it is given.

    Raises UserError with the place of a mistake, or when no name matches the shell pattern ``only``.
    """
    files = list(read_rows(path, RemoteFile).values())
    if dataset is None:
        return files
    if dataset not in (datasets := dict.fromkeys(file.dataset for file in files)):
        hint = f"{nearest(dataset, datasets)} (known: {', '.join(datasets)})"
        raise UserError(f"the registry has no dataset '{dataset}'{hint}")
    files = [file for file in files if file.dataset == dataset]
    if not (chosen := [file for file in files if fnmatch(file.name, only)]):
        names = ", ".join(file.name for file in files)
        raise UserError(f"no file of {dataset} matches '{only}'; its files are {names}")
    return chosen


Placed = dict[Path, RemoteFile]  # each file of the registry by the place where its dataset looks for it


def hosted(config: Dataset, registry: Path) -> Placed:
    """The files of the registry that a dataset is packed from; none for drawn ones and your own."""
    if isinstance(config, NihSource):
        files = read_files(registry, config.source, config.archives)
    elif isinstance(config, ChestMnistSource):
        size = "" if config.pixels == 28 else f"_{config.pixels}"
        files = read_files(registry, config.source, f"chestmnist{size}.npz")
    else:
        return {}
    return {config.folder / file.name: file for file in files}


def to_download(config: Dataset, registry: Path) -> Placed:
    """The files of :func:`hosted` that are missing in the dataset's folder.

    Nothing where images of another origin are there, such as a reduced archive: those are packed.
    """
    files = hosted(config, registry)
    complete = {path for path, file in files.items() if is_there(path, file)}
    if isinstance(config, NihSource) and set(found_in(config.folder)) - complete:
        return {}
    return {path: file for path, file in files.items() if path not in complete}


def is_there(path: Path, file: RemoteFile) -> bool:
    """Whether a file of the registry is at ``path``, by its size; its hash is checked elsewhere."""
    return path.is_file() and file.size in (None, size_of(path))


def bytes_in_words(files: Iterable[RemoteFile]) -> str:
    """The downloads that are needed, in words: ``images_002.tar.gz (4.0 GB from nihcc.box.com)``."""
    files = list(files)
    hosts = " and ".join(sorted({str(urlsplit(file.url).hostname) for file in files}))
    sizes = [file.size for file in files if file.size is not None]
    size = f"{sum(sizes) / 1e9:.1f} GB" if len(sizes) == len(files) else "size not stated"
    return f"{files[0].name}{and_more(len(files) - 1)} ({size} from {hosts})"
