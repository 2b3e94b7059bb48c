"""What the rules ask about the study. The answers are cxrbench's; here is only the glue."""

import os
import sys
from functools import cache
from pathlib import Path
from shutil import which

from snakemake.logging import logger

# Rules call `python -m cxrbench` and scripts of this checkout, whatever environment they run in.
SOURCE = str(Path(workflow.basedir) / "src")
sys.path.insert(0, SOURCE)
os.environ.update(PYTHONPATH=SOURCE)

from cxrbench.datasets.nih import checks_file
from cxrbench.datasets.split import file_of
from cxrbench.evidence.store import EvidenceStore
from cxrbench.evidence.sums import refused_measurement
from cxrbench.paper.entries import named
from cxrbench.paper.items import figures, printed
from cxrbench.workflow import build
from cxrbench.workflow.build import content_of
from cxrbench.study.config import parse_study
from cxrbench.common.files import explained, json_text, sha256_json, write_if_changed
from cxrbench.study.names import Cell
from cxrbench.common.errors import UserError
from cxrbench.common.readers import Document
from cxrbench.training.plan import JobNeeds, Plan, must_be_architectures

CELL = "{wildcards.dataset}/{wildcards.architecture}/{wildcards.platform}/seed{wildcards.seed}"  # in messages
RECORDED = Path("data/recorded")
SUMS = list(RECORDED.glob("SHA256SUMS"))  # what is recorded, as one file
try:
    for file in workflow.configfiles:  # Snakemake would keep the last of two equal keys
        Document(file)
    STUDY = parse_study(dict(config), "config")
    must_be_architectures(cell.architecture for cell in STUDY.all_cells())
    if refused := refused_measurement(RECORDED):
        raise UserError(refused)
    STORE = EvidenceStore(RECORDED)
    PLAN = Plan(STUDY, STORE, packed=Path(STUDY.pathvars.get("packed", "data/packed")))
    NEEDS = JobNeeds(STUDY, STORE)
    EVIDENCED = PLAN.evidenced()
except UserError as error:
    sys.exit(f"cxrbench: {error}")  # an exception here would be shown with this file's lines

# A record holds the hashes of its predictions and its log: it stands for the evidence of its cell.
RECORDS = [f"<results>/cells/{cell}/record.json" for cell in EVIDENCED]
LEFT_OUT = [reason for cell in STUDY.all_cells() if (reason := STORE.source_of(cell, STUDY).reason)]
for reason in LEFT_OUT:
    print(f"cxrbench: {reason}", file=sys.stderr)

# The study as resolved (overlays, --config) for the commands below. It is written here and not by a rule,
# because Snakemake does not look at the params of a rule whose inputs are all ancient().
PLACES = {"figures": "figures", "generated": "paper/generated", "paper": "paper/paper.pdf"}  # as pathvars
STUDY_FILE = f"{STUDY.pathvars.get('results', 'results')}/study.json"
# Which documents name each value: of the paper's source, the rule of its tables takes that alone.
NAMED_FILE, NAMED = STUDY_FILE.replace("study.json", "named.json"), named(Path("paper"))
if workflow.is_main_process:
    try:
        alone = build.take_build_lock(Path.cwd())
        if alone or not Path(STUDY_FILE).exists():  # else a running build reads it
            write_if_changed(STUDY_FILE, STUDY.model_dump_json(indent=1) + "\n")
            write_if_changed(NAMED_FILE, json_text(NAMED))
        made, dry = Path(STUDY_FILE).with_name("made.json"), workflow.output_settings.dryrun
        folder = {name: Path(STUDY.pathvars.get(name, path)) for name, path in PLACES.items()}
        built = [
            *(
                path
                for part in ("tables", "cells")
                for path in (made.parent / part).rglob("[!.]*")
                if path.is_file()
            ),
            *folder["generated"].glob("*"),
            *folder["figures"].glob("*.pdf"),
            *(
                path
                for path in (folder["paper"], *made.parent.glob("*.html"), *made.parent.glob("scores.json"))
                if path.is_file()
            ),
        ]
        build.keep_what_is_made(logger, made, dry, alone, built)
    except (OSError, UserError) as error:
        reason = isinstance(error, OSError) and explained(error)
        copied = ": a build writes into its checkout, so copy that"
        sys.exit(f"cxrbench: {f'{reason}{copied}' if reason else error}")
    if STUDY.cluster is None:  # a cluster's jobs go on without the Snakemake that submitted them
        os.environ[build.OWNER] = str(Path.cwd().resolve())
    build.install_log_filter(logger, cluster=STUDY.cluster is not None, dry=lambda: workflow.dryrun)


onstart:
    if workflow.executor_plugin.name == "slurm" and not which("sbatch"):
        sys.exit("cxrbench: Slurm is not on this machine (no sbatch); without a profile, jobs run here")


PACKAGE = Path(os.path.relpath(SOURCE), "cxrbench")  # a checkout that was moved is not built anew
SCRIPTS = PACKAGE.parents[1] / "workflow/scripts"
SCORING, REPORTING = (
    content_of(*build.code_files(PACKAGE, patterns)) for patterns in (build.SCORING, build.REPORTING)
)


def results_of(wildcards, input):
    """The folder of results, where the study is."""
    return Path(input.study).parent


def table_file(wildcards):
    """The file that labels or a split are read from, where the study names one."""
    dataset = STUDY.dataset(wildcards.dataset)
    if dataset.source == "table":
        return [dataset.table]
    split = file_of(dataset.split, dataset.folder) if dataset.source == "nih" else None
    return [split] if split else []


def check_values(wildcards):
    """The recorded check values of a dataset's images, where the study names their reduction."""
    reduction = getattr(STUDY.dataset(wildcards.dataset), "reduced", None)
    path = checks_file(RECORDED, reduction) if reduction else None
    return [path] if path and path.is_file() else []


@cache
def images_of(dataset, recipe=False):
    """Return the settings that decide a dataset's images, with the name of its recipe on request."""
    return STUDY.dataset(dataset).model_dump(mode="json", exclude=set() if recipe else {"recipe"})


def wanted_evidence(cell):
    """Return what evidence depends on, so that an interrupted retraining does not leave the old adopted."""
    origin, recipe = PLAN.origin(cell), STUDY.recipe(cell.dataset).hash()
    return [origin, recipe, images_of(cell.dataset, recipe=True), content_of(evidence_of(cell))]


def files(folder, *patterns):
    """The names of the files in ``folder`` that match, sorted."""
    return sorted(str(path) for pattern in patterns for path in Path(folder).glob(pattern) if path.is_file())


wildcard_constraints:
    dataset=r"[\w.\-]+",
    architecture=r"[\w.\-]+",
    platform=r"[\w\-]+",
    seed=r"\d+",


def cell_of(wildcards):
    """Return the cell that a job trains; exit if it has no evidence, neither here nor recorded."""
    cell = Cell(wildcards.dataset, wildcards.architecture, wildcards.platform, int(wildcards.seed))
    try:
        PLAN.origin(cell)
    except UserError as error:
        sys.exit(f"cxrbench: {error}")  # an exception here would be shown with a traceback
    return cell


def needs(resource):
    """Return a function that gives one resource of a cell's job; only a cluster uses it."""
    return lambda wildcards, attempt: NEEDS.of(cell_of(wildcards), attempt)[resource]


def evidence_of(cell):
    """Return the fresh record if the cell runs here, else the recorded one."""
    root = "<results>/runs" if PLAN.origin(cell) == "fresh" else RECORDED
    return f"{root}/{cell}/record.json"
