"""The steps of ``cxrbench contribute`` on the machine of whoever contributes."""

from __future__ import annotations

import multiprocessing
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil

from cxrbench.cli.get import data_get, lacking_of, must_be_asked_for
from cxrbench.cli.train import job_of, train
from cxrbench.cli.words import RESULTS, TIMED, must_run_here, ours, say, work_folder, wrapped
from cxrbench.common.errors import UserError, and_more
from cxrbench.common.files import why_git_fails
from cxrbench.evidence import contribution
from cxrbench.evidence.private import of_this_machine
from cxrbench.evidence.record import RECORD, Record, commit_of_code, read_record, this_machine
from cxrbench.evidence.store import (
    GATE,
    KEYS,
    EvidenceStore,
    Rows,
    check_evidence,
    differing_steps,
    read_measured,
)
from cxrbench.study.config import TableSource, read_study
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED, installed
from cxrbench.training.plan import JobNeeds, must_be_architectures
from cxrbench.training.queue import fitting, in_order, minutes_of

_RUNS, _BENCH, _GRAPHS = RESULTS / "runs", RESULTS / "bench", RESULTS / "graphs"
_SPARE = 2 << 30  # bytes of disk for checkpoints, logs and the archive
_SHOWN = 4  # cells in a message
_DECISIVE = ("torch", "torchvision", "timm", "numpy")  # packages whose versions are told first


def _described(platform: str) -> dict[str, Any]:
    from cxrbench.study import platforms

    return platforms.load(platform, 1, "fp32").describe()


def _check_commit() -> None:
    """Raise UserError where a record could not name the code that ran."""
    commit, dirty = commit_of_code()
    if dirty:
        if reason := why_git_fails(Path(__file__).parent):
            raise UserError(reason)
        in_git = commit != "unknown"
        reason = f"this code differs from commit {commit[:12]}" if in_git else "this is no git checkout"
        raise UserError(f"{reason}: a record must name the code that ran; see `git status`, or clone it anew")


