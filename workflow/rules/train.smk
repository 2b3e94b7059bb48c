"""Train what runs here, then adopt all evidence: later rules treat fresh and recorded cells alike."""


rule train:
    """One cell. The trainer is a child process: its failure is recorded, its interruption resumed (75)."""
    input:
        packed="<packed>/{dataset}/manifest.json",
    output:
        "<results>/runs/{dataset}/{architecture}/{platform}/seed{seed}/record.json",
    log:
        "<logs>/train/{dataset}/{architecture}/{platform}/seed{seed}.log",
    # A cluster says of a lost job only that it failed. Here, the command below knows its exit code.
    retries: 3 if STUDY.cluster is not None and workflow.is_main_process else 0
    conda:
        "../../environment.yml"
    # Two trainings side by side make both bits and speed meaningless: a job takes all cores, or a node.
    threads: workflow.cores if STUDY.cluster is None else needs("cores")
    resources:
        mem_mb=needs("memory_mib"),
        runtime=needs("minutes"),
        slurm_partition=needs("partition"),
        gres=needs("gres"),
        slurm_extra=needs("extra"),
    params:
        python=lambda wildcards: NEEDS.cluster.python.get(wildcards.platform, "python"),
        study=STUDY_FILE,
        cell=cell_of,
        recipe=lambda wildcards: STUDY.recipe(wildcards.dataset).hash(),
        images=lambda wildcards: images_of(wildcards.dataset),
    message:
        f"Training {CELL}"
    shell:
        # Exit code 75 is an interruption: what has been saved goes on, unless this shell was stopped as well.
        "rm -f {log}; trap 'exit 75' INT TERM; for start in 1 2 3 4; do"
        " {params.python} -m cxrbench train {params.cell} --study {params.study} --packed {input.packed}"
        " --out {output} --log {log} && exit 0; code=$?; [ $code -eq 75 ] || exit $code; done; exit 75"


rule adopt:
    """Check all evidence and put it where everything after looks for it; a job per cell would take half a minute."""
    input:
        [evidence_of(cell) for cell in EVIDENCED],
    output:
        RECORDS,
    log:
        "<logs>/adopt.log",
    conda:
        "../../environment.yml"
    params:
        script=SCRIPTS / "adopt.py",
        wanted=[wanted_evidence(cell) for cell in EVIDENCED],
        out=lambda wildcards, output: Path(output[0]).parents[4],
    message:
        "Checking the evidence of all cells"
    shell:
        "python {params.script} {input} --out {params.out} 2> {log}"
