"""Trainium or CUDA for chest radiographs? The study as a graph, from data to paper."""

from snakemake.utils import min_version

min_version("9.20")


configfile: "config/config.yaml"


# Where things lie; a config may set its own `pathvars` (config/smoke.yaml does). Evidence that is recorded
# has one place.
pathvars:
    figures="figures",
    generated="paper/generated",
    paper="paper/paper.pdf",
    packed="data/packed",
    logs="<results>/logs",


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/report.smk"


rule all:
    """The paper or, of own tables, the report. Without an output this rule always runs: a build ends with the summary."""
    default_target: True
    input:
        MADE,
        result=RESULT,
        summary="<results>/summary.txt",
        study=STUDY_FILE,
    log:
        "<logs>/all.log",
    conda:
        "environment.yml"
    params:
        built=lambda wildcards, input: Path(input.study).with_name("built.json"),
    message:
        "Finishing the build"
    shell:
        "cp {input.study} {params.built} 2> {log} && cat {input.summary} 2>> {log}"


# On a cluster only packing and training are jobs: all else takes seconds where Snakemake runs.
workflow.localrules(*(rule.name for rule in workflow.rules if rule.name not in ("pack", "train")))
