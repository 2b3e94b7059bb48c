"""The study, typed: datasets, recipes, cells, what runs here, prices and margins.

``config/config.yaml`` is read into :class:`Study`; ``workflow/schemas/study.schema.json`` is generated
from it (workflow/scripts/schemas.py) and a test fails when the two drift apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, Field, ValidationError, model_validator

from cxrbench.common.errors import UserError, nearest, shortened, suggestion
from cxrbench.common.readers import Document, complaint, matching, one_of
from cxrbench.study.names import Cell, matches
from cxrbench.study.platforms import ENTRIES, PLATFORMS
from cxrbench.study.recipe import Augmentation as Augmentation
from cxrbench.study.recipe import Compiler as Compiler
from cxrbench.study.recipe import Count, Name, Seed, Strict
from cxrbench.study.recipe import Recipe as Recipe
from cxrbench.study.source import AnySource, Dataset
from cxrbench.study.source import ChestMnistSource as ChestMnistSource
from cxrbench.study.source import NihSource as NihSource
from cxrbench.study.source import PhantomSource as PhantomSource
from cxrbench.study.source import TableSource as TableSource

# The schema does not list the names: a new platform changes no generated file.
PlatformName = Annotated[str, one_of(PLATFORMS), Field(description="a name of study/platforms.py")]
PriceBasis = Literal["on_demand", "spot", "reserved_1y", "reserved_3y", "capacity_block", "sagemaker"]
AuditedPrecision = Literal["fp32", "bf16"]
AutoCast = Literal["none", "matmult"]
Version = Annotated[str, matching(r"\d+(\.\d+)+", "a version such as 2.26.6360.0")]
Step = tuple[str, int, int, AuditedPrecision]  # network, pixels, batch, precision
MOST_CELLS = 100_000  # of one study
_MOST_ALTERNATIVES = 1_000  # that the braces of one pattern may stand for


def _pattern(pattern: str) -> str:
    braces = re.findall(r"\{([^{}]*)\}", pattern)
    if pattern.count("{") != pattern.count("}"):
        raise ValueError(f"'{shortened(pattern)}': a brace is not closed, or not opened")
    nested = set(re.sub(r"\{[^{}]*\}", "", pattern)) & set("{}")
    if nested or math.prod(inner.count(",") + 1 for inner in braces) > _MOST_ALTERNATIVES:
        fault = f"braces inside of braces, or more than {_MOST_ALTERNATIVES:,} alternatives"
        raise ValueError(f"'{shortened(pattern)}': {fault}; write several patterns")
    return pattern


Pattern = Annotated[str, AfterValidator(_pattern)]
Place = Annotated[
    str, matching(r"(?!-)([\w./+\-@~,:=]|<\w+>)+", "a path without blanks and quotes, such as results/mine")
]


def _of_platforms(field: str) -> dict[str, Any]:
    """The platforms of which ``field`` is known, with its value."""
    return {name: value for name, entry in ENTRIES.items() if (value := getattr(entry, field))}


class CellBlock(Strict):
    """A block of cells: every architecture on every platform with every seed."""

    dataset: str
    architectures: list[Name] = Field(min_length=1)
    platforms: list[PlatformName] = Field(min_length=1)
    seeds: list[Seed] = Field(min_length=1)


class Limits(Strict):
    """How a trainer is watched and spread. Not in the recipe, and yet ``micro_batch``, ``out_of_memory`` and
    ``processes`` change what BatchNorm sees: its statistics are those of one forward pass of one process.
    """

    hours: float = Field(12.0, gt=0, description="wall time of one cell; more is status timed_out")
    memory_gib: float | None = Field(None, gt=0, description="host memory of the trainer; none: no limit")
    checkpoint_minutes: float = Field(5.0, ge=0, description="0: at every step (for tests)")
    micro_batch: Count | None = Field(None, description="images per forward pass; none: the whole batch")
    out_of_memory: Literal["halve", "record"] = Field(
        "halve", description="halve the micro-batch and go on, or record the status out_of_memory"
    )
    processes: Count = Field(1, description="one per device; the batch is shared between them")
    resident_gib: float = Field(6.0, ge=0, description="packed data up to this size live on the device")
    torch_compile: bool = Field(
        False, description="on cuda, let torch.compile fuse the network's kernels inside the recorded step"
    )
    keep_weights: bool = Field(
        False, description="keep the weights that are scored, in results/weights/CELL.safetensors"
    )
    spot_notice: bool = Field(False, description="ask EC2's metadata address for spot interruption notices")


class Pricing(Strict):
    """Which price a cell is charged."""

    region: str = "us-east-1"
    basis: PriceBasis = "on_demand"
    as_of: str | None = Field(None, description="ISO date: the newest price up to then; none: the newest")
    instances: dict[PlatformName, str] = Field(
        default_factory=lambda: _of_platforms("priced_as"),
        description="instance type a platform is priced as when the cell ran on another host (proxy); "
        "of a GPU: if no instance has it",
    )


class Cluster(Strict):
    """What the nodes of a cluster have, and what a cell's job asks of the scheduler (docs/slurm.md)."""

    platforms: list[PlatformName] = Field(
        min_length=1, description="platforms of the nodes: their cells are trained there, as jobs"
    )
    partitions: dict[PlatformName, str] = Field(
        {}, description="partition of a platform's jobs; none: the cluster's default"
    )
    gres: dict[PlatformName, str] = Field(
        default_factory=lambda: _of_platforms("gres"),
        description="devices of a job, as Slurm's --gres wants them",
    )
    memory_gib: dict[PlatformName, float] = Field(
        default_factory=lambda: _of_platforms("memory_gib"),
        description="host memory of a job of which nothing is recorded; others: 8",
    )
    python: dict[PlatformName, str] = Field(
        {}, description="interpreter of the environment that trains a platform; none: Snakemake's own"
    )
    exclusive: bool = Field(True, description="a job has its node for itself, as a cell's cost assumes")


