"""What is known of the graphs that a study plans to compile. Imports no torch."""

from collections.abc import Iterable
from typing import Any

import pandas as pd

from cxrbench.evidence.compiled import PARTS, CompileRecord, TracedGraph
from cxrbench.evidence.expected import NOT_RUN
from cxrbench.study.config import Compilation, CompileOptions

STEP = ["network", "pixels", "batch", "precision"]
GRAPH_KEY = [*STEP, "part"]
COMPILES, STOPPED = "compiles", "stopped by a limit"
STATES = (COMPILES, *(f"{part} fails" for part in reversed(PARTS)), STOPPED, NOT_RUN)  # of a training step


def rows(records: Iterable[CompileRecord]) -> list[dict[str, Any]]:
    """A row per record for tables: the graph, the compiler and the outcome."""
    return [
        {
            **dict.fromkeys(GRAPH_KEY),
            "network": record.graph.name,
            **record.graph.model_dump(include={*GRAPH_KEY}),
            "target": record.target,
            "compiler": record.compiler,
            "flags": " ".join(record.flags),
            "status": record.status,
            "failed": record.failed,
            "code": record.failure.fingerprint if record.failure else "",
            "seconds": record.seconds,
            "peak_memory_mib": record.peak_memory_mib,
            "neff_mib": round(record.neff.bytes / 2**20, 2) if record.neff else None,
            "graph_sha256": record.graph.sha256,
        }
        for record in records
    ]


def outcomes(
    planned: Compilation | None,
    records: Iterable[CompileRecord],
    toolchain: tuple[str, CompileOptions] | None = None,
) -> pd.DataFrame:
    """A row per planned graph in the study's order: :data:`GRAPH_KEY`, and what :func:`rows` has of it.

    ``toolchain``: version and options of a compiler; None: the study's version of today, with the options of
    the study. ``status`` is "not run", and ``failed`` missing, where nothing is recorded of it and of the
    study's target; ``failed`` is missing too where a limit ended the compiler. The newest
    record of a graph counts: other versions of torch or timm give others of the same name.
    """
    steps = planned.steps() if planned else []
    plan = pd.DataFrame([(*step, part) for step in steps for part in PARTS], columns=GRAPH_KEY)
    version, options = toolchain or (planned.toolchains()[0] if planned else ("", CompileOptions()))
    chosen = [
        record
        for record in records
        if planned and isinstance(record.graph, TracedGraph) and record.target == planned.target
        if record.options == options and record.compiler.partition("+")[0] == version  # 2.26.6360.0+5d0b2a3f
    ]
    recorded = pd.DataFrame(rows(sorted(chosen, key=lambda record: record.started)), columns=_COLUMNS)
    newest = recorded.drop_duplicates(GRAPH_KEY, keep="last").astype(plan.dtypes)
    table = plan.merge(newest, "left", GRAPH_KEY, validate="one_to_one").astype({"failed": "boolean"})
    return table.fillna({"status": NOT_RUN, "code": ""})


_COLUMNS = [*GRAPH_KEY, "status", "failed", "code", "seconds", "graph_sha256"]


def states(table: pd.DataFrame) -> pd.DataFrame:
    """A row per training step of :func:`outcomes`, in its order, with one of :data:`STATES`.

    A step fails where its first part fails: a backward graph contains its forward.
    """
    steps = [(*step, _state(graphs)) for step, graphs in table.groupby(STEP, sort=False)]
    return pd.DataFrame(steps, columns=[*STEP, "state"])


def columns(planned: Compilation, records: Iterable[CompileRecord]) -> pd.DataFrame:
    """A row per planned training step, with its state by each release of the study, today's first.

    A release has a second column where outcomes of the model type cnn-training are recorded of it.
    """
    kept, table = list(records), pd.DataFrame(planned.steps(), columns=STEP)
    for version, usual in planned.toolchains():
        for model_type in ("generic", "cnn-training"):
            options = usual.model_copy(update={"model_type": model_type})
            state = states(outcomes(planned, kept, (version, options)))["state"]
            if model_type == usual.model_type or (state != NOT_RUN).any():
                cast = f", auto-cast {options.auto_cast}" if options.auto_cast != "none" else ""
                table[f"{version} ({model_type}{cast})"] = state
    return table


def _state(graphs: pd.DataFrame) -> str:
    """The state of a training step from the outcomes of its parts."""
    parts = graphs.set_index("part")
    if failing := [part for part in reversed(PARTS) if parts["failed"].fillna(False)[part]]:
        return f"{failing[0]} fails"
    if parts["status"]["step"] == "ok":
        return COMPILES
    stopped = parts["failed"].isna() & (parts["status"] != NOT_RUN)
    return STOPPED if stopped.any() else NOT_RUN
