"""How fast packing is: against decoding and resizing alone, and against a plain torchvision ImageFolder pass.

All contenders take the same full-size images, drawn here, and as many workers, in turns: a block is one turn
of each, and what is reported is the median over blocks of the ratios within a block, which a busy machine
disturbs least.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from PIL import Image

from cxrbench.datasets.archives import Found
from cxrbench.datasets.nih import decode
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import pack
from cxrbench.datasets.phantom import draw
from cxrbench.study.config import NihSource
from cxrbench.study.cores import cores

SOURCE = 1024  # pixels a side, as NIH publishes them


@dataclass(frozen=True)
class Setting:
    """``drawn`` phantoms under ``images`` names, packed at ``pixels`` by ``workers`` (0: one per core)."""

    drawn: int = 100
    images: int = 500
    pixels: int = 64
    workers: int = 0
    blocks: int = 7


def bench_pack(setting: Setting, say: Callable[[str], None]) -> dict[str, Any]:
    """Images per second of each contender, the ratios that packing reaches, and the memory it takes.

    ``files`` and ``tarball``: :func:`pack` from loose files and from a .tar.gz, with everything it does
    (labels, split, hashes). ``alone``: decoding and resizing the same files with the same code, nothing
    kept. ``image_folder``: torchvision's ImageFolder with Resize to the same size and ToTensor, through a
    DataLoader with as many workers.
    """
    workers, pixels = setting.workers or cores(), setting.pixels
    rates: dict[str, list[float]] = {name: [] for name in ("files", "tarball", "alone", "image_folder")}
    with tempfile.TemporaryDirectory(prefix="cxrbench-pack-") as name:
        folder = Path(name)
        say(f"drawing {setting.drawn} phantoms of {SOURCE} px")
        files, tarball = _draw(folder, setting)
        passes: dict[str, Callable[[], object]] = {
            "files": partial(_pack, files, folder, pixels, workers),
            "tarball": partial(_pack, tarball, folder, pixels, workers),
            "alone": partial(_alone, files, pixels, workers),
            "image_folder": partial(deque, _image_folder(files.parent, pixels, workers), 0),
        }
        for block in range(-1, setting.blocks):
            for contender, run in passes.items():
                start = time.perf_counter()
                run()
                if block >= 0:  # the first turn of each warms caches
                    rates[contender].append(setting.images / (time.perf_counter() - start))
            say(f"block {block + 1} of {setting.blocks}")
        size = sum(path.stat().st_size for path in files.iterdir()) / setting.images
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            peak = pool.submit(_peak_of_packing, tarball, folder, pixels).result()
    ratios = {
        f"{ours}_to_{theirs}": statistics.median(
            a / b for a, b in zip(rates[ours], rates[theirs], strict=True)
        )
        for theirs in ("alone", "image_folder")
        for ours in ("files", "tarball")
    }
    return {
        **(asdict(setting) | {"workers": workers, "source_pixels": SOURCE, "source_bytes": round(size)}),
        **{f"{name}_images_per_second": statistics.median(values) for name, values in rates.items()},
        **ratios,
        "rates": rates,
        "peak_mib": peak,
    }


def _draw(folder: Path, setting: Setting) -> tuple[Path, Path]:
    """Draw phantoms under NIH's names, as files (in a class folder, for ImageFolder) and as a tarball."""
    rows = read_nih_table().iloc[: setting.images]
    files, tarball = folder / "files/all", folder / "tarball"
    files.mkdir(parents=True)
    tarball.mkdir()
    names = rows["image"].tolist()
    pictures = (one for some in draw(rows.iloc[: setting.drawn], SOURCE, 0, chunk=16) for one in some)
    for k, picture in enumerate(pictures):
        # The fastest compression: writing takes a fifth of a second otherwise, reading is alike.
        Image.fromarray(picture).save(files / names[k], compress_level=1)
        for name in names[k + setting.drawn :: setting.drawn]:
            os.link(files / names[k], files / name)
    with tarfile.open(tarball / "images_001.tar.gz", "w:gz", compresslevel=1, dereference=True) as archive:
        for path in sorted(files.iterdir()):  # dereferenced: files of their own, as in NIH's tarballs
            archive.add(path, f"images/{path.name}")
    return files, tarball


def _peak_of_packing(source: Path, folder: Path, pixels: int) -> float | None:
    """Return the peak resident memory in MiB of this process after packing ``source``; None off Linux.

    From /proc, because ru_maxrss of a new process begins with what its parent had.
    """
    _pack(source, folder, pixels, cores())
    if not (status := Path("/proc/self/status")).exists():
        return None
    return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 2**10


def _pack(source: Path, folder: Path, pixels: int, workers: int) -> None:
    config = NihSource(source="nih", pixels=pixels, recipe="none", folder=source, split="seeded-0")
    pack("bench", config, folder / "packed", workers)
    shutil.rmtree(folder / "packed")


def _alone(files: Path, pixels: int, workers: int) -> None:
    paths = sorted(files.iterdir())
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(lambda path: decode(Found(path.name, "", path.read_bytes()), pixels), paths):
            pass


def _image_folder(folder: Path, pixels: int, workers: int) -> Any:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, Resize, ToTensor

    steps = Compose([Resize((pixels, pixels)), ToTensor()])
    return DataLoader(ImageFolder(str(folder), steps), batch_size=64, num_workers=workers)
