"""The paper: every table, number and figure from evidence, then LaTeX."""

TABLES = [
    *rules.cells.output,
    *rules.evaluate.output,
    *rules.cost.output,
    *rules.claims.output,
    *rules.statistics.output,
    *rules.cost_report.output,
    *rules.data_tables.output,
]
MEASURED = files(RECORDED, "bench/*/*.json", "audit/*.csv", "simulated/*.csv", "compile/*/*/*.json")
READ_BY_TABLES = [
    "data/reported.csv",
    "data/published_comparisons.csv",
    "data/prices.csv",
    "data/claims.yaml",
    "data/registry.csv",
    "data/timm_training.csv",
    "data/timm_inference.csv",
]
# What LaTeX is given besides <generated> and <figures>.
PAPER_SOURCES = files("paper", "*.tex", "*.bib", "sections/**/*")


# Every intermediate file. A failed job's outputs are removed, and Snakemake overlooks a missing intermediate
# file: a build that asked for the last files only would leave a paper made from older ones.
MADE = [
    *TABLES,
    EVIDENCE,
    "<generated>/macros.tex",
    "<results>/values.json",
    *(f"<figures>/{item.name}.pdf" for item in printed(figures())),
    *(f"<results>/runs/{cell}/record.json" for cell in EVIDENCED if PLAN.origin(cell) == "fresh"),
    *RECORDS,
]


# What a build is for: a study of somebody's own tables gets the paper only under a title of its own.
RESULT = "<paper>" if STUDY.makes_paper() else "<results>/report.html"


rule tables:
    """Tables as LaTeX, CSV and Markdown; macros.tex and values.json hold every value that a document names."""
    input:
        TABLES,
        MEASURED,
        EVIDENCE,
        SUMS,
        READ_BY_TABLES,
        study=STUDY_FILE,
        named=NAMED_FILE,
    output:
        "<generated>/macros.tex",
        "<results>/values.json",
    log:
        "<logs>/tables.log",
    conda:
        "../../environment.yml"
    params:
        made_from=[*made_from(*MEASURED, *SUMS, *READ_BY_TABLES), sha256_json(NAMED)],
        results=results_of,
        out=folder_of,
    message:
        "Writing the tables and values of the paper"
    shell:
        "python -m cxrbench report --only tables --results {params.results} --study {input.study}"
        " --named {input.named} --generated {params.out} 2> {log}"


rule figures:
    """Vector figures without dates: the same bytes every time."""
    input:
        TABLES,
        MEASURED,
        EVIDENCE,
        study=STUDY_FILE,
    output:
        [f"<figures>/{item.name}.pdf" for item in printed(figures())],
    log:
        "<logs>/figures.log",
    conda:
        "../../environment.yml"
    params:
        made_from=made_from(*MEASURED),
        results=results_of,
        out=folder_of,
    message:
        "Drawing the figures"
    shell:
        "python -m cxrbench report --only figures --results {params.results} --study {input.study}"
        " --figures {params.out} 2> {log}"


rule report:
    """Conclusions, claims, tables, figures and every cell's evidence on one HTML page."""
    input:
        TABLES,
        MEASURED,
        EVIDENCE,
        SUMS,
        READ_BY_TABLES,
        study=STUDY_FILE,
        expected="data/expected_status.csv",
    output:
        "<results>/report.html",
    log:
        "<logs>/report.log",
    conda:
        "../../environment.yml"
    params:
        made_from=made_from(*MEASURED, *SUMS, *READ_BY_TABLES, "data/expected_status.csv"),
        results=results_of,
    message:
        "Writing the HTML report"
    shell:
        "python -m cxrbench report --only page --results {params.results} --study {input.study}"
        " --expected {input.expected} --page {output} 2> {log}"


rule page:
    """The report as a target: like `all`, it requires every intermediate file."""
    input:
        MADE,
        page="<results>/report.html",
    log:
        "<logs>/page.log",
    conda:
        "../../environment.yml"
    message:
        "Finishing the report"
    shell:
        "echo Report: {input.page} 2> {log}"


rule paper:
    """LaTeX, through latexmk."""
    input:
        macros="<generated>/macros.tex",
        figures=rules.figures.output,
        sources=PAPER_SOURCES,
    output:
        "<paper>",
    log:
        "<logs>/paper.log",
    conda:
        "../../environment.yml"
    params:
        made_from=made_from(*PAPER_SOURCES),
        generated=lambda wildcards, input: Path(input.macros).parent,
        figures=lambda wildcards, input: Path(input.figures[0]).parent,
    message:
        "Typesetting the paper"
    shell:
        "python -m cxrbench report --only paper --paper {output} --generated {params.generated}"
        " --figures {params.figures} 2> {log}"


rule summary:
    """What a person wants to see at the end."""
    input:
        TABLES,
        study=STUDY_FILE,
        expected="data/expected_status.csv",
    output:
        summary="<results>/summary.txt",
        matrix="<results>/matrix.txt",
    log:
        "<logs>/summary.log",
    conda:
        "../../environment.yml"
    params:
        made_from=made_from("data/expected_status.csv"),
        results=results_of,
        paper=workflow.pathvars.apply("<paper>"),  # named, not read: LaTeX works meanwhile
    message:
        "Summarising the results"
    shell:
        "python -m cxrbench report --only summary,matrix --results {params.results} --study {input.study}"
        " --expected {input.expected} --paper {params.paper} --matrix {output.matrix} > {output.summary} 2> {log}"
