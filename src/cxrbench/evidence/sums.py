"""SHA256SUMS: the hash of every recorded file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cxrbench.study.errors import UserError
from cxrbench.study.files import remedy, sha256_file, write_text

SUMS = "SHA256SUMS"


def read_sums(root: Path) -> dict[str, str]:
    """Return the sha256 by path that ``root``/SHA256SUMS lists; nothing where there is no such file.

    A damaged line gives an entry that no file has.
    """
    path = root / SUMS
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def sums_of(root: Path) -> dict[str, str]:
    """Return the sha256 by path of every recorded file below ``root``, sorted by path."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith((".", SUMS)))
    return {p.relative_to(root).as_posix(): sha256_file(p) for p in files}


def sums_text(sums: dict[str, str]) -> str:
    """Return the text of SHA256SUMS, as `sha256sum --check` reads it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


@contextmanager
def updated_sums(root: Path) -> Iterator[None]:
    """``root``/SHA256SUMS after what is done inside; UserError before, when a file is not what it lists.

    Otherwise damage to a file that nobody has touched would get a sum of its own.
    """
    there = sums_of(root)
    if changed := [name for name, digest in read_sums(root).items() if there.get(name) != digest]:
        first = root / changed[0]
        raise UserError(f"{first} changed since the last record (files: {len(changed)}); {remedy(first)}")
    yield
    write_sums(root)


def write_sums(root: Path) -> None:
    """Update ``root``/SHA256SUMS; the signature of another text is removed, with a message."""
    path, text, signature = root / SUMS, sums_text(sums_of(root)), signature_of(root)
    if path.is_file() and path.read_bytes() == text.encode():
        return
    if signature.exists():
        signature.unlink()
        print(
            f"{signature}: removed, {SUMS} has changed; cxrbench record --sign makes another", file=sys.stderr
        )
    write_text(path, text)


def signature_of(root: Path) -> Path:
    """Return where the signature of ``root``/SHA256SUMS is."""
    return root / f"{SUMS}.sig"
