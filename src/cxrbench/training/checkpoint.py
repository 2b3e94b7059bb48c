"""Checkpoints: written aside, named by their content, loaded safely, the last two kept."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cxrbench.errors import UserError
from cxrbench.files import sha256_file, written_aside
from cxrbench.training.job import checkpoints

_KEEP = 2


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write ``state`` as the checkpoint after ``step`` optimizer steps and drop all but the last two."""
    folder.mkdir(parents=True, exist_ok=True)
    with written_aside(folder / "new.pt") as aside:
        torch.save(state, aside)
        digest = sha256_file(aside)[:16]
    final = folder / f"step{step:09d}-{digest}.pt"
    (folder / "new.pt").rename(final)
    for _, old in checkpoints(folder)[_KEEP:]:
        old.unlink()
    return final


def load(folder: Path, identity: dict[str, str], say: Callable[[str], None]) -> dict[str, Any] | None:
    """The newest intact checkpoint below ``folder``, or None; damaged ones are named and passed over.

    Raises UserError when the checkpoint was made with another recipe or other data (``identity``).
    """
    for _, path in checkpoints(folder):
        try:
            if not path.stem.endswith(sha256_file(path)[:16]):
                raise ValueError("its content does not match its name")
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            say(f"checkpoint {path.name} is damaged ({error}); falling back to the one before")
            continue
        if state["identity"] != identity:
            changed = [key for key in identity if state["identity"].get(key) != identity[key]]
            raise UserError(
                f"{path}: this checkpoint was made with another {' and '.join(changed)}; "
                f"remove {folder} to start over"
            )
        return state
    return None
