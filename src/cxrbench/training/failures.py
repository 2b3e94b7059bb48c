"""What the last lines of a failed trainer mean: a table of patterns, each with its source."""

from __future__ import annotations

import re
from typing import NamedTuple

from cxrbench.evidence.record import Phase, Status


class Diagnosis(NamedTuple):
    """The meaning of a log; without a status it is the machine's trouble and no result."""

    status: Status | None
    kind: str
    fingerprint: str
    remedy: str = ""  # what to do where the machine is the cause: not the network, nor the platform


class Pattern(NamedTuple):
    """Lines that ``regex`` matches mean ``status``; what a named group matches is the fingerprint.

    A ``weak`` pattern shows that something failed but not what: it counts only when no other does.
    """

    status: Status | None
    kind: str
    regex: str
    source: str
    remedy: str = ""
    weak: bool = False


_SDK = "github.com/aws-neuron/aws-neuron-sdk"
_CODES = "Neuron SDK, compiler/error-codes/index.rst"
_STATUS = "Neuron SDK, neuron-runtime/api/nrt_status.rst"
_TROUBLE = "Neuron SDK, training-troubleshooting.rst"
_LIMITS = f"; {_SDK}/issues/987, /1003 and /801"
_MEMORY = (
    "free host memory or lower limits.micro_batch; to record that this much is too little, "
    "declare it as limits.memory_gib"
)


def _nrt(names: str, numbers: str) -> str:
    """Status codes of Neuron's runtime by name (NRT_...) and, after a call that is no load, by number."""
    call = r"(?:nrt_(?!load)\w+:?|execute the model) status=(?:%s)\b"
    return rf"\b(?P<name>NRT_(?:{names}))\b|(?P<call>{call % numbers})"


