"""Flip, shift and scale per image as two batched matrix products.

``grid_sample`` is avoided: torch_xla sends it back to the CPU. Parameters are drawn on the host from
(seed, epoch, image), so every platform, process count and resumed run sees the same pixels.
"""

import numpy as np
import torch

from cxrbench.study.config import Augmentation


def draw_parameters(config: Augmentation, images: int, seed: int, epoch: int) -> np.ndarray:
    """Per image (images x 4 float32): x scale with the flip as its sign, y scale, x shift, y shift.

    Scales multiply source coordinates around the centre; shifts are fractions of the side.
    """
    u = np.random.Generator(np.random.Philox(key=[seed, epoch])).random((images, 4), dtype=np.float32)
    flip = np.where(u[:, 0] < config.flip, -1.0, 1.0)
    scale = 1.0 + config.scale * (2 * u[:, 1] - 1)
    shift = config.shift * (2 * u[:, 2:4] - 1)
    return np.column_stack([flip * scale, scale, shift]).astype(np.float32)


def apply(images: torch.Tensor, parameters: torch.Tensor) -> torch.Tensor:
    """Resample B x H x W float images with B x 4 parameters: rows, then columns, edges repeated."""
    height, width = images.shape[-2:]
    across = _interpolation(width, parameters[:, 0], parameters[:, 2])
    down = _interpolation(height, parameters[:, 1], parameters[:, 3])
    return torch.bmm(torch.bmm(down, images), across.transpose(1, 2))


def _interpolation(side: int, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """B x side x side matrices whose row i holds the linear weights of the source of pixel i."""
    grid = torch.arange(side, device=scale.device, dtype=torch.float32)
    centre = (side - 1) / 2
    source = (grid - centre) * scale[:, None] + centre + shift[:, None] * side
    distance = source.clamp(0, side - 1)[:, :, None] - grid
    return (1 - distance.abs()).clamp(min=0)
