"""Data: one uint8 array and its index per dataset."""


rule pack:
    """Decode, resize and split the images of a dataset in one pass."""
    input:
        table_file,
        check_values,
    output:
        "<packed>/{dataset}/manifest.json",
    log:
        "<logs>/pack/{dataset}.log",
    conda:
        "../../environment.yml"
    threads: workflow.cores
    params:
        study=lambda wildcards, output: STUDY_FILE,  # its name is no reason to pack again: studies share images
        given=lambda wildcards: content_of(*table_file(wildcards)),
        config=lambda wildcards: images_of(wildcards.dataset),
    message:
        "Packing the images of {wildcards.dataset}"
    shell:
        "python -m cxrbench data pack {wildcards.dataset} --study {params.study} --out {output} 2> {log}"
