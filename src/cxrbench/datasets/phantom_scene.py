"""What a phantom is drawn on: real lungs, textures, a patient's build and the scene.

Body coordinates: u runs to the right in half-widths of the lungs, 0 on the midline; y runs down in the same
unit, 0 at the top of the lungs. Side 0 is the left of the picture. Brightness is 0 (air) to 1 (bone, metal).
"""

import hashlib
import io
import math
import zipfile
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from PIL import Image
from scipy import ndimage

from cxrbench.datasets.nih_table import wheel_file

Rng = np.random.Generator
Point = tuple[float, float]  # (u, y)
_USED = 200  # masks: more would only take longer to decode
_LEVELS = 33  # heights at which the inner and outer border of each lung is tabulated
_STEP = 1 / 36  # of the distance map, in body units
_LEFT, _ABOVE = 1.45, 0.45  # what the distance map covers beside the midline and above the lungs
_PAD = 200  # pixels around a mask, more than the distance map reaches


def stream(*parts: object) -> Rng:
    """Return a random stream that depends on these words only."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest, "little"))


class Lungs(NamedTuple):
    """A real mask in body coordinates."""

    distance: np.ndarray  # signed, to the lungs' border, positive inside, float32
    height: float
    top: np.ndarray  # (2,) y of each lung's highest point
    bottom: np.ndarray  # and lowest
    inner: np.ndarray  # (2, _LEVELS) |u| of the inner border, from top to bottom of each lung
    outer: np.ndarray


@cache
def read_lungs() -> tuple[Lungs, ...]:
    """Return the first usable masks of the wheel, small files first: they decode fastest."""
    with zipfile.ZipFile(wheel_file("semantic_masks_v7labs_lungs.zip")) as archive:
        entries = sorted(archive.infolist(), key=lambda entry: (entry.file_size, entry.filename))
        masks = (_lungs(archive.read(entry)) for entry in entries if entry.file_size)
        return tuple(islice(filter(None, masks), _USED))


def _lungs(content: bytes) -> Lungs | None:
    """The two largest parts of a mask file, or None unless they look like a pair of whole lungs."""
    with Image.open(io.BytesIO(content)) as picture:
        size = round(128 * picture.width / picture.height), 128
        mask = np.asarray(picture.resize(size, Image.Resampling.NEAREST)) > 200
    parts, count = ndimage.label(mask)
    if count < 2:
        return None
    largest = 1 + np.argsort(np.bincount(parts.ravel())[1:])[-2:]
    sides = sorted((parts == label for label in largest), key=lambda side: side.any(axis=0).argmax())
    (rows0, columns0), (rows1, columns1) = (ndimage.find_objects(side.astype(int))[0] for side in sides)
    top, bottom = min(rows0.start, rows1.start), max(rows0.stop, rows1.stop) - 1
    height, unit = bottom - top, (columns1.stop - 1 - columns0.start) / 2
    cut = top == 0 or bottom == 127  # by the picture's edge
    if cut or height / unit < 1.3 or abs(rows0.start - rows1.start) >= 0.15 * height:
        return None

    middle = (columns0.stop - 1 + columns1.start) / 2
    axes = (top, _ABOVE, 2 * _ABOVE + height / unit), (middle, _LEFT, 2 * _LEFT)
    places = (zero + unit * (np.arange(round(span / _STEP)) * _STEP - before) for zero, before, span in axes)
    grid = np.ix_(*(place.round().astype(int) + _PAD for place in places))
    inside = [np.pad(side, _PAD)[grid] for side in sides]
    both = inside[0] | inside[1]
    distance = ndimage.distance_transform_edt(both) - ndimage.distance_transform_edt(~both)
    smooth = ndimage.gaussian_filter(distance.astype("f4") * _STEP, 1.0)
    borders = (np.array(table, "f4") for table in zip(*map(_borders, inside), strict=True))
    return Lungs(smooth, float(height / unit), *borders)


def _borders(side: np.ndarray) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Top, bottom, and the inner and outer |u| at _LEVELS heights of a lung on the grid."""
    filled = np.nonzero(side.any(axis=1))[0]
    levels = side[np.linspace(filled[0], filled[-1], _LEVELS).round().astype(int)]
    first, last = levels.argmax(axis=1), side.shape[1] - 1 - levels[:, ::-1].argmax(axis=1)
    edges = np.abs(np.stack([first, last]) * _STEP - _LEFT)
    return filled[0] * _STEP - _ABOVE, filled[-1] * _STEP - _ABOVE, edges.min(axis=0), edges.max(axis=0)


