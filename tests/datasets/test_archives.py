"""Archives and images: hostile, damaged or mutated ones are a message; odd ones are read right."""

from __future__ import annotations

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
from tarballs import GOOD, IMAGE, chunk, member, names, source, study, tarball, whole_png

from conftest import cxrbench
from cxrbench.datasets.archives import Found, read_images
from cxrbench.datasets.nih import decode
from cxrbench.datasets.packed import pack, read_packed
from cxrbench.study.errors import UserError

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
        ([member(f"images\\..\\..\\{OUTSIDE}", IMAGE)], "leads out of its folder"),
        (
            [member("images/a.png", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
            "is a link to '/etc/passwd'",
        ),
        ([member("images/a.png", type=tarfile.LNKTYPE, linkname="b.png")], "is a link to 'b.png'"),
        ([member("images/a.png", type=tarfile.CHRTYPE, devmajor=1, devminor=5)], "is a device"),
        ([member("images/a.png", type=tarfile.FIFOTYPE)], "is a device or another special file"),
        ([member(f"images/{GOOD}", IMAGE), member(f"again/{GOOD}", IMAGE)], "was already read from"),
        ([member(f"images/{GOOD}", IMAGE), member(f"images/{GOOD.upper()}", IMAGE)], "was already read from"),
        ([member("images/holiday.png", IMAGE)], "holiday.png is not in NIH's label table"),
        ([member(f"images/{GOOD}", IMAGE[:-30])], "not a readable PNG"),
        ([member(f"images/{GOOD}", IMAGE[:20])], "not a readable PNG"),
        ([member(f"images/{GOOD}", b"")], "not a readable PNG"),
        ([member("images/readme.txt", b"hello")], "its tarballs hold no PNG"),
        ([member("images/..", IMAGE)], "leads out of its folder"),
        (
            [member("images/\x1b[2J\nholiday.png", IMAGE)],
            r"images/\\x1b\[2J\\nholiday.png: image .* is not in",
        ),
        ([member("images/a.png", type=tarfile.SYMTYPE, linkname="\x1b]0;")], r"is a link to '\\x1b]0;'"),
        ([member("images/b\u202egnp.exe.png", IMAGE)], r"b\\u202egnp.exe.png is not in"),
    ],
)
@pytest.mark.parametrize("suffix", [".tar.gz", ".tar"])
def test_a_hostile_tarball_is_named_and_writes_nothing(members, message, suffix, tmp_path: Path) -> None:
    tarball(tmp_path / f"raw/images_001{suffix}", members)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message) as error:
        pack("d", source(tmp_path / "raw"), tmp_path / "packed")
    assert f"images_001{suffix}" in str(error.value) or "hold no PNG" in message
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "packed", *before]
    assert "\x1b" not in str(error.value) and "\u202e" not in str(error.value)
    assert not Path("/tmp", OUTSIDE).exists()


def bomb(side: int) -> bytes:
    """A PNG of ``side`` x ``side`` zeros, compressed a thousandfold, with right checksums."""
    squeeze = zlib.compressobj(9, wbits=-15)
    row = squeeze.compress(bytes(side + 1)) + squeeze.flush(zlib.Z_FULL_FLUSH)  # may follow itself
    checksum = struct.pack(">HH", side * (side + 1) % 65521, 1)  # Adler-32 of so many zeros
    data = b"\x78\xda" + row * side + squeeze.flush() + checksum
    return whole_png(side, side, 8, 0, chunk(b"IDAT", data))


def test_the_bomb_is_a_real_png() -> None:
    with Image.open(io.BytesIO(bomb(300))) as image:
        assert image.size == (300, 300) and not np.asarray(image).any()


