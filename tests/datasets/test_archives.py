"""Archives and images: hostile, damaged or mutated ones are a message; odd ones are read right."""

import gzip
import io
import struct
import tarfile
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from tarballs import GOOD, IMAGE, member, names, source, study, tar, write_tar

from conftest import must_fail
from cxrbench.common.errors import UserError
from cxrbench.datasets.archives import Encoded, read_images
from cxrbench.datasets.decoding import decode
from cxrbench.datasets.packed import pack, read_packed

OUTSIDE = "cxrbench-test-escaped.png"


@pytest.mark.fault(
    "a tarball holds links, devices, paths that lead out, repeated or foreign names",
    "refused by name; nothing is written",
)
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([member(f"/tmp/{OUTSIDE}", IMAGE)], "has an absolute path"),
        ([member(f"C:\\{OUTSIDE}", IMAGE)], "has an absolute path"),
        ([member(f"images/../../{OUTSIDE}", IMAGE)], "leads out of its folder"),
        ([member("images/..", IMAGE)], "leads out of its folder"),
        ([member("a.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")], "is a link to '/etc/passwd'"),
        ([member("a.png", type=tarfile.LNKTYPE, linkname="b.png")], "is a link to 'b.png'"),
        ([member("a.png", type=tarfile.SYMTYPE, linkname="\x1b]0;")], r"is a link to '\\x1b]0;'"),
        ([member("a.png", type=tarfile.CHRTYPE, devmajor=1, devminor=5)], "is a device"),
        ([member(f"images/{GOOD}", IMAGE), member(f"again/{GOOD}", IMAGE)], "was already read from"),
        ([member(f"images/{GOOD}", IMAGE), member(f"images/{GOOD.upper()}", IMAGE)], "was already read from"),
        ([member("images/holiday.png", IMAGE)], "holiday.png is not in NIH's label table"),
        ([member("\x1b[2J\nholiday.png", IMAGE)], r"\\x1b\[2J\\nholiday.png: image .* is not in"),
        ([member("images/b\u202egnp.exe.png", IMAGE)], r"b\\u202egnp.exe.png is not in"),
        ([member(f"images/{GOOD}", IMAGE[:-30])], "not a readable PNG"),
        ([member("images/readme.txt", b"hello")], "its tarballs hold no PNG"),
    ],
)
def test_a_hostile_tarball_is_named_and_writes_nothing(members, message, tmp_path: Path) -> None:
    write_tar(tmp_path / "raw/images_001.tar", tar(members))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message) as error:
        pack("d", source(tmp_path / "raw"), tmp_path / "packed")
    assert "images_001.tar" in str(error.value) or "hold no PNG" in message
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "packed", *before]
    assert "\x1b" not in str(error.value) and "\u202e" not in str(error.value)
    assert not Path("/tmp", OUTSIDE).exists()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(side: int) -> bytes:
    """A PNG of ``side`` x ``side`` zeros, compressed a thousandfold, with right checksums."""
    squeeze = zlib.compressobj(9, wbits=-15)
    row = squeeze.compress(bytes(side + 1)) + squeeze.flush(zlib.Z_FULL_FLUSH)  # may follow itself
    checksum = struct.pack(">HH", side * (side + 1) % 65521, 1)  # Adler-32 of so many zeros
    data = b"\x78\xda" + row * side + squeeze.flush() + checksum
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", data) + chunk(b"IEND", b"")


@pytest.mark.fault("an image of 3.6 GB is packed", "refused by its header")
@pytest.mark.parametrize(("side", "message"), [(9_000, "too many for"), (60_000, "decompression bomb")])
def test_a_bomb_of_a_png_is_not_decoded(side: int, message: str, tmp_path: Path) -> None:
    """9,000 a side is below Pillow's own limit, 60,000 would take 3.6 GB."""
    with Image.open(io.BytesIO(bomb(300))) as small:
        assert not np.asarray(small).any(), "the bomb is a real PNG"
    write_tar(tmp_path / "raw/images_001.tar", tar([member(f"images/{GOOD}", bomb(side))]))
    out = tmp_path / "packed/d/manifest.json"
    said = must_fail("data", "pack", "d", "--study", study(tmp_path, tmp_path / "raw"), "--out", out)
    assert GOOD in said and message in said and not out.exists()


