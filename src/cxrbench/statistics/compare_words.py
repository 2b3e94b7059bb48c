"""A comparison in words: the answer in one sentence, its table, its variance, and what would settle it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cxrbench.statistics.comparison import MEAN_NAMES, Comparison
from cxrbench.statistics.components import POWER, Verdict
from cxrbench.statistics.pilot import SOURCES, Needs, VarianceParts

PILOT = "pilot"  # in place of a verdict: the runs are judged for the study that they prepare

_BAR = 20  # characters of a bar that is the whole variance
_OPENINGS = {
    Verdict.EQUIVALENT: "Equivalent",
    Verdict.DIFFERENT: "Different",
    Verdict.INCONCLUSIVE: "Inconclusive",
    Verdict.CANNOT_TELL: "Cannot tell",
    Verdict.INSIDE: "Inside",
    Verdict.OUTSIDE: "Outside",
}
MEANING = {  # of the sources of variance
    SOURCES[0]: "shared by all runs",
    SOURCES[1]: "particular to a single run",
    SOURCES[2]: "the seed itself",
}


def name_of(row: Mapping[str, Any]) -> str:
    """The quantity of a row: ``mean AUROC``, ``AUROC of Mass``.

    >>> name_of({"metric": "auroc", "label": "endpoint"}), name_of({"metric": "auroc", "label": "Mass"})
    ('mean AUROC', 'AUROC of Mass')
    """
    metric = {"auroc": "AUROC", "average_precision": "average precision"}.get(row["metric"], row["metric"])
    return MEAN_NAMES.get((row["label"], row["metric"])) or (
        f"{metric} of {row['label']}" if row["label"] else metric
    )


def sentence(comparison: Comparison) -> str:
    """The answer: verdict, difference, interval, margin, and what was compared.

    >>> from cxrbench.statistics import compare_runs
    >>> from cxrbench.statistics.examples import predictions
    >>> sentence(compare_runs({0: predictions(0)}, {0: predictions(1)})).partition(" (")[0]
    'Inconclusive: mean AUROC differs by +0.0080'
    """
    return ": ".join(verdict_and_grounds(comparison))


def verdict_and_grounds(comparison: Comparison) -> tuple[str, str]:
    """The two parts of :func:`sentence`: the verdict, and what it rests on.

    >>> from cxrbench.statistics import compare_runs
    >>> from cxrbench.statistics.examples import predictions
    >>> verdict_and_grounds(compare_runs({0: predictions(0)}, {0: predictions(1)}))[0]
    'Inconclusive'
    """
    row, verdict = comparison.main, Verdict(comparison.verdict)
    because = _because(row, verdict, comparison.reference)
    return _OPENINGS[verdict], f"{because}. {_compared(row, comparison.reference)}."


def _because(row: Mapping[str, Any], verdict: Verdict, reference: bool) -> str:
    name, margin = name_of(row), f"{row['margin']:g}" if row["margin"] else ""
    if verdict is Verdict.CANNOT_TELL:
        return _why_not(row, reference)
    if verdict in (Verdict.INSIDE, Verdict.OUTSIDE):
        return _beside_reference(row, verdict)
    differs = f"{name} differs by {_signed(row['difference'])} ({_interval(row, 90)})"
    if verdict is Verdict.EQUIVALENT:
        although = ", although it differs from zero" if row["ci95_low"] > 0 or row["ci95_high"] < 0 else ""
        return f"{differs}, within the margin of {margin}{although}"
    if verdict is Verdict.DIFFERENT:
        side, ab = "A" if row["difference"] > 0 else "B", (row["value_a"], row["value_b"])
        scores = "{:.4f} in A against {:.4f} in B".format(*ab)
        return (
            f"{name} is higher in {side} by {abs(row['difference']):.4f}: {scores} "
            f"(A - B: {_interval(row, 95)}, which excludes zero)"
        )
    differs = f"{name} differs by {_signed(row['difference'])} ({_interval(row, 95)})"
    return (
        f"{differs}, which includes zero; the {_interval(row, 90).replace('interval', 'interval,')}, reaches "
        f"beyond the margin of {margin}"
    )


def _beside_reference(row: Mapping[str, Any], verdict: Verdict) -> str:
    """Where a run lies, and what would have been noticed."""
    low, high = (row["value_a"] - row[f"ci95_{end}"] for end in ("high", "low"))
    noticed = (
        f"a true change of {row['noticeable']:.4f} is noticed in four runs of five"
        if row["noticeable"] is not None
        else "what it would notice is unknown"
    )
    place = "within" if verdict is Verdict.INSIDE else "outside"
    return (
        f"{name_of(row)} of the run is {row['value_a']:.4f}, {place} the 95 % prediction interval of the "
        f"reference, {low:.4f} to {high:.4f}; {noticed}"
    )


def _why_not(row: Mapping[str, Any], reference: bool) -> str:
    """Why a row has no interval, and what to do."""
    name = name_of(row)
    differs = f"{name} differs by {_signed(row['difference'])}"
    if row["difference"] is None:
        return f"{name} is undefined ({row['note'] or 'no value'}); score more positive patients"
    fewest = min(row["runs_a"], row["runs_b"])
    if fewest == 1 and max(row["runs_a"], row["runs_b"]) > 1 and not reference:
        alone = "A" if row["runs_a"] == 1 else "B"
        ask = ", or ask with --reference whether one run could be one of the others" if row["images"] else ""
        unknown = f"{alone} has one run, so its spread is unknown"
        return f"{differs}, but {unknown}; add runs, or give each side one{ask}"
    why = row["note"] or "nothing was seen to vary"
    return f"{differs}, without an interval ({why}); add runs or patients"


def _compared(row: Mapping[str, Any], reference: bool) -> str:
    runs = (row["runs_a"], row["runs_b"])
    if reference:
        unit = "patients" if row["patients"] else "images, their patients unknown"
        return f"1 run against {runs[1]}; {row['patients'] or row['images']:,} {unit}"
    pairing = "paired" if row["paired"] else "unpaired"
    if runs[0] != runs[1]:
        counted = f"{runs[0]} and {runs[1]} runs, {pairing}"
    else:
        counted = "1 run each, so these two alone" if runs[0] == 1 else f"{runs[0]} runs each, {pairing}"
    if row["patients"] is None:
        scored = (
            f"{row['images']:,} images, their patients unknown"
            if row["images"]
            else "patients are not covered"
        )
    else:
        scored = f"{row['patients']:,} patients"
    return f"{counted}; {scored}"


def _interval(row: Mapping[str, Any], level: int) -> str:
    return f"{level} % interval {_signed(row[f'ci{level}_low'])} to {_signed(row[f'ci{level}_high'])}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value + 0.0:+.4f}"


def sentence_for_a_paper(comparison: Comparison) -> str:
    """A sentence for a paper: what was compared, the difference, its interval, and the margin.

    >>> from cxrbench.statistics import compare_runs
    >>> from cxrbench.statistics.examples import predictions
    >>> found = compare_runs({0: predictions(0)}, {0: predictions(0, skill=2)})
    >>> sentence_for_a_paper(found).partition("). ")[2]
    'With a margin of 0.01, the two differ.'
    """
    row, verdict = comparison.main, Verdict(comparison.verdict)
    name = f"{name_of(row)[0].upper()}{name_of(row)[1:]}"
    counted = "patients and runs" if row["patients"] else "images and runs" if row["images"] else "runs"
    if max(row["runs_a"], row["runs_b"]) == 1:
        counted = counted.removesuffix(" and runs") + ", for these two runs alone"
    if row["ci90_low"] is None:
        return f"{name} was compared, without an interval."
    if comparison.reference:
        return (
            f"{name} of the run was {row['value_a']:.4f}; the mean of {row['runs_b']} reference runs was "
            f"{row['value_b']:.4f}. The run is {verdict} their 95 % prediction interval, over {counted} (of "
            f"the difference: {_signed(row['ci95_low'])} to {_signed(row['ci95_high'])})."
        )
    concluded = {
        Verdict.EQUIVALENT: "the two are equivalent",
        Verdict.DIFFERENT: "the two differ",
    }.get(verdict, "neither equivalence nor a difference was shown")
    return (
        f"{name} differed by {_signed(row['difference'])} (90 % confidence interval "
        f"{_signed(row['ci90_low'])} to {_signed(row['ci90_high'])}, over {counted}; "
        f"{_compared(row, False)}). With a margin of {row['margin']:g}, {concluded}."
    )


def shown_table(comparison: Comparison) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table: every row but average precision of single findings. The interval
    that decides is the second; beside a reference the first column of the two says what would be noticed.

    >>> from cxrbench.statistics import compare_runs
    >>> from cxrbench.statistics.examples import predictions
    >>> head, lines = shown_table(compare_runs({0: predictions(0)}, {0: predictions(1)}))
    >>> head[1:4], lines[0][:4]
    (['A', 'B', 'A - B'], ['mean AUROC', '0.7487', '0.7406', '+0.0080'])
    """
    head = ["", "A", "B", "A - B", "90 % interval", "95 % interval", "verdict", "Holm's p"]
    if comparison.reference:
        head = ["", "run", "reference", "difference", "noticed", "95 % interval", "verdict", "Holm's p"]
    lines = []
    for row in comparison.rows:
        single = (row["label"], row["metric"]) not in MEAN_NAMES
        if single and row["metric"] == "average_precision":
            continue
        ends = [
            f"{_signed(row[f'ci{level}_low'])} to {_signed(row[f'ci{level}_high'])}"
            if row[f"ci{level}_low"] is not None
            else "-"
            for level in (90, 95)
        ]
        if comparison.reference:
            ends[0] = f"{row['noticeable']:.4f}" if row["noticeable"] is not None else "-"
        values = [f"{row[side]:.4f}" if row[side] is not None else "-" for side in ("value_a", "value_b")]
        verdict = (row["verdict"] or "").replace("_", " ")
        p = "" if row["p_holm"] is None else f"{row['p_holm']:.3f}"
        name = row["label"] if single and row["label"] else name_of(row)
        lines.append([name, *values, _signed(row["difference"]), *ends, verdict, p])
    return head, lines


