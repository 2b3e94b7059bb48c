"""``cxrbench audit``: what a training step's graph says about Neuron, without compiling it."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cxrbench.cli.compile import PixelsOption, PrecisionOption
from cxrbench.cli.words import RECORDED, RESULTS, JsonOption, RecordedOption, in_columns, say, wrapped
from cxrbench.common.files import write_csv

if TYPE_CHECKING:
    import pandas as pd

    from cxrbench.neuron.rules import Setting

AUDIT_CAVEAT = (
    "This is a prior, not a verdict: it says which documented limits a graph comes near. "
    "Neuron's compiler, which needs no device, shows whether a network compiles; only a run on Trainium "
    "shows whether it loads and trains."
)
_STEP = (
    "the second training step as platform neuron takes it: uint8 images streamed from the host, "
    "augmentation, normalisation, forward, binary cross-entropy, backward, the sum of losses, AdamW and "
    "weight averaging whose states exist; one input channel, 14 labels, one process, functionalization "
    "off as on the device; as torch_xla hands it to a compiler, dead code included"
)
_HEADS = {
    "architecture": "architecture",
    "parameters": "M params",
    "gmac": "GMAC",
    "activation_mib_per_image": "MiB/image",
    "largest_batch": "largest batch",
    "instructions": "HLO",
    "convolutions": "conv",
    "layernorms": "LN",
    "batchnorms": "BN",
    "predicts_failure": "predicts failure",
    "other_rules": "other rules",
}


def audit(
    architectures: Annotated[
        list[str] | None, typer.Argument(help="timm names. Default: the list in neuron/networks.toml.")
    ] = None,
    pixels: PixelsOption = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, max=4096, help="Images per step. Default: 32.")
    ] = None,
    precision: PrecisionOption = None,
    rules: Annotated[
        bool,
        typer.Option("--rules", help="Print the rules with their sources and score."),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: JsonOption = False,
    dump_hlo: Annotated[
        Path | None, typer.Option("--dump-hlo", help="Folder to write the graphs to, in neuronx-cc's format.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep the rows as recorded evidence.")] = False,
    recorded: RecordedOption = RECORDED,
    cache: Annotated[Path, typer.Option(help="Folder that keeps captured graphs.")] = RESULTS / "audit",
) -> None:
    """Compare a network's training graph with Neuron's documented limits. Nothing is compiled.

    A flag is no verdict: on public reports flags have shown no predictive value.
    Only Neuron's compiler shows whether a network compiles, and only a run on
    Trainium whether it trains.
    """
    if rules:
        _show_rules(recorded, as_json)
        return
    from cxrbench.neuron.audit import survey, with_verdicts
    from cxrbench.neuron.networks import NETWORKS
    from cxrbench.neuron.rules import Setting

    axes = dict.fromkeys(product(pixels or [224], batch or [32], precision or ["fp32"]))
    settings = [Setting(*values) for values in axes]
    table = survey(architectures or NETWORKS, settings, cache, say)
    _keep(table, settings, dump_hlo, out, recorded if record else None)
    if as_json:
        print(json.dumps(with_verdicts(table), indent=1))
    elif not out:
        _show(table[table["part"] == "step"], bool(architectures))
    _say_what_was_captured(table, settings, recorded)


def _keep(
    table: pd.DataFrame, settings: list[Setting], graphs: Path | None, out: Path | None, recorded: Path | None
) -> None:
    """Write the graphs, the rows as CSV and the rows as evidence, each if there is a place for it."""
    from cxrbench.neuron.audit import record_audit

    if graphs:
        from cxrbench.neuron.campaign import dump_steps

        written = dump_steps(product(table["architecture"].unique(), settings), graphs, say)
        say(f"wrote {len(written)} graphs and their manifest into {graphs}")
    if out:
        write_csv(out, table)
    if recorded:
        say(f"recorded {len(table)} graphs in {record_audit(table, recorded)}")


def _say_what_was_captured(table: pd.DataFrame, settings: list[Setting], recorded: Path) -> None:
    """Say each setting with the versions of the libraries, and how little a flag means."""
    from cxrbench.neuron.audit import PACKAGES

    versions = ", ".join(f"{name} {table[name].iloc[0]}" for name in PACKAGES)
    for setting in settings:
        recipe = f"{setting.pixels} px, batch {setting.batch}, {setting.precision}"
        say(wrapped(f"Captured at {recipe}: {_STEP}. {versions}."))
    say(wrapped(f"{AUDIT_CAVEAT} {_agreement(recorded)}".strip()))


def _agreement(recorded: Path) -> str:
    """The agreement of flags with public reports, in a sentence; empty where there are none to compare."""
    from cxrbench.neuron.audit import read_audit
    from cxrbench.neuron.reports import REPORTED, read_reported, score
    from cxrbench.paper.measurements import predictive_value

    return predictive_value(score(read_reported(), read_audit(recorded))) if REPORTED.is_file() else ""


def _show(table: pd.DataFrame, named: bool) -> None:
    """A line per network and setting; the verdict of every rule for those named on the command line."""
    from cxrbench.neuron.audit import AUDIT_KEY, with_verdicts

    if len(captured := table[table["problem"] == ""].assign(parameters=table["parameters"] / 1e6)):
        varied = [name for name in AUDIT_KEY[:3] if table[name].nunique() > 1]
        shown = captured[[*varied, *_HEADS]]
        print(in_columns(shown, _HEADS))
    details = with_verdicts(table) if named else []
    for network in details:
        if network["verdicts"]:
            print("\n{architecture}, {pixels} px, batch {batch}, {precision}".format_map(network))
        for verdict in network["verdicts"]:
            flag = "flagged" if verdict["flagged"] else "clear"
            print(wrapped(f"  {verdict['rule']:4}{flag:8} {verdict['found']}", " " * 17))
    verdicts = [verdict for network in details for verdict in network["verdicts"]]
    if flagged := {verdict["rule"]: verdict for verdict in verdicts if verdict["flagged"]}:
        print("\nFlagged rules (`cxrbench audit --rules` prints all)")
        for name, rule in flagged.items():
            print(_described(name, rule))


def _described(name: str, rule: dict[str, Any]) -> str:
    """The text of a rule and, in brackets, its source."""
    since = ", ".join(filter(None, (rule["seen_with"], rule["date"])))
    where = f"{rule['ground']}, predicts {rule['predicts']}: {rule['source']}"
    says = wrapped(f"{name:4}{rule['says']}", " " * 4)
    return says + "\n" + wrapped(f"    [{where}{'; ' if since else ''}{since}]", " " * 5)


def _show_rules(recorded: Path, as_json: bool) -> None:
    """Every rule with its source, the codes that have none, and the score on reports of others."""
    from cxrbench.neuron.audit import read_audit
    from cxrbench.neuron.reports import read_reported, score
    from cxrbench.neuron.rules import KNOWN, RETIRED, RULES

    if as_json:
        rules, codes = ([entry._asdict() for entry in entries] for entries in (RULES, KNOWN))
        counts = score(read_reported(), read_audit(recorded))._asdict()
        print(json.dumps({"rules": rules, "retired": RETIRED, "known": codes, "score": counts}, indent=1))
    else:
        for rule in RULES:
            print(_described(rule.name, rule._asdict()))
        for name, why in RETIRED.items():
            print(wrapped(f"{name:4}retired: {why}", " " * 4))
        for code in KNOWN:
            print(wrapped(f"{code.code}: no rule. {code.what}", " " * 4))
            print(wrapped(f"    [{code.source}; {code.seen_with}]", " " * 5))
    say(wrapped(f"{AUDIT_CAVEAT} {_agreement(recorded)}".strip()))
