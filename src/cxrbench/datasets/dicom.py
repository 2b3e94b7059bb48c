"""DICOM radiographs as grey pictures: the window of the file, MONOCHROME1 inverted, 8 to 16 bits or floats.

DICOM PS3.3: pydicom applies C.11.1 (modality) and C.11.2 (window, VOI LUT); C.7.6.3.1.2 (photometric
interpretation), C.11.6 (presentation LUT shape) and C.7.5.1.1.2 (padding) are applied here. What is done to a
pixel depends on its stored value alone, so it is worked out once per value and looked up per pixel.
"""

import io
import os
import warnings
import zlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cxrbench.common.errors import UserError
from cxrbench.datasets.archives import Encoded
from cxrbench.datasets.decoding import MOST_PIXELS, Decoded, check_size, reduced

_MOST_BITS = 16
_FLOATS = ("FloatPixelData", "DoubleFloatPixelData")
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # PS3.5 A.5: all behind the file meta information is one deflate stream
_MOST_UNPACKED = MOST_PIXELS * _MOST_BITS // 8 + (16 << 20)  # bytes of it: the largest picture, and a header
_GROUPS = (b"\x02\0", b"\x08\0", b"\0\x08")  # with one of these begins a data set without a preamble
_LEAST_SHOWN = 0.01  # share of pixels that a window shows as neither black nor white; real ones show most
_FUNCTIONS = ("LINEAR", "LINEAR_EXACT", "SIGMOID")  # PS3.3 C.11.2.1.3
_TAIL, _TOO_FAR = 0.001, 2  # share of pixels at either end that may be outliers: if they double the range


def decode_dicom(encoded: Encoded, pixels: int) -> Decoded:
    """A DICOM radiograph, reduced; UserError when it holds none, or one that cannot be read."""
    try:
        import pydicom
    except ImportError:
        raise UserError("pydicom is not installed; it reads DICOM: run `make setup`") from None
    warnings.filterwarnings("ignore", module="pydicom")  # about values that do not matter here
    try:
        header = _read(encoded)
        kind = f"{header.get('PhotometricInterpretation')} {header.get('BitsStored') or 'float'} bit"
        if reason := _no_radiograph(header) or _no_decoder(header):
            raise UserError(f"{encoded.where}: {reason}")
        check_size((header.Columns, header.Rows), pixels, encoded.where)
        notes: list[str] = []
        grey = Image.fromarray(_shown(_stored(header, encoded), header, notes))
        return Decoded(reduced(grey, pixels), encoded.name, kind, f"{grey.width}x{grey.height}", tuple(notes))
    except UserError:
        raise
    except _Meaningless as error:
        raise UserError(f"{encoded.where}: {error}") from None
    except Exception as error:  # pydicom raises almost any for damaged files
        lines = str(error).splitlines() or [type(error).__name__]
        reason = lines[-1 if lines[0].endswith(":") else 0].strip()  # pydicom: what each decoder said
        if isinstance(error, pydicom.errors.InvalidDicomError):
            reason = "it does not begin like one"
        raise UserError(
            f"{encoded.where}: not a readable DICOM file ({reason}); fetch it again, or write it "
            "uncompressed (dcmdjpeg, gdcmconv --raw)"
        ) from None


def _read(encoded: Encoded) -> Any:
    """The data set of a file, with or without a preamble."""
    import pydicom
    from pydicom import uid

    if _DEFLATED in encoded.data:
        return _inflated(encoded)
    bare = encoded.data[128:132] != b"DICM" and encoded.data.startswith(_GROUPS)
    header = pydicom.dcmread(io.BytesIO(encoded.data), force=bare)
    if "TransferSyntaxUID" not in header.file_meta:
        implicit, little = header.original_encoding
        explicit = uid.ExplicitVRLittleEndian if little else uid.ExplicitVRBigEndian
        header.file_meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if implicit else explicit
    return header


def _inflated(encoded: Encoded) -> Any:
    """The data set of a file that may be deflated; pydicom would unpack it without a bound."""
    import pydicom
    from pydicom.filereader import read_dataset, read_preamble

    file = io.BytesIO(encoded.data)
    read_preamble(file, force=False)
    meta = read_dataset(file, False, True, stop_when=lambda tag, *_: tag.group != 2)
    if meta.TransferSyntaxUID != _DEFLATED.decode():  # another element names it
        return pydicom.dcmread(io.BytesIO(encoded.data))
    unpacked = zlib.decompressobj(-zlib.MAX_WBITS).decompress(file.read(), _MOST_UNPACKED + 1)
    if len(unpacked) > _MOST_UNPACKED:
        most = f"{_MOST_UNPACKED >> 20} MiB"
        raise UserError(
            f"{encoded.where}: unpacks to more than {most}, as no radiograph does; remove its row"
        )
    header = read_dataset(io.BytesIO(unpacked), False, True)
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    header.file_meta = pydicom.dataset.FileMetaDataset(meta)
    return header


