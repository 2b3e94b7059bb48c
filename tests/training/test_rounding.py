"""Weights that an emulation holds in bf16: where they go, and that they are right on average."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cxrbench.study.config import parse_study
from cxrbench.study.names import UserError
from cxrbench.study.readers import Document
from cxrbench.training.method import round_weights
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
    with pytest.raises(UserError, match="emulated_weights are for cpu alone, not for cuda"):
        parse_study(study, "config")
