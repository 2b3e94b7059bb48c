"""Commands in processes of their own that need not load Python's libraries: forks of a process that has.

Nothing has run in that process. Called as: forked.py MODULE...; it loads the modules, then turns a fork into
the command on each line of standard input and prints how it ended.
"""

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path

LIBRARIES = {
    "cxrbench": (
        *("cxrbench.cli", "cxrbench.analysis.statistics", "cxrbench.claims.ledger", "cxrbench.cost.write"),
        *("cxrbench.datasets.packed", "cxrbench.evidence.verify", "cxrbench.paper.figures"),
        *("pyarrow.parquet", "scipy.stats", "typer.rich_utils"),
    ),
    "snakemake": ("snakemake.cli", "snakemake.api", "pandas", "psutil"),  # a clone has its own code
}


@cache
def _server(module: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "src")}
    command = [sys.executable, __file__, *LIBRARIES[module]]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def run(
    module: str, words: list[str], cwd: Path, env: dict[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m module words`` in ``cwd``; return what it printed and its exit code."""
    server = _server(module)
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("stdin", "stdout", "stderr")]
        streams[0].write_text(given)
        environment = dict(os.environ) if env is None else env
        request = {"words": [module, *words], "cwd": str(cwd), "env": environment}
        request["streams"] = [*map(str, streams)]
        print(json.dumps(request), file=server.stdin, flush=True)
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(words, code, *(path.read_text() for path in streams[1:]))


def _serve(modules: list[str]) -> dict:
    """Answer requests for ever; in a fork, return the request that it serves."""
    for name in modules:
        import_module(name)
    gc.freeze()  # else a fork copies all memory when it looks for garbage
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


def _become(words: list[str], cwd: str, env: dict[str, str], streams: list[str]) -> None:
    """Run the command as Python would, but for taking memory apart at its end."""
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv, sys.path[0] = words, cwd
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code and end.code is not code:
            print(end.code, file=sys.stderr)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _become(**_serve(sys.argv[1:]))