@pytest.mark.fault("an image of 3.6 GB is packed", "refused by its header")
@pytest.mark.parametrize(("side", "loose"), [(9_000, True), (60_000, False)])
def test_a_bomb_of_a_png_is_not_decoded(side: int, loose: bool, tmp_path: Path) -> None:
    """9,000 a side is below Pillow's own limit, 60,000 would take 3.6 GB."""
    raw = tmp_path / "raw"
    raw.mkdir()
    if loose:
        (raw / GOOD).write_bytes(bomb(side))
    else:
        tarball(raw / "images_001.tar", [member(f"images/{GOOD}", bomb(side))])
    out = tmp_path / "packed/d/manifest.json"
    done = cxrbench("data", "pack", "d", "--study", study(tmp_path, raw), "--out", out)
    assert done.returncode == 1 and GOOD in done.stderr and "Traceback" not in done.stderr
    assert "too many for a radiograph" in done.stderr or "decompression bomb" in done.stderr
    assert not out.exists()


def test_a_member_that_says_it_is_huge_is_not_read(tmp_path: Path) -> None:
    info = tarfile.TarInfo(f"images/{GOOD}")
    info.size = 10**12
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/images_001.tar.gz").write_bytes(gzip.compress(info.tobuf() + bytes(1024)))
    with pytest.raises(UserError, match=r"has 1,000,000,000,000 bytes, not the size of a radiograph"):
        pack("d", source(tmp_path / "raw"), tmp_path / "packed")


def zipped_zeros(mebibytes: int) -> bytes:
    """Deflated zeros without an end: they may follow each other, and each mebibyte takes a kilobyte."""
    squeeze = zlib.compressobj(9, wbits=-15)
    return (squeeze.compress(bytes(1 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)) * mebibytes


def bomb_of(*pieces: bytes | int) -> bytes:
    """gzip data of these bytes, and of so many mebibytes of zeros."""
    zipped = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    for piece in pieces:
        if isinstance(piece, int):
            zipped += zipped_zeros(piece)
        else:
            squeeze = zlib.compressobj(1, wbits=-15)
            zipped += squeeze.compress(piece) + squeeze.flush(zlib.Z_FULL_FLUSH)
    return zipped + b"\x03\x00" + bytes(8)


def header(name: str, size: int, **fields: object) -> bytes:
    info, _ = member(name, **fields)
    info.size = size
    return info.tobuf(tarfile.USTAR_FORMAT)


WHOLE = header(f"images/{GOOD}", len(IMAGE)) + IMAGE + bytes(-len(IMAGE) % 512)
GIB = 1 << 30
BOMBS = {
    "long name": (bomb_of(header("././@LongLink", 3 * GIB, type=b"L"), 3 << 10), "headers or padding"),
    "long link": (bomb_of(header("././@LongLink", 3 * GIB, type=b"K"), 3 << 10), "headers or padding"),
    "pax header": (bomb_of(header("pax", 3 * GIB, type=b"x"), 3 << 10), "headers or padding"),
    "pax after an image": (bomb_of(WHOLE, header("pax", 3 * GIB, type=b"x"), 3 << 10), "headers or padding"),
    "global pax header": (bomb_of(header("pax", 3 * GIB, type=b"g"), 3 << 10), "headers or padding"),
    "zeros": (bomb_of(8 << 10), "headers or padding"),
    "zeros after an image": (bomb_of(WHOLE, 8 << 10), "headers or padding"),
    "members of zeros": (
        bomb_of(*[part for k in range(40) for part in (header(f"{k}.txt", 32 << 20), 32)]),
        "unpacks to over 100 times its size",
    ),
    "chained names": (bomb_of(header("././@LongLink", 1, type=b"L") * 900 + WHOLE), "damaged tarball|holds"),
}


@pytest.mark.fault("a tarball unpacks to gigabytes of headers or zeros", "refused after a mebibyte of them")
@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_of_a_tarball_is_refused(kind: str, tmp_path: Path) -> None:
    data, message = BOMBS[kind]
    assert len(data) < 20_000_000
    path = tmp_path / "images_001.tar.gz"
    path.write_bytes(data)
    tracemalloc.start()
    with pytest.raises(UserError, match=rf"images_001.tar.gz: .*({message})"):
        list(read_images([path]))
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def test_long_reads_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrbench.datasets.archives._REPORT_EVERY", 1 << 16)
    path = tarball(tmp_path / "images_001.tar", [member(name, IMAGE) for name in names(400)])
    messages: list[str] = []
    assert len(list(read_images([path], messages.append))) == 400
    assert len(messages) > 3 and all("images_001.tar: 0.0 of 0.0 GB read" in text for text in messages)


def small_tarball(suffix: str, format: int) -> bytes:
    long = "a" * 120 + "/" + names(1)[0]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=format) as archive:
        for info, data in (member(long, IMAGE), member("readme.txt", b"text"), member(names(2)[1], IMAGE)):
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), 1) if suffix == ".tar.gz" else plain.getvalue()


