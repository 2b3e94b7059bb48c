"""The generated parts of README.md (what was run, findings, commands) and of docs/commands.md (what a build
prints)."""

import textwrap
from pathlib import Path

import pandas as pd

from cxrbench.claims.file import read_claims
from cxrbench.evidence.record import processors_in_words
from cxrbench.paper import artifact
from cxrbench.paper.blocks import as_markdown, renew
from cxrbench.paper.conclusions import Conclusion, conclusions
from cxrbench.paper.entries import named_in_sentences
from cxrbench.paper.ledger import CLAIMS
from cxrbench.paper.results import Results
from cxrbench.paper.summary import summary
from cxrbench.paper.values import values_of
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED

_WIDTH = 100  # columns of the README
SHOWN_FINDINGS = 4
_FROM_EVIDENCE = artifact.REBUILD


def write_readme(read: Results, readme: Path, commands: Path, figure: Path) -> None:
    """Renew the generated parts of ``readme`` and of ``commands``, and draw ``figure`` (PNG)."""
    from cxrbench.paper.figures import write_picture  # matplotlib takes a second

    status, *findings = conclusions(values_of(read, named_in_sentences()))
    blocks = {
        "status": _filled(f"**{status.text}** {_names_of_tables(status)}"),
        "findings": "".join(
            _filled(f"- **{one.topic}.** {one.text} {_names_of_tables(one)}", "  ")
            for one in findings[:SHOWN_FINDINGS]
        ),
        "commands": as_markdown(_commands(read)),
    }
    renew(readme, blocks)
    printed = summary(read, Path("paper/paper.pdf")).strip("\n")
    renew(commands, {"summary": f"```text\n{printed}\n```\n"})
    write_picture(read, figure)


def _filled(text: str, margin: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=margin, break_on_hyphens=False) + "\n"


def _names_of_tables(conclusion: Conclusion) -> str:
    """The names of the tables that have a conclusion's numbers."""
    return f"({', '.join(f'`table_{name}`' for name in conclusion.tables)})"


def _commands(read: Results) -> pd.DataFrame:
    """The two commands that build the paper: what they need, and time once set up."""
    measured = {run.command: run.measured for run in read_claims(CLAIMS).experiments.values()}
    rebuilt, whole = measured[_FROM_EVIDENCE], measured["make paper"]
    took = f"{rebuilt.seconds:g} s on {rebuilt.where}" if rebuilt else "not measured"
    in_all = f"; {whole.seconds / 60:.0f} min from an empty folder on {whole.where}" if whole else ""
    named = read.cells["cell"].map(lambda cell: read.study.may_run(Cell.parse(cell)))
    trained = read.cells[named & (read.cells["status"] == "ok") & ~read.cells["platform"].isin(ACCELERATED)]
    minutes = trained["total_seconds"].sum() / 60
    rows = [
        {
            "Command": f"`{_FROM_EVIDENCE}`",
            "What it does": "makes every number, table and figure from recorded evidence",
            "Packages": "1 GB",
            "Time after set-up": took,
        },
        {
            "Command": "`make paper`",
            "What it does": f"the same, after training {len(trained)} small networks on drawn images",
            "Packages": "7.6 GB",
            "Time after set-up": f"{minutes:.0f} min more on {trained['cores_used'].max():g} cores "
            f"({processors_in_words(trained['processor'])}){in_all}",
        },
    ]
    return pd.DataFrame(rows)
