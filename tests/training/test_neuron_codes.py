"""Every documented code of Neuron's compiler and runtime has a status.

neuron_codes.csv holds the codes of the Neuron SDK's compiler/error-codes/index.rst (2026-07-14) and
neuron-runtime/api/nrt_status.rst, with a part of the kind and the status that each must give; "machine" is no
status but the machine's trouble.
"""

import csv
from pathlib import Path

import pytest

from cxrbench.training.endings import classify

CODES = list(csv.DictReader((Path(__file__).parent / "neuron_codes.csv").open()))
COMPILER = [row for row in CODES if row["code"].startswith("NCC_")]
RUNTIME = [row for row in CODES if row["code"].startswith("NRT_")]


@pytest.mark.parametrize("row", COMPILER, ids=lambda row: row["code"])
def test_a_compiler_code_is_a_failure_of_its_kind(row: dict[str, str]) -> None:
    status, kind, fingerprint, *_ = classify(f"ERROR 42 [neuronx-cc]: [{row['code']}] some words\n")
    assert (status, fingerprint) == (row["status"], row["code"])
    assert kind.startswith(row["kind"])


@pytest.mark.parametrize("row", RUNTIME, ids=lambda row: row["code"])
def test_a_runtime_status_is_known_by_name_and_by_number(row: dict[str, str]) -> None:
    by_name = classify(f"ERROR NRT:nrt_infodump Failure: {row['code']} in nrt_execute()\n")
    by_number = classify(f'RuntimeError: nrt_execute status={row["number"]} message="some words"\n')
    if not row["status"]:  # success
        assert by_name is None and by_number is None
        return
    for found, status, kind in zip(
        (by_name, by_number), 2 * row["status"].split("|"), 2 * row["kind"].split("|"), strict=False
    ):
        assert (found.status or "machine") == status and kind in found.kind


def test_a_status_of_a_load_is_a_failed_load_but_for_a_program_of_another_release() -> None:
    for row in filter(lambda row: row["status"], RUNTIME):
        status = "machine" if row["code"] == "NRT_UNSUPPORTED_NEFF_VERSION" else "load_failed"
        found = classify(f"INTERNAL: nrt_load_collectives status={row['number']}\n")
        assert (found.status or "machine") == status


@pytest.mark.fault(
    "the parts of Neuron's SDK are of different releases", "no result, whatever fails after the first message"
)
@pytest.mark.parametrize(
    "first",
    [
        "NEFF version mismatch supported: 1.1 received: 2.0",
        "Unsupported hardware operator code 214 found in neff.",
        "NCCL init error: Error opening libnccom.so, cannot use collective operations!",
    ],
)
def test_an_installation_that_does_not_fit_beats_the_load_that_fails_of_it(first: str) -> None:
    found = classify(f"{first}\nNRT:nrt_infodump Failure: NRT_FAILURE in nrt_load()\nnrt_load status=1\n")
    assert found.status is None and "to one SDK release, see docs/neuron.md" in found.remedy


@pytest.mark.fault("a newer islpy than Neuron's compiler takes", "no result; the remedy names islpy")
def test_a_compiler_that_its_islpy_breaks_says_nothing_about_the_graph() -> None:
    log = (
        "[NCC_ISMP902] Simplifier error: is_subset(): incompatible function arguments\n"
        "[NCC_ISMP902] Simplifier error\nneuronx-cc compilation failed with 70\n"
    )
    found = classify(log)
    assert found.status is None and "islpy<2026.2" in found.remedy


def test_cores_that_are_taken_beat_the_start_that_fails_of_it() -> None:
    log = "NeuronCore(s) not available - Requested:nc1-nc1 Available:0\nRuntimeError: nrt_init status=1\n"
    assert classify(log).kind == "NeuronCores are taken by another process"


def test_the_reason_counts_more_than_the_last_word() -> None:
    log = (
        "[XTP002] Number of instructions (8658944) is over the threshold (5000000).\n"
        "CalledProcessError: Command '['neuronx-cc', 'compile']' returned non-zero exit status 70.\n"
    )
    assert classify(log)[2] == "XTP002"
    assert classify(log.splitlines()[1])[1] == "no reason given (Neuron compiler)"
    ending = "RuntimeError: Bad StatusOr access: INTERNAL: neuronx-cc compilation failed.\n"
    assert classify(log + ending)[2] == "XTP002"


def test_a_disk_that_is_full_says_nothing_about_the_network() -> None:
    # The shape of the release notes' OSError, with the default cache path, whose name has "compile" in it.
    line = (
        "RuntimeError: Bad StatusOr access: INVALID_ARGUMENT: RunNeuronCCImpl: error condition !(error != 400"
        "): <class 'OSError'>: [Errno 28] No space left on device: '/var/tmp/neuron-compile-cache/model.neff'"
    )
    assert classify(line)[:3:2] == (None, "No space left on device")
    other = line.replace("[Errno 28] No space left on device", "[Errno 61] No data available")
    assert classify(other)[:3:2] == (None, "OSError")
    memory = line.replace("[Errno 28] No space left on device", "[Errno 12] Cannot allocate memory")
    assert classify(memory)[0] == "out_of_memory"
    assert classify(f"[NCC_EBVF030] too many instructions\n{other}")[2] == "NCC_EBVF030"


def test_a_log_cut_in_the_middle_of_a_line_is_still_read() -> None:
    whole = "[NCC_EVRF010] The compiler encountered simultaneous use of input and kernel dilation"
    for end in range(len("[NCC_EVRF010]"), len(whole)):
        assert classify(whole[:end])[2] == "NCC_EVRF010"
    for end in range(len("[NCC_EVRF01")):
        assert classify(whole[:end]) is None
