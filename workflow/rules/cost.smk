"""What each cell costs: hours times price; and which claims follow from prices and evidence."""


localrules:
    cost,
    claims,


rule cost:
    """Hours by phase times the price of an instance, marked measured or proxy."""
    input:
        study=STUDY_FILE,
        prices="data/prices.csv",
        records=[f"<results>/cells/{cell}/record.json" for cell in PLAN.evidenced()],
    output:
        "<results>/tables/cost.csv",
    log:
        "<logs>/cost.log",
    conda:
        "../../environment.yml"
    shell:
        "python -m cxrbench cost table {input.records} --study {input.study} --prices {input.prices}"
        " --out {output} 2> {log}"


rule claims:
    """The ledger of claims with computed verdicts; fails when one of ours no longer follows."""
    input:
        claims="data/claims.yaml",
        prices="data/prices.csv",
        tables=[f"<results>/tables/{name}.csv" for name in ("cells", "metrics", "cost")],
    output:
        "<results>/tables/claims.csv",
    log:
        "<logs>/claims.log",
    conda:
        "../../environment.yml"
    params:
        tables=lambda wildcards, output: Path(output[0]).parent,
    shell:
        "python -m cxrbench claims --file {input.claims} --prices {input.prices}"
        " --tables {params.tables} --out {output} 2> {log}"
