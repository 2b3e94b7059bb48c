"""``cxrbench claims``: the claims, published and ours, with computed verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    PRICES,
    RESULTS,
    JsonOption,
    PricesOption,
    TablesOption,
    complain,
    print_json,
    say,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd

TABLES = RESULTS / "tables"
_FIRST_SOURCES = {"preprint": "the preprint's (P)", "ours": "ours (O)"}


def claims(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID...]", help="Claims to print, such as O18. Default: see --source."),
    ] = None,
    file: Annotated[Path, typer.Option(help="The claims.")] = Path("data/claims.yaml"),
    prices: PricesOption = PRICES,
    tables: TablesOption = TABLES,
    out: Annotated[Path | None, typer.Option(help="CSV to write, with all claims.")] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Print the claims of this source. Default: ours and the preprint's; --json: all."),
    ] = None,
    why: Annotated[bool, typer.Option("--why", help="Print the arithmetic behind each verdict too.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print our claims and the preprint's, with computed verdicts. Fails if one of ours no longer follows."""
    from cxrbench.claims.file import read_claims
    from cxrbench.claims.ledger import check_claims, read_context
    from cxrbench.common.errors import UserError, suggestion
    from cxrbench.common.files import write_csv

    stated = read_claims(file)
    if source is not None and source not in stated.sources:
        raise UserError(f"--source {source}: no such source in {file}{suggestion(source, stated.sources)}")
    context = read_context(prices, tables)
    if not tables.is_dir() and tables != TABLES:
        raise UserError(f"--tables {tables}: there is no such folder; name that of a build's tables")
    ledger = whole = check_claims(stated, context)
    shown = ledger if source is None else ledger[ledger["source"] == source]
    if ids:
        known, whose = list(shown["id"]), f" of --source {source}" if source else ""
        ids = [
            f"{name[0].upper()}{name[1:]:0>2}" if name[1:].isdecimal() else name for name in ids
        ]  # o1 is O01
        for name in ids:
            if name not in known:
                raise UserError(f"{file} has no claim '{name}'{whose}{suggestion(name, known)}")
        ledger, shown = (rows[rows["id"].isin(ids)] for rows in (ledger, shown))
    if as_json:
        print_json(shown)
    elif not out:
        if source is None and not ids and (first := shown["source"].isin(_FIRST_SOURCES)).any():
            others = [name for name in stated.sources if name not in _FIRST_SOURCES]
            shown = shown[first]
            counts = shown["verdict"].value_counts().items()
            verdicts = ", ".join(f"{verdict} {count}" for verdict, count in counts)
            more = f" --source prints those of others: {', '.join(others)}." if others else ""
            whose = " and ".join(_FIRST_SOURCES[name] for name in shown["source"].unique())
            print(wrapped(f"{len(shown)} claims, {whose}: {verdicts}.{more}"))
        for row in shown.itertuples():
            print(wrapped(f"{row.id:5} {row.verdict:20} {row.says}", " " * 27))
            if why:
                print(wrapped(f"{'':4} {row.why}{', where ' * bool(row.inputs)}{row.inputs}", " " * 6))
    if all(table is None for name, table in vars(context).items() if name != "prices"):
        untested = "no tables of a build, so claims about results are untested"
        say(f"{tables}: {untested}; run `make paper-from-evidence`")
    must_follow(ledger, prices)  # no table else: what a failed step leaves must not pass for its result
    if out:
        write_csv(out, whole)


def must_follow(ledger: pd.DataFrame, prices: Path) -> None:
    """Say which verdicts have changed; exit where one of our claims no longer follows from the evidence."""
    from cxrbench.claims.inputs import show
    from cxrbench.claims.ledger import broken, drifted, outdated

    for row in drifted(ledger).itertuples():
        say(f"{row.id}: the verdict is now '{row.verdict}', reviewed as '{row.reviewed}': {row.why}")
    for row in outdated(ledger).itertuples():
        old, new = show((row.computed_low, row.computed_high)), show((row.now_low, row.now_high))
        say(f"{row.id}: {old} at the prices that it names, {new} at the newest in {prices}: {row.says}")
    for row in (lost := broken(ledger)).itertuples():
        complain(f"our claim {row.id} does not follow from the evidence any more: {row.why}")
    if len(lost):
        raise typer.Exit(1)
