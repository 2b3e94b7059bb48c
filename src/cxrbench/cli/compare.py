"""The command that compares two sets of runs."""

from __future__ import annotations

import json
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    ANOTHER_VERDICT,
    MAPPED,
    RECORDED,
    mapped_columns,
    say,
    terminal_width,
    wrapped,
)

if TYPE_CHECKING:
    from cxrbench.statistics.comparison import Comparison

_SOURCES_HELP = (
    "Two sets of runs, each a folder, a file, a quoted pattern such as 'a/*.csv', or a recorded name such as"
    " nih128-32px/resnet18/cpu. With --reference: one run, and the runs that it is to be like. With --by: one"
    " table of scores."
)
_MEANING = (
    "Equivalent: the 90 % interval lies within the margin, {margins}. Different: not equivalent, and the 95 %"
    " one excludes zero; for a finding, Holm's p of no difference, corrected over all findings, is also below"
    " 0.05."
)
_UNJUDGED = " Only AUROC has a verdict, because no margin of the others is established."
_OF_REFERENCE = (
    "Inside: the 95 % interval of the difference from the reference's mean holds zero, as it does for 19 of"
    " 20 runs like the reference's. Inside is not equivalent: changes below the noticed ones stay hidden."
    " Holm's p is corrected over the findings."
)


def compare(
    sources: Annotated[list[str], typer.Argument(help=_SOURCES_HELP, metavar="A B")],
    margin: Annotated[float, typer.Option(help="Margin of equivalence of means over findings.")] = 0.01,
    label_margin: Annotated[float, typer.Option(help="Margin of each of several findings.")] = 0.02,
    by: Annotated[
        str | None,
        typer.Option(
            help="Compare the two values of this column in one table with a seed and a score a row."
        ),
    ] = None,
    reference: Annotated[
        bool, typer.Option("--reference", help="A is one run: could it be one of the runs of B?")
    ] = False,
    common: Annotated[bool, typer.Option("--common", help="Compare the images that all runs share.")] = False,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            help=f"{MAPPED}; once more if B's differ.",
        ),
    ] = None,
    scores: Annotated[
        str, typer.Option(help="probabilities, or logits for any finite numbers.")
    ] = "probabilities",
    findings: Annotated[
        str | None, typer.Option(help="Compare these findings alone, separated by commas.")
    ] = None,
    positive_patients: Annotated[
        int,
        typer.Option(
            min=1, help="Mean AUROC is over findings with at least this many positive test patients."
        ),
    ] = 10,
    expect: Annotated[
        str | None, typer.Option(help="Exit with 4 unless this is the verdict, for example equivalent.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write everything to this file, as a page.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Write the intervals as a picture (.png, .pdf, .svg) too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")] = False,
) -> None:
    """Compare two sets of runs and report whether they are equivalent.

    A file has the predictions of one run, as CSV, CSV.gz or Parquet: image;
    label_NAME (0, 1 or empty) and score_NAME for each finding; patient and split
    (train, val, test) if known. Or a row per image and finding: image, finding,
    label, score. Runs are paired by the number in the file's name (seed3.csv).
    Intervals count patients and runs together.

    Example: cxrbench compare gpu port --html page.html
    for the folders gpu and port with seed0.csv, seed1.csv, seed2.csv each.
    """
    from cxrbench.common.errors import UserError
    from cxrbench.statistics.compare_scores import compare_scores
    from cxrbench.statistics.comparison import compare_runs

    expected = None if expect is None else _expected(expect.replace(" ", "_"), reference)  # as it is printed
    if scores not in ("probabilities", "logits"):
        raise UserError(f"--scores {scores}: use probabilities or logits")
    if plot:
        from cxrbench.paper.compare_page import must_be_picture

        must_be_picture(plot)
    of_columns = [mapped_columns(text) for text in mapped or [""]]
    if len(of_columns) > (2 if by is None else 1):
        raise UserError(
            f"--columns is given {len(of_columns)} times; give it once, or without --by once for A and once "
            "for B"
        )
    if by is not None:
        of_predictions = (reference, common, findings, scores != "probabilities", positive_patients != 10)
        if len(sources) != 1 or any(of_predictions):
            raise UserError(
                "--by takes one table of scores, and none of --reference, --common, --findings, --scores and "
                "--positive-patients; leave these out, or --by to compare two sets of predictions"
            )
        comparison = compare_scores(Path(sources[0]), by, margin, of_columns[0])
    elif len(sources) == 2:
        named = [name.strip() for name in (findings or "").split(",") if name.strip()]
        if findings is not None and not named:
            raise UserError("--findings names none; write them separated by commas, or leave it out")
        comparison = compare_runs(
            located(sources[0]),
            located(sources[1]),
            margin,
            label_margin,
            common=common,
            columns=of_columns[0],
            columns_of_b=of_columns[-1],
            logits=scores == "logits",
            findings=named,
            positive_patients=positive_patients,
            reference=reference,
        )
    else:
        raise UserError(
            "`compare` takes two sets of runs, A and B; quote patterns, or the shell expands them"
        )
    comparison.notes[:0] = [*_networks(sources), *_unused(comparison, margin, label_margin)]
    if as_json:
        for note in comparison.notes:
            say(wrapped(note))
        print(json.dumps(comparison.rows, indent=1, allow_nan=False))
    else:
        print("\n".join(_in_a_terminal(comparison)))
    if plot or html:
        from cxrbench.paper.compare_page import write_comparison, write_plot

        if plot:
            write_plot(comparison, plot)
        if html:
            write_comparison(comparison, html, sources, _options(margin, label_margin, by, reference))
        for path in filter(None, (plot, html)):
            say(f"wrote {path}")
    if expected not in (None, comparison.verdict):
        say(f"the verdict is {comparison.verdict}, not {expected}")
        raise typer.Exit(ANOTHER_VERDICT)