class Endpoint(Strict):
    """Which findings the main endpoint, the mean AUROC that a study is planned for, is taken over."""

    positive_patients: Count = Field(
        10, description="a finding counts when at least so many test patients have it; others add noise"
    )
    declared: str | None = Field(
        None, pattern=r"^\d{4}-\d{2}-\d{2}$", description="ISO date of the decision; the paper prints it"
    )


class Margins(Strict):
    """Differences small enough to call two platforms equivalent, declared before looking."""

    auroc_macro: float = Field(0.01, gt=0)
    auroc_label: float = Field(0.02, gt=0)


class CompileOptions(Compiler):
    """Options of Neuron's compiler for a graph by itself: a recipe's, and a casting that was a default."""

    auto_cast: AutoCast = "none"


class CompileBlock(Strict):
    """A block of training steps: every network at every size, batch and precision."""

    networks: list[Name] = Field(min_length=1)
    pixels: list[Annotated[int, Field(ge=16, le=1024)]] = Field(min_length=1)
    batch: list[Count] = Field(min_length=1, description="images per step")
    precision: list[AuditedPrecision] = Field(min_length=1)


class Toolchain(Strict):
    """An earlier release of Neuron's compiler that the study's graphs are given too."""

    compiler: Version
    sdk: str = Field(description="release of the Neuron SDK that had it")
    python: str = Field(description="versions of Python that are documented for it")
    auto_cast: AutoCast = Field("none", description="its default at that time")


class Compilation(Strict):
    """Training steps for Neuron's compiler (``cxrbench compile --planned``), and the compiler's version."""

    target: Literal["trn1", "trn2"] = "trn1"
    compiler: Version = Field(description="of neuronx-cc; outcomes of other versions are recorded apart")
    hours: float = Field(2.0, gt=0, description="limit of one graph; more is status timed_out")
    earlier: list[Toolchain] = Field([], description="other releases, each a column of its own")
    controls: list[CompileBlock] = Field(
        [], description="steps that must compile before any other outcome is recorded"
    )
    blocks: list[CompileBlock] = Field(min_length=1)

    def steps(self) -> list[Step]:
        """Network, pixels, batch and precision of every training step, in order, each once."""
        return _steps(self.blocks)

    def control_steps(self) -> list[Step]:
        """The same of the controls."""
        return _steps(self.controls)

    def options_of(self, version: str) -> CompileOptions:
        """The options that a release of the compiler is given here."""
        casts = {toolchain.compiler: toolchain.auto_cast for toolchain in self.earlier}
        return CompileOptions(auto_cast=casts.get(version, "none"))

    def toolchains(self) -> list[tuple[str, CompileOptions]]:
        """The columns of the study: the version of today first, then the earlier ones."""
        return [
            (name, self.options_of(name)) for name in (self.compiler, *(t.compiler for t in self.earlier))
        ]


