"""Text from evidence as a page may show it: nothing invisible, nothing endless."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

LONGEST = 2000  # characters of one text
LINES, WIDTH = 40, 400  # of the end of a log
_WINDOW = 1 << 18  # bytes of a log that are looked at


def plain(value: Any) -> Any:
    """``value`` as text without control, bidirectional or other invisible characters, cut when it is endless.

    Jinja calls this for every expression before it escapes it; what is markup already stays as it is.
    """
    if isinstance(value, Markup):
        return value
    text = "" if value is None else str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … [{len(text) - LONGEST:,} more characters]"
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if character.isprintable() or character == "\n":
        return character
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True)
class Tail:
    """The last lines of a log."""

    lines: list[str]
    size: int  # bytes of the whole log
    whole: bool  # whether nothing was left out before these lines


def tail(path: Path) -> Tail:
    """The last :data:`LINES` lines of a log, each cut after :data:`WIDTH` characters; reads its end only."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _WINDOW))
        lines = file.read().decode("utf-8", errors="replace").splitlines()
    if size > _WINDOW:
        lines[0] = f"… {lines[0]}"  # the window opens in the middle of it
    kept = lines[-LINES:]
    return Tail([_cut(line) for line in kept], size, size <= _WINDOW and len(kept) == len(lines))


def _cut(line: str) -> str:
    return line if len(line) <= WIDTH else f"{line[:WIDTH]} … [cut]"
