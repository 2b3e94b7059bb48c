"""DICOM radiographs are shown as their window says, or refused by name."""

import importlib.util
import io
import re
import resource
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pydicom
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cxrbench.common.errors import UserError
from cxrbench.datasets.archives import Encoded
from cxrbench.datasets.dicom import decode_dicom
from cxrbench.datasets.packed import pack, read_packed
from own_images import dicom, drawn, picture, written

Make = Callable[[], bytes]
RAMP = np.linspace(0, 4095, 32 * 32).astype(np.uint16).reshape(32, 32)
SIGNED = (RAMP.astype(np.int32) - 2048).astype(np.int16)
WHOLE = RAMP / 4095 * 255
PADDED = RAMP.copy()
PADDED[10:13] = 60000
HALVES = np.where(RAMP < 2048, RAMP // 40, 4095 - (4095 - RAMP) // 40).astype(np.uint16)  # a real gap
FLOATS = (RAMP / 4095 / 2).astype(np.float32)
FLOAT = {"PixelData": None, "BitsAllocated": 32, "BitsStored": None, "HighBit": None}
COLOUR = np.zeros((32, 32, 3), np.uint8)


def shown(data: bytes, pixels: int = 32) -> np.ndarray:
    return decode_dicom(Encoded("a", "here.dcm", data), pixels)[0].astype(float)


def lut(first: int, values: np.ndarray) -> object:
    table = pydicom.Dataset()
    table.LUTDescriptor = [len(values), first, 16]
    table.LUTData = values.astype(np.uint16).tobytes()
    table["LUTData"].VR = "OW"
    return pydicom.Sequence([table])


def empty_lut() -> object:
    return pydicom.Sequence([pydicom.Dataset()])


def windowed(values: np.ndarray, centre: float, width: float) -> np.ndarray:
    """DICOM PS3.3 C.11.2.1.2.1, written out."""
    return np.clip((values - (centre - 0.5)) / (width - 1) + 0.5, 0, 1) * 255


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: dicom(RAMP), RAMP / 4095 * 255),
        (lambda: dicom(RAMP, WindowCenter=2000, WindowWidth=1000), windowed(RAMP, 2000, 1000)),
        (lambda: dicom(RAMP, WindowCenter=[2000, 9], WindowWidth=[1000, 9]), windowed(RAMP, 2000, 1000)),
        (lambda: dicom(RAMP, WindowCenter=2000, WindowWidth=1000, PhotometricInterpretation="MONOCHROME1"),
         255 - windowed(RAMP, 2000, 1000)),
        (lambda: dicom(SIGNED, RescaleSlope=2, RescaleIntercept=100, WindowCenter=500, WindowWidth=900),
         windowed(2.0 * SIGNED + 100, 500, 900)),
        (lambda: dicom(RAMP, WindowCenter=2000, WindowWidth=800, VOILUTFunction="SIGMOID"),
         255 / (1 + np.exp(-4 * (RAMP - 2000.0) / 800))),
        (lambda: dicom(RAMP, VOILUTSequence=lut(0, np.arange(4096) * 16)), RAMP * 16 / 65535 * 255),
        (lambda: dicom((RAMP / 16).astype(np.uint8)), (RAMP / 16).astype(np.uint8)),
        (lambda: dicom(np.full((32, 32), 7, np.uint16)), np.zeros((32, 32))),
        (lambda: dicom(RAMP, PixelAspectRatio=[2, 1]), WHOLE),  # squeezed to a square as any other
        (lambda: dicom(RAMP, WindowCenter="", WindowWidth=""), WHOLE),
        (lambda: dicom(RAMP, WindowCenter=2000, WindowWidth=0), WHOLE),
        (lambda: dicom(RAMP, WindowCenter=[9, 2000], WindowWidth=[0, 1000]), windowed(RAMP, 2000, 1000)),
        (lambda: dicom(RAMP, WindowCenter=9000, WindowWidth=100), WHOLE),
        (lambda: dicom(RAMP, WindowCenter=[9000, 2000], WindowWidth=[10, 900]), windowed(RAMP, 2000, 900)),
        (lambda: dicom(RAMP, WindowCenter=2000, WindowWidth=100), windowed(RAMP, 2000, 100)),
        (lambda: dicom(RAMP, RescaleSlope="", RescaleIntercept=""), WHOLE),
        (lambda: dicom(RAMP, RescaleSlope=0, RescaleIntercept=0), WHOLE),
        (lambda: dicom(RAMP, VOILUTSequence=empty_lut()), WHOLE),
        (lambda: dicom(RAMP, PresentationLUTShape="INVERSE"), 255 - WHOLE),
        (lambda: dicom(RAMP, PresentationLUTShape="IDENTITY"), WHOLE),
        (lambda: dicom(RAMP, PresentationLUTShape="INVERSE", PhotometricInterpretation="MONOCHROME1"),
         255 - WHOLE),
        (lambda: dicom(PADDED, PixelPaddingValue=60000), np.where(PADDED == 60000, 0, WHOLE)),
        (lambda: dicom(PADDED, PixelPaddingValue=60000, PixelPaddingRangeLimit=50000,
                       PhotometricInterpretation="MONOCHROME1"), np.where(PADDED == 60000, 0, 255 - WHOLE)),
        (lambda: dicom(RAMP, PixelPaddingValue=60000), WHOLE),
        (lambda: dicom(PADDED), np.where(PADDED == 60000, 255, WHOLE)),  # not declared
        (lambda: dicom(HALVES), HALVES / 4095 * 255),
        (lambda: dicom(RAMP, FloatPixelData=FLOATS.tobytes(), **FLOAT), FLOATS / 0.5 * 255),
        (lambda: dicom(RAMP)[132:], WHOLE),  # without preamble
        (lambda: dicom(RAMP)[144 + dicom(RAMP)[140] :], WHOLE),  # and without file meta information
    ],
)  # fmt: skip
def test_stored_values_are_shown_through_the_files_own_window(make: Make, expected: np.ndarray) -> None:
    assert np.abs(shown(make()) - expected).max() <= 0.51


