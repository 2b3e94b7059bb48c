"""A real HTTP server on loopback that misbehaves as real ones do, and remembers what it was asked."""

from __future__ import annotations

import csv
import hashlib
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

_COLUMNS = ("dataset", "file", "url", "mirrors", "bytes", "hash", "licence", "citation")


Fault = Callable[["Handler", bytes, int], None]


class Handler(BaseHTTPRequestHandler):
    """Answers with a file, or with the next fault that was ordered for it."""

    protocol_version = "HTTP/1.1"
    server: BadServer

    def do_GET(self) -> None:
        self.close_connection = True
        name = self.path.split("?")[0].rsplit("/", 1)[-1]
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked and name not in self.server.rangeless else 0
        self.server.requests.append((name, int(asked[1]) if asked else 0))
        if name not in self.server.files:
            self.send_error(404)
            return
        faults = self.server.faults.get(name, [])
        fault = faults.pop(0) if faults else good
        fault(self, self.server.files[name], start)

    def head(self, total: int, start: int) -> None:
        """Status line and headers of ``total`` bytes from ``start`` on."""
        if start and start >= total:
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("Content-Length", str(total - start))
        self.send_header("Connection", "close")
        self.end_headers()

    def send(self, data: bytes) -> None:
        """Bytes of the body; counted, and no matter if nobody listens any more."""
        try:
            self.wfile.write(data)
            self.server.sent += len(data)
        except OSError:
            pass

    def log_message(self, *words: object) -> None:
        """Nothing on the screen."""


def good(handler: Handler, data: bytes, start: int) -> None:
    handler.head(len(data), start)
    if start < len(data):
        handler.send(data[start:])


def cut(count: int) -> Fault:
    """The connection breaks after ``count`` bytes."""

    def fault(handler: Handler, data: bytes, start: int) -> None:
        handler.head(len(data), start)
        handler.send(data[start : start + count])

    return fault


def status(code: int, reason: str | None = None, **headers: str) -> Fault:
    def fault(handler: Handler, data: bytes, start: int) -> None:
        handler.send_response(code, reason)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", "0")
        handler.send_header("Connection", "close")
        handler.end_headers()

    return fault


def other(change: Callable[[bytes], bytes]) -> Fault:
    """Another file than promised: flipped, shortened, lengthened."""
    return lambda handler, data, start: good(handler, change(data), start)


def flipped(data: bytes) -> bytes:
    return data[:1000] + bytes([data[1000] ^ 1]) + data[1001:]


def stall(count: int) -> Fault:
    """``count`` bytes, then silence for as long as the server lives."""

    def fault(handler: Handler, data: bytes, start: int) -> None:
        handler.head(len(data), start)
        handler.send(data[start : start + count])
        handler.server.stalled.set()
        handler.server.released.wait()

    return fault


def trickle(handler: Handler, data: bytes, start: int) -> None:
    """Alive, but a byte at a time."""
    handler.head(len(data), start)
    for byte in data[start:]:
        handler.send(bytes([byte]))
        if handler.server.released.wait(0.05):
            return


def without_length(count: int) -> Fault:
    """No length is said, and the connection is closed after ``count`` bytes as if that were all."""

    def fault(handler: Handler, data: bytes, start: int) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.send(data[:count])

    return fault


def another_range(handler: Handler, data: bytes, start: int) -> None:
    """A partial answer that begins elsewhere."""
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

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def server() -> Iterator[BadServer]:
    with BadServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


def write_registry(path: Path, server: BadServer, sizes: bool = True, **changes: str) -> Path:
    """A registry of dataset ``d`` with every file of ``server``; ``changes`` replace columns."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name, data in server.files.items():
            row = {
                "dataset": "d",
                "file": name,
                "url": f"{server.url}/first/{name}",
                "bytes": len(data) if sizes else "",
                "hash": f"md5:{hashlib.md5(data).hexdigest()}",
                "licence": "CC0",
                "citation": "nobody",
            }
            writer.writerow(row | changes)
    return path
