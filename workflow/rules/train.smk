"""Train what runs here, adopt the rest: afterwards a fresh cell and a recorded one look the same."""


localrules:
    adopt,


rule train:
    """One cell. The trainer is a child process: its failure is recorded, its interruption resumed (75)."""
    input:
        packed="<packed>/{dataset}/manifest.json",
    output:
        "<results>/runs/{dataset}/{architecture}/{platform}/seed{seed}/record.json",
    log:
        "<logs>/train/{dataset}/{architecture}/{platform}/seed{seed}.log",
    retries: 3
    conda:
        "../../environment.yml"
    # Two trainings side by side make both bits and speed meaningless: a job takes all cores.
    threads: workflow.cores
    params:
        study=STUDY_FILE,
        cell=cell_of,
        recipe=lambda wildcards: STUDY.recipe(wildcards.dataset).hash(),
    shell:
        "python -m cxrbench train {params.cell} --study {params.study} --packed {input.packed}"
        " --out {output} --log {log}"


rule adopt:
    """Check a cell's evidence and put it where everything after looks for it."""
    input:
        evidence_of,
    output:
        "<results>/cells/{dataset}/{architecture}/{platform}/seed{seed}/record.json",
    log:
        "<logs>/adopt/{dataset}/{architecture}/{platform}/seed{seed}.log",
    conda:
        "../../environment.yml"
    params:
        cell=cell_of,
        wanted=wanted_evidence,
    shell:
        "python -m cxrbench adopt {params.cell} {input} {output} 2> {log}"
