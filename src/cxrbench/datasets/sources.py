"""What a source of images gives the packer: pixels, their rows, findings, and notes for the manifest."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.study.files import cores

Chunks = Iterator[tuple[list[str], np.ndarray]]


class Source(ABC):
    """Images in a fixed order; the class of source NAME is ``cxrbench.datasets.NAME.Images``."""

    findings: tuple[str, ...]

    def __init__(
        self,
        config: Any,
        workers: int | None = None,
        say: Callable[[str], None] = lambda text: None,
        recorded: Path | None = None,
    ) -> None:
        self.config, self.workers, self.say = config, workers or cores(), say
        self.recorded = recorded  # folder of evidence whose images these may be

    @staticmethod
    @abstractmethod
    def present(config: Any) -> bool:
        """Return whether the images can be packed on this machine without a download."""

    @abstractmethod
    def chunks(self) -> Chunks:
        """Yield names and pixels (n x H x W uint8), in the order to be packed."""

    @abstractmethod
    def index(self, names: list[str]) -> pd.DataFrame:
        """Return one row per name, in that order."""

    @abstractmethod
    def describe(self) -> dict[str, object]:
        """Return the manifest's entries about the source; call it after `chunks` and `index`."""
