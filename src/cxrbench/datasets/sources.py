"""What the packer needs from a source of images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd

Chunks = Iterator[tuple[list[str], np.ndarray]]


class Source(Protocol):
    """Images in a fixed order, their rows, and the manifest's entries about them."""

    findings: ClassVar[tuple[str, ...]]

    @staticmethod
    def present(config: Any) -> bool:
        """Whether the images can be packed on this machine without a download."""

    def chunks(self) -> Chunks:
        """Names and pixels (n x H x W uint8), in the order to be packed."""

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return one row per name, in that order."""

    def describe(self) -> dict[str, object]:
        """Return the manifest's entries about the source; call it after `chunks` and `index`."""
