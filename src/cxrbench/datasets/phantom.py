"""Phantoms: radiograph-like images of real rows of NIH's table, each finding a texture or shape of its own.

Nothing is downloaded: the torchxrayvision wheel has NIH's rows and real lung masks. Scores on phantoms show
that the pipeline works; they mean nothing for reading radiographs. In a picture ``u`` runs to the right from
the midline, in half-widths of the lungs; ``v`` runs down, from 0 at the top of the lungs to 1 at the bottom.
"""

import hashlib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from cxrbench.common.files import cores
from cxrbench.datasets.decoding import Decoded
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table, wheel_file
from cxrbench.datasets.packed import Checked, Say
from cxrbench.datasets.split import choose_rows
from cxrbench.study.config import PhantomSource

_Rng = np.random.Generator
_MASKS, _SIDE, _EDGE = 200, 64, 16  # masks; pixels of the lungs in each, and around them


def present(config: PhantomSource) -> bool:
    """True: phantoms are drawn anywhere."""
    return True


def read(config: PhantomSource, say: Say) -> pd.DataFrame:
    """The rows of NIH's table that are drawn."""
    return choose_rows(read_nih_table(), config.images, config.seed)


def images(
    config: PhantomSource, labels: pd.DataFrame, workers: int | None, say: Say
) -> Iterator[list[Decoded]]:
    """A picture of each row."""
    pictures = draw(labels, config.pixels, config.seed, workers)
    return ([Decoded(picture, name)] for name, picture in zip(labels["image"], pictures, strict=True))


def check(
    config: PhantomSource, labels: pd.DataFrame, seen: pd.DataFrame, recorded: Path | None, say: Say
) -> Checked:
    """The rows that were drawn."""
    facts = {
        "seed": config.seed,
        "split": "drawn by patient; rare findings oversampled, so prevalence is not NIH's",
        "resized": "not resized: drawn at this size",
    }
    return Checked(labels, facts)


def draw(rows: pd.DataFrame, pixels: int, seed: int, workers: int | None = None) -> Iterator[np.ndarray]:
    """Yield a picture of each row, (pixels, pixels) uint8; ``workers`` (None: all cores) change no byte."""
    drawn, records = partial(_draw_row, pixels=pixels, seed=seed), rows.to_dict("records")
    if (workers := min(workers or cores(), len(rows))) <= 1:
        yield from map(drawn, records)
        return
    _lungs(), _textures(pixels)  # forked workers inherit them
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(drawn, records, chunksize=64)


@cache
def _lungs() -> list[tuple[np.ndarray, float]]:
    """Distances to the border of real lungs (positive inside) and their heights, in half-widths."""
    from scipy import ndimage  # imported here: planning a build needs no scipy

    lungs: list[tuple[np.ndarray, float]] = []
    with zipfile.ZipFile(wheel_file("semantic_masks_v7labs_lungs.zip")) as archive:
        files = sorted((entry.file_size, entry.filename) for entry in archive.infolist() if entry.file_size)
        while len(lungs) < _MASKS:  # small files first: they decode fastest
            with archive.open(files.pop(0)[1]) as file, Image.open(file) as picture:
                picture.thumbnail((128, 128), Image.Resampling.NEAREST, reducing_gap=None)
                mask = np.asarray(picture) > 200
            rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
            if ndimage.label(mask)[1] != 2 or not 1.3 < (tall := 2 * np.ptp(rows) / np.ptp(columns)) < 2:
                continue  # not a pair of whole lungs
            places = (np.linspace(span[0], span[-1], _SIDE).round().astype(int) for span in (rows, columns))
            inside, step = np.pad(mask[np.ix_(*places)], _EDGE), (tall / _SIDE, 2 / _SIDE)
            depth, outside = (ndimage.distance_transform_edt(part, step) for part in (inside, ~inside))
            lungs.append((ndimage.uniform_filter((depth - outside).astype("f4"), 3), float(tall)))
    return lungs


