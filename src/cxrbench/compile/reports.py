"""What others report of networks on Neuron, and how the audit's rules do on it. Imports no torch.

Few networks are reported, with many compilers, and a report is no experiment: a confusion counts agreement
with reports, it does not prove a rule.
"""

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, get_args

import pandas as pd
from pydantic import Field

from cxrbench.compile.rules import RULES, Facts, Setting, facts_of, verdicts
from cxrbench.evidence.compiled import GraphPart
from cxrbench.study import readers
from cxrbench.study.readers import OR_NONE, Text, one_of, read_rows

REPORTED = Path("data/reported.csv")
UNSTATED = Setting(pixels=224, batch=32, precision="fp32")  # what is looked at where a report names nothing
ANY = "any"  # the last row of a confusion: rules that predict failure, together
ReportedPart = Literal["training", "forward"]
ReportedOutcome = Literal["works", "fails"]
FORWARD = "forward reported to run"  # inference: it says nothing about the training step
_COUNTS = ("flagged_failed", "flagged_compiled", "not_flagged_failed", "not_flagged_compiled")
_Count = Annotated[Annotated[int, Field(gt=0)] | None, OR_NONE]
_Word = Annotated[str | None, OR_NONE]


class Reported(readers.Row):
    """What a source reports of a network that it names or describes, with its words; empty where it does not
    say. "Tiny and larger" names Tiny alone: one sentence is not a report of every larger network."""

    KEY: ClassVar = ("architecture", "platform", "part", "batch", "source")
    architecture: Text
    platform: Text
    part: Annotated[str, one_of(get_args(ReportedPart))]
    outcome: Annotated[str, one_of(get_args(ReportedOutcome))]
    target: _Word  # instance or chip
    pixels: _Count
    batch: _Count  # per process
    precision: Annotated[Annotated[str, one_of(("fp32", "bf16"))] | None, OR_NONE]
    version: _Word  # of the SDK or the compiler
    images_per_second: Annotated[Annotated[float, Field(gt=0)] | None, OR_NONE]
    source: Text
    source_was: Annotated[str, one_of(("read", "second hand"))]  # the source itself, or an account of it
    words: Text

    @property
    def status(self) -> str:
        """The part and its outcome in words."""
        if self.part == "forward":
            return FORWARD if self.outcome == "works" else "forward reported to fail"
        return "reported to work" if self.outcome == "works" else "reported to fail"


def read_reported(path: Path = REPORTED) -> pd.DataFrame:
    """Return public reports with their ``status``, several per network; speeds in images per second."""
    rows = [row.model_dump() | {"status": row.status} for row in read_rows(path, Reported).values()]
    table = pd.DataFrame(rows, columns=[*Reported.columns(), "status"])
    return table.astype({"images_per_second": "float64", "pixels": "Int64", "batch": "Int64"})


class Outcome(NamedTuple):
    """What became of the graph of a part of a network's step; ``facts`` are those of that graph."""

    network: str
    setting: Setting
    part: GraphPart
    failed: bool
    facts: Facts


def confusion(outcomes: Iterable[Outcome]) -> list[dict[str, Any]]:
    """Return a row per rule, and one of :data:`ANY`: how often it was flagged beside what became of a graph.

    Columns: ``rule``, ``predicts``, ``flagged_failed``, ``flagged_compiled``, ``not_flagged_failed``,
    ``not_flagged_compiled``. Networks that could not be captured are not counted.
    """
    counts = {rule.name: dict.fromkeys(_COUNTS, 0) for rule in RULES} | {ANY: dict.fromkeys(_COUNTS, 0)}
    for outcome in outcomes:
        if outcome.facts.problem:
            continue
        found = {verdict["rule"]: verdict["flagged"] for verdict in verdicts(outcome.facts, outcome.setting)}
        found[ANY] = any(found[rule.name] for rule in RULES if rule.predicts == "failure")
        end = "failed" if outcome.failed else "compiled"
        for name, flagged in found.items():
            counts[name][f"{'flagged' if flagged else 'not_flagged'}_{end}"] += 1
    predicts = {rule.name: rule.predicts for rule in RULES} | {ANY: "failure"}
    return [{"rule": name, "predicts": predicts[name], **counted} for name, counted in counts.items()]


class Scored(NamedTuple):
    """A report with the captured graph that stands for it; ``differs`` says in what."""

    outcome: Outcome
    differs: str
    source: str


def scored(reported: pd.DataFrame, audit: pd.DataFrame) -> Iterator[Scored]:
    """Yield the reports about networks on Neuron that ``audit`` has, each with its nearest captured graph."""
    audit = audit[audit["problem"] == ""] if len(audit) else audit
    for report in reported[reported["platform"] == "neuron"].to_dict("records"):
        part: GraphPart = "forward" if report["part"] == "forward" else "step"
        rows = audit[(audit["architecture"] == report["architecture"]) & (audit["part"] == part)]
        if rows.empty:
            continue
        row = min(rows.to_dict("records"), key=lambda row: _distance(row, report))
        setting = Setting(row["pixels"], row["batch"], row["precision"])
        failed = report["outcome"] == "fails"
        outcome = Outcome(report["architecture"], setting, part, failed, facts_of(row))
        yield Scored(outcome, _differences(report, setting), report["source"])


def _distance(row: dict[Any, Any], report: dict[Any, Any]) -> tuple[float, ...]:
    """Return how far a captured setting is from a reported one, pixels first."""
    wanted = vars(UNSTATED) | {name: report[name] for name in vars(UNSTATED) if pd.notna(report[name])}
    ratios = (abs(math.log(row[name] / wanted[name])) for name in ("pixels", "batch"))
    return *ratios, row["precision"] != wanted["precision"]


def _differences(report: dict[Any, Any], setting: Setting) -> str:
    """Return what a report does not state, or states otherwise than the captured ``setting``, in words."""
    unstated = [name for name in vars(setting) if pd.isna(report[name])]
    other = [
        f"{name} {report[name]}, captured with {captured}"
        for name, captured in vars(setting).items()
        if name not in unstated and report[name] != captured
    ]
    return "; ".join([*other, *([f"not stated: {', '.join(unstated)}"] if unstated else [])])
