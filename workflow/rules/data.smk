"""Data: one uint8 array and its index per dataset."""


localrules:
    study,


rule study:
    """The config as resolved by Snakemake (overlays, --config), for the commands below."""
    output:
        "<results>/study.json",
    log:
        "<logs>/study.log",
    conda:
        "../../environment.yml"
    params:
        study=lambda wildcards: STUDY.model_dump_json(indent=1),
    shell:
        "python -m cxrbench study {output} {params.study:q} 2> {log}"


rule pack:
    """Decode, resize and split the images of a dataset in one pass."""
    input:
        study=ancient("<results>/study.json"),
    output:
        "<packed>/{dataset}/manifest.json",
    log:
        "<logs>/pack/{dataset}.log",
    conda:
        "../../environment.yml"
    threads: workflow.cores
    params:
        config=lambda wildcards: STUDY.dataset(wildcards.dataset).model_dump(mode="json", exclude={"recipe"}),
    shell:
        "python -m cxrbench data pack {wildcards.dataset} --study {input.study} --out {output} 2> {log}"
