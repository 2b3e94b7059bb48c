"""Clones and machines that are unlike the authors': line ends, homes, owners."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import forked
from conftest import ROOT, clone_of_the_tree, keep_recorded, ran, small_clone
from cxrbench.common.errors import UserError
from cxrbench.common.files import why_git_fails
from cxrbench.evidence.private import of_this_machine
from cxrbench.evidence.sums import sign

GRAPH = (sys.executable, "-m", "snakemake")
QUICK = "results/scores.json"  # soon built where few cells are recorded
NOBODY, UNKNOWN = 65534, 12345  # users: one that every system has, and one that it has not


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of this tree, line ends converted as Git for Windows does by default."""
    ran("git", "clone", "-q", ROOT, tmp_path / "whole", check=True)  # with its history
    whole = clone_of_the_tree(tmp_path / "whole")
    keep_recorded(whole, "phantom-32px/resnet18/cpu/seed0")
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org", "-c", "commit.gpgsign=false")
    ran("git", "add", "-A", cwd=whole, check=True)
    ran("git", *who, "commit", "-qm", "All", cwd=whole, check=True)
    ran("git", "clone", "-q", "-c", "core.autocrlf=true", whole, tmp_path / "clone", check=True)
    return tmp_path / "clone"


@pytest.mark.fault("a clone with Windows line ends (core.autocrlf)", "the same bytes; verify and build work")
def test_a_clone_with_autocrlf_has_the_same_bytes(clone: Path) -> None:
    names = ran("git", "ls-files", "-z", cwd=clone, check=True).stdout.split("\0")
    assert len(names) > 300
    for name in filter(None, names):
        assert (clone / name).read_bytes() == (clone.with_name("whole") / name).read_bytes(), name
    done = ran(sys.executable, "-m", "cxrbench", "verify", cwd=clone)
    assert "1 recorded cells are intact" in done.stdout, done.stdout + done.stderr
    script = ran("sh", "-n", "requirements/latex.sh", cwd=clone)
    assert script.returncode == 0, script.stderr


@pytest.fixture
def of_nobody(tmp_path: Path) -> Iterator[Path]:
    """A checkout that belongs to another user."""
    if os.geteuid():
        pytest.skip("only root can give a checkout to another user")
    folder = clone_of_the_tree(tmp_path / "whole")
    ran("git", "init", "-q", cwd=folder, check=True)
    ran("chown", "-R", str(NOBODY), folder, check=True)
    yield folder


@pytest.mark.slow
@pytest.mark.fault("a checkout that belongs to another user", "git's own reason and its remedy")
def test_a_checkout_of_another_user_is_named_with_gits_remedy(
    of_nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(of_nobody / "none"))
    monkeypatch.setenv("PYTHONPATH", str(of_nobody / "src"))
    reason = why_git_fails(of_nobody)
    assert reason and "dubious ownership" in reason
    assert f"git config --global --add safe.directory {of_nobody}" in reason
    words = ("contribute", "--platform", "cpu", "--dry-run")
    said = ran(sys.executable, "-m", "cxrbench", *words, cwd=of_nobody)
    assert said.returncode == 1 and "no git checkout" not in said.stderr
    assert f"safe.directory {of_nobody}" in said.stderr
    assert "dubious ownership" in ran(sys.executable, "-m", "cxrbench", "verify", cwd=of_nobody).stdout
    assert why_git_fails(of_nobody.parent) is None and why_git_fails(ROOT) is None


def cache_of(make: Path, **environment: str) -> str:
    """Where commands of the Makefile keep caches; empty where that is left to the user's settings."""
    own = {"PATH": os.environ["PATH"], **environment}
    words = ("make", "-s", "--eval", "show: ; @echo $$XDG_CACHE_HOME", "show", f"VENV={sys.prefix}")
    return ran(*words, cwd=make, env=own, check=True).stdout.strip()


@pytest.mark.fault("a home that does not exist or cannot be written", "caches go into the checkout")
def test_without_a_home_that_can_be_written_caches_go_into_the_checkout(tmp_path: Path) -> None:
    shutil.copyfile(ROOT / "Makefile", tmp_path / "Makefile")
    inside = str(tmp_path / ".snakemake/cache")
    (home := tmp_path / "home").mkdir()
    assert cache_of(tmp_path, HOME=str(home)) == ""
    for missing in ("/dev/null", "/proc/none"):
        assert cache_of(tmp_path, HOME=missing) == inside
    assert cache_of(tmp_path, HOME="/dev/null", XDG_CACHE_HOME=str(home)) == str(home)


