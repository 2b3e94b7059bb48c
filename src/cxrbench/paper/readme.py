"""The README's generated parts: conclusions, the two commands, what a build prints, experiments."""

import textwrap
from pathlib import Path

import pandas as pd

from cxrbench.claims.file import read_claims
from cxrbench.evidence.machine import processors_in_words
from cxrbench.paper import artifact
from cxrbench.paper.blocks import as_markdown, renew
from cxrbench.paper.conclusions import Conclusion, conclusions
from cxrbench.paper.ledger import CLAIMS
from cxrbench.paper.numbers import numbers
from cxrbench.paper.results import Results
from cxrbench.paper.summary import summary
from cxrbench.study.cells import Cell
from cxrbench.study.platform_names import ACCELERATED

WIDTH = 100  # columns of the README
FROM_EVIDENCE = artifact.REBUILD


def write_readme(read: Results, readme: Path, figure: Path) -> None:
    """Renew the generated parts of ``readme`` and draw ``figure`` (PNG)."""
    from cxrbench.paper.figures import write_picture  # matplotlib takes a second

    columns = ["", "Command", "Experiment", "Shows", "Human (estimate)", "Compute"]
    printed = summary(read, Path("paper/paper.pdf")).strip("\n")
    blocks = {
        "findings": _findings(read),
        "commands": as_markdown(_commands(read)),
        "summary": f"```text\n{printed}\n```\n",
        "artifact": as_markdown(artifact.with_code(artifact.experiments(read))[columns]),
    }
    renew(readme, blocks)
    write_picture(read, figure)


def _findings(read: Results) -> str:
    """Return what was run as a paragraph, and the findings as a numbered list, with their evidence."""
    found = conclusions(numbers(read))
    status = [_filled(f"{each.text} {_evidence(each)}", "") for each in found if each.topic == "Status"]
    items = [
        _filled(f"{number}. **{each.topic}.** {each.text} {_evidence(each)}", "   ")
        for number, each in enumerate((each for each in found if each.topic != "Status"), start=1)
    ]
    return "\n" + "\n".join([*status, "", *items]) + "\n\n"


def _filled(text: str, margin: str) -> str:
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, WIDTH, subsequent_indent=margin, **options)  # type: ignore[arg-type]


def _evidence(conclusion: Conclusion) -> str:
    """Return links to the claims that show it (ours are in ARTIFACT.md) and the names of its tables."""
    ours = {claim.id for claim in read_claims(CLAIMS).ours}
    places = {True: "ARTIFACT.md#major-claims", False: "data/claims.yaml"}
    claims = [f"[{name}]({places[name in ours]})" for name in conclusion.claims]
    return f"({', '.join([*claims, *(f'`table_{name}`' for name in conclusion.tables)])})"


def _commands(read: Results) -> pd.DataFrame:
    """Return the two commands that build the paper: what they need, disk, and time once set up."""
    measured = {each.command: each.measured for each in read_claims(CLAIMS).experiments.values()}
    rebuilt, whole = measured[FROM_EVIDENCE], measured["make paper"]
    took = f"{rebuilt.seconds:g} s on {rebuilt.where}" if rebuilt else "not measured"
    in_all = f"; {whole.seconds / 60:.0f} min from an empty folder on {whole.where}" if whole else ""
    disk = f", {rebuilt.disk_mib:g} MiB of results" if rebuilt else ""
    named = read.cells["cell"].map(lambda cell: read.study.may_run(Cell.parse(cell)))
    trained = read.cells[named & (read.cells["status"] == "ok") & ~read.cells["platform"].isin(ACCELERATED)]
    minutes = trained["total_seconds"].sum() / 60
    rows = [
        {
            "Command": f"`{FROM_EVIDENCE}`",
            "What it does": "makes every number, table and figure from recorded evidence",
            "Needs": "Linux, Python 3.9 or newer, make, LaTeX (macOS is locked too, but untried)",
            "Disk": f"1 GB of packages{disk}",
            "Time after set-up": took,
        },
        {
            "Command": "`make paper`",
            "What it does": f"the same, after training {len(trained)} small networks on drawn radiographs "
            f"({', '.join(f'`{cells}`' for cells in read.study.run or ())})",
            "Needs": "Linux on x86-64, Python 3.9 or newer, make, LaTeX",
            "Disk": "7.6 GB of packages",
            "Time after set-up": f"{minutes:.0f} min more for these trainings, as recorded on "
            f"{trained['cores_used'].max():g} cores ({processors_in_words(trained['processor'])}){in_all}",
        },
    ]
    return pd.DataFrame(rows)
