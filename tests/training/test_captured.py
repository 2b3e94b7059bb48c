"""A step that is recorded once and replayed computes what an eager step computes, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import train
from cxrbench.common.errors import UserError
from cxrbench.datasets.packed import read_packed
from cxrbench.platforms.base import Platform
from cxrbench.platforms.cpu import CpuPlatform
from cxrbench.study.config import Limits, Recipe
from cxrbench.training.job import Job
from cxrbench.training.run import Trainer
from cxrbench.training.steps import Steps

RECIPE = Recipe(epochs=2, batch=16, learning_rate=1e-2, drop_path=0.0)


class _Recorder(TorchDispatchMode):
    """Keep every operation with the tensors that it read and made, as a CUDA graph keeps kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.kept.append((func, args, kwargs or {}, made))
        return made

    def replay(self) -> None:
        """Do it again on the same memory: Python's own numbers are those of the recording."""
        for func, args, kwargs, before in self.kept:
            now = func(*args, **kwargs)
            pairs = zip(_tensors(before), _tensors(now), strict=True)
            for old, new in pairs:
                if old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    old.copy_(new)


def _tensors(made: Any) -> list[torch.Tensor]:
    several = made if isinstance(made, (tuple, list)) else [made]
    return [value for value in several if isinstance(value, torch.Tensor)]


class _Recorded:
    """Stands for platforms/cuda.py's: its third call is recorded, later ones are replayed."""

    def __init__(self, work: Callable[..., Any]) -> None:
        self._work, self.calls = work, 0

    def __call__(self, *inputs: torch.Tensor | None) -> Any:
        self.calls += 1
        if self.calls < 3:
            return self._work(*inputs)
        if self.calls == 3:
            self._inputs = [value.clone() if torch.is_tensor(value) else value for value in inputs]
            with _Recorder() as self._recorder:
                self._outputs = self._work(*self._inputs)
            return self._outputs
        for mine, given in zip(self._inputs, inputs, strict=True):
            if torch.is_tensor(mine):
                mine.copy_(given)
        with torch.no_grad():
            self._recorder.replay()
        return self._outputs


class _Numbers(CpuPlatform):
    """The CPU with the numbers of the update in memory, as a recorded step needs them."""

    def number(self, value: float) -> torch.Tensor:
        return torch.tensor(value)


class _Recording(_Numbers):
    def captured(self, work: Callable[..., Any], why_not: str | None = None) -> Callable[..., Any]:
        return work if why_not else _Recorded(work)


def _state(
    platform: Platform, architecture: str, packed: Path, recipe: Recipe = RECIPE
) -> dict[str, torch.Tensor]:
    steps = Steps(architecture, platform, recipe, read_packed(packed))
    steps.take(steps.all_batches(), 8)
    averaged = {f"averaged {name}": value for name, value in steps.averaged.state.items()}
    return steps.network.state_dict() | averaged | {"loss": steps.update.loss_sum}


@pytest.mark.parametrize("architecture", ["test_resnet", "test_convnext"])
def test_a_replayed_step_is_an_eager_step(architecture: str, packed: Path) -> None:
    eager = _state(_Numbers(1, "fp32"), architecture, packed)
    replayed = _state(_Recording(1, "fp32"), architecture, packed)
    assert all(torch.equal(eager[name], replayed[name]) for name in eager)


@pytest.mark.slow
def test_a_replayed_evaluation_scores_as_an_eager_one(make_job: Callable[..., Job]) -> None:
    scores = []
    for of in (_Numbers, _Recording):
        job = make_job(of.__name__, recipe=RECIPE.model_copy(update={"threads": 1}), micro_batch=16)
        scores.append(Trainer(job, read_packed(job.packed), of(1, "fp32"), stop=lambda: False).run())
    for split in ("val", "test"):
        assert (scores[0][split] == scores[1][split]).all() and len(scores[0][split]) > 4 * 16


def test_compiling_the_network_is_refused_where_it_is_not_offered(make_job: Callable[..., Job]) -> None:
    job = make_job(limits=Limits(torch_compile=True))
    with pytest.raises(UserError, match=r"platform cpu cannot train with limits\.torch_compile"):
        Trainer(job, read_packed(job.packed), CpuPlatform(1, "fp32"), stop=lambda: False)


