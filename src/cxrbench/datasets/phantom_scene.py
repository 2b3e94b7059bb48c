"""What a phantom is drawn on: real lungs, textures, and the scene that holds them.

Body coordinates: u runs to the right of the picture in half-widths of the lungs, 0 on the midline; y runs
down in the same unit, 0 at the top of the lungs and `Lungs.height` at their bottom. Side 0 is the left of
the picture (the patient's right). Brightness is 0 (air outside the patient) to 1 (bone, metal).
"""

from __future__ import annotations

import io
import math
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from PIL import Image
from scipy import ndimage

from cxrbench.datasets.nih_table import wheel_file

MASKS = "semantic_masks_v7labs_lungs.zip"
USED = 200  # masks: more would only take longer to decode
LEVELS = 33  # heights at which the inner and outer border of each lung is tabulated
STEP = 1 / 36  # of the distance map, in body units
LEFT, ABOVE = 1.45, 0.45  # what the distance map covers beside the midline and above the lungs


# ------------------------------------------------------------------------------------------ real lungs


@dataclass(frozen=True)
class Lungs:
    """One real mask in body coordinates."""

    distance: np.ndarray  # signed distance to the lungs' border, positive inside, float32
    height: float
    top: np.ndarray  # (2,) y of each lung's highest and lowest point
    bottom: np.ndarray
    inner: np.ndarray  # (2, LEVELS) |u| of the borders, from top to bottom of each lung
    outer: np.ndarray

    def spot(self, side: int, across: float, down: float) -> tuple[float, float]:
        """(u, y) in a lung: across 0 mediastinal to 1 lateral, down 0 apex to 1 costophrenic angle."""
        level = down * (LEVELS - 1)
        inner = np.interp(level, np.arange(LEVELS), self.inner[side])
        outer = np.interp(level, np.arange(LEVELS), self.outer[side])
        y = self.top[side] + down * (self.bottom[side] - self.top[side])
        return float((2 * side - 1) * (inner + across * (outer - inner))), float(y)


@cache
def read_lungs() -> tuple[Lungs, ...]:
    """The first usable masks of the wheel, small files first: they decode fastest. Empty, cut and tilted ones
    are left out."""
    with zipfile.ZipFile(wheel_file(MASKS)) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: (entry.file_size, entry.filename))
        files = [archive.read(entry) for entry in entries if entry.file_size]
    found: list[Lungs] = []
    with ThreadPoolExecutor(2) as pool:  # Pillow decodes without the interpreter lock
        for start in range(0, len(files), 40):
            pictures = pool.map(_decode, files[start : start + 40])
            found += [lungs for picture in pictures if (lungs := _lungs(picture)) is not None]
            if len(found) >= USED:
                break
    return tuple(found[:USED])


def _decode(content: bytes) -> np.ndarray:
    """A mask file as a boolean picture of 128 rows, at its own aspect."""
    with Image.open(io.BytesIO(content)) as picture:
        picture.draft("L", (128, 128))  # JPEG at an eighth of its size: ten times faster
        width = max(16, round(128 * picture.width / picture.height))
        return np.asarray(picture.convert("L").resize((width, 128), Image.Resampling.NEAREST)) > 200


def _lungs(picture: np.ndarray) -> Lungs | None:
    """The mask's two largest parts in body coordinates; None when they do not look like a pair of lungs."""
    parts, count = ndimage.label(picture)
    if count < 2:
        return None
    sizes = np.bincount(parts.ravel())[1:]
    two = [(parts == 1 + label) for label in np.argsort(sizes)[-2:]]
    two.sort(key=lambda part: float(np.nonzero(part)[1].mean()))
    boxes = [(rows.min(), rows.max(), columns.min(), columns.max()) for rows, columns in map(np.nonzero, two)]
    (top0, bottom0, left0, right0), (top1, bottom1, left1, right1) = boxes
    height, width = max(bottom0, bottom1) - min(top0, top1), right1 - left0
    alike = sizes[np.argsort(sizes)[-2]] > 0.55 * sizes.max() and abs(top0 - top1) < 0.15 * height
    if not alike or width < 40 or not 0.65 < height / width < 1.35 or right0 - left1 > 0.05 * width:
        return None
    if min(top0, top1) == 0 or max(bottom0, bottom1) == picture.shape[0] - 1:
        return None  # cut by the picture's edge
    return _in_body_coordinates(two, (right0 + left1) / 2, min(top0, top1), width / 2, height)


