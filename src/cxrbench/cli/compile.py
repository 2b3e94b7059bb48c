"""``cxrbench compile``: which graphs Neuron's compiler takes, on any Linux machine."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cxrbench.cli.words import (
    RECORDED,
    RESULTS,
    STUDY,
    JsonOption,
    RecordedOption,
    StudyOption,
    in_columns,
    must_be_captured,
    say,
)
from cxrbench.common.errors import UserError

_HEADS = {"pixels": "px", "peak_memory_mib": "compiler's memory, MiB", "neff_mib": "NEFF, MiB"}
NetworksArgument = Annotated[
    list[str] | None, typer.Argument(help="timm names. With --planned: only these networks of the study.")
]
PlannedOption = Annotated[
    bool, typer.Option("--planned", help="Compile what the study plans. Other options select from it.")
]
TargetOption = Annotated[Literal["trn1", "trn2"] | None, typer.Option(help="Default: trn1.")]
PixelsOption = Annotated[
    list[int] | None, typer.Option(min=16, max=1024, help="Side of the images, in pixels. Default: 224.")
]
BatchOption = Annotated[list[int] | None, typer.Option(min=1, max=4096, help="Images per step. Default: 1.")]
PrecisionOption = Annotated[
    list[str] | None,
    typer.Option(help="fp32 or bf16. Default: fp32.", callback=must_be_captured),
]
PartOption = Annotated[list[str] | None, typer.Option(help="step, backward or forward. Default: all.")]
RecipeOption = Annotated[
    str | None, typer.Option(help="The study's recipe whose `compiler` is used. Default: its defaults.")
]
HoursOption = Annotated[float | None, typer.Option(help="Limit for one graph, in hours. Default: 2.")]
MemoryGibOption = Annotated[float | None, typer.Option(help="Limit of the compiler's memory, in GiB.")]
ContainerOption = Annotated[
    Literal["docker", "podman"] | None, typer.Option(help="What runs the compiler in a container.")
]
ImageOption = Annotated[str | None, typer.Option(help="The container's image, with its registry.")]
ModelTypeOption = Annotated[
    Literal["generic", "transformer", "unet-inference", "cnn-training"] | None,
    typer.Option(help="The compiler's model type. Default: the recipe's."),
]
AutoCastOption = Annotated[
    Literal["none", "matmult"] | None,
    typer.Option(help="Default: none; with --planned, that release's own default."),
]
ForeignOption = Annotated[
    Path | None, typer.Option("--from", help="Folder of graphs (*.pb) of a device, in place of networks.")
]
OutcomesOption = Annotated[
    bool, typer.Option("--outcomes", help="Print what is recorded, a column per release; compile nothing.")
]
OutOption = Annotated[Path, typer.Option(help="Folder of outcomes.")]
RecordOption = Annotated[bool, typer.Option("--record", help="Keep each outcome as recorded evidence.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace recorded outcomes.")]


def compile(
    networks: NetworksArgument = None,
    planned: PlannedOption = False,
    target: TargetOption = None,
    pixels: PixelsOption = None,
    batch: BatchOption = None,
    precision: PrecisionOption = None,
    part: PartOption = None,
    recipe: RecipeOption = None,
    hours: HoursOption = None,
    memory_gib: MemoryGibOption = None,
    container: ContainerOption = None,
    image: ImageOption = None,
    model_type: ModelTypeOption = None,
    auto_cast: AutoCastOption = None,
    foreign: ForeignOption = None,
    outcomes: OutcomesOption = False,
    out: OutOption = RESULTS / "compile",
    record: RecordOption = False,
    replace: ReplaceOption = False,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    as_json: JsonOption = False,
) -> None:
    """Compile networks' training steps with neuronx-cc, Neuron's compiler. No device is needed.

    Controls are compiled first: while one of them fails, nothing else is.
    Every outcome is kept with its log. After an interruption, the same
    command continues.

    Example: cxrbench compile convnext_pico --pixels 64 --batch 32
    """
    from cxrbench.evidence.compiled import PARTS
    from cxrbench.neuron import request
    from cxrbench.neuron.campaign import Campaign
    from cxrbench.neuron.compiler import CompilerLimits, NeuronCompiler
    from cxrbench.neuron.rules import Setting

    if outcomes:
        return _show_columns(study, recorded, as_json)
    _must_be_limits(hours, memory_gib)
    if foreign and (planned or networks):
        raise UserError("--from has graphs of its own; leave out --planned and the networks")
    if not (planned or networks or foreign):
        raise UserError("name networks as timm does, --planned for those of the study, or --from a folder")
    if unknown := [name for name in part or () if name not in PARTS]:
        raise UserError(f"--part: unknown value '{unknown[0]}'; use {' or '.join(PARTS)}")
    plan, changed = request.plan_of(study, planned, recipe)
    sizes = pixels or [], batch or [], precision or []
    steps = [] if foreign else request.steps_of(plan, networks or [], *sizes)
    compiler = NeuronCompiler.find(container, image)
    given = {"model_type": model_type, "auto_cast": auto_cast}
    changed |= {name: value for name, value in given.items() if value}
    campaign = Campaign(
        compiler=compiler,
        target=target or (plan.target if plan else "trn1"),
        limits=CompilerLimits(hours or (plan.hours if plan else 2.0), memory_gib),
        graphs=RESULTS / "neuron/graphs",
        out=out,
        options=request.options_of(plan, compiler.version, recipe, changed, say),
        recorded=recorded if record else None,
        replace=replace,
        controls=[(step[0], Setting(*step[1:])) for step in plan.control_steps()] if plan else [],
    )
    parts: Any = part or PARTS
    made = campaign.run_files(foreign, say) if foreign else campaign.run(steps, parts, say)
    _show(compiler.version, made, as_json)


def _must_be_limits(hours: float | None, memory_gib: float | None) -> None:
    """Raise UserError for a limit that is none."""
    for option, limit in (("--hours", hours), ("--memory-gib", memory_gib)):
        if limit is not None and not 0 < limit < inf:
            raise UserError(f"{option}: {limit:g} is no limit; give a number above 0")


def _show_columns(study: Path, recorded: Path, as_json: bool) -> None:
    """Print the recorded states of the planned training steps that have any, by release of the compiler."""
    from cxrbench.evidence.compiled import read_compiled
    from cxrbench.evidence.expected import NOT_RUN
    from cxrbench.neuron.outcomes import STEP, columns
    from cxrbench.study.config import read_study

    planned = read_study(study).compilation
    if planned is None:
        raise UserError(f"{study}: the study has no 'compilation'; add it")
    table = columns(planned, read_compiled(recorded))
    releases = table.columns.drop(STEP)
    shown = table[(table[releases] != NOT_RUN).any(axis=1)]
    if as_json:
        print(shown.to_json(orient="records", indent=1))
    elif len(shown):
        print(in_columns(shown, _HEADS))
    asked = "; ".join(releases)
    say(f"{len(shown)} of {len(table)} planned training steps have an outcome. By neuronx-cc: {asked}")


def _show(version: str, records: Any, as_json: bool) -> None:
    """Print the outcomes when the last has arrived, and what they do not show."""
    from cxrbench.evidence.compiled import COMPILATION_CAVEAT
    from cxrbench.neuron.outcomes import rows

    outcomes = rows(records)
    if as_json:
        print(json.dumps([row | {"not_shown": COMPILATION_CAVEAT} for row in outcomes], indent=1))
    elif outcomes:
        import pandas as pd

        print(in_columns(pd.DataFrame(outcomes).drop(columns=["graph_sha256", "failed", "flags"]), _HEADS))
    say(f"neuronx-cc {version}; {COMPILATION_CAVEAT}")
