"""Checkpoints: written aside, named by their content."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file, synced, written_aside
from cxrbench.training.job import checkpoints

_KEEP = 2  # checkpoints


def save_checkpoint(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write ``state`` as the checkpoint after ``step`` optimizer steps and drop all but the last two."""
    with written_aside(folder / "new.pt") as aside:
        try:
            with open(aside, "wb") as file:
                torch.save(state, file)
        except RuntimeError as error:  # torch's "unexpected pos", raised while it handles the OSError
            raise error.__context__ if isinstance(error.__context__, OSError) else error from None
        digest = sha256_file(aside)[:16]
    final = folder / f"step{step:09d}-{digest}.pt"
    (folder / "new.pt").rename(final)
    synced(folder)  # the name must survive a power cut before the older ones go
    for _, old in checkpoints(folder)[_KEEP:]:
        old.unlink()
    return final


def load_checkpoint(
    folder: Path, identity: dict[str, str], report: Callable[[str], None]
) -> dict[str, Any] | None:
    """The newest intact checkpoint, or None; UserError when it is of another ``identity``."""
    for _, path in checkpoints(folder):
        try:
            if not path.stem.endswith(sha256_file(path)[:16]):
                raise ValueError("its content does not match its name")
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            report(f"checkpoint {path.name} is damaged ({error}); falling back to the one before")
            continue
        if state["identity"] != identity:
            changed = [key for key in identity if state["identity"].get(key) != identity[key]]
            raise UserError(
                f"{path}: this checkpoint was made with another {' and '.join(changed)}; "
                f"remove {folder} to start over"
            )
        return state
    return None