def _no_radiograph(header: Any) -> str | None:
    """The reason a file holds no radiograph, with a remedy, or None if it may hold one."""
    floats = any(name in header for name in _FLOATS)
    if not (floats or header.get("PixelData")):
        return "an empty DICOM file, without an image; remove its row"
    if (kind := header.get("PhotometricInterpretation")) is None:
        return "no Photometric Interpretation says whether low values are black; add it, or remove its row"
    if kind not in ("MONOCHROME1", "MONOCHROME2"):
        return f"a picture in {kind}, not a radiograph in MONOCHROME1 or MONOCHROME2; remove its row"
    if int(header.get("NumberOfFrames") or 1) > 1:
        return f"{header.NumberOfFrames} frames instead of one radiograph; remove its row"
    wide = header.BitsAllocated > _MOST_BITS and not floats
    return f"more than {_MOST_BITS} bits a pixel; remove its row" if wide else None


def _no_decoder(header: Any) -> str | None:
    """That nothing installed here decodes a file's pixels, and what does; None if something does."""
    from pydicom.pixels import get_decoder

    syntax = header.file_meta.TransferSyntaxUID
    if not syntax.is_compressed or syntax.is_deflated:
        return None
    try:
        if get_decoder(syntax).is_available:
            return None
    except NotImplementedError:
        pass
    return (
        f"its pixels are compressed as {syntax.name}, which nothing that is installed here decodes; install "
        "python-gdcm (for High-Throughput JPEG 2000: pylibjpeg and pylibjpeg-openjpeg), or write it "
        "uncompressed (dcmdjpeg, gdcmconv --raw)"
    )


def _stored(header: Any, encoded: Encoded) -> np.ndarray:
    """The stored values (H, W); of several decoders Pillow's, which reads all other pictures too."""
    from pydicom.pixels import get_decoder

    syntax = header.file_meta.TransferSyntaxUID
    plugins = get_decoder(syntax).available_plugins if syntax.is_encapsulated else ()
    if "pillow" in plugins:
        header.pixel_array_options(decoding_plugin="pillow")
    elif "gdcm" in plugins:
        try:
            return _elsewhere().submit(_decoded, encoded.data).result()
        except BrokenProcessPool:
            _elsewhere.cache_clear()
            raise ValueError("its pixels are damaged: the decoder stopped") from None
    return np.asarray(header.pixel_array)


@cache
def _elsewhere() -> ProcessPoolExecutor:
    """A process for GDCM: damaged files can end it (seen with 3.2.6), which must not end packing."""
    return ProcessPoolExecutor(1, get_context("spawn"), _silence)


def _silence() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a library that aborts says so in words of its own


def _decoded(content: bytes) -> np.ndarray:
    return np.asarray(_read(Encoded("", "", content)).pixel_array)


class _Levels(NamedTuple):
    """The distinct stored values of a picture, each with its number of pixels, none for padding."""

    values: np.ndarray  # (n,), after the rescale or modality LUT
    counts: np.ndarray  # (n,)


def _shown(stored: np.ndarray, header: Any, notes: list[str]) -> np.ndarray:
    """Stored values (H, W) as a screen shows them, uint8, through the first usable window of the file.

    A file without one is spread from its lowest to its highest value, without padding and far outliers.
    ``notes`` gets what was done that few files need.
    """
    if stored.dtype.kind == "f":
        finite = np.isfinite(stored)
        levels, place = np.unique(np.where(finite, stored, stored[finite].min()), return_inverse=True)
        place = place.reshape(stored.shape)
    else:
        lowest = int(stored.min())
        levels, place = np.arange(lowest, int(stored.max()) + 1), stored.astype(np.int64) - lowest
    counts = np.bincount(place.ravel(), minlength=len(levels))
    padding = _padding(header, levels)
    if counts[~padding].any():
        counts = np.where(padding, 0, counts)
    else:
        padding = np.zeros(len(levels), bool)
    _mend_rescale(header, notes)
    light = next(_windows(_Levels(_meant(levels, header), counts), header, notes))
    if header.PhotometricInterpretation == "MONOCHROME1":
        light = 1 - light  # PS3.3 C.8.11.3.1.2: with it goes the shape INVERSE, which is the same inversion
    elif header.get("PresentationLUTShape") == "INVERSE":
        light = 1 - light
        notes.append("inverted as its Presentation LUT Shape says")
    light[padding] = 0
    return np.asarray(np.rint(light * 255).astype(np.uint8)[place])


def _padding(header: Any, levels: np.ndarray) -> np.ndarray:
    """A mask (n,) of the stored values outside of the picture, as the file declares."""
    first = header.get("PixelPaddingValue")
    if not isinstance(first, int | float):
        return np.zeros(len(levels), bool)
    last = header.get("PixelPaddingRangeLimit")
    ends = sorted((first, last if isinstance(last, int | float) else first))
    return np.asarray((levels >= ends[0]) & (levels <= ends[1]))


