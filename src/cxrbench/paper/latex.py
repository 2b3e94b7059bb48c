"""LaTeX from data: escaping, macros, tables."""

import math
import re
from collections.abc import Sequence
from functools import cache
from itertools import permutations, product
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd

from cxrbench.paper.items import Item, figures, tables

Array = np.ndarray

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
_WIDE = 8  # a table with more columns than this is made narrower
_LETTERS = 8  # points of a table's letters: \footnotesize
_PAGES = (460, 708)  # points that a line has, upright and in landscape
_GAP = 8  # points between columns: twice \tabcolsep of main.tex
_SPARE = 2  # points of a text, for kerning and rounding
_LINES = 4  # of a row, on average, before a table takes a page in landscape
_STEPS = (32, 8)  # points that columns give to others
_RAGGED = 1.1
_PAGE_OF_ROWS = 40  # a longer table may break between pages
_MAY_BREAK = "\u200b"
_BREAK = re.compile(rf"(?<=[A-Za-z]-)|{_MAY_BREAK}|\s+")
HEAD = "% Generated from evidence; do not edit.\n"


def escape(text: object, longest: int = 200) -> str:
    """Return ``text`` as LaTeX that prints it literally, on one line, cut after ``longest`` characters."""
    line = "".join(c if c.isprintable() else " " for c in str(text))[:longest]
    # A letter that the paper's fonts lack would end LaTeX; a user's findings may have any.
    latex = "".join(_SPECIAL.get(c, "?" if c.isalpha() and c > _LAST_LETTER else c) for c in line)
    return re.sub("-(?=-)", "-{}", latex)  # else the font joins them


def breakable(latex: str) -> str:
    """Return LaTeX in which a long name may be broken after a slash."""
    return latex.replace("/", r"/\allowbreak{}")


def macros(values: dict[str, str]) -> str:
    r"""Return definitions for ``\val{key}``: each key and its text (already LaTeX)."""
    pairs = sorted(values.items())
    lines = [rf"\expandafter\def\csname cxr@{key}\endcsname{{{text}}}" for key, text in pairs]
    return HEAD + "\n".join(lines) + "\n"


def read_macros(path: Path) -> dict[str, str]:
    """Return the values that :func:`macros` has written to ``path``."""
    found = re.findall(r"csname cxr@(.*?)\\endcsname\{(.*)\}$", path.read_text(encoding="utf-8"), flags=re.M)
    return dict(found)


def figure(item: Item) -> str:
    """Return a figure as a float with the words, caption and label of its registered ``item``."""
    picture = rf"\includegraphics[width=\linewidth,alt={{{escape(item.alt, 1000)}}}]{{figures/{item.name}}}"
    lines = [r"\begin{figure}", r"\centering", picture, _caption(item, "fig"), r"\end{figure}"]
    return HEAD + "\n".join(lines) + "\n"


def _caption(item: Item, kind: str) -> str:
    return rf"\caption{{{item.caption}}}\label{{{kind}:{item.name}}}"


def with_words_chosen(latex: str, values: dict[str, str]) -> str:
    r"""Return ``latex`` with the words that ``\ifany`` and ``\ifmany`` choose."""

    def chosen(match: re.Match[str]) -> str:
        kind, key, words, others = match.groups()
        return words if int(values.get(key, 0)) > (kind == "many") else others

    while _CHOICE.search(latex):
        latex = _CHOICE.sub(chosen, latex)
    return latex


def as_text(latex: str, values: dict[str, str]) -> str:
    r"""Return a caption as plain text: values for ``\val{key}``, titles for references, words chosen."""

    def title(match: re.Match[str]) -> str:
        kind, name = match.groups()
        found = {"tab": tables(), "fig": figures()}.get(kind, {}).get(name)
        return f"\u201c{found.title}\u201d" if found else "the paper"

    text = with_words_chosen(latex, values)
    text = re.sub(r"\\val\{([^}]*)\}", lambda match: values.get(match[1], "not run"), text)
    text = re.sub(r"\\autoref\{(\w+):(\w+)\}", title, text)
    text = re.sub(r"\\SI\{([\d.]+)\}\{\\percent\}", r"\1 %", text)
    text = re.sub(r"\\(?:code|emph)\{([^{}]*)\}", r"\1", text).replace("~", " ").replace("-{}-", "--")
    for character, written in {**_SPECIAL, "\u00b1": r"$\pm$", "\u2212": "$-$"}.items():
        text = text.replace(written, character)
    return " ".join(text.split())


