"""What a TPU needs before torch is imported. Source: torch_xla 2.9, _internal/tpu.py. Imports no torch."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cxrbench.study.config import Compiler
from cxrbench.study.platforms import installed

PCI = Path("/sys/bus/pci/devices")
# Of v2 and v3, v4, v5e, v6e and 7x; another device of Google's may be a disk or a network card.
_CHIPS = ("0x0027", "0x005e", "0x0063", "0x006f", "0x0076")


def unavailable() -> str | None:
    """The reason platform xla_tpu cannot run on this machine, or None."""
    if not any(map(_is_tpu, PCI.glob("*"))):
        return "there is no TPU on this machine"
    if installed("torch-xla") is None:
        return "torch_xla is not installed here (run `make setup`)"
    if installed("libtpu") is None:
        return "libtpu, the TPU's driver, is not installed here (see docs/tpu.md)"
    return None


def _is_tpu(device: Path) -> bool:
    """Whether a device on the PCI bus is a TPU."""
    with suppress(OSError):
        vendor, number = ((device / name).read_text().strip() for name in ("vendor", "device"))
        return vendor == "0x1ae0" and number in _CHIPS
    return False


def environment(precision: str, compiler: Compiler, given: Mapping[str, str]) -> dict[str, str]:
    """The variable that makes torch_xla use the TPU and nothing else."""
    return {"PJRT_DEVICE": "TPU"}
