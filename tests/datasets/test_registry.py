"""The registry of downloads names what its publishers name, and its mistakes are errors with their line."""

from pathlib import Path

import pytest
from medmnist import INFO

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.datasets.registry import read_files

REGISTRY = ROOT / "data/registry.csv"


def test_nih_has_its_twelve_tarballs_and_45_gigabytes() -> None:
    files = read_files(REGISTRY, "nih")
    assert [file.name for file in files] == [f"images_{k:03}.tar.gz" for k in range(1, 13)]
    assert sum(file.size or 0 for file in files) == 45_079_862_784
    assert len({file.hash for file in files}) == len({file.url for file in files}) == 12
    assert [file.name for file in read_files(REGISTRY, "nih", "images_01*")] == [f.name for f in files[9:]]
    with pytest.raises(UserError, match="no file of nih matches 'x'; its files are images_001"):
        read_files(REGISTRY, "nih", "x")


def test_chestmnist_is_what_the_medmnist_package_names() -> None:
    info = INFO["chestmnist"]
    for file in read_files(REGISTRY, "chestmnist"):
        flag = file.name.removeprefix("chestmnist").removesuffix(".npz")
        assert (file.url, file.hash) == (info[f"url{flag}"], f"md5:{info[f'MD5{flag}']}")
        assert file.licence == info["license"]


def test_every_file_has_terms_and_a_citation() -> None:
    assert all(file.licence and "doi:" in file.citation for file in read_files(REGISTRY))


COLUMNS = ("dataset", "file", "url", "mirrors", "bytes", "hash", "licence", "citation")
VALUES = ("d", "a.gz", "https://example.org/a.gz", "", "5", "md5:" + "0" * 32, "CC0", "x")


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("file", "../a.gz", ":2: column file: '../a.gz' does not have the form of a file's name"),
        ("file", "/etc/passwd", "form of a file's name without a folder"),
        ("file", "a\\b", "form of a file's name without a folder"),
        ("url", "file:///a", "form of a web address"),
        ("mirrors", "https://b.org/a ftp://c.org/a", "'ftp://c.org/a' does not have the form of a web addr"),
        ("hash", "md5:123", "column hash: 'md5:123'"),
        ("hash", "crc:" + "0" * 32, "column hash: 'crc:"),
        ("bytes", "many", "column bytes: 'many' is not a whole number"),
        ("licence", "", "column licence: is empty"),
        ("citation", "x\n" + ",".join(VALUES).replace("a.gz", "A.gz", 1), ":3: .*second row for d A.gz"),
    ],
)
def test_a_wrong_line_is_named(column: str, value: str, message: str, tmp_path: Path) -> None:
    path, given = tmp_path / "registry.csv", dict(zip(COLUMNS, VALUES, strict=True)) | {column: value}
    path.write_text(",".join(COLUMNS) + "\n" + ",".join(given.values()) + "\n")
    with pytest.raises(UserError, match=message):
        read_files(path)