def test_a_number_outside_of_memory_would_be_noticed(packed: Path) -> None:
    class Forgetful(_Recording):
        def number(self, value: float) -> float:  # type: ignore[override]
            return value

    right, wrong = (_state(of(1, "fp32"), "test_resnet", packed) for of in (CpuPlatform, Forgetful))
    assert any(not torch.equal(right[name], wrong[name]) for name in right)


@pytest.mark.parametrize(("micro_batch", "why_not"), [(64, None), (32, "several micro-batches")])
def test_a_step_of_several_micro_batches_is_not_recorded_and_says_why(
    micro_batch: int, why_not: str | None, make_job: Callable[..., Job]
) -> None:
    given: list[str | None] = []

    class Asked(CpuPlatform):
        def captured(self, work: Callable[..., Any], reason: str | None = None) -> Callable[..., Any]:
            given.append(reason)
            return work

    job = make_job(micro_batch=micro_batch)
    Trainer(job, read_packed(job.packed), Asked(1, "fp32"), stop=lambda: False)
    assert given.count(None) == 3 - bool(why_not) and given.count(why_not) > 0


def test_operators_of_a_recorded_step_are_counted_before_it_is_recorded(packed: Path, monkeypatch) -> None:
    class Silent(CpuPlatform):
        """Dispatches no operator after the first call, as a replayed CUDA graph."""

        def captured(self, work: Callable[..., Any], why_not: str | None = None) -> Callable[..., Any]:
            kept: list[Any] = []

            def replayed(*inputs: Any) -> Any:
                if not kept:
                    kept.append(work(*inputs))
                return kept[0]

            return replayed

    monkeypatch.setattr("cxrbench.study.platforms.load", lambda *setting: Silent(1, "fp32"))
    made = train._ours(train.Setting("cpu", "test_resnet", 32, 16, "fp32", 1, blocks=1, steps=1), packed)
    made.block()
    assert made.facts()["model_flops_per_image"] > 1e6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
@pytest.mark.parametrize("architecture", ["test_resnet", "test_convnext"])
@pytest.mark.parametrize(
    "changes", [{}, {"precision": "bf16"}, {"precision": "tf32"}, {"drop_path": 0.2, "drop_rate": 0.2}]
)
def test_a_cuda_graph_is_an_eager_step(architecture: str, changes: dict[str, Any], packed: Path) -> None:
    from cxrbench.platforms.cuda import CudaPlatform

    recipe = RECIPE.model_copy(update=changes)

    class Eager(CudaPlatform):
        def captured(self, work: Callable[..., Any], why_not: str | None = None) -> Callable[..., Any]:
            return work

    eager = _state(Eager(1, recipe.precision), architecture, packed, recipe)
    platform = CudaPlatform(1, recipe.precision)
    replayed = _state(platform, architecture, packed, recipe)
    assert platform.report()["graphs"] == 2 and platform.report()["not_recorded"] is None
    assert all(torch.equal(eager[name], replayed[name]) for name in eager)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_compiled_network_is_recorded_with_its_step_and_evaluation(make_job: Callable[..., Job]) -> None:
    from cxrbench.platforms.cuda import CudaPlatform

    platform = CudaPlatform(1, "fp32")
    job = make_job(platform="cuda", recipe=RECIPE, micro_batch=16, limits=Limits(torch_compile=True))
    scores = Trainer(job, read_packed(job.packed), platform, stop=lambda: False).run()
    assert (scores["test"] > 0).all() and (scores["test"] < 1).all()
    report = platform.report()
    assert report["torch_compile"] and report["graphs"] == 3 and report["not_recorded"] is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU on this machine")
def test_a_step_that_reads_the_device_is_not_recorded_and_says_why() -> None:
    from cxrbench.platforms.cuda import CudaPlatform

    platform = CudaPlatform(1, "fp32")
    step = platform.captured(lambda value: value * float(value.sum().item()))
    value = platform.to_device(torch.full((2,), 2.0))
    assert [step(value)[0].item() for _ in range(6)] == [8.0] * 6
    assert "synchronizing" in platform.report()["not_recorded"] and platform.report()["graphs"] == 0
