"""``cxrbench audit``: what a training step's graph says about Neuron, without compiling it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cxrbench.cli.words import RECORDED, RESULTS, RecordedOption, say
from cxrbench.study.errors import UserError
from cxrbench.study.files import write_csv

if TYPE_CHECKING:
    import pandas as pd

SHOWN = {
    "architecture": "architecture",
    "parameters": "M params",
    "gmac": "GMAC",
    "activation_mib_per_image": "MiB/image",
    "largest_batch": "largest batch",
    "instructions": "HLO",
    "convolutions": "conv",
    "grouped_convolutions": "grouped",
    "batch_grouped_convolutions": "batch-gr.",
    "dots": "dot",
    "permutes": "permute",
    "kernels": "kernels",
    "layernorms": "LN",
    "batchnorms": "BN",
    "rules_broken": "rules",
}


def audit(
    architectures: Annotated[
        list[str] | None, typer.Argument(help="timm names; default: the list in compile/networks.py.")
    ] = None,
    pixels: Annotated[int, typer.Option(min=16, max=1024, help="Side of the images.")] = 224,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="Images per step.")] = 32,
    precision: Annotated[str, typer.Option(help="fp32 or bf16.")] = "fp32",
    out: Annotated[Path | None, typer.Option(help="CSV to write.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The rows as JSON on standard output.")] = False,
    dump_hlo: Annotated[
        Path | None, typer.Option("--dump-hlo", help="Folder for the graphs, as neuronx-cc takes them.")
    ] = None,
    record: Annotated[bool, typer.Option("--record", help="Keep the rows as recorded evidence.")] = False,
    recorded: RecordedOption = RECORDED,
    cache: Annotated[Path, typer.Option(help="Folder of earlier captures.")] = RESULTS / "audit",
) -> None:
    """Hold the graph that Neuron's compiler would be given against documented limits: a prior, no verdict."""
    from cxrbench.compile.audit import PACKAGES, explained, record_audit, survey
    from cxrbench.compile.networks import NETWORKS
    from cxrbench.compile.rules import PRIOR, Setting

    if precision not in ("fp32", "bf16"):
        raise UserError(f"--precision: unknown value '{precision}'; use fp32 or bf16")
    setting = Setting(pixels, batch, precision)
    table = survey(architectures or NETWORKS, setting, cache, say)
    if dump_hlo:
        from cxrbench.compile.campaign import dump

        written = dump(table["architecture"], [setting], dump_hlo, say)
        say(f"wrote {len(written)} graphs and their manifest into {dump_hlo}")
    if out:
        write_csv(out, table)
    if record:
        say(f"recorded {len(table)} networks in {record_audit(table, recorded)}")
    if as_json:
        print(json.dumps(explained(table), indent=1))
    elif not out:
        _show(table, explained(table) if architectures else [])
    versions = ", ".join(f"{name} {table[name].iloc[0]}" for name in PACKAGES)
    say(f"{setting.words()} {versions}.")
    say(PRIOR)


def _show(table: pd.DataFrame, details: list[dict[str, Any]]) -> None:
    """A line per network, and the verdict of every rule for those named on the command line."""
    if len(captured := table[table["problem"] == ""].assign(parameters=table["parameters"] / 1e6)):
        shown = captured[list(SHOWN)].rename(columns=SHOWN)
        print(shown.to_string(index=False, float_format="{:.2f}".format))
    for network in details:
        if network["verdicts"]:
            print(f"\n{network['architecture']}")
        for verdict in network["verdicts"]:
            print(f"  {verdict['rule']:4}{'flagged' if verdict['flagged'] else 'clear':8} {verdict['found']}")
    if rules := {verdict["rule"]: verdict for network in details for verdict in network["verdicts"]}:
        print("\nRules")
        for name, rule in rules.items():
            print(f"  {name:4}{rule['says']}\n      [{rule['ground']}: {rule['source']}]")