def test_outliers_do_not_eat_the_range_and_are_said() -> None:
    ramp = np.linspace(1000, 3000, 64 * 64).astype(np.uint16).reshape(64, 64)
    hot = ramp.copy()
    hot[[5, 20, 40], [7, 9, 60]] = (40000, 50000, 65535)  # detector pixels
    clean, image = (decode_dicom(Encoded("a", "here.dcm", dicom(x)), 64) for x in (ramp, hot))
    assert np.median(np.abs(clean.pixels.astype(int) - image.pixels)) == 0 and image.pixels[5, 7] == 255
    assert np.abs(clean.pixels.astype(int) - image.pixels)[ramp == hot].max() <= 1
    assert clean.notes == () and image.notes == (
        "outliers, a thousandth of the pixels at an end, left out of the range",
    )


def luts(descriptor: list[int], entries: int, **more: object) -> object:
    """A LUT that declares other entries than it has, or none at all."""
    (table,) = lut(0, np.arange(entries))
    table.LUTDescriptor = descriptor
    if not entries:
        table.LUTData = None
    for name, value in more.items():
        setattr(table, name, value)
    return pydicom.Sequence([table])


UNKNOWN, LUT = "a window of an unknown VOI LUT Function ignored", "a VOI LUT that is empty, damaged or shows"


@pytest.mark.parametrize(
    ("tags", "note"),
    [
        ({"WindowCenter": 2000, "WindowWidth": 900, "VOILUTFunction": "FOO"}, UNKNOWN),
        ({"WindowCenter": 2000, "WindowWidth": 900, "VOILUTFunction": ["LINEAR", "SIGMOID"]}, UNKNOWN),
        (
            {"WindowCenter": 2000, "WindowWidth": 0.5, "VOILUTFunction": "linear"},
            "a window that shows nothing",
        ),
        ({"VOILUTSequence": luts([4096, 0, 16], 100)}, LUT),
        ({"VOILUTSequence": luts([4096, 0, 0], 4096)}, LUT),
        ({"VOILUTSequence": luts([4096, 0, 16], 0)}, LUT),
        ({"VOILUTSequence": luts([4096, 0, 16], 4096, LUTData=bytes(8192))}, LUT),
        ({"PixelPaddingValue": [1, 2]}, None),
    ],
)
def test_a_window_that_cannot_be_used_is_ignored_and_said(tags: dict, note: str | None) -> None:
    image = decode_dicom(Encoded("a", "here.dcm", dicom(RAMP, **tags)), 32)
    assert np.abs(image.pixels - WHOLE).max() <= 0.51
    assert [text[: len(note or "")] for text in image.notes] == ([note] if note else [])


def test_an_empty_voi_lut_function_is_linear() -> None:
    data = dicom(RAMP, WindowCenter=2000, WindowWidth=1000, VOILUTFunction="")
    assert np.abs(shown(data) - windowed(RAMP, 2000, 1000)).max() <= 0.51


