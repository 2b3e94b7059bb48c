"""Pre-compilation, a step of its own before a cell is trained on trn1. Imports no torch.

``neuron_parallel_compile`` starts a trial run, collects its graphs, compiles them and keeps them in Neuron's
cache (Neuron SDK, pytorch-neuron-parallel-compile.rst), where the cell's training finds them. Several are
compiled at a time only where the host has memory: torch_neuronx starts one compiler per 64 GiB, so one on
trn1.2xlarge and eight on trn1.32xlarge.
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file, write_json
from cxrbench.platforms import neuron_settings
from cxrbench.study import platforms
from cxrbench.training.child import TRIAL
from cxrbench.training.endings import Ending, error_line
from cxrbench.training.job import PRECOMPILED, Job
from cxrbench.training.process import parse_events

TOOL = "neuron_parallel_compile"
_GRAPH, _LOG = "model.hlo_module.pb", "precompile.log"  # as the cache names a graph; of the tool
_TOTALS = {"graphs": "graphs", "succeeded": "successful compilations", "failed": "failed compilations"}


def precompile(job: Job) -> dict[str, Any]:
    """Compile the graphs of ``job``'s cell; write and return work/precompile.json.

    Keys: ``seconds`` (wall time of all tries), ``graphs``, ``succeeded``, ``failed`` (of the last try with
    new graphs, else None). UserError when platform, tool or trial is missing or wrong, or no graph was tried;
    a graph that does not compile is no error: training fails at it again and records why.
    """
    kept, environment = job.work / PRECOMPILED, _environment(job, {})
    with job.locked():
        started = time.monotonic()
        platforms.recover(job.platform)  # an earlier try that was killed has left locks
        returncode, output = _tried(job, [], environment)
        before = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {"seconds": 0.0}
        totals = {name: re.findall(rf"Total {words}: (\d+)", output) for name, words in _TOTALS.items()}
        printed = {name: int(counts[-1]) if counts else None for name, counts in totals.items()}
        result = {
            "seconds": round(before["seconds"] + time.monotonic() - started, 1),
            **{name: before.get(name) if count is None else count for name, count in printed.items()},
        }
        write_json(kept, result)
    if reason := _reason(returncode, output, printed["graphs"]):
        raise UserError(f"{job.cell}: {reason} (see {job.work / _LOG})")
    return result


def collect(job: Job, folder: Path) -> int:
    """Keep in ``folder`` what a cell's trainer sends to Neuron's compiler, named by hash; return how many.

    The tool has a cache of its own meanwhile, and compiles nothing. UserError where there is no graph.
    """
    with tempfile.TemporaryDirectory(prefix="cxrbench-graphs-") as cache, job.locked():
        environment = _environment(job, {"NEURON_COMPILE_CACHE_URL": cache})
        returncode, output = _tried(job, ["--command", "collect"], environment)
        graphs = sorted(Path(cache).rglob(_GRAPH))
        folder.mkdir(parents=True, exist_ok=True)
        for graph in graphs:
            shutil.copyfile(graph, folder / f"{sha256_file(graph)}.pb")
    if not graphs:
        reason = _reason(returncode, output, None) or f"{TOOL} kept no {_GRAPH}"
        raise UserError(f"{job.cell}: {reason} (see {job.work / _LOG})")
    return len(graphs)


def _environment(job: Job, given: dict[str, str]) -> dict[str, str]:
    """The environment of a trial, ``given`` included; UserError where there can be none."""
    if job.platform != "neuron":
        raise UserError(
            f"{job.cell}: only platform neuron compiles ahead; start `cxrbench train` at once on others"
        )
    if reason := platforms.unavailable(job.platform):
        raise UserError(f"platform neuron cannot run here: {reason}")
    # The cell's settings, so that the cache's keys agree; and one retry: trn1 has little host memory.
    settings = neuron_settings.environment(job.recipe.precision, job.recipe.compiler, os.environ | given)
    retries = {"NEURON_PARALLEL_COMPILE_MAX_RETRIES": "1"}
    environment = retries | os.environ | settings | given | job.environment()
    if shutil.which(TOOL, path=environment["PATH"]) is None:
        raise UserError(
            f"{TOOL} is not on the PATH; install torch-neuronx, which brings it (requirements/neuron.txt)"
        )
    return environment


def _tried(job: Job, words: list[str], environment: dict[str, str]) -> tuple[int, str]:
    """Let the tool start a trial of the cell; return its exit code and output, which is kept in a log."""
    trial = job.model_copy(update={"work": job.work / "trial"})
    shutil.rmtree(trial.work, ignore_errors=True)  # a checkpoint of an earlier trial would be resumed
    with (job.work / _LOG).open("w", encoding="utf-8") as file:
        command = [TOOL, *words, *trial.command(TRIAL)]
        done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    shutil.rmtree(trial.work)
    return done.returncode, (job.work / _LOG).read_text(encoding="utf-8", errors="replace")


def _reason(returncode: int, output: str, graphs: int | None) -> str | None:
    """The reason the cell's graphs are not in the cache, from the tool's output, or None."""
    # The tool's own exit code is 1 whatever the trial's was, and 0 when none of its compilers lived.
    messages: dict[str, str] = {}
    for line in output.splitlines():
        for event in parse_events(line)[0]:  # one process's failure makes others fail: the first one counts
            messages.setdefault(event["event"], event.get("message", ""))
    if Ending.REFUSED in messages:
        return messages[Ending.REFUSED]
    if returncode and graphs is None:
        error = error_line(messages.get(Ending.CRASHED) or output)
        return f"{TOOL} ended with exit code {returncode}: {error}"
    if graphs == 0:
        return (
            f"{TOOL} found graphs and compiled none: its compilers died, or another process has locked the "
            f"graphs in the cache; free host memory or run `{TOOL} --command clear-locks`, then try again"
        )
    return None
