"""How fast packing is: against decoding and resizing alone, and against a plain torchvision ImageFolder pass.

All contenders take the same full-size images, drawn here, and as many workers, in turns: a block is one turn
of each, and what is reported is the median over blocks of the ratios within a block, which a busy machine
disturbs least.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from cxrbench.datasets.archives import Found
from cxrbench.datasets.nih import NihImages
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.packed import pack
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
    workers = setting.workers or cores()
    with tempfile.TemporaryDirectory(prefix="cxrbench-pack-") as name:
        folder = Path(name)
        files, tarball = _draw(folder, setting, say)
        passes: dict[str, Callable[[], object]] = {
            "files": lambda: _pack(files, folder, setting.pixels, workers),
            "tarball": lambda: _pack(tarball, folder, setting.pixels, workers),
            "alone": lambda: _alone(files, setting.pixels, workers),
            "image_folder": _image_folder(files.parent, setting.pixels, workers),
        }
        rates: dict[str, list[float]] = {contender: [] for contender in passes}
        for block in range(-1, setting.blocks):
            for contender, run in passes.items():
                start = time.perf_counter()
                run()
                if block >= 0:  # the first turn of each warms caches
                    rates[contender].append(setting.images / (time.perf_counter() - start))
            say(f"block {block + 1} of {setting.blocks}")
        size = sum(path.stat().st_size for path in files.iterdir()) / setting.images
        memory = {"peak_mib": _peak_of_packing(tarball, folder, setting.pixels)}
    return _summary(rates, setting, workers, size) | memory


def _summary(rates: dict[str, list[float]], setting: Setting, workers: int, size: float) -> dict[str, Any]:
    def ratio(ours: str, theirs: str) -> float:
        return statistics.median(a / b for a, b in zip(rates[ours], rates[theirs], strict=True))

    return {
        "images": setting.images,
        "drawn": setting.drawn,
        "source_pixels": SOURCE,
        "source_bytes": round(size),
        "pixels": setting.pixels,
        "workers": workers,
        "blocks": setting.blocks,
        **{f"{name}_images_per_second": statistics.median(values) for name, values in rates.items()},
        "files_to_alone": ratio("files", "alone"),
        "tarball_to_alone": ratio("tarball", "alone"),
        "files_to_image_folder": ratio("files", "image_folder"),
        "tarball_to_image_folder": ratio("tarball", "image_folder"),
        "rates": rates,
    }


def _draw(folder: Path, setting: Setting, say: Callable[[str], None]) -> tuple[Path, Path]:
    """Phantoms under NIH's names, as files (in a class folder, as ImageFolder wants) and as a tarball."""
    from cxrbench.datasets.phantom import draw

    rows = read_nih_table().iloc[: setting.images]
    files, tarball = folder / "files/all", folder / "tarball"
    files.mkdir(parents=True)
    tarball.mkdir()
    say(f"drawing {setting.drawn} phantoms of {SOURCE} px")
    names = rows["image"].tolist()
    pictures = (one for some in draw(rows.iloc[: setting.drawn], SOURCE, 0, chunk=16) for one in some)
    for k, picture in enumerate(pictures):
        # The fastest compression: writing takes a fifth of a second otherwise, reading is alike.
        Image.fromarray(picture).save(files / names[k], compress_level=1)
        for name in names[k + setting.drawn :: setting.drawn]:
            os.link(files / names[k], files / name)
    with tarfile.open(tarball / "images_001.tar.gz", "w:gz", compresslevel=1) as archive:
        for path in sorted(files.iterdir()):
            member = archive.gettarinfo(path, f"images/{path.name}")
            member.type, member.linkname = tarfile.REGTYPE, ""  # a file of its own, as in NIH's tarballs
            member.size = path.stat().st_size
            with open(path, "rb") as file:
                archive.addfile(member, file)
    return files, tarball


def _peak_of_packing(source: Path, folder: Path, pixels: int) -> float | None:
    """Peak resident memory in MiB of a process that packs ``source`` and does nothing else; None off Linux.

    From /proc, because ru_maxrss of a new process begins with what its parent had.
    """
    if not Path("/proc/self/status").exists():
        return None
    code = (
        "import re, sys; from pathlib import Path; from cxrbench.datasets import bench;"
        "bench._pack(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), bench.cores());"
        "print(re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1])"
    )
    words = [sys.executable, "-c", code, str(source), str(folder), str(pixels)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return int(done.stdout) / 2**10


def _config(source: Path, pixels: int) -> NihSource:
    return NihSource(source="nih", pixels=pixels, recipe="none", folder=source, split="seeded-0")


def _pack(source: Path, folder: Path, pixels: int, workers: int) -> None:
    pack("bench", _config(source, pixels), folder / "packed", workers)
    shutil.rmtree(folder / "packed")


def _alone(files: Path, pixels: int, workers: int) -> None:
    images = NihImages(_config(files, pixels), workers)
    with ThreadPoolExecutor(workers) as pool:
        for _ in pool.map(
            lambda path: images.decode(Found(path.name, "", path.read_bytes())), sorted(files.iterdir())
        ):
            pass


def _image_folder(folder: Path, pixels: int, workers: int) -> Callable[[], None]:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import Compose, Resize, ToTensor

    steps = Compose([Resize((pixels, pixels)), ToTensor()])
    loader = DataLoader(ImageFolder(str(folder), steps), batch_size=64, num_workers=workers)

    def run() -> None:
        for _ in loader:
            pass

    return run
