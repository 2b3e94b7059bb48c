"""How fast packing is: against decoding alone, decoding and resizing, and torchvision's ImageFolder.

``reduced`` and ``reduced_files`` are packed with the study's reduction, from a tarball and from files.
Each is held against decoding from the same place, which for a tarball includes its decompression.
All contenders take the same full-size images, drawn here, and as many workers, in paired blocks.

Called as: python -m benchmarks.packing [FORMAT ...].
"""

import io
import os
import shutil
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Resize, ToTensor

from benchmarks import measured_now
from benchmarks.commands import BENCH, Blocks, Out, Pixels, keep, print_numbers
from benchmarks.turns import Report, paired_blocks, paired_ratios
from cxrbench.cli import run_script
from cxrbench.cli.words import say
from cxrbench.common.errors import UserError
from cxrbench.common.files import cores
from cxrbench.datasets.archives import Encoded
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import pack
from cxrbench.datasets.phantom import draw
from cxrbench.datasets.table import decode_radiograph
from cxrbench.study.config import Dataset, NihSource, TableSource
from cxrbench.study.recipe import SPLITS

SOURCE = 1024  # pixels a side, as NIH publishes them
TARBALL = "images_001.tar.gz"
REDUCTION = "opencv-bilinear-256-128"  # of our study
KINDS = {"png": ".png", "jpeg": ".jpg", "dicom": ".dcm"}


def bench_pack(
    kind: str, images: int, drawn: int, pixels: int, workers: int, blocks: int, say: Report
) -> dict[str, Any]:
    """Return a row of pack.json; ``drawn`` phantoms have ``images`` names, ``workers`` 0 is one per core.

    Tarballs and the study's reduction are of PNG files only, and ImageFolder reads no DICOM.
    """
    workers = workers or cores()
    with tempfile.TemporaryDirectory(prefix="cxrbench-pack-") as place:
        say(f"drawing {drawn} phantoms of {SOURCE} px as {kind}")
        folder = Path(place)
        files = _draw(folder, kind, images, drawn)
        labels = folder / "labels.csv"
        own = TableSource(source="table", pixels=pixels, recipe="none", table=labels, folder=files)
        passes = {
            "files": partial(_pack, own, folder / "packed", workers),
            "alone": partial(_alone, own, files, workers),  # nothing is kept
        }
        if kind == "png":
            tarball = _tarball_of(folder, files, pixels)
            reduced = tarball.model_copy(update={"reduced": REDUCTION})
            loose = reduced.model_copy(update={"folder": files})
            passes["decoding"] = partial(_decoding, files, workers)  # not even resized
            passes["decoding_tarball"] = partial(_decoding, tarball.folder / TARBALL, workers)
            for name, source in (("tarball", tarball), ("reduced", reduced), ("reduced_files", loose)):
                passes[name] = partial(_pack, source, folder / "packed", workers)
        if kind != "dicom":
            passes["image_folder"] = partial(_image_folder, files.parent, pixels, workers)
        contenders = {name: partial(_rate, run, images) for name, run in passes.items()}
        rates = paired_blocks(contenders, blocks, say)
        size = sum(path.stat().st_size for path in files.iterdir()) / images
    row: dict[str, Any] = {**measured_now(), "format": kind, "drawn": drawn, "images": images}
    row |= {"pixels": pixels, "workers": workers, "blocks": blocks, "source_pixels": SOURCE}
    row |= {"source_bytes": round(size), "rates": rates}
    row |= {f"{name}_images_per_second": median(values) for name, values in rates.items()}
    pairs = product(("files", "tarball"), ("alone", "image_folder"))
    for ours, theirs in (*pairs, ("reduced", "decoding_tarball"), ("reduced_files", "decoding")):
        if ours in rates and theirs in rates:
            row[f"{ours}_to_{theirs}"] = median(paired_ratios(rates, ours, theirs))
    return row


def _rate(run: Callable[[], object], images: int) -> float:
    start = time.perf_counter()
    run()
    return images / (time.perf_counter() - start)


