"""The graphs that the study plans to compile, and how many have which outcome of Neuron's compiler."""

from cxrbench.compile.outcomes import NOT_RUN, STEP, outcomes
from cxrbench.evidence.compiled import NOT_SHOWN, PARTS, read_compiled
from cxrbench.paper.prose import Value, Values
from cxrbench.paper.results import Results


def numbers(read: Results) -> Values:
    """Return how many graphs are planned, and how many have which outcome: ``compile/...``."""
    planned = read.study.compilation
    table = outcomes(planned, read_compiled(read.recorded))
    failed = table["failed"].dropna()
    done = table["status"] != NOT_RUN
    counts = {
        "steps": len(table.drop_duplicates(STEP)),
        "networks": table["network"].nunique(),
        "done": done.sum(),
        "compiled": (~failed).sum(),
        "failed": failed.sum(),
        "stopped": (table["failed"].isna() & done).sum(),
        "parts": len(PARTS),
    }
    return {
        **{f"compile/{name}": int(count) for name, count in counts.items()},
        "compile/planned": Value(len(table), "count"),
        "compile/compiler": planned.compiler if planned else "",
        "compile/target": planned.target if planned else "",
        "compile/not shown": NOT_SHOWN[0].upper() + NOT_SHOWN[1:],
    }
