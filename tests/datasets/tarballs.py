"""Made-up radiographs, tarballs and studies for the tests of packing."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import yaml

from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.study.config import NihSource
from own_images import encoded

Member = tuple[tarfile.TarInfo, bytes]


def names(count: int) -> list[str]:
    """The first images of NIH's table; 400 have some in each part of the chexnet split."""
    return read_nih_table()["image"].iloc[:count].tolist()


def member(name: str, data: bytes = b"", **fields: object) -> Member:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def tar(members: list[Member], format: int = tarfile.PAX_FORMAT) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=format) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return plain.getvalue()


def write_tar(path: Path, data: bytes) -> Path:
    """Write a tarball's bytes, zipped where the name says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1) if path.name.lower().endswith(".gz") else data)
    return path


def source(folder: Path, **changes: object) -> NihSource:
    return NihSource(**{"source": "nih", "pixels": 16, "recipe": "x", "folder": folder} | changes)


def study(folder: Path, images: Path) -> Path:
    dataset = source(images).model_dump(mode="json", exclude_none=True)
    recipe = {"epochs": 1, "batch": 1}
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"datasets": {"d": dataset}, "recipes": {"x": recipe}, "cells": []}))
    return path


GOOD = "00000001_000.png"
IMAGE = encoded(np.full((24, 24), 7, dtype=np.uint8))
