"""The graphs that the study plans to compile, and how many have which outcome of Neuron's compiler."""

from cxrbench.compile.outcomes import NOT_RUN, STEP, outcomes
from cxrbench.evidence.compiled import NOT_SHOWN, PARTS, read_compiled
from cxrbench.paper.fmt import Values
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results


def numbers(read: Results) -> Values:
    """Return how many graphs are planned, and how many have which outcome: ``compile/...``."""
    planned = read.study.compilation
    table = outcomes(planned, read_compiled(read.recorded))
    failed = table["failed"].dropna()
    values = {
        "planned": f"{len(table):,}",
        "steps": f"{len(table.drop_duplicates(STEP)):,}",
        "networks": table["network"].nunique(),
        "done": (table["status"] != NOT_RUN).sum(),
        "compiled": (~failed).sum(),
        "failed": failed.sum(),
        "stopped": (table["failed"].isna() & (table["status"] != NOT_RUN)).sum(),
        "parts": len(PARTS),
        "compiler": planned.compiler if planned else "",
        "target": planned.target if planned else "",
        "not shown": escape(NOT_SHOWN[0].upper() + NOT_SHOWN[1:], 1000),
    }
    return {f"compile/{name}": str(value) for name, value in values.items()}
