"""neuron-monitor and neuron-ls, as real processes that print what the real ones print, and worse."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from cxrbench.platforms.neuron_tools import Monitor, describe

from .conftest import NEURON_LS_TRN1, report

Put = Callable[..., Path]


def finished() -> Monitor:
    """A monitor whose side process has ended and been read to its end."""
    monitor = Monitor()
    monitor._process.wait(timeout=30)
    monitor._reader.join(timeout=30)
    return monitor


def test_readings_are_kept_per_core_and_half_an_object_and_death_change_nothing(tools: Put) -> None:
    lines = [report({"0": 40.0}, 2**30), report({"0": 60.0, "1": 10.0}, 3 * 2**30), report({}, 2**20)]
    whole = "".join(json.dumps(line) + "\n" for line in lines)
    tools("neuron-monitor", whole + whole[:99], "kill -9 $$")
    monitor = finished()
    assert monitor.peak_memory_mib() == 3 * 1024
    assert monitor.report() == {
        "neuron_monitor": "ended with exit code -9",
        "neuron_monitor_reports": 3,
        "neuron_monitor_unreadable": 1,
        "neuroncore_utilization_percent": {"0": 50.0, "1": 10.0},
    }


@pytest.mark.parametrize(
    "line",
    [
        "null",
        '{"neuron_runtime_data": null}',
        '{"neuron_runtime_data": [{"report": null}]}',
        '{"neuron_runtime_data": [{"report": {"memory_used": {"neuron_runtime_used_bytes": null}}}]}',
        '{"neuron_runtime_data": [{"report": {"neuroncore_counters": {"neuroncores_in_use": {"0": null}}}}]}',
        '{"neuron_runtime_data": [{"report": {"neuroncore_counters": {"neuroncores_in_use": [1]}}}]}',
        json.dumps(report({"0": "busy", "1": True, "2": -1.0, "3": math.nan}, "much")),
        "not JSON at all",
    ],
)
def test_anything_else_is_no_reading(line: str, tools: Put) -> None:
    tools("neuron-monitor", line + "\n")
    monitor = finished()
    found = monitor.report()
    assert found["neuron_monitor_reports"] + found["neuron_monitor_unreadable"] == 1
    assert found["neuroncore_utilization_percent"] == {} and monitor.peak_memory_mib() is None


def test_the_record_states_that_the_tool_is_missing_or_does_not_start(tools: Put, monkeypatch) -> None:
    tools("neuron-monitor", "").write_bytes(b"\x7fELF not really")
    assert "does not start" in Monitor().report()["neuron_monitor"]
    monkeypatch.setenv("PATH", "")
    monitor = Monitor()
    assert monitor.report() == {"neuron_monitor": "neuron-monitor is not installed"}
    assert monitor.peak_memory_mib() is None
    monitor.close()


def test_only_our_processes_are_monitored(tools: Put, tmp_path: Path) -> None:
    tools("neuron-monitor", "", f"cp \"$2\" '{tmp_path}/config.json'")
    finished().close()
    config = json.loads((tmp_path / "config.json").read_text())
    (runtimes,) = config["neuron_runtimes"]
    assert runtimes["tag_filter"] == "cxrbench"
    assert [metric["type"] for metric in runtimes["metrics"]] == ["neuroncore_counters", "memory_used"]


def test_closing_ends_a_process_that_would_go_on(tools: Put) -> None:
    tools("neuron-monitor", json.dumps(report({"0": 1.0}, 5)) + "\n", "exec cat /dev/zero >/dev/null")
    monitor = Monitor()
    assert monitor.report()["neuron_monitor"] == "running"
    monitor.close()
    assert monitor.report()["neuron_monitor"] == "ended with exit code -15"


# A trn2.3xlarge: Neuron SDK, neuron-ls.rst, and public captures of the same shape.
TRN2 = [{"nc_count": 4, "logical_neuroncore_config": 2, "memory_size": 103079215104, "neuron_device": 0}]
UNKNOWN = ["", "unknown flag `j'", "[", "{}", '["chip"]', "null", '[{"nc_count": "2"}]']


@pytest.mark.parametrize(
    ("prints", "cores", "gib", "of_a_process"),
    [
        (NEURON_LS_TRN1, 2, 16.0, 1),
        (json.dumps(TRN2), 8, 12.0, 2),  # LNC 2: a process holds a pair of cores
        *((prints, 0, None, 1) for prints in UNKNOWN),
    ],
)
def test_physical_cores_are_counted(prints, cores, gib, of_a_process, tools: Put) -> None:
    tools("neuron-ls", prints)
    facts = describe("Trainium")
    assert (facts["device_count"], facts["device_memory_gib"]) == (cores, gib)
    assert facts["devices_per_process"] == of_a_process


def test_a_list_inside_an_object_is_found(tools: Put) -> None:
    # Announced for SDK 2.34: fields of the machine around the devices, behind --output-format json.
    inside = {"instance": {"instance_type": "trn1.2xlarge"}, "neuron_devices": json.loads(NEURON_LS_TRN1)}
    script = tools("neuron-ls", json.dumps(inside))
    script.write_text(script.read_text().replace("cat", '[ "$1" = --output-format ] || exit 1; cat'))
    assert describe("Trainium")["device_count"] == 2
