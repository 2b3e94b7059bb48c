"""The gate of steps: a platform's step against float64, judged by the spread of right arithmetic on the CPU.

platforms/gate.py says how a step is taken apart. The tolerance of a tensor is the largest error of its like
over kernels, layouts, emulated roundings and seeds on the CPU, times :data:`FACTOR`.
"""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from benchmarks import measured_now
from benchmarks.turns import Report, in_own_process
from cxrbench.common.errors import UserError
from cxrbench.datasets.packed import read_packed
from cxrbench.platforms.base import Platform
from cxrbench.platforms.cpu import CpuPlatform
from cxrbench.platforms.defects import Defect
from cxrbench.platforms.emulated import RoundedProducts, to_bf16, to_tf32
from cxrbench.platforms.gate import WHOLE, TensorDifference
from cxrbench.platforms.judged import AVERAGING, Stepped, StepStart, judge
from cxrbench.study import platforms
from cxrbench.study.config import Recipe
from cxrbench.training.method import Batch
from cxrbench.training.steps import Steps

FACTOR = 4.0
# An error that any operator may have: a rounding of its factors or its result to the precision; in fp32 an
# approximate exponential or root as well, and sums in an order that no kernel here has: XLA's BatchNorm was
# off by 1.4e-6 on a CPU, whose own kernels are by 3e-7 at most. A factor of 1.02 is more than all of these.
FLOOR = {"fp32": 2.0**-17, "tf32": 2.0**-10, "bf16": 2.0**-7}
# Over the whole step errors compound, and a ReLU may take the other branch: this finds only what is gross
# and what hooks would hide. The bound is of the network: its tensors' errors are chance.
WHOLE_FACTOR, WHOLE_FLOOR = 2.0, {"fp32": 0.02, "tf32": 0.1, "bf16": 0.2}
CALIBRATION_SEEDS = (101, 102)  # not those that are judged
SHOWN = 10  # differences in a row
MOST = 1e18

Spread = dict[tuple[str, str], tuple[float, float]]  # by operator and tensor: largest direction and norm
Prepared = tuple[StepStart, Stepped, list[Any]]


class Made(Protocol):
    """What makes the step that is judged, and can be sent to another process."""

    def named(self) -> dict[str, Any]:
        """What a row says of the network."""

    def __call__(self, platform: Platform, seed: int) -> Prepared:
        """Where the step starts, the network on a platform, and its batches: the last is judged."""


# -- right arithmetic on the CPU --------------------------------------------------------------------


class Kernels(CpuPlatform):
    """The CPU with other kernels, another layout, one thread, or roundings of another device's."""

    def __init__(self, precision: str, kernels: str = "default", rounding: Any = None) -> None:
        super().__init__(1 if kernels == "one thread" else 2, precision)
        self._kernels, self._rounding = kernels, rounding

    @property
    def _channels_last(self) -> bool:
        return self._kernels == "channels_last"

    def arithmetic(self) -> AbstractContextManager[Any]:
        stack = ExitStack()
        if self._rounding:
            stack.enter_context(RoundedProducts(self._rounding))
        if self._kernels == "own kernels":  # PyTorch's, without oneDNN
            torch.backends.mkldnn.set_flags(False)
            stack.callback(torch.backends.mkldnn.set_flags, True)
        return stack


def truncated_tf32(values: Tensor) -> Tensor:
    """fp32 values cut to TF32, as a tensor core does with what nobody has rounded before."""
    return values.view(torch.int32).bitwise_and(~0x1FFF).view(torch.float32)


# What is right in each precision; the first is the emulation that `--platforms cpu` puts to the test.
RIGHT: dict[str, dict[str, Callable[[], Platform]]] = {
    "fp32": {
        "own kernels": partial(Kernels, "fp32", "own kernels"),
        "default": partial(Kernels, "fp32"),
        "channels_last": partial(Kernels, "fp32", "channels_last"),
    },
    "tf32": {
        "rounded": partial(Kernels, "fp32", rounding=to_tf32),
        "own kernels": partial(Kernels, "fp32", "own kernels", to_tf32),
        "truncated": partial(Kernels, "fp32", rounding=truncated_tf32),
    },
    "bf16": {
        "rounded": partial(Kernels, "fp32", rounding=to_bf16),
        "own kernels": partial(Kernels, "fp32", "own kernels", to_bf16),
        "autocast": partial(Kernels, "bf16"),
    },
}


def spread_of(made: Made, precision: str, seeds: Iterable[int] = CALIBRATION_SEEDS) -> Spread:
    """The largest errors of each tensor over correct arithmetic of the CPU and over seeds."""
    largest: Spread = {}
    for seed in seeds:
        for right in RIGHT[precision].values():
            start, stepped, batches = made(right(), seed)
            for difference in judge(stepped, start, batches)[0]:
                # Sums in an operator's own bf16 have their bound by themselves: it is wider than the rest.
                if not (difference.floor and difference.tensor.startswith("gradient")):
                    before = largest.get(difference[:2], (0.0, 0.0))
                    largest[difference[:2]] = (
                        max(before[0], difference.direction),
                        max(before[1], difference.norm),
                    )
    return largest


