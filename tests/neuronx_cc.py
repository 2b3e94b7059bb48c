#!/usr/bin/env python3
"""Stands in for neuronx-cc: reads the HloModuleProto that it is given and answers by a rule of its own.

The rule: the weight gradient of a grouped convolution is an internal error. It refuses what the real one is
documented or reported to refuse: f64 (NCC_ESPP004), custom calls of unknown names (NCC_EVRF015) and operators
that it does not list (sdk issue 1081: erf). All else compiles. Messages and exit codes are those of the
issues that tests/training/neuron_log_lines.csv names. STANDIN makes it fail at
graphs with convolutions, which no control has.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cxrbench.neuron.module import fields

VERSION = "2.28.7631.0+5d0b2a3f"
FAULTS = {  # of the machine: what is printed, and the exit code
    "full": ("OSError: [Errno 28] No space left on device", 1),
    "starved": ("[F137] neuronx-cc was forcibly killed - insufficient system memory", 70),
    "refused": ("terminate called after throwing an instance of 'std::bad_alloc'", 134),
    "python": ("MemoryError", 1),
}
# Fields of xla/service/hlo.proto.
COMPUTATIONS, INSTRUCTIONS, OPCODE, SHAPE, TARGET, BATCH_GROUPS = 3, 2, 2, 3, 28, 58
ELEMENT_TYPE, F64 = 2, 12  # xla/xla_data.proto
# Of an older page of the SDK's docs (release-notes/compiler/neuronx-cc), and what it lacks although AWS's own
# ResNet-50 sample trains with it.
LISTED = """
Abs Add Allgather Allreduce Atan2 Batchnorm Batchnormgrad Batchnorminference BitcastConvertType Broadcast
BroadcastInDim Ceil Clamp Compare Concatenate Constant ConstantLiteral ConvertElementType Cos Customcall Div
Dot DotGeneral DynamicUpdateSlice Eq Exp Floor Gather Ge GetTupleElement Gt Iota Le Log LogicalAnd LogicalNot
Lt Max Min Mul Ne Neg Pad Pow Reduce Reshape Rev RngBitGenerator RngUniform Rsqrt Scatter Select
SelectAndScatter ShiftRightLogical Sign Sin Slice Sqrt Sub Tanh Transpose Tuple
ConvGeneralDilated DynamicSlice Logistic ReduceWindow Rem While
"""
UNLISTED = ("erf", "triangular-solve", "fft")
CALLS = ("AwsNeuronGelu", "AwsNeuronGeluBackward", "AwsNeuronSilu", "AwsNeuronSiluBackward")


def instructions(module: bytes, entry: bool) -> list[dict[int, list[Any]]]:
    """Return the fields of the instructions: of the entry computation, which is the last, or of all."""
    computations = fields(module)[COMPUTATIONS]
    return [
        fields(instruction)
        for computation in (computations[-1:] if entry else computations)
        for instruction in fields(computation)[INSTRUCTIONS]
    ]


def refused(module: bytes) -> str:
    """Return the message about the first instruction of any computation that is refused."""
    for instruction in instructions(module, entry=False):
        opcode, (target,) = instruction[OPCODE][0].decode(), instruction.get(TARGET, [b""])
        if F64 in fields(instruction[SHAPE][0]).get(ELEMENT_TYPE, []):
            return "[NCC_ESPP004] f64 dtype is not supported for code generation"
        if opcode in UNLISTED:
            return f"F hilo/hlo_passes/VerifySupportedHloOps.cc:160] ERROR: Unsupported operator: {opcode}"
        if opcode == "custom-call" and target.decode() not in CALLS:
            return f"[NCC_EVRF015] unrecognized custom call target {target.decode()}"
    return ""


def main(words: list[str]) -> int:
    mode = os.environ.get("STANDIN", "")
    if words == ["--version"]:
        if mode == "mute":
            time.sleep(3600)
        named = f"NeuronX Compiler version {VERSION}\n\nPython version 3.12.3"
        print("no words" if mode == "nameless" else named)
        return 0
    if words == ["list-operators", "--framework", "XLA"]:
        print("" if mode == "no list" else "\n".join(LISTED.split()))
        return 0
    command, file, *options = words
    named = dict(zip(options[::2], options[1::2], strict=False))
    assert command == "compile" and named["--framework"] == "XLA" and named["--target"] in ("trn1", "trn2")
    module = Path(file).read_bytes()
    entry = instructions(module, entry=True)
    opcodes = {instruction[OPCODE][0] for instruction in entry}
    Path("log-neuron-cc.txt").write_text("DRAM usage for Internal DRAM tensors: 12.34MB\n")
    print(f"read {len(entry)} instructions of {file}", flush=True)
    if b"convolution" not in opcodes:  # a control
        mode = mode if mode == "no LayerNorm" else ""
    if mode == "hang":
        subprocess.Popen(["sleep", "3600.125"], start_new_session=True)
        time.sleep(3600)
    if mode == "hungry":
        kept = bytearray(os.urandom(1 << 20) * 600)
        time.sleep(3600)
        print(len(kept))
    if mode in ("killed", "terminated"):
        os.kill(os.getpid(), signal.SIGKILL if mode == "killed" else signal.SIGTERM)
    if mode in FAULTS:
        line, code = FAULTS[mode]
        print(line)
        return code
    if mode == "half":
        sys.stdout.buffer.write(b"ERROR \xff\x00 [NCC_IT")
        return 70
    if mode == "nothing":
        return 0
    if refusal := refused(module):
        print(refusal)
        return 70
    if mode == "no LayerNorm" and b"batch-norm-training" in opcodes:
        print("2026-03-11T10:00:00Z [NCC_INLA001] Internal error - Please open a ticket")
        return 70
    if any(instruction.get(BATCH_GROUPS, [1])[0] > 1 for instruction in entry):  # of a convolution
        print("2026-03-11T10:00:00Z [NCC_ITEN404] (conv) Internal tensorizer error - Please open a ticket")
        return 70
    Path(named["--output"]).write_bytes(b"NEFF" + str(len(entry)).encode())
    print("Compiler status PASS")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
