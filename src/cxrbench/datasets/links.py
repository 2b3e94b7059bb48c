"""Whether the registry's addresses still answer: advice, as links die without anybody's fault here."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cxrbench.datasets.registry import RemoteFile
from cxrbench.datasets.streams import Broken, Refused, new_session, opened


@dataclass(frozen=True)
class Link:
    """An address of the registry and what it answered; ``ok`` when it offers the file at its size."""

    dataset: str
    file: str
    url: str
    ok: bool
    answer: str


def check_links(files: list[RemoteFile], timeout: float, jobs: int = 4) -> list[Link]:
    """Ask every address and mirror of ``files`` for its headers; ``timeout`` in seconds. Fetches no file."""
    asked = [(file, url) for file in files for url in (file.url, *file.mirrors)]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda pair: _check(pair[0], pair[1], timeout), asked))


def _check(file: RemoteFile, url: str, timeout: float) -> Link:
    try:
        with opened(new_session(), url, 0, timeout) as stream:
            total = stream.total
    except (Broken, Refused) as error:
        return Link(file.dataset, file.name, url, False, str(error))
    if total is None:
        return Link(file.dataset, file.name, url, True, "answers without a size")
    fits = file.size in (None, total)
    answer = f"{total:,} bytes" + ("" if fits else f", the registry says {file.size:,}")
    return Link(file.dataset, file.name, url, fits, answer)
