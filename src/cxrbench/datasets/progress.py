"""How a long piece of work is shown: one bar on a terminal, messages alone elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


@dataclass(frozen=True)
class Reporter:
    """Whom the work tells: ``gained`` bytes (negative when some had to be given up), and messages."""

    gained: Callable[[int], None]
    say: Callable[[str], None]


@contextmanager
def progress(what: str, total: int) -> Iterator[Reporter]:
    """One bar over ``total`` bytes with speed and time left, on standard error."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total or None)  # none: not known, so no end is promised
        say: Callable[[str], None] = (
            (lambda text: console.print(text, markup=False))
            if console.is_terminal
            else (lambda text: print(text, file=sys.stderr, flush=True))
        )
        yield Reporter(lambda size: bar.update(task, advance=size), say)
