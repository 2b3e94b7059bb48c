"""Contenders of a benchmark in processes, and the turns that they take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

from cxrbench.common.errors import UserError, shortened

Contender = Callable[[], float]  # runs a block; returns its images per second
Report = Callable[[str], None]
_TURN = 5  # blocks of a contender between its start and its end, where one at a time is alive
_made: Made  # the contender of this process, where it is one's own


def in_own_process(work: Callable[..., Any], *arguments: Any) -> Any:
    """Return what ``work`` returns in a new process: devices and compiled graphs live as long as theirs."""
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(work, *arguments).result()


class NoMemory(UserError):
    """A contender does not fit the device."""


class Made(NamedTuple):
    """A contender, and what else is known of it after its blocks."""

    block: Contender
    facts: Callable[[], dict[str, Any]]


class InProcess:
    """A contender that is made and runs in a process of its own; calling it runs a block."""

    def __init__(self, make: Callable[..., Made], *arguments: Any) -> None:
        self._process = ProcessPoolExecutor(1, get_context("spawn"))
        self._ask(_make, make, arguments)

    def __call__(self) -> float:
        return float(self._ask(_answer, "block"))

    def facts(self) -> dict[str, Any]:
        return dict(self._ask(_answer, "facts"))

    def close(self) -> None:
        """End the process, with the workers of its loader."""
        self._process.shutdown()

    def _ask(self, *question: Any) -> Any:
        try:
            return self._process.submit(*question).result()
        except torch.OutOfMemoryError as error:
            self.close()  # it may hold the device's memory
            raise NoMemory(f"a contender ran out of the device's memory: {shortened(error)}") from None
        except Exception as error:
            self.close()
            raise UserError(f"a contender of the benchmark died: {error}; see its messages above") from error


def _make(make: Callable[..., Made], arguments: tuple[Any, ...]) -> None:
    global _made  # of this process
    _made = make(*arguments)


def _answer(question: str) -> Any:
    return getattr(_made, question)()


def one_turn(make: Callable[[], Made], blocks: int) -> tuple[list[float], dict[str, Any]]:
    """Start a contender, let it warm up, and return its speed in ``blocks`` blocks and its facts."""
    with closing(InProcess(make)) as running:
        running()
        return [running() for _ in range(blocks)], running.facts()


def in_turns(
    makers: Mapping[str, Callable[[], Made]], blocks: int, report: Report
) -> tuple[dict[str, list[float]], dict[str, dict[str, Any]]]:
    """Return the speeds and facts of contenders of which one at a time is alive, in turns that rotate."""
    names, facts = list(makers), dict[str, dict[str, Any]]()
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for done in range(0, blocks, _TURN):
        first = done // _TURN % len(names)
        for name in names[first:] + names[:first]:
            taken, facts[name] = one_turn(makers[name], min(_TURN, blocks - done))
            speeds[name] += taken
        latest = ", ".join(f"{name} {values[-1]:.0f}" for name, values in speeds.items())
        report(f"block {min(done + _TURN, blocks)} of {blocks}: {latest} images/s")
    return speeds, facts


def paired_blocks(contenders: Mapping[str, Contender], blocks: int, report: Report) -> dict[str, list[float]]:
    """Return the speed of each contender in each block, in turns whose order rotates."""
    names = list(contenders)
    speeds: dict[str, list[float]] = {name: [] for name in names}
    for block in range(-1, blocks):
        turn = block % len(names)
        for name in names[turn:] + names[:turn]:
            speeds[name].append(contenders[name]())
        latest = ", ".join(f"{name} {values[-1]:.0f}" for name, values in speeds.items())
        report(f"block {block + 1} of {blocks}: {latest} images/s")
    return {name: values[1:] for name, values in speeds.items()}  # the first block only warms up


def paired_ratios(blocks: dict[str, list[float]], ours: str, theirs: str) -> list[float]:
    """Return the ratio of two contenders' speeds in each block."""
    return [a / b for a, b in zip(blocks[ours], blocks[theirs], strict=True)]


def quartile_spread(values: list[float]) -> float:
    """Return the distance between the quartiles."""
    ordered, quarter = sorted(values), len(values) // 4
    return ordered[-1 - quarter] - ordered[quarter]
