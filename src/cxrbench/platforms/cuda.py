"""NVIDIA GPUs through ordinary PyTorch."""

import os
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn

from cxrbench.common.errors import UserError, shortened
from cxrbench.platforms.base import Platform
from cxrbench.study.platforms import CUDNN_DEPTHWISE, RECORDING, LacksPrecision, RecordingFailed

_MOST_PINNED = 1 << 26  # bytes
_ENERGY = "nvmlDeviceGetTotalEnergyConsumption"  # in millijoules
_WARM_UP = 3  # calls before work is recorded: libraries choose kernels, the optimizer makes its state


class CudaPlatform(Platform):
    """One GPU per process; kernels that repeat unless the recipe frees them, a step recorded and replayed."""

    name = "cuda"
    device = torch.device("cuda")
    backend = "nccl"
    steps_between_votes = 10  # a vote waits for the device

    def __init__(self, threads: int, precision: str) -> None:
        if reason := _why_not():
            raise UserError(f"platform cuda cannot run here: {reason}")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        if reason := _lacks(precision):
            raise LacksPrecision(f"platform cuda cannot run {precision} here: {reason}; use a recipe in fp32")
        super().__init__(threads, precision)
        kinds = sorted(set(self.gather(torch.cuda.get_device_name())))
        if len(kinds) > 1:
            raise UserError(
                f"platform cuda: the GPUs are of different kinds ({', '.join(kinds)}), so no speed "
                "would be of either; choose equal ones with CUDA_VISIBLE_DEVICES"
            )
        # cuDNN uses TF32 for fp32 convolutions by default: fp32 here means fp32.
        torch.backends.cudnn.allow_tf32 = precision == "tf32"
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is repeatable only with it
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        self._compiles = self._compiled = False  # asked to; done, which takes a whole batch at once
        self._recorded: list[Recorded] = []
        self._why_not: list[str] = []
        self._without: dict[str, str] = {}
        self._millijoules_at_start = _asked(_ENERGY)

    def allow_fastest_kernels(self) -> None:
        torch.use_deterministic_algorithms(False)
        torch.backends.cudnn.benchmark = True

    def do_without(self, part: str, why: str) -> None:
        self._without[part] = why

    def network(self, network: nn.Module) -> nn.Module:
        network = super().network(network)
        if CUDNN_DEPTHWISE in self._without:
            with_own_depthwise(network)
        return network

    def optimizer(
        self, groups: list[dict[str, Any]], learning_rate: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            groups, lr=learning_rate, weight_decay=weight_decay, fused=True, capturable=True
        )

    def number(self, value: float) -> float | torch.Tensor:
        return torch.full((), value, device=self.device)  # a recorded step reads it from memory

    def compile_network(self) -> None:
        self._compiles = True

    def parallel(self, network: nn.Module) -> nn.Module:
        # Forward and backward become fewer kernels, and are recorded with the step like any others.
        self._compiled = self._compiles
        trained = torch.compile(network) if self._compiled else network
        return super().parallel(trained)  # type: ignore[arg-type]

    def captured(self, work: Callable[..., Any], why_not: str | None = None) -> Callable[..., Any]:
        why_not = why_not or self._without.get(RECORDING)
        if self.size > 1:  # gradients travel between processes inside the step
            why_not = "several processes"
        if why_not:
            self._why_not.append(why_not)
            return work
        self._recorded.append(recorded := Recorded(work))
        return recorded

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.nbytes > _MOST_PINNED:  # PyTorch keeps pinned memory, in powers of two
            return tensor.to(self.device)
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def synchronise(self) -> None:
        torch.cuda.synchronize()

    def generator_state(self) -> dict[str, Any]:
        return super().generator_state() | {"cuda": torch.cuda.get_rng_state()}

    def restore_generator(self, state: dict[str, Any]) -> None:
        super().restore_generator(state)
        torch.cuda.set_rng_state(state["cuda"])

    def peak_memory_mib(self) -> float:
        return torch.cuda.max_memory_reserved() / 2**20  # the pools of recorded steps are part of it

    def energy_joules(self) -> tuple[float | None, str | None]:
        now = _asked(_ENERGY)
        if now is None or self._millijoules_at_start is None:
            return None, "the NVIDIA management library (pynvml) is missing or has no energy counter here"
        return (now - self._millijoules_at_start) / 1000, None

    def report(self) -> dict[str, Any]:
        # This process is among them; in a container the library may see none.
        running = _asked("nvmlDeviceGetComputeRunningProcesses")
        reasons = (*self._why_not, *(recorded.why_not for recorded in self._recorded))
        return {
            "other_processes": len(running) - 1 if running else None,
            "graphs": sum(recorded.graph is not None for recorded in self._recorded),
            "not_recorded": next(filter(None, reasons), None),
            "torch_compile": self._compiled,
            "without_cudnn_depthwise": self._without.get(CUDNN_DEPTHWISE),
        }

    def describe(self) -> dict[str, Any]:
        facts = torch.cuda.get_device_properties(0)
        driver = None
        with suppress(OSError), open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            driver = file.readline().strip()
        return {
            "device": facts.name,
            "device_count": torch.cuda.device_count(),
            "device_memory_gib": round(facts.total_memory / 2**30, 1),
            "driver": driver,
            "sdk": f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        }