class Contributor:
    """This machine, and the cells that it trains: ``named``, else planned ones of ``platform``."""

    def __init__(
        self,
        study: Path,
        recorded: Path,
        packed: Path,
        registry: Path,
        platform: str,
        named: list[Cell],
        hours: float,
        processes: int | None = None,
    ) -> None:
        self.file, self.recorded, self.packed, self.registry = study, recorded, packed, registry
        self.study, self.store = read_study(study), EvidenceStore(recorded)
        self.processes = processes or self.study.limits.processes
        self.platform, self.named, self.until = platform, named, time.monotonic() + 3600 * hours
        self.records = {
            cell: run
            for cell, run in self.store.records().items()
            if cell.dataset in self.study.datasets and self.store.source_of(cell, self.study).record
        }
        planned = {cell for cell in self.study.all_cells() if cell.platform == platform} - self.records.keys()
        self.done = {cell: run for cell in named or sorted(planned) if (run := self._finished(cell))}

    def _finished(self, cell: Cell) -> Record | None:
        """The record of an earlier call of this command, as it would be made now."""
        if not (cell.folder(_RUNS) / RECORD).exists():
            return None
        record = check_evidence(cell.folder(_RUNS), cell)
        alike = record.recipe_hash == self.study.recipe(cell.dataset).hash() and not record.dirty
        return record if alike else None

    def to_train(self) -> list[Cell]:
        """The cells that are still to be trained, next one first."""
        if self.named:
            return [cell for cell in self.named if cell not in self.done]
        left = max(0.0, self.until - time.monotonic()) / 3600
        records = self.records | self.done
        return fitting(in_order(self.study, records, self.platform), left, self.study, records)

    @cached_property
    def device(self) -> dict[str, Any]:
        """What the platform says of the accelerator, asked in a process that leaves it free again."""
        if self.platform not in ACCELERATED:
            return {}
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            return process.submit(_described, self.platform).result()

    def check_and_say(self, fetch: bool) -> None:
        """Raise UserError for what stands against it; else say what will be done and sent, and how long."""
        must_run_here(self.platform)
        cells = self.to_train()
        self._check_cells(cells)
        _check_commit()
        datasets = list(dict.fromkeys(cell.dataset for cell in cells))
        lacking = lacking_of(self.study, datasets, self.registry, self.packed)
        self._check_room(cells, lacking.size())
        downloads = lacking.downloads()
        names = ", ".join(map(str, cells[:_SHOWN])) + and_more(max(0, len(cells) - _SHOWN))
        earlier = f" ({len(self.done)} more are trained already)" if self.done else ""
        for line in (
            f"machine: {self._machine()}",
            *contribution.unlike_lock({name: installed(name) for name in _DECISIVE}),
            f"to train: {names or 'nothing'}{earlier}",
            f"time: {self._time(cells)}",
            f"download: {'; '.join(downloads) or 'nothing'}",
            "to send: this command sends nothing. It writes one archive with records, predictions, logs, "
            f"speeds, versions and what the first line says; without {contribution.LEFT_OUT}",
        ):
            say(wrapped(line))
        if not (cells or self.done):
            raise UserError(
                f"no planned cell of {self.platform} without a record fits; give more --hours, or name cells"
            )
        must_be_asked_for(downloads, fetch, "add --fetch (with make: FETCH=1)")

    def _machine(self) -> str:
        """This machine in words, without a name."""
        about = this_machine()
        words = [f"{self.device[key]}" for key in ("device", "driver") if self.device.get(key)]
        if memory := self.device.get("device_memory_gib"):
            words.append(f"{memory} GiB on the device")
        words += [about["cpu"], f"{about['cores']} cores", f"{about['memory_gib']} GiB", about["os"]]
        return ", ".join(words)

    def _time(self, cells: list[Cell]) -> str:
        """In words how long ``cells`` take by recorded runs."""
        times = [minutes_of(cell, self.study, self.records | self.done) for cell in cells]
        hours = f"about {sum(filter(None, times)) / 60:.1f} h by recorded runs" if any(times) else "unknown"
        unknown = f"; nothing is recorded of {count} cells" if (count := times.count(None)) else ""
        first = "; each network's step is compared with the exact one before"
        return f"{hours}{unknown}{first if self.platform != 'cpu' else ''}"

    def _check_cells(self, cells: list[Cell]) -> None:
        must_be_architectures([cell.architecture for cell in cells], "correct the name of the cell")
        for cell in cells:
            if cell.platform != self.platform:
                raise UserError(
                    f"{cell} is on another platform than {cells[0]}: contribute them one after the other"
                )
            if isinstance(self.study.dataset(cell.dataset), TableSource):
                raise UserError(
                    f"{cell}: its images are your own, and predictions name images and patients; "
                    "leave it out, because it is not packed"
                )

    def _check_room(self, cells: list[Cell], download: int) -> None:
        """Raise UserError where memory or disk is too small."""
        needs, there = JobNeeds(self.study, self.store), psutil.virtual_memory().total / 2**30
        for cell in cells:
            if (needed := int(needs.of(cell)["memory_mib"]) / 1024) > there:
                memory = f"about {needed:.1f} GiB of memory, this machine has {there:.1f}"
                raise UserError(f"{cell} needs {memory}: name another cell")
        free = shutil.disk_usage(Path.cwd()).free
        if (needed := download + _SPARE) > free:
            room = f"about {needed / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free"
            raise UserError(f"{Path.cwd()}: {room}; free some space, or use a checkout on another disk")

    def work(self, fetch: bool, bench_minutes: float) -> None:
        """Check the steps, fetch and pack, train, measure speed."""
        while cells := self.to_train():
            cell = cells[0]
            self._compare_steps(cell)
            data_get([cell.dataset], self.file, fetch, False, None, self.registry, self.packed, self.recorded)
            manifest = self.packed / cell.dataset / "manifest.json"
            train(str(cell), self.file, manifest, processes=self.processes)
            self.done[cell] = read_record(cell.folder(_RUNS))
            self._collect_graphs(cell)
        end = time.monotonic() + 60 * bench_minutes
        settings = dict.fromkeys((cell.architecture, cell.dataset) for cell in self.done)
        for architecture, dataset in settings if self.platform in TIMED else ():
            if time.monotonic() < end:
                recipe, pixels = self.study.recipe(dataset), self.study.dataset(dataset).pixels
                setting = ("--pixels", pixels, "--batch", recipe.batch, "--precision", recipe.precision)
                brief = () if self.platform in ACCELERATED else ("--blocks", 3, "--steps", 1)
                ours("bench", "train", architecture, "--platform", self.platform, *setting, *brief)

    def _compare_steps(self, cell: Cell) -> None:
        """Put a network's step through the gate, once; UserError where an operator differs."""
        if self.platform == "cpu":
            return  # the reference itself
        if (rows := self._gate(cell)) and not differing_steps(rows):
            return
        _, architecture, precision, pixels, batch = self._gate_of(cell)
        where = ("--platforms", self.platform, "--precision", precision)
        if ours("bench", "steps", architecture, *where, "--pixels", pixels, "--batch", batch):
            rows = differing_steps(self._gate(cell))
            worst = next(
                (f"{tensor['operator']}: {tensor['tensor']}" for row in rows for tensor in row["worst"]), None
            )
            reason = worst or "the lines above say why"
            raise UserError(f"{cell} is not trained, its step differs from the exact one: {reason}")

    def _gate(self, cell: Cell) -> Rows:
        """The result of the gate for the cell's network on this platform, at its size."""
        kind = self._gate_of(cell)
        return [row for row in read_measured(GATE) if tuple(row[name] for name in KEYS["gate"]) == kind]

    def _gate_of(self, cell: Cell) -> tuple[Any, ...]:
        """The settings of the gate for a cell, as KEYS names them: size and batch of one of its processes."""
        recipe, pixels = self.study.recipe(cell.dataset), self.study.dataset(cell.dataset).pixels
        batch = recipe.batch // self.processes
        return self.platform, cell.architecture, recipe.precision, pixels, batch

    def _collect_graphs(self, cell: Cell) -> None:
        """Keep what a Neuron device sends to its compiler, so that anybody can compile it; once a network."""
        folder = _GRAPHS / cell.dataset / cell.architecture
        if self.platform != "neuron" or folder.exists():
            return
        from cxrbench.training.precompile import collect

        manifest = self.packed / cell.dataset / "manifest.json"
        try:
            job = job_of(cell, self.file, manifest, RESULTS / "checkpoints", self.processes)
            count = collect(job, folder)
            say(f"{cell}: {count} graphs are kept for `cxrbench compile --from`")
        except UserError as error:
            say(f"{error}; the contribution has no graphs of it")

    def send(self, out: Path, with_log: bool) -> None:
        """Verify and pack what was trained, read it as its receiver will, and print how to send it."""
        from cxrbench.evidence import received

        with work_folder() as work, work_folder() as aside:
            cells = list(self.done)
            packed = (cells, _RUNS, _BENCH, out, of_this_machine(), work, _GRAPHS, with_log)
            archive = contribution.write_archive(*packed)
            try:
                received.unpack_limited(archive, aside)
                runs = aside / contribution.RECORDS
                problems = received.verified_with(cells, runs, self.recorded, self.study, aside).problems
            except UserError as error:
                problems = [str(error)]
            if problems:
                archive.unlink()
                raise UserError(
                    "\n".join([*problems, "nothing was packed: the records above are not as they should be"])
                )
        size, branch = archive.stat().st_size / 1e6, archive.name.removesuffix(".tar.gz")
        say(
            f"wrote {archive} ({size:.1f} MB; {contribution.SUMMARY} in it says what it holds).\n"
            "Send it in one of two ways:\n"
            "  as a file: open an issue 'I have a record' and attach it there\n"
            f"  as a pull request: git switch -c {branch} &&\n"
            f"    cxrbench contribute --receive {archive} --no-build &&\n"
            f"    git add data/recorded && git commit -m 'Record cells on {self.platform}' && git push"
        )
