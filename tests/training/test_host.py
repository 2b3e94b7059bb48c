"""At which commit the code stands: that of this checkout, whoever asks from wherever."""

import os
import sys
from pathlib import Path

import pytest

from conftest import clone_of_the_tree, ran
from cxrbench.evidence.record import cpu_name


@pytest.mark.slow
def test_the_commit_is_the_codes_and_a_module_that_git_does_not_know_makes_it_dirty(tmp_path: Path) -> None:
    clone, elsewhere = clone_of_the_tree(tmp_path / "clone"), tmp_path / "elsewhere"
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    for folder in (clone, elsewhere):
        ran("git", "init", "-q", folder, check=True)
        ran("git", "-C", folder, "add", "-A", check=True)
        ran("git", "-C", folder, *who, "commit", "-q", "--allow-empty", "-m", "first", check=True)
    environment = {name: value for name, value in os.environ.items() if name != "CXRBENCH_COMMIT"}
    environment["PYTHONPATH"] = str(clone / "src")
    ask = [sys.executable, "-c", "from cxrbench.evidence.record import commit_of_code as ask; print(*ask())"]
    head = ran("git", "-C", clone, "rev-parse", "HEAD", check=True).stdout.strip()
    for path, dirty in (("README.md", False), ("notes.txt", False), ("src/cxrbench/platforms/mine.py", True)):
        (clone / path).touch()
        assert ran(*ask, cwd=elsewhere, env=environment).stdout == f"{head} {dirty}\n"


@pytest.mark.parametrize(
    ("model_name", "name"),
    [
        ("AMD EPYC", "AMD EPYC family 26 model 2"),
        ("Intel(R) Xeon(R) Processor", "Intel(R) Xeon(R) Processor family 26 model 2"),
        ("AMD EPYC 9R14", "AMD EPYC 9R14"),
    ],
)
def test_a_processor_without_a_number_has_its_family_and_model(
    tmp_path: Path, model_name: str, name: str
) -> None:
    cpu = f"processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: {model_name}\nstepping\t: 1\n\n"
    (tmp_path / "cpuinfo").write_text(cpu * 2)
    assert cpu_name(tmp_path / "cpuinfo") == name
