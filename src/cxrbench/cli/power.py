"""The command about power: what patients and seeds can show, and how many a margin needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cxrbench.cli.words import RESULTS

if TYPE_CHECKING:
    from cxrbench.analysis.power import Spread


def power(
    group: Annotated[
        str | None, typer.Argument(help="Only dataset/architecture/platform, or its start.")
    ] = None,
    margin: Annotated[float, typer.Option(help="The margin of equivalence.")] = 0.01,
    difference: Annotated[float | None, typer.Option(help="Also what it takes to see this one.")] = None,
    metric: Annotated[
        str, typer.Option(help="auroc, f1_macro or f1_micro, of the recorded spread.")
    ] = "auroc",
    patients: Annotated[int | None, typer.Option(help="Test patients; else those that were scored.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds on each platform.")] = 3,
    share: Annotated[
        list[float] | None, typer.Option(help="Part of the seed variance that a platform makes anew, 0 to 1.")
    ] = None,
    patient_se: Annotated[
        float | None, typer.Option(help="Given instead: a network's own error over --measured-on patients.")
    ] = None,
    seed_sd: Annotated[
        float, typer.Option(help="With it: the networks' spread in skill between seeds.")
    ] = 0.0,
    measured_on: Annotated[int | None, typer.Option(help="Patients behind --patient-se.")] = None,
    tables: Annotated[Path, typer.Option(help="Folder of the result tables.")] = RESULTS / "tables",
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
) -> None:
    """What patients and seeds can show about two platforms, and how many a margin needs (power 80 %).

    Of means over findings and pooled F1; single findings are not sized.
    From the recorded spread, or from given numbers: --patient-se 0.0037 --measured-on 510 --seed-sd 0.009.
    """
    import pandas as pd

    from cxrbench.analysis.power import SHARES, Design, Spread, answers
    from cxrbench.study.errors import UserError

    if patient_se is None:
        known = _recorded(tables / "spread.csv", group or "", metric)
    elif on := measured_on or patients:
        known = [({}, Spread(patient_se, on, seed_sd))]
    else:
        raise UserError("--patient-se: on how many patients was it measured? Give --measured-on")
    rows = [
        named | answers(spread, Design(patients or spread.patients, seeds, each), margin, difference)
        for named, spread in known
        for each in share or SHARES
    ]
    table = pd.DataFrame(rows).convert_dtypes()
    if difference is None:
        table = table.drop(columns=["difference", "seeds_to_see", "patients_to_see"])
    if as_json:
        print(table.to_json(orient="records", indent=1))
    else:
        print(_readable(table).to_string(index=False))


def _recorded(path: Path, group: str, metric: str) -> list[tuple[dict[str, str], Spread]]:
    """The spreads of spread.csv that a person asked for."""
    import pandas as pd

    from cxrbench.analysis.power import METRICS, recorded_spreads
    from cxrbench.study.errors import UserError, suggestion

    if metric not in METRICS:
        raise UserError(f"--metric {metric}: there is no spread of it{suggestion(metric, METRICS)}")
    if not path.exists():
        raise UserError(
            f"{path}: missing; run `make paper-from-evidence`, or give --patient-se and --seed-sd"
        )
    every = [(named, spread) for named, spread, _ in recorded_spreads(pd.read_csv(path))]
    names = ["/".join([named["dataset"], named["architecture"], named["platform"]]) for named, _ in every]
    chosen = [
        each
        for each, name in zip(every, names, strict=True)
        if each[0]["metric"] == metric and f"{name}/".startswith(f"{group}/" if group else "")
    ]
    if not chosen:
        raise UserError(
            f"{group or metric}: no spread over seeds is known{suggestion(group or '', dict.fromkeys(names))}"
        )
    return chosen


def _readable(table: Any) -> Any:
    """The rows for a terminal: short numbers, and words where no number suffices."""
    import pandas as pd

    table = table.copy()
    for name in table.columns.intersection(["patients", "seeds", "measured_on"]):
        table[name] = table[name].map("{:,.0f}".format)
    for name in table.columns.intersection(["patient_se", "seed_sd", "smallest_margin"]):
        table[name] = table[name].map("{:.4f}".format)
    if "power_at_zero" in table:
        table["power_at_zero"] = table["power_at_zero"].map("{:.0%}".format)
    for name in table.columns.intersection(
        ["seeds_needed", "patients_needed", "seeds_to_see", "patients_to_see"]
    ):
        table[name] = table[name].map(lambda value: "none would do" if pd.isna(value) else f"{value:,.0f}")
    return table
