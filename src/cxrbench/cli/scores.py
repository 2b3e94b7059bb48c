"""Commands about results: score predictions, size a comparison."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    MAPPED,
    RECORDED,
    RESULTS,
    JsonOption,
    TablesOption,
    aligned,
    in_columns,
    mapped_columns,
    print_json,
    say,
    wrapped,
)
from cxrbench.statistics.metrics import ALL, COMPARED, ENDPOINT, METRICS, in_words

if TYPE_CHECKING:
    import pandas as pd


_SOURCE_HELP = (
    "A cell's folder, its record.json or its recorded name, or predictions as Parquet or CSV. Columns: image;"
    " label_NAME (0, 1 or empty) and score_NAME (0 to 1) for each finding; patient and split (train, val,"
    " test) if known."
)
_SHOWN = {
    name: METRICS[name].short for name in ("average_precision", "f1", "calibration_error")
}  # in a terminal, beside AUROC
_WIDTH, _LONGEST = 80, 18  # letters of a line and of a finding there
_RIGHT = (1, 3, 4, 5)  # columns of numbers there


def evaluate(
    sources: Annotated[list[Path] | None, typer.Argument(help=_SOURCE_HELP, metavar="SOURCE...")] = None,
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: JsonOption = False,
    replicates: Annotated[
        int | None,
        typer.Option(
            min=1, help="Draws for the calibration error by chance. Default: 2,000, for large data fewer."
        ),
    ] = None,
    positive_patients: Annotated[
        int,
        typer.Option(
            min=1, help="The main endpoint is over findings with at least this many positive test patients."
        ),
    ] = 10,
    columns: Annotated[list[str] | None, typer.Option(help=f"{MAPPED}.")] = None,
) -> None:
    """Score predictions: AUROC, F1, calibration and more, with intervals over patients.

    Several files are scored one by one; `cxrbench compare` tells whether two sets differ.
    Example: cxrbench evaluate predictions.parquet
    """
    from cxrbench.common.errors import UserError
    from cxrbench.common.files import write_csv
    from cxrbench.results.scoring import each_once, evaluate_cells, evaluate_files

    named = [
        kept
        if not path.exists() and len(path.parts) > 1 and (kept := RECORDED / path).parent.is_dir()
        else path
        for path in sources or []
    ]
    files = list({path.resolve(): path for path in named}.values())
    for path in files:
        if path.is_dir() and (runs := sorted(path.glob("seed*/record.json"))):
            raise UserError(
                f"{path}: {len(runs)} runs; name one, such as {runs[0].parent}, or use `cxrbench compare`"
            )
    if len(files) < len(sources or []):
        say("a file that is named twice is scored once")
    if columns and len(columns) > 1:
        raise UserError(f"--columns is given once; separate its names by commas: {','.join(columns)}")
    records = [path for path in files if path.name == "record.json"]
    if files and records == files and not columns:
        table, notes = evaluate_cells(records, replicates, positive_patients)
    elif files:
        table, notes = evaluate_files(
            files, replicates, positive_patients, say, mapped_columns((columns or [""])[0])
        )
    else:
        raise UserError("name a file of predictions, or the record.json of one or more cells")
    if out:
        write_csv(out, table)
        say(f"wrote {out}")
    if as_json:
        print_json(table)
    elif not out and len(table):
        column = next((name for name in ("source", "cell") if name in table), None)
        if column is None or table[column].nunique() == 1:
            print(_in_a_terminal(table))
        else:
            parts = (f"{name}\n{_in_a_terminal(rows)}" for name, rows in table.groupby(column, sort=False))
            print("\n\n".join(parts))
            say("To compare two sets of runs: cxrbench compare A B")
    for note in each_once(notes, len(files)):
        say(wrapped(note))


def _in_a_terminal(table: pd.DataFrame) -> str:
    """The answer and its table for a terminal, in ``_WIDTH`` columns: findings by metrics, then pooled F1."""
    import pandas as pd

    from cxrbench.statistics.evaluate import one_per_metric

    rows = one_per_metric(table).replace({"metric": {"f1_macro": "f1"}})
    by_key = rows.set_index(["label", "metric"])
    names = list(dict.fromkeys(rows["label"][rows["metric"] == "auroc"]))
    columns = {name: short for name, short in _SHOWN.items() if (rows["metric"] == name).any()}
    lines: list[tuple[str, ...]] = []
    for name in names:
        area = by_key.loc[(name, "auroc")]
        positive = "" if pd.isna(area["n_positive"]) else f"{area['n_positive']:,}/"
        # The endpoint has AUROC alone.
        values = by_key["value"].reindex([(name, metric) for metric in columns])
        others = map(_number, values)
        label = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
        lines.append((label, f"{positive}{area['n_images']:,}", _with_interval(area), *others))
    head = ["finding", "positive/all", "AUROC (95 %)", *columns.values()]
    parts = [aligned([head, *lines], _RIGHT)]
    if (ENDPOINT, "auroc") in by_key.index:
        area = by_key.loc[(ENDPOINT, "auroc")]
        parts[0] = f"Mean AUROC (main endpoint): {_with_interval(area)}, 95 % interval.\n{parts[0]}"
    pooled = [(row["metric"], _with_interval(row)) for _, row in rows[rows["label"] == ALL].iterrows()]
    if pooled:
        parts.append(aligned([("all findings", "(95 %)"), *pooled]))
    left = dict.fromkeys(rows["metric"][~rows["metric"].isin(["auroc", *_SHOWN]) & (rows["label"] != ALL)])
    also = "Not shown; --out FILE.csv and --json have them: intervals of the other columns"
    parts.append(fill(f"{also}, {', '.join(left)}. A hyphen: undefined; the notes say why.", _WIDTH))
    return "\n\n".join(parts)


def _score(metric: str) -> str:
    """The words for a metric that is sized: of AUROC without those for the main endpoint."""
    return METRICS[metric].score if METRICS[metric].endpoint else in_words(METRICS[metric].label, metric)


def _number(value: float) -> str:
    import pandas as pd

    return "-" if pd.isna(value) else f"{value:.3f}"


def _with_interval(row: pd.Series) -> str:
    import pandas as pd

    ends = " (too few)" if row["too_few"] else ""
    ends = f" ({row['ci_low']:.3f} to {row['ci_high']:.3f})" if pd.notna(row["ci_low"]) else ends
    return _number(row["value"]) + ends


_LEAST = 1e-6  # a difference or a margin has to be above zero


def power(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP | A B]",
            help="dataset/architecture/platform of a recorded spread, or its first parts (default: all); or"
            " the two sets of runs of a pilot, as `cxrbench compare` takes them.",
        ),
    ] = None,
    margin: Annotated[float, typer.Option(min=_LEAST, max=0.5, help="Margin of equivalence.")] = 0.01,
    difference: Annotated[
        float | None,
        typer.Option(min=_LEAST, max=1, help="Print the seeds and patients that detect this difference too."),
    ] = None,
    metric: Annotated[str, typer.Option(help="auroc, f1_macro or f1_micro.")] = "auroc",
    patients: Annotated[
        int | None, typer.Option(min=2, help="Test patients. Default: as many as were scored.")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=3, help="Seeds on each platform. Default: 3; with A and B, as many as both have, if more."
        ),
    ] = None,
    share: Annotated[
        list[float] | None,
        typer.Option(
            min=0,
            max=1,
            help="Share of the variance between seeds that differs between platforms. Default: 0, 0.2,"
            " 0.5 and 1; two sets of runs, A and B, measure it.",
        ),
    ] = None,
    patient_se: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Standard error over patients of what networks do not share, in place of the recorded.",
        ),
    ] = None,
    seed_sd: Annotated[
        float, typer.Option(min=0, help="With --patient-se: standard deviation between seeds.")
    ] = 0.0,
    measured_on: Annotated[
        int | None, typer.Option(min=2, help="With --patient-se: number of patients behind it.")
    ] = None,
    tables: TablesOption = RESULTS / "tables",
    as_json: JsonOption = False,
) -> None:
    """Compute how many patients and seeds it takes to show that two platforms agree (power 80 %).

    It covers means over findings and pooled F1, not single findings. It uses
    your pilot's two sets of predictions, the recorded spread, or a spread that
    you give. Without any it prints a row per dataset of real radiographs; --json
    prints everything.
    Example: cxrbench power nih128-32px-fp32/resnet18/cpu nih128-32px-bf16/resnet18/cpu
    """
    import pandas as pd

    from cxrbench.cli.compare import size_from_pilot
    from cxrbench.common.errors import UserError, suggestion
    from cxrbench.results.spreads import spreads_of
    from cxrbench.statistics.components import MIN_SEEDS
    from cxrbench.statistics.power import SHARES, Design, SeedSpread, answers

    if metric not in COMPARED:
        raise UserError(f"--metric {metric}: there is no spread of it{suggestion(metric, COMPARED)}")
    if sources and len(sources) > 1:
        if len(sources) > 2 or share or any((patient_se is not None, difference, seed_sd, measured_on)):
            unused = "--share, --patient-se, --seed-sd, --measured-on and --difference"
            raise UserError(f"a pilot is two sets of runs, A and B; leave out {unused}")
        size_from_pilot(sources[0], sources[1], metric, margin, seeds, patients, as_json)
        return
    group = sources[0] if sources else None
    if group and patient_se is not None:
        raise UserError(f"--patient-se is a spread of your own; leave it or {group} out")
    if patient_se is None:
        if seed_sd or measured_on:
            raise UserError("--seed-sd and --measured-on describe a spread of yours: add --patient-se")
        spreads = spreads_of(tables / "spread.csv", group or "", metric)
    elif not (0 < patient_se < 1 and seed_sd < 1):
        raise UserError("--patient-se and --seed-sd are below 1, --patient-se above 0; give such numbers")
    elif patients_measured := measured_on or patients:
        spreads = [({}, SeedSpread(patient_se, patients_measured, seed_sd))]
    else:
        raise UserError("--patient-se: on how many patients was it measured? Give --measured-on")
    seeds = seeds or MIN_SEEDS
    rows = [
        named | answers(spread, Design(patients or spread.patients, seeds, portion), margin, difference)
        for named, spread in spreads
        for portion in share or SHARES
    ]
    table = pd.DataFrame(rows).convert_dtypes()
    if difference is None:
        table = table.drop(columns=["difference", "seeds_to_see", "patients_to_see"])
    if as_json:
        print_json(table)
    else:
        print("\n".join(_power_in_words(table, metric, group)))


def _power_in_words(table: pd.DataFrame, metric: str, group: str | None) -> list[str]:
    """Whether patients and seeds suffice, then the rows: one per share where there is one run, else
    one per run, or per dataset of real radiographs where no ``group`` was asked for."""
    import pandas as pd

    if "dataset" not in table:
        return [*_verdict(table, metric), "", in_columns(_readable(table), _HEADS), wrapped(_EACH)]
    if group is None and not table["drawn"].all():
        table = table[~table["drawn"]]
    run = table["dataset"] + "/" + table["architecture"] + "/" + table["platform"]
    if run.nunique() == 1:
        return [run.iloc[0], *_verdict(table, metric), "", in_columns(_readable(table), _HEADS), _ASSUMED]
    asked = table.columns.intersection(["seeds_to_see", "patients_to_see"])
    key = run.rename("run") if group else table["dataset"]
    rows = [
        {str(key.name): name} | {column: _ends(part, column) for column in (*_ANSWERS, *asked)}
        for name, part in table.groupby(key, sort=False)
    ]
    more = "" if group else "Phantoms are left out. "
    more += "`cxrbench power DATASET/NETWORK/PLATFORM` has the numbers of one."
    return [*_verdict(table, metric), "", in_columns(pd.DataFrame(rows), _HEADS), wrapped(more)]


def _verdict(table: pd.DataFrame, metric: str) -> list[str]:
    """Whether the seeds and patients of all rows suffice, and how many seeds would."""
    from cxrbench.statistics.components import POWER

    power, needed = table["power_at_zero"], table["seeds_needed"].dropna()
    several = "dataset" in table and len(table[["dataset", "architecture", "platform"]].drop_duplicates()) > 1
    depends = f"It depends on the {'run' if several else 'share of seed variance that platforms make anew'}"
    word = "Enough" if power.min() >= POWER else "Too few" if power.max() < POWER else depends
    within = f"{table['margin'].iloc[0]:g} in {_score(metric)}"
    agree = f"agree within {within} in {_ends(table, 'power_at_zero')} of studies"
    shown = (
        f"{word}: {_ends(table, 'seeds')} seeds and {_ends(table, 'patients')} test patients show equal "
        f"platforms to {agree}. The aim is {100 * POWER:.0f} %"
    )
    more = " or more" if len(needed) < len(table) else ""
    enough = f"{_ends(needed.to_frame(), 'seeds_needed')}{more}" if len(needed) else "no number of"
    return [wrapped(f"{shown}, which takes {enough} seeds.", "")]


_COUNTS = ["patients", "seeds", "measured_on", "seeds_needed", "patients_needed", "seeds_to_see"]
_FORMATS: dict[str, Callable[[float], str]] = {
    **dict.fromkeys([*_COUNTS, "patients_to_see"], "{:,.0f}".format),
    **dict.fromkeys(["patient_se", "seed_sd", "smallest_margin"], "{:.4f}".format),
    "power_at_zero": lambda power: f"{100 * power:.0f} %",
}
_HEADS = {
    "patient_se": "SE over patients", "measured_on": "patients measured", "seed_sd": "SD over seeds",
    "share": "share of seed variance that differs", "power_at_zero": "power if equal",
    "smallest_margin": "smallest margin", "seeds_needed": "seeds needed",
    "patients_needed": "patients needed",
    "seeds_to_see": "seeds to see it", "patients_to_see": "patients to see it",
}  # fmt: skip


_ASSUMED = (
    "Assumed: no part of the interaction of patients and runs is common to both platforms.\n"
    "`cxrbench power A B` measures what two platforms share, from three runs on each."
)
_EACH = "Each row assumes another share; `cxrbench power A B` measures it, from three runs on each."
_NONE = "none suffices"
# Said by the verdict; degrees of freedom only in --json.
_SAID = ("patients", "seeds", "margin", "difference", "seed_freedom")
_ANSWERS = ("power_at_zero", "smallest_margin", "seeds_needed", "patients_needed")


def _ends(table: pd.DataFrame, column: str) -> str:
    """The range of a column, and whether in some rows no number suffices."""
    values = table[column].dropna()
    texts = list(dict.fromkeys(_FORMATS[column](end) for end in (values.min(), values.max())))
    if values.empty:
        return _NONE
    return " to ".join(texts) if len(values) == len(table) else f"{texts[0]}, or {_NONE}"


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """The rows for a terminal: short numbers, and words where no number suffices."""
    texts = {
        name: table[name].astype(object).map(_FORMATS[name], na_action="ignore")
        for name in table.columns.intersection(list(_FORMATS))
    }
    shown = table.assign(**{name: column.fillna(_NONE) for name, column in texts.items()})
    return shown.drop(
        columns=[*_SAID, "dataset", "architecture", "platform", "metric", "drawn"], errors="ignore"
    )