def _draw(folder: Path, kind: str, images: int, drawn: int) -> Path:
    """Draw phantoms under NIH's names; return the folder of files, a class folder for ImageFolder."""
    rows = read_nih_table().iloc[:images]
    files = folder / "files/all"
    files.mkdir(parents=True)
    names = [Path(name).stem + KINDS[kind] for name in rows["image"]]
    for k, picture in enumerate(draw(rows.iloc[:drawn], SOURCE, 0)):
        _save(picture, kind, files / names[k])
        for name in names[k + drawn :: drawn]:
            os.link(files / names[k], files / name)
    number = np.arange(images)  # labels and patients are made up: packing reads them and no more
    labels = pd.DataFrame({"image": names, "patient": number, "split": np.resize(SPLITS, images)})
    labels.assign(Marked=number // len(SPLITS) % 2).to_csv(folder / "labels.csv", index=False)
    return files


def _save(picture: np.ndarray, kind: str, path: Path) -> None:
    image = Image.fromarray(picture)
    if kind != "dicom":
        # The fastest compression of PNG: writing takes a fifth of a second otherwise, reading is alike.
        image.save(path, compress_level=1, quality=95)
        return
    import pydicom
    from pydicom.uid import DigitalXRayImageStorageForPresentation, ExplicitVRLittleEndian

    file = pydicom.Dataset()
    file.file_meta = pydicom.dataset.FileMetaDataset()
    file.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file.SOPClassUID, file.SOPInstanceUID = DigitalXRayImageStorageForPresentation, pydicom.uid.generate_uid()
    file.set_pixel_data(picture.astype(np.uint16) * 16, "MONOCHROME2", bits_stored=12)
    pydicom.dcmwrite(path, file, enforce_file_format=True)


def _tarball_of(folder: Path, files: Path, pixels: int) -> NihSource:
    place = folder / "tarball"
    place.mkdir()
    with tarfile.open(place / TARBALL, "w:gz", compresslevel=1, dereference=True) as archive:
        archive.add(files, "images")  # dereferenced: files of their own, as in NIH's tarballs
    return NihSource(source="nih", pixels=pixels, recipe="none", folder=place, split="seeded-0")


def _pack(config: Dataset, folder: Path, workers: int) -> None:
    pack("bench", config, folder, workers)
    shutil.rmtree(folder)


def _alone(config: TableSource, files: Path, workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        pictures = (Encoded(path.name, "", path.read_bytes()) for path in sorted(files.iterdir()))
        deque(pool.map(partial(decode_radiograph, config), pictures), 0)


def _decoding(source: Path, workers: int) -> None:
    """Decode the images of a folder or of a tarball, and do nothing else with them."""
    with ThreadPoolExecutor(workers) as pool:
        deque(pool.map(_decoded, _members(source) if source.is_file() else _contents(source)), 0)


def _contents(folder: Path) -> Iterator[bytes]:
    yield from (path.read_bytes() for path in sorted(folder.iterdir()))


def _members(tarball: Path) -> Iterator[bytes]:
    with tarfile.open(tarball) as archive:
        yield from (file.read() for member in archive if (file := archive.extractfile(member)))


def _decoded(content: bytes) -> None:
    with Image.open(io.BytesIO(content)) as image:
        image.load()


def _image_folder(folder: Path, pixels: int, workers: int) -> None:
    images = ImageFolder(str(folder), Compose([Resize((pixels, pixels)), ToTensor()]))
    deque(DataLoader(images, batch_size=64, num_workers=workers), 0)


def main(
    formats: Annotated[list[str] | None, typer.Argument(help="png, jpeg or dicom. Default: all.")] = None,
    images: Annotated[int, typer.Option(min=1, help="Files.")] = 500,
    drawn: Annotated[int, typer.Option(min=1, help="Different phantoms among them.")] = 100,
    pixels: Pixels = 64,
    workers: Annotated[int, typer.Option(min=0, help="0: one per core.")] = 0,
    blocks: Blocks = 7,
    out: Out = BENCH / "pack.json",
) -> None:
    """Compare the speed of packing with decoding alone and with torchvision's ImageFolder."""
    if unknown := [name for name in formats or () if name not in KINDS]:
        raise UserError(f"unknown format '{unknown[0]}'; use {', '.join(KINDS)}")
    rest = images, drawn, pixels, workers, blocks, say
    for (row,) in keep(out, "pack", ([bench_pack(kind, *rest)] for kind in formats or KINDS)):
        print_numbers(row)


if __name__ == "__main__":
    run_script(main)
