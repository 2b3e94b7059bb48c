"""What was measured on machines, apart from cells: gains of ways to run a step, XLA's ways, step parity."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd

from cxrbench.evidence.tolerances import KEPT_ABOVE, STEP_TOLERANCE, TESTED_STEPS
from cxrbench.paper.latex import escape
from cxrbench.paper.provenance import COLUMN, of_files
from cxrbench.paper.results import Results, Table, listed

_XLA = Path(__file__).parent.parent / "platforms/xla.py"


def read_measurements(recorded: Path, name: str) -> pd.DataFrame:
    """The rows of every recorded bench/<host>/<name>.json, with the machine they were measured on."""
    rows = []
    for path in sorted((recorded / "bench").glob(f"*/{name}.json")):
        for row in json.loads(path.read_text(encoding="utf-8")):
            rows.append({"host": path.parent.name, **row})
    return pd.DataFrame(rows)


def gains(read: Results) -> Table:
    """Median gain of each way over the ways before it, per network, and whether the platform keeps it."""
    rows = read_measurements(read.recorded, "gains")
    if rows.empty:
        return rows, ""
    table = []
    for (host, platform, way), some in rows.groupby(["host", "platform", "way"], sort=False):
        by_network = ", ".join(f"{row.architecture} {row.gain:+.1%}" for row in some.itertuples())
        median = some["gain"].median()
        table.append(
            {
                "Machine": host,
                "Platform": platform,
                "Way": way,
                "Added to": listed(some["added_to"]),
                "Gain by network": by_network,
                "Median": f"{median:+.1%}",
                "Kept": "yes" if median > KEPT_ABOVE else "no",
                COLUMN: of_files(read.recorded, "gains", host),
            }
        )
    return pd.DataFrame(table), "lllllrll"


def xla_ways(read: Results) -> Table:
    """Compiles, seconds and fallbacks of the same steps with one XLA change left out."""
    rows = read_measurements(read.recorded, "xla_ways")
    table = [
        {
            "Way": row.way,
            "What is different": row.meaning,
            "Steps": f"{row.steps}",
            "Compiles": f"{row.compiles}",
            "Compile s": f"{row.compile_seconds:.1f}",
            "All s": f"{row.seconds:.1f}",
            "Fallbacks": ", ".join(row.fallbacks) or "none",
            COLUMN: of_files(read.recorded, "xla_ways", row.host),
        }
        for row in rows.itertuples()
    ]
    return pd.DataFrame(table), "lp{6cm}rrrrll"


def measurement_values(read: Results) -> dict[str, str]:
    """Values of the prose: machines, compiles per way, drift at the last step of the comparison."""
    values: dict[str, str] = {}
    for row in read_measurements(read.recorded, "xla_ways").itertuples():
        key = f"xla/{row.way}"
        values |= {f"{key}/compiles": f"{row.compiles}", f"{key}/seconds": f"{row.seconds:.0f}"}
        values |= {
            "xla/steps": f"{row.steps}",
            "xla/network": escape(row.architecture),
            "xla/host": escape(row.host),
        }
    steps = read_measurements(read.recorded, "steps")
    if len(steps):
        last = steps[steps["step"] == steps["step"].max()]
        values["steps/count"] = f"{steps['step'].max()}"
        for platform, some in last.groupby("platform"):
            key = f"steps/{platform}".replace(", ", " ")
            values[f"{key}/loss"] = _power(some["loss_difference"].max())
            values[f"{key}/gradient"] = _power(some["gradient_norm_difference"].max())
            values[f"{key}/weights"] = _power(some["weights_difference"].max())
        values["steps/tested"] = f"{TESTED_STEPS}"
        values |= {f"steps/tolerance/{name}": _power(most) for name, most in STEP_TOLERANCE.items()}
    return values


def _power(value: float) -> str:
    """``$2\\cdot10^{-6}$``, or 0."""
    if value == 0:
        return "0"
    digits, _, exponent = f"{value:.0e}".partition("e")
    return rf"${digits}\cdot10^{{{int(exponent)}}}$"


def xla_listing() -> str:
    """The marked lines of platforms/xla.py as LaTeX: each from its number to the next empty line."""
    blocks: list[str] = []
    marked = False
    for line in _XLA.read_text(encoding="utf-8").splitlines():
        marked = bool(line.strip()) and (marked or re.match(r"\s*# \(\d\) ", line) is not None)
        if marked:
            blocks.append(line.strip())
    return "\\begin{verbatim}\n" + "\n".join(blocks) + "\n\\end{verbatim}\n"
