"""Generated parts of hand-written Markdown: what stands between ``<!-- begin NAME -->`` and its end."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pandas as pd

from cxrbench.study.errors import UserError


def renewed(text: str, blocks: Mapping[str, str], name: str) -> str:
    """``text`` with every block in its place; UserError, which calls the file ``name``, when one has none."""
    for key, block in blocks.items():
        places = list(re.finditer(rf"<!-- begin {key} -->\n(.*?)<!-- end {key} -->", text, flags=re.S))
        if len(places) != 1:
            raise UserError(
                f"{name} has not one pair of markers <!-- begin {key} --> and <!-- end {key} -->; "
                "restore it with git"
            )
        start, end = places[0].span(1)
        text = text[:start] + block + text[end:]
    return text


def as_markdown(table: pd.DataFrame) -> str:
    """A table of texts as a Markdown table between empty lines; bars in texts are escaped."""
    rows = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    cells = ([str(text).replace("|", r"\|").replace("\n", " ") for text in row] for row in rows)
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in cells) + "\n"
