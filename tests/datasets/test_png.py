"""The fast decoder gives Pillow's pixels, or leaves the matter to Pillow."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cxrbench.datasets.inflate import ERRORS, inflate
from cxrbench.datasets.png import decode_grey

MOST = 1 << 20


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def filtered(pixels: np.ndarray, kinds: list[int]) -> bytes:
    """Lines as the specification filters them, written slowly and plainly."""
    lines, above = b"", [0] * pixels.shape[1]
    for row, kind in zip(pixels.tolist(), kinds, strict=True):
        line = []
        for x, value in enumerate(row):
            a, b, c = (row[x - 1] if x else 0), above[x], (above[x - 1] if x else 0)
            nearest = min((abs(b - c), 0, a), (abs(a - c), 1, b), (abs(a + b - 2 * c), 2, c))[2]
            line.append((value - [0, a, b, (a + b) // 2, nearest][kind]) % 256)
        lines += bytes([kind, *line])
        above = row
    return lines


def png(pixels: np.ndarray, lines: bytes, depth: int = 8, colour: int = 0, interlaced: int = 0) -> bytes:
    height, width = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    data = zlib.compress(lines)
    halves = chunk(b"IDAT", data[:7]) + chunk(b"IDAT", data[7:])
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + halves + chunk(b"IEND", b"")


@st.composite
def images(draw: st.DrawFn) -> tuple[np.ndarray, bytes]:
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    values = draw(st.binary(min_size=height * width, max_size=height * width))
    pixels = np.frombuffer(values, dtype=np.uint8).reshape(height, width)
    kinds = draw(st.lists(st.integers(0, 4), min_size=height, max_size=height))
    return pixels, png(pixels, filtered(pixels, kinds))


def test_both_zlibs_say_the_same() -> None:
    """What is installed decides the speed and nothing else."""
    isal_zlib = pytest.importorskip("isal.isal_zlib")
    assert inflate is isal_zlib
    squeezed = zlib.compress(LINES)
    for part in (squeezed, squeezed[:-1], squeezed[:-1] + b"x", squeezed + b"more"):
        said = []
        for module in (zlib, isal_zlib):
            stream = module.decompressobj()
            try:
                said.append((stream.decompress(part, 10_000), stream.eof, stream.unused_data))
            except ERRORS:
                said.append("error")
        assert said[0] == said[1]


@given(images())
@settings(deadline=None)
def test_every_filter_is_undone(image: tuple[np.ndarray, bytes]) -> None:
    pixels, data = image
    decoded = decode_grey(data, MOST)
    assert decoded is not None and (decoded == pixels).all()
    assert (np.asarray(Image.open(io.BytesIO(data))) == pixels).all(), "the test writes right PNGs"


@pytest.mark.parametrize("level", [1, 6, 9])
@pytest.mark.parametrize("optimize", [False, True])
def test_pillows_own_files_are_read_alike(level: int, optimize: bool) -> None:
    rows, columns = np.indices((300, 200))
    noise = np.random.default_rng(0).integers(0, 20, rows.shape)
    pixels = (128 + 90 * np.sin(rows / 40) * np.cos(columns / 30) + noise).astype(np.uint8)
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG", compress_level=level, optimize=optimize)
    decoded = decode_grey(data.getvalue(), MOST)
    assert decoded is not None and (decoded == pixels).all()


PIXELS = np.arange(64, dtype=np.uint8).reshape(8, 8)
LINES = filtered(PIXELS, [4] * 8)
PLAIN = png(PIXELS, LINES)


@pytest.mark.parametrize("place", range(0, len(PLAIN), 3))
def test_a_flipped_bit_is_never_taken_for_an_image(place: int) -> None:
    damaged = PLAIN[:place] + bytes([PLAIN[place] ^ 4]) + PLAIN[place + 1 :]
    decoded = decode_grey(damaged, MOST)
    assert decoded is None or (decoded == PIXELS).all()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        PLAIN[:-12],
        PLAIN[:40],
        png(PIXELS, LINES[:-1]),
        png(PIXELS, LINES + b"\0"),
        png(PIXELS, b"\x05" + LINES[1:]),
        png(PIXELS, LINES, depth=16),
        png(PIXELS, LINES, colour=2),
        png(PIXELS, LINES, colour=3),
        png(PIXELS, LINES, interlaced=1),
    ],
    ids=["empty", "no end", "cut", "short", "long", "filter 5", "16-bit", "colour", "palette", "interlaced"],
)
def test_what_is_not_plain_is_left_to_pillow(data: bytes) -> None:
    assert decode_grey(data, MOST) is None


def test_too_many_pixels_are_not_inflated() -> None:
    assert decode_grey(PLAIN, 63) is None and decode_grey(PLAIN, 64) is not None
