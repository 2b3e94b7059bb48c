"""The ways to make the environment agree, and name nothing of the machine they were made on."""

import hashlib
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from conftest import ROOT, ran

PIN = re.compile(r"^([A-Za-z0-9_.\-]+)==([^\s;\\]+)(?:\s*;\s*([^\\]*))?", flags=re.M)
NEURONS = {"torch-neuronx", "neuronx-cc", "libneuronxla", "nki"}


def pins(name: str) -> dict[str, str]:
    """Pins of a file of requirements for Python 3.11 on Linux."""
    entries = PIN.findall((ROOT / "requirements" / name).read_text())
    elsewhere = re.compile(r">= '3\.12'|win32|AMD64|WIN32")
    return {package.lower(): version for package, version, marker in entries if not elsewhere.search(marker)}


def test_conda_installs_the_lock_with_its_hashes() -> None:
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    pip = next(entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict))
    assert pip == ["-r requirements/base.lock"] and "python=3.11" in environment["dependencies"]


@pytest.mark.fault("a package of Neuron's name on another index", "Neuron's own packages have one index")
@pytest.mark.parametrize("name", ["neuron", "torchneuron"])
def test_neurons_packages_have_one_index_and_everything_is_pinned(name: str) -> None:
    own, rest = (read_requirements(f"{name}{suffix}.txt") for suffix in ("", "-pypi"))
    assert re.fullmatch(r"--index-url https://pip[.]repos[.]neuron[.]amazonaws[.]com", own.pop(0))
    assert len(own) == {"neuron": 4, "torchneuron": 3}[name]
    assert {line.partition("==")[0] for line in own} <= NEURONS
    assert rest.pop() == "-r training.txt"
    for line in [*own, *rest, *read_requirements("training.txt")]:
        assert PIN.match(line) and (not line.endswith("*") or line == "torch-neuronx==2.14.3.0.*"), line
    docs = (ROOT / "docs/neuron.md").read_text()
    assert f"pip install --no-deps -r requirements/{name}.txt\n" in docs
    assert f"pip install -r requirements/{name}-pypi.txt $(grep == requirements/{name}.txt)\n" in docs


