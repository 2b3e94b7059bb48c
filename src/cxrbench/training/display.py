"""Progress of a cell on a terminal or in a log."""

import sys
import time
from datetime import timedelta

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Column

_SPEED_SECONDS = 300.0  # from which the time left is estimated: longer than an evaluation
_LINE_SECONDS = 10.0  # between two lines of progress where standard error is no terminal


class Display(Progress):
    """Progress of a cell on standard error: one rewritten line on a terminal, else a line now and then.

    On a terminal the cell's name is last: a narrow one cuts the end off, and the name is known.
    """

    def __init__(self, cell: str) -> None:
        console = Console(stderr=True, highlight=False)
        super().__init__(
            SpinnerColumn("line"),  # of ASCII: a terminal may have no more
            TextColumn(
                "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="crop")
            ),
            console=console,
            transient=True,
            disable=not sys.stderr.isatty() or console.is_dumb_terminal,
            speed_estimate_period=_SPEED_SECONDS,
        )
        self._cell, self._line_at = cell, time.monotonic()
        self._task = self.add_task(cell, total=None)

    def show_progress(
        self, epoch: int, epochs: int, step: int, steps: int, loss: float, images_per_second: float | None
    ) -> None:
        """Show that optimizer step ``step`` of ``steps`` is done; the time left once the speed is steady."""
        if images_per_second:  # the first steps are slow, and so would the end seem far
            self.update(self._task, completed=step, total=steps)
        left = self.tasks[0].time_remaining
        numbers = [
            f"epoch {epoch}/{epochs}",
            *([f"{timedelta(seconds=left)} left"] if left is not None else []),
            *([f"{images_per_second:.0f} images/s"] if images_per_second else []),
            f"step {step}/{steps}",
            f"loss {loss:.4f}",
        ]
        if late := time.monotonic() - self._line_at >= _LINE_SECONDS:
            self._line_at = time.monotonic()
        self.show(", ".join(numbers), at_once=late)

    def show(self, text: str, at_once: bool) -> None:
        """Show what the trainer does; without a terminal print it, if it is to be seen ``at_once``."""
        self.update(self._task, description=f"{text}  {self._cell}", refresh=True)
        if at_once and self.disable:
            print(f"{self._cell}: {text}", file=sys.stderr, flush=True)
