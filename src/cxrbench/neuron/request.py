"""What is asked of Neuron's compiler: the study's plan, its training steps, its options. Imports no torch."""

from collections.abc import Collection
from itertools import product
from pathlib import Path
from typing import Any

from cxrbench.common.errors import UserError, suggestion
from cxrbench.datasets.packed import Say
from cxrbench.neuron.audit import Wanted
from cxrbench.neuron.rules import Setting
from cxrbench.study.config import Compilation, CompileOptions, read_study
from cxrbench.training.plan import must_be_architectures


def plan_of(study: Path, planned: bool, recipe: str | None) -> tuple[Compilation | None, dict[str, Any]]:
    """The graphs that the study compiles (only if ``planned``) and the options of the named recipe.

    UserError where the study lacks them.
    """
    if not (planned or recipe):
        return None, {}
    config = read_study(study)
    if recipe and recipe not in config.recipes:
        near = suggestion(recipe, config.recipes)
        raise UserError(f"--recipe: {study} has no recipe '{recipe}'{near}")
    if planned and config.compilation is None:
        raise UserError(f"{study}: the study has no 'compilation'; add it, or name networks")
    options = config.recipes[recipe].compiler.model_dump() if recipe else {}
    return config.compilation if planned else None, options


def steps_of(
    plan: Compilation | None,
    networks: Collection[str],
    pixels: Collection[int],
    batch: Collection[int],
    precision: Collection[str],
) -> list[Wanted]:
    """The training steps of these networks and settings, in order; of the ``plan`` if there is one.

    An empty collection is all of the plan, or the default. UserError where there is no step.
    """
    if plan:
        axes: list[Collection[Any]] = [networks, pixels, batch, precision]
        steps = [
            (step[0], Setting(*step[1:]))
            for step in plan.steps()
            if all(not chosen or value in chosen for value, chosen in zip(step, axes, strict=True))
        ]
    else:
        settings = product(pixels or [224], batch or [1], precision or ["fp32"])
        steps = [(name, Setting(*setting)) for setting in settings for name in networks]
    if not steps:
        raise UserError("the study has no such training step; to compile it anyway, leave out --planned")
    must_be_architectures((name for name, _ in steps), "name them as timm does")
    return steps


def options_of(
    plan: Compilation | None, compiler: str, recipe: str | None, changed: dict[str, Any], say: Say
) -> CompileOptions:
    """The options of a release of the compiler, ``changed`` by the recipe and the call.

    Say where outcomes with them are not the study's.
    """
    version = compiler.partition("+")[0]
    usual = plan.options_of(version) if plan else CompileOptions()
    options = CompileOptions.model_validate(usual.model_dump() | changed)
    if plan and version not in dict(plan.toolchains()):
        say(
            f"neuronx-cc {compiler} is not the study's {plan.compiler}: its outcomes are recorded "
            "under its own version, and are not counted in the paper"
        )
    if plan and options != usual:
        who = f"recipe {recipe}" if recipe else "this call"
        say(f"{who} has options of its own: its outcomes are not counted in the paper")
    return options
