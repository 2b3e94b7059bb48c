"""What several tests share: a small packed phantom dataset, a fast recipe, the command line."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from hypothesis import settings

import forked
from columns import SCORES
from cxrbench.common.files import write_csv
from cxrbench.cost.costs import cost_table
from cxrbench.cost.money import money_tables
from cxrbench.cost.prices import read_prices
from cxrbench.datasets.packed import pack
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.sums import write_sums
from cxrbench.neuron.audit import FILE, PACKAGES, audit_row
from cxrbench.neuron.rules import Facts, Setting
from cxrbench.paper.results import Results
from cxrbench.results.matrix import cells_table
from cxrbench.study.config import Augmentation, Limits, PhantomSource, Recipe, read_study
from cxrbench.training.job import Job
from synthetic import draw_predictions

settings.register_profile("tests", deadline=None)  # a busy machine is no failure
settings.load_profile("tests")
os.environ["COLUMNS"] = "100"  # pytest-xdist sets 80
ROOT = Path(__file__).parent.parent
os.environ["PYTHONPATH"] = str(ROOT / "src")  # of what tests start
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in the Makefile
# What make sets or the Makefile exports: a make or a build that a test starts is no part of `make test`.
for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "CXRBENCH_WAIT", "CELL", "PLATFORM", "HOURS"):
    os.environ.pop(name, None)
# Two networks at two sizes, one of them on two platforms: what the paper's prose and conclusions need.
FEW_CELLS = (
    *("nih128-64px/resnet18/cpu/*", "nih128-64px/convnext_pico/cpu/*"),
    *("nih128-32px/*/cpu/*", "nih128-32px/*/xla_cpu/*"),
)
SLOW = {"from_evidence", "from_all_evidence", "dumped", "small_disk"}  # fixtures that build, trace or mount
TINY = "test_resnet"  # timm's network for tests: 0.5 million parameters
SIZES = {"train": 900, "val": 500, "test": 520}
# XLA's CPU compiler takes ten times as long without these; the graphs are the same.
QUICK_XLA = "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"


# Minutes long: they start first, so that no worker ends long after the others.
LONG = (
    *("test_slurm", "test_graph", "test_build", "test_same_bytes", "test_xla", "test_runner"),
    *("test_report_page", "test_compiler", "test_degenerate", "test_adding", "test_neuron_day"),
)


# Under nohup or in the background of a script, signals are ignored, and what tests start would inherit that.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long ones first; what needs a whole build, traced graphs or a full disk is slow."""
    for item in items:
        if not SLOW.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


