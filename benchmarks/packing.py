"""How fast packing is: against decoding and resizing alone, and against torchvision's ImageFolder.

All contenders take the same full-size images, drawn here, and as many workers, in paired blocks.
"""

import os
import shutil
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import Compose, Resize, ToTensor

from benchmarks.train import Report, paired_blocks, paired_ratios
from cxrbench.datasets.archives import Found
from cxrbench.datasets.decoding import decode
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import pack
from cxrbench.datasets.phantom import draw
from cxrbench.study.config import NihSource
from cxrbench.study.cores import cores

SOURCE = 1024  # pixels a side, as NIH publishes them


def bench_pack(
    images: int, drawn: int, pixels: int, workers: int, blocks: int, say: Report
) -> dict[str, Any]:
    """Return a row of pack.json; ``drawn`` phantoms have ``images`` names, ``workers`` 0 is one per core."""
    workers = workers or cores()
    with tempfile.TemporaryDirectory(prefix="cxrbench-pack-") as name:
        say(f"drawing {drawn} phantoms of {SOURCE} px")
        files, tarball = _draw(Path(name), images, drawn)
        passes = {
            "files": partial(_pack, files, Path(name, "packed"), pixels, workers),
            "tarball": partial(_pack, tarball, Path(name, "packed"), pixels, workers),
            "alone": partial(_alone, files, pixels, workers),  # nothing is kept
            "image_folder": partial(_image_folder, files.parent, pixels, workers),
        }
        contenders = {name: partial(_rate, run, images) for name, run in passes.items()}
        rates = paired_blocks(contenders, blocks, say)
        size = sum(path.stat().st_size for path in files.iterdir()) / images
    row: dict[str, Any] = {"drawn": drawn, "images": images, "pixels": pixels, "workers": workers}
    row |= {"blocks": blocks, "source_pixels": SOURCE, "source_bytes": round(size), "rates": rates}
    row |= {f"{name}_images_per_second": median(values) for name, values in rates.items()}
    for theirs in ("alone", "image_folder"):
        for ours in ("files", "tarball"):
            row[f"{ours}_to_{theirs}"] = median(paired_ratios(rates, ours, theirs))
    return row


def _rate(run: Callable[[], object], images: int) -> float:
    start = time.perf_counter()
    run()
    return images / (time.perf_counter() - start)


def _draw(folder: Path, images: int, drawn: int) -> tuple[Path, Path]:
    """Draw phantoms under NIH's names, as files (in a class folder, for ImageFolder) and as a tarball."""
    rows = read_nih_table().iloc[:images]
    files, tarball, names = folder / "files/all", folder / "tarball", rows["image"].tolist()
    files.mkdir(parents=True)
    tarball.mkdir()
    for k, picture in enumerate(draw(rows.iloc[:drawn], SOURCE, 0)):
        # The fastest compression: writing takes a fifth of a second otherwise, reading is alike.
        Image.fromarray(picture).save(files / names[k], compress_level=1)
        for name in names[k + drawn :: drawn]:
            os.link(files / names[k], files / name)
    with tarfile.open(tarball / "images_001.tar.gz", "w:gz", compresslevel=1, dereference=True) as archive:
        archive.add(files, "images")  # dereferenced: files of their own, as in NIH's tarballs
    return files, tarball


def _pack(source: Path, folder: Path, pixels: int, workers: int) -> None:
    config = NihSource(source="nih", pixels=pixels, recipe="none", folder=source, split="seeded-0")
    pack("bench", config, folder, workers)
    shutil.rmtree(folder)


def _alone(files: Path, pixels: int, workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        found = (Found(path.name, "", path.read_bytes()) for path in sorted(files.iterdir()))
        deque(pool.map(lambda image: decode(image, pixels), found), 0)


def _image_folder(folder: Path, pixels: int, workers: int) -> None:
    images = ImageFolder(str(folder), Compose([Resize((pixels, pixels)), ToTensor()]))
    deque(DataLoader(images, batch_size=64, num_workers=workers), 0)
