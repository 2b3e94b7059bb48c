"""LaTeX from data: escaping, macros, tables."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from cxrbench.paper.items import Item, figures, tables

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
_WIDE = 8  # columns from which a table is made narrower
_LINE = 150  # letters from which a line below a table is broken
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


def read_macros(path: Path) -> dict[str, str]:
    """Return the values that :func:`macros` has written to ``path``."""
    found = re.findall(r"csname cxr@(.*?)\\endcsname\{(.*)\}$", path.read_text(encoding="utf-8"), flags=re.M)
    return dict(found)


def floating(kind: str, item: Item, body: str) -> str:
    """Return a table or figure as a float with the caption and label of its registered ``item``."""
    environment = "sidewaystable" if item.sideways else kind
    place = "" if item.sideways else "[htbp]"
    evidence = rf" \evidence{{{item.name}}}" if item.evidence else ""
    caption = rf"\caption{{{item.caption}{evidence}}}\label{{{kind[:3]}:{item.name}}}"
    lines = [rf"\begin{{{environment}}}{place}", r"\centering", caption, body, rf"\end{{{environment}}}"]
    return HEAD + "\n".join(lines if kind == "table" else [*lines[:2], body, caption, lines[-1]]) + "\n"


def as_text(latex: str, values: dict[str, str]) -> str:
    r"""Return a caption as plain text, ``values`` in place of ``\val{key}`` and titles of references."""

    def name(match: re.Match[str]) -> str:
        kind, key = match.groups()
        found = {"tab": tables(), "fig": figures()}.get(kind, {}).get(key)
        return f"\u201c{found.title}\u201d" if found else "the paper"

    text = re.sub(r"\\val\{([^}]*)\}", lambda match: values.get(match[1], "not run"), latex)
    text = re.sub(r"\\autoref\{(\w+):(\w+)\}", name, text)
    text = re.sub(r"\\SI\{(\d+)\}\{\\percent\}", r"\1 %", text)
    text = re.sub(r"\\(?:code|emph)\{([^{}]*)\}", r"\1", text)
    for character, written in {**_SPECIAL, "\u00b1": r"$\pm$", "\u2212": "$-$"}.items():
        text = text.replace(written, character) if character != "~" else text.replace("~", " ")
    return " ".join(text.split())


def fitted(table: pd.DataFrame, columns: str) -> str:
    """A table for a page: what is the same in all rows is said once, below it; a single row stands upright.

    ``table`` holds LaTeX texts, ``columns`` its preamble.
    """
    if len(table) == 1 and len(table.columns) > _WIDE:
        upright = table.T.reset_index().set_axis(["", " "], axis=1)
        return tabular(upright, "ll")
    kinds = re.findall(r"[pmbR]\{[^}]*\}|[lrc]", columns)
    same = [c for c in table.columns if len(table.columns) > _WIDE and table[c].nunique() == 1]
    kept = [c for c in table.columns if c not in same]
    if len(table) < 2 or not same or not kept:
        return tabular(table, columns)
    shown = tabular(table[kept], "".join(kinds[table.columns.get_loc(c)] for c in kept))
    said = "; ".join(f"{c}: {table[c].iloc[0]}" for c in same if table[c].iloc[0])
    form = "l" if len(said) < _LINE else "p{\\linewidth}"  # a long line would make the whole table smaller
    width = f"\\multicolumn{{{len(kept)}}}{{@{{}}{form}@{{}}}}"
    below = f"\\bottomrule\n{width}{{\\emph{{In all rows:}} {said}}} \\\\"
    return shown.replace("\\bottomrule", below) if said else shown


def tabular(table: pd.DataFrame, columns: str, header: list[str] | None = None) -> str:
    """A booktabs tabular of a table whose texts are LaTeX already; ``columns`` is its preamble."""
    body = table.set_axis(header, axis=1) if header else table
    ragged = columns.replace("p{", "P{")  # main.tex: justified, narrow columns tear words apart
    text: str = body.style.hide(axis="index").to_latex(hrules=True, column_format=ragged)
    return HEAD + text