@pytest.mark.fault(
    "a user without an entry, a name and HOME (podman --user)", "a name, a home and a cache place"
)
def test_a_user_whom_the_system_does_not_know_has_what_a_build_asks_for() -> None:
    if os.geteuid():
        pytest.skip("only root can run a program as another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # pytest's own folders are closed to others
        shutil.copyfile(ROOT / "Makefile", folder / "Makefile")
        shown = "show: ; @echo $$USER $$HOME $$XDG_CACHE_HOME"
        words = ("make", "-s", "--eval", shown, "show", "VENV=x")
        who = {"user": UNKNOWN, "group": UNKNOWN, "extra_groups": []}
        done = ran(*words, cwd=folder, env={"PATH": os.defpath}, check=True, **who)
        assert done.stdout.split() == [str(UNKNOWN), "/", str(folder / ".snakemake/cache")]


def test_a_user_without_a_home_has_no_key_to_sign_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", unknown)
    with pytest.raises(UserError, match="there is no such ssh key; name yours with --key"):
        sign(tmp_path, None)


def test_a_user_without_a_home_can_still_clean_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as for a user without an entry

    monkeypatch.setattr(Path, "home", no_home)
    assert of_this_machine()("/tmp/x/y of me") == "<path> of me"


@pytest.mark.slow
@pytest.mark.fault("the list of what a build made is lost or cut", "all of it is made again")
@pytest.mark.parametrize("damage", ["remove", "cut", "[]"])
def test_without_the_list_of_what_was_made_all_is_made_again(damage: str, tmp_path: Path) -> None:
    folder = small_clone(tmp_path / "clone")
    built = forked.run("snakemake", [QUICK, "--config", "run=[]"], folder)
    assert built.returncode == 0, built.stderr[-2000:]
    table, listed = folder / QUICK, folder / "results/made.json"
    content, times = table.read_bytes(), table.stat()
    table.write_bytes(content.replace(b"1", b"2", 1))
    os.utime(table, ns=(times.st_atime_ns, times.st_mtime_ns))
    if damage == "remove":
        listed.unlink()
    else:
        listed.write_text(damage if damage != "cut" else listed.read_text()[:40])
    again = forked.run("snakemake", [QUICK, "--config", "run=[]"], folder)
    assert again.returncode == 0 and "to be made again" in again.stderr, again.stderr[-2000:]
    assert table.read_bytes() == content
    assert "to be made again" not in forked.run("snakemake", [QUICK, "--config", "run=[]"], folder).stderr


@pytest.mark.slow
@pytest.mark.fault("make is killed and its build lives on", "the same command waits for its end")
def test_a_build_that_lives_on_is_waited_for(tmp_path: Path) -> None:
    folder = small_clone(tmp_path / "clone")
    words = [*GRAPH, QUICK, "--config", "run=[]"]
    first = subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, text=True)
    locks = folder / ".snakemake/alive.lock"
    while first.poll() is None and not locks.exists():
        pass
    waiting = os.environ | {"CXRBENCH_WAIT": "1"}
    second = ran(*words, cwd=folder, env=waiting)
    assert first.wait(120) == 0, first.stderr.read()
    assert second.returncode == 0, second.stderr[-2000:]
    assert (
        f"process {first.pid}; wait until it ends" in second.stderr and "Waiting for its end" in second.stderr
    )


@pytest.mark.slow
def test_what_the_makefile_exports_does_not_reach_what_tests_start() -> None:
    """Under `make test-all` a build that a test expects to be refused waited for an hour."""
    exported = re.findall(r"^export (\w+) :=", (ROOT / "Makefile").read_text(), flags=re.M)
    assert "CXRBENCH_WAIT" in exported
    given = (
        os.environ | dict.fromkeys((*exported, "MAKELEVEL", "CELL"), "1") | {"PYTHONPATH": str(ROOT / "src")}
    )
    code = "import conftest, os; print(*os.environ, sep='\\n')"
    kept = ran(sys.executable, "-c", code, cwd=ROOT / "tests", env=given, check=True).stdout.split()
    assert {"CXRBENCH_WAIT", "MAKELEVEL", "CELL"}.isdisjoint(kept) and "PATH" in kept
    assert not [name for name in kept if name.startswith("CXRBENCH_") and name not in os.environ]
