"""The method once more in plain PyTorch: the engine's bits from packed images and recipe alone."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from timm.optim import param_groups_weight_decay
from torch.func import functional_call
from torch.nn.functional import binary_cross_entropy_with_logits

from conftest import pack_phantoms, scores
from cxrbench.study.config import Recipe
from cxrbench.training.supervisor import run


def random(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def resampling(side: int, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    middle, pixel = (side - 1) / 2, torch.arange(side, dtype=torch.float32)
    source = (pixel - middle) * scale[:, None] + middle + shift[:, None] * side
    return (1 - (source.clamp(0, side - 1)[:, :, None] - pixel).abs()).clamp(min=0)


def changes_of(config: dict[str, float], images: int, seed: int, epoch: int) -> torch.Tensor:
    u = random(seed, epoch).random((images, 4), dtype=np.float32)
    scale = 1 + config["scale"] * (2 * u[:, 1:2] - 1)
    flipped = np.where(u[:, :1] < config["flip"], -scale, scale)
    return torch.from_numpy(np.hstack([flipped, scale, config["shift"] * (2 * u[:, 2:] - 1)]))


def trained(folder: Path, architecture: str, recipe: dict[str, Any], seed: int) -> np.ndarray:
    """Scores of the validation and then the test images by the averaged weights after the last epoch."""
    manifest = json.loads((folder / "manifest.json").read_text())
    index, pixels = pd.read_parquet(folder / "index.parquet"), np.load(folder / "images.npy")
    labels = index[[*manifest["positive_images"]]].to_numpy(np.float32)
    part = {split: np.flatnonzero(index["split"] == split) for split in ("train", "val", "test")}
    batch, side = recipe["batch"], manifest["pixels"]

    def logits_of(weights: dict[str, torch.Tensor], images: torch.Tensor) -> torch.Tensor:
        images = (images / 255 - manifest["pixel_mean"]) / manifest["pixel_std"]
        return functional_call(network, weights, (images.unsqueeze(1),))

    torch.manual_seed(seed)
    network = timm.create_model(architecture, in_chans=1, num_classes=labels.shape[1])
    share = labels[part["train"]].mean(axis=0, dtype=np.float64).clip(1e-4, 1 - 1e-4)
    network.get_classifier().bias.data[:] = torch.from_numpy(np.log(share / (1 - share)))
    groups = param_groups_weight_decay(network, recipe["weight_decay"])
    optimizer = torch.optim.AdamW(groups, recipe["learning_rate"], fused=True)
    average = {name: value.clone() for name, value in network.state_dict().items()}
    of_epoch, step = len(part["train"]) // batch, 0
    steps = recipe["epochs"] * of_epoch
    warm = max(1, round(recipe["warmup"] * steps))
    for epoch in range(recipe["epochs"]):
        network.train()
        order = random(seed, 2**32 + epoch).permutation(part["train"])[: of_epoch * batch]
        changes = changes_of(recipe["augmentation"], len(pixels), seed, epoch)
        for rows in order.reshape(of_epoch, batch):
            across, down, right, below = changes[rows].T
            images = resampling(side, down, below) @ torch.from_numpy(pixels[rows]).float()
            logits = logits_of({}, images @ resampling(side, across, right).mT)
            optimizer.zero_grad()
            binary_cross_entropy_with_logits(logits, torch.from_numpy(labels[rows])).backward()
            rate = recipe["learning_rate"] * (step + 1) / warm
            if step >= warm:
                cosine = math.cos(math.pi * (step - warm) / max(1, steps - warm))
                rate = recipe["learning_rate"] * 0.5 * (1 + cosine)
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            new = 1 - min(recipe["averaging"], (1 + step) / (10 + step))
            for name, value in network.state_dict().items():
                average[name] = average[name].lerp(value, new) if value.is_floating_point() else value.clone()
            step += 1
    network.eval()
    logits = []
    for rows in part["val"], part["test"]:
        for some in np.split(rows, range(batch, len(rows), batch)):
            filled = np.concatenate([some, np.repeat(some[:1], batch - len(some))])  # one shape for all
            images = torch.from_numpy(pixels[filled]).float()
            logits.append(logits_of(average, images).detach().double().numpy()[: len(some)])
    return (1 / (1 + np.exp(-np.concatenate(logits)))).astype(np.float32)


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """So few phantoms that two epochs have ten steps."""
    return pack_phantoms(tmp_path_factory.mktemp("packed"), {"train": 320, "val": 280, "test": 280})


@pytest.mark.parametrize(
    "architecture", ["test_resnet", pytest.param("test_convnext", marks=pytest.mark.slow)]
)
def test_plain_pytorch_gives_the_engines_bits(
    architecture: str, make_job, packed: Path, recipe: Recipe, tmp_path: Path
) -> None:
    run(make_job(architecture=architecture), tmp_path / "out")
    threads = torch.get_num_threads()
    torch.set_num_threads(recipe.threads)
    plain = trained(packed, architecture, recipe.model_dump(mode="json"), seed=0)
    torch.set_num_threads(threads)
    assert (plain == scores(tmp_path / "out")).all()