def zipped(*pieces: bytes | int) -> bytes:
    """gzip data of these bytes, and of so many mebibytes of zeros: a kilobyte each."""
    data = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    for piece in pieces:
        squeeze = zlib.compressobj(9 if isinstance(piece, int) else 1, wbits=-15)
        plain, times = (bytes(1 << 20), piece) if isinstance(piece, int) else (piece, 1)
        data += (squeeze.compress(plain) + squeeze.flush(zlib.Z_FULL_FLUSH)) * times  # may follow itself
    return data + b"\x03\x00" + bytes(8)


def header(name: str, size: int, **fields: object) -> bytes:
    info, _ = member(name, **fields)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


WHOLE = header(f"images/{GOOD}", len(IMAGE)) + IMAGE + bytes(-len(IMAGE) % 512)
GIB = 1 << 30
MEMBERS = [part for k in range(40) for part in (header(f"{k}.txt", 32 << 20), 32)]
BOMBS = {
    **{
        f"header {kind!r}": ([WHOLE, header("x", 3 * GIB, type=kind), 3 << 10], "headers or padding")
        for kind in (b"L", b"K", b"x", b"g")  # long name, long link, pax, global pax
    },
    "zeros": ([8 << 10], "headers or padding"),
    "zeros after an image": ([WHOLE, 8 << 10], "headers or padding"),
    "members of zeros": (MEMBERS, "unpacks to over 100 times its size"),
    "chained names": ([header("././@LongLink", 1, type=b"L") * 900 + WHOLE], "damaged tarball|holds"),
    "a huge member": ([header(f"images/{GOOD}", 8 * 10**9), 1], "has 8,000,000,000 bytes, more than one may"),
}


@pytest.mark.fault("a tarball unpacks to gigabytes of headers or zeros", "refused after a mebibyte of them")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_of_a_tarball_is_refused(kind: str, tmp_path: Path) -> None:
    pieces, message = BOMBS[kind]
    path = tmp_path / "images_001.tar.gz"
    path.write_bytes(zipped(*pieces))
    assert path.stat().st_size < 20_000_000
    tracemalloc.start()
    with pytest.raises(UserError, match=rf"images_001.tar.gz: .*({message})"):
        list(read_images([path]))
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_long_reads_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrbench.datasets.archives._REPORT_EVERY", 1 << 16)
    path = write_tar(tmp_path / "images_001.tar", tar([member(name, IMAGE) for name in names(400)]))
    messages: list[str] = []
    assert len(list(read_images([path], messages.append))) == 400
    assert len(messages) > 3 and all("images_001.tar: 0.0 of 0.0 GB read" in text for text in messages)


def mutated(data: bytes, draw: st.DataObject) -> bytes:
    """``data`` with a few bytes changed, and perhaps cut short."""
    changed = bytearray(data)
    for place in draw.draw(st.lists(st.integers(0, 4000), min_size=1, max_size=6)):
        changed[place % len(data)] = draw.draw(st.integers(0, 255))
    return bytes(changed[: draw.draw(st.integers(0, 2 * len(data)))])


SMALL = [member("a" * 120 + "/" + GOOD, IMAGE), member("readme.txt", b"text"), member(names(2)[1], IMAGE)]
ANY = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.fault("random bytes of a tarball are changed", "a message or its images, no traceback")
@given(st.booleans(), st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]), st.data())
@ANY
def test_a_mutated_tarball_is_a_message_or_images(tmp_path: Path, zip: bool, format: int, draw) -> None:
    data = tar(SMALL, format)
    path = tmp_path / "images_001.tar.gz"  # recognised by its bytes
    path.write_bytes(mutated(gzip.compress(data, 1) if zip else data, draw))
    try:
        found = list(read_images([path]))
    except UserError as error:
        assert "images_001" in str(error)
    else:
        assert len(found) <= 2


@pytest.mark.fault("random bytes of a PNG are changed", "a message or an image, no traceback")
@given(st.data())
@ANY
def test_a_mutated_png_is_a_message_or_an_image(draw: st.DataObject) -> None:
    try:
        assert decode(Encoded(GOOD, "here.png", mutated(IMAGE, draw)), 16)[0].shape == (16, 16)
    except UserError as error:
        assert "here.png" in str(error)


