"""``cxrbench compile``: which graphs Neuron's compiler takes, on any Linux machine."""

from __future__ import annotations

import json
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
from cxrbench.study.names import UserError

_HEADS = {"pixels": "px", "peak_memory_mib": "compiler's memory, MiB", "neff_mib": "NEFF, MiB"}
Networks = Annotated[
    list[str] | None, typer.Argument(help="timm names. With --planned: only these networks of the study.")
]
Planned = Annotated[
    bool, typer.Option("--planned", help="Compile what the study plans. Other options select from it.")
]
TargetOption = Annotated[str | None, typer.Option(help="trn1 or trn2. Default: trn1.")]
Pixels = Annotated[
    list[int] | None, typer.Option(min=16, max=1024, help="Side of the images, in pixels. Default: 224.")
]
Batch = Annotated[list[int] | None, typer.Option(min=1, max=4096, help="Images per step. Default: 1.")]
Precision = Annotated[list[str] | None, typer.Option(help="fp32 or bf16. Default: fp32.")]
PartOption = Annotated[list[str] | None, typer.Option(help="step, backward or forward. Default: all.")]
RecipeOption = Annotated[
    str | None, typer.Option(help="The study's recipe whose `compiler` is used. Default: its defaults.")
]
Hours = Annotated[float | None, typer.Option(help="Limit for one graph, in hours. Default: 2.")]
MemoryGib = Annotated[float | None, typer.Option(help="Limit of the compiler's memory, in GiB.")]
Container = Annotated[str | None, typer.Option(help="docker or podman, to run the compiler in a container.")]
Image = Annotated[str | None, typer.Option(help="The container's image, with its registry.")]
ModelType = Annotated[
    str | None,
    typer.Option(help="The compiler's model type, such as cnn-training. Default: the recipe's."),
]
AutoCastOption = Annotated[
    str | None,
    typer.Option(help="none or matmult. Default: none; with --planned, that release's own default."),
]
Foreign = Annotated[
    Path | None, typer.Option("--from", help="Folder of graphs (*.pb) of a device, in place of networks.")
]
Outcomes = Annotated[
    bool, typer.Option("--outcomes", help="Print what is recorded, a column per release; compile nothing.")
]
GraphsOption = Annotated[Path, typer.Option(help="Folder of dumped graphs.")]
OutOption = Annotated[Path, typer.Option(help="Folder of outcomes.")]
RecordOption = Annotated[bool, typer.Option("--record", help="Keep each outcome as recorded evidence.")]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace recorded outcomes.")]


def compile(
    networks: Networks = None,
    planned: Planned = False,
    target: TargetOption = None,
    pixels: Pixels = None,
    batch: Batch = None,
    precision: Precision = None,
    part: PartOption = None,
    recipe: RecipeOption = None,
    hours: Hours = None,
    memory_gib: MemoryGib = None,
    container: Container = None,
    image: Image = None,
    model_type: ModelType = None,
    auto_cast: AutoCastOption = None,
    foreign: Foreign = None,
    outcomes: Outcomes = False,
    graphs: GraphsOption = RESULTS / "compile/graphs",
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
    from cxrbench.compile.request import PARTS, Graphs, Places, Way, compiled

    if outcomes:
        return _show_columns(study, recorded, as_json)
    sizes = pixels or [], batch or [], precision or []
    chosen = Graphs(networks or [], planned, *sizes, part or list(PARTS), foreign)
    way = Way(target, recipe, hours, memory_gib, model_type, auto_cast, container, image)
    places = Places(study, graphs, out, recorded if record else None, replace)
    _show(*compiled(chosen, way, places, say), as_json)


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
    asked = "; ".join(releases)
    say(f"{len(shown)} of {len(table)} planned training steps have an outcome. By neuronx-cc: {asked}")


def _show(version: str, records: Any, as_json: bool) -> None:
    """Print the outcomes when the last has arrived, and what they do not show."""
    from cxrbench.compile.outcomes import rows
    from cxrbench.evidence.compiled import NOT_SHOWN

    outcomes = rows(records)
    if as_json:
        print(json.dumps([row | {"not_shown": NOT_SHOWN} for row in outcomes], indent=1))
    elif outcomes:
        import pandas as pd

        print(in_columns(pd.DataFrame(outcomes).drop(columns=["graph_sha256", "failed", "flags"]), _HEADS))
    say(f"neuronx-cc {version}; {NOT_SHOWN}")
