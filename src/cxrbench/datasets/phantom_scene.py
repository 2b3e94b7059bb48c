"""What a phantom is drawn on: real lungs, textures, a patient's build and the scene that holds them.

Body coordinates: u runs to the right of the picture in half-widths of the lungs, 0 on the midline; y runs
down in the same unit, 0 at the top of the lungs and `Lungs.height` at their bottom. Side 0 is the left of
the picture (the patient's right). Brightness is 0 (air outside the patient) to 1 (bone, metal).
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from PIL import Image
from scipy import ndimage

from cxrbench.datasets.nih_table import wheel_file

Rng = np.random.Generator
_MASKS = "semantic_masks_v7labs_lungs.zip"
_USED = 200  # masks: more would only take longer to decode
_LEVELS = 33  # heights at which the inner and outer border of each lung is tabulated
_STEP = 1 / 36  # of the distance map, in body units
_LEFT, _ABOVE = 1.45, 0.45  # what the distance map covers beside the midline and above the lungs


@dataclass(frozen=True)
class Lungs:
    """A real mask in body coordinates."""

    distance: np.ndarray  # signed distance to the lungs' border, positive inside, float32
    height: float
    top: np.ndarray  # (2,) y of each lung's highest and lowest point
    bottom: np.ndarray
    inner: np.ndarray  # (2, _LEVELS) |u| of the borders, from top to bottom of each lung
    outer: np.ndarray


@cache
def read_lungs() -> tuple[Lungs, ...]:
    """Return the first usable masks of the wheel, small files first: they decode fastest."""
    found: list[Lungs] = []
    with zipfile.ZipFile(wheel_file(_MASKS)) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: (entry.file_size, entry.filename))
        for entry in entries:
            if entry.file_size and len(found) < _USED:
                found += _lungs(_decode(archive.read(entry)))
    return tuple(found)


def _decode(content: bytes) -> np.ndarray:
    """A mask file as a boolean picture of 128 rows, at its own aspect."""
    with Image.open(io.BytesIO(content)) as picture:
        picture.draft("L", (128, 128))  # JPEG at an eighth of its size: ten times faster
        width = max(16, round(128 * picture.width / picture.height))
        return np.asarray(picture.convert("L").resize((width, 128), Image.Resampling.NEAREST)) > 200


def _lungs(picture: np.ndarray) -> list[Lungs]:
    """The mask's two largest parts in body coordinates; none unless they look like a pair of whole lungs."""
    parts, count = ndimage.label(picture)
    if count < 2:
        return []
    sizes = np.bincount(parts.ravel())[1:]
    two = [parts == 1 + label for label in np.argsort(sizes)[-2:]]
    two.sort(key=lambda part: float(np.nonzero(part)[1].mean()))
    (rows0, columns0), (rows1, columns1) = map(np.nonzero, two)
    top, bottom = min(rows0.min(), rows1.min()), max(rows0.max(), rows1.max())
    right0, left1 = columns0.max(), columns1.min()
    height, width = bottom - top, columns1.max() - columns0.min()
    alike = np.sort(sizes)[-2] > 0.55 * sizes.max() and abs(rows0.min() - rows1.min()) < 0.15 * height
    in_shape = width >= 40 and 0.65 < height / width < 1.35 and right0 - left1 <= 0.05 * width
    cut = top == 0 or bottom == picture.shape[0] - 1  # by the picture's edge
    if cut or not (alike and in_shape):
        return []
    return [_in_body_coordinates(two, (right0 + left1) / 2, top, width / 2, height)]


def _in_body_coordinates(two: list[np.ndarray], middle: float, top: int, unit: float, height: int) -> Lungs:
    """Two lungs, pixels of their mask, on the grid of the distance map."""
    columns = middle + unit * (np.arange(round(2 * _LEFT / _STEP)) * _STEP - _LEFT)
    rows = top + unit * (np.arange(round((2 * _ABOVE + height / unit) / _STEP)) * _STEP - _ABOVE)
    inside = [_sample_mask(part, rows, columns) for part in two]
    both = inside[0] | inside[1]
    distance = ndimage.distance_transform_edt(both) - ndimage.distance_transform_edt(~both)
    smooth = ndimage.gaussian_filter(distance.astype("f4") * _STEP, 1.0)
    borders = (np.array(table, "f4") for table in zip(*map(_borders, inside), strict=True))
    return Lungs(smooth, float(height / unit), *borders)


