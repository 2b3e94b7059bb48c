"""Images of any common format, decoded and reduced on threads in the order of their files."""

import io
import struct
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from PIL import ExifTags, Image, UnidentifiedImageError

from cxrbench.common.errors import UserError
from cxrbench.common.files import ahead, cores
from cxrbench.datasets.archives import Encoded

RESIZE = "Pillow BILINEAR (triangle filter widened by the reduction: antialiased, no ringing)"
FILTER = Image.Resampling.BILINEAR
_GROUP = 8  # files that a thread decodes at a time: handing small images over singly takes most of the time
_AHEAD = 4  # groups in flight per worker: this bounds memory
MOST_PIXELS = 64 << 20  # of an image; NIH's originals have up to 12 million
_LONGEST_CHUNK = 2**31 - 1  # of a PNG file: RFC 2083, section 3.2
_UNREADABLE = (OSError, EOFError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError)
_UPRIGHT = {  # by EXIF orientation (EXIF 2.32, 4.6.4, tag 0x0112)
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_TINT, _TINTED = 24, 0.01  # of 255, between channels; share of pixels: a burnt-in mark may be coloured


class Decoded(NamedTuple):
    """An image: (pixels, pixels) uint8, and what its file was."""

    pixels: np.ndarray
    name: str
    mode: str = ""  # of a file, as Pillow or DICOM name it
    size: str = ""  # of a file, such as 1024x1024
    notes: tuple[str, ...] = ()  # what was done to it that not every image needs
    bits: int | None = None  # of a 16-bit image: how many its brightest pixel has
    crc32: int | None = None  # of an image that is reduced in steps: of its pixels after the last

    def without_pixels(self) -> dict[str, Any]:
        """The other fields, by name."""
        return {field: value for field, value in self._asdict().items() if field != "pixels"}


def decode_all(
    files: Iterator[Encoded], decode: Callable[[Encoded], Decoded], workers: int | None
) -> Iterator[list[Decoded]]:
    """The decoded ``files`` in groups, in their order, which does not depend on the number of ``workers``
    (None: one per core)."""
    groups = iter(lambda: list(islice(files, _GROUP)), [])
    # Pillow releases the interpreter lock while it decodes and resizes: threads are enough.
    workers = workers or cores()
    return ahead(lambda group: [decode(encoded) for encoded in group], groups, workers, _AHEAD * workers)


def formats(seen: pd.DataFrame) -> dict[str, object]:
    """The number of images of each size and mode, for the manifest."""
    counts = {name: seen[name].value_counts().sort_index() for name in ("size", "mode")}
    return {
        f"source_{name}s": {key: int(count) for key, count in numbers.items()}
        for name, numbers in counts.items()
    }


def decode(
    encoded: Encoded,
    pixels: int,
    formats: tuple[str, ...] = ("PNG",),
    colour: bool = True,
    reduce: Callable[[Image.Image, int, str], np.ndarray] | None = None,
    bits: int | None = None,
) -> Decoded:
    """An image in one of Pillow's ``formats``, upright and reduced; UserError when it cannot be.

    ``colour``: take the luminance of a colour image instead of refusing it. ``reduce``: another way than
    :func:`reduced`; it gets the image in grey, ``pixels`` and the image's place for messages. ``bits``: how
    many of each 16-bit pixel are used, all if none is given.
    """
    try:
        with Image.open(io.BytesIO(encoded.data), formats=formats) as image:
            check_size(image.size, pixels, encoded.where)
            if image.format == "PNG":
                _check_chunks(encoded.data)
            image.load()
            brightest = int(np.asarray(image).max()) if image.mode.startswith("I") else None
            if brightest is not None and brightest >> (bits or 16):
                raise UserError(
                    f"{encoded.where}: a pixel of {brightest:,}, more than {bits or 16} bits hold; correct "
                    f"'bits' in the config, or save it in {bits or 16} bits"
                )
            grey, notes = _to_grey(image, bits or 16), tuple[str, ...]()
            if (turned := _orientation(image)) is not None:  # FLIP_LEFT_RIGHT is 0
                grey, notes = grey.transpose(turned), ("turned as its EXIF orientation says",)
            if not colour and _tinted(image):
                raise UserError(
                    f"{encoded.where}: a colour picture, not a radiograph; remove its row, or save it in grey"
                )
            small = reduce(grey, pixels, encoded.where) if reduce else reduced(grey, pixels)
            known = None if brightest is None else brightest.bit_length()
            return Decoded(small, encoded.name, image.mode, f"{image.width}x{image.height}", notes, known)
    except _UNREADABLE as error:
        kinds = " or ".join(formats)
        content = "another format" if encoded.data else "an empty file"
        why = content if isinstance(error, UnidentifiedImageError) else str(error)
        fault = f"not a readable {kinds} ({why}); fetch it again or remove it"
        raise UserError(f"{encoded.where}: {fault}") from None


def _check_chunks(png: bytes) -> None:
    """Raise ValueError unless a PNG file's chunks lead to its end; Pillow stops reading behind the pixels."""
    offset, kind = 8, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", png, offset)
        if length > _LONGEST_CHUNK:
            raise ValueError(f"chunk {kind!r} has the negative length {length - 2**32}")
        if (offset := offset + 12 + length) > len(png):
            raise ValueError(f"chunk {kind!r} goes beyond the end of the file")


def check_size(size: tuple[int, int], pixels: int, where: str) -> None:
    """Raise UserError for an image smaller than ``pixels`` a side, or too large for a radiograph."""
    width, height = size
    if min(size) < pixels:
        raise UserError(
            f"{where}: {width} x {height} px, less than the {pixels} px asked for; "
            "choose a smaller 'pixels' in the config"
        )
    if width * height > MOST_PIXELS:
        raise UserError(f"{where}: {width} x {height} px are too many for a radiograph; remove it")


def reduced(grey: Image.Image, pixels: int) -> np.ndarray:
    """An 8-bit grey image as (pixels, pixels) uint8."""
    size = (pixels, pixels)
    return np.asarray(grey if grey.size == size else grey.resize(size, FILTER))


def in_steps(grey: Image.Image, steps: tuple[int, ...], whole: int, where: str) -> np.ndarray:
    """An 8-bit grey image of ``whole`` pixels a side, reduced to each of ``steps`` in turn (uint8).

    An image of the last step's size is taken as it is; UserError for any other size. The pixels are those of
    OpenCV's bilinear resize, which is not antialiased: of each block the mean of its four central pixels.
    """
    image = np.asarray(grey)
    if image.shape == (steps[-1], steps[-1]):
        return image
    if image.shape != (whole, whole):
        sizes = f"{whole} x {whole} px, as NIH publishes it, and {steps[-1]} x {steps[-1]} px"
        raise UserError(
            f"{where}: {grey.width} x {grey.height} px; the reduction takes images of {sizes}; get the image "
            "in one of these sizes, or drop 'reduced' from the config"
        )
    for side in steps:
        image = _central_means(image, len(image) // side)
    return image


def _central_means(image: np.ndarray, block: int) -> np.ndarray:
    """The mean of the four central pixels of each ``block`` x ``block``, rounded half up."""
    first, second = block // 2 - 1, block // 2
    rows = image[first::block].astype(np.uint16) + image[second::block]  # whole rows: fast to read
    return ((rows[:, first::block] + rows[:, second::block] + 2) >> 2).astype(np.uint8)


def _orientation(image: Image.Image) -> Image.Transpose | None:
    """What turns an image upright by its EXIF orientation; None where it is, or says nothing legible."""
    try:
        return _UPRIGHT.get(image.getexif().get(ExifTags.Base.Orientation, 1))
    except (*_UNREADABLE, TypeError):  # of the EXIF block: the pixels are sound
        return None


def _to_grey(image: Image.Image, bits: int) -> Image.Image:
    """8-bit grey: 16 bits are scaled from ``bits``, not clipped; colour is luminance without alpha."""
    if image.mode == "L":
        return image
    if image.mode.startswith("I"):
        wide = np.asarray(image, dtype=np.float64)
        return Image.fromarray(np.rint(wide * 255 / (2**bits - 1)).astype(np.uint8))
    return image.convert("RGB").convert("L")


def _tinted(image: Image.Image) -> bool:
    """Whether the channels differ in more of the image than a burnt-in mark covers."""
    if image.mode in ("1", "L", "LA", "F") or image.mode.startswith("I"):
        return False
    channels = np.asarray(image.convert("RGB"))
    apart = channels.max(axis=2) - channels.min(axis=2) > _TINT
    return bool(apart.mean() > _TINTED)


# -- what filters make of a nodule -----------------------------------------------------------------
# At 64 px a nodule of one centimetre is 1.5 pixels wide. A filter that does not widen with the reduction sees
# few source pixels: whether a nodule is there depends on its place. One with negative lobes draws a dark rim.

_WHOLE, _REDUCED = 1024, 64  # pixels a side, as NIH publishes the images, and after the reduction
_DIAMETERS = (24, 12)  # pixels at 1024: a centimetre, and half of one, at about 0.4 mm per pixel
_GROUND, _CONTRAST = 120, 60  # grey levels: lung, and how much brighter the nodule is
_STEPS = 8  # positions of the nodule per axis, within one pixel of the result
_PATCH = 256  # pixels of the source that are enough to measure on
_FILTERS = {  # the kernel, and whether it widens with the reduction
    "nearest": (Image.Resampling.NEAREST, False),
    "bilinear, not antialiased": (Image.Resampling.BILINEAR, False),
    "box": (Image.Resampling.BOX, True),
    "bilinear, antialiased (used)": (FILTER, True),
    "bicubic, antialiased": (Image.Resampling.BICUBIC, True),
    "Lanczos, antialiased": (Image.Resampling.LANCZOS, True),
}


def _filtered(pixels: np.ndarray, side: int, name: str) -> Image.Image:
    """Reduce a square uint8 image by a filter; one that is not widened interpolates at the new centres."""
    image, (kind, antialiased) = Image.fromarray(pixels), _FILTERS[name]
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
    """Per filter and nodule: least, mean and most over positions of peak and total, in per cent.

    The peak is a share of the nodule's true contrast, the total of its true contrast times its area; the
    rim is the darkest pixel below the ground, at any position.
    """
    rows = []
    for name in _FILTERS:
        row, rims = {"Filter": name}, []
        for diameter in _DIAMETERS:
            peaks, totals, deepest = _measured(name, diameter)
            for quantity, values in (("peak", peaks), ("total", totals)):
                shares = (values.min(), values.mean(), values.max())
                row[f"{diameter} px nodule: {quantity}"] = " / ".join(f"{100 * v:.0f}" for v in shares) + " %"
            rims.append(max(0.0, deepest.max()))
        rows.append(row | {"Rim": f"{100 * max(rims):.0f} %"})
    return pd.DataFrame(rows)


def _measured(name: str, diameter: float) -> np.ndarray:
    """Peak above the ground, total and rim, as shares of the truth, for every position (3 x n)."""
    step, rows = _WHOLE / _REDUCED, []
    for k in range(_STEPS**2):
        x, y = (_PATCH / 2 + step * (place + 0.5) / _STEPS for place in divmod(k, _STEPS))
        large = _nodule(x, y, diameter, _PATCH)
        small = np.asarray(_filtered(large, int(_PATCH / step), name), dtype=np.float64) - _GROUND
        truth = (large.astype(np.float64) - _GROUND).sum() / step**2
        rows.append((small.max() / _CONTRAST, small.sum() / truth, -small.min() / _CONTRAST))
    return np.array(rows).T