@cache
def textures(pixels: int) -> dict[str, np.ndarray]:
    """Return tiles of twice the picture's size, to be cut at random places; the same for every study."""
    rng, size = np.random.default_rng(20170925), 2 * pixels
    clouds, wisps, folds = (_smooth(rng, size, s) for s in (pixels / 16, pixels / 45, max(1.0, pixels / 85)))
    branches = _smooth(rng, 1024, (7, 40)) + 0.6 * _smooth(rng, 1024, (3.5, 16))
    vessels = np.clip(1 - 2.0 * np.abs(branches), 0, 1)
    return {
        "clouds": clouds,  # patches of an eighth of the picture, about -1 to 1
        "wisps": wisps,  # of a thirtieth
        "net": np.clip(1 - 2.2 * np.abs(folds), 0, 1).astype("f4"),  # fine bright lines around holes
        "vessels": (vessels * np.sqrt(vessels)).astype("f4"),  # branches over angle and depth
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


class Build:
    """A patient's shape as breathed and exposed on an image; findings may change it before drawing."""

    def __init__(self, row: dict[Any, Any], seed: int, rng: Rng, ap: bool) -> None:
        own, masks = stream(seed, "patient", row["patient"]), read_lungs()
        self.fat = own.random()  # 0 thin to 1 stout
        self.lungs = masks[own.integers(len(masks))]
        self.heart = own.uniform(0.93, 1.07) * rng.uniform(0.97, 1.03) * (1.10 if ap else 1.0)  # its size
        self.arms = own.random() < 0.5  # seen beside the trunk
        self.ribs = own.random(), own.uniform(0.095, 0.115), own.uniform(0.30, 0.44)  # offset, spacing, slope
        self.clavicle = own.uniform(0.10, 0.2)  # height of its inner end
        self.breasts = own.uniform(0.04, 0.12) * (row["sex"] == "F")  # brightness
        inspired = rng.uniform(0.84, 0.98) if ap else rng.uniform(0.94, 1.04)
        self.stretch = [inspired * rng.uniform(0.97, 1.03) for _ in range(2)]  # of each lung's height
        self.air = rng.uniform(0.88, 1.08)  # how dark the lungs are
        self.vessels = rng.uniform(0.7, 1.2)  # how much of them is seen
        self.shift = 0.0  # of heart and mediastinum, in body units
        self.flatten = 0.0  # how far the domes of the diaphragm are pushed down


class Scene:
    """What findings and anatomy are drawn on; arrays are (pixels, pixels) float32."""

    def __init__(self, build: Build, pixels: int, rng: Rng, ap: bool) -> None:
        zoom = min(rng.uniform(0.33, 0.38) * (1.03 if ap else 1.0), 0.74 / build.lungs.height)  # per picture
        angle, x0 = rng.normal(0, 0.035 if ap else 0.015), 0.5 + rng.normal(0, 0.015)
        y0 = 0.47 - zoom * build.lungs.height / 2 + rng.normal(0, 0.02)
        axis = (np.arange(pixels, dtype="f4") + 0.5) / (pixels * zoom)
        x, y = axis[None, :] - x0 / zoom, axis[:, None] - y0 / zoom
        c, s = math.cos(angle), math.sin(angle)
        self.build, self.pixels, self.rng, self.ap, self.textures = build, pixels, rng, ap, textures(pixels)
        self.u, self.y = x * c + y * s, y * c - x * s
        self.sides = self.u < 0, self.u > 0
        self.v = self.y / build.lungs.height  # 0 at the top of the lungs to 1 at their bottom
        self.across = np.abs(self.u)  # 0 on the midline to 1 at the chest wall
        self.depth = self._depth()  # signed distance to the border of the lungs
        self.lung = ramp(self.depth, (0.07 if ap else 0.045) + 1.2 / (pixels * zoom))  # 0 outside to 1 inside
        self.opacity = np.zeros_like(self.u)  # 0 air to 1 water; below 0 more air than in a healthy lung
        self.vessels = np.ones_like(self.u)  # visibility: 0 none, 1 healthy, above 1 congested
        self.extra = np.zeros_like(self.u)  # brightness added last

    def _depth(self) -> np.ndarray:
        build, lungs = self.build, self.build.lungs
        y = self.y * self.by_side(1 / build.stretch[0], 1 / build.stretch[1])
        if build.flatten:
            low = np.clip(y * (2.5 / lungs.height) - 1.4, 0, 1)
            y = y - build.flatten * low * np.maximum(1 - np.square(self.across * 2 - 1), 0)
        return sample(lungs.distance, (y + _ABOVE) * (1 / _STEP), (self.u + _LEFT) * (1 / _STEP))

    def by_side(self, left: float, right: float) -> np.ndarray:
        """Return a number left of the midline, another right of it."""
        return (self.u < 0) * np.float32(left - right) + np.float32(right)

    def spot(self, side: int, across: float, down: float) -> Point:
        """Return a place in a lung: across 0 mediastinal to 1 lateral, down 0 apex to 1 lower angle."""
        lungs, levels = self.build.lungs, np.arange(_LEVELS)
        inner, outer = (np.interp(down * (_LEVELS - 1), levels, t[side]) for t in (lungs.inner, lungs.outer))
        y = lungs.top[side] + down * (lungs.bottom[side] - lungs.top[side])
        return float((2 * side - 1) * (inner + across * (outer - inner))), float(y) * self.build.stretch[side]

    def cut(self, name: str, rng: Rng) -> np.ndarray:
        """Return a random part of a texture, as large as the picture."""
        row, column = rng.integers(0, self.pixels, 2)
        return self.textures[name][row : row + self.pixels, column : column + self.pixels]

    def blob(self, at: Point, width: float, height: float, turn: float = 0.0) -> np.ndarray:
        """Return 1 at the centre, falling smoothly to 0 at the rim of an ellipse with these half axes."""
        c, s = math.cos(turn), math.sin(turn)
        du, dy = self.u - at[0], self.y - at[1]
        a, b = (du * c + dy * s) * (1 / width), (dy * c - du * s) * (1 / height)
        return np.square(np.maximum(1 - a * a - b * b, 0))

    def disc(self, at: Point, radius: float, edge: float = 0.06) -> np.ndarray:
        """Return 1 in a circle with a soft edge, 0 outside."""
        return ramp(radius - length(self.u - at[0], self.y - at[1]), edge + 1.5 / self.pixels)


def sample(tile: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Return bilinear values of a float32 tile, continued by its edges; five times as fast as scipy's."""
    row, column = (np.clip(at, 0, size - 1.01) for at, size in zip((row, column), tile.shape, strict=True))
    r, c, flat, width = row.astype(np.intp), column.astype(np.intp), tile.ravel(), tile.shape[1]
    corners = (r * width + c, (r + 1) * width + c)
    above, below = ((flat[k] + (flat[k + 1] - flat[k]) * (column - c)).astype("f4") for k in corners)
    return above + ((below - above) * (row - r)).astype("f4")


def ramp(x: np.ndarray, width: float) -> np.ndarray:
    """Return 0 below -width / 2, 1 above width / 2, straight between: a soft edge."""
    return np.clip(x * (1 / width) + 0.5, 0, 1)


def wave(x: np.ndarray) -> np.ndarray:
    """Like cos(2 pi x), by arithmetic alone: cos in single precision differs between processors."""
    x = np.abs((x - np.floor(x)) * 2 - 1)
    return x * x * (6 - 4 * x) - 1


def length(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return a vector's length; np.hypot guards against overflow and takes five times as long."""
    return np.sqrt(x * x + y * y)


def line(distance: np.ndarray, width: float) -> np.ndarray:
    """Return 1 where a distance is 0, falling to 0 at width."""
    return np.maximum(np.abs(distance) * (-1 / width) + 1, 0)
