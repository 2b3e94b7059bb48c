"""The bytes of a remote file from a given position on: by HTTP with a byte range, or from a local folder.

Range requests: RFC 9110, section 14. The transport is requests; what it leaves to the caller is here: which
answers are worth another try (:class:`Broken`) and which are not (:class:`Refused`).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import requests
from urllib3.exceptions import HTTPError

CHUNK = 1 << 18  # bytes taken at a time at most
_LEAST_RATE = 64  # bytes per second on average over a time-out; less is a stall, however alive it looks
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


class Broken(Exception):
    """The transfer failed in a way that may pass: worth another try, after ``wait`` seconds at least."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class Refused(Exception):
    """This source does not have the file; another try would give the same answer."""


@dataclass(frozen=True)
class Stream:
    """Bytes of a file from ``start`` on; ``total`` is the size of the whole file where it is known."""

    start: int
    total: int | None
    chunks: Iterator[bytes]


def is_address(source: str) -> bool:
    """Whether ``source`` is a web address and not a folder."""
    return source.startswith(("http://", "https://"))


def below(source: str, name: str) -> str:
    """The address of file ``name`` on a mirror, or its path in a folder."""
    return f"{source.rstrip('/')}/{quote(name)}" if is_address(source) else str(Path(source) / name)


def new_session() -> requests.Session:
    """A session that follows few redirects, as a loop of them is a mistake of the server's."""
    session = requests.Session()
    session.max_redirects = 10
    session.headers["Accept-Encoding"] = "identity"  # ranges count the file's own bytes
    return session


@contextmanager
def opened(session: requests.Session, source: str, start: int, timeout: float) -> Iterator[Stream]:
    """``source`` from byte ``start`` on, or from 0 where the server knows no ranges.

    ``timeout`` in seconds holds for connecting, for each silence and for a stall. Raises Broken or
    Refused, now or while the chunks are read.
    """
    if not is_address(source):
        yield _local(Path(source), start)
        return
    try:
        with _answer(session, source, start, timeout) as response:
            yield _stream(response, start, timeout)
    except (
        requests.TooManyRedirects,
        requests.exceptions.SSLError,
        requests.exceptions.InvalidURL,
        requests.exceptions.MissingSchema,
        requests.exceptions.InvalidSchema,
    ) as error:
        raise Refused(f"cannot be asked ({_reason(error)})") from None
    except requests.Timeout:
        raise Broken(f"no answer for {timeout:g} s") from None
    except (requests.RequestException, HTTPError) as error:
        raise Broken(_reason(error)) from None


def _answer(session: requests.Session, url: str, start: int, timeout: float) -> requests.Response:
    headers = {"Range": f"bytes={start}-"} if start else {}
    response = session.get(url, headers=headers, stream=True, timeout=timeout)
    if response.status_code == 416 and start:  # it holds less than is here already: begin again
        response.close()
        response = session.get(url, stream=True, timeout=timeout)
    if response.status_code in _TEMPORARY:
        response.close()
        wait = response.headers.get("Retry-After", "")
        raise Broken(_status(response), float(wait) if wait.isdecimal() else 0.0)
    if response.status_code not in (200, 206):
        response.close()
        raise Refused(_status(response))
    return response


def _status(response: requests.Response) -> str:
    return f"the server answers {response.status_code} {response.reason}"


def _stream(response: requests.Response, start: int, timeout: float) -> Stream:
    length = response.headers.get("Content-Length", "")
    if response.status_code == 200:
        return Stream(0, int(length) if length.isdecimal() else None, _chunks(response, timeout))
    answered = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answered)
    if match is None or int(match[1]) != start:
        raise Refused(f"it was asked for bytes from {start} on and answers '{answered}'")
    return Stream(start, None if match[2] == "*" else int(match[2]), _chunks(response, timeout))


def _chunks(response: requests.Response, timeout: float) -> Iterator[bytes]:
    """Bytes as they come; a server that keeps a connection alive with a trickle has stalled too."""
    since, taken = time.monotonic(), 0
    # read1 gives what has arrived; iter_content would wait for a whole chunk and hide a trickle.
    while chunk := response.raw.read1(CHUNK, decode_content=False):
        yield chunk
        taken += len(chunk)
        if (passed := time.monotonic() - since) > timeout:
            if taken < _LEAST_RATE * passed:
                raise Broken(f"stalled: {taken} bytes in {passed:.0f} s")
            since, taken = time.monotonic(), 0


def _reason(error: BaseException) -> str:
    """The innermost reason in one line: requests and urllib3 wrap errors in each other."""
    inner = error.args[0] if error.args else error
    while isinstance(inner, BaseException) and (deeper := getattr(inner, "reason", None) or inner.args):
        inner = deeper[0] if isinstance(deeper, tuple) else deeper
    return " ".join(str(inner).split())[:200] or type(error).__name__


def _local(path: Path, start: int) -> Stream:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise Refused("it is not a file")
        return Stream(min(start, size), size, _pieces(path, min(start, size)))
    except OSError as error:
        raise Refused(str(error.strerror)) from None


def _pieces(path: Path, start: int) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            file.seek(start)
            while chunk := file.read(CHUNK):
                yield chunk
    except OSError as error:
        raise Refused(str(error.strerror)) from None