def _sample_mask(part: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """A mask at the nearest pixels of these rows and columns; False outside it."""
    row, column = rows.round().astype(int), columns.round().astype(int)
    known = ((row >= 0) & (row < part.shape[0]))[:, None] & ((column >= 0) & (column < part.shape[1]))
    return part[row.clip(0, part.shape[0] - 1)[:, None], column.clip(0, part.shape[1] - 1)] & known


def _borders(side: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Top, bottom, and the inner and outer |u| at _LEVELS heights of a lung on the grid."""
    filled = np.nonzero(side.any(axis=1))[0]
    levels = side[np.linspace(filled[0], filled[-1], _LEVELS).round().astype(int)]
    first, last = levels.argmax(axis=1), side.shape[1] - 1 - levels[:, ::-1].argmax(axis=1)
    edges = np.abs(np.stack([first, last]) * _STEP - _LEFT)
    return filled[0] * _STEP - _ABOVE, filled[-1] * _STEP - _ABOVE, edges.min(axis=0), edges.max(axis=0)


@cache
def textures(pixels: int) -> dict[str, np.ndarray]:
    """Tiles of twice the picture's size, cut at random places; the same for every study.

    Clouds are patches of an eighth of the picture, wisps of a thirtieth, both about -1 to 1. The net is fine
    bright lines around holes, 0 to 1. Vessels are bright branches over (angle, distance from the hilum), 0 to
    1. Grain is independent normal noise.
    """
    rng = np.random.default_rng(20170925)
    size = 2 * pixels
    clouds, wisps, folds = (_smooth(rng, size, s) for s in (pixels / 16, pixels / 45, max(1.0, pixels / 85)))
    branches = _smooth(rng, 1024, (7, 40)) + 0.6 * _smooth(rng, 1024, (3.5, 16))
    vessels = np.clip(1 - 2.0 * np.abs(branches), 0, 1)
    vessels *= np.sqrt(vessels)
    return {
        "clouds": clouds,
        "wisps": wisps,
        "net": np.clip(1 - 2.2 * np.abs(folds), 0, 1).astype("f4"),
        "vessels": vessels.astype("f4"),
        "grain": rng.standard_normal((size, size), dtype="f4"),
    }


def _smooth(rng: Rng, size: int, sigma: float | tuple[float, float]) -> np.ndarray:
    """Tileable smooth noise with a standard deviation of one half."""
    coarse = min(size, 1024)  # larger tiles are enlarged: filtering them with a wide kernel takes seconds
    scaled = np.multiply(sigma, coarse / size)
    noise = ndimage.gaussian_filter(rng.standard_normal((coarse, coarse), dtype="f4"), scaled, mode="wrap")
    if coarse != size:
        noise = ndimage.zoom(noise, size / coarse, order=1, mode="grid-wrap", grid_mode=True)
    return noise * np.float32(round(0.5 / float(noise.std(dtype="f8")), 4))


@dataclass
class Build:
    """A patient's shape on an image; some findings change it before anything is drawn."""

    lungs: Lungs
    heart: float  # size of the heart
    fat: float  # 0 thin to 1 stout
    arms: bool  # seen beside the trunk
    ribs: tuple[float, float, float]  # offset, spacing and slope of the rib arcs
    clavicle: float  # height of its inner end
    breasts: float  # brightness, 0 for none
    shift: float = 0.0  # of heart and mediastinum, in body units
    stretch: list[float] = field(default_factory=list)  # of each lung's height
    flatten: float = 0.0  # how far the domes of the diaphragm are pushed down
    air: float = 1.0  # how dark the lungs are
    vessels: float = 1.0  # how much of them is seen


class Scene:
    """What findings and anatomy are drawn on; arrays are (pixels, pixels) float32."""

    def __init__(self, build: Build, pixels: int, rng: Rng, ap: bool) -> None:
        # zoom: half-width of the lungs in widths of the picture
        zoom = min(rng.uniform(0.33, 0.38) * (1.03 if ap else 1.0), 0.74 / build.lungs.height)
        angle = rng.normal(0, 0.035 if ap else 0.015)
        x0 = 0.5 + rng.normal(0, 0.015)
        y0 = 0.47 - zoom * build.lungs.height / 2 + rng.normal(0, 0.02)
        axis = (np.arange(pixels, dtype="f4") + 0.5) / (pixels * zoom)
        x, y = axis[None, :] - x0 / zoom, axis[:, None] - y0 / zoom
        c, s = math.cos(angle), math.sin(angle)
        self.build, self.pixels = build, pixels
        self.u, self.y = x * c + y * s, y * c - x * s
        self.across = np.abs(self.u)  # 0 on the midline to 1 at the chest wall
        self.depth = self._depth()  # signed distance to the border of the lungs
        self.lung = ramp(self.depth, (0.07 if ap else 0.045) + 1.2 / (pixels * zoom))  # 0 outside to 1 inside
        self.opacity = np.zeros_like(self.u)  # 0 air to 1 water; below 0 more air than in a healthy lung
        self.vessels = np.ones_like(self.u)  # how much of them is seen, 0 to 1
        self.extra = np.zeros_like(self.u)  # brightness added last

    def _depth(self) -> np.ndarray:
        build, lungs = self.build, self.build.lungs
        y = self.y * self.by_side(1 / build.stretch[0], 1 / build.stretch[1])
        if build.flatten:
            low = np.clip(y * (2.5 / lungs.height) - 1.4, 0, 1)
            y = y - build.flatten * low * np.maximum(1 - np.square(self.across * 2 - 1), 0)
        row = np.clip((y + _ABOVE) * (1 / _STEP), 0, lungs.distance.shape[0] - 1.01)
        column = np.clip((self.u + _LEFT) * (1 / _STEP), 0, lungs.distance.shape[1] - 1.01)
        return sample(lungs.distance, row, column)

    def by_side(self, left: float, right: float) -> np.ndarray:
        """A number left of the midline, another right of it."""
        return (self.u < 0) * np.float32(left - right) + np.float32(right)

    def spot(self, side: int, across: float, down: float) -> tuple[float, float]:
        """(u, y) in a lung: across 0 mediastinal to 1 lateral, down 0 apex to 1 costophrenic angle."""
        lungs, levels = self.build.lungs, np.arange(_LEVELS)
        inner, outer = (np.interp(down * (_LEVELS - 1), levels, t[side]) for t in (lungs.inner, lungs.outer))
        y = lungs.top[side] + down * (lungs.bottom[side] - lungs.top[side])
        return float((2 * side - 1) * (inner + across * (outer - inner))), float(y) * self.build.stretch[side]

    def side(self, side: int) -> np.ndarray:
        """Whether a pixel lies on this side of the midline."""
        return self.u > 0 if side else self.u < 0

    def cut(self, name: str, rng: Rng) -> np.ndarray:
        """A random part of a texture, as large as the picture."""
        row, column = rng.integers(0, self.pixels, 2)
        return textures(self.pixels)[name][row : row + self.pixels, column : column + self.pixels]

    def blob(self, at: tuple[float, float], width: float, height: float, turn: float = 0.0) -> np.ndarray:
        """1 at the centre, falling smoothly to 0 at the rim of an ellipse with these half axes."""
        c, s = math.cos(turn), math.sin(turn)
        du, dy = self.u - at[0], self.y - at[1]
        a, b = (du * c + dy * s) * (1 / width), (dy * c - du * s) * (1 / height)
        return np.square(np.maximum(1 - a * a - b * b, 0))

    def disc(self, at: tuple[float, float], radius: float, edge: float = 0.06) -> np.ndarray:
        """1 in a circle with a soft edge, 0 outside."""
        return ramp(radius - length(self.u - at[0], self.y - at[1]), edge + 1.5 / self.pixels)


def sample(tile: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Bilinear values of a tile at these places, which must lie inside it: five times as fast as scipy's."""
    r, c = row.astype(np.intp), column.astype(np.intp)
    fr, fc = row - r, column - c
    at = r * tile.shape[1] + c
    flat = tile.ravel()
    above, below = flat[at], flat[at + tile.shape[1]]
    above += (flat[at + 1] - above) * fc
    below += (flat[at + tile.shape[1] + 1] - below) * fc
    below -= above
    below *= fr  # in place: single precision is kept
    above += below
    return above


def ramp(x: np.ndarray, width: float) -> np.ndarray:
    """0 below -width / 2, 1 above width / 2, straight between: a soft edge."""
    x = x * (1 / width)
    x += 0.5
    np.maximum(x, 0, out=x)  # half the price of np.clip
    return np.minimum(x, 1, out=x)


def wave(x: np.ndarray) -> np.ndarray:
    """Like cos(2 pi x), by arithmetic alone: cos in single precision differs between processors."""
    x = np.abs((x - np.floor(x)) * 2 - 1)
    return x * x * (6 - 4 * x) - 1


def length(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of a vector; np.hypot guards against overflow and takes five times as long."""
    return np.sqrt(x * x + y * y)


def line(distance: np.ndarray, width: float) -> np.ndarray:
    """1 where a distance is 0, falling to 0 at width."""
    return np.maximum(np.abs(distance) * (-1 / width) + 1, 0)
