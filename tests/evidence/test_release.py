"""A build in the checkout of a release is held against the line of that release."""

from pathlib import Path

import pytest

from conftest import must_fail, must_work, ran

LOG = "This is pdfTeX, Version 3.141592653-2.6-1.40.24 (TeX Live 2022/Debian) (preloaded format=pdflatex)\n"


def commit(folder: Path) -> None:
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org", "-c", "commit.gpgsign=false")
    for words in (("add", "data", "code.py"), ("commit", "-qm", "x")):
        ran("git", *who, *words, cwd=folder, check=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A committed study and what a build made of it."""
    for name, text in {
        "data/expected_status.csv": "cell,status,reason\n",
        "data/releases.csv": "commit,tex,paper,macros\n",
        "code.py": "",
        "results/tables/cells.csv": "cell,status,origin,failure\na/b/cpu/seed0,ok,recorded,\n",
        "paper/paper.pdf": "%PDF",
        "paper/paper.log": LOG,
        "paper/generated/macros.tex": "x",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    ran("git", "init", "-q", cwd=tmp_path, check=True)
    commit(tmp_path)
    return tmp_path


@pytest.mark.fault("a build of a release gives another PDF or other numbers", "both hashes; exit code 1")
def test_a_build_of_a_release_is_compared_with_its_line(place: Path) -> None:
    first = must_work("expected.py", "--release", cwd=place).stdout
    line = first.splitlines()[-1]
    assert ",pdfTeX 3.141592653-2.6-1.40.24 (TeX Live 2022/Debian)," in line and "release" not in first
    with (place / "data/releases.csv").open("a") as releases:
        releases.write(f"{line}\n")
    commit(place)
    head = line[:12]
    assert f"This build gave what release {head} did." in must_work("expected.py", cwd=place).stdout
    (place / "paper/paper.pdf").write_text("another")
    assert "paper/paper.pdf: sha256 " in must_fail("expected.py", cwd=place)
    (place / "paper/paper.log").write_text(LOG.replace("2022", "2026"))
    assert "the PDF is not compared: pdfTeX 3.14" in must_work("expected.py", cwd=place).stdout
    (place / "paper/generated/macros.tex").write_text("y")
    said = must_fail("expected.py", cwd=place)
    assert "macros.tex: sha256 " in said and "paper.pdf" not in said
    (place / "code.py").write_text("changed")  # no release any more
    assert "release" not in must_work("expected.py", cwd=place).stdout
