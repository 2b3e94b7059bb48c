"""Releases: which PDF a commit gives, a line each in data/releases.csv, and whether a build gave that one."""

import re
from pathlib import Path
from typing import ClassVar

from cxrbench.common.files import git, sha256_file
from cxrbench.common.readers import Row, Text, read_rows
from cxrbench.evidence.allowed import Commit
from cxrbench.study.recipe import Sha256

RELEASES = Path("data/releases.csv")
PAPER, MACROS = Path("paper/paper.pdf"), Path("paper/generated/macros.tex")
_TEX = re.compile(r"This is (pdfTeX), Version (\S{1,60} \([^(),]{1,60}\))")


class Release(Row):
    """A commit, and what a build of it gave with one version of TeX."""

    KEY: ClassVar = ("commit",)
    commit: Commit
    tex: Text
    paper: Sha256  # of the PDF; another TeX gives other bytes
    macros: Sha256  # of the numbers that it prints


def built(root: Path) -> Release | None:
    """What the last build in ``root`` gave, under the commit that is checked out; None without one."""
    pdf, macros = root / PAPER, root / MACROS
    head, log = git(root, "rev-parse", "HEAD"), pdf.with_suffix(".log")
    if not (head and pdf.is_file() and macros.is_file() and log.is_file()):
        return None
    with log.open(encoding="utf-8", errors="replace") as file:
        tex = _TEX.search(file.readline())
    hashes = {"paper": sha256_file(pdf), "macros": sha256_file(macros)}
    return Release(commit=head.strip(), tex=" ".join(tex.groups()) if tex else "unknown", **hashes)


def released(root: Path) -> Release | None:
    """The release that is checked out in ``root``; None where a tracked file differs from each."""
    if (root / RELEASES).is_file():
        for release in read_rows(root / RELEASES, Release).values():
            changed = git(root, "diff", "--name-only", release.commit, "--")
            if changed is not None and set(changed.split("\n")) <= {"", str(RELEASES)}:
                return release
    return None


def differences(recorded: Release, made: Release) -> list[str]:
    """What a build of a release gave otherwise; the PDF counts where TeX is the same."""
    compared = {"macros": MACROS} | ({"paper": PAPER} if made.tex == recorded.tex else {})
    return [
        f"{path}: sha256 {getattr(made, name)}, in {RELEASES} {getattr(recorded, name)}"
        for name, path in compared.items()
        if getattr(made, name) != getattr(recorded, name)
    ]