def _expected(verdict: str, reference: bool) -> str:
    """The verdict that is expected; UserError for one that there is not, or not of such a comparison."""
    from cxrbench.common.errors import UserError, suggestion
    from cxrbench.statistics.components import Verdict

    if verdict not in list(Verdict):
        raise UserError(f"--expect {verdict}: there is no such verdict{suggestion(verdict, list(Verdict))}")
    beside = verdict in (Verdict.INSIDE, Verdict.OUTSIDE)
    if verdict != Verdict.CANNOT_TELL and beside != reference:
        raise UserError(
            f"--expect {verdict}: a run beside its reference is inside or outside, two sets are not; "
            f"{'leave out' if reference else 'add'} --reference, or expect another verdict"
        )
    return verdict


def _unused(comparison: Comparison, margin: float, label_margin: float) -> list[str]:
    """A note where a margin was given by which no row is judged."""
    from cxrbench.statistics.comparison import LABEL_MARGIN, MARGIN

    used = {row["margin"] for row in comparison.rows}
    why = "a reference has no margin" if comparison.reference else "--margin judges means and an only finding"
    given = (("--margin", margin, MARGIN), ("--label-margin", label_margin, LABEL_MARGIN))
    return [
        f"{option} {value:g} decides nothing here: {why}"
        for option, value, default in given
        if value != default and value not in used
    ]


def _options(margin: float, label_margin: float, by: str | None, reference: bool) -> str:
    """Those options that decide a verdict, as they were given."""
    chosen = "" if reference else f" --margin {margin:g}"
    chosen += "" if reference or by else f" --label-margin {label_margin:g}"
    return chosen + " --reference" * reference + (f" --by {by}" if by else "")


def size_from_pilot(
    a: str, b: str, metric: str, margin: float, runs: int | None, patients: int | None, as_json: bool
) -> None:
    """Print the power of ``runs`` on each side (None: of as many as both have) and so many ``patients``, as
    the runs of ``a`` and ``b`` vary, and what 80 % power takes."""
    from dataclasses import asdict

    from cxrbench.common.errors import UserError, suggestion
    from cxrbench.statistics import compare_words as words
    from cxrbench.statistics.comparison import MEAN_NAMES, compare_runs
    from cxrbench.statistics.components import MIN_SEEDS
    from cxrbench.statistics.pilot import needs

    sized_metrics = list(dict.fromkeys(sized for _, sized in MEAN_NAMES))
    if metric not in sized_metrics:
        raise UserError(f"--metric {metric}: no mean of it is sized{suggestion(metric, sized_metrics)}")
    comparison = compare_runs(located(a), located(b), margin)
    row = next((row for row in comparison.rows if row["metric"] == metric), None)
    if row is None or row["difference"] is None:
        raise UserError(
            f"--metric {metric}: undefined in these files; add the images of split val (F1's "
            "thresholds come from it), or name another metric"
        )
    if min(row["runs_a"], row["runs_b"]) < 2:
        raise UserError(
            f"{a} and {b}: a pilot takes two runs on each side, better three, because one says nothing of "
            "their spread; add runs"
        )
    by_source = comparison.variances[metric, row["label"]]
    runs = runs or max(MIN_SEEDS, min(row["runs_a"], row["runs_b"]))
    need = needs(by_source, margin, runs, patients)
    if as_json:
        variances = {
            f"variance_{part['source'].replace(' ', '_')}": part["variance"] for part in by_source.rows()
        }
        named = {name: row[name] for name in ("metric", "label", "runs_a", "runs_b", "paired")}
        print(json.dumps([named | asdict(need) | variances], indent=1, allow_nan=False))
        return
    print(wrapped(f"{words.name_of(row)}: {words.settle(need, words.PILOT)}", ""))
    print("\n".join(["", *words.variance(by_source)]))
    for note in comparison.notes:
        say(wrapped(note))


