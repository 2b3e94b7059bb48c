"""``cxrbench``: every step of the graph by hand. Tables go to standard output, messages to standard error.

Commands import what they need when they are called: most need no torch, and `cost` answers in a second.
"""

import io
import os
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from cxrbench.cli import (
    audit,
    compare,
    compile,
    contribute,
    cost,
    evidence,
    get,
    report,
    sagemaker,
    scores,
    train,
)
from cxrbench.cli.words import STUDY, complain, say
from cxrbench.study.files import explained
from cxrbench.study.names import UserError

HELP = """Trainium or CUDA for chest radiographs? Every step of the study is a command.

`make paper` runs them all. It trains the cells that this machine can train,
takes recorded evidence for the others, and rebuilds the paper. A cell is one
training run. Its name is dataset/architecture/platform/seedN.

Train a cell on drawn radiographs, then print its scores:

  cxrbench data pack phantom-32px
  cxrbench train phantom-32px/resnet18/cpu/seed0
  cxrbench evaluate results/runs/phantom-32px/resnet18/cpu/seed0

Check all recorded evidence, then print the claims that it supports:

  cxrbench verify
  cxrbench claims --why
"""
EPILOG = """Tables go to standard output. With --json, the same rows are JSON.
Messages go to standard error.
Exit codes: 0 done; 1 wrong input, or a result outside its tolerance; 2 wrong
command line; 3 the cell cannot be trained here; 75 training was interrupted,
and the same command resumes it."""


_IN_A_CLONE = ("config/", "data/")  # where files lie that commands read by default


def schema(
    folder: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("workflow/schemas"),
) -> None:
    """Write the JSON Schemas of a study and of a run record."""
    from cxrbench.cli.schemas import write_schemas

    for path in write_schemas(folder):
        say(f"wrote {path}")


# The order in which a user meets them: panels and, inside each, commands.
STEPS: dict[str, dict[str, Callable[..., None] | typer.Typer]] = {
    "1. Data: download, check, pack": {"data": get.data_app},
    "2. Train one cell, compare it with its record": {
        "plan": train.plan,
        "train": train.train,
        "cell": get.cell_app,
        "precompile": train.precompile,
        "predict": train.predict,
        "sagemaker": sagemaker.app,
    },
    "3. Evidence: keep it, check it": {
        "record": evidence.record,
        "verify": evidence.verify,
        "adopt": train.adopt,
        "expected": evidence.expected,
        "contribute": contribute.contribute,
    },
    "4. Results: scores, costs, claims": {
        "compare": compare.compare,
        "evaluate": scores.evaluate,
        "power": scores.power,
        "cost": cost.app,
        "claims": scores.claims,
        "audit": audit.audit,
        "compile": compile.compile,
    },
    "5. Paper and measurements of speed": {"report": report.app, "schema": schema},
}
ROOT = Path(__file__).parents[3]
if (ROOT / "benchmarks").is_dir():  # they lie beside src/, outside what is installed elsewhere
    sys.path.append(str(ROOT))
    from benchmarks.commands import app as bench

    STEPS["5. Paper and measurements of speed"]["bench"] = bench


class InOrder(TyperGroup):
    """The commands in the order of the steps; typer would put groups after single commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for panel in STEPS.values() for name in panel]


app = typer.Typer(
    cls=InOrder,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from cxrbench.evidence.record import commit_of_code

        head, dirty = commit_of_code()
        number = next((f" {package.version}" for package in metadata.distributions(name="cxrbench")), "")
        print(f"cxrbench{number}, commit {head[:12]}{' with changes' if dirty else ''}")
        raise typer.Exit


@app.callback(help=HELP, epilog=EPILOG)
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options of ``cxrbench`` itself."""


for panel, steps in STEPS.items():
    for name, step in steps.items():
        if isinstance(step, typer.Typer):
            app.add_typer(step, name=name, rich_help_panel=panel)
        else:
            app.command(name, rich_help_panel=panel)(step)


def _must_be_the_code_of(folder: Path) -> None:
    """Raise UserError in a checkout whose code this is not, unless PYTHONPATH names this code."""
    here = next((path for path in (folder, *folder.parents) if (path / "src/cxrbench/cli").is_dir()), None)
    source = Path(__file__).parents[2]
    chosen = (Path(path).resolve() for path in os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if here is None or source.samefile(here / "src") or source in chosen:
        return
    raise UserError(
        f"this environment runs the code of {source.parent}, not of the checkout {here}: "
        f"set PYTHONPATH={here / 'src'}, or to {source} if you mean that code"
    )


def main() -> None:
    """Entry point: a user's mistake is one message, never a traceback."""
    if os.environ.get("NO_COLOR"):
        os.environ["TERM"] = "dumb"  # rich would still print in bold
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows a question mark
    try:
        _must_be_the_code_of(Path.cwd())
        app()
    except (UserError, OSError) as error:
        if (message := explained(error) if isinstance(error, OSError) else error) is None:
            raise
        text = str(message)
        if text.startswith(_IN_A_CLONE) and not STUDY.exists():
            text += "; run it in a clone of the repository, which has this file"
        complain(text)
        sys.exit(1)
