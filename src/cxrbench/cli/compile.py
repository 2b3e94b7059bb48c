"""``cxrbench compile``: which graphs Neuron's compiler takes, on any Linux machine."""

from __future__ import annotations

import json
from itertools import product
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from cxrbench.cli.words import (
    RECORDED,
    RESULTS,
    STUDY,
    JsonOption,
    RecordedOption,
    StudyOption,
    in_columns,
    say,
)
from cxrbench.study.errors import UserError, suggestion

_HEADS = {"pixels": "px", "peak_memory_mib": "compiler's memory, MiB", "neff_mib": "NEFF, MiB"}


def compile(
    networks: Annotated[
        list[str] | None, typer.Argument(help="timm names. With --planned: only these networks of the study.")
    ] = None,
    listed: Annotated[
        bool,
        typer.Option("--planned", help="Compile what the study plans. Other options select from it."),
    ] = False,
    target: Annotated[str | None, typer.Option(help="trn1 or trn2. Default: trn1.")] = None,
    pixels: Annotated[
        list[int] | None, typer.Option(min=16, max=1024, help="Side of the images, in pixels. Default: 224.")
    ] = None,
    batch: Annotated[
        list[int] | None, typer.Option(min=1, max=4096, help="Images per step. Default: 1.")
    ] = None,
    precision: Annotated[list[str] | None, typer.Option(help="fp32 or bf16. Default: fp32.")] = None,
    part: Annotated[list[str] | None, typer.Option(help="step, backward or forward. Default: all.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="The study's recipe whose `compiler` is used. Default: its defaults.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="Limit for one graph, in hours. Default: 2.")] = None,
    memory_gib: Annotated[float | None, typer.Option(help="Limit of the compiler's memory, in GiB.")] = None,
    container: Annotated[
        str | None, typer.Option(help="docker or podman, to run the compiler in a container.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="The container's image, with its registry.")] = None,
    model_type: Annotated[
        str | None,
        typer.Option(help="The compiler's model type, such as cnn-training. Default: the recipe's."),
    ] = None,
    auto_cast: Annotated[
        str | None,
        typer.Option(help="none or matmult. Default: none; with --planned, that release's own default."),
    ] = None,
    foreign: Annotated[
        Path | None, typer.Option("--from", help="Folder of graphs (*.pb) of a device, in place of networks.")
    ] = None,
    outcomes: Annotated[
        bool,
        typer.Option("--outcomes", help="Print what is recorded, a column per release; compile nothing."),
    ] = False,
    graphs: Annotated[Path, typer.Option(help="Folder of dumped graphs.")] = RESULTS / "compile/graphs",
    out: Annotated[Path, typer.Option(help="Folder of outcomes.")] = RESULTS / "compile",
    record: Annotated[bool, typer.Option("--record", help="Keep each outcome as recorded evidence.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace recorded outcomes.")] = False,
    study: StudyOption = STUDY,
    recorded: RecordedOption = RECORDED,
    as_json: JsonOption = False,
) -> None:
    """Compile the parts of networks' training steps with neuronx-cc, one graph at a time.

    No Neuron device is needed. Controls are compiled first: while one of them fails,
    nothing else is. Every outcome is kept with its log. After an interruption, the
    same command continues.
    """
    from typing import get_args

    from cxrbench.compile.campaign import Campaign
    from cxrbench.compile.compiler import Compiler, Limits
    from cxrbench.compile.outcomes import rows
    from cxrbench.compile.rules import Setting
    from cxrbench.evidence.compiled import NOT_SHOWN, PARTS, Target
    from cxrbench.study.config import read_study
    from cxrbench.study.recipe import Compiler as RecipeOptions
    from cxrbench.study.toolchains import AuditedPrecision, AutoCast, CompileOptions
    from cxrbench.training.plan import must_be_architectures

    for option, given, known in (
        ("--target", [target or "trn1"], get_args(Target)),
        ("--precision", precision or [], get_args(AuditedPrecision)),
        ("--part", part or [], PARTS),
        ("--auto-cast", [auto_cast or "none"], get_args(AutoCast)),
        (
            "--model-type",
            [model_type or "generic"],
            get_args(RecipeOptions.model_fields["model_type"].annotation),
        ),
    ):
        if unknown := [value for value in given if value not in known]:
            raise UserError(f"{option}: unknown value '{unknown[0]}'; use {' or '.join(known)}")
    for option, limit in (("--hours", hours), ("--memory-gib", memory_gib)):
        if limit is not None and not 0 < limit < inf:
            raise UserError(f"{option}: {limit:g} is no limit; give a number above 0")
    config = read_study(study) if listed or recipe else None
    planned = config.compilation if config and listed else None
    recipes = config.recipes if config else {}
    if recipe and recipe not in recipes:
        raise UserError(f"--recipe: {study} has no recipe '{recipe}'{suggestion(recipe, recipes)}")
    if listed and planned is None:
        raise UserError(f"{study}: the study has no 'compilation'; add it, or name networks")
    if outcomes:
        return _show_columns(study, recorded, as_json)
    if foreign and (listed or networks):
        raise UserError("--from has graphs of its own; leave out --planned and the networks")
    if not listed and not networks and not foreign:
        raise UserError("name networks as timm does, --planned for those of the study, or --from a folder")
    asked: tuple[list[Any], ...] = (networks or [], pixels or [], batch or [], precision or [])
    if planned:
        steps = [
            (step[0], Setting(*step[1:]))
            for step in planned.steps()
            if all(not some or value in some for value, some in zip(step, asked, strict=True))
        ]
    else:
        each = product(pixels or [224], batch or [1], precision or ["fp32"])
        steps = [(name, Setting(*axis)) for axis in each for name in networks or ()]
    if not steps and not foreign:
        raise UserError("the study has no such training step; to compile it anyway, leave out --planned")
    must_be_architectures((name for name, _ in steps), "name them as timm does")
    compiler = Compiler.find(container, image)
    version = compiler.version.partition("+")[0]
    usual = planned.options_of(version) if planned else CompileOptions()
    changed = recipes[recipe].compiler.model_dump() if recipe else {}
    changed |= {k: v for k, v in (("model_type", model_type), ("auto_cast", auto_cast)) if v}
    options = CompileOptions.model_validate(usual.model_dump() | changed)
    if planned and version not in dict(planned.toolchains()):
        say(
            f"neuronx-cc {compiler.version} is not the study's {planned.compiler}: its outcomes are recorded "
            "under its own version, and are not counted in the paper"
        )
    if planned and options != usual:
        who = f"recipe {recipe}" if recipe else "this call"
        say(f"{who} has options of its own: its outcomes are not counted in the paper")
    limits = Limits(hours if hours is not None else planned.hours if planned else 2.0, memory_gib)
    campaign = Campaign(
        compiler=compiler,
        target=target or (planned.target if planned else "trn1"),  # type: ignore[arg-type]
        limits=limits,
        options=options,
        graphs=graphs,
        out=out,
        recorded=recorded if record else None,
        replace=replace,
        controls=tuple((step[0], Setting(*step[1:])) for step in planned.control_steps()) if planned else (),
    )
    found = campaign.run_files(foreign, say) if foreign else campaign.run(steps, part or PARTS, say)  # type: ignore[arg-type]
    _show(rows(found), as_json)
    say(f"neuronx-cc {compiler.version}; {NOT_SHOWN}")


def _show_columns(study: Path, recorded: Path, as_json: bool) -> None:
    """Print the recorded states of the planned training steps that have any, by release of the compiler."""
    from cxrbench.compile.outcomes import NOT_RUN, STEP, columns
    from cxrbench.evidence.compiled import read_compiled
    from cxrbench.study.config import read_study

    planned = read_study(study).compilation
    if planned is None:
        raise UserError(f"{study}: the study has no 'compilation'; add it")
    table = columns(planned, read_compiled(recorded))
    releases = table.columns.drop(STEP)
    some = table[(table[releases] != NOT_RUN).any(axis=1)]
    if as_json:
        print(some.to_json(orient="records", indent=1))
    elif len(some):
        print(in_columns(some, _HEADS))
    say(f"{len(some)} of {len(table)} planned training steps have an outcome, by {', '.join(releases)}")


def _show(found: list[dict[str, Any]], as_json: bool) -> None:
    from cxrbench.evidence.compiled import NOT_SHOWN

    if as_json:
        print(json.dumps([row | {"not_shown": NOT_SHOWN} for row in found], indent=1))
    elif found:
        import pandas as pd

        print(in_columns(pd.DataFrame(found).drop(columns=["graph_sha256", "failed", "flags"]), _HEADS))