def located(source: str) -> str:
    """A source as it is, or a recorded name below the folder of recorded evidence; UserError where what looks
    like such a name is none, with the nearest."""
    from cxrbench.common.errors import UserError, nearest

    recorded = RECORDED / source
    if Path(source).exists() or has_magic(source) or not (recorded.is_dir() or source.count("/") == 2):
        return source
    if recorded.is_dir():
        return str(recorded)
    settings = [path.relative_to(RECORDED).as_posix() for path in sorted(RECORDED.glob("*/*/*"))]
    if not settings:
        raise UserError(
            f"{source}: there is no such folder, and recorded settings are in the clone alone; run this "
            "there, or name your folder"
        )
    if hint := nearest(source, settings):
        raise UserError(f"{source}: there is no such folder, and no such setting is recorded{hint}")
    return source


def _networks(sources: list[str]) -> list[str]:
    """A note where two recorded settings are of different networks."""
    recorded = [
        source.split("/")[1] for source in sources if (RECORDED / source).is_dir() and source.count("/") == 2
    ]
    if len({*recorded}) < 2:
        return []
    return [f"A is of {recorded[0]} and B of {recorded[1]}, so the difference is that of two networks"]


# Columns of a table that a narrow terminal keeps: the first that fit, or the last.
_NARROWER = ((0, 1, 2, 3, 4, 6, 7), (0, 3, 4, 6, 7), (0, 3, 4, 6))


def _in_a_terminal(comparison: Comparison) -> list[str]:
    """The lines of a comparison: the answer, what to know before it is used, the table, and why."""
    from cxrbench.statistics import compare_words as words

    lines = [wrapped(words.sentence(comparison), "")]
    lines += [wrapped(f"- {note}") for note in comparison.notes]
    head, rows = words.shown_table(comparison)
    shown = _laid_out(head, rows)
    if (whole_width := len(shown[0])) > terminal_width():
        for kept in _NARROWER:
            shown = _laid_out(head, rows, kept)
            if len(shown[0]) <= terminal_width():
                break
        hidden = ", ".join(name for k, name in enumerate(head) if k not in kept)
        shown += [
            "",
            wrapped(f"Not shown in under {whole_width} columns: {hidden}. --html FILE has all.", ""),
        ]
    meaning = _OF_REFERENCE if comparison.reference else _MEANING.format(margins=_margins(comparison))
    if not all(row["verdict"] for row in comparison.rows):
        meaning += _UNJUDGED
    lines += ["", *shown, "", wrapped(meaning, "")]
    if bars := list(words.variance(comparison.main_variance)):
        lines += ["", *bars]
    if (need := comparison.needs) and (settled := words.settle(need, comparison.verdict)):
        lines += ["", wrapped(settled, "")]
    return lines


def _margins(comparison: Comparison) -> str:
    """The margins of means and of findings in words."""
    margins = [*dict.fromkeys(row["margin"] for row in comparison.rows if row["margin"] is not None)]
    alone = f" for means and {margins[1]:g} for each finding" if len(margins) > 1 else ""
    return f"{margins[0]:g}{alone}" if margins else "which is not given"


def _laid_out(head: list[str], rows: list[list[str]], kept: tuple[int, ...] = tuple(range(8))) -> list[str]:
    """The lines of a table with the ``kept`` columns, as wide as their longest text."""
    lines = [[line[k] for k in kept] for line in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(map(str.ljust, line, widths)).ljust(sum(widths)) for line in lines]
