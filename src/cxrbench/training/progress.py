"""Progress of a training on standard error: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

_LINE_SECONDS = 10.0


class Display:
    """Shows one cell's training on standard error."""

    def __init__(self, cell: str) -> None:
        self._cell = cell
        self._bar: Progress | None = None
        self._line_at = time.monotonic()
        if sys.stderr.isatty():
            self._bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task(cell, total=None, numbers="")

    def __enter__(self) -> Display:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def phase(self, phase: str) -> None:
        """The trainer entered a phase."""
        if self._bar:
            self._bar.update(self._task, numbers=phase)
        else:
            print(f"{self._cell}: {phase}", file=sys.stderr, flush=True)

    def progress(
        self, epoch: int, epochs: int, step: int, steps: int, loss: float, images_per_second: float | None
    ) -> None:
        """The trainer finished optimizer step ``step`` of ``steps``."""
        speed = f", {images_per_second:.0f} images/s" if images_per_second else ""
        numbers = f"epoch {epoch}/{epochs}, loss {loss:.4f}{speed}"
        if self._bar:
            self._bar.update(self._task, completed=step, total=steps, numbers=numbers)
        elif time.monotonic() - self._line_at >= _LINE_SECONDS:
            self._line_at = time.monotonic()
            print(f"{self._cell}: step {step}/{steps}, {numbers}", file=sys.stderr, flush=True)
