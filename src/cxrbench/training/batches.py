"""Input: the packed uint8 images on the device where they fit, else streamed; the same pixels both ways."""

from collections.abc import Iterator

import numpy as np
import torch

from cxrbench.datasets.packed import Packed
from cxrbench.evidence.record import UsedWeights
from cxrbench.platforms.base import Platform
from cxrbench.study.files import ahead
from cxrbench.training.method import Batch, prepared

_AT_A_TIME = 5  # streamed batches: one in use, the others ready


class Batches:
    """Gathers, augments and normalises batches of a packed dataset on a platform's device."""

    def __init__(
        self, packed: Packed, platform: Platform, resident_bytes: float, weights: UsedWeights
    ) -> None:
        self._packed, self._platform = packed, platform
        self._mean, self._std = weights.mean, weights.std
        labels = packed.labels()
        labelled = ~np.isnan(labels)
        self._labels = torch.from_numpy(np.nan_to_num(labels))
        # By the share of all labels, not of a batch's: a known label counts the same in every batch.
        counts = (labelled / labelled.mean()).astype(np.float32)
        self._label_weights = None if labelled.all() else torch.from_numpy(counts)
        self.resident = platform.keeps_input and packed.images.nbytes <= resident_bytes
        if self.resident:
            self._images = platform.to_device(torch.from_numpy(np.array(packed.images)))
        self._augmented = platform.captured(self._images_of)

    def over(self, rows: np.ndarray, size: int, parameters: np.ndarray | None = None) -> Iterator[Batch]:
        """Batches of ``size`` over ``rows`` in order, augmented with ``parameters`` (len(rows) x 4) if given.

        A last batch that is short is filled up by repeating its first row: shapes never change.
        """
        starts = range(0, len(rows), size)

        def host_part(start: int) -> tuple[int, list[torch.Tensor]]:
            valid = rows[start : start + size]
            picked = np.concatenate([valid, np.repeat(valid[:1], size - len(valid))])
            tensors = [torch.from_numpy(picked if self.resident else self._packed.images[picked])]
            if parameters is not None:
                tensors.append(torch.from_numpy(parameters[start : start + size]))
            tensors.append(self._labels[picked])
            if self._label_weights is not None:
                tensors.append(self._label_weights[picked])
            return len(valid), tensors if self.resident else self._platform.sent_ahead(tensors)

        parts = map(host_part, starts) if self.resident else ahead(host_part, starts, 1, _AT_A_TIME)
        for valid, tensors in parts:
            moved = iter([self._platform.to_device(tensor) for tensor in tensors])
            if parameters is None:
                images = self._images_of(next(moved))
            else:
                images = self._augmented(next(moved), next(moved))
            yield Batch(images, next(moved), next(moved, None), valid)

    def _images_of(self, moved: torch.Tensor, drawn: torch.Tensor | None = None) -> torch.Tensor:
        """Return B x 1 x H x W images of rows on the device (or of pixels that came instead), augmented."""
        pixels = self._images.index_select(0, moved) if self.resident else moved
        return prepared(pixels, drawn, self._mean, self._std, self._platform)