SMALL = {
    (suffix, format): small_tarball(suffix, format)
    for suffix in (".tar", ".tar.gz")
    for format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)
}


@pytest.mark.fault("any bytes of a tarball are changed", "a message or its images, no traceback")
@given(st.sampled_from(sorted(SMALL)), st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_tarball_is_a_message_or_images(
    tmp_path: Path, kind: tuple[str, int], draw: st.DataObject
) -> None:
    data = bytearray(SMALL[kind])
    for place in draw.draw(st.lists(st.integers(0, 4000), min_size=1, max_size=6)):
        data[place % len(data)] = draw.draw(st.integers(0, 255))
    path = tmp_path / f"images_001{kind[0]}"
    path.write_bytes(data[: draw.draw(st.integers(0, 2 * len(data)))])
    try:
        found = list(read_images([path]))
    except UserError as error:
        assert "images_001" in str(error)
    else:
        assert len(found) <= 2


@pytest.mark.fault("any bytes of a PNG are changed", "a message or an image, no traceback")
@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_mutated_png_is_a_message_or_an_image(tmp_path: Path, draw: st.DataObject) -> None:
    data = bytearray(IMAGE)
    for place in draw.draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=6)):
        data[place] = draw.draw(st.integers(0, 255))
    (tmp_path / GOOD).write_bytes(IMAGE)
    found = Found(GOOD, "here.png", bytes(data[: draw.draw(st.integers(0, 2 * len(data)))]))
    try:
        assert decode(found, 16)[0].shape == (16, 16)
    except UserError as error:
        assert "here.png" in str(error)