PATTERNS = (
    # Before the compiler's codes: it gives some of these a code too.
    Pattern(
        None,
        "not the graph: files or tools (host)",
        r"(?P<disk>No space left on device)|(?P<library>error while loading shared libraries)"
        r"|(?P<copy>boost::filesystem::\w+): |(?P<tool>neuronx-cc): (?:command )?not found",
        f"errno ENOSPC; github.com/huggingface/optimum-neuron/issues/698; {_SDK}/issues/1063; POSIX shells",
        remedy="free disk space, or complete the installation",
    ),
    # Neuron's compiler. Codes lost their NCC_ prefix in older releases: XTP002 is NCC_EXTP002's ancestor.
    *(
        Pattern("compile_failed", f"{kind} (Neuron compiler)", rf"(?P<code>{codes})\b", f"{_CODES}{issues}")
        for kind, codes, issues in (
            ("instruction limit", "NCC_EBVF030|NCC_EXTP004|NCC_EVRF007|XTP00[23]|LUR015", _LIMITS),
            (
                "device memory estimate",
                "NCC_EOOM00[12]|NCC_EVRF009|NCC_EXSP001|XCG815",
                f"; {_SDK}/issues/884",
            ),
            ("dynamic shape", "NCC_EMOD025", ""),
            ("unsupported convolution or pooling", "NCC_EVRF01[01789]", ""),
            ("unsupported operator", "NCC_EVRF001|NCC_EUOC002|NCC_EHCA005|NCC_EVRF015", ""),
            ("graph refused", r"NCC_E[A-Z]{3}\d{3}", ""),  # the other documented codes: data types, shapes
        )
    ),
    Pattern(
        "compile_failed",
        "internal error (Neuron compiler)",
        r"(?P<code>NCC_[A-Z]{4}\d{3})\b|\[(?P<old>[A-Z]{3}\d{3})\] |\[(?P<fault>F134)\] neuronx-cc"
        r"|\bF hilo/(?P<compiler_pass>[\w/]+\.cc):",
        f"{_SDK}/issues/1295, /1058, /1122 and /1000; github.com/huggingface/optimum-neuron/pull/754",
    ),
    Pattern(
        "out_of_memory",
        "out of memory (host, while Neuron compiles)",
        r"\[(?P<fault>F137)\] neuronx-cc|(?P<code>neuronx-cc failed with -9)\b",
        f"{_SDK}/issues/706; {_TROUBLE} (failed compilation results)",
        remedy=_MEMORY,
    ),
    Pattern(
        None,
        "not the graph: files or tools (while Neuron compiles)",
        r"RunNeuronCCImpl: .*<class '(?!subprocess\.CalledProcessError')(?P<error>[\w.]+)'>",
        "Neuron SDK release notes, torch-neuronx (S3 throttling; the cache on FSx)",
        weak=True,
        remedy="look at the compiler's cache (NEURON_COMPILE_CACHE_URL)",
    ),
    Pattern(
        "compile_failed",
        "no reason given (Neuron compiler)",
        r"(?P<code>Got a cached failed neff)|(?P<tool>neuronx-cc)\b.*non-zero exit status"
        r"|(?P<wrapper>Failed compilation with) \[|(?P<failed>neuronx-cc failed with \d+)"
        r"|(?P<plugin>neuronx-cc compilation failed(?: with \d+)?)"
        r"|(?P<retried>Compilation failed for) \S+ after"
        r"|(?P<runtime>RunNeuronCCImpl): .*CalledProcessError",
        "Neuron SDK, neuron-caching.rst and release notes; github.com/aws-neuron/aws-neuron-samples/issues/94"
        f"; {_SDK}/issues/690, /749, /798 and /1369",
        weak=True,
    ),
    # Neuron's runtime.
    Pattern(
        "load_failed",
        "graph does not load (Neuron runtime)",
        r"(?P<code>NRT_RESOURCE|NRT_LOAD_NOT_ENOUGH_NC|NRT_UNSUPPORTED_NEFF_VERSION)\b"
        r"|(?P<name>NRT_\w+) in nrt_load"
        r"|(?P<call>nrt_load\w* status=[1-9]\d*)|(?P<cores>nrt_\w+:? status=(?:9|10)\b)",
        f"{_STATUS}; github.com/huggingface/optimum-neuron/pull/668; "
        f"{_SDK}/issues/779; github.com/aws-neuron/aws-neuron-samples/issues/96",
    ),
    Pattern(
        "load_failed",
        "this number of processes does not load (Neuron runtime)",
        r"nrt_load_collectives\s+(?P<code>Unsupported topology)",
        "github.com/huggingface/optimum-neuron/issues/619",
    ),
    Pattern(
        "out_of_memory",
        "out of memory (Neuron device)",
        r"(?P<code>nrt_(?!load)\w+:? status=4)\b|(?P<name>Failed to alloc DEVICE memory)"
        r"|(?P<tensor>Failed to allocate) \d+ bytes on DEVICE",
        f"{_STATUS} (4 is NRT_RESOURCE); github.com/vllm-project/vllm/issues/12443; {_SDK}/issues/1014",
    ),
    Pattern(
        "out_of_memory",
        "out of memory (host, Neuron runtime)",
        _nrt("FAIL_HOST_MEM_ALLOC", "11"),
        _STATUS,
        remedy=_MEMORY,
    ),
    Pattern(
        "diverged",
        "not a number (Neuron runtime)",
        _nrt("EXEC_COMPLETED_WITH_NUM_ERR", "1003"),
        f"{_STATUS}; {_SDK}/issues/673 and /1148",
    ),
    Pattern("crashed", "no answer in time (Neuron runtime)", _nrt("TIMEOUT", "5"), _STATUS),
    Pattern(
        "crashed",
        "hardware or collective failure (Neuron runtime)",
        _nrt(
            r"HW_ERROR|EXEC_UNIT_UNRECOVERABLE|EXEC_HW_ERR_\w+|EXEC_SW_NQ_OVERFLOW|NETWORK_PROXY_FAILURE",
            "6|101|120[0-6]",
        ),
        _STATUS,
    ),
    Pattern(
        None,
        "NeuronCores are taken by another process",
        r"(?P<code>Neuron ?Core\(s\) not available)|(?P<name>NRT_EXEC_NC_BUSY)\b"
        r"|(?P<call>nrt_\w+:? status=1005)\b",
        f"{_TROUBLE}; {_SDK}/issues/1065",
        remedy="end the process that uses them (neuron-ls)",
    ),
    Pattern(
        "crashed",
        "execution error (Neuron runtime)",
        _nrt(
            "FAILURE|INVALID|INVALID_HANDLE|QUEUE_FULL|UNINITIALIZED|CLOSED|QUEUE_EMPTY|EXEC_BAD_INPUT"
            "|EXEC_COMPLETED_WITH_ERR|EXEC_OOB|COLL_PENDING",
            "[1237]|1[345]|1002|1004|1006|1100",
        ),
        f"{_STATUS}; {_SDK}/issues/351",
    ),
    Pattern(
        "compile_failed",
        "XLA does not compile the graph",
        r"(UNIMPLEMENTED|INVALID_ARGUMENT|INTERNAL|NOT_FOUND): .*(ustom call|ompil|HLO)"
        r"|No (registered implementation for (untyped )?custom call|FFI handler registered for)",
        "openxla/xla, service/cpu; seen with torch_xla 2.9.0 on its CPU device",
        weak=True,  # it also ends what Neuron's compiler has given a reason for
    ),
    # PyTorch and the host.
    Pattern(
        "compile_failed",
        "torch.compile fails",
        r"torch\._dynamo\.exc\.\w+|torch\._inductor\.exc\.\w+",
        "PyTorch, torch/_dynamo/exc.py, torch/_inductor/exc.py",
    ),
    Pattern(
        "out_of_memory",
        "out of memory (GPU)",
        r"torch\.(cuda\.)?OutOfMemoryError|CUDA out of memory|CUDA error: (?P<code>out of memory)"
        r"|(?P<name>CUBLAS_STATUS_ALLOC_FAILED)",
        "PyTorch, c10/cuda/CUDACachingAllocator.cpp; CUDA runtime API, cudaErrorMemoryAllocation; cuBLAS",
    ),
    Pattern(
        "crashed",
        "the GPU is lost",
        r"CUDA error: (?P<code>device-side assert triggered|an illegal memory access was encountered"
        r"|unspecified launch failure|uncorrectable ECC error encountered|.*no CUDA-capable device.*)",
        "CUDA runtime API, cudaError_t; PyTorch, c10/cuda/CUDAException.cpp",
    ),
    Pattern(
        "out_of_memory",
        "out of memory (host)",
        r"DefaultCPUAllocator: (can't allocate|not enough) memory|std::bad_alloc|\bMemoryError\b"
        r"|Cannot allocate memory|(?P<xla>Out of memory allocating) \d+ bytes",
        "PyTorch, c10/core/impl/alloc_cpu.cpp; libstdc++; CPython; errno ENOMEM; XLA's CPU device",
        remedy=_MEMORY,
    ),
    Pattern(
        None,
        "a loader's process was killed",
        r"DataLoader worker \(pid \d+\) is killed by signal: (?P<signal>Killed|Terminated|Bus error)",
        "PyTorch, torch/csrc/DataLoader.cpp",
        remedy="free host memory and shared memory (/dev/shm)",
    ),
    Pattern(
        None,
        "the system refused a file or a process (host)",
        r"^[\w.]*(?:Error|Exception)\b.*\b(?P<errno>Disk quota exceeded|File too large|Read-only file system"
        r"|Permission denied|Operation not permitted|Input/output error|Stale file handle|Too many open files"
        r"|Resource temporarily unavailable)",
        "errno EDQUOT, EFBIG, EROFS, EACCES, EPERM, EIO, ESTALE, EMFILE, EAGAIN in an exception's message",
        weak=True,
        remedy="remove what the message names",
    ),
    Pattern(
        "load_failed",
        "network is made for another input size",
        r"AssertionError: (Input (image )?(height|width|size)|Image (height|width|size)).*",
        "timm, layers/patch_embed.py",
    ),
)