def read_requirements(name: str) -> list[str]:
    lines = (ROOT / "requirements" / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_small_lock_has_the_same_versions_and_no_torch() -> None:
    base, paper = pins("base.lock"), pins("paper.lock")
    assert [name for name in paper if paper[name] != base.get(name, paper[name])] == []
    assert not {"torch", "torchvision", "torch-xla", "timm", "triton"} & set(paper)
    assert not [name for name in paper if name.startswith("nvidia-")]


def test_what_trains_on_neuron_is_pinned_as_on_the_other_platforms() -> None:
    locked = pins("base.lock")
    for pinned in map(pins, ("neuron-pypi.txt", "training.txt")):
        assert len(pinned) >= 3 and pinned.items() <= locked.items()


def other_python(path: Path, version: str) -> Path:
    """A Python that says it is of another ``version``."""
    code = f"import sys; sys.version_info = ({version}, 0, 'final', 0); exec(sys.argv.pop(1))"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nshift\nexec "{sys.executable}" -c "{code}" "$@"\n')
    path.chmod(0o755)
    return path


def setup(
    venv: Path, python: Path | str = "", lock: str = "requirements/base.lock", **how: object
) -> CompletedProcess[str]:
    """Run the script behind `make setup`, as ``how`` says."""
    words = (ROOT / "requirements/setup.sh", python, venv, lock, venv / "stamp")
    return ran("sh", *words, **{"cwd": ROOT} | how)


def without_uv(folder: Path, **variables: str) -> dict[str, str]:
    """An environment whose uv is too old to be used, and that knows no other index than ``variables`` do."""
    (folder / "tools").mkdir(exist_ok=True)
    (folder / "tools/uv").write_text("#!/bin/sh\necho uv 0.7.22\n")
    (folder / "tools/uv").chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    return (
        clean
        | {"PATH": f"{folder / 'tools'}:{os.environ['PATH']}", "PIP_CONFIG_FILE": os.devnull}
        | variables
    )


def test_another_python_than_the_locks_is_one_sentence(tmp_path: Path) -> None:
    for version in ("3, 10", "3, 12"):
        done = setup(tmp_path / "venv", other_python(tmp_path / "python", version))
        assert done.returncode == 1 and "is not Python 3.11; leave PYTHON out, and uv finds" in done.stderr
    assert not (tmp_path / "venv").exists()
    other_python(tmp_path / "old/bin/python", "3, 12")
    done = setup(tmp_path / "old")
    assert done.returncode == 1 and "has another Python than 3.11" in done.stderr
    assert not (tmp_path / "old/stamp").exists()


@pytest.mark.fault("setup where Python is older than 3.9 and uv too old", "one message with what to install")
def test_a_python_that_cannot_install_uv_is_one_sentence(tmp_path: Path) -> None:
    environment = without_uv(tmp_path)
    other_python(tmp_path / "tools/python3", "3, 8")
    done = setup(tmp_path / "venv", env=environment)
    assert done.returncode == 1
    assert done.stderr == "setup: 'python3' is not Python 3.9 or newer; install one, or uv\n"


def wheel(folder: Path, name: str) -> str:
    """Put a wheel without a module into ``folder``; return its line of a lock."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        file.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return f"{name}==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


BACKEND = """
import glob, shutil
def build_wheel(folder, *_):
    return shutil.copy(glob.glob("*.whl")[0], folder).rpartition("/")[2]
build_editable = build_wheel
"""
PROJECT = """[build-system]
requires = {needs}
build-backend = "backend"
backend-path = ["."]
"""


def buildable(folder: Path, name: str, *needs: str) -> Path:
    """Write a package whose build needs others; return its folder."""
    (own := folder / f"{name}-1.0").mkdir()
    wheel(own, name)
    (own / "backend.py").write_text(BACKEND)
    (own / "pyproject.toml").write_text(PROJECT.format(needs=[*needs]))
    return own


def small_lock(folder: Path) -> tuple[Path, str]:
    """Write a checkout with a lock of three packages, one to be built; return both."""
    checkout = buildable(folder, "own")
    source = buildable(folder, "built", "first")
    packed = Path(shutil.make_archive(str(source), "gztar", folder, source.name))
    lock = f"built==1.0 --hash=sha256:{hashlib.sha256(packed.read_bytes()).hexdigest()}\n"
    lock += wheel(folder, "first") + wheel(folder, "second")
    (checkout / "some.lock").write_text(lock)
    return checkout, lock


@pytest.mark.fault("setup without a network", "one message; nothing counts as installed")
def test_setup_without_a_network_is_one_message(tmp_path: Path) -> None:
    venv, nowhere = tmp_path / "venv", "http://127.0.0.1:9/"
    done = setup(venv, sys.executable, env=without_uv(tmp_path, PIP_INDEX_URL=nowhere, PIP_RETRIES="1"))
    assert done.returncode == 1 and not (venv / "stamp").exists()
    assert done.stderr.splitlines()[1:] == [
        "setup: no network: pip cannot reach the package index; run this again when it can"
    ]


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("uv"), reason="uv is not on PATH; `make test` puts it there")
@pytest.mark.fault("a package of the lock cannot be had, or has another hash", "nothing counts as installed")
def test_uv_installs_the_lock_and_nothing_else(tmp_path: Path) -> None:
    checkout, lock = small_lock(tmp_path)
    venv = tmp_path / "venv"
    own = {"UV_CACHE_DIR": str(tmp_path / "cache"), "UV_NO_INDEX": "1"}
    done = setup(venv, sys.executable, "some.lock", cwd=checkout, env=os.environ | own)
    assert done.returncode == 1 and not (venv / "stamp").exists()
    assert done.stderr.splitlines()[-1].startswith(
        "setup: uv could not install some.lock, for the reason above"
    )
    (checkout / "bad.lock").write_text(re.sub("sha256:....", "sha256:0000", lock))
    shutil.rmtree(venv)
    none = {
        "UV_PYTHON_PREFERENCE": "only-managed",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_PYTHON_INSTALL_DIR": "no",
    }
    done = setup(venv, lock="some.lock", cwd=checkout, env=os.environ | none)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("setup: uv found no Python 3.11 and could not fetch one")
    own["UV_FIND_LINKS"] = str(tmp_path)
    done = setup(venv, sys.executable, "bad.lock", cwd=checkout, env=os.environ | own)
    assert done.returncode == 1 and "ash mismatch" in done.stderr and not (venv / "stamp").exists()
    done = setup(venv, sys.executable, "some.lock", cwd=checkout, env=os.environ | own)
    assert done.returncode == 0, done.stderr
    assert (venv / "stamp").read_text().strip() == hashlib.sha256(lock.encode()).hexdigest()
    installed = {path.name.partition("-")[0] for path in venv.glob("lib/*/site-packages/*.dist-info")}
    assert installed == {"own", "built", "first", "second"}
    again = setup(venv, "no such python", "some.lock", cwd=checkout, env={"PATH": "/usr/bin:/bin"})
    assert (again.returncode, again.stderr) == (0, "")  # the stamp is enough: neither uv nor Python is asked


def pythons() -> list[str]:
    """Return a working Python of each version from 3.9 on that lies on PATH or below pyenv."""
    working = {}
    for minor in range(9, 15):
        pyenv = sorted((Path.home() / ".pyenv/versions").glob(f"3.{minor}.*/bin/python3"))
        for path in filter(None, [shutil.which(f"python3.{minor}"), *map(str, pyenv)]):
            if ran(path, "-c", "").returncode == 0:
                working[minor] = path
    return list(working.values())


@pytest.mark.slow  # takes uv from the package index
def test_any_python_brings_uv(tmp_path: Path) -> None:
    checkout, _ = small_lock(tmp_path)
    for number, python in enumerate(pythons()):
        environment = without_uv(tmp_path, UV_FIND_LINKS=str(tmp_path))
        environment |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        (tmp_path / "tools/python3").unlink(missing_ok=True)
        (tmp_path / "tools/python3").symlink_to(python)
        environment["PATH"] += f":{Path(sys.base_prefix) / 'bin'}"  # has the Python 3.11 to be found
        done = setup(venv := tmp_path / str(number), lock="some.lock", cwd=checkout, env=environment)
        assert done.returncode == 0, f"{python}: {done.stderr}"
        version = ran(venv / "bin/python", "-c", "import sys; print(*sys.version_info[:2])").stdout
        assert version == "3 11\n", python


@pytest.mark.fault("the environment's place cannot be written", "one message that names another way")
def test_an_environment_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = setup(tmp_path / "file/venv")
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "may not be written; name another place: make VENV=/path setup" in done.stderr


@pytest.mark.fault("no LaTeX, and no root or no apt-get", "one message with what to install")
def test_no_latex_is_one_message(tmp_path: Path) -> None:
    for name in ("cat", "dirname"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    done = ran("/bin/sh", ROOT / "requirements/latex.sh", env={"PATH": str(tmp_path)})
    assert done.returncode == 1 and done.stderr.startswith("LaTeX (latexmk, pdflatex) is not installed")
    assert "sudo apt-get install latexmk" in done.stderr


@pytest.mark.parametrize("name", ["base.lock", "paper.lock", "docs.lock", "uv.txt"])
def test_every_pin_has_a_hash(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    for entry in re.split(r"\n(?=\S)", text.strip()):
        if not entry.startswith("#"):
            assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_no_registry_address_and_no_path_of_a_machine_is_committed() -> None:
    pattern = r"index[-]url|find[-]links|files[.]pythonhosted|/roo[t]/|/hom[e]/[a-z]+/"  # not itself
    own = [f":!requirements/{name}.txt" for name in ("neuron", "torchneuron")]  # on an index of their own
    done = ran("git", "grep", "-nIE", pattern, "--", ".", *own, ":!tests/test_environment.py", cwd=ROOT)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr  # 1: searched, and nothing found


@pytest.mark.parametrize(
    ("script", "package"),
    [("slurm", "slurm-wlm"), ("chromium", "chromium-driver"), ("buildah", "mmdebstrap")],
)
def test_one_bad_repository_does_not_keep_system_packages_away(
    script: str, package: str, tmp_path: Path
) -> None:
    """apt-get update fails as a whole when one of many sources does."""
    tools = {"id": "echo 0", "apt-get": f'echo "$@" >> {tmp_path}/asked; test "$1" != update || exit 100'}
    for name, body in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    done = ran("/bin/sh", ROOT / f"requirements/{script}.sh", env={"PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert package in (tmp_path / "asked").read_text()
