"""A TPU through torch_xla: xla.py but for facts of the device. Never run on one yet (docs/tpu.md)."""

from contextlib import suppress
from typing import Any

import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr
from torch_xla import backends

from cxrbench.platforms.xla import XlaPlatform
from cxrbench.study.platforms import installed

# What the runtime calls the chips that data/prices.csv and cost/devices.toml name as Google does.
_NAMES = {"TPU v5 lite": "TPU v5e", "TPU v6 lite": "TPU v6e"}


class XlaTpuPlatform(XlaPlatform):
    """One chip, one process; ``platforms.load`` sets the environment of xla_tpu_settings first."""

    name = "xla_tpu"
    hardware = "TPU"

    def __init__(self, threads: int, precision: str) -> None:
        # By default a TPU rounds fp32 factors to bf16 (torch_xla.backends): fp32 here means fp32.
        backends.set_mat_mul_precision("highest" if precision == "fp32" else "default")
        super().__init__(threads, precision)

    def peak_memory_mib(self) -> float | None:
        peak = self._memory().get("peak_bytes_used")
        return peak / 2**20 if peak else None

    def _memory(self) -> dict[str, int]:
        """Bytes used, at most used and there; empty where the device does not say."""
        with suppress(RuntimeError):
            told: Any = xm.get_memory_info(self.device)
            return dict(told)
        return {}

    def report(self) -> dict[str, Any]:
        precision = backends.get_mat_mul_precision()
        return super().report() | {"matrix_precision": precision, "device_kind": xm.xla_device_kind()}

    def describe(self) -> dict[str, Any]:
        kind, memory = xm.xla_device_kind(), self._memory().get("bytes_limit")
        return {
            "device": _NAMES.get(kind, kind),
            "device_count": xr.addressable_device_count(),
            "device_memory_gib": round(memory / 2**30, 1) if memory else None,
            "driver": f"libtpu {installed('libtpu')}",  # driver and compiler are one library
            "sdk": f"libtpu {installed('libtpu')}",
        }
