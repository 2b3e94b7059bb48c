"""Phantoms as pictures, and what the filters of a reduction make of a nodule, in numbers.

At 64 px a nodule of one centimetre is 1.5 pixels wide. A filter that does not widen with the reduction (what
OpenCV and torch call bilinear without antialiasing) looks at a few source pixels only: how large a nodule
becomes, or whether a small one is there at all, depends on where it lies. A filter with negative lobes draws
a dark rim that no radiograph has. The antialiased triangle keeps a nodule's total and blurs its peak most.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from cxrbench.datasets.decoding import FILTER
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.phantom import draw
from cxrbench.study.files import written_aside

VIEWS = ("PA", "AP")
SOURCE, PIXELS = 1024, 64  # a side, as NIH publishes the images, and after the reduction
DIAMETERS = (24, 12)  # pixels at 1024: a centimetre, and half of one, at about 0.4 mm per pixel
FILTERS = {  # the kernel, and whether it widens with the reduction
    "nearest": (Image.Resampling.NEAREST, False),
    "bilinear, not antialiased": (Image.Resampling.BILINEAR, False),
    "box": (Image.Resampling.BOX, True),
    "bilinear, antialiased (used)": (FILTER, True),
    "bicubic, antialiased": (Image.Resampling.BICUBIC, True),
    "Lanczos, antialiased": (Image.Resampling.LANCZOS, True),
}
_GROUND, _CONTRAST = 120, 60  # grey levels: lung, and how much brighter the nodule is
_STEPS = 8  # positions of the nodule per axis, within one pixel of the result
_PATCH = 256  # pixels of the source that are enough to measure on


def _reduced(pixels: np.ndarray, side: int, name: str) -> Image.Image:
    """Reduce a square uint8 image by a filter; one that is not widened interpolates at the new centres."""
    image, (kind, antialiased) = Image.fromarray(pixels), FILTERS[name]
    if antialiased:
        return image.resize((side, side), kind)
    step = image.width / side
    return image.transform((side, side), Image.Transform.AFFINE, (step, 0, 0, 0, step, 0), kind)


def _nodule(x: float, y: float, diameter: float, side: int) -> np.ndarray:
    """Draw a disc of ``diameter`` pixels with a soft edge at (x, y) on even ground, uint8 (side, side)."""
    rows, columns = np.mgrid[0:side, 0:side] + 0.5
    inside = np.clip(diameter / 2 + 0.5 - np.hypot(columns - x, rows - y), 0, 1)
    return np.rint(_GROUND + _CONTRAST * inside).astype(np.uint8)


def contrast_table() -> pd.DataFrame:
    """Return per filter and nodule: least, mean and most over positions of peak and total, in per cent.

    The peak is a share of the nodule's true contrast, the total of its true contrast times its area; the
    rim is the darkest pixel below the ground, at any position.
    """
    rows = []
    for name in FILTERS:
        row, rims = {"Filter": name}, []
        for diameter in DIAMETERS:
            peaks, totals, deepest = _measured(name, diameter)
            for quantity, values in (("peak", peaks), ("total", totals)):
                shares = (values.min(), values.mean(), values.max())
                row[f"{diameter} px nodule: {quantity}"] = " / ".join(f"{100 * v:.0f}" for v in shares) + " %"
            rims.append(max(0.0, deepest.max()))
        rows.append(row | {"Rim": f"{100 * max(rims):.0f} %"})
    return pd.DataFrame(rows)


def _measured(name: str, diameter: float) -> np.ndarray:
    """Return peak above the ground, total and rim, as shares of the truth, for every position (3 x n)."""
    step, rows = SOURCE / PIXELS, []
    for k in range(_STEPS**2):
        x, y = (_PATCH / 2 + step * (place + 0.5) / _STEPS for place in divmod(k, _STEPS))
        large = _nodule(x, y, diameter, _PATCH)
        small = np.asarray(_reduced(large, int(_PATCH / step), name), dtype=np.float64) - _GROUND
        truth = (large.astype(np.float64) - _GROUND).sum() / step**2
        rows.append((small.max() / _CONTRAST, small.sum() / truth, -small.min() / _CONTRAST))
    return np.array(rows).T


def examples(kinds: Sequence[str], count: int, pixels: int) -> list[tuple[str, np.ndarray]]:
    """Return captioned phantoms (pixels, pixels) uint8 of random rows: ``count`` of every kind.

    A kind is a finding alone, or PA or AP: that view without a finding.
    """
    table = read_nih_table()
    alone = table[table[list(FINDINGS)].sum(axis=1) <= 1].sample(frac=1, random_state=0)
    labels = alone[list(FINDINGS)]
    shown = labels.idxmax(axis=1).where(labels.any(axis=1), alone["view"])
    rows = pd.concat(alone[shown == kind].iloc[:count] for kind in kinds)
    captions = [f"No Finding ({kind})" if kind in VIEWS else kind for kind in shown[rows.index]]
    return list(zip(captions, draw(rows, pixels, 0, workers=1), strict=True))


def contact_sheet(path: Path, pixels: int = 192) -> None:
    """Draw four phantoms without a finding, PA and AP, and two of each finding alone."""
    shown = examples((*VIEWS, *FINDINGS), 2, pixels)
    few = 0xFC  # 64 greys: noise hardly compresses
    tiles = [(caption, Image.fromarray(picture & few | picture >> 6)) for caption, picture in shown]
    _write_sheet(path, tiles, 8)


def _write_sheet(path: Path, tiles: list[tuple[str, Image.Image]], columns: int) -> None:
    """Write a PNG of square pictures below their captions, row by row."""
    side, caption = tiles[0][1].width, 18
    rows = -(-len(tiles) // columns)
    sheet = Image.new("L", (columns * side, rows * (side + caption)), 255)
    write = ImageDraw.Draw(sheet)
    for number, (text, tile) in enumerate(tiles):
        x, y = number % columns * side, number // columns * (side + caption)
        write.text((x + 4, y + 3), text, fill=0)
        sheet.paste(tile, (x, y + caption))
    with written_aside(path) as aside:
        sheet.save(aside, format="PNG", optimize=True)
