"""AdamW for devices that compile what they run: bias corrections from the host, no counters on the device.

torch's own, with ``capturable``, keeps a counter for each weight on the device and takes powers of it; and
under torch_xla the ``value`` of its ``addcmul_`` is an f64 parameter of the graph, a type that Neuron's
compiler refuses (NCC_ESPP004) and that torch_xla replaces on a Neuron device alone.
"""

from collections.abc import Callable
from typing import Any

import torch

Number = float | torch.Tensor  # as Platform.number gives it
_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # torch's defaults


class AdamW(torch.optim.Optimizer):
    """AdamW (Loshchilov and Hutter, arXiv 1711.05101): torch's mathematics and defaults, rounded otherwise.

    ``changing`` makes a number that changes from step to step a tensor on the device; ``constant`` gives one
    that does not in the form that the device needs. Rates of groups may be such tensors. The number of
    steps taken is in each group, for checkpoints.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        learning_rate: float,
        weight_decay: float,
        changing: Callable[[float], Number],
        constant: Callable[[float], Number] = float,
    ) -> None:
        super().__init__(groups, {"lr": learning_rate, "weight_decay": weight_decay, "step": 0})
        self._changing = changing
        self._one, self._epsilon = constant(1.0), constant(_EPSILON)
        self._shares = [constant(1 - beta) for beta in _BETAS]
        self._decays = {
            decay: constant(decay) for decay in {group["weight_decay"] for group in self.param_groups}
        }

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move each weight that has a gradient."""
        taken = self.param_groups[0]["step"] + 1
        of_mean, of_square = (1 / (1 - beta**taken) for beta in _BETAS)
        mean_scale, root_scale = self._changing(of_mean), self._changing(of_square**0.5)
        for group in self.param_groups:
            group["step"] = taken
            rate, kept = group["lr"] * mean_scale, None
            if group["weight_decay"]:
                kept = self._one - group["lr"] * self._decays[group["weight_decay"]]
            for weight in group["params"]:
                if weight.grad is not None:
                    self._move(weight, weight.grad, rate, root_scale, kept)

    def _move(
        self,
        weight: torch.Tensor,
        gradient: torch.Tensor,
        rate: Number,
        root_scale: Number,
        kept: Number | None,
    ) -> None:
        """Average the gradient and its square into the moments and move the weight; decay leaves ``kept``."""
        state = self.state[weight]
        if not state:
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.lerp_(gradient, self._shares[0])
        square.lerp_(gradient * gradient, self._shares[1])
        if kept is not None:
            weight.mul_(kept)
        weight.sub_(mean * rate / (square.sqrt() * root_scale + self._epsilon))
