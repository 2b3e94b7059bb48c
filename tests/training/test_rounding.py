"""Weights that an emulation holds in bf16: where they go, and that they are right on average."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cxrbench.common.errors import UserError
from cxrbench.common.readers import Document
from cxrbench.datasets.packed import read_packed
from cxrbench.evidence.record import read_record
from cxrbench.study import platforms
from cxrbench.study.config import Recipe, parse_study
from cxrbench.training.endings import Interrupted
from cxrbench.training.method import round_weights
from cxrbench.training.run import Trainer
from tests.conftest import ROOT


class One(nn.Module):
    """A network of one tensor of weights."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.from_numpy(values.astype(np.float32)))


@given(st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=50), st.integers(0, 2**31))
def test_a_weight_goes_to_one_of_its_two_neighbours_in_bf16(values: list[float], seed: int) -> None:
    torch.manual_seed(seed)
    before = np.array(values, np.float32)
    network = One(before)
    round_weights(network, "bf16_stochastic")
    after = network.weight.detach().numpy()
    assert (torch.from_numpy(after).bfloat16().float().numpy() == after).all()
    below = (before.view(np.int32) & -(1 << 16)).view(np.float32)  # towards zero
    above = ((before.view(np.int32) & -(1 << 16)) + (1 << 16)).view(np.float32)
    assert ((after == below) | (after == above)).all()
    assert (after[below == before] == before[below == before]).all()
    again = after.copy()
    round_weights(network, "bf16_stochastic")
    assert (network.weight.detach().numpy() == again).all()


def test_the_mean_of_stochastic_rounding_is_the_weight_and_nearest_loses_small_updates() -> None:
    torch.manual_seed(0)
    step = 2.0**-7  # between neighbours of bf16 from 1 on
    weights = {kind: One(np.ones(100_000)) for kind in ("bf16_nearest", "bf16_stochastic")}
    for _ in range(8):
        for kind, network in weights.items():
            with torch.no_grad():
                network.weight += step / 8
            round_weights(network, kind)  # type: ignore[arg-type]
    assert (
        weights["bf16_nearest"].weight.detach() == 1
    ).all()  # each update is below half a step: all are lost
    mean = float(weights["bf16_stochastic"].weight.detach().double().mean()) - 1
    assert abs(mean / step - 1) < 0.02  # its standard error is about 0.003


def test_only_the_cpu_emulates() -> None:
    study = Document(ROOT / "config/config.yaml").value
    block = next(block for block in study["cells"] if "emulated" in block["dataset"])
    block["platforms"] = ["cuda"]
    with pytest.raises(UserError, match="emulated_weights is for cpu alone, not for cuda"):
        parse_study(study, "config")
    block["platforms"] = ["cpu"]
    block = next(block for block in study["cells"] if "arith-tf32" in block["dataset"])
    block["platforms"] = ["xla_cpu"]
    with pytest.raises(UserError, match="arithmetic is for cpu alone, not for xla_cpu"):
        parse_study(study, "config")


@pytest.mark.parametrize("given", [{"precision": "bf16"}, {"activation_checkpointing": True}])
def test_an_emulated_arithmetic_is_of_fp32_and_recomputes_nothing(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="arithmetic tf32_conv"):
        Recipe(epochs=1, batch=8, arithmetic="tf32_conv", **given)  # type: ignore[arg-type]


def test_recipes_from_before_emulation_keep_their_hash() -> None:
    recorded = read_record(ROOT / "data/recorded/nih128-32px-fp32/resnet18/cpu/seed0")
    assert Recipe.model_validate(recorded.recipe).hash() == recorded.recipe_hash
    other = Recipe.model_validate(recorded.recipe | {"arithmetic": "fp32_reordered"})
    assert other.hash() != recorded.recipe_hash


def state_of(trainer: Trainer) -> list[torch.Tensor]:
    moments = [
        state[name] for state in trainer.optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")
    ]
    return [*trainer.network.state_dict().values(), *moments, *trainer.averaged.state.values()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arithmetic", "steps"),
    [("bf16_stochastic", 3), *(pytest.param("tf32_conv", n, marks=pytest.mark.slow) for n in (1, 3))],
)
def test_an_emulated_run_resumes_bit_for_bit_after_an_odd_step(
    make_job, recipe: Recipe, arithmetic: str, steps: int
) -> None:
    emulated = recipe.model_copy(update={"arithmetic": arithmetic, "epochs": 1})
    threads = torch.get_num_threads()

    def trainer(name: str, stop: Callable[[], bool]) -> Trainer:
        job = make_job(name, architecture="test_resnet", recipe=emulated)
        job.checkpoints.mkdir(parents=True, exist_ok=True)
        platform = platforms.load("cpu", recipe.threads, "fp32", None, arithmetic)  # type: ignore[arg-type]
        return Trainer(job, read_packed(job.packed), platform, stop)

    whole = trainer("whole", lambda: False)
    expected = [whole.run(), whole.last_scores()]
    votes = iter(range(1, 1000))
    halted = trainer("halted", lambda: next(votes) == steps)
    with pytest.raises(Interrupted):
        halted.run()
    assert halted.progress.step == steps
    torch.manual_seed(999)  # a new process starts anywhere
    again = trainer("halted", lambda: False)
    assert again.resumed
    scores = [again.run(), again.last_scores()]
    torch.set_num_threads(threads)
    assert all(map(torch.equal, state_of(again), state_of(whole)))
    for mine, theirs in zip(scores, expected, strict=True):
        assert mine.keys() == theirs.keys() and all((mine[key] == theirs[key]).all() for key in mine)
    assert (expected[0]["test"] != expected[1]["test"]).any()  # averaged weights and the last ones
