"""Platform xla_tpu as far as it runs without a TPU: its code is xla.py's, which xla_cpu rehearses."""

import os
import re
import sys
from pathlib import Path

import pytest

from conftest import ROOT, ran
from cxrbench.cost.devices import DEVICES, device_of_host
from cxrbench.cost.prices import price, read_prices
from cxrbench.platforms import xla_tpu_settings
from cxrbench.study import platforms
from cxrbench.study.config import Compiler

PAGE = (ROOT / "docs/tpu.md").read_text()
PRICES = read_prices(ROOT / "data/prices.csv")
ROW = re.compile(r"^\| (\S+) \((\w+)\) \| `xla_tpu` \| 1 \| (\d+) TFLOP/s \| ([\d.]+) .*? \| ([\d.]+) ", re.M)


def on_the_bus(folder: Path, vendor: str, device: str) -> Path:
    """A machine with one device on its PCI bus."""
    place = folder / "0000:00:05.0"
    place.mkdir(parents=True)
    (place / "vendor").write_text(f"{vendor}\n")
    (place / "device").write_text(f"{device}\n")
    return folder


@pytest.mark.fault("platform xla_tpu without a TPU or libtpu", "one sentence, before anything starts")
def test_a_machine_without_a_tpu_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xla_tpu_settings, "PCI", on_the_bus(tmp_path / "disk", "0x1ae0", "0x001f"))
    assert platforms.unavailable("xla_tpu") == "there is no TPU on this machine"
    assert f"cxrbench: platform xla_tpu cannot run here: {platforms.unavailable('xla_tpu')}\n" in PAGE
    monkeypatch.setattr(xla_tpu_settings, "PCI", on_the_bus(tmp_path / "v5e", "0x1ae0", "0x0063"))
    if platforms.installed("libtpu") is None:
        assert "libtpu, the TPU's driver, is not installed here" in str(platforms.unavailable("xla_tpu"))
    assert xla_tpu_settings.environment("fp32", Compiler(), os.environ) == {"PJRT_DEVICE": "TPU"}


@pytest.mark.slow
def test_only_facts_of_the_device_differ_from_the_rehearsal() -> None:
    """On torch_xla's CPU device, which is told to pass for a TPU."""
    code = """if True:
        import os; os.environ["PJRT_DEVICE"] = "CPU"
        from cxrbench.platforms import xla_tpu
        tpu = xla_tpu.XlaTpuPlatform
        print(*sorted(name for name in vars(tpu) if not name.startswith("_")))
        try: tpu(1, "fp32")
        except Exception as error: print(error)
        tpu.hardware = "CPU"
        for precision in ("fp32", "bf16"):
            ran = tpu(1, precision)
            print(ran.report()["matrix_precision"], ran.peak_memory_mib(), ran.describe()["device_count"])
    """
    done = ran(sys.executable, "-c", code)
    assert done.stdout.splitlines() == [
        "describe hardware name peak_memory_mib report",
        "platform xla_tpu cannot run here: torch_xla found CPU, not TPU (PJRT_DEVICE is CPU)",
        "highest None 1",
        "default None 1",
    ], done.stderr


def test_the_page_has_the_peaks_and_prices_of_the_tables() -> None:
    rows = ROW.findall(PAGE)
    assert [chip for _, chip, *_ in rows] == ["v5e", "v6e"]
    for instance, chip, peak, on_demand, spot in rows:
        assert device_of_host(f"TPU {chip}") is DEVICES[f"TPU-{chip}"]
        assert DEVICES[f"TPU-{chip}"].tflops == float(peak)
        listed = [price(PRICES, instance, "us-east-1", basis) for basis in ("on_demand", "spot")]
        assert [row["usd_per_hour"] for row in listed] == [float(on_demand), float(spot)]
        assert {row["accelerator"] for row in listed} == {f"TPU-{chip}"}