@pytest.mark.parametrize(
    ("tags", "name"),
    [
        *[
            ({"ModalityLUTSequence": luts([4096, 0, 16], n, ModalityLUTType="US")}, "Modality LUT")
            for n in (0, 9)
        ],
        ({"ModalityLUTSequence": empty_lut()}, "Modality LUT"),
        ({"RescaleSlope": [1, 2], "RescaleIntercept": [0, 0]}, "Rescale Slope or Intercept"),
    ],
)
def test_values_whose_meaning_is_lost_are_refused_in_one_sentence(tags: dict, name: str) -> None:
    with pytest.raises(UserError, match=rf"^here\.dcm: its {name} cannot be used, .*; export it anew"):
        shown(dicom(RAMP, **tags))


REAL = Path(pydicom.__file__).parent / "data/test_files"
PICTURES = {  # of pydicom's own files; the others are in colour, films, dose, text, damaged or no images
    *(
        "693_J2KI",
        "CT_small",
        "J2K_pixelrep_mismatch",
        "JPEG2000",
        "MR_small",
        "MR_small_RLE",
        "liver_1frame",
    ),
    *("MR_small_bigendian", "MR_small_expb", "MR_small_implicit", "MR_small_jp2klossless", "MR_small_padded"),
    *("examples_overlay", "image_dfl", "liver_expb_1frame"),
}
LOSSLESS = "MR_small_jpeg_ls_lossless"


@pytest.mark.skipif(not REAL.is_dir(), reason="pydicom came without its test files")
def test_each_of_pydicoms_own_files_is_its_picture_or_a_sentence() -> None:
    found, said = {}, {}
    for path in sorted(REAL.glob("*.dcm")):
        try:
            found[path.stem] = decode_dicom(Encoded(path.name, path.name, path.read_bytes()), 16).pixels
        except UserError as error:
            said[path.stem] = str(error)
    assert set(found) - {LOSSLESS} == PICTURES
    assert all(re.fullmatch(r"[\w.+-]+\.dcm: [^\n]{20,330}", text) for text in said.values())
    assert not [text for text in said.values() if "plugin" in text or text.rstrip(")").endswith(":")]
    for name in sorted(set(found) & {name for name in PICTURES | {LOSSLESS} if name.startswith("MR_small_")}):
        np.testing.assert_array_equal(found[name], found["MR_small"], err_msg=name)
    header = pydicom.dcmread(REAL / "MR_small.dcm")
    expected = windowed(header.pixel_array, header.WindowCenter, header.WindowWidth)
    whole = shown((REAL / "MR_small.dcm").read_bytes(), 64)
    assert np.abs(whole - expected).max() <= 0.51
    if importlib.util.find_spec("gdcm"):
        assert LOSSLESS in found
    else:
        assert "compressed as JPEG-LS Lossless Image Compression, which nothing" in said[LOSSLESS]
        assert "install python-gdcm" in said[LOSSLESS]
    assert "'JPEG Extended' for samples with 12-bit precision" in said["JPGExtended"]


@pytest.mark.skipif(importlib.util.find_spec("gdcm") is None, reason="python-gdcm is not installed")
@pytest.mark.fault("a JPEG-LS file ends its decoder", "a message; the next file is read by a new one")
def test_a_file_that_ends_its_decoder_is_one_message() -> None:
    data = (REAL / f"{LOSSLESS}.dcm").read_bytes()
    broken = bytearray(data)
    broken[data.rfind(b"\xff\xd8") + 6] = 63  # bits a pixel
    with pytest.raises(UserError, match=r"here\.dcm: .*its pixels are damaged: the decoder stopped"):
        shown(bytes(broken), 16)
    np.testing.assert_array_equal(shown(data, 16), shown((REAL / "MR_small.dcm").read_bytes(), 16))


def test_what_nothing_decodes_is_named_with_what_would() -> None:
    header = pydicom.dcmread(io.BytesIO(dicom(RAMP)))
    header.file_meta.TransferSyntaxUID = pydicom.uid.HTJ2KLossless
    header.PixelData = pydicom.encaps.encapsulate([b"\0" * 100])
    header["PixelData"].is_undefined_length = True
    pydicom.dcmwrite(file := io.BytesIO(), header, enforce_file_format=True)
    with pytest.raises(UserError, match=r"High-Throughput JPEG 2000.*which nothing that is installed here"):
        shown(file.getvalue())