@pytest.mark.fault("a PNG's chunk has a negative length, or its end is missing", "refused by name")
@pytest.mark.parametrize(
    ("end", "message"),
    [
        (b"\xff\xff\xff\xf0tEXt" + IMAGE[-12:], "chunk b'tEXt' has the negative length -16"),
        (b"\0\0\1\0tEXt" + IMAGE[-12:], "chunk b'tEXt' goes beyond the end"),
        (b"", "not a readable PNG"),
    ],
)
def test_a_png_is_read_to_its_end(end: bytes, message: str) -> None:
    assert IMAGE[-8:-4] == b"IEND"
    with pytest.raises(UserError, match=f"here.png: .*{message}"):
        decode(Encoded(GOOD, "here.png", IMAGE[:-12] + end), 16)


def squeezed(data: bytes) -> bytes:
    return gzip.compress(data, 1)


@pytest.mark.fault("a tarball is cut short or a header is damaged", "a message, not a shorter dataset")
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[: len(data) // 2], id="cut in half"),
        pytest.param(lambda data: data[:1024], id="cut at a member"),
        pytest.param(lambda data: data[:1024] + bytes([data[1024] ^ 255]) + data[1025:], id="bad header"),
        pytest.param(lambda data: squeezed(data[:1024]), id="cut, then zipped"),
        pytest.param(lambda data: squeezed(data)[:-20], id="zipped, then cut"),
        pytest.param(lambda data: squeezed(data)[:-6] + bytes(6), id="wrong checksum"),
    ],
)
def test_a_tarball_that_stops_early_is_not_taken_for_a_short_one(damage, tmp_path: Path) -> None:
    """tarfile itself ends at a damaged header, and at the end of a cut file, without a word."""
    path = tmp_path / "images_001.tar.gz"  # recognised by its bytes
    path.write_bytes(damage(tar([member(name, IMAGE) for name in names(50)])))
    with pytest.raises(UserError, match=r"images_001.* damaged tarball"):
        list(read_images([path]))


def test_zipped_parts_in_any_case_may_follow_each_other_and_zeros_the_last(tmp_path: Path) -> None:
    some = names(400)
    data = tar([member(f"IMAGES/{name.upper()}", IMAGE) for name in some])
    parts = [gzip.compress(data[:5000]), gzip.compress(b""), gzip.compress(data[5000:]), bytes(200_000)]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/images_001.TAR.GZ").write_bytes(b"".join(parts))
    (tmp_path / "raw/labels.csv.gz").write_bytes(gzip.compress(b"image,label\n"))  # no tarball
    pack("d", source(tmp_path / "raw"), tmp_path / "packed")
    assert read_packed(tmp_path / "packed/d").index["image"].tolist() == some


RAMP = np.tile(np.arange(32) * 8, (32, 1)).astype(np.uint8)
GREY, CLEAR = Image.fromarray(RAMP), Image.new("L", (32, 32))
INVERSE = Image.fromarray(255 - RAMP)
INVERSE.putpalette([255 - value for value in range(256) for _ in range(3)])


@pytest.mark.parametrize(
    ("mode", "image"),
    [
        ("L", GREY),
        ("I;16", Image.fromarray(RAMP.astype(np.uint16) * 257)),
        ("P", INVERSE),
        ("RGB", GREY.convert("RGB")),
        ("LA", Image.merge("LA", [GREY, CLEAR])),
        ("RGBA", Image.merge("RGBA", [GREY, GREY, GREY, CLEAR])),
    ],
)
def test_deep_palette_and_transparent_images_are_read_right(mode: str, image: Image.Image) -> None:
    """16-bit grey is scaled and not clipped; palettes are looked up; transparency does not darken."""
    image.save(data := io.BytesIO(), "PNG")
    image = decode(Encoded(GOOD, GOOD, data.getvalue()), 32)
    assert np.abs(image.pixels.astype(int) - RAMP).max() <= 1
    assert (image.mode, image.size) == (mode, "32x32")
