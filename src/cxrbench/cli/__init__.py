"""``cxrbench``: every step of the graph by hand. Tables go to standard output, messages to standard error.

Commands import what they need when they are called: most need no torch, and `cost` answers in a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import typer

from cxrbench.cli import audit, bench, cell, cells, cost, data, neuron, report, results, sagemaker
from cxrbench.cli.words import say
from cxrbench.errors import UserError

app = typer.Typer(
    help="Trainium or CUDA for chest radiographs? Prepare data, train, score, price, rebuild the paper.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data.app, name="data")
COMMANDS: tuple[Callable[..., None], ...] = (
    cells.train,
    cells.adopt,
    cells.record,
    cells.verify,
    cells.expected,
    results.evaluate,
    results.claims,
    audit.audit,
    neuron.precompile,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(cell.app, name="cell")
app.add_typer(cost.app, name="cost")
app.add_typer(report.app, name="report")
app.add_typer(bench.app, name="bench")
app.add_typer(sagemaker.app, name="sagemaker")


def main() -> None:
    """Entry point: a user's mistake is one message, never a traceback."""
    try:
        app()
    except UserError as error:
        print(f"cxrbench: {error}", file=sys.stderr)
        sys.exit(1)


@app.command()
def schema(folder: Path = Path("workflow/schemas")) -> None:
    """Write the JSON Schemas of study and run record, generated from the types."""
    from cxrbench.schemas import write_schemas

    for path in write_schemas(folder):
        say(f"wrote {path}")
