"""``cxrbench compile``: which graphs Neuron's compiler takes, on any Linux machine."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import RECORDED, RESULTS, JsonOption, RecordedOption, say


def compile(
    networks: Annotated[list[str], typer.Argument(help="timm names.")],
    target: Annotated[str, typer.Option(help="trn1 or trn2.")] = "trn1",
    pixels: Annotated[list[int] | None, typer.Option(help="Sides of the images; default 224.")] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Images per step; default 1.")] = None,
    precision: Annotated[list[str] | None, typer.Option(help="fp32 (default) or bf16.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="forward, backward, step; default: all.")] = None,
    hours: Annotated[float, typer.Option(min=0, help="Limit of one graph.")] = 2.0,
    memory_gib: Annotated[float | None, typer.Option(min=0, help="Limit of the compiler's memory.")] = None,
    container: Annotated[str | None, typer.Option(help="docker or podman, instead of PATH.")] = None,
    image: Annotated[str | None, typer.Option(help="The container's image, with its registry.")] = None,
    graphs: Annotated[Path, typer.Option(help="Folder of dumped graphs.")] = RESULTS / "compile/graphs",
    out: Annotated[Path, typer.Option(help="Folder of outcomes.")] = RESULTS / "compile",
    record: Annotated[bool, typer.Option("--record", help="Keep the outcomes as recorded evidence.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace what is recorded already.")] = False,
    recorded: RecordedOption = RECORDED,
    as_json: JsonOption = False,
) -> None:
    """Compile the parts of networks' training steps with neuronx-cc, one graph at a time.

    No Neuron device is needed. Every outcome is kept with its log, and the same command goes on after an
    interruption.
    """
    import json
    from typing import get_args

    from cxrbench.compile.campaign import compile_all, dump, rows
    from cxrbench.compile.compiler import Compiler, Limits
    from cxrbench.compile.rules import Setting
    from cxrbench.evidence.compiled import NOT_SHOWN, GraphPart, Target, keep_compiled
    from cxrbench.study.errors import UserError
    from cxrbench.training.plan import must_be_architectures

    parts, precisions = part or get_args(GraphPart), precision or ["fp32"]
    for option, given, known in (
        ("--target", [target], get_args(Target)),
        ("--precision", precisions, ("fp32", "bf16")),
        ("--part", parts, get_args(GraphPart)),
    ):
        if unknown := [value for value in given if value not in known]:
            raise UserError(f"{option}: unknown value '{unknown[0]}'; use {' or '.join(known)}")
    must_be_architectures(networks, "name them as timm does")
    compiler = Compiler.find(container, image)
    settings = [Setting(*each) for each in product(pixels or [224], batch or [1], precisions)]
    traced = {
        file: graph for file, graph in dump(networks, settings, graphs, say).items() if graph.part in parts
    }
    limits = Limits(hours, memory_gib)
    done = compile_all(traced, graphs, compiler, target, limits, out, say)  # type: ignore[arg-type]
    if record:
        for path in keep_compiled(done, recorded, replace):
            say(f"recorded {path}")
    found = rows(record for record, _ in done)
    if as_json:
        print(json.dumps(found, indent=1))
    elif found:
        import pandas as pd

        print(pd.DataFrame(found).drop(columns="graph_sha256").to_string(index=False, na_rep=""))
    say(f"neuronx-cc {compiler.version}; {NOT_SHOWN}")
