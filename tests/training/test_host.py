"""At which commit the code stands: that of this checkout, whoever asks from wherever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import clone_of_the_tree


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True
    ).stdout.strip()


def commit(clone: Path, asked_in: Path) -> str:
    """What a process that works in ``asked_in`` says of the code in ``clone``."""
    environment = os.environ | {"PYTHONPATH": str(clone / "src")}
    environment.pop("CXRBENCH_COMMIT", None)
    ask = "from cxrbench.training import host; print(*host.commit())"
    return subprocess.run(
        [sys.executable, "-c", ask], cwd=asked_in, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_commit_is_the_codes_and_a_module_that_git_does_not_know_makes_it_dirty(tmp_path: Path) -> None:
    clone, elsewhere = clone_of_the_tree(tmp_path / "clone"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    for folder in (clone, elsewhere):
        git(folder, "init", "-q")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    head = git(clone, "rev-parse", "HEAD")
    assert commit(clone, elsewhere) == f"{head} False"
    (clone / "notes.txt").write_text("mine, and no code")
    assert commit(clone, elsewhere) == f"{head} False"
    (clone / "src/cxrbench/platforms/mine.py").write_text("# a new platform")
    assert commit(clone, elsewhere) == f"{head} True"
