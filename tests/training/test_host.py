"""At which commit the code stands: that of this checkout, whoever asks from wherever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import clone_of_the_tree


def printed(*words: object, **how: object) -> str:
    """What a command prints."""
    done = subprocess.run([*map(str, words)], check=True, capture_output=True, text=True, **how)
    return done.stdout.strip()


def test_the_commit_is_the_codes_and_a_module_that_git_does_not_know_makes_it_dirty(tmp_path: Path) -> None:
    clone, elsewhere = clone_of_the_tree(tmp_path / "clone"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for folder in (clone, elsewhere):
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "--allow-empty", "-m", "first"]):
            printed("git", "-C", folder, *who, *words)
    environment = {name: value for name, value in os.environ.items() if name != "CXRBENCH_COMMIT"}

    def commit() -> str:
        ask = "from cxrbench.training import host; print(*host.commit())"
        path = {"PYTHONPATH": str(clone / "src")}
        return printed(sys.executable, "-c", ask, cwd=elsewhere, env=environment | path)

    head = printed("git", "-C", clone, "rev-parse", "HEAD")
    assert commit() == f"{head} False"
    (clone / "notes.txt").write_text("mine, and no code")
    assert commit() == f"{head} False"
    (clone / "src/cxrbench/platforms/mine.py").write_text("# a new platform")
    assert commit() == f"{head} True"
