"""DICOM radiographs as grey pictures: the window of the file, MONOCHROME1 inverted, 8 to 16 bits.

DICOM PS3.3: pydicom applies C.11.1 (modality) and C.11.2 (window, VOI LUT); C.7.6.3.1.2 (photometric
interpretation) is applied here. What a window does to a pixel depends on its stored value alone, so it is
worked out once per value and looked up per pixel.
"""

import io
import zlib
from typing import Any

import numpy as np
from PIL import Image

from cxrbench.datasets.archives import Encoded
from cxrbench.datasets.decoding import MOST_PIXELS, Decoded, check_size, reduced
from cxrbench.study.names import UserError

_MOST_BITS = 16
_DEFLATED = b"1.2.840.10008.1.2.1.99"  # PS3.5 A.5: all behind the file meta information is one deflate stream
_MOST_UNPACKED = MOST_PIXELS * _MOST_BITS // 8 + (16 << 20)  # bytes of it: the largest picture, and a header


def decode_dicom(encoded: Encoded, pixels: int) -> Decoded:
    """Return a DICOM radiograph, reduced; UserError when it holds none, or one that cannot be read."""
    try:
        import pydicom
    except ImportError:
        raise UserError("pydicom is not installed; it reads DICOM: run `make setup`") from None
    try:
        header = (
            _inflated(encoded) if _DEFLATED in encoded.data else pydicom.dcmread(io.BytesIO(encoded.data))
        )
        kind = f"{header.get('PhotometricInterpretation')} {header.get('BitsStored')} bit"
        if reason := _no_radiograph(header):
            raise UserError(f"{encoded.where}: {reason}; remove its row")
        check_size((header.Columns, header.Rows), pixels, encoded.where)
        grey = Image.fromarray(_shown(header.pixel_array, header))
        return reduced(grey, pixels), kind, f"{grey.width}x{grey.height}"
    except UserError:
        raise
    except Exception as error:  # pydicom raises almost any for damaged files and absent decoders
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"{encoded.where}: not a readable DICOM file ({reason}); fetch it again, or write it "
            "uncompressed (dcmdjpeg, gdcmconv --raw)"
        ) from None


def _inflated(encoded: Encoded) -> Any:
    """Return the data set of a file that may be deflated; pydicom would unpack it without a bound."""
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
    if "PixelData" not in header:
        return "an empty DICOM file, without an image"
    if (kind := header.get("PhotometricInterpretation")) not in ("MONOCHROME1", "MONOCHROME2"):
        return f"a picture in {kind}, not a radiograph in MONOCHROME1 or MONOCHROME2"
    if int(header.get("NumberOfFrames") or 1) > 1:
        return f"{header.NumberOfFrames} frames instead of one radiograph"
    return f"more than {_MOST_BITS} bits a pixel" if header.BitsAllocated > _MOST_BITS else None


def _shown(stored: np.ndarray, header: Any) -> np.ndarray:
    """Return stored values (H, W) as a screen shows them, uint8, through the first window of the file.

    A file without a window is spread from its lowest to its highest value.
    """
    from pydicom.pixels.processing import apply_modality_lut, apply_voi, apply_windowing

    lowest = int(stored.min())
    values = apply_modality_lut(np.arange(lowest, int(stored.max()) + 1), header)
    if header.get("VOILUTSequence"):
        shown = apply_voi(np.asarray(values, dtype=np.int64), header).astype(np.float64)
        low, high = 0.0, 2.0 ** header.VOILUTSequence[0].LUTDescriptor[2] - 1
    elif "WindowCenter" in header and "WindowWidth" in header:
        ends = [-np.inf, np.inf]  # these become what the window shows as black and as white
        shown = apply_windowing(np.append(np.asarray(values, dtype=np.float64), ends), header)
        shown, (low, high) = shown[:-2], shown[-2:]
    else:
        shown, low, high = values, values.min(), values.max()
    light = np.clip((shown - low) / ((high - low) or 1), 0, 1)
    if header.PhotometricInterpretation == "MONOCHROME1":
        light = 1 - light
    return np.asarray(np.rint(light * 255).astype(np.uint8)[stored.astype(np.int32) - lowest])
