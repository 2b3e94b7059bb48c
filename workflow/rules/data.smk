"""Data: one uint8 array and its index per dataset."""


rule pack:
    """Decode, resize and split the images of a dataset in one pass."""
    output:
        "<packed>/{dataset}/manifest.json",
    log:
        "<logs>/pack/{dataset}.log",
    conda:
        "../../environment.yml"
    threads: workflow.cores
    params:
        study=STUDY_FILE,
        config=lambda wildcards: STUDY.dataset(wildcards.dataset).model_dump(mode="json", exclude={"recipe"}),
    shell:
        "python -m cxrbench data pack {wildcards.dataset} --study {params.study} --out {output} 2> {log}"
