"""The generated parts of ARTIFACT.md: the main claims, and the experiments that show or can refute claims.

Claims and experiments are in data/claims.yaml.
Scores, tolerances and hours come from recorded evidence, so that a fresh cell changes none of them. A
person's minutes, which no evidence has, are an estimate.
"""

from itertools import groupby
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t

from cxrbench.claims.file import Experiment, read_claims
from cxrbench.claims.ledger import ClaimVerdict
from cxrbench.common.errors import UserError
from cxrbench.datasets.registry import hosted
from cxrbench.evidence.store import EvidenceStore
from cxrbench.paper.formats import ends, missing
from cxrbench.paper.ledger import computed
from cxrbench.paper.results import CLAIMS, Results
from cxrbench.results.matrix import NOT_RUN
from cxrbench.results.reproduction import tolerances
from cxrbench.statistics.metrics import ENDPOINT
from cxrbench.study.names import Cell, find_cells

REBUILD = "make paper-from-evidence"
REGISTRY = Path("data/registry.csv")
_LINES = (
    "Shows",
    "Bears on",
    "Expected",
    "In doubt if",
    "Your time",
    "Machine time",
    "Disk",
)  # of a section
_SHORT = 120  # seconds, and then minutes, that are printed as such


def main_claims(read: Results) -> pd.DataFrame:
    """The claims that the paper stands on: what is expected, what this build has, commands, time."""
    file, ledger = read_claims(CLAIMS), read.claims.set_index("id")
    if missing := [claim.id for claim in file.ours if claim.id not in ledger.index]:
        raise UserError(f"claims.csv is older than {CLAIMS}: it has no {missing[0]}; make it again")
    rebuild = next(
        (experiment for experiment in file.experiments.values() if experiment.command == REBUILD), None
    )
    took = _duration(rebuild.measured.seconds) if rebuild and rebuild.measured else "not measured"
    rows = [
        {
            "": claim.id,
            "Claim": claim.says,
            "Command": f"`{REBUILD}`, then `{file.experiments[claim.experiment].command}`",
            "Expected": _expected(ledger.loc[claim.id]),
            "Our build": _computed(ledger.loc[claim.id]),
            "Time": took,
            "Trained anew by": ", ".join(
                name for name, experiment in file.experiments.items() if experiment.bears_on == claim.id
            )
            or "-",
            "Refuted if": claim.refuted,
        }
        for claim in file.ours
        if claim.main
    ]
    return pd.DataFrame(rows)


def _computed(row: pd.Series) -> str:
    """The computed value of a claim, of a size its upper end, and its verdict."""
    verdict = str(row["verdict"])
    if verdict == ClaimVerdict.NOT_TESTABLE:
        return verdict
    size = row["computed_low"] == 0 < row["computed_high"]
    return f"{computed(row).removeprefix('0 to ') if size else computed(row)}: {verdict}"


def _expected(row: pd.Series) -> str:
    """The stated value of a claim, its unit and tolerance, from the ledger."""
    if row["stated"] == "":
        return "-"
    tolerance = row["tolerance"]
    given = "" if missing(tolerance) or not tolerance else f" ± {tolerance:g}"
    return f"{row['stated']}{given} {row['unit']}".strip()


