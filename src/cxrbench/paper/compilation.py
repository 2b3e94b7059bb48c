"""The graphs that the study plans to compile: what Neuron's compiler did with them, beside the audit."""

from collections.abc import Iterator
from itertools import product

import pandas as pd

from cxrbench.compile.audit import read_audit
from cxrbench.compile.outcomes import KEY, NOT_RUN, STEP, outcomes, scored
from cxrbench.compile.reports import confusion
from cxrbench.evidence.compiled import NOT_SHOWN, PARTS, read_compiled
from cxrbench.paper import fmt
from cxrbench.paper.fmt import Row, Table, Values
from cxrbench.paper.latex import escape
from cxrbench.paper.results import Results


def graphs(read: Results) -> pd.DataFrame:
    """Return a row per graph that the study plans to compile (see :func:`outcomes`)."""
    return outcomes(read.study.compilation, read_compiled(read.recorded))


def compiled(read: Results) -> Table:
    """A row per network: what compiles and what fails at which part, by size, beside the audit's rules."""
    planned, audit = graphs(read), read_audit(read.recorded)
    audit = audit.rename(columns={"architecture": "network"})
    sizes, found = planned["pixels"].unique(), []
    for network, some in planned.groupby("network", sort=False):
        row = {"Network": str(network), "Graphs": str(len(some))}
        for pixels in sizes:
            of_size = some[some["pixels"] == pixels]
            texts = (_outcome(of_size), _rules(of_size, audit)) if len(of_size) else ("", "")
            row[f"{pixels} px"], row[f"Audit, {pixels} px"] = texts
        found.append(row)
    return pd.DataFrame(found), "lr" + "ll" * len(sizes)


def _outcome(some: pd.DataFrame) -> str:
    """Return ``20 of 24 compile; step fails: NCC_ITEN404 (2); step stopped: time limit (1); 1 not run``."""
    states = some["status"].value_counts()
    if (states.index == NOT_RUN).all():
        return NOT_RUN
    texts = [f"{states.get('ok', 0)} of {len(some)} compile"]
    ended = some[~some["status"].isin(["ok", NOT_RUN])]
    for part, stopped in product(PARTS, (False, True)):
        of_part = ended[(ended["part"] == part) & (ended["failed"].isna() == stopped)]
        if codes := [f"{code} ({n})" for code, n in of_part["code"].value_counts(sort=False).items()]:
            texts.append(f"{part} {'stopped' if stopped else 'fails'}: {', '.join(codes)}")
    if NOT_RUN in states:
        texts.append(f"{states[NOT_RUN]} {NOT_RUN}")
    return "; ".join(texts)


def _rules(some: pd.DataFrame, audit: pd.DataFrame) -> str:
    """Return the rules that predict failure of any of these graphs, or ``none``, or ``not audited``."""
    found = some.merge(audit, "inner", KEY) if len(audit) else audit
    if found.empty:
        return "not audited"
    flagged = {rule for rules in found["predicts_failure"] for rule in rules.split()}
    return " ".join(sorted(flagged, key=lambda rule: int(rule[1:]))) or "none"


@fmt.table("llrrrr")
def rules_on_outcomes(read: Results) -> Iterator[Row]:
    """How often each rule of the audit was flagged, beside what the compiler did with the same graph."""
    for row in confusion(known) if (known := scored(graphs(read), read_audit(read.recorded))) else ():
        yield {fmt.words(name).capitalize(): str(value) for name, value in row.items()}


def numbers(read: Results) -> Values:
    """Return how many graphs are planned, and how many have which outcome: ``compile/...``."""
    table, planned = graphs(read), read.study.compilation
    failed = table["failed"].dropna()
    values = {
        "planned": f"{len(table):,}",
        "steps": f"{len(table.drop_duplicates(STEP)):,}",
        "networks": table["network"].nunique(),
        "done": (table["status"] != NOT_RUN).sum(),
        "compiled": (~failed).sum(),
        "failed": failed.sum(),
        "stopped": (table["failed"].isna() & (table["status"] != NOT_RUN)).sum(),
        "scored": len(scored(table, read_audit(read.recorded))),
        "parts": len(PARTS),
        "compiler": planned.compiler if planned else "",
        "target": planned.target if planned else "",
        "not shown": escape(NOT_SHOWN[0].upper() + NOT_SHOWN[1:], 1000),
    }
    return {f"compile/{what}": str(value) for what, value in values.items()}
