"""Processes of Python that need not load its libraries: forks of one that has, and in which nothing has run.

Called as: forked.py SOCKET MODULE...; it loads the modules, then turns a fork into each command that comes
through the socket. A command in such a fork that starts Python forks itself.
"""

import atexit
import ctypes
import gc
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import process
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from multiprocessing import util
from pathlib import Path
from typing import Any

LIBRARIES = {
    "cxrbench": (
        *("cxrbench.cli", "cxrbench.results.comparisons", "cxrbench.claims.ledger", "cxrbench.cost.money"),
        *("cxrbench.datasets.packed", "cxrbench.evidence.verify", "cxrbench.paper.figures"),
        *("pyarrow.parquet", "scipy.stats", "typer.rich_utils"),
    ),
    "snakemake": ("snakemake.cli", "snakemake.api", "pandas", "psutil"),  # a clone has its own code
    "torch": (
        *("cxrbench.cli", "cxrbench.training.child", "cxrbench.training.supervisor", "pyarrow.parquet"),
        *("timm", "torch._dynamo", "torch.distributed.run", "filelock", "typer.rich_utils"),
    ),
}
NEED_TORCH = ("audit", "bench", "compile", "precompile", "predict", "train")  # commands
LONGEST = 900.0  # seconds: what hangs fails, and its test is named
_SET_SUBREAPER, _GET_SUBREAPER = 36, 37  # prctl(2)
_exec = subprocess._fork_exec  # type: ignore[attr-defined]
_asking, _thread = threading.Lock(), threading.local()
_known = sys.path[1:]
_path = [place for place in _known if place not in os.environ.get("PYTHONPATH", "").split(":")]


@cache
def server(kind: str) -> socket.socket:
    """Start the process that has the libraries of this ``kind``, once."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    command = [sys.executable, __file__, str(theirs.fileno()), *LIBRARIES[kind]]
    subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()
    return ours


def run(
    module: str, words: list[str], cwd: Path, env: dict[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module words``, or a script, in ``cwd``; return what it printed and its exit code."""
    command = [sys.executable, *([] if module.endswith(".py") else ["-m"]), module, *words]
    with instead_of_starts():
        return subprocess.run(
            command, input=given, capture_output=True, text=True, cwd=cwd, env=env, timeout=LONGEST
        )


@contextmanager
def instead_of_starts() -> Iterator[None]:
    """Fork where this thread would start Python with code, a module of the project or Snakemake."""
    before = getattr(_thread, "forks", False)
    _thread.forks = sys.platform == "linux"  # elsewhere an orphan has no other parent
    try:
        yield
    finally:
        _thread.forks = before


def _command(args: list[Any]) -> list[str]:
    """Return module and words of a command that can be forked, or -c, code and words; nothing of others.

    Instead of a module it may be a script below workflow.
    """
    words = [os.fsdecode(word) for word in args]
    if words[:2] == [sys.executable, "-c"]:
        return words[1:]
    if words[0] == sys.executable and re.search(r"/workflow/scripts/\w+\.py$", words[1]):
        return words[1:]
    if words[0] == sys.executable and (first := words.index("-m") if "-m" in words[:3] else 0):
        module = words[first + 1]
        return words[first + 1 :] if module.split(".")[0] in ("cxrbench", "snakemake") else []
    return []


def _request(args: tuple[Any, ...]) -> dict[str, Any]:
    """Return what :func:`_become` is given, from the arguments of ``subprocess._fork_exec``."""
    pairs = [os.fsdecode(pair).partition("=") for pair in args[5] or ()]
    env = dict(os.environ) if args[5] is None else {name: value for name, _, value in pairs}
    return {
        "words": _command(args[0]),
        "cwd": os.fsdecode(args[4] or os.getcwd()),
        "env": env,
        "session": args[15],
    }


def _streams(args: tuple[Any, ...]) -> list[int]:
    return [number if given < 0 else given for number, given in enumerate((args[6], args[9], args[11]))]


def _ask_for_fork(*args: Any) -> int:
    """Have a server fork; the new process becomes a child of this one."""
    if not getattr(_thread, "forks", False) or not (words := _command(args[0])):
        return _exec(*args)
    torch = words[0] in ("-c", "cxrbench.training.child") or (
        set(words[1:2]) & set(NEED_TORCH) and "--help" not in words
    )
    kind = "torch" if torch else "cxrbench" if words[0].endswith(".py") else words[0].split(".")[0]
    with _asking, _as_subreaper(), tempfile.TemporaryFile("w+") as file:
        json.dump(_request(args), file)
        file.flush()
        socket.send_fds(server(kind), [b"fork"], [file.fileno(), *_streams(args)])
        return int(server(kind).recv(100))


