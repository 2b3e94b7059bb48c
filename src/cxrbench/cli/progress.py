"""How far a training is, on a terminal or in a log."""

import math
import os
import sys
import time
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.status import Status

_LINE_SECONDS = 10.0  # between two lines where standard error is no terminal


class Display(Status):
    """Progress of a cell on standard error: one rewritten line on a terminal, else a line now and then."""

    def __init__(self, cell: str) -> None:
        rewrites = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        console = Console(stderr=True, highlight=False, force_terminal=rewrites)
        super().__init__(cell, console=console, spinner="line")  # of ASCII: a terminal may have no more
        self._cell, self._line_at = cell, time.monotonic()
        self._steady: tuple[float, int] | None = None  # when the speed was first known, and at which step

    def take(self, event: dict[str, Any]) -> None:
        """Show what the trainer reports of its phase and its steps."""
        if event["event"] == "phase":
            if event["phase"] == "setup":  # another start of the trainer; others come in each epoch
                self._steady = None
            self.show(event["phase"], at_once=True)
        elif event["event"] == "progress":
            self.show_progress(**{name: value for name, value in event.items() if name != "event"})

    def show_progress(
        self, epoch: int, epochs: int, step: int, steps: int, loss: float, images_per_second: float | None
    ) -> None:
        """Show that optimizer step ``step`` of ``steps`` is done; the time left once the speed is steady."""
        now, speed, left = time.monotonic(), "", ""
        if images_per_second:  # the first steps are slow, and so would the end seem far
            speed = f"{images_per_second:.0f} images/s"
            since, first = self._steady = self._steady or (now, step)
            if step > first:
                seconds = math.ceil((now - since) / (step - first) * (steps - step))
                left = f"{timedelta(seconds=seconds)} left"
        if late := now - self._line_at >= _LINE_SECONDS:
            self._line_at = now
        texts = f"epoch {epoch}/{epochs}", left, speed, f"step {step}/{steps}", f"loss {loss:.4f}"
        self.show(", ".join(filter(None, texts)), at_once=late)

    def show(self, text: str, at_once: bool) -> None:
        """Show what the trainer does; without a terminal print it, if it is to be seen ``at_once``."""
        # Beside the spinner, the name last: a narrow terminal cuts the end off, and the name is known.
        self.update(f"{text}  {self._cell}"[: self.console.width - 2])
        if at_once and not self.console.is_terminal:
            print(f"{self._cell}: {text}", file=sys.stderr, flush=True)
