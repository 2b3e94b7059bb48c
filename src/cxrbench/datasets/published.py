"""Which published files a dataset of the study is packed from, and which of them are to be downloaded."""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urlsplit

from cxrbench.datasets.archives import found_in
from cxrbench.datasets.registry import RemoteFile, read_files, size_of
from cxrbench.study.config import ChestMnistSource, Dataset, NihSource
from cxrbench.study.errors import and_more

Placed = dict[Path, RemoteFile]  # each file of the registry by the place where its dataset looks for it


def published(config: Dataset, registry: Path) -> Placed:
    """Return the files of the registry that a dataset is packed from; none for drawn ones and your own."""
    if isinstance(config, NihSource):
        files = read_files(registry, config.source, config.archives)
    elif isinstance(config, ChestMnistSource):
        size = "" if config.pixels == 28 else f"_{config.pixels}"
        files = read_files(registry, config.source, f"chestmnist{size}.npz")
    else:
        return {}
    return {config.folder / file.name: file for file in files}


def to_download(config: Dataset, registry: Path) -> Placed:
    """Return what of :func:`published` is not in the dataset's folder.

    Nothing where images of another origin are there, such as a reduced archive: those are packed.
    """
    files = published(config, registry)
    complete = {path for path, file in files.items() if is_there(path, file)}
    if isinstance(config, NihSource) and set(found_in(config.folder)) - complete:
        return {}
    return {path: file for path, file in files.items() if path not in complete}


def is_there(path: Path, file: RemoteFile) -> bool:
    """Return whether a file of the registry is at ``path``, by its size; its hash is checked elsewhere."""
    return path.is_file() and file.size in (None, size_of(path))


def in_words(files: Iterable[RemoteFile]) -> str:
    """Return what would be downloaded: ``images_002.tar.gz (4.0 GB from nihcc.box.com)``."""
    files = list(files)
    hosts = " and ".join(sorted({str(urlsplit(file.url).hostname) for file in files}))
    sizes = [file.size for file in files if file.size is not None]
    size = f"{sum(sizes) / 1e9:.1f} GB" if len(sizes) == len(files) else "size not stated"
    return f"{files[0].name}{and_more(len(files) - 1)} ({size} from {hosts})"
