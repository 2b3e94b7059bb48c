"""The artifact appendix: major claims, the experiments that show them, and where each criterion is proved.

Claims and experiments are in data/claims.yaml, the criteria of artifact committees in data/criteria.csv.
Scores, tolerances, hours and money come from recorded evidence, so that a fresh cell changes none of it; what
no evidence can tell, a person's minutes, is an estimate and is called one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pandas as pd

from cxrbench.analysis.cells import NOT_RUN
from cxrbench.analysis.compare import tolerances
from cxrbench.claims import Claim, Claims, Experiment, read_claims
from cxrbench.claims.model import OURS
from cxrbench.cost.cells import cost_table, pricing_of
from cxrbench.evidence.record import RECORD, read_record
from cxrbench.evidence.store import EvidenceStore
from cxrbench.paper.blocks import as_markdown, renewed
from cxrbench.paper.latex import escape, tabular
from cxrbench.paper.ledger import CLAIMS
from cxrbench.paper.systems import systems
from cxrbench.study.cells import Cell
from cxrbench.study.config import Study, read_study
from cxrbench.study.errors import UserError
from cxrbench.study.files import write_text
from cxrbench.study.readers import Row, Text, one_of, read_rows

CRITERIA, PRICES = Path("data/criteria.csv"), Path("data/prices.csv")
STATES = ("met", "in part", "open")


class Criterion(Row):
    """What an artifact committee asks for, whether it is met, and the files and tests that prove it."""

    KEY: ClassVar = ("number",)
    number: Text
    criterion: Text
    asked_by: Text
    state: Annotated[str, one_of(STATES)]
    proof: Text
    note: str


_CLAIM_WIDTHS = ("6.4cm", "1.2cm", "3.0cm", "1.6cm", "1.7cm")
_EXPERIMENT_WIDTHS = ("5.4cm", "1.3cm", "1.4cm", "2.1cm", "2.3cm", "1.5cm")


@dataclass(frozen=True)
class Artifact:
    """What the appendix is made from: the files above, the ledger's rows of our claims, recorded evidence."""

    file: Claims
    ledger: pd.DataFrame
    criteria: pd.DataFrame
    study: Study
    study_file: Path
    recorded: Path

    @classmethod
    def read(cls, ledger: pd.DataFrame, study: Path, recorded: Path) -> Artifact:
        """Read the files; ``ledger`` is claims.csv. UserError for a criterion of unknown state."""
        ours, file = ledger[ledger["source"] == OURS].set_index("id"), read_claims(CLAIMS)
        if missing := [claim.id for claim in file.ours if claim.id not in ours.index]:
            raise UserError(f"claims.csv is older than {CLAIMS}: it has no {missing[0]}; make it again")
        return cls(file, ours, read_criteria(), read_study(study), study, recorded)

    def claims(self) -> pd.DataFrame:
        """Our claims by their ids in the ledger: what we say and where, expectation, verdict, experiment."""
        rows = []
        for claim in self.file.ours:
            row = self.ledger.loc[claim.id]
            rows.append(
                {
                    "": claim.id,
                    "Claim": claim.says,
                    "Section": claim.where,
                    "Expected": _expected(row),
                    "Verdict": row["verdict"],
                    "Experiment": claim.experiment or "-",
                }
            )
        return pd.DataFrame(rows)

    def experiments(self) -> pd.DataFrame:
        """E1 to En: command, what it shows, expected result with tolerance, and what it costs a reviewer."""
        rows = []
        for name, experiment in self.file.experiments.items():
            result, hours, money, disk = self._cost(experiment)
            rows.append(
                {
                    "": name,
                    "Experiment": experiment.title,
                    "Command": experiment.command,
                    "Shows": _spans(self.file.ours, name),
                    "Expected": f"{experiment.expect} {result}".strip(),
                    "Human (estimate)": f"{experiment.human_minutes:g} min",
                    "Compute": hours,
                    "Money": money,
                    "Disk": disk,
                }
            )
        return pd.DataFrame(rows)

    def _cost(self, one: Experiment) -> tuple[str, str, str, str]:
        """Result with tolerance, compute, money, disk."""
        if one.measured:
            disk = f"{one.measured.disk_mib:g} MiB" if one.measured.disk_mib else "none"
            return "", f"{one.measured.seconds:g} s on {one.measured.where}", "own machine", disk
        if one.cell is None:
            return "", "not measured", "own machine", "not measured"
        folder = one.cell.folder(self.recorded)
        if not (folder / RECORD).exists() or EvidenceStore(self.recorded).refused(one.cell):
            return "Recorded: not run, so there is no result yet.", NOT_RUN, NOT_RUN, self._packed(one.cell)
        (cost,) = cost_table([folder], PRICES, pricing_of(self.study_file)).itertuples()
        host = read_record(folder).host
        machine = f"{host.cores_used} cores ({host.cpu})" if host.device.startswith("CPU") else host.device
        money = f"{cost.usd_total:.3f} USD ({cost.kind}, {cost.instance} {cost.basis}, {cost.as_of})"
        return (
            _scores(one.cell, self.recorded),
            f"{cost.hours_total:.2f} h on {machine}",
            money,
            self._packed(one.cell),
        )

    def _packed(self, cell: Cell) -> str:
        """Bytes of a cell's packed images: one per pixel; unknown when nothing is recorded of its data."""
        folders = sorted(self.recorded.glob(f"{cell.dataset}/*/*/seed*/{RECORD}"))
        if not folders or cell.dataset not in self.study.datasets:
            return "not measured"
        identity = read_record(folders[0]).dataset
        pixels = self.study.dataset(cell.dataset).pixels
        return f"{sum(identity.images.values()) * pixels**2 / 2**20:.0f} MiB packed" if identity else "-"


