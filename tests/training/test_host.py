"""At which commit the code stands: that of this checkout, whoever asks from wherever."""

import os
import sys
from pathlib import Path

from conftest import clone_of_the_tree, ran


def test_the_commit_is_the_codes_and_a_module_that_git_does_not_know_makes_it_dirty(tmp_path: Path) -> None:
    clone, elsewhere = clone_of_the_tree(tmp_path / "clone"), tmp_path / "elsewhere"
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for folder in (clone, elsewhere):
        ran("git", "init", "-q", folder, check=True)
        ran("git", "-C", folder, "add", "-A", check=True)
        ran("git", "-C", folder, *who, "commit", "-q", "--allow-empty", "-m", "first", check=True)
    environment = {name: value for name, value in os.environ.items() if name != "CXRBENCH_COMMIT"}
    environment["PYTHONPATH"] = str(clone / "src")
    ask = [sys.executable, "-c", "from cxrbench.training import host; print(*host.commit())"]
    head = ran("git", "-C", clone, "rev-parse", "HEAD", check=True).stdout.strip()
    for path, dirty in (("README.md", False), ("notes.txt", False), ("src/cxrbench/platforms/mine.py", True)):
        (clone / path).touch()
        assert ran(*ask, cwd=elsewhere, env=environment).stdout == f"{head} {dirty}\n"
