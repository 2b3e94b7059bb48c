"""A real HTTP server on loopback that misbehaves as real ones do, and remembers what it was asked."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest

Fault = Callable[["Handler", bytes, int], None]


class Handler(BaseHTTPRequestHandler):
    """Answers with a file, or with the next fault that was ordered for it."""

    protocol_version = "HTTP/1.1"
    server: BadServer

    def do_GET(self) -> None:
        self.close_connection = True
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        self.server.requests.append((name, start))
        faults = self.server.faults.get(name, [])
        fault = faults.pop(0) if faults else cut()
        fault(self, self.server.files[name], 0 if name in self.server.rangeless else start)

    def answer(self, code: int, reason: str | None = None, **headers: object) -> None:
        """Send status line and headers; the connection is closed afterwards."""
        self.send_response(code, reason)
        for name, value in (headers | {"Connection": "close"}).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def head(self, total: int, start: int) -> None:
        """Announce the bytes from ``start`` on, of ``total``."""
        if not start:
            self.answer(200, Content_Length=total)
        elif start < total:
            given = f"bytes {start}-{total - 1}/{total}"
            self.answer(206, Content_Range=given, Content_Length=total - start)
        else:
            self.answer(416, Content_Length=0)

    def send(self, data: bytes) -> None:
        """Send and count bytes of the body, whether or not anybody still listens."""
        with suppress(OSError):
            self.wfile.write(data)
            self.server.sent += len(data)

    def log_message(self, *words: object) -> None:
        """Print nothing."""


def cut(count: int | None = None, change: Callable[[bytes], bytes] = bytes, stall: bool = False) -> Fault:
    """Break the connection after ``count`` bytes (None: all) of a changed file, or stay silent then."""

    def fault(handler: Handler, data: bytes, start: int) -> None:
        data = change(data)
        handler.head(len(data), start)
        handler.send(data[start:][:count])
        if stall:
            handler.server.stalled.set()
            handler.server.released.wait()

    return fault


def status(code: int, reason: str | None = None, **headers: str) -> Fault:
    return lambda handler, data, start: handler.answer(code, reason, Content_Length=0, **headers)


def flipped(data: bytes) -> bytes:
    return data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]


def trickle(handler: Handler, data: bytes, start: int) -> None:
    """Send a byte at a time."""
    handler.head(len(data), start)
    for byte in data[start:]:
        handler.send(bytes([byte]))
        if handler.server.released.wait(0.05):
            return


def without_length(count: int, times: int = 1) -> Fault:
    """Announce no length, and close the connection after ``count`` bytes as if that were all."""

    def fault(handler: Handler, data: bytes, start: int) -> None:
        handler.answer(200)
        handler.send((data * times)[:count])

    return fault


def another_range(handler: Handler, data: bytes, start: int) -> None:
    """Answer with bytes that begin elsewhere."""
    handler.head(len(data), max(1, start - 7))
    handler.send(data[max(1, start - 7) :])


class BadServer(ThreadingHTTPServer):
    """Files by name, faults in the order they will be met, and a log of (name, first byte asked for)."""

    daemon_threads = True
    request_queue_size = 128  # a busy machine must not turn a redirect into a refused connection

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, list[Fault]] = {}
        self.rangeless: set[str] = set()
        self.requests: list[tuple[str, int]] = []
        self.sent = 0
        self.stalled, self.released = threading.Event(), threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[BadServer]:
    with BadServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def write_registry(path: Path, server: BadServer, **changes: str) -> Path:
    """Write a registry of dataset ``d`` with every file of ``server``; ``changes`` replace columns."""
    rows = []
    for name, data in server.files.items():
        place = {"dataset": "d", "file": name, "url": f"{server.url}/first/{name}", "mirrors": ""}
        sums = {"bytes": len(data), "hash": f"md5:{hashlib.md5(data).hexdigest()}"}
        rows.append(place | sums | {"licence": "CC0", "citation": "nobody"} | changes)
    pd.DataFrame(rows).to_csv(path, index=False)
    return path
