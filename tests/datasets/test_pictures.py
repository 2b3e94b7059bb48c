"""PNG and JPEG files of every make become the picture that they show; what looks odd afterwards is named."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageFont

from cxrbench.cli.data import data_sheet, pack_dataset
from cxrbench.common.errors import UserError
from cxrbench.datasets.archives import Encoded
from cxrbench.datasets.decoding import decode
from cxrbench.datasets.odd import lines_of, oddness
from cxrbench.datasets.packed import pack, read_packed
from own_images import a_source, drawn, encoded, written

GREY = np.kron(np.random.default_rng(0).integers(0, 256, (6, 8)), np.ones((8, 8))).astype(np.uint8)
STORED = {  # how a picture is stored that an orientation turns upright (EXIF 2.32, 4.6.4: where row 0 is)
    1: GREY,
    2: GREY[:, ::-1],
    3: GREY[::-1, ::-1],
    4: GREY[::-1],
    5: GREY.T,
    6: np.rot90(GREY),
    7: GREY[::-1, ::-1].T,
    8: np.rot90(GREY, -1),
}


def saved(image: Image.Image, kind: str, **how: object) -> bytes:
    image.save(data := io.BytesIO(), kind, **how)
    return data.getvalue()


def shown(data: bytes, bits: int | None = None) -> np.ndarray:
    return decode(Encoded("a", "here.png", data), 16, ("PNG", "JPEG"), colour=False, bits=bits).pixels.astype(
        int
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("orientation", [*STORED, 0, 9])
def test_exif_orientation_turns_the_picture_upright(orientation: int, kind: str) -> None:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    image = Image.fromarray(np.ascontiguousarray(STORED.get(orientation, GREY)))
    right = shown(encoded(GREY))
    assert np.abs(shown(saved(image, kind, exif=exif)) - right).max() <= (0 if kind == "PNG" else 6)
    if 1 < orientation < 9:
        assert np.abs(shown(saved(image, kind)) - right).max() > 20  # as it is stored


GREY_IMAGE = Image.fromarray(GREY)
MAKES: dict[str, Callable[[], bytes]] = {
    "alpha": lambda: saved(GREY_IMAGE.convert("LA"), "PNG"),
    "palette": lambda: saved(GREY_IMAGE.convert("P"), "PNG"),
    "RGB": lambda: saved(GREY_IMAGE.convert("RGB"), "PNG"),
    "RGBA": lambda: saved(GREY_IMAGE.convert("RGBA"), "PNG"),
    "16-bit": lambda: encoded(GREY.astype(np.uint16) * 257),
    "JPEG": lambda: saved(GREY_IMAGE, "JPEG", quality=95),
    "JPEG, RGB, progressive": lambda: saved(GREY_IMAGE.convert("RGB"), "JPEG", quality=95, progressive=True),
    "JPEG, CMYK": lambda: saved(GREY_IMAGE.convert("RGB").convert("CMYK"), "JPEG", quality=95),
    "broken EXIF": lambda: saved(GREY_IMAGE, "JPEG", quality=95, exif=b"Exif\0\0MM\0*\xff\xff"),
}


@pytest.mark.parametrize("make", MAKES)
def test_every_make_of_a_picture_is_that_picture(make: str) -> None:
    assert np.abs(shown(MAKES[make]()) - shown(encoded(GREY))).max() <= 6


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"here\.png: not a readable PNG or JPEG \(an empty file\); fetch it again"),
        (saved(GREY_IMAGE, "TIFF"), r"not a readable PNG or JPEG \(another format\)"),
        (
            encoded(np.full((20, 20), 5000, np.uint16)),
            "a pixel of 5,000, more than 12 bits hold; correct 'bits'",
        ),
    ],
)
def test_what_is_no_picture_is_said_without_a_word_of_python(data: bytes, message: str) -> None:
    with pytest.raises(UserError, match=message):
        shown(data, bits=12)


def test_twelve_bits_in_sixteen_are_refused_until_their_number_is_stated(tmp_path: Path) -> None:
    table = drawn()
    written(tmp_path, table)
    rng = np.random.default_rng(0)
    stored = {name: rng.integers(0, 4096, (20, 20)).astype(np.uint16) for name in table["image"]}
    for name, pixels in stored.items():
        (tmp_path / "images" / name).write_bytes(encoded(pixels))
    with pytest.raises(UserError, match=r"brightest pixel of 60 16-bit images has 12 bits.*'bits: 12'"):
        pack("own", a_source(tmp_path), tmp_path)
    odd = {}
    for bits in (12, 16):
        pack("own", a_source(tmp_path, bits=bits, pixels=20), tmp_path)
        packed = read_packed(tmp_path / "own")
        scaled = [np.rint(stored[name] * (255 / (2**bits - 1))) for name in packed.index["image"]]
        assert (packed.images == np.array(scaled)).all()
        odd[bits] = packed.manifest["odd"]
    assert odd[12] == {} and set(odd[16].values()) == {"17 grey levels"} and len(odd[16]) == 60


def deep(bits: int, row: int) -> bytes:
    """A 16-bit picture whose brightest pixel has so many bits."""
    pixels = np.random.default_rng(row).integers(0, 2**bits, (20, 20))
    pixels[0, 0] = 2**bits - 1
    return encoded(pixels.astype(np.uint16))


@pytest.mark.parametrize(
    ("most", "other", "stated", "note"),
    [
        (13, 16, None, "59 of 60 16-bit images use at most half of the range: they have 13 bits and are"),
        (15, 15, None, "60 of 60 16-bit images use at most half of the range: they have 15 bits and are"),
        (12, 12, 14, "scaled from 14; state 'bits: 12' in the config"),
        (16, 13, None, None),
        (16, 15, None, None),
        (12, 11, 12, None),
    ],
)
def test_unused_bits_are_said_and_images_of_another_depth_named(
    most: int, other: int, stated: int | None, note: str | None, tmp_path: Path
) -> None:
    table, said = drawn(), list[str]()
    source = written(tmp_path, table, bits=stated, pixels=20)
    for row, name in enumerate(table["image"]):
        (tmp_path / "images" / name).write_bytes(deep(other if row == 7 else most, row))
    pack("own", source, tmp_path, say=said.append)
    notes = [text for text in said if "16-bit images" in text]
    assert len(notes) == (note is not None) and (note or "") in "".join(notes)
    odd = read_packed(tmp_path / "own").manifest["odd"]
    why = f"its brightest pixel has {other} bits, that of most others {most}"
    assert odd == ({table["image"][7]: why} if abs(other - most) > 1 else {})
    assert ("save the odd ones with more in as many" in "".join(notes)) == (other == 16)


def lungs(row: int) -> np.ndarray:
    """A picture of two dark fields, as an exposure, a position and noise that depend on the row make it."""
    rng = np.random.default_rng(row)
    y, x = np.mgrid[-1:1:48j, -1:1:48j] + rng.uniform(-0.08, 0.08, (2, 1, 1))
    dark = np.exp(-(((np.abs(x) - 0.45) / 0.25) ** 2) - ((y + 0.1) / 0.5) ** 2)
    light = (0.8 + 0.1 * y - 0.6 * dark) * rng.uniform(0.8, 1.0) + rng.normal(0, 0.04, (48, 48))
    return (255 * np.clip(light, 0, 1) ** rng.uniform(0.8, 1.2)).astype(np.uint8)


ODD: dict[int, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    3: (np.rot90, "unlike the others"),
    11: (lambda image: 255 - image, "unlike the others"),
    17: (lambda image: image // 17, "grey levels"),
    23: (lambda image: np.full_like(image, 90), "1 grey level, 100 % of its pixels are equal"),
    29: (lambda image: np.where(np.arange(48) < 46, 0, image), "% of its pixels are equal"),
}


def test_odd_images_are_named_each_and_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = drawn()
    source = written(tmp_path, table, pixels=48)
    for row, name in enumerate(table["image"]):
        change = ODD[row][0] if row in ODD else lambda image: image
        (tmp_path / "images" / name).write_bytes(encoded(np.ascontiguousarray(change(lungs(row)))))
    pack_dataset("own", source, tmp_path, tmp_path / "recorded", workers=1)
    said = capsys.readouterr().err
    assert "5 of 60 images look odd" in said and "`cxrbench data sheet own`" in said
    for row, name in enumerate(table["image"]):
        assert (f"  {name}: " in said) == (row in ODD)
        if row in ODD:
            assert ODD[row][1] in said.partition(f"  {name}: ")[2].partition("\n")[0]
    assert "positive patients (train/val/test): Nodule/Mass " in said
    assert "no threshold can be tuned, so there will be no F1, for Nodule/Mass" in said
    rows = table[(table["Nodule/Mass"] == 1) & (table["split"] == "val")]
    positive = read_packed(tmp_path / "own").manifest["positive_patients"]
    assert positive["Nodule/Mass"]["val"] == rows["patient"].nunique()
    data_sheet("own", packed=tmp_path, out=tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.size == (1200, 5 * 256) and np.asarray(sheet).std() > 20  # four lines below each image


@pytest.mark.parametrize("share", [0.1, 0.25, 0.3, 0.45])
@pytest.mark.parametrize("images", [40, 400])
def test_inverted_images_are_all_named_while_most_others_are_sound(share: float, images: int) -> None:
    inverted = np.random.default_rng(0).permutation(images) < share * images
    drawn_images = np.stack([255 - lungs(k) if inverted[k] else lungs(k) for k in range(images)])
    named = (oddness(drawn_images)["why"] != "").to_numpy()
    assert named[inverted].all() and named[~inverted].mean() < 0.01


WORDS = "17 grey levels, 93 % of its pixels are equal, unlike the others (correlation -1.00)"


@pytest.mark.parametrize("text", [WORDS, "p0001/study1/view1_frontal.jpg", "W" * 70, ""])
def test_words_below_a_picture_are_whole_and_fit(text: str) -> None:
    font = ImageFont.load_default(11)
    lines = lines_of(text, font)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(font.getlength(line) <= 196 for line in lines)


def test_upright_images_of_a_sound_collection_are_not_named(tmp_path: Path) -> None:
    table = drawn()
    source = written(tmp_path, table, pixels=48)
    for row, name in enumerate(table["image"]):
        image = lungs(row)[:, :: -1 if row % 3 else 1]  # mirrored ones too
        (tmp_path / "images" / name).write_bytes(encoded(np.ascontiguousarray(image)))
    pack("own", source, tmp_path)
    assert read_packed(tmp_path / "own").manifest["odd"] == {}