def _steps(blocks: list[CompileBlock]) -> list[Step]:
    steps = (
        (network, pixels, batch, precision)
        for block in blocks
        for pixels, batch, precision, network in product(
            block.pixels, block.batch, block.precision, block.networks
        )
    )
    return list(dict.fromkeys(steps))


class Paper(Strict):
    """What the paper says besides what was measured."""

    title: str | None = Field(
        None,
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00-\x1f]+$",
        description="none: that of our own study; a study of a table of your own then makes no paper",
    )


class Study(Strict):
    """One study: datasets, recipes and cells, and which of the cells run on this machine."""

    pathvars: dict[Literal["results", "figures", "generated", "paper", "packed", "logs"], Place] = Field(
        default={}, description="where things lie, as Snakemake's path variables"
    )
    datasets: dict[Name, Dataset]
    recipes: dict[Name, Recipe]
    cells: list[CellBlock]
    unplanned: bool = Field(
        True, description="whether recorded cells on datasets of planned ones are shown without being planned"
    )
    run: list[Pattern] = Field(["phantom-*/*/{cpu,xla_cpu}/*"], description="cells that may be trained here")
    limits: Limits = Limits()
    cluster: Cluster | None = Field(None, description="none: cells are trained on this machine")
    prices: Pricing = Pricing()
    endpoint: Endpoint = Endpoint()
    margins: Margins = Margins()
    compilation: Compilation | None = Field(None, description="none: the study compiles nothing")
    paper: Paper = Paper()

    @model_validator(mode="after")
    def _names_exist(self) -> Study:
        for name, dataset in self.datasets.items():
            if name.startswith("phantom") != (dataset.source == "phantom"):
                rule = "a name begins with 'phantom' if and only if its source is phantom"
                raise ValueError(f"datasets.{name}: {rule}")
            _require(dataset.recipe, self.recipes, f"datasets.{name}.recipe", "recipe")
        for number, block in enumerate(self.cells):
            _require(block.dataset, self.datasets, f"cells.{number}.dataset", "dataset")
            if self.datasets[block.dataset].scored_only:
                fault = (
                    f"{block.dataset} is only scored, its fractions have no train; train on another dataset"
                )
                raise ValueError(f"cells.{number}: {fault}")
            recipe = self.recipe(block.dataset)
            precision = recipe.precision
            for platform in block.platforms:
                emulated = {"emulated_weights": "fp32", "arithmetic": "own"}
                for key, own in emulated.items():
                    if getattr(recipe, key) != own and platform != "cpu":
                        raise ValueError(f"cells.{number}: {key} is for cpu alone, not for {platform}")
                if precision not in (offered := ENTRIES[platform].precisions):
                    fault = (
                        f"the recipe of {block.dataset} is in {precision}, which {platform} does not offer"
                    )
                    raise ValueError(f"cells.{number}: {fault} (it offers {', '.join(offered)})")
        sizes = (len(block.architectures) * len(block.platforms) * len(block.seeds) for block in self.cells)
        if (count := sum(sizes)) > MOST_CELLS:
            raise ValueError(f"cells: {count:,} cells; a study has {MOST_CELLS:,} at most")
        return self

    def all_cells(self) -> list[Cell]:
        """Every cell of the study, in the order of the config, each once."""
        cells = (
            Cell(block.dataset, *parts)
            for block in self.cells
            for parts in product(block.architectures, block.platforms, block.seeds)
        )
        return list(dict.fromkeys(cells))

    def set_apart(self, dataset: str) -> bool:
        """Whether a dataset is part of a block, or its recipe emulates another device's rounding: tables and
        figures of all settings leave it out."""
        recipe = self.recipe(dataset)
        own = (recipe.arithmetic, recipe.emulated_weights) == ("own", "fp32")
        return not own or self.dataset(dataset).block is not None

    def may_run(self, cell: Cell) -> bool:
        """Whether a pattern under ``run`` names ``cell``."""
        return matches(cell, self.run)

    @property
    def own(self) -> bool:
        """Whether a user's own tables are trained on, so that our claims and prices say nothing about it."""
        return any(self.datasets[block.dataset].source == "table" for block in self.cells)

    def makes_paper(self) -> bool:
        """Whether a build typesets the paper, whose prose is of our study: of own tables if titled."""
        return self.paper.title is not None or not self.own

    def dataset(self, name: str) -> AnySource:
        """The dataset called ``name``; UserError with the nearest names otherwise."""
        if name not in self.datasets:
            known = suggestion(name, self.datasets)
            raise UserError(f"unknown dataset '{name}'{known}; name the file of your own study with --study")
        return self.datasets[name]

    def stated_images(self, dataset: str) -> dict[str, int] | None:
        """The images per part of ``dataset`` where the config states them."""
        source = self.dataset(dataset)
        return getattr(source, "images", None) or getattr(source, "expect_images", None)

    def recipe(self, dataset: str) -> Recipe:
        """The recipe that the dataset called ``dataset`` is trained with."""
        return self.recipes[self.dataset(dataset).recipe]


