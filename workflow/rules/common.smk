"""What the rules ask about the study. The answers are cxrbench's; here is only the glue."""

import hashlib
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

# Rules call `python -m cxrbench` of this checkout, whatever environment they run in.
SOURCE = str(Path(workflow.basedir) / "src")
sys.path.insert(0, SOURCE)
os.environ.update(PYTHONPATH=SOURCE)

from cxrbench.cells import Cell
from cxrbench.config import parse_study
from cxrbench.datasets.split import file_of
from cxrbench.errors import UserError
from cxrbench.files import write_if_changed
from cxrbench.report.items import figures
from cxrbench.resources import JobNeeds
from cxrbench.study import Plan, must_be_architectures
from cxrbench.yaml_keys import refuse_repeated_keys_in

RECORDED = Path("data/recorded")
SUMS = [path for path in [RECORDED / "SHA256SUMS"] if path.exists()]  # what is recorded, as one file
try:
    for file in workflow.configfiles:  # Snakemake would keep the last of two equal keys
        refuse_repeated_keys_in(file)
    STUDY = parse_study(dict(config), "config")
    must_be_architectures(cell.architecture for cell in STUDY.all_cells())
    PLAN = Plan(STUDY, recorded=RECORDED, packed=Path(STUDY.pathvars.get("packed", "data/packed")))
    NEEDS = JobNeeds(STUDY, recorded=RECORDED)
except UserError as error:
    raise WorkflowError(str(error))

LEFT_OUT = list(filter(None, map(PLAN.left_out, STUDY.all_cells())))
for reason in LEFT_OUT:
    print(f"cxrbench: {reason}", file=sys.stderr)

# The study as resolved (overlays, --config) for the commands below. It is written here and not by a rule,
# because Snakemake does not look at the params of a rule whose inputs are all ancient().
STUDY_FILE = f"{STUDY.pathvars.get('results', 'results')}/study.json"
write_if_changed(STUDY_FILE, STUDY.model_dump_json(indent=1) + "\n")


def code_of(*patterns):
    """Changes with the code behind a command. Snakemake itself looks at commands and data only."""
    package, hashed = Path(SOURCE, "cxrbench"), hashlib.sha256()
    for path in sorted({path for one in ("*.py", *patterns) for path in package.glob(one)}):
        name = path.relative_to(SOURCE)
        # Neither caches nor an editor's own files.
        hidden = any(part.startswith((".", "__pycache__")) for part in name.parts)
        if path.is_file() and not hidden:
            hashed.update(name.as_posix().encode() + path.read_bytes())
    return hashed.hexdigest()[:16]


SCORING = code_of("metrics/*", "report/evaluation.py", "cli/results.py")
REPORTING = code_of(
    *(f"{room}/**/*" for room in ("audit", "claims", "cli", "cost", "datasets", "metrics", "report")),
    "platforms/*",
)


def split_file(wildcards):
    """The file that a split is read from, where the study names one."""
    dataset = STUDY.dataset(wildcards.dataset)
    found = file_of(dataset.split, dataset.folder) if dataset.source == "nih" else None
    return [found] if found else []


def wanted_evidence(wildcards):
    """What adopted evidence must come from: without it, an interrupted retraining would leave the old in place."""
    dataset = STUDY.dataset(wildcards.dataset).model_dump(mode="json")
    return [PLAN.origin(cell_of(wildcards)), STUDY.recipe(wildcards.dataset).hash(), dataset]


PAPER_SOURCES = sorted(str(path) for end in ("tex", "bib") for path in Path("paper").glob(f"**/*.{end}"))
PAPER_SOURCES = [path for path in PAPER_SOURCES if not path.startswith("paper/generated")]


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
