"""Made-up radiographs, tarballs and studies for the tests of packing."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zlib
from pathlib import Path

import numpy as np
import yaml
from PIL import Image

from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.study.config import NihSource


def png(pixels: np.ndarray) -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG", compress_level=1)
    return data.getvalue()


def names(count: int) -> list[str]:
    return read_nih_table()["image"].iloc[:count].tolist()


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tarball(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    zipped = path.name.lower().endswith(".gz")
    path.write_bytes(gzip.compress(plain.getvalue(), 1) if zipped else plain.getvalue())
    return path


def source(folder: Path, **changes: object) -> NihSource:
    return NihSource(**{"source": "nih", "pixels": 16, "recipe": "x", "folder": folder} | changes)


def study(folder: Path, images: Path) -> Path:
    path = folder / "study.yaml"
    dataset = {"source": "nih", "pixels": 16, "recipe": "x", "folder": str(images)}
    path.write_text(
        yaml.safe_dump({"datasets": {"d": dataset}, "recipes": {"x": {"epochs": 1, "batch": 1}}, "cells": []})
    )
    return path


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def whole_png(width: int, height: int, depth: int, kind: int, *chunks: bytes, interlaced: int = 0) -> bytes:
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IEND", b"")


GOOD = "00000001_000.png"
IMAGE = png(np.full((24, 24), 7, dtype=np.uint8))