@cache
def _textures(pixels: int) -> dict[str, np.ndarray]:
    """Tiles of twice the picture's size, to be cut at random places; the same for every study."""
    from scipy import ndimage

    rng, tiles = np.random.default_rng(20170925), {}
    for name, across in {"grain": pixels, "net": 40, "vessels": 24, "clouds": 8}.items():
        tile = rng.random((2 * pixels, 2 * pixels), "f4") - np.float32(0.5)
        for _ in range(3):  # three running means are nearly a Gaussian, and as fast at any width
            tile = ndimage.uniform_filter(tile, max(1, round(pixels / across)), mode="wrap")
        tiles[name] = tile * np.float32(round(0.5 / float(tile.std(dtype="f8")), 4))
    return tiles | {name: np.clip(1 - 2.2 * np.abs(tiles[name]), 0, 1) for name in ("net", "vessels")}


class _Scene:
    """Where a picture's pixels lie in the patient; arrays are (pixels, pixels) float32."""

    def __init__(self, own: _Rng, rng: _Rng, pixels: int, breath: float) -> None:
        from scipy import ndimage

        (depth, self.tall), self.pixels = _lungs()[own.integers(_MASKS)], pixels
        zoom, lean = min(own.uniform(0.34, 0.38), 0.74 / self.tall), rng.uniform(-0.02, 0.02)
        axis = ((np.arange(pixels, dtype="f4") + 0.5) / pixels - 0.5) / zoom
        x, y = axis + rng.uniform(-0.02, 0.02), axis[:, None] + rng.uniform(0.02, 0.08)
        self.u, self.v = x + lean * y, (y - lean * x) / self.tall + 0.5
        places = self.v * (_SIDE / breath) + _EDGE, (self.u + 1) * (_SIDE / 2) + _EDGE
        self.depth = ndimage.map_coordinates(depth, places, "f4", order=1, mode="nearest")
        self.across = np.abs(self.u)

    def disc(self, u: float, v: float, radius: float | np.ndarray, edge: float = 0.08) -> np.ndarray:
        """1 in a circle with a soft edge, 0 outside."""
        return _ramp(radius - np.sqrt(np.square(self.u - u) + np.square((self.v - v) * self.tall)), edge)

    def cut(self, name: str, rng: _Rng) -> np.ndarray:
        """A random part of a texture."""
        row, column = rng.integers(0, self.pixels, 2)
        return _textures(self.pixels)[name][row : row + self.pixels, column : column + self.pixels]


def _draw_row(row: dict[Any, Any], pixels: int, seed: int) -> np.ndarray:
    """Draw a row of NIH's table; findings have random streams of their own: without one, the rest stays."""
    rng, own, ap = _stream(seed, row["image"]), _stream(seed, "patient", row["patient"]), row["view"] == "AP"
    streams = {name: _stream(seed, row["image"], name) for name in FINDINGS if row[name]}
    grades = {name: 0.3 + 0.7 * stream.random() for name, stream in streams.items()}  # how plain they are
    breath = rng.uniform(0.95, 1.03) * (0.92 if ap else 1) * (1 + 0.1 * grades.get("Emphysema", 0))
    scene = _Scene(own, rng, pixels, breath)
    across, v = scene.across, scene.v
    heart = scene.disc(0.12, 0.72, own.uniform(0.38, 0.43) * (1 + 0.4 * grades.get("Cardiomegaly", 0)))
    spine = _ramp(0.16 + 0.08 * _ramp(v - 0.4, 0.3) - across, 0.09)
    half = np.interp(v[:, :1], (-0.25, -0.06, 0.12, 0.5), (0.42, 1.1, 1.5, 1.15)).astype("f4")  # of the trunk
    ribs = np.abs(((v + 0.14 * across - 0.36 * across * across) * 9.5 + own.random()) % 1 - 0.5)
    vessels = scene.cut("vessels", rng) * scene.disc(0, 0.5, 0.6, 1.2)
    air = _ramp(scene.depth, 0.08) * (1 - 0.75 * heart) * (1 - 0.85 * spine)
    for name, stream in streams.items():
        air = _with(name, air, scene, stream, grades[name])
    light = 0.24 + 0.36 * np.sqrt(np.maximum(1 - np.square(across / half), 0)) + 0.2 * _ramp(v - 0.98, 0.3)
    light += 0.06 * heart + 0.1 * spine
    light -= air * (0.33 + 0.15 * np.clip(scene.depth, 0, 0.5) - 0.12 * (vessels + ribs))
    light = (light * _ramp(half - across, 0.1) - 0.42) * rng.uniform(1, 1.15) + rng.uniform(0.44, 0.48)
    light += 0.03 * scene.cut("clouds", rng) + (0.03 if ap else 0.02) * scene.cut("grain", rng)
    return (np.clip(light, 0, 1) * 255 + 0.5).astype(np.uint8)