@pytest.mark.fault("a DICOM file is empty, in colour, a film or damaged", "refused by name, with a remedy")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dicom(RAMP, PixelData=None), "here.dcm: an empty DICOM file, without an image; remove"),
        (lambda: dicom(COLOUR, PhotometricInterpretation="RGB"), "a picture in RGB, not"),
        (lambda: dicom(RAMP, NumberOfFrames=4), "4 frames instead of one radiograph"),
        (lambda: dicom(RAMP[:8, :8]), "8 x 8 px, less than the 32 px asked for"),
        (lambda: dicom(RAMP.astype(np.uint32)), "more than 16 bits a pixel"),
        (lambda: dicom(RAMP)[:-900], "not a readable DICOM file"),
        (lambda: dicom(RAMP, PhotometricInterpretation=None), "no Photometric Interpretation says whether"),
        (lambda: dicom(RAMP)[:200], "not a readable DICOM file|an empty DICOM file"),
        (lambda: b"\x08\0hello", "not a readable DICOM file|an empty DICOM file"),
        (lambda: b"", "not a readable DICOM file"),
        (lambda: b"hello", "not a readable DICOM file"),
    ],
)
def test_what_is_no_radiograph_is_refused_by_name(make: Make, message: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UserError, match=message) as error:
            shown(make())
    assert "here.dcm" in str(error.value)


def deflated(pixels: np.ndarray, padding: int = 0) -> bytes:
    """The bytes of a deflated DICOM file with so many zeros in a private element, made in little memory."""
    plain = dicom(pixels)
    syntax = plain.index(b"1.2.840.10008.1.2.1\0")
    length, value = plain[syntax - 2 : syntax], b"1.2.840.10008.1.2.1.99"
    assert length == b"\x14\0"
    start = 144 + int.from_bytes(plain[140:144], "little")  # behind the file meta information
    meta = plain[: syntax - 2] + b"\x16\0" + value + plain[syntax + 20 : start]
    meta = meta[:140] + (start - 144 + 2).to_bytes(4, "little") + meta[144:]
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    parts = [packer.compress(plain[start:])]
    if padding:
        parts.append(packer.compress(b"\xe1\x7f\x10\x00OB\0\0" + padding.to_bytes(4, "little")))
        parts += [packer.compress(bytes(1 << 20)) for _ in range(padding >> 20)]
    return b"".join([meta, *parts, packer.flush()])


def test_a_deflated_file_is_shown_as_its_plain_one() -> None:
    assert (shown(deflated(RAMP)) == shown(dicom(RAMP))).all()
    assert (shown(deflated(RAMP, padding=1 << 20)) == shown(dicom(RAMP))).all()
    named = dicom(RAMP, AvailableTransferSyntaxUID="1.2.840.10008.1.2.1.99")
    assert (shown(named) == shown(dicom(RAMP))).all()


@pytest.mark.fault("a small DICOM file unpacks to gigabytes", "refused after 144 MiB of them")
def test_a_deflated_bomb_is_refused_before_it_fills_the_memory() -> None:
    bomb = deflated(RAMP, padding=1 << 29)
    assert len(bomb) < 4 << 20
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=r"here\.dcm: unpacks to more than 144 MiB, as no"):
        shown(bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 << 10  # KiB


@pytest.mark.fault("random bytes of a DICOM file are changed", "a message or an image, no traceback")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(places=st.lists(st.tuples(st.integers(128, 800), st.integers(0, 255)), min_size=1, max_size=4))
def test_a_mutated_file_is_a_message_or_an_image(places) -> None:
    data = bytearray(dicom(RAMP, WindowCenter=2000, WindowWidth=1000))
    for place, value in places:
        data[place] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            assert shown(bytes(data), 16).shape == (16, 16)
        except UserError as error:
            assert "here.dcm" in str(error)


def test_a_table_may_name_dicom_files_with_and_without_a_suffix(tmp_path: Path) -> None:
    table = drawn()
    suffix = np.where(np.arange(len(table)) % 2, ".dicom", "")
    table["image"] = table["image"].str.removesuffix(".png") + suffix
    source = written(tmp_path, table)
    for row, name in enumerate(table["image"]):
        data = dicom(picture(row), WindowCenter=128, WindowWidth=256)
        (tmp_path / "images" / name).write_bytes(data)
    pack("own", source, tmp_path / "packed")
    packed = read_packed(tmp_path / "packed/own")
    assert packed.manifest["source_modes"] == {"MONOCHROME2 8 bit": 60}
    grey = tmp_path / "grey"
    pack("own", written(grey, drawn()), grey)
    direct = read_packed(grey / "own")
    by_name = dict(zip(packed.index["image"].str.partition(".")[0], packed.images, strict=True))
    for name, pixels in zip(direct.index["image"], direct.images, strict=True):
        np.testing.assert_array_equal(by_name[name.removesuffix(".png")], pixels)
