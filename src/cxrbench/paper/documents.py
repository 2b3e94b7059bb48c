"""README.md, ARTIFACT.md and pages of docs/ from templates.

The templates are in paper/documents. ``{{ value("key") }}`` is a value of values.toml, and a bare name one of
:func:`_parts`.
"""

import textwrap
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError

from cxrbench.claims.file import read_claims
from cxrbench.common.errors import UserError
from cxrbench.common.files import write_text
from cxrbench.datasets.registry import hosted
from cxrbench.evidence.expected import NOT_RUN
from cxrbench.evidence.record import processors_in_words as processors_in_words
from cxrbench.paper import artifact
from cxrbench.paper.blocks import as_markdown
from cxrbench.paper.conclusions import conclusions
from cxrbench.paper.entries import TEMPLATES, named_in_markdown, named_in_sentences
from cxrbench.paper.practitioner import jobs_in_markdown, thresholds_in_markdown
from cxrbench.paper.results import CLAIMS, Results
from cxrbench.paper.values import values_of
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED

PAPER_GB, ALL_GB = "1", "7.6"  # of installed packages, measured once
_WIDTH = 100  # columns of a sentence in the README
SHOWN_FINDINGS = 4
_PICTURE = Path("docs/variance.png")


def write_documents(read: Results, folder: Path) -> list[Path]:
    """Write every document into ``folder``, where its template says; the files written.

    UserError where a template cannot be rendered.
    """
    from cxrbench.paper.figures import write_picture  # matplotlib takes a second

    source = folder / "paper" / TEMPLATES
    names = [path.relative_to(source) for path in sorted(source.rglob("*.jinja"))]
    keys = {key for name in names for key in named_in_markdown((source / name).read_text(encoding="utf-8"))}
    values, parts = values_of(read, keys), _parts(read)
    jinja = Environment(
        loader=FileSystemLoader(source),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    jinja.globals["value"] = lambda key: str(values.get(key, NOT_RUN))
    written = [folder / name.with_suffix("") for name in names]
    for name, path in zip(names, written, strict=True):
        try:
            write_text(path, jinja.get_template(name.as_posix()).render(parts))
        except TemplateError as error:
            line = getattr(error, "lineno", None)
            where = f"{source / name}{f':{line}' if line else ''}"
            raise UserError(f"{where}: {error}; mend it there") from None
    write_picture(read, folder / _PICTURE)
    return [*written, folder / _PICTURE]


def _parts(read: Results) -> dict[str, str]:
    """The sentences and tables that templates name, as Markdown."""
    status, *findings = conclusions(values_of(read, named_in_sentences()))
    return {
        "status": _filled(f"**{status.text}**"),
        "findings": "".join(
            _filled(f"- **{finding.topic}.** {finding.text}", "  ") for finding in findings[:SHOWN_FINDINGS]
        ),
        "main_claims": as_markdown(artifact.main_claims(read)),
        "experiments": artifact.as_sections(artifact.experiments(read)),
        "jobs": jobs_in_markdown(read),
        "thresholds": thresholds_in_markdown(read),
    }


def _filled(text: str, margin: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=margin, break_on_hyphens=False) + "\n"


# -- frames of values.toml --------------------------------------------------------------------------


def rebuild(read: Results) -> pd.DataFrame:
    """A row about the build from recorded evidence: seconds, and where they were measured."""
    runs = read_claims(CLAIMS).experiments.values()
    measured = next((run.measured for run in runs if run.command == artifact.REBUILD), None)
    return pd.DataFrame([vars(measured)] if measured else [])


def small_networks(read: Results) -> pd.DataFrame:
    """The cells that `make paper` trains: minutes, cores and processor of each."""
    named = read.cells["cell"].map(lambda cell: read.study.may_run(Cell.parse(cell)))
    trained = read.cells[named & (read.cells["status"] == "ok") & ~read.cells["platform"].isin(ACCELERATED)]
    return trained.assign(minutes=trained["total_seconds"] / 60)


def download_gb(read: Results, dataset: str) -> float | None:
    """The size of a dataset's download in gigabytes; None for a dataset that the study does not have."""
    if dataset not in read.study.datasets:
        return None
    return (
        sum(file.size or 0 for file in hosted(read.study.dataset(dataset), artifact.REGISTRY).values()) / 1e9
    )
