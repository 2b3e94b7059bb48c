"""Scores with intervals clustered by patient, from per-image predictions; no torch from here on."""


rule evaluate:
    """All metrics of all cells in one tidy table; failed cells have none."""
    input:
        RECORDS,
    output:
        "<results>/tables/metrics.csv",
    log:
        "<logs>/evaluate.log",
    conda:
        "../../environment.yml"
    params:
        code=SCORING,
        positive_patients=STUDY.endpoint.positive_patients,
    message:
        "Scoring all cells"
    shell:
        "python -m cxrbench evaluate {input} --positive-patients {params.positive_patients} --out {output}"
        " 2> {log}"


rule evidence:
    """A checksum of all records: an input of rules whose commands find the records themselves."""
    input:
        RECORDS,
    output:
        EVIDENCE,
    log:
        "<logs>/evidence.log",
    conda:
        "../../environment.yml"
    message:
        "Taking a checksum of all evidence"
    shell:
        "cksum {input} > {output} < /dev/null 2> {log}"


rule cells:
    """Every cell of the study with its status and origin; cells nobody ran are rows too."""
    input:
        study=STUDY_FILE,
        records=RECORDS,
        recorded=SUMS,
    output:
        "<results>/tables/cells.csv",
    log:
        "<logs>/cells.log",
    conda:
        "../../environment.yml"
    params:
        script=SCRIPTS / "cell_table.py",
        made_from=made_from(SCRIPTS / "cell_table.py", *SUMS, code=COMPUTING),
        left_out=LEFT_OUT,
    message:
        "Listing all cells"
    shell:
        "python {params.script} {input.records} --study {input.study} --out {output} 2> {log}"


rule statistics:
    """Comparisons between cells: platforms, settings, spread over seeds, power, subgroups, literature, F1."""
    input:
        EVIDENCE,
        study=STUDY_FILE,
        cells="<results>/tables/cells.csv",
        metrics="<results>/tables/metrics.csv",
        baselines="data/baselines.csv",
    output:
        tables("parity", "contrasts", "pairs", "shares", "spread", "sources", "power", "powers"),
        tables("f1_search", "subgroups", "literature"),
    log:
        "<logs>/statistics.log",
    conda:
        "../../environment.yml"
    params:
        script=SCRIPTS / "comparison_tables.py",
        made_from=made_from(SCRIPTS / "comparison_tables.py", "data/baselines.csv", code=COMPUTING),
        results=results_of,
    message:
        "Comparing platforms, seeds and published values"
    shell:
        "python {params.script} --results {params.results} --study {input.study}"
        " --baselines {input.baselines} 2> {log}"