def placed(item: Item, table: pd.DataFrame, sides: str) -> str:
    """Return a table of LaTeX texts with the caption and label of its registered ``item``.

    ``sides`` has l, c or r for each column. Columns of one value in a wide table move to a line below it;
    a wide table of a single row is transposed.
    """
    wide, below = len(table.columns) > _WIDE, []
    if wide and len(table) == 1:
        table, sides = table.T.reset_index().set_axis(["", " "], axis=1), "ll"
    elif wide and (same := [name for name in table if table[name].nunique() == 1]):
        shared = "; ".join(f"{name}: {table[name].iloc[0]}" for name in same if table[name].iloc[0])
        sides = "".join(side for side, name in zip(sides, table, strict=True) if name not in same)
        table = table.drop(columns=same)
        span = rf"\multicolumn{{{len(table.columns)}}}{{@{{}}P{{\linewidth}}@{{}}}}"
        below = [rf"\midrule {span}{{\emph{{In all rows:}} {shared}}} \\"] if shared else []
    table = _stacked(table)
    preamble, landscape = _laid_out(table, sides[: len(table.columns)])
    kind = "flowing" if landscape or len(table) > _PAGE_OF_ROWS else "placed"
    head = rf"\begin{{{kind}}}{{{preamble}}}{{{_caption(item, 'tab')}}}{{{' & '.join(table)}}}"
    lines = [head, *_rows(table), *below, rf"\end{{{kind}}}"]
    return HEAD + "\n".join([r"\landscapepage{", *lines, "}"] if landscape else lines) + "\n"


def listing(table: pd.DataFrame) -> str:
    """Return a table of LaTeX texts without a caption, over as many pages as it takes."""
    preamble, _ = _laid_out(table, "l" * len(table.columns), _PAGES[:1])
    head = rf"\toprule {' & '.join(table)} \\ \midrule \endhead"
    lines = [rf"\begin{{longtable*}}{{{preamble}}}", head, *_rows(table), r"\bottomrule", r"\end{longtable*}"]
    return HEAD + "\n".join(lines) + "\n"


def _rows(table: pd.DataFrame) -> list[str]:
    """Return the lines of a table; what the first columns share with the row above is not repeated."""
    repeated = (table == table.shift()).cumprod(axis=1).astype(bool)
    repeated.iloc[:, -1:] = False
    return [rf"{' & '.join(row)} \\" for row in table.mask(repeated, "").itertuples(index=False)]


def _stacked(table: pd.DataFrame) -> pd.DataFrame:
    """Return ``table``; if no page is wide enough, its columns in parts below each other, with heads."""
    first, *others = table.columns
    size, stacked = len(others), table
    while size > 1 and len(table) and _least(stacked).sum() > _PAGES[-1] - _GAP * (len(stacked.columns) - 1):
        size = math.ceil(len(others) / (math.ceil(len(others) / size) + 1))
        rows: list[list[str]] = []
        for start in range(0, len(others), size):
            part = table[[first, *others[start : start + size]]]
            head, body = list(part), list[list[str]](part.to_numpy().tolist())
            if rows:  # LaTeX has drawn the rules of the first head
                head[0], body[0][0] = (rf"\midrule {row[0]}" for row in (head, body[0]))
            rows += [row + [""] * (size + 1 - len(row)) for row in (head, *body)]
        stacked = pd.DataFrame(rows[1:], columns=rows[0])
    return stacked