def _require(name: str, names: dict[str, Any], where: str, kind: str) -> None:
    if name not in names:
        raise ValueError(
            f"{where}: unknown {kind} '{name}'{nearest(name, names)} (known: {', '.join(names)})"
        )


def read_study(path: Path | str) -> Study:
    """The study in a YAML or JSON file; UserError with place, key and remedy when it is wrong."""
    document = Document(path)
    return parse_study(document.value, document.at)


def parse_study(value: Any, where: str | Callable[..., str] = "config") -> Study:
    """The study in a mapping; ``where`` names its file, or finds the place of a value by its keys."""
    place_of = where if callable(where) else lambda *keys: where
    if not isinstance(value, dict):
        raise UserError(f"{place_of()}: a study is a mapping; write its keys datasets, recipes and cells")
    try:
        return Study.model_validate(value)
    except ValidationError as error:
        mistakes = ((_keys(mistake), mistake) for mistake in error.errors())
        lines = [f"{place_of(*keys)}: {_explain(keys, mistake)}" for keys, mistake in mistakes]
        raise UserError("\n".join(lines)) from None


def _keys(error: Any) -> list[str | int]:
    """The place of one of pydantic's errors, without the source that it puts behind a dataset's name."""
    location = list(error["loc"])
    if location[:1] == ["datasets"]:
        del location[2:3]
    if location[:1] == ["recipes"] and location[2:3] == ["weights"]:
        del location[3:4]
    if error["type"] == "union_tag_invalid":
        location.append("source")
    return [part for part in location if part != "[key]"]


def _explain(keys: list[str | int], error: Any) -> str:
    """One validation error as: key, what is wrong, the nearest right key."""
    key = ".".join(map(str, keys))
    if error["type"] == "extra_forbidden":
        return f"unknown key '{key}'{suggestion(str(keys[-1]), _fields_at(error['loc'][:-1]))}"
    return f"{key}: {complaint(error)}" if key else complaint(error)


def _fields_at(location: tuple[Any, ...]) -> list[str]:
    """The keys that are right at a location such as ('recipes', 'smoke', 'augmentation')."""
    models: list[type[BaseModel]] = [Study]
    named = False  # by the user, or by its number: the next part of the location is no key of ours
    for part in location:
        if named or len(models) > 1:  # a source or a kind of weights chooses
            models = [model for model in models if named or part in _kinds(model)]
            named = False
        else:
            kind = models[0].model_fields[part].annotation
            models, named = _models_in(kind), get_origin(kind) in (dict, list)
    return list(models[0].model_fields)


def _kinds(model: type[BaseModel]) -> tuple[str, ...]:
    """The key of a model where several are possible: its source, or its fields."""
    source = model.model_fields.get("source")
    return get_args(source.annotation) if source else tuple(model.model_fields)


def _models_in(kind: Any) -> list[type[BaseModel]]:
    """The models that a value of this type may have."""
    if parts := get_args(kind):
        return [model for part in parts for model in _models_in(part)]
    return [kind] if isinstance(kind, type) and issubclass(kind, BaseModel) else []
