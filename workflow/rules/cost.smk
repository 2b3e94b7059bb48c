"""What each cell costs: hours times price."""


localrules:
    cost,


rule cost:
    """Hours by phase times the price of an instance, marked measured or proxy."""
    input:
        study="<results>/study.json",
        prices="data/prices.csv",
        records=[f"<results>/cells/{cell}/record.json" for cell in PLAN.evidenced()],
    output:
        "<results>/tables/cost.csv",
    log:
        "<logs>/cost.log",
    conda:
        "../../environment.yml"
    shell:
        "python -m cxrbench cost {input.records} --study {input.study} --prices {input.prices}"
        " --out {output} 2> {log}"
