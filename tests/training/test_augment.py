"""Augmentation: what is drawn, and the same pixels wherever and however they are computed."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrbench.study.config import Augmentation
from cxrbench.training.method import augmented, draw_parameters


def images(count: int = 3, side: int = 16) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).random((count, side, side), dtype=np.float32)) * 255


def test_a_flip_is_a_mirror_image_and_no_augmentation_changes_nothing() -> None:
    never, always = (
        draw_parameters(Augmentation(flip=flip, shift=0, scale=0), 3, seed=0, epoch=0) for flip in (0, 1)
    )
    assert torch.equal(augmented(images(), torch.from_numpy(never)), images())
    flipped = augmented(images(), torch.from_numpy(always))
    assert torch.allclose(flipped, images().flip(-1), atol=1e-3)


def test_a_shift_moves_by_whole_pixels_and_repeats_the_edge() -> None:
    moved = augmented(images(1), torch.tensor([[1.0, 1.0, 2 / 16, 0.0]]))
    assert torch.allclose(moved[:, :, :-2], images(1)[:, :, 2:], atol=1e-3)
    assert torch.allclose(moved[:, :, -1], images(1)[:, :, -1], atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 500), st.integers(1, 64))
def test_an_image_gets_the_same_parameters_in_any_batch(seed: int, epoch: int, size: int) -> None:
    whole = torch.from_numpy(draw_parameters(Augmentation(), 64, seed, epoch))
    pixels = images(64, 8)
    parts = [augmented(pixels[i : i + size], whole[i : i + size]) for i in range(0, 64, size)]
    assert torch.allclose(torch.cat(parts), augmented(pixels, whole), atol=1e-4)


def test_parameters_are_spread_as_the_recipe_says() -> None:
    config = Augmentation(flip=0.25, shift=0.1, scale=0.2)
    drawn = draw_parameters(config, 20_000, 1, 1)
    assert (drawn[:, 0] < 0).mean() == pytest.approx(0.25, abs=0.02)
    assert np.abs(drawn[:, 0]).min() >= 0.8 and np.abs(drawn[:, 0]).max() <= 1.2
    assert np.abs(drawn[:, 2:]).max() <= 0.1
    assert not (drawn == draw_parameters(config, 20_000, 1, 2)).all()
    assert not (drawn == draw_parameters(config, 20_000, 2, 1)).all()