@contextmanager
def _as_subreaper() -> Iterator[None]:
    """Be the parent of orphans meanwhile, and no longer: those of tests are no children of pytest."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_GET_SUBREAPER, ctypes.byref(before))
    prctl(_SET_SUBREAPER, 1)
    try:
        yield
    finally:
        prctl(_SET_SUBREAPER, before.value)


def _fork(*args: Any) -> int:
    """Fork this process, which has started nothing that the new one could miss."""
    if not "".join(_command(args[0])[:1]).startswith("cxrbench"):
        return _exec(*args)
    request, streams = _request(args), _streams(args)
    if child := os.fork():
        return child
    _leave_parent()
    _forget("cxrbench")
    _become(**request, streams=streams)


def _spawn(path: bytes, args: list[Any], kept: list[int]) -> int:
    """Fork this process where multiprocessing would start Python with ``-c CODE --multiprocessing-fork``."""
    if child := os.fork():
        return child
    _leave_parent()
    _close_but(0, 1, 2, *kept)
    process._threads_wakeups.clear()  # of this fork's parent, whose pool may have started its thread
    sys.argv = ["-c", *map(os.fsdecode, args[args.index("-c") + 2 :])]
    _end(lambda: exec(args[args.index("-c") + 1]))


def _leave_parent() -> None:
    """Forget what the parent does at a signal and at its end: its temporary folders are still its own."""
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    weakref.finalize._registered_with_atexit = False  # type: ignore[attr-defined]
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _close_but(*kept: int) -> None:
    for descriptor in {*map(int, os.listdir("/proc/self/fd"))} - {*kept}:
        with suppress(OSError):  # that of the list
            os.close(descriptor)


def _serve(number: int, modules: list[str]) -> dict[str, Any]:
    """Answer requests for ever; in a fork, return the request that it serves."""
    for name in modules:
        import_module(name)
    gc.freeze()  # else a fork copies all memory when it looks for garbage
    asked = socket.socket(fileno=number)
    while True:
        text, descriptors, *_ = socket.recv_fds(asked, 100, 4)
        if not text:  # whoever asked has ended
            sys.exit()
        if (between := os.fork()) == 0:
            between = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == between:  # an orphan's parent is whoever asked, as subreaper
                time.sleep(0.001)
            asked.send(str(os.getpid()).encode())
            with open(descriptors[0], "r+") as file:
                file.seek(0)
                return json.load(file) | {"streams": descriptors[1:]}
        os.waitpid(between, 0)
        for descriptor in descriptors:
            os.close(descriptor)


def _forget(*names: str) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] in names]:
        del sys.modules[module]


def _become(words: list[str], cwd: str, env: dict[str, str], session: bool, streams: list[int]) -> None:
    """Run the command as Python would, but for taking memory apart at its end."""
    for number, stream in enumerate([os.dup(stream) for stream in streams]):
        os.dup2(stream, number)
    _close_but(0, 1, 2)
    if session:
        os.setsid()
    os.chdir(cwd)
    places = [place for place in env.get("PYTHONPATH", "").split(":") if place]
    new = [file for place in places if place not in _known for file in Path(place).glob("*")]
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[:] = words, [cwd, *places, *_path]
    _forget(*(file.stem for file in new))
    if "PYTHONUNBUFFERED" in env:
        sys.stdout.reconfigure(write_through=True)
    subprocess._fork_exec = _fork  # type: ignore[attr-defined]
    util.spawnv_passfds = _spawn

    def run_as_main() -> None:
        if any(file.name == "sitecustomize.py" for file in new):
            import_module("sitecustomize")
        if words[0] == "-c":
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})
        elif words[0].endswith(".py"):
            runpy.run_path(words[0], run_name="__main__")
        else:
            runpy.run_module(words[0], run_name="__main__", alter_sys=True)

    _end(run_as_main)


def _end(work: Callable[[], object]) -> None:
    """Run ``work`` and end as Python does after it."""
    code = 0
    try:
        work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and end.code is not code:
            print(end.code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1
    try:
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
    except BaseException as error:  # a fork must not go on with what its parent was doing
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        os._exit(code)


if __name__ != "__main__":
    subprocess._fork_exec = _ask_for_fork  # type: ignore[attr-defined]
else:
    _become(**_serve(int(sys.argv[1]), sys.argv[2:]))
