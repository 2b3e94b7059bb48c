"""The paper in LaTeX: a macro for every number, figures, tables that LaTeX lays out, and the PDF."""

import errno
import math
import os
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.common.files import explained, sha256_file, sha256_json, write_csv, write_text, written_aside
from cxrbench.paper.entries import must_agree
from cxrbench.paper.formats import KINDS, Table, Values, escape, latex
from cxrbench.paper.items import Item, as_latex, figures, printed, tables
from cxrbench.paper.ledger import claims_one_by_one
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of, write_values

_XLA = Path(__file__).parent.parent / "platforms/xla.py"
_WIDE = 7  # columns; a table with more is made narrower
_MOST = 11  # columns side by side: others stand below them
_PAGE_OF_ROWS = 40  # a longer table may break between pages
_WEIGHT = {"text": 3}  # of a column's width, by its kind
_RAGGED = {"l": r"\raggedright", "c": r"\centering", "r": r"\raggedleft"}
_LETTER, _GAP, _LINE = 4.7, 8, 461  # points: a letter of a long table, between its columns, a line
_SHORT = 28  # characters of a difference of four digits with its interval, which is not broken inside
HEAD = "% Generated from evidence; do not edit.\n"


def write_tables(read: Results, where: Mapping[str, Sequence[str]], out: Path) -> None:
    """Write every table to ``out`` (LaTeX) and beside the results (CSV, Markdown), then values.json and
    macros.tex.

    ``where``: the documents that name each key. Raises UserError where they and values.toml disagree.
    """
    must_agree(where)
    values = values_of(read, where)
    write_values(values, read.folder)
    for item in tables().values():
        table = item.make(read)
        path = read.folder / "tables" / f"table_{item.name}"
        write_csv(path.with_suffix(".csv"), table.texts)
        write_text(
            path.with_suffix(".md"), table.texts.to_markdown(index=False, disable_numparse=True) + "\n"
        )
        if item.in_paper:
            write_text(out / f"table_{item.name}.tex", placed(item, table))
    for item in printed(figures()):
        write_text(out / f"figure_{item.name}.tex", figure(item))
    write_text(out / "xla_listing.tex", xla_listing())
    write_text(out / "ledger.tex", listing(claims_one_by_one(read.claims)))
    # The one file that the graph waits for changes when any beside it does.
    beside = {path.name: sha256_file(path) for path in sorted(out.glob("*.tex")) if path.name != "macros.tex"}
    write_text(out / "macros.tex", f"% with tables {sha256_json(beside)}\n{macros(values)}")


def macros(values: Values) -> str:
    r"""Definitions for ``\val{key}``: each key and its value."""
    pairs = sorted((key, latex(str(value))) for key, value in values.items())
    lines = [rf"\expandafter\def\csname cxr@{key}\endcsname{{{text}}}" for key, text in pairs]
    return HEAD + "\n".join(lines) + "\n"


def figure(item: Item) -> str:
    """A figure as a float with the words, caption and label of its registered ``item``."""
    picture = rf"\includegraphics[width=\linewidth,alt={{{escape(item.alt)}}}]{{figures/{item.name}}}"
    lines = [r"\begin{figure}", r"\centering", picture, _caption(item, "fig"), r"\end{figure}"]
    return HEAD + "\n".join(lines) + "\n"


def _caption(item: Item, kind: str) -> str:
    return rf"\caption{{{as_latex(item.caption)}}}\label{{{kind}:{item.name}}}"


