"""LaTeX from data: escaping, macros, tables."""

from __future__ import annotations

import pandas as pd

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
HEAD = "% Generated from evidence; do not edit.\n"


def escape(text: object, longest: int = 200) -> str:
    """``text`` as LaTeX that prints it literally, on one line, cut after ``longest`` characters."""
    line = "".join(c if c.isprintable() else " " for c in str(text))[:longest]
    return "".join(_SPECIAL.get(character, character) for character in line)


def macros(values: dict[str, str]) -> str:
    r"""Definitions for ``\val{key}``: each key and its text (already LaTeX)."""
    lines = [
        rf"\expandafter\def\csname cxr@{key}\endcsname{{{text}}}" for key, text in sorted(values.items())
    ]
    return HEAD + "\n".join(lines) + "\n"


def tabular(table: pd.DataFrame, columns: str, header: list[str] | None = None) -> str:
    """A booktabs tabular of a table whose texts are LaTeX already; ``columns`` is its preamble."""
    body = table.set_axis(header, axis=1) if header else table
    text: str = body.style.hide(axis="index").to_latex(hrules=True, column_format=columns)
    return HEAD + text
