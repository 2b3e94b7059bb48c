"""Which packed images look odd: nearly empty, of few grey levels, or unlike the rest of their collection.

A picture that was turned, inverted or scaled from the wrong number of bits is a valid picture. Against the
others it stands out: by its grey levels, its share of equal pixels, or its correlation with a usual image.
"""

import re
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw, ImageFont

from cxrbench.common.errors import printable

FEW_LEVELS, MOST_EQUAL = 32, 0.9  # distinct values of an image; share of pixels that have its commonest value
_FAR, _LEAST_FAR = 3, 0.05  # below the lower quartile of correlations: interquartile ranges (Tukey); at least
_APART = 0.4  # below the median correlation: images that do not count for these quartiles
_FEWEST = 20  # images whose quartiles mean something
_COMPARED, _SIDE = 1000, 64  # images and pixels a side, at most about, from which a usual image is found
_CHUNK = 8 << 20  # bytes of images at a time: their histograms take ten times as much memory
_SHOWN, _COLUMNS, _TILE, _GAP, _LINE = 30, 6, 200, 4, 14  # of a sheet: images; pixels


def oddness(images: np.ndarray) -> pd.DataFrame:
    """A row per image of (n, H, W) uint8: levels, equal, likeness, and why it is odd, empty where it is not.

    >>> grey = np.random.default_rng(0).integers(0, 256, (3, 16, 16), dtype=np.uint8)
    >>> oddness(np.stack([*grey, np.zeros((16, 16), np.uint8)]))["why"].tolist()
    ['', '', '', '1 grey level, 100 % of its pixels are equal']
    """
    pixels, grey, parts = images[0].size, np.arange(256.0), []
    usual = _usual(images)
    pattern = ((usual - usual.mean()) / (usual.std() or 1)).astype(np.float32)
    for chunk in _chunks(images):
        values = chunk + 256 * np.arange(len(chunk), dtype=np.int64)[:, None]
        counts = np.bincount(values.ravel(), minlength=256 * len(chunk)).reshape(-1, 256)
        spread = np.sqrt(np.maximum(counts @ grey**2 / pixels - (counts @ grey / pixels) ** 2, 0))
        likeness = (chunk.astype(np.float32) @ pattern) / pixels / np.where(spread > 0, spread, 1)
        parts.append(np.stack([(counts > 0).sum(axis=1), counts.max(axis=1) / pixels, likeness], axis=1))
    table = pd.DataFrame(np.concatenate(parts), columns=["levels", "equal", "likeness"])
    table["why"], least = "", _least(table["likeness"])
    for bad, words in (
        (table["levels"] < FEW_LEVELS, lambda row: f"{row.levels:.0f} grey level{'s' * (row.levels > 1)}"),
        (table["equal"] > MOST_EQUAL, lambda row: f"{100 * row.equal:.0f} % of its pixels are equal"),
        (table["likeness"] < least, lambda row: f"unlike the others (correlation {row.likeness:.2f})"),
    ):
        reasons = table.loc[bad].apply(words, axis=1) if bad.any() else ""
        table.loc[bad, "why"] = table.loc[bad, "why"].where(table["why"] == "", table["why"] + ", ") + reasons
    return table


def _usual(images: np.ndarray) -> np.ndarray:
    """The mean (H * W,) of the half of the images that is most like the most central one.

    That is the one whose median correlation with the others is highest: it is none of a minority, however
    alike the images of this are, so up to nearly half of the images may be wrong.
    """
    some = images[:: -(-len(images) // _COMPARED)]
    step = max(1, some.shape[1] // _SIDE)
    small = some[:, ::step, ::step].reshape(len(some), -1).astype(np.float32)
    small -= small.mean(axis=1, keepdims=True)
    small /= np.maximum(np.sqrt((small**2).sum(axis=1, keepdims=True)), 1e-6)
    alike = small @ small.T
    central = alike[np.median(alike, axis=1).argmax()]
    half = np.flatnonzero(central >= np.median(central))
    total = sum((some[k].astype(np.float64) for k in half), np.zeros(some.shape[1:]))
    return np.asarray(total / len(half)).ravel()


def _least(likeness: pd.Series) -> float:
    """The correlation below which an image is odd; -inf for few images."""
    if len(likeness) < _FEWEST:
        return -np.inf
    low, high = likeness[likeness >= likeness.median() - _APART].quantile([0.25, 0.75])
    return float(low - max(_FAR * (high - low), _LEAST_FAR))


def _chunks(images: np.ndarray) -> Iterator[np.ndarray]:
    step = max(1, _CHUNK // images[0].size)
    for start in range(0, len(images), step):
        yield images[start : start + step].reshape(-1, images[0].size)


def contact_sheet(images: np.ndarray, names: list[str], known: Mapping[str, str]) -> Image.Image:
    """The oddest thirty images, those that are odd first, each with its name and what is odd.

    ``known``: what is odd, by name, as it was found when they were packed.
    """
    table = oddness(images)
    table["why"] = [known.get(name, why) for name, why in zip(names, table["why"], strict=True)]
    odd = table.assign(usual=table["why"] == "").sort_values(["usual", "likeness"], kind="stable")[:_SHOWN]
    font = ImageFont.load_default(11)
    texts = [
        [*lines_of(printable(names[k]), font), *lines_of(row.why or f"correlation {row.likeness:.2f}", font)]
        for k, row in odd.iterrows()
    ]
    height = _TILE + _LINE * max(map(len, texts))
    sheet = Image.new("L", (_COLUMNS * _TILE, -(-len(odd) // _COLUMNS) * height), 255)
    draw, side = ImageDraw.Draw(sheet), _TILE - _GAP
    for place, (k, lines) in enumerate(zip(odd.index, texts, strict=True)):
        x, y = place % _COLUMNS * _TILE, place // _COLUMNS * height
        tile = Image.fromarray(np.asarray(images[k])).resize((side, side), Image.Resampling.NEAREST)
        sheet.paste(tile, (x, y))
        for line, text in enumerate(lines):
            draw.text((x, y + side + 2 + _LINE * line), text, 0, font)
    return sheet


def lines_of(text: str, font: ImageFont.ImageFont | ImageFont.FreeTypeFont) -> list[str]:
    """The text in lines that fit below a tile, broken at blanks, slashes and commas where there are any."""
    lines = [""]
    for part in re.split(r"(?<=[ ,/_-])", text):
        if lines[-1] and font.getlength((lines[-1] + part).rstrip()) > _TILE - _GAP:
            lines.append("")
        for letter in part:  # of a word that is too long by itself
            if font.getlength(lines[-1] + letter) > _TILE - _GAP and letter != " ":
                lines.append("")
            lines[-1] += letter
    return [line.rstrip() for line in lines]