def _mend_rescale(header: Any, notes: list[str]) -> None:
    """Take out a rescale that is empty or makes all values equal."""
    slope, intercept = header.get("RescaleSlope"), header.get("RescaleIntercept")
    if slope == 0:
        notes.append("a Rescale Slope of 0 ignored")
    if slope in (None, "", 0) or intercept in (None, ""):
        for name in ("RescaleSlope", "RescaleIntercept"):
            if name in header:
                delattr(header, name)


class _Meaningless(ValueError):
    """The values of a picture cannot be known, for a reason that another copy of the file has too."""


def _meant(levels: np.ndarray, header: Any) -> np.ndarray:
    """What stored values (n,) mean, by the file's modality LUT or rescale."""
    from pydicom.pixels.processing import apply_modality_lut

    try:
        values = np.asarray(apply_modality_lut(levels, header), dtype=np.float64)
    except Exception:  # pydicom checks nothing in a LUT
        values = np.array([np.nan])
    if not np.isfinite(values).all():
        name = "Modality LUT" if header.get("ModalityLUTSequence") else "Rescale Slope or Intercept"
        raise _Meaningless(
            f"its {name} cannot be used, so nobody knows what its pixels mean; export it anew with a "
            "complete one, or remove its row"
        )
    return values


def _windows(levels: _Levels, header: Any, notes: list[str]) -> Iterator[np.ndarray]:
    """Yield the light (n,) from 0 to 1 of each value: by the VOI LUT, each window, at last by the range."""
    from pydicom.pixels.processing import apply_windowing

    for table in header.get("VOILUTSequence") or []:
        light = _by_lut(levels, header, table)
        if light is not None and _shows_something(light, levels.counts):
            yield light
        notes.append("a VOI LUT that is empty, damaged or shows nothing ignored")
    centres, widths = _numbers(header.get("WindowCenter")), _numbers(header.get("WindowWidth"))
    header.VOILUTFunction = function = str(header.get("VOILUTFunction") or "LINEAR").upper()
    least = 1 if function == "LINEAR" else np.nextafter(0, 1)
    if centres and function not in _FUNCTIONS:
        notes.append("a window of an unknown VOI LUT Function ignored")
        centres = []
    for k, (centre, width) in enumerate(zip(centres, widths, strict=False)):
        if np.isfinite(centre) and width >= least:
            ends = [-np.inf, np.inf]  # these become what the window shows as black and as white
            shown = apply_windowing(np.append(levels.values, ends), header, k)
            low, high = shown[-2:]
            light = np.clip((shown[:-2] - low) / ((high - low) or 1), 0, 1)
            if _shows_something(light, levels.counts):
                yield light
        notes.append("a window that shows nothing ignored")
    low, high = _range(levels, notes)
    yield np.clip((levels.values - low) / ((high - low) or 1), 0, 1)


def _by_lut(levels: _Levels, header: Any, table: Any) -> np.ndarray | None:
    """The light (n,) from 0 to 1 of each value by a VOI LUT; None by one that cannot be used."""
    from pydicom.pixels.processing import apply_voi

    header.VOILUTSequence = [table]
    try:
        shown = apply_voi(np.asarray(levels.values, dtype=np.int64), header)
        return np.asarray(np.clip(shown / (2.0 ** table.LUTDescriptor[2] - 1), 0, 1))
    except Exception:  # pydicom checks nothing in a LUT
        return None


def _numbers(value: Any) -> list[float]:
    """The numbers of an element with one value, several, or none."""
    values = [value] if isinstance(value, str | float | int) else value or []
    return [np.nan if number in (None, "") else float(number) for number in values]


def _shows_something(light: np.ndarray, counts: np.ndarray) -> bool:
    """Whether a window shows some pixels as neither black nor white, of a picture that has such."""
    grey = (light * 255 >= 0.5) & (light * 255 < 254.5)
    return bool(np.count_nonzero(counts) < 3 or counts[grey].sum() >= _LEAST_SHOWN * counts.sum())


def _range(levels: _Levels, notes: list[str]) -> tuple[float, float]:
    """The values to be shown as black and as white: the lowest and the highest, but for outliers.

    Those are one value, further from all others than these from each other, or a thousandth of the pixels
    at an end, if the range doubles by them.
    """
    order = np.argsort(levels.values, kind="stable")
    order = order[levels.counts[order] > 0]
    values, counts = levels.values[order], levels.counts[order]
    for rest in (slice(1, None), slice(None, -1)):
        if len(values) > 3 and np.ptp(values) > _TOO_FAR * np.ptp(values[rest]):
            notes.append("one value far from all others left out of the range")
            values, counts = values[rest], counts[rest]
    below = np.cumsum(counts) / counts.sum()
    low, high = values[np.searchsorted(below, _TAIL)], values[np.searchsorted(below, 1 - _TAIL)]
    if high > low and np.ptp(values) > _TOO_FAR * (high - low):
        notes.append("outliers, a thousandth of the pixels at an end, left out of the range")
        return float(low), float(high)
    return float(values[0]), float(values[-1])
