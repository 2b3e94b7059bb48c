"""What is asked of Neuron's compiler: options checked, the study's plan read, compiled. Imports no torch."""

from collections.abc import Iterator
from itertools import product
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, get_args

from cxrbench.compile.campaign import Campaign, Say
from cxrbench.compile.compiler import Compiler, Limits
from cxrbench.compile.rules import Setting
from cxrbench.evidence.compiled import PARTS, CompileRecord, Target
from cxrbench.study import recipe
from cxrbench.study.config import AuditedPrecision, AutoCast, Compilation, CompileOptions, read_study
from cxrbench.study.names import UserError, suggestion
from cxrbench.training.plan import must_be_architectures


class Graphs(NamedTuple):
    """Which graphs: of networks, of the study's plan, or in the folder ``foreign``; empty lists: all."""

    networks: list[str]
    planned: bool
    pixels: list[int]
    batch: list[int]
    precision: list[str]
    parts: list[str]
    foreign: Path | None


class Way(NamedTuple):
    """How they are compiled; None: as the study says, or a default."""

    target: str | None
    recipe: str | None
    hours: float | None
    memory_gib: float | None
    model_type: str | None
    auto_cast: str | None
    container: str | None
    image: str | None


class Places(NamedTuple):
    """Where the study is, and where graphs and outcomes are kept; ``recorded`` None: nothing is recorded."""

    study: Path
    graphs: Path
    out: Path
    recorded: Path | None
    replace: bool


def compiled(graphs: Graphs, way: Way, places: Places, say: Say) -> tuple[str, Iterator[CompileRecord]]:
    """Return the version of the compiler, and the outcomes as they arise; UserError for a mistake."""
    _must_be_possible(graphs, way)
    plan, options = _plan(graphs, way, places.study)
    steps = _steps(graphs, plan)
    campaign = _campaign(way, places, plan, options, say)
    if graphs.foreign:
        return campaign.compiler.version, campaign.run_files(graphs.foreign, say)
    return campaign.compiler.version, campaign.run(steps, graphs.parts, say)  # type: ignore[arg-type]


def _must_be_possible(graphs: Graphs, way: Way) -> None:
    """Raise UserError for a value that no compiler takes, and for options that exclude each other."""
    for option, given, allowed in (
        ("--target", [way.target or "trn1"], get_args(Target)),
        ("--precision", graphs.precision, get_args(AuditedPrecision)),
        ("--part", graphs.parts, PARTS),
        ("--auto-cast", [way.auto_cast or "none"], get_args(AutoCast)),
        ("--model-type", [way.model_type or "generic"], _MODEL_TYPES),
    ):
        if unknown := [value for value in given if value not in allowed]:
            raise UserError(f"{option}: unknown value '{unknown[0]}'; use {' or '.join(allowed)}")
    for option, limit in (("--hours", way.hours), ("--memory-gib", way.memory_gib)):
        if limit is not None and not 0 < limit < inf:
            raise UserError(f"{option}: {limit:g} is no limit; give a number above 0")
    if graphs.foreign and (graphs.planned or graphs.networks):
        raise UserError("--from has graphs of its own; leave out --planned and the networks")
    if not graphs.planned and not graphs.networks and not graphs.foreign:
        raise UserError("name networks as timm does, --planned for those of the study, or --from a folder")


_MODEL_TYPES = get_args(recipe.Compiler.model_fields["model_type"].annotation)


def _plan(graphs: Graphs, way: Way, study: Path) -> tuple[Compilation | None, dict[str, Any]]:
    """Return what the study compiles (only if its plan is asked for) and the options of the named recipe.

    UserError where the study lacks them.
    """
    if not (graphs.planned or way.recipe):
        return None, {}
    config = read_study(study)
    if way.recipe and way.recipe not in config.recipes:
        near = suggestion(way.recipe, config.recipes)
        raise UserError(f"--recipe: {study} has no recipe '{way.recipe}'{near}")
    if graphs.planned and config.compilation is None:
        raise UserError(f"{study}: the study has no 'compilation'; add it, or name networks")
    options = config.recipes[way.recipe].compiler.model_dump() if way.recipe else {}
    return config.compilation if graphs.planned else None, options


def _steps(graphs: Graphs, plan: Compilation | None) -> list[tuple[str, Setting]]:
    """Return the training steps that are compiled, in order; UserError where there is none."""
    if plan:
        axes: list[list[Any]] = [graphs.networks, graphs.pixels, graphs.batch, graphs.precision]
        steps = [
            (step[0], Setting(*step[1:]))
            for step in plan.steps()
            if all(not chosen or value in chosen for value, chosen in zip(step, axes, strict=True))
        ]
    else:
        settings = product(graphs.pixels or [224], graphs.batch or [1], graphs.precision or ["fp32"])
        steps = [(name, Setting(*setting)) for setting in settings for name in graphs.networks]
    if not steps and not graphs.foreign:
        raise UserError("the study has no such training step; to compile it anyway, leave out --planned")
    must_be_architectures((name for name, _ in steps), "name them as timm does")
    return steps


def _campaign(
    way: Way, places: Places, plan: Compilation | None, of_recipe: dict[str, Any], say: Say
) -> Campaign:
    """Return the compiler with its options and limits; say where outcomes are not the study's."""
    compiler = Compiler.find(way.container, way.image)
    version = compiler.version.partition("+")[0]
    usual = plan.options_of(version) if plan else CompileOptions()
    given = {"model_type": way.model_type, "auto_cast": way.auto_cast}
    changed = of_recipe | {name: value for name, value in given.items() if value}
    options = CompileOptions.model_validate(usual.model_dump() | changed)
    if plan and version not in dict(plan.toolchains()):
        say(
            f"neuronx-cc {compiler.version} is not the study's {plan.compiler}: its outcomes are recorded "
            "under its own version, and are not counted in the paper"
        )
    if plan and options != usual:
        who = f"recipe {way.recipe}" if way.recipe else "this call"
        say(f"{who} has options of its own: its outcomes are not counted in the paper")
    controls = plan.control_steps() if plan else ()
    return Campaign(
        compiler=compiler,
        target=way.target or (plan.target if plan else "trn1"),  # type: ignore[arg-type]
        limits=Limits(way.hours or (plan.hours if plan else 2.0), way.memory_gib),
        graphs=places.graphs,
        out=places.out,
        options=options,
        recorded=places.recorded,
        replace=places.replace,
        controls=tuple((step[0], Setting(*step[1:])) for step in controls),
    )