def cut_end(data: bytes) -> bytes:
    return data[: len(data) // 2]


def cut_at_a_member(data: bytes) -> bytes:
    return data[:1024]


def bad_header(data: bytes) -> bytes:
    return data[:1024] + bytes([data[1024] ^ 255]) + data[1025:]


@pytest.mark.fault("a tarball is cut short or a header is damaged", "a message, not a shorter data set")
@pytest.mark.parametrize("suffix", [".tar.gz", ".tar"])
@pytest.mark.parametrize("damage", [cut_end, cut_at_a_member, bad_header])
def test_a_tarball_that_stops_early_is_not_taken_for_a_short_one(damage, suffix, tmp_path: Path) -> None:
    """tarfile itself ends at a damaged header, and at the end of a cut file, without a word."""
    path = tarball(tmp_path / "raw/images_001.tar", [member(name, IMAGE) for name in names(50)])
    data = damage(path.read_bytes())
    path.unlink()
    if suffix == ".tar.gz":
        data = gzip.compress(data)
    (tmp_path / f"raw/images_001{suffix}").write_bytes(data)
    with pytest.raises(UserError, match=r"images_001.* damaged tarball"):
        pack("d", source(tmp_path / "raw"), tmp_path / "packed")


@pytest.mark.parametrize("damage", [cut_end, lambda data: data[:-6], lambda data: data[:-6] + bytes(6)])
def test_gzips_own_checksum_is_compared(damage, tmp_path: Path) -> None:
    path = tarball(tmp_path / "raw/images_001.tar.gz", [member(name, IMAGE) for name in names(50)])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(UserError, match=r"images_001.tar.gz: damaged tarball"):
        pack("d", source(tmp_path / "raw"), tmp_path / "packed")


def test_zipped_parts_may_follow_each_other_and_zeros_the_last(tmp_path: Path) -> None:
    some = names(400)
    path = tarball(tmp_path / "raw/images_001.tar", [member(f"images/{name}", IMAGE) for name in some])
    data = path.read_bytes()
    path.unlink()
    parts = [gzip.compress(data[:5000]), gzip.compress(b""), gzip.compress(data[5000:]), bytes(200_000)]
    (tmp_path / "raw/images_001.tar.gz").write_bytes(b"".join(parts))
    pack("d", source(tmp_path / "raw"), tmp_path / "packed")
    assert read_packed(tmp_path / "packed/d").index["image"].tolist() == some


def test_names_in_other_case_are_the_same_images(tmp_path: Path) -> None:
    some = names(400)
    tarball(tmp_path / "raw/images_001.TAR.GZ", [member(f"IMAGES/{name.upper()}", IMAGE) for name in some])
    pack("d", source(tmp_path / "raw"), tmp_path / "packed")
    assert read_packed(tmp_path / "packed/d").index["image"].tolist() == some


ADAM7 = ((0, 8, 0, 8), (0, 8, 4, 8), (4, 8, 0, 4), (0, 4, 2, 4), (2, 4, 0, 2), (0, 2, 1, 2), (1, 2, 0, 1))


def raw_png(channels: list[np.ndarray], kind: int, depth: int = 8, interlaced: int = 0) -> bytes:
    """A PNG written here byte by byte: what Pillow reads is not judged by what Pillow writes."""
    samples = np.stack(channels, axis=2).astype(f">u{depth // 8}")
    passes = [samples[y::dy, x::dx] for y, dy, x, dx in ADAM7] if interlaced else [samples]
    rows = b"".join(b"\0" + row.tobytes() for some in passes for row in some)
    palette = (
        [chunk(b"PLTE", bytes(np.repeat(np.arange(255, -1, -1, dtype=np.uint8), 3)))] if kind == 3 else []
    )
    height, width, _ = samples.shape
    data = chunk(b"IDAT", zlib.compress(rows))
    return whole_png(width, height, depth, kind, *palette, data, interlaced=interlaced)


def test_deep_palette_and_transparent_images_are_read_right(tmp_path: Path) -> None:
    """16-bit grey is scaled and not clipped; palettes are looked up; transparency does not darken."""
    ramp = np.tile(np.arange(32) * 8, (32, 1))
    clear = np.zeros((32, 32))
    kinds = {
        "8-bit": raw_png([ramp], 0),
        "16-bit": raw_png([ramp * 257], 0, 16),
        "palette": raw_png([255 - ramp], 3),
        "colour": raw_png([ramp] * 3, 2),
        "grey with alpha": raw_png([ramp, clear], 4),
        "RGBA": raw_png([ramp, ramp, ramp, clear], 6),
        "RGBA 16-bit": raw_png([ramp * 257] * 3 + [clear], 6, 16),
        "interlaced": raw_png([ramp], 0, interlaced=1),
    }
    raw = tmp_path / "raw"
    raw.mkdir()
    filler = [raw_png([ramp], 0)] * 400
    for name, data in zip(names(400), [*kinds.values(), *filler], strict=False):
        (raw / name).write_bytes(data)
    pack("d", source(raw, pixels=32), tmp_path / "packed")
    packed = read_packed(tmp_path / "packed/d")
    for row, kind in enumerate(kinds):
        assert np.abs(packed.images[row].astype(int) - ramp).max() <= 1, kind
    assert {"L", "I;16", "P", "RGB", "LA", "RGBA"} == set(packed.manifest["source_modes"])
