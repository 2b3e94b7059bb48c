"""The systems of all recorded cells: which machine, software and commit each recorded number comes from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from cxrbench.evidence.record import Record, read_record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.paper.latex import HEAD, escape
from cxrbench.study.cells import Cell, find_cells
from cxrbench.study.files import write_text

COLUMNS = ("System", "Machine", "Software", "Commit and date", "Cells")
_WIDTHS = "P{3.3cm}P{3.4cm}P{2.5cm}P{3.9cm}"  # P is ragged, see main.tex


def systems(recorded: Path) -> pd.DataFrame:
    """One row of texts per distinct system below ``recorded``, without cells whose evidence is refused."""
    evidence = EvidenceStore(recorded)
    cells = [
        cell for cell in (find_cells(recorded) if recorded.is_dir() else []) if not evidence.refused(cell)
    ]
    found: dict[tuple[str, str], list[tuple[Cell, Record]]] = {}
    for cell in cells:
        record = read_record(cell.folder(recorded))
        found.setdefault((_machine(record), _software(record)), []).append((cell, record))
    rows = [
        (f"S{number}", *system, _when(record for _, record in members), _named(cell for cell, _ in members))
        for number, (system, members) in enumerate(sorted(found.items(), key=lambda item: item[0]), start=1)
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def write_systems(recorded: Path, out: Path) -> None:
    """Write ``out``/systems.tex: the systems as a longtable, or a sentence when nothing is recorded."""
    table = systems(recorded)
    if table.empty:
        write_text(out / "systems.tex", HEAD + "\\emph{No cell is recorded.}\n")
        return
    lines = [
        rf"\begin{{longtable}}{{@{{}}l{_WIDTHS}@{{}}}}",
        rf"\toprule {' & '.join(COLUMNS)} \\ \midrule \endhead",
        *(" & ".join(_breakable(text) for text in row) + r" \\" for row in table.itertuples(index=False)),
        r"\bottomrule",
        r"\end{longtable}",
    ]
    write_text(out / "systems.tex", HEAD + "\n".join(lines) + "\n")


def _breakable(text: str) -> str:
    """LaTeX of a text whose long names of cells may be broken after a slash."""
    return escape(text, longest=2000).replace("/", r"/\allowbreak{}")


def _machine(record: Record) -> str:
    host = record.host
    parts = [f"{host.cpu}, {host.cores} cores, {host.memory_gib:g} GiB"]
    if host.device.startswith("CPU"):
        parts.append(host.device)
    else:
        memory = f", {host.device_memory_gib:g} GiB each" if host.device_memory_gib else ""
        parts.append(f"{host.device_count} x {host.device}{memory}")
    parts += [str(one) for one in (host.instance, host.os) if one]
    return "; ".join(parts)


def _software(record: Record) -> str:
    versions = {name: version for name, version in record.versions.items() if version}
    versions |= {"driver": record.host.driver or "", "SDK": record.host.sdk or ""}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version)


def _when(records: Iterable[Record]) -> str:
    """Commits, a changed work tree marked, with the days of their runs."""
    days: dict[str, list[str]] = {}
    for record in records:
        commit = record.commit[:7] + (" (changed)" if record.dirty else "")
        days.setdefault(commit, []).append(record.ended[:10])
    spans = ((commit, min(dates), max(dates)) for commit, dates in days.items())
    return "; ".join(
        f"{commit}, {first}" + (f" to {last}" if last != first else "") for commit, first, last in spans
    )


def _named(cells: Iterable[Cell]) -> str:
    """Names of cells, seeds of one group together as a pattern that every command takes apart again."""
    seeds: dict[str, list[int]] = {}
    for cell in cells:
        seeds.setdefault(f"{cell.dataset}/{cell.architecture}/{cell.platform}", []).append(cell.seed)
    return ", ".join(
        f"{group}/seed{numbers[0]}" if len(numbers) == 1 else f"{group}/seed{{{','.join(map(str, numbers))}}}"
        for group, numbers in seeds.items()
    )
