"""What the paper takes from the evidence: tables (LaTeX, CSV, Markdown) and a macro for every number."""

from __future__ import annotations

from pathlib import Path

from cxrbench.paper import artifact, measurements, provenance
from cxrbench.paper.items import Item, figures, tables
from cxrbench.paper.latex import escape, fitted, floating, macros
from cxrbench.paper.ledger import write_ledger
from cxrbench.paper.numbers import numbers
from cxrbench.paper.results import Results
from cxrbench.paper.systems import write_systems
from cxrbench.study.files import sha256_file, sha256_json, write_csv, write_text


def write_tables(results: Path, out: Path, study: Path, recorded: Path) -> None:
    """Write every table to ``out`` (LaTeX) and ``results``/tables (CSV, Markdown), and macros.tex last."""
    read = Results.read(results, study, recorded)
    for item in tables().values():
        _write_table(item, read, out)
    for item in figures().values():
        picture = rf"\includegraphics[width=\linewidth]{{figures/{item.name}}}"
        write_text(out / f"figure_{item.name}.tex", floating("figure", item, picture))
    write_text(out / "xla_listing.tex", measurements.xla_listing())
    write_ledger(read.claims, out)
    artifact.write_artifact(artifact.Artifact.read(read.claims, study, recorded), out)
    write_systems(recorded, out)
    # The one file that the graph waits for changes when any beside it does.
    beside = {path.name: sha256_file(path) for path in sorted(out.glob("*.tex")) if path.name != "macros.tex"}
    write_text(out / "macros.tex", f"% with tables {sha256_json(beside)}\n{macros(numbers(read))}")


def _write_table(item: Item, read: Results, out: Path) -> None:
    table, preamble = item.make(read)
    path = read.folder / "tables" / f"table_{item.name}"
    write_csv(path.with_suffix(".csv"), table)
    write_text(path.with_suffix(".md"), table.to_markdown(index=False) + "\n")
    text = r"\emph{Nothing of this has been run.}" + "\n"
    if len(table):
        shown = table.map(escape).rename(columns=escape)
        text = fitted(provenance.linked(shown, read, item.name), preamble)
    body = rf"\begin{{adjustbox}}{{max width=\linewidth}}\small{text}\end{{adjustbox}}"
    write_text(out / f"table_{item.name}.tex", floating("table", item, body))
