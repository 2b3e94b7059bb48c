"""Files that people edit: whatever bytes they hold, they are read, or their mistake is named."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT
from cxrbench.claims.file import read_claims
from cxrbench.common.errors import UserError, printable
from cxrbench.common.readers import Document, read_text
from cxrbench.cost.prices import read_prices
from cxrbench.datasets.registry import read_files
from cxrbench.datasets.split import assign_split
from cxrbench.evidence.expected import read_expected
from cxrbench.neuron.reports import read_reported
from cxrbench.paper.platform_reports import read_published
from cxrbench.results.literature import read_baselines
from cxrbench.study.config import read_study

EXPECTED = b"cell,status,reason\nnih128-64px/*/neuron/*,compile_failed,reported\nd/b/cpu/seed0,ok,\n"
SPLIT = b"image,split\n00000001_000.png,train\n00000002_000.png,test\n"


def split_of(path: Path) -> pd.Series:
    """The parts of two images in a split file."""
    images = ["00000001_000.png", "00000002_000.png"]
    return assign_split(pd.DataFrame({"image": images, "patient": [1, 2]}), str(path))


CSV: dict[str, tuple[Callable[[Path], Any], bytes]] = {
    "prices": (read_prices, (ROOT / "data/prices.csv").read_bytes()),
    "baselines": (read_baselines, (ROOT / "data/baselines.csv").read_bytes()),
    "reported": (read_reported, (ROOT / "data/reported.csv").read_bytes()),
    "published": (read_published, (ROOT / "data/published_comparisons.csv").read_bytes()),
    "registry": (read_files, (ROOT / "data/registry.csv").read_bytes()),
    "expected_status": (read_expected, EXPECTED),
    "split": (split_of, SPLIT),
}
YAML: dict[str, tuple[Callable[[Path], Any], bytes]] = {
    "study": (read_study, (ROOT / "config/config.yaml").read_bytes()),
    "smoke": (lambda path: Document(path).value, (ROOT / "config/smoke.yaml").read_bytes()),
    "claims": (read_claims, (ROOT / "data/claims.yaml").read_bytes()[:9000]),
}
PIECES = [
    b"\x00", b"\xff", b"\xc3", b"\x1b[31m", b'"', b",", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"nan",
    b"inf", b"-1", b"1e999", b"9" * 5000, b"2026-13-45", b"", b" ", b"..", b"'", b"&a ", b"*a", b"[", b"]",
    b"{", b"}", b": ", b"- ", b"? ", b"!!int ", b"<<: ", b"=", b"0x_", b"._", b"\xe2\x80\xa8", b"yes",
    b"null", b"|\n", b"#",
]  # fmt: skip
PIECE = st.sampled_from(PIECES) | st.binary(max_size=4)
CHANGE = st.tuples(st.integers(0, 10**6), st.integers(0, 12), PIECE)


@pytest.mark.fault(
    "random bytes in a CSV or YAML file that people edit", "file, line and column of the mistake"
)
@pytest.mark.parametrize("name", [*CSV, *YAML])
@settings(deadline=None, max_examples=50)
@given(changes=st.lists(CHANGE, min_size=1, max_size=4))
def test_any_bytes_in_a_file_are_read_or_named(name: str, changes, tmp_path_factory) -> None:
    """A mistake must be one printable message with its place in the file."""
    read, content = (CSV | YAML)[name]
    path = tmp_path_factory.getbasetemp() / name
    for start, length, piece in changes:
        at = start % (len(content) + 1)
        content = content[:at] + piece + content[at + length :]
    path.write_bytes(content)
    place = r":\d+:(\d+:| column)" if name in CSV else r":\d+:\d+: "
    try:
        read(path)
    except UserError as error:
        for line in str(error).split("\n"):
            assert printable(line) == line and len(line) < 2000
            assert re.match(rf"{re.escape(str(path))}{place}", line) or "split '" in line, line


@pytest.mark.fault("one wrong line in a CSV file that people edit", "the same message from every reader")
@pytest.mark.parametrize("name", CSV)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b: b + b"\xff", r":\d+:1: byte 0xff is not UTF-8"),
        (lambda b: b + b"a\0b", r":\d+:2: control character '\\x00'; remove it"),
        (lambda b: b + b"a,b,c,d,e,f,g,h,i,j,k,l,m,n", r":\d+: column \d+: 14 cells where the header has"),
        (lambda b: b + b'"a', r":\d+: column 1: not CSV \(unexpected end of data\)"),
        (lambda b: b + b.splitlines(True)[1], r": column \w+: second row for .*\(first in line 2\)"),
        (lambda b: b"x" + b, r":1: column 1: unknown column 'x\w+'; did you mean '\w+'\?"),
        (lambda b: b[b.index(b",") + 1 :], r":1: column \w+ is missing; the header is"),
        (lambda b: b[: b.index(b",") + 1] + b, r":1: column \d: (unknown|'\w+' occurs twice)"),
        (lambda b: b"", r":1: column \w+ is missing"),
    ],
)
def test_a_mistake_has_one_message_whatever_the_file(name: str, change, message: str, tmp_path: Path) -> None:
    read, content = CSV[name]
    path = tmp_path / f"{name}.csv"
    path.write_bytes(change(content))
    with pytest.raises(UserError, match=rf"{name}\.csv.*{message}"):
        read(path)


@pytest.mark.parametrize("name", CSV)
def test_byte_order_mark_line_ends_and_blank_lines_change_nothing(name: str, tmp_path: Path) -> None:
    read, content = CSV[name]
    path = tmp_path / f"{name}.csv"
    found = []
    for text in (content, b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"), content + b"\n\n"):
        path.write_bytes(text)
        found.append(read(path))
    for one in found[1:]:
        assert one.equals(found[0]) if hasattr(one, "equals") else one == found[0]


@pytest.mark.parametrize("text, place", [(b"a,b\n1,\xe9", "2:3"), (b"\xc3\xa9\xff", "1:2")])
def test_a_byte_that_is_not_utf8_is_named_behind_a_byte_order_mark(text: bytes, place: str, tmp_path) -> None:
    for mark in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "odd.csv").write_bytes(mark + text)
        with pytest.raises(UserError, match=rf"odd.csv:{place}: byte 0x(e9|ff) is not UTF-8"):
            read_text(tmp_path / "odd.csv")


def bomb(levels: int) -> str:
    """Each level is nine aliases of the one before."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]" for k in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.fault("aliases, nesting or numbers without end in YAML", "refused at the place, at once")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (bomb(10), r":6:\d+: more than 100,000 values, aliases expanded"),
        ("a: &a [*a]", ":1:8: .a is inside of what it stands for"),
        ("[" * 3000, ":1:51: nested deeper than 50 levels"),
        ("a:\n" + "".join(" " * k + "- \n" for k in range(1, 90)), "nested deeper|not YAML"),
        ("a: " + "9" * 5000, ":1:4: not YAML: a number of 5000 characters"),
        ("a: 1." + "9" * 5000, ":1:4: not YAML: a number of 5002 characters"),
        ("a: 2026-13-45", ":1:4: not YAML: month must be"),
        ("a: 0x_", ":1:4: not YAML"),
        ("a: !!python/object:os.system x", ":1:4: the tag .* is not used here"),
        ('a: "\\0"', r":1:4: control character '\\x00'"),
        ("a: 1\nb: {c: 1, c: 2}", ":2:11: key 'c' is given twice"),
        ("? [a]\n: 1", ":1:3: not YAML: found unhashable key"),
    ],
)
def test_what_would_never_end_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(UserError, match=rf"a\.yaml.*({message})"):
        Document(tmp_path / "a.yaml")


def test_aliases_and_merged_keys_that_end_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n")
    document = Document(tmp_path / "a.yaml")
    assert document.value["b"] == {"x": 1, "y": 3} and document.value["c"] == [{"x": 1, "y": 2}] * 2
    assert document.at("b", "y") == f"{tmp_path}/a.yaml:2:16"


def test_names_in_messages_cannot_steer_a_terminal() -> None:
    shown = str(UserError("'\x1b]0;x\x07\u202e': Müller\n5 µm"))
    assert shown == r"'\x1b]0;x\x07\u202e': Müller" + "\n5 µm"
