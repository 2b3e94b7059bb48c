"""What others report of networks on Neuron, and how the audit's flags agree with it. Imports no torch.

Few networks are reported, with many compilers, and a report is no experiment: a score counts agreement
with reports, it does not prove a rule.
"""

import math
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import pandas as pd
from pydantic import Field

from cxrbench.common import readers
from cxrbench.common.readers import OR_NONE, Text, one_of, read_rows
from cxrbench.neuron.rules import Setting, facts_of, flagged

REPORTED = Path("data/reported.csv")
_UNSTATED = Setting(pixels=224, batch=32, precision="fp32")  # what is looked at where a report names nothing
FORWARD = "forward reported to run"  # inference: it says nothing about the training step
_Count = Annotated[Annotated[int, Field(gt=0)] | None, OR_NONE]
_Word = Annotated[str | None, OR_NONE]


class Reported(readers.Row):
    """What a source reports of a network that it names or describes, with its words; empty where it does not
    say. "Tiny and larger" names Tiny alone: one sentence is not a report of every larger network."""

    KEY: ClassVar = ("architecture", "platform", "part", "batch", "source")
    architecture: Text
    platform: Text
    part: Annotated[str, one_of(("training", "forward"))]
    outcome: Annotated[str, one_of(("works", "fails"))]
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
    """Public reports with their ``status``, several per network; speeds in images per second."""
    rows = [row.model_dump() | {"status": row.status} for row in read_rows(path, Reported).values()]
    table = pd.DataFrame(rows, columns=[*Reported.columns(), "status"])
    return table.astype({"images_per_second": "float64", "pixels": "Int64", "batch": "Int64"})


class Score(NamedTuple):
    """Reports by what they say became of a network, and whether a rule that predicts failure flags it."""

    flagged_failed: int = 0
    flagged_compiled: int = 0
    not_flagged_failed: int = 0
    not_flagged_compiled: int = 0


def score(reported: pd.DataFrame, audit: pd.DataFrame) -> Score:
    """Count the reports about networks on Neuron that ``audit`` has, each by its nearest captured graph.

    A report of the forward pass is held against the graph of forward alone, any other against the step.
    """
    counts = dict.fromkeys(Score._fields, 0)
    captured = audit[audit["problem"] == ""] if len(audit) else audit
    for report in reported[reported["platform"] == "neuron"].to_dict("records"):
        part = "forward" if report["part"] == "forward" else "step"
        graphs = captured[(captured["architecture"] == report["architecture"]) & (captured["part"] == part)]
        if graphs.empty:
            continue
        graph = min(graphs.to_dict("records"), key=lambda graph: _distance(graph, report))
        setting = Setting(graph["pixels"], graph["batch"], graph["precision"])
        predicted, _ = flagged(facts_of(graph), setting)
        ended = "failed" if report["outcome"] == "fails" else "compiled"
        counts[f"{'flagged' if predicted else 'not_flagged'}_{ended}"] += 1
    return Score(**counts)


def _distance(graph: dict[Any, Any], report: dict[Any, Any]) -> tuple[float, ...]:
    """The distance of a captured graph's setting from a reported one, pixels first."""
    wanted = vars(_UNSTATED) | {name: report[name] for name in vars(_UNSTATED) if pd.notna(report[name])}
    ratios = (abs(math.log(graph[name] / wanted[name])) for name in ("pixels", "batch"))
    return *ratios, graph["precision"] != wanted["precision"]