def placed(item: Item, table: Table) -> str:
    """A table with the caption and label of its registered ``item``.

    Columns of one value in a wide table move to a line below it; a wide table of a single row is transposed.
    """
    texts, kinds, below = table.texts, {head: table.kind(head) for head in table.rows}, ""
    if texts.empty:
        texts = pd.DataFrame({"": ["Nothing of this has been run."]})
    elif len(texts.columns) > _WIDE and len(texts) == 1:
        texts = texts.T.reset_index().set_axis(["", " "], axis=1)
    elif len(texts.columns) > _WIDE:
        same = [head for head in texts if texts[head].nunique() == 1]
        below = "; ".join(f"{head}: {texts[head].iloc[0]}" for head in same if texts[head].iloc[0])
        texts = texts.drop(columns=same)
    caption = _caption(item, "tab")
    if len(texts) > _PAGE_OF_ROWS:
        caption = caption.replace(r"\caption", r"\captionof{table}", 1)
        lines = [r"{\footnotesize", caption, *_lines_of_table(texts, kinds, below, "longtable*"), "}"]
    else:
        begin = r"\begin{table}\centering\footnotesize"
        lines = [begin, caption, *_lines_of_table(texts, kinds, below, "tabulary"), r"\end{table}"]
    return HEAD + "\n".join(lines) + "\n"


def listing(table: Table) -> str:
    """A table without a caption, over as many pages as it takes."""
    kinds = {head: table.kind(head) for head in table.rows}
    return HEAD + "\n".join(_lines_of_table(table.texts, kinds, "", "longtable*")) + "\n"


def xla_listing() -> str:
    """The marked lines of platforms/xla.py as LaTeX: each from its number to the next empty line."""
    blocks = re.findall(r"^[ ]*# \(\d\) (?:.*\S.*\n)+", _XLA.read_text(encoding="utf-8"), flags=re.M)
    blocks.sort(key=lambda block: (block.split(")")[0], "as well:" in block))  # what is "as well" comes last
    lines = [line for block in blocks for line in dedent(block).splitlines()]
    return "\\begin{verbatim}\n" + "\n".join(lines) + "\n\\end{verbatim}\n"


def _lines_of_table(
    texts: pd.DataFrame, kinds: Mapping[str, str], below: str, environment: str
) -> Iterator[str]:
    """Yield the lines of a table: LaTeX chooses the widths, no wider than the page."""
    first, *others = texts.columns
    parts = math.ceil(len(others) / _MOST) or 1
    size = math.ceil(len(others) / parts)
    sides = [kinds.get(head, "name") for head in texts.columns[: size + 1]]
    if environment == "longtable*":  # breaks between pages
        columns = "".join(_column_widths(texts.iloc[:, : size + 1], sides))
        yield r"\setlength{\extrarowheight}{2pt}"
        yield rf"\begin{{longtable*}}{{@{{}}{columns}@{{}}}}"
    else:
        columns = "".join(KINDS[kind].side.upper() for kind in sides)
        yield rf"\begin{{tabulary}}{{\linewidth}}{{@{{}}{columns}@{{}}}}"
    yield r"\toprule"
    for start in range(0, max(len(others), 1), size or 1):
        part = texts[[first, *others[start : start + size]]]
        repeated = (part == part.shift()).cumprod(axis=1).astype(bool)
        repeated.iloc[:, -1:] = False  # what the first columns share with the row above is said once
        yield r"\midrule " * (start > 0) + _line(part)
        yield r"\midrule \endhead" if environment == "longtable*" and not start else r"\midrule"
        yield from map(_line, part.mask(repeated, "").itertuples(index=False))
    yield r"\bottomrule"
    yield rf"\end{{{environment}}}"
    if below:
        yield rf"\par\smallskip\emph{{In all rows:}} {_cell_in_latex(below)}"


def _column_widths(texts: pd.DataFrame, kinds: Sequence[str]) -> Iterator[str]:
    """Yield the columns of a long table: as wide as the longest cell, or as the weight allows."""
    weights = [_WEIGHT.get(kind, 1) for kind in kinds]
    longest = [max(map(len, (head, *texts[head]))) for head in texts]
    needed = [(_LETTER * letters + _GAP) / _LINE for letters in longest]
    widths, line, weight = dict.fromkeys(range(len(kinds)), 0.0), 1.0, sum(weights)
    for k in sorted(widths, key=lambda k: needed[k] / weights[k]):
        widths[k] = min(needed[k], line * weights[k] / weight)
        line, weight = line - widths[k], weight - weights[k]
    gap = _GAP * (1 - 1 / len(kinds))  # there is none after the last
    for width, kind in zip(widths.values(), kinds, strict=True):
        share = rf"\dimexpr {width:.4f}\linewidth-{gap:g}pt\relax"
        yield rf">{{{_RAGGED[KINDS[kind].side]}\arraybackslash}}p{{{share}}}"