# -- the verdict ------------------------------------------------------------------------------------


def tolerance(difference: TensorDifference, precision: str, spread: Spread) -> tuple[float, float]:
    """The largest ``direction`` and ``norm`` that a tensor may have."""
    if WHOLE in difference.tensor:
        largest = max((most[0] for (_, tensor), most in spread.items() if WHOLE in tensor), default=0.0)
        return (max(WHOLE_FLOOR[precision], WHOLE_FACTOR * largest),) * 2
    in_fp32 = difference.operator.startswith(("AdamW", AVERAGING)) or difference.tensor.startswith("change")
    least = max(FLOOR["fp32" if in_fp32 else precision], difference.floor)
    direction, norm = (max(least, FACTOR * part) for part in spread.get(difference[:2], (0.0, 0.0)))
    return direction, norm


def ratio(difference: TensorDifference, precision: str, spread: Spread) -> float:
    """A difference over its tolerance: above one it counts."""
    direction, norm = tolerance(difference, precision, spread)
    return max(difference.direction / direction, difference.norm / norm)


def worst_first(found: Iterable[TensorDifference], precision: str, spread: Spread) -> list[dict[str, Any]]:
    """The differences above their tolerance: single operators first, then the whole step.

    An infinite one is written as ``MOST``: JSON has no infinity.
    """
    rows = []
    for difference in found:
        if not (over := ratio(difference, precision, spread)) <= 1:
            allowed = dict(
                zip(
                    ("direction_tolerance", "norm_tolerance"),
                    tolerance(difference, precision, spread),
                    strict=True,
                )
            )
            sizes = {
                "direction": min(difference.direction, MOST),
                "norm": min(difference.norm, MOST),
                "ratio": min(over, MOST),
            }
            rows.append(difference._asdict() | allowed | sizes)
    return sorted(rows, key=lambda row: (WHOLE in row["tensor"], -row["ratio"]))


def platform_called(name: str, precision: str) -> Platform:
    """The platform under test: of the study, any device that torch knows, or the CPU's own emulation."""
    if name == "cpu":
        return next(iter(RIGHT[precision].values()))()
    return platforms.load(name, 2, precision) if name in platforms.ENTRIES else AnyDevice(name, precision)


class AnyDevice(Platform):
    """A device of torch's that is none of the study's platforms."""

    def __init__(self, name: str, precision: str) -> None:
        try:
            self.device = torch.ones(1, device=name).device
        except (RuntimeError, AssertionError, ValueError) as error:
            reason = str(error).strip().splitlines()[0]
            raise UserError(
                f"torch has no device '{name}' here: {reason}; give another --platforms"
            ) from None
        self.name = name
        super().__init__(2, precision)

    def to_device(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device)


def verdict(
    made: Made, name: str, precision: str, spread: Spread | None, defect: str | None, unrecorded: str = ""
) -> tuple[dict[str, Any], str]:
    """What the gate finds on a platform, and a digest of the step's bits; without ``spread`` that alone.

    ``unrecorded``: why the device does not record its step, if it does not.
    """
    platform = platform_called(name, precision)
    if unrecorded:
        platform.do_without(platforms.RECORDING, unrecorded)
    start, stepped, batches = made(platform, 0)
    if defect:
        Defect(defect).plant(stepped)
    found, digest = judge(stepped, start, batches, compare=spread is not None)
    wrong = worst_first(found, precision, spread or {})
    row = {"tensors": len(found), "differences": len(wrong), "worst": wrong[:SHOWN]}
    return row | measured_now(platform), digest


def judge_all(
    judged: Iterable[Made], names: list[str], precision: str, defect: str | None, report: Report
) -> Iterator[list[dict[str, Any]]]:
    """Yield for each network a row per platform; ``repeats``: whether the step gives the same bits twice."""
    for made in judged:
        spread = in_own_process(spread_of, made, precision)
        report(f"{made}: tolerances in {precision} are measured")
        rows = []
        for name in names:
            asked, unrecorded = (verdict, made, name, precision), ""
            try:
                row, digest = in_own_process(*asked, spread, defect)
            except platforms.RecordingFailed as error:  # as a trainer, which is started again without
                unrecorded = str(error)
                report(f"{made} on {name}: {unrecorded}; judged as it runs without recording")
                row, digest = in_own_process(*asked, spread, defect, unrecorded)
            again = in_own_process(*asked, None, defect, unrecorded)[1]
            report(f"{made} on {name}: {row['differences']} of {row['tensors']} tensors differ")
            for difference in row["worst"]:
                report(f"  {in_words(difference)}")
            head = {"platform": name, "precision": precision, "repeats": digest == again}
            rows.append(made.named() | head | row)
        yield rows