def _least(table: pd.DataFrame) -> Array:
    """Return the least width of each column in points: that of its longest word, the head's included."""
    columns = [[_printed(text) for text in (name, *table[name])] for name in table]
    words = [[part for text in column for part in _BREAK.split(text)] for column in columns]
    return np.array([max(map(_points, parts)) for parts in words])


def _laid_out(table: pd.DataFrame, sides: str, pages: Sequence[int] = _PAGES) -> tuple[str, bool]:
    """Return a preamble with a width for each column, and whether it needs the second of ``pages``."""
    columns = [[_printed(text) for text in (name, *table[name])] for name in table]
    word = _least(table)
    texts = np.array([[*map(_points, column)] for column in columns])  # the head first
    whole = np.maximum(word, texts[:, 1:].max(axis=1))
    for page in pages:
        room = page - _GAP * (len(columns) - 1)
        if whole.sum() <= room:
            widths = _between(whole, np.maximum(whole, texts[:, 0]), room)
            break
        widths = _fewest_lines(_between(word, whole, room), word, texts)
        if word.sum() <= room and _lines(widths, texts).max(axis=0).mean() <= _LINES:
            break
    kinds = {"l": "P", "c": "C", "r": "R"}
    preamble = "".join(f"{kinds[side]}{{{width:.0f}pt}}" for side, width in zip(sides, widths, strict=True))
    return f"@{{}}{preamble}@{{}}", page != pages[0]


def _between(least: Array, most: Array, room: float) -> Array:
    """Return widths that fit ``room``: ``most`` of each column, capped at one width, at least ``least``."""
    widths, low, high = least, 0.0, most.max()
    while high - low > 0.1:
        level = (low + high) / 2
        tried = np.maximum(least, np.minimum(most, level))
        fits = tried.sum() <= room
        widths, low, high = (tried, level, high) if fits else (widths, low, level)
    return np.floor(widths)


def _fewest_lines(widths: Array, least: Array, texts: Array) -> Array:
    """Return ``widths`` after moving points from column to column as long as that saves lines.

    Fractions of lines count too, so that a step is taken before it saves a whole line.
    """

    def measure(widths: Array) -> float:
        fractions = np.linalg.norm(texts / widths[:, None], 6, 0)
        return float(_lines(widths, texts).max(axis=0).sum() + fractions.sum())

    pairs = list(permutations(range(len(widths)), 2))
    fewest, saved = measure(widths), True
    while saved:
        saved = False
        for step, (giver, taker) in product(_STEPS, pairs):
            tried = widths.copy()
            tried[giver] -= step
            tried[taker] += step
            if tried[giver] >= least[giver] and (lines := measure(tried)) < fewest:
                widths, fewest, saved = tried, lines, True
    return widths


def _lines(widths: Array, texts: Array) -> Array:
    """Return the lines of each text (columns x rows), given the width of each in one line."""
    needed = texts / widths[:, None]
    # A line that ends before a word leaves some of its width empty.
    return np.ceil(np.where(needed > 1, needed * _RAGGED, needed))


def _points(text: str) -> float:
    """Return the width of ``text`` in the letters of a table."""
    return _LETTERS * sum(_widths().get(letter, 0.55) for letter in text) + _SPARE


@cache
def _widths() -> dict[str, float]:
    """Return the widths of Times' letters in em, from the metrics that matplotlib carries."""
    metrics = Path(matplotlib.get_data_path(), "fonts/afm/ptmr8a.afm").read_text(encoding="latin-1")
    found = re.findall(r"^C (\d+) ; WX (\d+)", metrics, flags=re.M)
    return {chr(int(code)): int(width) / 1000 for code, width in found} | {_MAY_BREAK: 0}


def _printed(latex: str) -> str:
    """Return what a cell of LaTeX prints, roughly, with a mark where it may be broken."""
    text = re.sub(r"\\href\{[^{}]*\}", "", latex)
    text = text.replace(r"\allowbreak{}", _MAY_BREAK).replace(r"\newline", " ")
    text = re.sub(r"\\text(\w)\w*\{\}", r"\1", text)
    return re.sub(r"\\[A-Za-z]+|[\\{}$]", "", text)