def variance(by_source: VarianceParts | None) -> Iterator[str]:
    """Lines with the variance of a difference by source, a bar each; none without a variance.

    >>> from cxrbench.statistics import compare_runs
    >>> from cxrbench.statistics.examples import predictions
    >>> a, b = ({seed: predictions(10 * side + seed) for seed in range(3)} for side in (0, 1))
    >>> _, *sources = variance(compare_runs(a, b).main_variance)
    >>> [source.split("#")[0].strip() for source in sources[1:]]
    ['patients x run  82 %', 'run             18 %']
    """
    rows = by_source.rows() if by_source else []
    total = sum(row["variance"] for row in rows)
    if not total > 0:  # NaN of a mean that is undefined
        return
    yield f"Standard error of the difference: {total**0.5:.4f}. Its variance by source:"
    for row in rows:
        bar = "#" * round(_BAR * row["fraction"])
        yield f"  {row['source']:14} {100 * row['fraction']:3.0f} %  {bar:{_BAR}}  {MEANING[row['source']]}"


def settle(need: Needs, verdict: str) -> str:
    """What these runs could show, and what 80 % power takes, as measured and at worst; empty for runs that
    differ, which no study of equal platforms would settle.

    >>> need = Needs(0.01, 3, 500, 0.6, 0.6, 4, 4, None, None)
    >>> settle(need, PILOT)[:19]
    'Too few: with 3 run'
    >>> settle(need, "inconclusive").partition("studies. ")[2]
    'For 80 % it takes 4 runs on each side with these patients; with 3 runs, no number of patients is enough.'
    """
    if verdict == Verdict.DIFFERENT:
        return ""
    runs, patients = (
        _both(getattr(need, f"{unit}_needed_as_measured"), getattr(need, f"{unit}_needed_at_worst"), unit)
        for unit in ("runs", "patients")
    )
    power = f"{100 * need.power_as_measured:.0f} % of studies"
    if need.power_at_worst != need.power_as_measured:
        power += f" ({100 * need.power_at_worst:.0f} % at worst, if runs of one number share nothing)"
    if need.runs_needed_as_measured is not None:
        runs = f"it takes {runs}"
    opening = "To settle it" if verdict == Verdict.INCONCLUSIVE else "Power of such a study"
    if verdict == PILOT:
        opening = "Enough" if need.power_as_measured >= POWER else "Too few"
    both = "{} runs and {:,} patients together are enough.".format(*need.both_needed or (0, 0))
    return (
        f"{opening}: with {need.runs} runs each and {need.patients:,} patients, equal platforms are shown "
        f"equivalent within {need.margin:g} in {power}. For 80 % {runs} with these patients; with "
        f"{need.runs} runs, {patients}.{f' {both}' if need.both_needed else ''}"
    )


def _both(measured: int | None, worst: int | None, unit: str) -> str:
    on_each_side = " on each side" if unit == "runs" else ""
    if measured is None:
        return f"no number of {unit} is enough"
    if measured == worst:
        return f"{measured:,} {unit}{on_each_side}"
    at_worst = "no number is enough" if worst is None else f"{worst:,}"
    return f"{measured:,} {unit}{on_each_side} (at worst {at_worst})"