def why_not(row: dict[str, Any]) -> str:
    """Why no cell should be trained, in a sentence, from a row with a difference."""
    where = "{architecture} on {platform} in {precision}".format_map(row)
    if not row["differences"]:
        return f"{where}: a second run of the same step gives other bits; no result of it could be repeated"
    return (
        f"{where}: {row['differences']} of {row['tensors']} tensors differ from the exact step; "
        f"{in_words(row['worst'][0])}; train no cell here before you know why (docs/steps.md)"
    )


def in_words(row: dict[str, Any]) -> str:
    """A difference in words: operator, tensor, size, how far apart and how far it may be."""
    size = " x ".join(map(str, row["size"])) or "1"
    return (
        f"{row['operator']}: {row['tensor']} ({size}): direction off by {row['direction']:.1e} (tolerance "
        f"{row['direction_tolerance']:.1e}), norm by {row['norm']:.1e} ({row['norm_tolerance']:.1e})"
    )


# -- the study's networks ---------------------------------------------------------------------------


def ready_for_the_gate(network: nn.Module) -> None:
    """Set to one what multiplies a block's result by almost nothing at the start, and drop nothing by chance.

    Layer scales (timm's ``gamma``) and the zero weights of a block's last norm would hide their block.
    Weights on a device are left: the start fills them, and reading one may compile a program.
    """
    for name, value in network.named_parameters():
        if value.device.type != "cpu":
            continue
        flat = value.detach()
        scale = flat.dim() == 1 and not name.endswith("bias") and abs(float(flat[0])) <= 0.1
        if scale and bool((flat == flat[0]).all()):
            flat.fill_(1.0)
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif hasattr(module, "drop_prob"):
            module.drop_prob = 0.0  # type: ignore[assignment]


def start_of(network: nn.Module, seed: int, batch: Any) -> StepStart:
    """A start with a network's weights; statistics and averaged weights are drawn around them."""
    network, generator = copy.deepcopy(network), torch.Generator().manual_seed(seed)
    drawn = {}
    for name, value in network.state_dict().items():
        noise = torch.randn(value.shape, generator=generator) * value.abs().float().mean().clamp(min=0.01)
        drawn[name] = value + 0.1 * noise if value.is_floating_point() else value.clone()
    for name, buffer in network.named_buffers():
        if name in drawn:
            buffer.copy_(drawn[name])
    return StepStart(network, drawn, batch)


def loss_of(network: nn.Module, batch: tuple[Tensor, Tensor, Tensor | None]) -> Tensor:
    """The loss of training/method.py."""
    images, labels, counts = batch
    return binary_cross_entropy_with_logits(network(images), labels, counts)


@dataclass(frozen=True)
class OfStudy:
    """A timm network, stepped with the trainer's own code after its warm-up on packed images."""

    architecture: str
    recipe: Recipe
    packed: Path

    def __str__(self) -> str:
        return self.architecture

    def named(self) -> dict[str, Any]:
        """What a row says of the network."""
        pixels = read_packed(self.packed).manifest["pixels"]
        return {"architecture": self.architecture, "pixels": pixels, "batch": self.recipe.batch}

    def __call__(self, platform: Platform, seed: int) -> Prepared:
        on_cpu, batches, _ = self._steps(CpuPlatform(2, "fp32"), seed)
        start = start_of(on_cpu.network, seed, batches[-1])
        torch.set_num_threads(platform.threads)
        steps, batches, warm = self._steps(platform, seed)

        def take(batch: Any) -> Tensor:
            steps.progress.step = warm
            images, labels, counts = batch
            steps.take(iter([Batch(images, labels, counts, self.recipe.batch)]))
            return torch.tensor(steps.loss())

        share = steps.averaged.weight(warm)
        network, optimizer = steps.network, steps.optimizer
        return start, Stepped(platform, network, optimizer, take, loss_of, steps.averaged, share), batches

    def _steps(self, platform: Platform, seed: int) -> tuple[Steps, list[Any], int]:
        packed, recipe = read_packed(self.packed), self.recipe
        warm = round(recipe.warmup * recipe.epochs * (len(packed.rows("train")) // recipe.batch))
        steps = Steps(self.architecture, platform, recipe, packed, warm, seed)
        ready_for_the_gate(steps.network)
        batches = islice(steps.all_batches(), 2)
        return steps, [(batch.images, batch.labels, batch.label_weights) for batch in batches], warm


def networks(architectures: list[str] | None, model: str | None, batch: str, packed: Path) -> list[Made]:
    """What is judged: timm networks by name, or somebody's own ``model``."""
    if model:
        from benchmarks.own_model import OwnModel

        return [OwnModel(model, batch)]
    if not batch.isdecimal() or not int(batch):
        raise UserError(f"--batch {batch}: give a number of images; a file is for --model")
    recipe = Recipe(epochs=100, batch=int(batch), threads=2)
    return [OfStudy(name, recipe, packed) for name in architectures or ("resnet18", "convnext_atto")]
