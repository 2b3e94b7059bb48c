"""Generated parts of hand-written Markdown: what stands between ``<!-- begin NAME -->`` and its end."""

import re
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cxrbench.common.errors import UserError, printable
from cxrbench.common.files import write_text


def renew(path: Path, blocks: Mapping[str, str]) -> None:
    """Put every block in its place in the file ``path``; UserError where one has no place."""
    text = path.read_text(encoding="utf-8")
    for key, block in blocks.items():
        begin, end = f"<!-- begin {key} -->", f"<!-- end {key} -->"
        parts = re.split(rf"(?<={begin}\n).*?(?={end})", text, flags=re.S)
        if len(parts) != 2:
            raise UserError(f"{path} has not one pair of markers {begin} and {end}; restore it with git")
        text = block.join(parts)
    write_text(path, text)


def _escape(text: str) -> str:
    """A text as one cell of a table, without markup, control or bidirectional characters."""
    line = printable(unicodedata.normalize("NFC", " ".join(text.splitlines())))
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line.replace("|", r"\|"))


def as_markdown(table: pd.DataFrame) -> str:
    """A table of texts as a Markdown table between empty lines."""
    rows = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    cells = ([_escape(str(text)) for text in row] for row in rows)
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in cells) + "\n"
