"""What a reduction does to a nodule: the filters side by side, as a table and as a picture.

At 64 px a nodule of one centimetre is 1.5 pixels wide. A filter that does not widen with the reduction (what
OpenCV and torch call bilinear without antialiasing) looks at a few source pixels only: how large a nodule
becomes, or whether a small one is there at all, depends on where it lies. A filter with negative lobes draws
a dark rim that no radiograph has. The antialiased triangle keeps a nodule's total and blurs its peak most.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from cxrbench.datasets.nih import FILTER
from cxrbench.study.files import written_aside

SOURCE, PIXELS = 1024, 64  # a side, as NIH publishes the images and as they are shown here
DIAMETERS = (24, 12)  # pixels at 1024: a centimetre, and half of one, at about 0.4 mm per pixel
_GROUND, _CONTRAST = 120, 60  # grey levels: lung, and how much brighter the nodule is
_STEPS = 8  # positions of the nodule per axis, within one pixel of the result
_PATCH = 256  # pixels of the source that are enough to measure on
Reduce = Callable[[Image.Image, int], Image.Image]


def _antialiased(kind: Image.Resampling) -> Reduce:
    return lambda image, pixels: image.resize((pixels, pixels), kind)


def _sampled(kind: Image.Resampling) -> Reduce:
    """Interpolation at the centre of each new pixel, not widened by the reduction."""

    def reduce(image: Image.Image, pixels: int) -> Image.Image:
        step = image.width / pixels
        return image.transform((pixels, pixels), Image.Transform.AFFINE, (step, 0, 0, 0, step, 0), kind)

    return reduce


FILTERS: dict[str, Reduce] = {
    "nearest": _sampled(Image.Resampling.NEAREST),
    "bilinear, not antialiased": _sampled(Image.Resampling.BILINEAR),
    "box": _antialiased(Image.Resampling.BOX),
    "bilinear, antialiased (used)": _antialiased(FILTER),
    "bicubic, antialiased": _antialiased(Image.Resampling.BICUBIC),
    "Lanczos, antialiased": _antialiased(Image.Resampling.LANCZOS),
}


def nodule(x: float, y: float, diameter: float, side: int) -> np.ndarray:
    """A disc of ``diameter`` pixels with a soft edge at (x, y) on even ground, uint8 (side, side)."""
    rows, columns = np.mgrid[0:side, 0:side] + 0.5
    inside = np.clip(diameter / 2 + 0.5 - np.hypot(columns - x, rows - y), 0, 1)
    return np.rint(_GROUND + _CONTRAST * inside).astype(np.uint8)


def contrast_table() -> pd.DataFrame:
    """Per filter and nodule: least, mean and most over positions of its peak and its total, in per cent.

    The peak is a share of the nodule's true contrast, the total of its true contrast times its area; the
    rim is the darkest pixel below the ground, at any position.
    """
    rows = []
    for name, reduce in FILTERS.items():
        row, deepest = {"Filter": name}, 0.0
        for diameter in DIAMETERS:
            peaks, totals, rims = _measured(reduce, diameter)
            row[f"{diameter} px nodule: peak"] = _spread(peaks)
            row[f"{diameter} px nodule: total"] = _spread(totals)
            deepest = max(deepest, rims.max())
        rows.append(row | {"Rim": f"{100 * deepest:.0f} %"})
    return pd.DataFrame(rows)


def _spread(values: np.ndarray) -> str:
    return " / ".join(f"{100 * value:.0f}" for value in (values.min(), values.mean(), values.max())) + " %"


def _measured(reduce: Reduce, diameter: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Peak above the ground, total and rim, as shares of the truth, for every position."""
    step = SOURCE / PIXELS
    found = []
    for k in range(_STEPS**2):
        x, y = (_PATCH / 2 + step * (place + 0.5) / _STEPS for place in divmod(k, _STEPS))
        large = nodule(x, y, diameter, _PATCH)
        small = np.asarray(reduce(Image.fromarray(large), int(_PATCH / step)), dtype=np.float64) - _GROUND
        truth = (large.astype(np.float64) - _GROUND).sum() / step**2
        found.append((small.max() / _CONTRAST, small.sum() / truth, -small.min() / _CONTRAST))
    peaks, totals, rims = np.array(found).T
    return peaks, totals, rims


def picture(path: Path) -> None:
    """Draw a nodule of a centimetre in a phantom lung after each filter (columns), at three positions."""
    from cxrbench.datasets.nih_table import read_nih_table
    from cxrbench.datasets.phantom import draw

    table = read_nih_table()
    healthy = table[(table.iloc[:, 5:].sum(axis=1) == 0) & (table["view"] == "PA")].iloc[:1]
    lung = next(iter(draw(healthy, SOURCE, seed=0, workers=1)))[0].astype(np.float64)
    tile, gap, caption, shifts = 180, 6, 18, (0.0, 0.5, 0.25)
    sheet = Image.new("L", (len(FILTERS) * (tile + gap), caption + len(shifts) * (tile + gap)), 255)
    write = ImageDraw.Draw(sheet)
    for column, (name, reduce) in enumerate(FILTERS.items()):
        write.text((column * (tile + gap) + 2, 2), name, fill=0)
        for row, shift in enumerate(shifts):
            part = _around_a_nodule(lung, reduce, shift).resize((tile, tile), Image.Resampling.NEAREST)
            sheet.paste(part, (column * (tile + gap), caption + row * (tile + gap)))
    with written_aside(path) as aside:
        sheet.save(aside, format="PNG", optimize=True)


def _around_a_nodule(lung: np.ndarray, reduce: Reduce, shift: float) -> Image.Image:
    """Nine pixels a side of the reduced lung, a nodule ``shift`` of a pixel off the middle one's centre."""
    step, column, row = SOURCE // PIXELS, 18, 28  # in the right lung
    x, y = (column + 0.5 + shift) * step, (row + 0.5 + shift) * step
    with_nodule = lung + nodule(x, y, DIAMETERS[0], SOURCE).astype(np.float64) - _GROUND
    small = reduce(Image.fromarray(np.clip(np.rint(with_nodule), 0, 255).astype(np.uint8)), PIXELS)
    return small.crop((column - 4, row - 4, column + 5, row + 5))
