"""``cxrbench compile``: which graphs Neuron's compiler takes, on any Linux machine."""

from __future__ import annotations

import dataclasses
import json
from itertools import product
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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

if TYPE_CHECKING:
    from cxrbench.compile.campaign import Campaign
    from cxrbench.compile.rules import Setting
    from cxrbench.study.toolchains import Compilation

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
    from cxrbench.compile.outcomes import rows
    from cxrbench.evidence.compiled import NOT_SHOWN, PARTS

    if outcomes:
        return _show_columns(study, recorded, as_json)
    asked = _Asked(
        networks=networks or [],
        listed=listed,
        target=target,
        pixels=pixels or [],
        batch=batch or [],
        precision=precision or [],
        parts=part or list(PARTS),
        recipe=recipe,
        hours=hours,
        memory_gib=memory_gib,
        model_type=model_type,
        auto_cast=auto_cast,
        foreign=foreign,
        study=study,
    )
    _must_be_possible(asked)
    plan = _plan(asked)
    steps = _steps(asked, plan)
    campaign = _campaign(asked, plan, container, image, graphs, out)
    campaign = dataclasses.replace(campaign, recorded=recorded if record else None, replace=replace)
    compiled = (
        campaign.run_files(foreign, say) if foreign else campaign.run(steps, asked.parts, say)  # type: ignore[arg-type]
    )
    _show(rows(compiled), as_json)
    say(f"neuronx-cc {campaign.compiler.version}; {NOT_SHOWN}")


class _Asked(NamedTuple):
    """What the command line asks for; None: the study's, or a default."""

    networks: list[str]
    listed: bool
    target: str | None
    pixels: list[int]
    batch: list[int]
    precision: list[str]
    parts: list[str]
    recipe: str | None
    hours: float | None
    memory_gib: float | None
    model_type: str | None
    auto_cast: str | None
    foreign: Path | None
    study: Path


def _must_be_possible(asked: _Asked) -> None:
    """Raise UserError for a value that no compiler takes, and for options that exclude each other."""
    from typing import get_args

    from cxrbench.evidence.compiled import PARTS, Target
    from cxrbench.study.recipe import Compiler
    from cxrbench.study.toolchains import AuditedPrecision, AutoCast

    model_types = get_args(Compiler.model_fields["model_type"].annotation)
    for option, given, allowed in (
        ("--target", [asked.target or "trn1"], get_args(Target)),
        ("--precision", asked.precision, get_args(AuditedPrecision)),
        ("--part", asked.parts, PARTS),
        ("--auto-cast", [asked.auto_cast or "none"], get_args(AutoCast)),
        ("--model-type", [asked.model_type or "generic"], model_types),
    ):
        if unknown := [value for value in given if value not in allowed]:
            raise UserError(f"{option}: unknown value '{unknown[0]}'; use {' or '.join(allowed)}")
    for option, limit in (("--hours", asked.hours), ("--memory-gib", asked.memory_gib)):
        if limit is not None and not 0 < limit < inf:
            raise UserError(f"{option}: {limit:g} is no limit; give a number above 0")
    if asked.foreign and (asked.listed or asked.networks):
        raise UserError("--from has graphs of its own; leave out --planned and the networks")
    if not asked.listed and not asked.networks and not asked.foreign:
        raise UserError("name networks as timm does, --planned for those of the study, or --from a folder")


class _Plan(NamedTuple):
    """What the study says: the graphs that it compiles (only with --planned), and a recipe's options."""

    compilation: Compilation | None
    recipe: dict[str, Any]


def _plan(asked: _Asked) -> _Plan:
    """Read of the study what the options need; UserError where it lacks that."""
    from cxrbench.study.config import read_study

    if not (asked.listed or asked.recipe):
        return _Plan(None, {})
    config = read_study(asked.study)
    if asked.recipe and asked.recipe not in config.recipes:
        near = suggestion(asked.recipe, config.recipes)
        raise UserError(f"--recipe: {asked.study} has no recipe '{asked.recipe}'{near}")
    if asked.listed and config.compilation is None:
        raise UserError(f"{asked.study}: the study has no 'compilation'; add it, or name networks")
    changed = config.recipes[asked.recipe].compiler.model_dump() if asked.recipe else {}
    return _Plan(config.compilation if asked.listed else None, changed)


def _steps(asked: _Asked, plan: _Plan) -> list[tuple[str, Setting]]:
    """Return the training steps that are compiled, in order; UserError where there is none."""
    from cxrbench.compile.rules import Setting
    from cxrbench.training.plan import must_be_architectures

    if plan.compilation:
        axes: list[list[Any]] = [asked.networks, asked.pixels, asked.batch, asked.precision]
        steps = [
            (step[0], Setting(*step[1:]))
            for step in plan.compilation.steps()
            if all(not chosen or value in chosen for value, chosen in zip(step, axes, strict=True))
        ]
    else:
        settings = product(asked.pixels or [224], asked.batch or [1], asked.precision or ["fp32"])
        steps = [(name, Setting(*setting)) for setting in settings for name in asked.networks]
    if not steps and not asked.foreign:
        raise UserError("the study has no such training step; to compile it anyway, leave out --planned")
    must_be_architectures((name for name, _ in steps), "name them as timm does")
    return steps


def _campaign(
    asked: _Asked, plan: _Plan, container: str | None, image: str | None, graphs: Path, out: Path
) -> Campaign:
    """Return the compiler with its options and limits; say where outcomes are not the study's."""
    from cxrbench.compile.campaign import Campaign
    from cxrbench.compile.compiler import Compiler, Limits
    from cxrbench.compile.rules import Setting
    from cxrbench.study.toolchains import CompileOptions

    compiler, study = Compiler.find(container, image), plan.compilation
    version = compiler.version.partition("+")[0]
    usual = study.options_of(version) if study else CompileOptions()
    given = {"model_type": asked.model_type, "auto_cast": asked.auto_cast}
    changed = plan.recipe | {name: value for name, value in given.items() if value}
    options = CompileOptions.model_validate(usual.model_dump() | changed)
    if study and version not in dict(study.toolchains()):
        say(
            f"neuronx-cc {compiler.version} is not the study's {study.compiler}: its outcomes are recorded "
            "under its own version, and are not counted in the paper"
        )
    if study and options != usual:
        who = f"recipe {asked.recipe}" if asked.recipe else "this call"
        say(f"{who} has options of its own: its outcomes are not counted in the paper")
    controls = study.control_steps() if study else ()
    return Campaign(
        compiler=compiler,
        target=asked.target or (study.target if study else "trn1"),  # type: ignore[arg-type]
        limits=Limits(asked.hours or (study.hours if study else 2.0), asked.memory_gib),
        options=options,
        graphs=graphs,
        out=out,
        controls=tuple((step[0], Setting(*step[1:])) for step in controls),
    )


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
    shown = table[(table[releases] != NOT_RUN).any(axis=1)]
    if as_json:
        print(shown.to_json(orient="records", indent=1))
    elif len(shown):
        print(in_columns(shown, _HEADS))
    say(f"{len(shown)} of {len(table)} planned training steps have an outcome, by {', '.join(releases)}")


def _show(outcomes: list[dict[str, Any]], as_json: bool) -> None:
    from cxrbench.evidence.compiled import NOT_SHOWN

    if as_json:
        print(json.dumps([row | {"not_shown": NOT_SHOWN} for row in outcomes], indent=1))
    elif outcomes:
        import pandas as pd

        print(in_columns(pd.DataFrame(outcomes).drop(columns=["graph_sha256", "failed", "flags"]), _HEADS))