def _in_body_coordinates(two: list[np.ndarray], middle: float, top: int, unit: float, height: int) -> Lungs:
    """Two lungs, pixels of their mask, on the grid of the distance map."""
    columns = middle + unit * (np.arange(round(2 * LEFT / STEP)) * STEP - LEFT)
    rows = top + unit * (np.arange(round((2 * ABOVE + height / unit) / STEP)) * STEP - ABOVE)
    inside = [_sample(part, rows, columns) for part in two]
    both = inside[0] | inside[1]
    distance = ndimage.distance_transform_edt(both) - ndimage.distance_transform_edt(~both)
    smooth = ndimage.gaussian_filter(distance.astype("f4") * STEP, 1.0)
    borders = [_borders(side) for side in inside]
    return Lungs(
        smooth, float(height / unit), *(np.array(table, "f4") for table in zip(*borders, strict=True))
    )


def _sample(part: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """A mask at the nearest pixels of these rows and columns; False outside it."""
    row, column = rows.round().astype(int), columns.round().astype(int)
    known = ((row >= 0) & (row < part.shape[0]))[:, None] & ((column >= 0) & (column < part.shape[1]))
    return part[row.clip(0, part.shape[0] - 1)[:, None], column.clip(0, part.shape[1] - 1)] & known


def _borders(side: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Top, bottom, and the inner and outer |u| at LEVELS heights of one lung on the grid."""
    filled = np.nonzero(side.any(axis=1))[0]
    levels = side[np.linspace(filled[0], filled[-1], LEVELS).round().astype(int)]
    first, last = levels.argmax(axis=1), side.shape[1] - 1 - levels[:, ::-1].argmax(axis=1)
    edges = np.abs(np.stack([first, last]) * STEP - LEFT)
    return filled[0] * STEP - ABOVE, filled[-1] * STEP - ABOVE, edges.min(axis=0), edges.max(axis=0)


def sample(tile: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Bilinear values of a tile at these places, which must lie inside it: five times as fast as scipy's."""
    r, c = row.astype(np.intp), column.astype(np.intp)
    fr, fc = row - r, column - c
    at = r * tile.shape[1] + c
    flat = tile.ravel()
    above = flat[at]
    above += (flat[at + 1] - above) * fc
    at += tile.shape[1]
    below = flat[at]
    below += (flat[at + 1] - below) * fc
    below -= above
    below *= fr
    above += below
    return above


# ------------------------------------------------------------------------------------------ textures


@dataclass(frozen=True)
class Textures:
    """Tiles of twice the picture's size, cut at random places; each about -1 to 1 unless said otherwise."""

    clouds: np.ndarray  # patches of about an eighth of the picture
    wisps: np.ndarray  # of about a thirtieth
    net: np.ndarray  # fine bright lines around holes, 0 to 1
    vessels: np.ndarray  # over (angle, distance from the hilum), bright branches, 0 to 1
    grain: np.ndarray  # independent normal noise


@cache
def textures(pixels: int) -> Textures:
    """The same tiles for every study: they are material, not data."""
    rng = np.random.default_rng(20170925)
    size = 2 * pixels
    clouds, wisps, folds = (_smooth(rng, size, s) for s in (pixels / 16, pixels / 45, max(1.0, pixels / 85)))
    net = np.clip(1 - 2.2 * np.abs(folds), 0, 1)
    branches = _smooth(rng, 1024, (7, 40)) + 0.6 * _smooth(rng, 1024, (3.5, 16))
    vessels = np.clip(1 - 2.0 * np.abs(branches), 0, 1)
    vessels *= np.sqrt(vessels)
    grain = rng.standard_normal((size, size), dtype="f4")
    return Textures(clouds, wisps, net.astype("f4"), vessels.astype("f4"), grain)


def _smooth(rng: np.random.Generator, size: int, sigma: float | tuple[float, float]) -> np.ndarray:
    """Tileable smooth noise with a standard deviation of one half."""
    coarse = min(
        size, 1024
    )  # large tiles are enlarged: filtering 2048 x 2048 with a wide kernel takes seconds
    scaled = np.multiply(sigma, coarse / size)
    noise = ndimage.gaussian_filter(rng.standard_normal((coarse, coarse), dtype="f4"), scaled, mode="wrap")
    if coarse != size:
        noise = ndimage.zoom(noise, size / coarse, order=1, mode="grid-wrap", grid_mode=True)
    return noise * np.float32(round(0.5 / float(noise.std(dtype="f8")), 4))


def _cut(tile: np.ndarray, rng: np.random.Generator, pixels: int) -> np.ndarray:
    row, column = rng.integers(0, pixels, 2)
    return tile[row : row + pixels, column : column + pixels]


# ------------------------------------------------------------------------------------------ the scene


@dataclass
class Build:
    """A patient's shape on one image; some findings change it before anything is drawn."""

    lungs: Lungs
    heart: float = 1.0  # size of the heart
    shift: float = 0.0  # of heart and mediastinum, in body units
    stretch: list[float] = field(default_factory=lambda: [1.0, 1.0])  # of each lung's height
    flatten: float = 0.0  # how far the domes of the diaphragm are pushed down
    air: float = 1.0  # how dark the lungs are
    vessels: float = 1.0  # how much of them is seen

    def depth(self, u: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Signed distance to the border of the lungs as this patient breathes them."""
        y = y * by_side(u, 1 / self.stretch[0], 1 / self.stretch[1])
        if self.flatten:
            low = np.clip(y * (2.5 / self.lungs.height) - 1.4, 0, 1)
            y = y - self.flatten * low * np.maximum(1 - np.square(np.abs(u) * 2 - 1), 0)
        last = self.lungs.distance.shape[0] - 1.01
        row = np.clip((y + ABOVE) * (1 / STEP), 0, last)
        column = np.clip((u + LEFT) * (1 / STEP), 0, self.lungs.distance.shape[1] - 1.01)
        return sample(self.lungs.distance, row, column)


@dataclass
class Scene:
    """What the findings inside the lungs are drawn on; arrays are (pixels, pixels) float32."""

    build: Build
    pixels: int
    u: np.ndarray
    y: np.ndarray
    depth: np.ndarray  # signed distance to the lungs' border
    lung: np.ndarray  # 0 outside to 1 inside
    opacity: np.ndarray  # 0 air to 1 water; below 0 more air than in a healthy lung
    vessels: np.ndarray  # how much of them is seen, 0 to 1
    extra: np.ndarray  # brightness added last

    def spot(self, side: int, across: float, down: float) -> tuple[float, float]:
        """(u, y) of a place in a lung as it lies on this image."""
        u, y = self.build.lungs.spot(side, across, down)
        return u, y * self.build.stretch[side]

    def side(self, side: int) -> np.ndarray:
        return self.u > 0 if side else self.u < 0

    def across(self) -> np.ndarray:
        """0 on the midline to 1 at the chest wall."""
        return np.abs(self.u)

    def cut(self, name: str, rng: np.random.Generator) -> np.ndarray:
        return _cut(getattr(textures(self.pixels), name), rng, self.pixels)

    def polar(self, name: str, angle: np.ndarray, radius: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A tile over (angle from -1 to 1, radius), other branches on the other side of the midline."""
        tile = getattr(textures(self.pixels), name)
        half = len(tile) / 2 - 2
        first = rng.integers(int(half), size=2)
        rows = (angle + 1) * (half / 2) + by_side(self.u, *first)
        columns = np.minimum(radius * 150, half) + np.float32(rng.integers(int(half)))
        return sample(tile, rows, columns)

    def blob(self, at: tuple[float, float], width: float, height: float, turn: float = 0.0) -> np.ndarray:
        """1 at the centre, falling smoothly to 0 at the rim of an ellipse with these half axes."""
        c, s = math.cos(turn), math.sin(turn)
        du, dy = self.u - at[0], self.y - at[1]
        a, b = (du * c + dy * s) * (1 / width), (dy * c - du * s) * (1 / height)
        return np.square(np.maximum(1 - a * a - b * b, 0))

    def disc(self, at: tuple[float, float], radius: float, edge: float = 0.06) -> np.ndarray:
        """1 in a circle with a soft edge, 0 outside."""
        return ramp(radius - length(self.u - at[0], self.y - at[1]), edge + 1.5 / self.pixels)


def ramp(x: np.ndarray, width: float) -> np.ndarray:
    """0 below -width / 2, 1 above width / 2, straight between: an edge for the price of a clip."""
    x = x * (1 / width)
    x += 0.5
    np.maximum(x, 0, out=x)  # half the price of np.clip
    return np.minimum(x, 1, out=x)


def by_side(u: np.ndarray, left: float, right: float) -> np.ndarray:
    """One number left of the midline, another right of it."""
    return (u < 0) * np.float32(left - right) + np.float32(right)


def wave(x: np.ndarray) -> np.ndarray:
    """Like cos(2 pi x), by arithmetic alone: cos in single precision differs between processors."""
    x = x - np.floor(x)
    x = np.abs(x * 2 - 1)
    return x * x * (6 - 4 * x) - 1


def length(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of a vector: np.hypot guards against overflow, which costs five times as much."""
    square = x * x
    square += y * y
    return np.sqrt(square, out=square)


def line(distance: np.ndarray, width: float) -> np.ndarray:
    """1 where a distance is 0, falling to 0 at width."""
    x = np.abs(distance)
    x *= -1 / width
    x += 1
    return np.maximum(x, 0, out=x)
