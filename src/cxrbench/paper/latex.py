"""LaTeX from data: escaping, macros, tables."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from cxrbench.paper.items import Item, figures, tables

_SPECIAL = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}
_LAST_LETTER = "\u017f"  # of Latin Extended-A
_ARGUMENT = r"\{((?:[^{}]|\{[^{}]*\})*)\}"
_CHOICE = re.compile(rf"\\if(any|many)\{{([^{{}}]*)\}}{_ARGUMENT}{_ARGUMENT}")
_WIDE = 8  # columns from which a table is made narrower
_LINE = 150  # letters from which a line below a table is broken
HEAD = "% Generated from evidence; do not edit.\n"


def escape(text: object, longest: int = 200) -> str:
    """Return ``text`` as LaTeX that prints it literally, on one line, cut after ``longest`` characters."""
    line = "".join(c if c.isprintable() else " " for c in str(text))[:longest]
    # A letter that the paper's fonts lack would end LaTeX; findings of one's own may have any.
    return "".join(_SPECIAL.get(c, "?" if c.isalpha() and c > _LAST_LETTER else c) for c in line)


def macros(values: dict[str, str]) -> str:
    r"""Return definitions for ``\val{key}``: each key and its text (already LaTeX)."""
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
    inside = [caption, body] if kind == "table" else [body, caption]
    lines = [rf"\begin{{{environment}}}{place}", r"\centering", *inside, rf"\end{{{environment}}}"]
    return HEAD + "\n".join(lines) + "\n"


def as_text(latex: str, values: dict[str, str]) -> str:
    r"""Return a caption as plain text: values for ``\val{key}``, titles for references, words chosen."""

    def chosen(match: re.Match[str]) -> str:
        kind, key, words, others = match.groups()
        return words if int(values.get(key, 0)) > (kind == "many") else others

    def title(match: re.Match[str]) -> str:
        kind, name = match.groups()
        found = {"tab": tables(), "fig": figures()}.get(kind, {}).get(name)
        return f"\u201c{found.title}\u201d" if found else "the paper"

    text = latex
    while _CHOICE.search(text):
        text = _CHOICE.sub(chosen, text)
    text = re.sub(r"\\val\{([^}]*)\}", lambda match: values.get(match[1], "not run"), text)
    text = re.sub(r"\\autoref\{(\w+):(\w+)\}", title, text)
    text = re.sub(r"\\SI\{(\d+)\}\{\\percent\}", r"\1 %", text)
    text = re.sub(r"\\(?:code|emph)\{([^{}]*)\}", r"\1", text).replace("~", " ")
    for character, written in {**_SPECIAL, "\u00b1": r"$\pm$", "\u2212": "$-$"}.items():
        text = text.replace(written, character)
    return " ".join(text.split())


def fitted(table: pd.DataFrame, columns: str) -> str:
    """Return a tabular that fits a page: what all rows share stands once below; a single row upright.

    ``table`` holds LaTeX texts, ``columns`` its preamble.
    """
    wide = len(table.columns) > _WIDE
    if len(table) == 1 and wide:
        return tabular(table.T.reset_index().set_axis(["", " "], axis=1), "ll")
    kinds = dict(zip(table.columns, re.findall(r"[pmbR]\{[^}]*\}|[lrc]", columns), strict=True))
    same = [column for column in table.columns if wide and table[column].nunique() == 1]
    kept = [column for column in table.columns if column not in same]
    if not same or not kept:
        return tabular(table, columns)
    shown = tabular(table[kept], "".join(kinds[column] for column in kept))
    shared = "; ".join(f"{column}: {table[column].iloc[0]}" for column in same if table[column].iloc[0])
    form = "l" if len(shared) < _LINE else "p{\\linewidth}"  # a long line would make the table smaller
    width = f"\\multicolumn{{{len(kept)}}}{{@{{}}{form}@{{}}}}"
    below = f"\\bottomrule\n{width}{{\\emph{{In all rows:}} {shared}}} \\\\"
    return shown.replace("\\bottomrule", below) if shared else shown


def tabular(table: pd.DataFrame, columns: str) -> str:
    """Return a booktabs tabular of a table whose texts are LaTeX already; ``columns`` is its preamble."""
    ragged = columns.replace("p{", "P{")  # main.tex: justified, narrow columns tear words apart
    text: str = table.style.hide(axis="index").to_latex(hrules=True, column_format=ragged)
    return HEAD + text


def longtable(table: pd.DataFrame, columns: str) -> str:
    """Return a table over several pages, of texts that are LaTeX already; ``columns`` is its preamble."""
    lines = [
        rf"\begin{{longtable}}{{{columns}}}",
        rf"\toprule {' & '.join(table.columns)} \\ \midrule \endhead",
        *(rf"{' & '.join(row)} \\" for row in table.itertuples(index=False)),
        r"\bottomrule",
        r"\end{longtable}",
    ]
    return HEAD + "\n".join(lines) + "\n"