def read_criteria(path: Path = CRITERIA) -> pd.DataFrame:
    """Every :class:`Criterion` of the file, as text."""
    rows = [row.model_dump() for row in read_rows(path, Criterion).values()]
    return pd.DataFrame(rows, columns=Criterion.columns())


def numbers(read: Any) -> dict[str, str]:
    """What the appendix's prose may name; ``read`` is the study's :class:`Results`."""
    claims, criteria = read_claims(CLAIMS), read_criteria()
    states = criteria["state"].value_counts()
    minutes = sum(one.human_minutes for one in claims.experiments.values())
    return {
        "artifact/claims": str(len(claims.ours)),
        "artifact/experiments": str(len(claims.experiments)),
        "artifact/human minutes": f"{minutes:g}",
        "artifact/systems": str(len(systems(read.recorded))),
        "artifact/criteria": str(len(criteria)),
        **{f"artifact/criteria/{state}": str(states.get(state, 0)) for state in STATES},
    }


def write_artifact(made: Artifact, out: Path) -> None:
    """Write ``out``/artifact_claims.tex and artifact_experiments.tex; two pages with the prose."""
    claims = made.claims().map(lambda text: escape(text, longest=400))
    table = made.experiments()
    what = [
        rf"{escape(row.Experiment)}: \newline \code{{{_typed(row.Command)}}} \newline "
        + escape(row.Expected, longest=600)
        for row in table.itertuples()
    ]
    shown = table.drop(columns=["Experiment", "Command", "Expected"]).map(escape)
    shown.insert(1, "Experiment, command and expected result", what)
    write_text(out / "artifact_claims.tex", _ragged(claims, _CLAIM_WIDTHS))
    write_text(out / "artifact_experiments.tex", _ragged(shown, _EXPERIMENT_WIDTHS))


def write_markdown(made: Artifact, path: Path) -> None:
    """Renew the generated parts of ARTIFACT.md."""
    criteria = made.criteria.drop(columns="note").assign(
        proof=[_proof(row.proof, row.note) for row in made.criteria.itertuples()]
    )
    names = {
        "number": "",
        "criterion": "Criterion",
        "asked_by": "Asked by",
        "state": "State",
        "proof": "Proof",
    }
    blocks = {
        "claims": as_markdown(made.claims()),
        "experiments": as_markdown(_code(made.experiments())),
        "systems": as_markdown(systems(made.recorded)),
        "criteria": as_markdown(criteria.rename(columns=names)),
    }
    write_text(path, renewed(path.read_text(encoding="utf-8"), blocks, str(path)))


def map_of_claims(made: Artifact) -> str:
    """The README's claims map: experiments with the claims they show and what they cost."""
    table = _code(made.experiments())
    return as_markdown(table[["", "Command", "Experiment", "Shows", "Human (estimate)", "Compute"]])


def _ragged(table: pd.DataFrame, widths: tuple[str, ...]) -> str:
    return tabular(table, "@{}l" + "".join(f"p{{{width}}}" for width in widths) + "@{}")


def _typed(command: str) -> str:
    """LaTeX of a command: two hyphens stay two, and a long name may be broken after a slash."""
    return escape(command).replace("--", "-{}-").replace("/", r"/\allowbreak{}")


def _code(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(Command=[f"`{command}`" for command in table["Command"]])


def _spans(ours: tuple[Claim, ...], experiment: str) -> str:
    """The ids of our claims that an experiment shows, ``O02 to O04, O07``; a hyphen for none."""
    shown = [position for position, claim in enumerate(ours) if claim.experiment == experiment]
    starts = [position for position in shown if position - 1 not in shown]
    ends = [position for position in shown if position + 1 not in shown]
    spans = (
        ours[a].id if a == b else f"{ours[a].id} to {ours[b].id}" for a, b in zip(starts, ends, strict=True)
    )
    return ", ".join(spans) or "-"


def _proof(proof: str, note: str) -> str:
    named = ", ".join(f"`{one.strip()}`" for one in proof.split(";"))
    return f"{named}. {note}" if note else named


def _expected(row: pd.Series) -> str:
    """What a claim states, its unit and tolerance, as the ledger has them."""
    if row["stated"] == "":
        return "-"
    tolerance = float(row["tolerance"] or 0)
    return f"{row['stated']}{f' ± {tolerance:g}' if tolerance else ''} {row['unit']}".strip()


def _scores(cell: Cell, recorded: Path) -> str:
    """Return a recorded cell's scores with the tolerance of training it again."""
    if not (scores := tolerances(cell, recorded)):
        return f"Recorded: status {read_record(cell.folder(recorded)).status}."
    texts = (f"{line.name} {line.recorded:.3f} ± {line.tolerance:.3f}" for line in scores)
    return f"Recorded: {', '.join(texts)} ({scores[0].origin})."
