"""Every documented code of Neuron's compiler and runtime has a status.

neuron_codes.csv holds the codes of the Neuron SDK's compiler/error-codes/index.rst (2026-07-14) and
neuron-runtime/api/nrt_status.rst, with a part of the kind and the status that each must give; "machine" is no
status but the machine's trouble.
"""

import csv
from pathlib import Path

import pytest

from cxrbench.training.failures import classify

CODES = list(csv.DictReader((Path(__file__).parent / "neuron_codes.csv").open()))
COMPILER = [row for row in CODES if row["code"].startswith("NCC_")]
RUNTIME = [row for row in CODES if row["code"].startswith("NRT_")]


@pytest.mark.parametrize("row", COMPILER, ids=lambda row: row["code"])
def test_a_compiler_code_is_a_failure_of_its_kind(row: dict[str, str]) -> None:
    status, kind, fingerprint, _ = classify(f"ERROR 42 [neuronx-cc]: [{row['code']}] some words\n")
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


def test_any_status_of_a_load_is_a_failed_load() -> None:
    for row in filter(lambda row: row["status"], RUNTIME):
        assert classify(f"INTERNAL: nrt_load_collectives status={row['number']}\n")[0] == "load_failed"


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