def experiments(read: Results) -> pd.DataFrame:
    """E1 to En: command, what it shows, result with tolerance, time and disk."""
    file, rows = read_claims(CLAIMS), []
    for name, experiment in file.experiments.items():
        runs = groupby(file.ours, key=lambda claim: claim.experiment)
        ids = [[claim.id for claim in run] for shown_by, run in runs if shown_by == name]
        result, doubt, compute, disk = _outcome(experiment, read)
        row = {
            "": name,
            "Experiment": experiment.title,
            "Command": experiment.command,
            "Shows": ", ".join(ends(*dict.fromkeys((run[0], run[-1]))) for run in ids) or "-",
            "Bears on": experiment.bears_on,
            "Expected": f"{experiment.expect} {result}".strip(),
            "Your time": f"{experiment.human_minutes:g} min",
            "Machine time": compute,
            "Disk": disk,
            "In doubt if": doubt,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def _outcome(experiment: Experiment, read: Results) -> tuple[str, str, str, str]:
    """Result with tolerance, what would cast doubt on it, the machine's time, and disk."""
    cell, measured = experiment.cell, experiment.measured
    if measured:
        disk = f"{measured.disk_mib:g} MiB" if measured.disk_mib else "none"
        return "", "", f"{_duration(measured.seconds)} on {measured.where}", disk
    if cell is None:
        return "", "", "not measured", "not measured"
    store, packed = EvidenceStore(read.recorded), _sizes_on_disk(cell, read)
    record = store.record(cell)
    if record is None:
        return "Recorded: not run, so there is no result yet.", "", NOT_RUN, packed
    host, timing, scores = record.host, record.timing, tolerances(cell, read.recorded)
    texts = ", ".join(f"{line.name} {line.centre:.3f} ± {line.tolerance:.3f}" for line in scores)
    result = f"{texts} ({scores[0].origin})" if scores else f"status {record.status}"
    if scores and scores[0].mean is not None:
        result += f". This seed: {', '.join(f'{line.recorded:.3f}' for line in scores)}"
    doubt = "a score is outside its tolerance" if scores else ""
    also = store.record(experiment.beside) if experiment.beside else None
    if experiment.beside and also:
        apart = _apart(cell, experiment.beside, read)
        result += f". With {experiment.beside} the difference in mean AUROC is {apart[cell.seed]:+.4f}"
        if len(apart) > 1:
            most = max(map(abs, apart.values()))
            result += f", and at most {most:.4f} in the recorded pairs of {len(apart)} seeds"
        doubt = _doubt(experiment.within, [*apart.values()]) or doubt
    machine = f"{host.cores_used} cores ({host.cpu})" if host.device.startswith("CPU") else host.device
    machine += ", busy" * (record.busy or bool(also and also.busy))
    runs = [timing, *([also.timing] if also else [])]
    took = sum(
        run.setup_seconds + run.compile_seconds + run.train_seconds + run.evaluate_seconds for run in runs
    )
    return f"Recorded: {result}.", doubt, f"{_duration(took)} on {machine}", packed


def _doubt(within: float | None, apart: list[float]) -> str:
    """The difference of a pair that would cast doubt: more than ``within``, else outside the 95 % prediction
    interval of recorded differences ``apart``."""
    if within is not None:
        return f"the mean AUROC of the two differs by more than {within:g}"
    if len(apart) < 2:
        return ""
    half = t.ppf(0.975, len(apart) - 1) * np.std(apart, ddof=1) * (1 + 1 / len(apart)) ** 0.5
    low, high = (np.mean(apart) + sign * half for sign in (-1, 1))
    return (
        f"the difference lies outside {low:+.4f} to {high:+.4f}, where 19 of 20 pairs like the "
        f"{len(apart)} recorded ones would lie"
    )


def _apart(cell: Cell, beside: Cell, read: Results) -> dict[int, float]:
    """The difference in the main endpoint of two cells, and of the recorded other seeds of their settings."""
    first, second = (
        read.of((end.dataset, end.architecture, end.platform), "auroc", ENDPOINT) for end in (cell, beside)
    )
    values = [rows.drop_duplicates("seed").set_index("seed")["value"] for rows in (first, second)]
    return (values[0] - values[1]).dropna().to_dict()


def _duration(seconds: float) -> str:
    """Seconds in the unit that a person would take."""
    if seconds < _SHORT:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < _SHORT else f"{minutes / 60:.1f} h"


def _sizes_on_disk(cell: Cell, read: Results) -> str:
    """The size of a cell's download and of its packed images; unknown where no cell is recorded."""
    store = EvidenceStore(read.recorded)
    alike = (other for other in find_cells(read.recorded) if other.dataset == cell.dataset)
    record = next(filter(None, map(store.record, alike)), None)
    if record is None or cell.dataset not in read.study.datasets:
        return "not measured"
    identity, config = record.dataset, read.study.dataset(cell.dataset)
    if identity is None:
        return "-"
    size = sum(file.size or 0 for file in hosted(config, REGISTRY).values()) if REGISTRY.is_file() else 0
    packed = f"{sum(identity.images.values()) * config.pixels**2 / 2**20:.0f} MiB packed"  # a byte per pixel
    return f"{size / 1e9:.1f} GB download, {packed}" if size else packed


def as_sections(table: pd.DataFrame) -> str:
    """A section of Markdown for each experiment: its commands, then what has a value, a line each."""
    parts = []
    for row in table.to_dict("records"):
        commands = "\n".join(command.strip() for command in row["Command"].split(";"))
        lines = [f"- **{head}**: {row[head]}" for head in _LINES if row[head] not in ("", "-")]
        parts.append(
            "\n\n".join([f"### {row['']}. {row['Experiment']}", f"```sh\n{commands}\n```", "\n".join(lines)])
        )
    return "\n" + "\n\n".join(parts) + "\n\n"
