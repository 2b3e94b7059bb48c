"""The update of XLA platforms: torch's AdamW in other words, with nothing on the device but moments."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import TINY, ran
from cxrbench.platforms.adamw import AdamW
from cxrbench.training.run import update_of

RATES = st.lists(st.floats(1e-5, 1e-2), min_size=1, max_size=40)


def tensor(value: float) -> torch.Tensor:
    """A number as XLA's platform sends it."""
    return torch.tensor([value])


def weights(seed: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=made).requires_grad_() for shape in ((5, 3), (7,), (2, 1, 3, 3))]


@pytest.mark.parametrize("constant", [float, tensor])
@settings(max_examples=20, deadline=None)
@given(rates=RATES, decay=st.sampled_from([0.0, 0.05]), seed=st.integers(0, 1000))
def test_it_moves_as_torchs_does(constant, rates: list[float], decay: float, seed: int) -> None:
    ours, theirs = weights(seed), weights(seed)
    groups = [[{"params": some[:1], "weight_decay": decay}, {"params": some[1:]}] for some in (ours, theirs)]
    mine = AdamW(groups[0], 1e-3, 0.1, tensor, constant)
    torchs = torch.optim.AdamW(groups[1], lr=1e-3, weight_decay=0.1, foreach=False)
    drawn = torch.Generator().manual_seed(seed + 1)
    for rate in rates:
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(one.shape, generator=drawn)
            other.grad = one.grad.clone()
        for group, other_group in zip(mine.param_groups, torchs.param_groups, strict=True):
            group["lr"], other_group["lr"] = tensor(rate), rate
        mine.step()
        torchs.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_it_goes_on_from_its_state_and_leaves_what_has_no_gradient() -> None:
    first, second = weights(0), weights(0)
    whole, halves = (
        AdamW([{"params": first}], 1e-3, 0.05, tensor),
        AdamW([{"params": second}], 1e-3, 0.05, tensor),
    )
    for step in range(4):
        for one, other in zip(first[:2], second[:2], strict=True):
            one.grad = torch.full_like(one, 0.1 * (step + 1))
            other.grad = one.grad.clone()
        whole.step()
        if step == 2:
            halves, before = AdamW([{"params": second}], 1e-3, 0.05, tensor), halves
            halves.load_state_dict(before.state_dict())
        halves.step()
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert torch.equal(first[2], weights(0)[2])


def test_the_code_that_moves_the_weights_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [{"params": weights(0)}]
    assert update_of(AdamW(groups, 1e-3, 0.05, tensor)) == "cxrbench.platforms.adamw.AdamW"
    fused, plain = torch.optim.AdamW(groups, fused=True), torch.optim.AdamW(groups, foreach=False)
    assert update_of(fused) == "torch.optim.adam._fused_adam"

    def patched() -> None: ...

    patched.__module__ = "torch_neuronx.xla"
    monkeypatch.setattr(sys.modules["torch.optim.adam"], "_single_tensor_adam", patched)
    assert update_of(plain).startswith("torch_neuronx.xla.")


GRAPH = """
import json, os
from cxrbench.study import platforms
from cxrbench.neuron.capture import Graph, build, capture, torch_xla
from cxrbench.neuron.rules import Setting

def keep(part, tensors):
    text = torch_xla._XLAC._get_xla_tensors_hlo(tensors)
    print(json.dumps({"f64": text.count("f64["), "power": 0, "reshape": 0} | Graph.parse(text).counts))

capture(build(os.environ["NETWORK"], 32), Setting(32, 4), platforms.load("xla_cpu", 1, "fp32"), keep=keep)
"""


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [TINY, "test_convnext"])
def test_functionalization_changes_nothing_but_copies(architecture: str) -> None:
    """It is off on Neuron: what is trained with it here stands for what is trained there."""
    counts = []
    for off in "01":
        environment = os.environ | {"XLA_DISABLE_FUNCTIONALIZATION": off, "NETWORK": architecture}
        done = ran(sys.executable, "-c", GRAPH, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
        backward, step = map(json.loads, done.stdout.splitlines()[-2:])
        assert step["f64"] == 0 and step["power"] == backward["power"]  # GELU by tanh has some, AdamW none
        counts.append(step)
    assert counts[0].keys() == counts[1].keys()
    changed = {name for name in counts[0] if counts[0][name] != counts[1][name]}
    assert changed <= {"convert", "reshape", "transpose"}  # without it, views are made anew at each use


STEPS = """
import sys
from pathlib import Path
import numpy as np
from cxrbench.datasets.packed import read_packed
from cxrbench.platforms.xla import XlaPlatform
from cxrbench.study.config import Recipe
from cxrbench.training.steps import Steps

packed, platform, out = read_packed(Path(sys.argv[1])), XlaPlatform(2, "fp32"), Path(sys.argv[3])
trained = Steps(sys.argv[2], platform, Recipe(epochs=9, batch=16), packed)
batches = trained.all_batches()
for name, steps in (("three", 3), ("four", 1)):
    trained.take(batches, steps)
    weights = [*trained.network.state_dict().values(), *trained.averaged.state.values()]
    np.savez(out / name, *(tensor.cpu().numpy() for tensor in (*weights, trained.update.loss_sum)))
"""


def distances(one: Path, other: Path) -> list[float]:
    """The distance of each array of ``one`` to its namesake in ``other``, as a part of its norm."""
    norm = np.linalg.norm
    with np.load(one) as a, np.load(other) as b:
        assert a.files == b.files
        return [norm(a[k] - b[k]) / max(norm(a[k]), 1e-12) for k in a.files]


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["test_convnext"])  # minutes each
def test_functionalization_changes_rounding_alone(
    architecture: str, packed, monkeypatch, tmp_path: Path
) -> None:
    """With XLA's own optimisation, which on some processors sums the copies above in another order."""
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    for off in "01":
        (tmp_path / off).mkdir()
        environment = os.environ | {"XLA_DISABLE_FUNCTIONALIZATION": off}
        done = ran(sys.executable, "-c", STEPS, packed, architecture, tmp_path / off, env=environment)
        assert done.returncode == 0, done.stderr[-2000:]
    assert max(distances(tmp_path / "0/three.npz", tmp_path / "1/three.npz")) < 1e-5
    assert np.median(distances(tmp_path / "0/three.npz", tmp_path / "1/four.npz")) > 1e-4  # sees a step more
