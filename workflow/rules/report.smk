"""One way from evidence to the paper: scores, then all tables, values and figures in one step, then LaTeX."""

TABLES = [
    *("cells", "metrics", "cost", "parity", "contrasts", "powers", "pairs", "shares", "spread"),
    *("sources", "folds", "folds_pooled", "power", "f1_search", "subgroups", "literature", "prices"),
    *("ratios", "break_even", "decisions", "arithmetic", "rooflines", "claims", "splits", "label_noise"),
]
MEASURED = files(
    RECORDED, "bench/*/*.json", "bench/*/*.csv", "audit/*.csv", "simulated/*.csv", "neuron/*/*/*.json"
)
READ = [
    *("data/baselines.csv", "data/claims.yaml", "data/expected_status.csv", "data/prices.csv"),
    *("data/published_comparisons.csv", "data/registry.csv", "data/reported.csv"),
    *("data/timm_inference.csv", "data/timm_training.csv"),
]
# What LaTeX is given besides <generated> and <figures>.
PAPER_SOURCES = files("paper", "*.tex", "*.bib", "sections/**/*")


rule score:
    """The scores of every cell, with intervals clustered by patient: a file each, kept; no torch from here on."""
    input:
        study=STUDY_FILE,
        records=RECORDS,
    output:
        "<results>/scores.json",
    log:
        "<logs>/score.log",
    conda:
        "../../environment.yml"
    params:
        script=SCRIPTS / "score.py",
        code=[SCORING, content_of(SCRIPTS / "score.py")],
        results=results_of,
    message:
        "Scoring all cells"
    shell:
        "python {params.script} {input.records} --results {params.results} --study {input.study} 2> {log}"


rule report:
    """Tables as CSV, Markdown and LaTeX, every value that a document names, figures, and the summary."""
    input:
        "<results>/scores.json",
        MEASURED,
        SUMS,
        READ,
        study=STUDY_FILE,
        named=NAMED_FILE,
    output:
        [f"<results>/tables/{name}.csv" for name in TABLES],
        figures=[f"<figures>/{item.name}.pdf" for item in printed(figures())],
        values="<results>/values.json",
        macros="<generated>/macros.tex",
        matrix="<results>/matrix.txt",
        summary="<results>/summary.txt",
    log:
        "<logs>/report.log",
    conda:
        "../../environment.yml"
    params:
        # Snakemake compares times alone, of what a job reads.
        made_from=[REPORTING, content_of(*MEASURED, *SUMS, *READ), sha256_json(NAMED)],
        left_out=LEFT_OUT,
        results=results_of,
        generated=lambda wildcards, output: Path(output.macros).parent,
        figures=lambda wildcards, output: Path(output.figures[0]).parent,
        paper=workflow.pathvars.apply("<paper>"),  # named, not read
    message:
        "Computing tables, values and figures"
    shell:
        "python -m cxrbench report --only tables,figures,matrix,summary --results {params.results}"
        " --study {input.study} --named {input.named} --generated {params.generated} --figures {params.figures}"
        " --paper {params.paper} --matrix {output.matrix} > {output.summary} 2> {log}"


rule page:
    """Conclusions, claims, tables, figures and every cell's evidence on one HTML page."""
    input:
        RECORDS,
        rules.score.output,
        rules.report.output,
        MEASURED,
        SUMS,
        READ,
        study=STUDY_FILE,
    output:
        "<results>/report.html",
    log:
        "<logs>/page.log",
    conda:
        "../../environment.yml"
    params:
        made_from=[REPORTING, content_of(*MEASURED, *SUMS, *READ)],
        results=results_of,
    message:
        "Writing the HTML report"
    shell:
        "python -m cxrbench report --only page --results {params.results} --study {input.study}"
        " --page {output} 2> {log}"


rule paper:
    """LaTeX, through latexmk."""
    input:
        PAPER_SOURCES,
        macros=rules.report.output.macros,
        figures=rules.report.output.figures,
    output:
        "<paper>",
    log:
        "<logs>/paper.log",
    conda:
        "../../environment.yml"
    params:
        made_from=[REPORTING, content_of(*PAPER_SOURCES)],
        generated=lambda wildcards, input: Path(input.macros).parent,
        figures=lambda wildcards, input: Path(input.figures[0]).parent,
    message:
        "Typesetting the paper"
    shell:
        "python -m cxrbench report --only paper --paper {output} --generated {params.generated}"
        " --figures {params.figures} 2> {log}"


# Every intermediate file. A failed job's outputs are removed, and Snakemake overlooks a missing intermediate
# file: a build that asked for the last files only would leave a paper made from older ones.
MADE = [
    *RECORDS,
    *(f"<results>/runs/{cell}/record.json" for cell in EVIDENCED if PLAN.origin(cell) == "fresh"),
    *rules.score.output,
    *rules.report.output,
]
# What a build is for: a study of somebody's own tables gets the paper only under a title of its own.
RESULT = "<paper>" if STUDY.makes_paper() else "<results>/report.html"
