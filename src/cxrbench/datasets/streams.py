"""The bytes of a remote file from a given position on: by HTTP with a byte range, or from a local folder.

requests is the transport. Answers that are worth another try raise Broken, the others Refused.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import requests
from urllib3.exceptions import HTTPError

_CHUNK = 1 << 18  # bytes read at a time at most
_LEAST_RATE = 64  # bytes per second, averaged over a time-out; less counts as a stall
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}


class Broken(Exception):
    """A failure that may pass: worth another try, after ``wait`` seconds at least."""

    def __init__(self, why: str, wait: float = 0.0) -> None:
        super().__init__(why)
        self.wait = wait


class Refused(Exception):
    """The source does not have the file; another try would give the same answer."""


def is_address(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def below(mirror: str, name: str) -> str:
    """The address of file ``name`` on a mirror, or its path in a folder."""
    return f"{mirror.rstrip('/')}/{quote(name)}" if is_address(mirror) else str(Path(mirror) / name)


@contextmanager
def opened(source: str, start: int, timeout: float) -> Iterator[tuple[int, int | None, Iterator[bytes]]]:
    """First byte, total size where it is known, and bytes of ``source`` from ``start`` on, or from 0.

    ``timeout`` in seconds holds for connecting, for each silence and for a stall. Raises Broken or Refused,
    now or while the bytes are read.
    """
    if not is_address(source):
        try:
            file = open(source, "rb")  # noqa: SIM115
        except OSError as error:
            raise Refused(str(error.strerror)) from None
        with file:
            size = os.fstat(file.fileno()).st_size
            yield file.seek(min(start, size)), size, iter(lambda: file.read(_CHUNK), b"")
        return
    try:
        with _answer(source, start, timeout) as response:
            first, total = _range(response, start)
            yield first, total, _chunks(response, timeout)
    except (requests.TooManyRedirects, requests.exceptions.SSLError, ValueError) as error:
        raise Refused(f"cannot be asked ({_reason(error)})") from None
    except requests.Timeout:
        raise Broken(f"no answer for {timeout:g} s") from None
    except (requests.RequestException, HTTPError) as error:
        raise Broken(_reason(error)) from None


def _answer(url: str, start: int, timeout: float) -> requests.Response:
    headers = {"Accept-Encoding": "identity"}  # ranges count the file's own bytes
    if start:
        headers["Range"] = f"bytes={start}-"
    response = requests.get(url, headers=headers, stream=True, timeout=timeout)
    if response.status_code == 416 and start:  # it has less than is here already
        return _answer(url, 0, timeout)
    if response.status_code in (200, 206):
        return response
    response.close()
    why = f"the server answers {response.status_code} {response.reason}"
    if response.status_code not in _TEMPORARY:
        raise Refused(why)
    wait = response.headers.get("Retry-After", "")
    raise Broken(why, float(wait) if wait.isdecimal() else 0.0)


def _range(response: requests.Response, start: int) -> tuple[int, int | None]:
    """The first byte of an answer, and the file's size where it is known."""
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    answered = response.headers.get("Content-Range", "")
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answered)
    if match is None or int(match[1]) != start:
        raise Refused(f"it was asked for bytes from {start} on and answers '{answered}'")
    return start, None if match[2] == "*" else int(match[2])


def _chunks(response: requests.Response, timeout: float) -> Iterator[bytes]:
    """Bytes as they come; a server that keeps a connection alive with a trickle has stalled too."""
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
    """The innermost reason in one line: requests and urllib3 wrap errors in each other."""
    inner = error.args[0] if error.args else error
    while isinstance(inner, BaseException) and (deeper := getattr(inner, "reason", None) or inner.args):
        inner = deeper[0] if isinstance(deeper, tuple) else deeper
    return " ".join(str(inner).split())[:200] or type(error).__name__