def classify(log: str) -> Diagnosis | None:
    """Return the meaning of the last known pattern in a trainer's log, or None."""
    for weak in (False, True):
        patterns = [pattern for pattern in PATTERNS if pattern.weak == weak]
        for line in reversed(log.splitlines()):
            for pattern in patterns:
                if match := re.search(pattern.regex, line):
                    code = next(filter(None, match.groupdict().values()), None)
                    return Diagnosis(pattern.status, pattern.kind, code or normalise(line), pattern.remedy)
    return None


def unknown(log: str, phase: Phase, signal: str | None) -> Diagnosis:
    """The diagnosis of a failure that no pattern matches: its signal or its exception."""
    kind = f"killed by {signal} in phase {phase}" if signal else f"error in phase {phase}"
    return Diagnosis("crashed", kind, signal or normalise(error_line(log)))


def error_line(log: str) -> str:
    """The line that names the exception of the last traceback, else the last line."""
    lines = [line for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"^[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (errors or lines or ["no output"])[-1]


def normalise(line: str) -> str:
    """A line without what changes from run to run: addresses, numbers, paths; at most 160 characters."""
    line = re.sub(r"0x[0-9a-fA-F]+", "0x", line.strip())
    line = re.sub(r"(/[\w.\-+]+)+/", "", line)
    return re.sub(r"\d+(\.\d+)?", "#", line)[:160]
