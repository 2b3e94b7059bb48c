"""The paper: tables (LaTeX, CSV, Markdown) and a macro for every number from evidence, then the PDF."""

import errno
import os
import re
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

from cxrbench.paper.items import figures, printed, tables
from cxrbench.paper.latex import figure, macros, placed, xla_listing
from cxrbench.paper.ledger import write_ledger
from cxrbench.paper.numbers import numbers
from cxrbench.paper.results import Results
from cxrbench.study.files import explained, sha256_file, sha256_json, write_csv, write_text, written_aside
from cxrbench.study.names import UserError


def write_tables(read: Results, out: Path) -> None:
    """Write every table to ``out`` (LaTeX) and beside the results (CSV, Markdown), and macros.tex last."""
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
    write_ledger(read.claims, out)
    # The one file that the graph waits for changes when any beside it does.
    beside = {path.name: sha256_file(path) for path in sorted(out.glob("*.tex")) if path.name != "macros.tex"}
    write_text(out / "macros.tex", f"% with tables {sha256_json(beside)}\n{macros(numbers(read))}")


def typeset(sources: Path, generated: Path, figures: Path, out: Path) -> None:
    """Build ``sources``/main.tex with ``generated`` and ``figures`` beside it, and put the PDF at ``out``.

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
