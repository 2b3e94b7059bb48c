"""NVIDIA GPUs through ordinary PyTorch."""

from __future__ import annotations

import os
import warnings
from contextlib import suppress
from typing import Any

import torch

from cxrbench.platforms.base import Platform
from cxrbench.study.errors import UserError


class CudaPlatform(Platform):
    """One GPU per process; deterministic kernels and no TF32."""

    name = "cuda"
    device = torch.device("cuda")
    backend = "nccl"
    steps_between_votes = 10  # a vote waits for the device

    def __init__(self, threads: int, precision: str) -> None:
        if reason := _why_not():
            raise UserError(f"platform cuda cannot run here: {reason}")
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        super().__init__(threads, precision)
        kinds = sorted(set(self.gather(torch.cuda.get_device_name())))
        if len(kinds) > 1:
            raise UserError(
                f"platform cuda: the GPUs are of different kinds ({', '.join(kinds)}), so no speed "
                "would be of either; choose equal ones with CUDA_VISIBLE_DEVICES"
            )
        # cuDNN uses TF32 for fp32 convolutions by default: fp32 here means fp32.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is repeatable only with it
        torch.use_deterministic_algorithms(True, warn_only=True)
        self._joules_at_start = self._joules()

    def to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def synchronise(self) -> None:
        torch.cuda.synchronize()

    def generator_state(self) -> dict[str, Any]:
        return super().generator_state() | {"cuda": torch.cuda.get_rng_state()}

    def restore_generator(self, state: dict[str, Any]) -> None:
        super().restore_generator(state)
        torch.cuda.set_rng_state(state["cuda"])

    def peak_memory_mib(self) -> float:
        return torch.cuda.max_memory_allocated() / 2**20

    def energy_joules(self) -> tuple[float | None, str | None]:
        now = self._joules()
        if now is None or self._joules_at_start is None:
            return None, "the NVIDIA management library (pynvml) is missing or has no energy counter here"
        return now - self._joules_at_start, None

    @staticmethod
    def _joules() -> float | None:
        millijoules = _asked("nvmlDeviceGetTotalEnergyConsumption")
        return None if millijoules is None else millijoules / 1000

    def report(self) -> dict[str, Any]:
        # This process is among them; in a container the library may see none.
        running = _asked("nvmlDeviceGetComputeRunningProcesses")
        return {"other_processes": len(running) - 1 if running else None}

    def describe(self) -> dict[str, Any]:
        facts = torch.cuda.get_device_properties(0)
        return {
            "device": facts.name,
            "device_count": torch.cuda.device_count(),
            "device_memory_gib": round(facts.total_memory / 2**30, 1),
            "driver": _driver_version(),
            "sdk": f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}",
        }


def _why_not() -> str | None:
    """Return why PyTorch cannot use a GPU here, in its own words where it has some; None when it can."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA; `make setup` installs one that has it"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            return None
    why = " ".join(str(said[0].message).split())[:300] if said else "it names no reason"
    return f"PyTorch finds no usable GPU ({why}); compare with nvidia-smi"


def _asked(question: str) -> Any:
    """Return what NVIDIA's management library answers of this process's GPU; None when it does not."""
    try:
        import pynvml

        pynvml.nvmlInit()
        facts = torch.cuda.get_device_properties(torch.cuda.current_device())
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{facts.uuid}")  # its index may be another GPU's
        return getattr(pynvml, question)(handle)
    except Exception:  # whatever fails in telemetry must not end a training run
        return None


def _driver_version() -> str | None:
    with suppress(OSError), open("/proc/driver/nvidia/version", encoding="utf-8") as file:
        return file.readline().strip()
    return None
