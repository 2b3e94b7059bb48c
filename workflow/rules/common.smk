"""What the rules ask about the study. The answers are cxrbench's; here is only the glue."""

import os
import sys
from functools import cache
from pathlib import Path

from snakemake.logging import logger

# Rules call `python -m cxrbench` of this checkout, whatever environment they run in.
SOURCE = str(Path(workflow.basedir) / "src")
sys.path.insert(0, SOURCE)
os.environ.update(PYTHONPATH=SOURCE)

from cxrbench.study import build
from cxrbench.study.build import alone_in, code_of, content_of, mark_jobs, speak_for_commands
from cxrbench.study.cells import Cell
from cxrbench.study.config import parse_study
from cxrbench.datasets.split import file_of
from cxrbench.evidence.store import EvidenceStore
from cxrbench.study.errors import UserError
from cxrbench.study.files import explained, write_if_changed
from cxrbench.study.readers import Document
from cxrbench.paper.items import figures
from cxrbench.training.resources import JobNeeds
from cxrbench.training.plan import Plan, must_be_architectures

RECORDED = Path("data/recorded")
SUMS = [path for path in [RECORDED / "SHA256SUMS"] if path.exists()]  # what is recorded, as one file
try:
    for file in workflow.configfiles:  # Snakemake would keep the last of two equal keys
        Document(file)
    STUDY = parse_study(dict(config), "config")
    must_be_architectures(cell.architecture for cell in STUDY.all_cells())
    STORE = EvidenceStore(RECORDED)
    PLAN = Plan(STUDY, STORE, packed=Path(STUDY.pathvars.get("packed", "data/packed")))
    NEEDS = JobNeeds(STUDY, STORE)
except UserError as error:
    sys.exit(f"cxrbench: {error}")  # an exception here would be shown with this file's lines

EVIDENCED = PLAN.evidenced()
# A record holds the hashes of its predictions and its log: it stands for the evidence of its cell.
RECORDS = [f"<results>/cells/{cell}/record.json" for cell in EVIDENCED]
EVIDENCE = "<results>/evidence.txt"
SCORES = [f"<results>/metrics/{cell}.csv" for cell in EVIDENCED]
LEFT_OUT = list(filter(None, (STORE.left_out(cell, STUDY) for cell in STUDY.all_cells())))
for reason in LEFT_OUT:
    print(f"cxrbench: {reason}", file=sys.stderr)

# The study as resolved (overlays, --config) for the commands below. It is written here and not by a rule,
# because Snakemake does not look at the params of a rule whose inputs are all ancient().
STUDY_FILE = f"{STUDY.pathvars.get('results', 'results')}/study.json"
if workflow.is_main_process:
    try:
        if alone_in(Path.cwd()) or not Path(STUDY_FILE).exists():  # else a running build reads it
            write_if_changed(STUDY_FILE, STUDY.model_dump_json(indent=1) + "\n")
    except OSError as error:
        sys.exit(f"cxrbench: {explained(error) or error}")
    except UserError as error:
        sys.exit(f"cxrbench: {error}")
    if STUDY.cluster is None:  # a cluster's jobs go on without the Snakemake that submitted them
        mark_jobs(Path.cwd())
    speak_for_commands(logger, live=() if STUDY.cluster else ("train",))


SCORING, REPORTING = (code_of(Path(SOURCE, "cxrbench"), code) for code in (build.SCORING, build.REPORTING))


def split_file(wildcards):
    """The file that a split is read from, where the study names one."""
    dataset = STUDY.dataset(wildcards.dataset)
    found = file_of(dataset.split, dataset.folder) if dataset.source == "nih" else None
    return [found] if found else []


@cache
def images_of(dataset, recipe=False):
    """What a dataset's images are made of; with the name of its recipe on request."""
    exclude = set() if recipe else {"recipe"}
    return STUDY.dataset(dataset).model_dump(mode="json", exclude=exclude)


@cache
def recipe_of(dataset):
    return STUDY.recipe(dataset).hash()


def wanted_evidence(wildcards):
    """What adopted evidence must come from: without it, an interrupted retraining would leave the old in place."""
    return [PLAN.origin(cell_of(wildcards)), recipe_of(wildcards.dataset), images_of(wildcards.dataset, True)]


# What LaTeX is given: all of these and nothing else.
PAPER_SOURCES = sorted(
    str(path)
    for pattern in ("*.tex", "*.bib", "sections/**/*")
    for path in Path("paper").glob(pattern)
    if path.is_file()
)


wildcard_constraints:
    dataset=r"[\w.\-]+",
    architecture=r"[\w.\-]+",
    platform=r"[\w\-]+",
    seed=r"\d+",


def cell_of(wildcards):
    return Cell(wildcards.dataset, wildcards.architecture, wildcards.platform, int(wildcards.seed))


def needs(what):
    """One of the things that a cell's job asks of a cluster; on one machine nothing looks at them."""
    return lambda wildcards, attempt: getattr(NEEDS.of(cell_of(wildcards), attempt), what)


def evidence_of(wildcards):
    """Fresh evidence where the cell runs here, else the recorded; one sentence where there is neither."""
    try:
        origin = PLAN.origin(cell_of(wildcards))
    except UserError as error:
        sys.exit(f"cxrbench: {error}")  # an exception here would be shown with a traceback
    root = "<results>/runs" if origin == "fresh" else RECORDED
    return f"{root}/{cell_of(wildcards)}/record.json"


# On a cluster only packing and training are jobs: all else takes seconds where Snakemake runs.
localrules:
    data_tables,
    evaluate,
    statistics,
    tables,
    figures,
    report,
    paper,