def ran(*words: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; what it printed is text. ``how``: options of :func:`subprocess.run`."""
    return subprocess.run(
        [*map(str, words)], capture_output=True, text=True, **{"timeout": forked.LONGEST} | how
    )


def clone_of_the_tree(folder: Path) -> Path:
    """What a clone would hold, uncommitted changes included, put into ``folder``."""
    listed = ran("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT, check=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def keep_recorded(clone: Path, *cells: str) -> None:
    """Leave only the recorded evidence of ``cells`` (patterns) in ``clone``: fewer are scored sooner."""
    recorded = clone / "data/recorded"
    kept = {path for cell in cells for path in recorded.glob(cell)}
    assert kept, f"nothing recorded matches {cells}"
    for path in set(recorded.glob("*/*/*/seed*")) - kept:
        shutil.rmtree(path)
    write_sums(recorded)


def small_clone(folder: Path) -> Path:
    """A clone of this tree with a single recorded cell."""
    clone = clone_of_the_tree(folder)
    keep_recorded(clone, "phantom-32px/resnet18/cpu/seed0")
    return clone


# Where and how evidence is built, and where it is built again: nothing of that is in the bytes.
ELSEWHERE = {"LC_ALL": "C", "TZ": "Pacific/Kiritimati", "PYTHONHASHSEED": "1", "USER": "one"}


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that ``make`` fills once for all workers: the first that asks does it, others wait."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with FileLock(f"{folder}.lock"):
        if not Path(f"{folder}.made").exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed
            folder.mkdir()
            make(folder)
            Path(f"{folder}.made").touch()
    return folder


def build_from_evidence(clone: Path, target: str = "paper/generated/macros.tex") -> None:
    """Build everything up to LaTeX, or another ``target``, in a ``clone``."""
    words = ("snakemake", target, "--cores", "all", "--config", "run=[]")
    done = ran(*words, cwd=clone, env=os.environ | ELSEWHERE)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def predictions() -> pd.DataFrame:
    """600 test and 500 validation patients; treat as read-only."""
    return draw_predictions(7, {"val": 500, "test": 600})


@pytest.fixture(scope="session")
def from_evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone built up to LaTeX from a few recorded cells; tests only add to it."""

    def make(folder: Path) -> None:
        keep_recorded(clone_of_the_tree(folder), *FEW_CELLS)
        build_from_evidence(folder)

    return once(tmp_path_factory, "evidence", make)


@pytest.fixture(scope="session")
def from_all_evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone built up to LaTeX from all recorded evidence, for slow tests; they only add to it."""
    return once(
        tmp_path_factory, "all-evidence", lambda folder: build_from_evidence(clone_of_the_tree(folder))
    )


@pytest.fixture(scope="session")
def latex() -> None:
    """What needs LaTeX is skipped where there is none."""
    if shutil.which("latexmk") is None:
        pytest.skip("LaTeX is not installed: run `make latex`")


def text_of(pdf: Path, *options: str) -> str:
    """The text of a PDF, or a skip where nothing here can read it."""
    if shutil.which("pdftotext") is None:
        pytest.skip("pdftotext is not installed (Debian: poppler-utils)")
    return ran("pdftotext", *options, pdf, "-", check=True).stdout


def blocks_of(page: str, heading: str, language: str) -> list[str]:
    """The fenced blocks of ``language`` in the part of a ``page`` under '## ``heading``'."""
    part = re.search(rf"^## {re.escape(heading)}$(.*?)(?=^##|\Z)", page, flags=re.M | re.S)
    return re.findall(rf"^```{language}\n(.*?)^```", part[1], flags=re.M | re.S)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A function that mounts a disk with the given options, or changes those of the one it has mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(options: str) -> Path:
        again = "remount," if folder.is_mount() else ""
        done = ran("mount", "-t", "tmpfs", "-o", again + options, "tmpfs", folder)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.is_mount():
        subprocess.run(["umount", "-l", folder], check=True)


GONE = object()


def put_at(where: str, given: Any, whole: Any) -> Any:
    """Put a value at ``where`` (``cells/0/seeds``) into nested dictionaries and lists; GONE takes it out."""
    *path, last = [int(key) if key.isdigit() else key for key in where.split("/")]
    inner = whole
    for key in path:
        inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
    inner[last] = given
    if given is GONE:
        del inner[last]
    return whole


def change_record(folder: Path, **values: object) -> None:
    """Put ``values`` into the record in ``folder``, into its parts where they are dictionaries."""
    record = json.loads((folder / "record.json").read_text())
    for name, value in values.items():
        record[name] = (record[name] or {}) | value if isinstance(value, dict) else value
    (folder / "record.json").write_text(json.dumps(record))


def scores(folder: Path) -> np.ndarray:
    """The scores of a cell's predictions."""
    return read_predictions(folder / "predictions.parquet")[SCORES].to_numpy()


def pack_phantoms(folder: Path, images: dict[str, int]) -> Path:
    """A packed dataset of phantoms at 32 px below ``folder``, with so many ``images`` per split."""
    pack("phantom-32px", PhantomSource(source="phantom", pixels=32, recipe="fast", images=images), folder)
    return folder / "phantom-32px"


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed phantom dataset of 32 px."""
    return pack_phantoms(tmp_path_factory.mktemp("packed"), SIZES)


@pytest.fixture(scope="session")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of the tiny network for three channels and a thousand classes, drawn at random."""
    import timm
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("weights") / "drawn.safetensors"
    state = timm.create_model(TINY, pretrained=False).state_dict()
    save_file({name: value + 0.01 for name, value in state.items() if value.is_floating_point()}, path)
    return path


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine that answers with ``handler`` and logs nothing."""
    handler.log_message = lambda *_: None
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def hub(drawn: Path, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which timm downloads the drawn weights as the tiny network's, from a server here."""

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = drawn.read_bytes()
            there = self.path == f"/timm/{TINY}.r160_in1k/resolve/main/model.safetensors"
            self.send_response(200 if there else 404)
            headers = {"ETag": '"1"', "X-Repo-Commit": "c" * 40, "Content-Length": str(len(body))}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

    with serving(Hub) as endpoint:
        yield {"HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path / "hub"), "NO_PROXY": "127.0.0.1"}


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    """Two short epochs."""
    return Recipe(epochs=2, batch=64, averaging=0.9, augmentation=Augmentation(), threads=2)


def a_job(work: Path, packed: Path, recipe: Recipe, **changes: object) -> Job:
    """A job with its folder below ``work``, as `cxrbench train` has it; ``changes`` are other fields."""
    values = {
        "dataset": "phantom-32px",
        "architecture": TINY,
        "platform": "cpu",
        "seed": 0,
        "recipe": recipe,
        "limits": Limits(),
        "packed": packed,
        "work": work,
        "micro_batch": recipe.batch,
    }
    job = Job(**values | changes)
    return job.model_copy(update={"work": job.cell.folder(job.work)})


@pytest.fixture
def forks() -> Iterator[None]:
    """Trainers are forks of a process that has loaded torch; those of whole builds are not."""
    forked.server("torch")  # before a runner notes what this process has started
    with forked.instead_of_starts():
        yield


@pytest.fixture
def make_job(packed: Path, recipe: Recipe, tmp_path: Path, forks: None):
    """A function that makes a job in a folder of its own; keywords change it."""
    shared = {"packed": packed, "recipe": recipe}
    return lambda name="a", **changes: a_job(tmp_path / name, **shared | changes)


@pytest.fixture(scope="session")
def nih128() -> Path:
    """10,000 real radiographs in NIH's layout, or a skip with the reason."""
    for candidate in (os.environ.get("CXRBENCH_NIH128"), ROOT / "data/raw/nih128"):
        if candidate and (Path(candidate) / "images_002.tar.gz").exists():
            return Path(candidate)
    pytest.skip("the radiographs are not here: link them as data/raw/nih128, or set CXRBENCH_NIH128")


@pytest.fixture(scope="session")
def originals(nih128: Path) -> list[Path]:
    """A few of those radiographs as NIH publishes them, at 1024 px, or a skip with the reason."""
    folder = Path(os.environ.get("CXRBENCH_ORIGINALS", nih128.with_name("nih_originals")))
    if not (files := sorted(folder.glob("*.png"))):
        pytest.skip("no radiographs of 1024 px are here: set CXRBENCH_ORIGINALS to their folder")
    return files


def write_audit(recorded: Path, *networks: tuple) -> Path:
    """Write audits of networks (name, pixels, GMAC, problem) below ``recorded``."""
    rows = [
        audit_row(
            name, Setting(pixels), Facts(gmac=gmac, problem="".join(problem)), dict.fromkeys(PACKAGES, "1")
        )
        for name, pixels, gmac, *problem in networks
    ]
    write_csv(recorded / FILE, pd.DataFrame(rows))
    return recorded


def money_results(folder: Path, study_path: Path, prices: Path, recorded: Path) -> Results:
    """The tables about cells and money of the records below ``folder``/cells; all others are empty."""
    study, paths = read_study(study_path), sorted((folder / "cells").glob("*/*/*/*/record.json"))
    costs = cost_table(paths, prices, study.prices, recorded=recorded, target_auroc=0.65, runs=10)
    tables = {"cells": cells_table(study, paths, recorded), "cost": costs}
    tables |= money_tables(costs, read_prices(prices), study, ROOT / "data/recorded")
    read = {field.name: tables.get(field.name, pd.DataFrame()) for field in fields(Results)}
    return Results(**read | {"folder": folder, "study": study, "recorded": recorded, "tables": tables})


def cxrbench(*words: object, cwd: Path = ROOT, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command line as a user does, in a process of its own, with ``given`` as its input.

    A first word that ends in .py is a script below workflow/scripts.
    """
    first, *rest = map(str, words)
    if first.endswith(".py"):
        return forked.run(str(ROOT / "workflow/scripts" / first), rest, cwd, given=given)
    return forked.run("cxrbench", [first, *rest], cwd, given=given)


def must_work(*words: object, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command that ends without an error."""
    done = cxrbench(*words, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


def must_fail(*words: object, cwd: Path = ROOT, code: int = 1) -> str:
    """Run a command that ends with this exit code and without a traceback; return its message."""
    done = cxrbench(*words, cwd=cwd)
    assert done.returncode == code and "Traceback" not in done.stderr, done.stderr
    return done.stderr
