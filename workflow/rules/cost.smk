"""What each cell costs: hours times price; and which claims follow from prices and evidence."""

MONEY = ("prices", "ratios", "break_even", "decisions", "rooflines")


rule cost:
    """Hours by phase times the price of an instance, marked measured or proxy."""
    input:
        study=STUDY_FILE,
        prices="data/prices.csv",
        records=RECORDS,
        recorded=SUMS,
    output:
        "<results>/tables/cost.csv",
    log:
        "<logs>/cost.log",
    conda:
        "../../environment.yml"
    params:
        made_from=made_from("data/prices.csv", *SUMS),
        target=0.65,  # macro AUROC on validation images; declared, not tuned
        runs=10,  # that share a compilation
        root=RECORDED,
    message:
        "Pricing all cells"
    shell:
        "python -m cxrbench cost table {input.records} --exactly --study {input.study} --prices {input.prices}"
        " --target-auroc {params.target} --runs {params.runs} --recorded {params.root} --out {output} 2> {log}"


rule cost_report:
    """The preprint's ratio at every price, whether a port pays, and what equal rooflines would cost."""
    input:
        study=STUDY_FILE,
        prices="data/prices.csv",
        cost="<results>/tables/cost.csv",
        recorded=SUMS,
    output:
        tables(*MONEY),
    log:
        "<logs>/cost_report.log",
    conda:
        "../../environment.yml"
    params:
        script=SCRIPTS / "money_tables.py",
        made_from=made_from(SCRIPTS / "money_tables.py", "data/prices.csv", *SUMS),
        results=results_of,
        root=RECORDED,
    message:
        "Pricing ports"
    shell:
        "python {params.script} --results {params.results} --study {input.study} --prices {input.prices}"
        " --recorded {params.root} 2> {log}"


rule claims:
    """The ledger of claims with computed verdicts; fails when one of ours no longer follows."""
    input:
        claims="data/claims.yaml",
        prices="data/prices.csv",
        tables=tables("cells", "metrics", "cost", "parity"),
    output:
        "<results>/tables/claims.csv",
    log:
        "<logs>/claims.log",
    conda:
        "../../environment.yml"
    params:
        made_from=made_from("data/claims.yaml", "data/prices.csv", code=COMPUTING),
        tables=folder_of,
    message:
        "Checking the claims"
    shell:
        "python -m cxrbench claims --file {input.claims} --prices {input.prices}"
        " --tables {params.tables} --out {output} 2> {log}"