class Recorded:
    """Work that is recorded as a CUDA graph after a few calls, and replayed from then on.

    One launch takes the place of hundreds (PyTorch, notes/cuda: CUDA graphs). Work that waits for the device
    runs as it is, and :attr:`why_not` says so. A recording that breaks raises RecordingFailed: torch 2.9's
    allocator goes on believing that one is under way (pytorch pull 180395), so this process must end.
    """

    def __init__(self, work: Callable[..., Any]) -> None:
        self.graph: torch.cuda.CUDAGraph | None = None
        self.why_not: str | None = None
        self._work, self._calls, self._stream = work, 0, torch.cuda.Stream()
        self._inputs: list[torch.Tensor | None] = []
        self._outputs: Any = None

    def __call__(self, *inputs: torch.Tensor | None) -> Any:
        if self.why_not:
            return self._work(*inputs)
        if self.graph is None and self._calls < _WARM_UP:
            self._calls += 1
            return self._beside(inputs) if self._calls < _WARM_UP else self._watched(inputs)
        if self.graph is None:
            try:
                self._record(inputs)
            except Exception as error:
                cause = error.__context__ or error  # a broken recording fails again when it ends
                reason = shortened(cause) or type(cause).__name__
                raise RecordingFailed(f"the step could not be recorded: {reason}") from error
        for buffer, given in zip(self._inputs, inputs, strict=True):
            if buffer is not None:
                buffer.copy_(given, non_blocking=True)  # type: ignore[arg-type]
        self.graph.replay()  # type: ignore[union-attr]
        return self._outputs

    def _beside(self, inputs: tuple[torch.Tensor | None, ...]) -> Any:
        """Run as it is, on the stream of the recording: autograd remembers where it met a weight first."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            outputs = self._work(*inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        return outputs

    def _watched(self, inputs: tuple[torch.Tensor | None, ...]) -> Any:
        """Run as it is, and see whether it waits for the device: a recording cannot, and breaks."""
        mode = torch.cuda.get_sync_debug_mode()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                outputs = self._beside(inputs)
            finally:
                torch.cuda.set_sync_debug_mode(mode)
        # PyTorch has no other sign than this warning, but for failing in the middle of the step.
        waits = [warning for warning in caught if "synchronizing CUDA operation" in str(warning.message)]
        self.why_not = shortened(waits[0].message) if waits else None
        return outputs

    def _record(self, inputs: tuple[torch.Tensor | None, ...]) -> None:
        """Record the work on inputs of its own: nothing is computed yet."""
        self._inputs = [None if value is None else value.clone() for value in inputs]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self._stream):
            self._outputs = self._work(*self._inputs)
        self.graph = graph


def _why_not() -> str | None:
    """The reason PyTorch cannot use a GPU here, in its own words where it gives any, or None."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA; `make setup` installs one that has it"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            device = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
            return without_code_for(*device, torch.cuda.get_arch_list())
    why = " ".join(str(caught[0].message).split())[:300] if caught else "it names no reason"
    return f"PyTorch finds no usable GPU ({why}); compare with nvidia-smi"


def without_code_for(name: str, capability: tuple[int, int], built_for: list[str]) -> str | None:
    """Why PyTorch has no kernels for a GPU, or None; ``built_for``: its architectures, such as sm_75.

    Code of sm_75 runs on 7.5 to 7.9; that of compute_90 is translated for every GPU from 9.0 on (CUDA C++
    Programming Guide, "Compute Capability" and "Binary Compatibility").
    """
    built = re.findall(r"(sm|compute)_(\d+)(\d)", " ".join(built_for))
    code = [(kind, (int(major), int(minor))) for kind, major, minor in built]
    fits = (
        target <= capability if kind == "compute" else target[0] == capability[0] and target <= capability
        for kind, target in code
    )
    if not code or any(fits):
        return None
    have, built = ".".join(map(str, capability)), sorted({target for _, target in code})
    first, last = (".".join(map(str, target)) for target in (built[0], built[-1]))
    return (
        f"{name} has compute capability {have}, and PyTorch {torch.__version__} has code for {first} to "
        f"{last} alone; use another GPU (on Kaggle, the accelerator T4 x2)"
    )


def with_own_depthwise(network: nn.Module) -> None:
    """Let PyTorch's own kernels run the depthwise convolutions: cuDNN gets them in channels_last alone.

    aten/src/ATen/native/Convolution.cpp, use_cudnn_depthwise (2.9.1): the layout of input and weight decides.
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and 1 < module.groups == module.in_channels:
            # A clone: of one input channel, contiguous() would keep the strides of channels_last.
            module.weight.data = module.weight.data.clone(memory_format=torch.contiguous_format)
            module.register_forward_pre_hook(lambda _, given: (given[0].contiguous(), *given[1:]))


def _lacks(precision: str) -> str | None:
    """The reason this process's GPU has no such arithmetic and would run a different one, or None."""
    name, capability = torch.cuda.get_device_name(), torch.cuda.get_device_capability()
    if precision == "tf32" and capability < (8, 0):
        have = ".".join(map(str, capability))
        return f"{name} has compute capability {have}, and TF32 begins with 8.0"
    if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return f"{name} only emulates bf16"
    return None


def _asked(question: str) -> Any:
    """The answer of NVIDIA's management library about this process's GPU, or None."""
    try:
        import pynvml

        pynvml.nvmlInit()
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{facts.uuid}")  # its index may be another GPU's
        return getattr(pynvml, question)(handle)
    except Exception:  # whatever fails in telemetry must not end a training run
        return None