def _with(finding: str, air: np.ndarray, scene: _Scene, rng: _Rng, grade: float) -> np.ndarray:
    """A map of air (1) and tissue (0) in a patient with this finding."""
    side, wide, down = 2 * int(rng.integers(2)) - 1, rng.uniform(0.35, 0.65), rng.uniform(0.25, 0.75)
    sides = (scene.u * side > 0) | (rng.random() < 0.3)  # sometimes both
    clouds, net = scene.cut("clouds", rng), scene.cut("net", rng)
    opaque: np.ndarray
    match finding:
        case "Infiltration":
            opaque = sides * np.clip(clouds + 0.2, 0, 1)
        case "Mass":
            opaque = scene.disc(side * wide, down, rng.uniform(0.2, 0.3))
        case "Nodule":  # small discs
            places = rng.uniform((-0.7, 0.2), (0.7, 0.7), (rng.integers(2, 5), 2)).tolist()
            opaque = np.max([scene.disc(u, v, 0.09) for u, v in places], axis=0)
        case "Pneumonia":  # a lobe between two fissures
            opaque = 0.8 * sides * _ramp(0.16 - np.abs(scene.v - down), 0.04)
        case "Consolidation":  # a ragged patch with dark bronchi
            opaque = scene.disc(side * wide, down, 0.45 + 0.2 * clouds) * (1 - 0.6 * net)
        case "Edema":  # haze around both hila
            opaque = np.clip(1.2 - 1.6 * np.abs(scene.across - 0.3) - np.abs(scene.v - 0.5), 0, 0.8)
        case "Fibrosis":  # a net at both bases
            opaque = _ramp(scene.v - 0.5, 0.4) * net
        case "Effusion":  # fluid that rises towards the chest wall
            level = 0.95 - 0.45 * grade - 0.2 * np.square(scene.across)
            opaque = sides * _ramp(scene.v - level, 0.06)
        case "Pleural_Thickening":  # a rim along the chest wall
            rim = _ramp(0.16 - scene.depth, 0.05) * _ramp(scene.across - 0.45, 0.1)
            opaque = sides * rim * _ramp(0.3 - np.abs(scene.v - down), 0.1)
        case "Pneumothorax":  # an empty crescent beside the white edge of a lung
            gap = (0.1 + 0.25 * grade) * np.clip(1.1 - scene.v, 0, 1) * (scene.across > 0.4) - scene.depth
            opaque = sides * (1.5 * _ramp(0.03 - np.abs(gap), 0.03) - 0.5 * _ramp(gap, 0.03))
        case "Emphysema":  # long lungs with black holes
            opaque = -np.clip(clouds + 0.4, 0, 0.6)
        case "Atelectasis":  # plates at a base
            plates = np.abs((scene.v - 0.2 * scene.across + down) * 6 % 1 - 0.5)
            opaque = sides * _ramp(scene.v - 0.5, 0.2) * np.clip(4 * plates - 1, 0, 1)
        case "Hernia":  # gas in front of the spine
            return np.maximum(air, grade * scene.disc(side * 0.15, 0.8, 0.25))
        case _:  # Cardiomegaly enlarges the heart
            return air
    return air * (1 - grade * opaque)


def _stream(*words: object) -> _Rng:
    """A random stream that depends on these words only."""
    digest = hashlib.blake2b("/".join(map(str, words)).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


def _ramp(x: np.ndarray, width: float) -> np.ndarray:
    """0 below -width / 2, 1 above width / 2, straight between: a soft edge."""
    return np.clip(x * (1 / width) + 0.5, 0, 1)
