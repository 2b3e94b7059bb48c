"""What a failed trainer's last words mean: a table of patterns, each with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrbench.evidence import Phase, Status


@dataclass(frozen=True)
class Pattern:
    """Lines that ``regex`` finds mean ``status``; what a named group finds is the fingerprint."""

    status: Status
    kind: str
    regex: re.Pattern[str]
    source: str


def _pattern(status: Status, kind: str, regex: str, source: str) -> Pattern:
    return Pattern(status, kind, re.compile(regex), source)


_SDK = "github.com/aws-neuron/aws-neuron-sdk"
_CODES = "Neuron SDK, compiler/error-codes"
_STATUS = "Neuron SDK, nrt_status.rst"

PATTERNS = (
    # Neuron's compiler. Codes lost their NCC_ prefix in older releases: XTP002 is NCC_EXTP002's ancestor.
    _pattern(
        "compile_failed",
        "instruction limit (Neuron compiler)",
        r"(?P<code>NCC_EBVF030|NCC_EXTP004|NCC_EVRF007|XTP002|LUR015)\b",
        f"{_CODES}; {_SDK}/issues/987 and /801",
    ),
    _pattern(
        "compile_failed",
        "device memory estimate (Neuron compiler)",
        r"(?P<code>NCC_EOOM00[12]|NCC_EVRF009|NCC_EXSP001|XCG815)\b",
        f"{_CODES}; {_SDK}/issues/884",
    ),
    _pattern(
        "compile_failed",
        "unsupported operator (Neuron compiler)",
        r"(?P<code>NCC_EVRF001|NCC_EUOC002|NCC_EMOD025|NCC_EVRF01[01789])\b",
        _CODES,
    ),
    _pattern(
        "compile_failed",
        "internal error (Neuron compiler)",
        r"(?P<code>NCC_[A-Z]{4}\d{3})\b|\[(?P<old>[A-Z]{3}\d{3})\] ",
        f"{_SDK}/issues/1295, /1058 and /1122",
    ),
    _pattern(
        "load_failed",
        "graph does not load (Neuron runtime)",
        r"(?P<code>NRT_RESOURCE|NRT_LOAD_NOT_ENOUGH_NC|NRT_UNSUPPORTED_NEFF_VERSION)\b",
        f"{_STATUS}; github.com/huggingface/optimum-neuron/pull/668",
    ),
    _pattern(
        "load_failed",
        "graph does not load (Neuron runtime)",
        r"(?P<code>nrt_load\w* status=\d+)",
        f"{_SDK}/issues/779; github.com/aws-neuron/aws-neuron-samples/issues/96",
    ),
    _pattern(
        "out_of_memory",
        "out of memory (Neuron device)",
        r"(?P<code>nrt_tensor_allocate status=4)",
        f"{_STATUS} (4 is NRT_RESOURCE); github.com/vllm-project/vllm/issues/12443",
    ),
    _pattern(
        "compile_failed",
        "XLA does not compile the graph",
        r"(UNIMPLEMENTED|INVALID_ARGUMENT|INTERNAL|NOT_FOUND): .*(ustom call|ompil|HLO)"
        r"|No (registered implementation for (untyped )?custom call|FFI handler registered for)",
        "openxla/xla, service/cpu; seen with torch_xla 2.9.0 on its CPU device",
    ),
    # PyTorch and the host.
    _pattern(
        "compile_failed",
        "torch.compile fails",
        r"torch\._dynamo\.exc\.\w+|torch\._inductor\.exc\.\w+",
        "PyTorch, torch/_dynamo/exc.py, torch/_inductor/exc.py",
    ),
    _pattern(
        "out_of_memory",
        "out of memory (GPU)",
        r"torch\.(cuda\.)?OutOfMemoryError|CUDA out of memory",
        "PyTorch, c10/cuda/CUDACachingAllocator.cpp",
    ),
    _pattern(
        "crashed",
        "the GPU is lost",
        r"CUDA error: (?P<code>device-side assert triggered|an illegal memory access was encountered"
        r"|unspecified launch failure|uncorrectable ECC error encountered|.*no CUDA-capable device.*)",
        "CUDA runtime API, cudaError_t; PyTorch, c10/cuda/CUDAException.cpp",
    ),
    _pattern(
        "out_of_memory",
        "out of memory (host)",
        r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc|\bMemoryError\b"
        r"|Cannot allocate memory",
        "PyTorch, c10/core/impl/alloc_cpu.cpp; libstdc++; CPython; errno ENOMEM",
    ),
    _pattern(
        "load_failed",
        "network is made for another input size",
        r"AssertionError: (Input (image )?(height|width|size)|Image (height|width|size)).*",
        "timm, layers/patch_embed.py",
    ),
)


def classify(log: str) -> tuple[Status, str, str] | None:
    """(status, kind, fingerprint) of the last known pattern in a trainer's log, or None."""
    for line in reversed(log.splitlines()):
        for pattern in PATTERNS:
            if match := pattern.regex.search(line):
                code = next((text for text in match.groupdict().values() if text), None)
                return pattern.status, pattern.kind, code or normalise(line)
    return None


def unknown(log: str, phase: Phase, signal: str | None) -> tuple[Status, str, str]:
    """(status, kind, fingerprint) of a failure that no pattern knows."""
    kind = f"killed by {signal} in phase {phase}" if signal else f"error in phase {phase}"
    return "crashed", kind, signal or first_error_line(log)


def first_error_line(log: str) -> str:
    """The line that names the exception of the last traceback, else the last line; normalised."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Interrupt)\b", line)]
    return normalise((errors or lines or ["no output"])[-1])


def normalise(line: str) -> str:
    """A line without what changes from run to run: addresses, numbers, paths; at most 160 characters."""
    line = re.sub(r"0x[0-9a-fA-F]+", "0x", line.strip())
    line = re.sub(r"(/[\w.\-+]+)+/", "", line)
    return re.sub(r"\d+(\.\d+)?", "#", line)[:160]
