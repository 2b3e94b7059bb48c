"""Small drawn radiographs with a table of any findings, as a user has them."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from PIL import Image

from cxrbench.study.config import TableSource

ODD = ["Nodule/Mass", "Lead & wire, 100 %_#", "Hühnerbrust"]


def drawn(images: int = 60, findings: list[str] = ODD, seed: int = 0) -> pd.DataFrame:
    """A table of ``images`` of half as many patients, a tenth of them in val and a fifth in test."""
    rng = np.random.default_rng(seed)
    patient = np.sort(rng.integers(0, images // 2, images))
    table = pd.DataFrame({"image": [f"p{p}/{k:04}.png" for k, p in enumerate(patient)]})
    table["patient"] = [f"P-{p:03}" for p in patient]
    table["split"] = np.select([patient % 10 < 6, patient % 10 < 8], ["train", "val"], "test")
    table["sex"] = rng.choice(["F", "M"], images)
    for k, name in enumerate(findings):
        table[name] = (rng.random(images) < 0.4 + 0.05 * k).astype(int)
    return table


def picture(row: int, pixels: int = 70) -> np.ndarray:
    """A grey picture that depends on its row alone."""
    return np.random.default_rng(row).integers(0, 256, (pixels, pixels), dtype=np.uint8)


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, kind)
    return data.getvalue()


def dicom(pixels: np.ndarray, **tags: object) -> bytes:
    """The bytes of a DICOM file of these stored values; ``tags`` add to it or, if None, take away."""
    import pydicom
    from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian, generate_uid

    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = DigitalXRayImageStorageForPresentation
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=["test"])
    file = pydicom.Dataset()
    file.file_meta = meta
    file.SOPClassUID, file.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    file.Rows, file.Columns = pixels.shape[:2]
    file.SamplesPerPixel = pixels.shape[2] if pixels.ndim == 3 else 1
    file.PhotometricInterpretation = "MONOCHROME2"
    file.BitsAllocated = 8 * pixels.itemsize
    file.BitsStored, file.HighBit = file.BitsAllocated, file.BitsAllocated - 1
    file.PixelRepresentation = int(pixels.dtype.kind == "i")
    file.PixelData = pixels.tobytes()
    for name, value in tags.items():
        setattr(file, name, value)
        if value is None:
            delattr(file, name)
    data = io.BytesIO()
    pydicom.dcmwrite(data, file, enforce_file_format=True)
    return data.getvalue()


def written(folder: Path, table: pd.DataFrame, **changes: Any) -> TableSource:
    """Write the images of a table, and the table as CSV; return the source, with ``changes``."""
    for row, name in enumerate(table["image"]):
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(picture(row), "JPEG" if path.suffix == ".jpg" else "PNG"))
    table.to_csv(folder / "labels.csv", index=False)
    return a_source(folder, **changes)


def a_source(folder: Path, **changes: Any) -> TableSource:
    places = {"table": folder / "labels.csv", "folder": folder / "images"}
    return TableSource(**{"source": "table", "pixels": 16, "recipe": "quick", **places} | changes)


def a_study(folder: Path, source: TableSource, **changes: Any) -> Path:
    """Write a study of this source with a tiny network on the CPU; return its path."""
    study = {
        "datasets": {"own": source.model_dump(mode="json", exclude_none=True)},
        "recipes": {"quick": {"epochs": 1, "batch": 8, "averaging": 0.5, "threads": 1}},
        "cells": [{"dataset": "own", "architectures": ["test_resnet"], "platforms": ["cpu"], "seeds": [0]}],
        "run": ["own/*/cpu/*"],
    }
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump(study | changes, allow_unicode=True))
    return path
