"""Which packed images look odd: nearly empty, of few grey levels, or unlike the rest of their collection.

A picture that was turned, inverted or scaled from the wrong number of bits is a valid picture. Against the
others it stands out: by its grey levels, its share of equal pixels, or its correlation with their mean.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from cxrbench.study.names import printable

FEW_LEVELS, MOST_EQUAL = 32, 0.9  # distinct values of an image; share of pixels that have its commonest value
_FAR, _LEAST_FAR = (
    3,
    0.05,
)  # below the lower quartile of correlations: interquartile ranges (Tukey), and at least
_FEWEST = 20  # images whose quartiles mean something
_CHUNK = 8 << 20  # bytes of images at a time: their histograms take ten times as much memory
_SHOWN, _COLUMNS, _TILE, _TEXT = 30, 6, 200, 34  # of a sheet; pixels a side, and below for the words


def oddness(images: np.ndarray) -> pd.DataFrame:
    """A row per image of (n, H, W) uint8: levels, equal, likeness, and why it is odd, empty where it is not.

    >>> grey = np.random.default_rng(0).integers(0, 256, (3, 16, 16), dtype=np.uint8)
    >>> oddness(np.stack([*grey, np.zeros((16, 16), np.uint8)]))["why"].tolist()
    ['', '', '', '1 grey level, 100 % of its pixels are equal']
    """
    pixels, grey = images[0].size, np.arange(256.0)
    mean = sum((chunk.sum(axis=0, dtype=np.float64) for chunk in _chunks(images)), np.zeros(pixels)) / len(
        images
    )
    pattern = ((mean - mean.mean()) / (mean.std() or 1)).astype(np.float32)
    parts = []
    for chunk in _chunks(images):
        values = chunk + 256 * np.arange(len(chunk), dtype=np.int64)[:, None]
        counts = np.bincount(values.ravel(), minlength=256 * len(chunk)).reshape(-1, 256)
        spread = np.sqrt(np.maximum(counts @ grey**2 / pixels - (counts @ grey / pixels) ** 2, 0))
        likeness = (chunk.astype(np.float32) @ pattern) / pixels / np.where(spread > 0, spread, 1)
        parts.append(np.stack([(counts > 0).sum(axis=1), counts.max(axis=1) / pixels, likeness], axis=1))
    table = pd.DataFrame(np.concatenate(parts), columns=["levels", "equal", "likeness"])
    low, high = table["likeness"].quantile([0.25, 0.75])
    least = low - max(_FAR * (high - low), _LEAST_FAR) if len(table) >= _FEWEST else -np.inf
    table["why"] = ""
    for bad, words in (
        (table["levels"] < FEW_LEVELS, lambda row: f"{row.levels:.0f} grey level{'s' * (row.levels > 1)}"),
        (table["equal"] > MOST_EQUAL, lambda row: f"{100 * row.equal:.0f} % of its pixels are equal"),
        (table["likeness"] < least, lambda row: f"unlike the others (correlation {row.likeness:.2f})"),
    ):
        said = table.loc[bad].apply(words, axis=1) if bad.any() else ""
        table.loc[bad, "why"] = table.loc[bad, "why"].where(table["why"] == "", table["why"] + ", ") + said
    return table


def _chunks(images: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, _CHUNK // images[0].size)
    for start in range(0, len(images), step):
        yield images[start : start + step].reshape(-1, images[0].size)


def contact_sheet(images: np.ndarray, names: list[str]) -> Image.Image:
    """The oddest thirty images, those that are odd first, each with its name and what is odd."""
    table = oddness(images)
    odd = table.assign(usual=table["why"] == "").sort_values(["usual", "likeness"], kind="stable")[:_SHOWN]
    rows = -(-len(odd) // _COLUMNS)
    sheet = Image.new("L", (_COLUMNS * _TILE, rows * (_TILE + _TEXT)), 255)
    draw, font = ImageDraw.Draw(sheet), ImageFont.load_default(11)
    for place, (k, row) in enumerate(odd.iterrows()):
        y, x = divmod(place, _COLUMNS)
        x, y = x * _TILE, y * (_TILE + _TEXT)
        tile = Image.fromarray(np.asarray(images[k])).resize((_TILE - 4, _TILE - 4), Image.Resampling.NEAREST)
        sheet.paste(tile, (x, y))
        why = row.why or f"correlation {row.likeness:.2f}"
        for line, text in enumerate((printable(names[k])[-30:], why[:34])):
            draw.text((x, y + _TILE - 2 + 14 * line), text, 0, font)
    return sheet
