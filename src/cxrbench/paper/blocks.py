"""Generated parts of hand-written Markdown: what stands between ``<!-- begin NAME -->`` and its end."""

import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from cxrbench.study.files import write_text
from cxrbench.study.names import UserError


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


def as_markdown(table: pd.DataFrame) -> str:
    """Return a table of texts as a Markdown table between empty lines; bars in texts are escaped."""
    rows = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    cells = ([str(text).replace("|", r"\|").replace("\n", " ") for text in row] for row in rows)
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in cells) + "\n"
