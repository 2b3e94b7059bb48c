"""The pages of the documentation site, ready for Sphinx: ``python docs/pages.py results/docs-source``.

The folder mirrors the repository, so that every relative link holds: the pages of docs/ and whatever they
link to, an index that lists them by reader, and pages made from the code: the API of cxrbench.statistics,
the faults that tests try, and the simulated coverage of intervals.
"""

import ast
import re
import shutil
import sys
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "data/recorded"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
BUILT = {
    "results/report.html": "The report of the last build",
    "paper/paper.pdf": "The paper",
}  # if they exist
READERS = re.compile(r"^## (.+?)$\n(.*?)(?=^## |\Z)", re.M | re.S)
COVERAGE = """# Simulated coverage

The fraction of 95 % confidence intervals that contain the true value, with its simulation error; then the
mean width and the fraction of intervals wider than 0.5. Each study draws 510 patients from NIH's label table,
with their images and findings. [How these numbers are used](docs/statistics.md).

## AUROC of one network

700 studies each, 1,400 of "real scores": those of eight recorded networks, drawn with their patients. A
network's AUROC on all of them is the truth. The "heaviest patient" of a finding has most of its variance.

{intervals}
## Other metrics, and means of three runs

At AUROC 0.8, for calibrated networks whose seeds spread widely, with 260 validation patients and 120 studies.

{means}
## Verdicts on two platforms

The fraction of studies in which a false statement is made; the last rows are coverage. The columns are the
fraction of seed variance that the platforms do not share.

{verdicts}"""
FAULTS = """# Faults that tests try

Each row is run by `make test-all`, which fails unless the user gets what the third column says. Neuron's
compiler and devices are fakes, and faults of a GPU are simulated.

"""


def markdown(table: pd.DataFrame) -> str:
    """A table of texts in Markdown."""
    rows = [list(table.columns), ["---"] * len(table.columns), *table.to_numpy().tolist()]
    return "".join(
        f"| {' | '.join(str(text).replace('|', chr(92) + '|') for text in row)} |\n" for row in rows
    )


def faults(tests: Path) -> pd.DataFrame:
    """The faults that tests are marked with: area, what is done, what its user gets, and where."""
    rows = set()
    for path in sorted(tests.rglob("*.py")):
        place = path.relative_to(tests)
        area = place.parts[0] if len(place.parts) > 1 else place.stem.removeprefix("test_")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.fault":
                what, outcome = (ast.literal_eval(argument) for argument in node.args)
                rows.add((area.replace("_", " "), what, outcome, f"`{place}`"))
    return pd.DataFrame(sorted(rows), columns=["Area", "What is done", "What the user gets", "Test"])


def coverage(recorded: Path) -> dict[str, pd.DataFrame]:
    """The tables of simulated studies: rates with their errors, mean widths, fractions of wide intervals."""

    def shown(name: str, index: dict[str, str], columns: str, head: str = "{}") -> pd.DataFrame:
        rows = pd.read_csv(recorded / f"simulated/{name}.csv", keep_default_na=False)
        texts = rows["rate"].map("{:.1%}".format) + rows["monte_carlo_error"].map(" ± {:.1%}".format)
        if "mean_width" in rows:
            texts += rows["mean_width"].map("; {:.3f}".format) + rows["wide"].map("; {:.1%}".format)
        rows = rows.assign(text=texts)
        rows[columns] = rows[columns].map(lambda key: head.format(key) if key != "real scores" else key)
        wide = rows.pivot_table("text", list(index), columns, aggfunc="first", sort=False)
        return wide.fillna("").reset_index().rename(columns=index)

    positives = {"positive_patients": "Positive patients"}
    return {
        "intervals": shown("coverage", {"what": "Interval of", **positives}, "auroc", "AUROC {}"),
        "means": shown("means", {"metric": "Metric", **positives}, "what"),
        "verdicts": shown(
            "verdicts", {"what": "Statement", "seeds": "Seeds"}, "platform_share", "fraction {}"
        ),
    }


def api(room: Path) -> str:
    """A page of all modules of cxrbench.statistics, from their docstrings."""
    parts = ["# API of cxrbench.statistics", "```{eval-rst}\n.. automodule:: cxrbench.statistics\n```"]
    for name in sorted(path.stem for path in room.glob("[a-z]*.py")):
        directive = f".. automodule:: cxrbench.statistics.{name}\n   :members:"
        parts.append(f"## {name}\n\n```{{eval-rst}}\n{directive}\n```")
    return "\n\n".join(parts) + "\n"


def copy_linked(page: Path, out: Path) -> None:
    """Copy a page, and what it links to, to the same place below ``out``; links to folders become text."""
    target = out / page.relative_to(ROOT)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(page, target)
    if page.suffix != ".md":
        return
    text = page.read_text(encoding="utf-8")
    for path, _ in LINK.findall(text):
        linked = (page.parent / path).resolve()
        if linked.is_file():
            copy_linked(linked, out)
        else:
            text = re.sub(rf"\[([^\]]*)\]\({re.escape(path)}(#[^)]*)?\)", r"\1", text)
    target.write_text(text, encoding="utf-8")


def contents(title: str, entries: list[str]) -> str:
    """A list of pages for the site's sidebar."""
    return f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(entries) + "\n```\n"


def write_pages(out: Path) -> None:
    """Write all pages into the folder ``out``, which is made anew."""
    shutil.rmtree(out, ignore_errors=True)
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "ARTIFACT.md"]:
        copy_linked(page, out)
    (out / "docs/README.md").unlink()
    tables = {name: markdown(table) for name, table in coverage(RECORDED).items()}
    (out / "coverage.md").write_text(COVERAGE.format(**tables), encoding="utf-8")
    (out / "faults.md").write_text(FAULTS + markdown(faults(ROOT / "tests")), encoding="utf-8")
    (out / "api.md").write_text(api(ROOT / "src/cxrbench/statistics"), encoding="utf-8")
    lists = [contents("Start", [start := "README.md"])]
    lists += [
        contents(
            title, list(dict.fromkeys(f"/docs/{path}" for path, _ in LINK.findall(body) if "/" not in path))
        )
        for title, body in READERS.findall(index)
    ]
    made = ["api", "coverage", "faults"]
    others = sorted(str(page.relative_to(out)) for page in out.rglob("*.md") if page.parent.name != "docs")
    placed = {start, *(f"{name}.md" for name in made)}
    lists += [contents("Reference", [*made, *(page for page in others if page not in placed)])]
    links = []
    for name, title in BUILT.items():
        if (ROOT / name).is_file():
            copy_linked(ROOT / name, out)
            links.append(f"- [{title}]({name})\n")
    index = re.sub(r"\]\((?!https?:|\.\./)", "](docs/", index).replace("](../", "](")
    text = f"{index}\n{'## Results' * bool(links)}\n\n{''.join(links)}\n{''.join(lists)}"
    (out / "index.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