def _line(cells: Iterable[str]) -> str:
    return rf"{' & '.join(map(_cell_in_latex, cells))} \\"


def _cell_in_latex(text: str) -> str:
    """A text as LaTeX: a long name may break after a slash or an underscore, a short range or pair not."""
    shown = latex(text).replace("/", r"/\allowbreak{}").replace(r"\_", r"\_\allowbreak{}")
    return shown.replace(" to ", "~to~").replace(" : ", "~:~") if len(text) <= _SHORT else shown


# -- the PDF ----------------------------------------------------------------------------------------


def typeset(sources: Path, generated: Path, figures: Path, out: Path) -> str:
    """Build ``sources``/main.tex with ``generated`` and ``figures`` beside it, and put the PDF at ``out``.

    Returns its hash and the version of TeX, with which alone its bytes are the same.
    Raises UserError when LaTeX is missing or fails, with its first error; the log stays beside ``out``.
    """
    if shutil.which("latexmk") is None or shutil.which("pdflatex") is None:
        raise UserError(Path(__file__).with_name("no_latex.txt").read_text().strip())
    out.parent.mkdir(parents=True, exist_ok=True)
    log = out.with_suffix(".log")
    with tempfile.TemporaryDirectory(prefix="cxrbench-paper-") as name:
        build = Path(name)
        for path in (*sources.glob("*.tex"), *sources.glob("*.bib")):
            shutil.copy(path, build)
        shutil.copytree(sources / "sections", build / "sections")
        shutil.copytree(generated, build / "generated", ignore=shutil.ignore_patterns("*.pdf"))
        shutil.copytree(figures, build / "figures")
        _latexmk(build, log)
        with written_aside(out) as aside:
            shutil.copyfile(build / "main.pdf", aside)
    engine = re.search(r"^This is (\w+), Version [\d.]+-[\d.]+-([\d.]+) (\([^)]*\))", log.read_text("utf-8"))
    return f"{out}: sha256 {sha256_file(out)}, by {' '.join(engine.groups()) if engine else 'an unknown TeX'}"


def _latexmk(build: Path, log: Path) -> None:
    """Run latexmk in ``build`` and keep its log at ``log``."""
    # No date, no time zone, no user settings: what is in the folder decides the bytes.
    fixed = {"SOURCE_DATE_EPOCH": "0", "FORCE_SOURCE_DATE": "1", "TZ": "UTC", "LC_ALL": "C"}
    environment = os.environ | fixed | {"max_print_line": "1000"}
    command = ["latexmk", "-norc", "-pdf", "-latexoption=-no-shell-escape", "-interaction=nonstopmode"]
    command += ["-halt-on-error", "main.tex"]
    done = subprocess.run(
        command, cwd=build, env=environment, capture_output=True, encoding="utf-8", errors="replace"
    )
    text = build / "main.log"
    content = text.read_text(encoding="utf-8", errors="replace") if text.exists() else done.stdout
    log.write_text(content, encoding="utf-8")
    if done.returncode:
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]  # LaTeX is killed there, its log unwritten
        if limit > 0 and any(path.stat().st_size >= limit for path in build.iterdir() if path.is_file()):
            raise explained(OSError(errno.EFBIG, ""), log.with_suffix(".pdf")) or UserError(log)
        raise UserError(f"{_first_error(content.strip() or done.stdout)} (whole log: {log})")


def _first_error(log: str) -> str:
    """LaTeX's first error and the line of source it names; else the log's last line."""
    match = re.search(r"^! (.+?)$(?:.*?^(l\.\d+ .*?)$)?", log, flags=re.M | re.S)
    if match is None:
        last = next(iter(log.strip().splitlines()[::-1]), "nothing")
        return f"LaTeX failed without an error message; the last that it wrote is: {last}"
    return f"LaTeX: {match[1].rstrip('.')}" + (f" at {match[2]}" if match[2] else "")
