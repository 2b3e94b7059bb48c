"""A contribution: the records and measurements of one machine in one archive, as it is written.

``records/<cell>/`` has a cell's evidence, ``bench/`` rows of `cxrbench bench`, ``graphs/`` what a Neuron
device sent to its compiler, ``versions.json`` the software, ``SUMMARY.md`` the same in words; SHA256SUMS
lists all files. Names of machine and user, paths and addresses are left out
(:mod:`cxrbench.evidence.private`), and texts get the forms that :mod:`cxrbench.evidence.received` lets pass:
a log that had others gets another hash.
"""

import gzip
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from cxrbench.common.errors import printable
from cxrbench.common.files import sha256_file, write_json, write_text, written_aside
from cxrbench.datasets.archives import Content
from cxrbench.evidence.allowed import ROWS, as_sentence, conforming, own_lines
from cxrbench.evidence.private import clean_record, cleaned
from cxrbench.evidence.record import LOG, RECORD, Record, load_in_words, read_record
from cxrbench.evidence.store import STEP_FLOOR, Rows, copy_evidence, read_measured, with_speed
from cxrbench.evidence.sums import write_sums
from cxrbench.study.names import Cell
from cxrbench.study.platforms import ACCELERATED, PLATFORMS

FORMAT = 1
RECORDS, BENCH, SUMMARY, VERSIONS = "records", "bench", "SUMMARY.md", "versions.json"
GRAPHS = "graphs"  # that Neuron's compiler was sent, by dataset and network, named by their hashes
CONTENT = Content("training records", "ask its sender for it again")
LEFT_OUT = "names of users and machines, paths, addresses, keys and serial numbers"
_LOCK = Path(__file__).parents[3] / "requirements/base.lock"


def write_archive(
    cells: list[Cell],
    runs: Path,
    bench: Path,
    out: Path,
    clean: Callable[[str], str],
    work: Path,
    graphs: Path | None = None,
    with_log: bool = False,
) -> Path:
    """Write the evidence of ``cells`` below ``runs`` to ``out``/contribution-MACHINE-DATE.tar.gz; return it.

    ``clean`` takes out of texts what must not travel; ``work`` is an empty folder to put the files together;
    ``graphs``: a folder that may have graphs of the cells' networks; ``with_log``: failures' texts too.
    """
    records = {
        cell: _add_cell(cell.folder(runs), cell.folder(work / RECORDS), clean, with_log) for cell in cells
    }
    places = places_of(records)
    measured = {kind: with_speed(read_measured(bench / f"{kind}.json")) for kind in ROWS}
    for kind, rows in measured.items():  # of this machine and of code that has a commit
        own_rows = [row for row in rows if (row.get("platform"), row.get("machine")) in places]
        measured[kind] = [row for row in own_rows if row.get("dirty") is False]
        if measured[kind]:
            write_json(work / BENCH / f"{kind}.json", cleaned(measured[kind], clean))
    for network in {Path(cell.dataset, cell.architecture) for cell in cells if graphs}:
        if graphs and (graphs / network).is_dir():
            shutil.copytree(graphs / network, work / GRAPHS / network)
    first = next(iter(records.values()))
    write_json(work / VERSIONS, {"format": FORMAT, "commit": first.commit, "versions": first.versions})
    write_text(work / SUMMARY, overview(records, measured))
    write_sums(work)
    day = max(record.ended for record in records.values())[:10]
    path = out / f"contribution-{machines_of(first, cells[0].platform)[0]}-{day}.tar.gz"
    with (  # no owners, times or names in the headers
        written_aside(path) as aside,
        aside.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for file in sorted(file for file in work.rglob("*") if file.is_file()):
            header = tarfile.TarInfo(file.relative_to(work).as_posix())
            header.size = file.stat().st_size
            with file.open("rb") as content:
                tar.addfile(header, content)
    return path


def _add_cell(source: Path, target: Path, clean: Callable[[str], str], with_log: bool) -> Record:
    """Copy a cell's evidence, private texts taken out and hashes renewed; return the record."""
    value = read_record(source).model_dump(mode="json")
    copy_evidence(source, target)
    kept = conforming(clean_record(value, clean), with_log)
    if (log := target / LOG).exists():
        text = log.read_bytes().decode(errors="replace")
        if value["status"] != "ok" and with_log:
            plain = "".join(f"{as_sentence(line)}\n" for line in clean(text).splitlines())
        else:
            plain = own_lines(text)
        if plain != text:
            log.write_bytes(plain.encode())
            kept["log_sha256"] = sha256_file(log)
    if kept != value:  # else it keeps its bytes
        write_text(target / RECORD, Record.model_validate(kept).to_json())
    return read_record(target)


def machines_of(record: Record, platform: str) -> list[str]:
    """The folders of measurements that the machine of a record has: with its accelerator, without."""

    def folder(device: str) -> str:
        text = f"{device} {record.host.cpu} {record.host.cores} cores".lower()
        return "-".join(re.findall(r"[a-z0-9]+", text))

    return [folder(record.host.device if platform in ACCELERATED else ""), folder("")]


def places_of(records: dict[Cell, Record]) -> set[tuple[str, str]]:
    """The platforms and machines that measurements beside ``records`` may name: theirs, and any CPU's."""
    others = {*PLATFORMS, STEP_FLOOR} - ACCELERATED
    return {
        (platform, machine)
        for cell, record in records.items()
        for platform in (cell.platform, *others)
        for machine in machines_of(record, cell.platform)
    }


def overview(records: dict[Cell, Record], measured: dict[str, Rows] | None = None) -> str:
    """The contents of a contribution as Markdown: cells, outcomes, machines, versions, speeds."""
    lines = [
        "# Contribution",
        "",
        "| cell | status | AUROC (validation) | images/s | minutes |",
        "|" + "---|" * 5,
    ]
    for cell, record in records.items():
        auroc = record.history[-1].val_auroc if record.history else None
        numbers = (auroc, 3), (record.timing.images_per_second, 0), (record.timing.total_seconds / 60, 1)
        shown = ("-" if value is None else f"{value:.{digits}f}" for value, digits in numbers)
        lines.append(f"| {' | '.join([str(cell), record.status, *shown])} |")
    named = {record.machine: record for record in records.values()}
    busy = [f"{cell}: {load_in_words(rec.timing.others_share)}" for cell, rec in records.items() if rec.busy]
    for head, texts in (
        ("Machine", [*named, *{record.host.os for record in records.values()}]),
        ("Trained beside other processes", busy),
        (
            "Software",
            [f"{name} {version}" for name, version in next(iter(named.values())).versions.items() if version],
        ),
        ("Unlike the lock", sorted({text for rec in records.values() for text in unlike_lock(rec.versions)})),
        ("Code", sorted({f"commit {rec.commit}{' with changes' * rec.dirty}" for rec in records.values()})),
        ("Measured speeds", [row_in_words(row) for row in (measured or {}).get("train", [])]),
        ("Compared steps", sorted({row_in_words(row) for row in (measured or {}).get("gate", [])})),
        ("Left out", [f"{LEFT_OUT} of your machine"]),
    ):
        if texts:
            lines += ["", f"## {head}", "", *(f"- {text}" for text in texts)]
    return "".join(f"{printable(line)}\n" for line in lines)


def row_in_words(row: dict[str, object]) -> str:
    """The setting of a row of measurements, and its speed."""
    names = ("platform", "architecture", "pixels", "batch", "precision")
    units = {"pixels": "{} px", "batch": "batch {}"}
    setting = [units.get(name, "{}").format(row[name]) for name in names if name in row]
    fastest = ["fastest kernels"] if row.get("fastest") else []
    speed = [f"{row['ours']:.1f} images/s"] if isinstance(row.get("ours"), float | int) else []
    return ", ".join([*setting, *fastest, *speed])


def unlike_lock(versions: dict[str, str | None]) -> list[str]:
    """Each package of another version than this checkout's lock has, in words."""
    lock = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", _LOCK.read_text(encoding="utf-8"), re.M))
    pairs = {name: (version, lock.get(name.replace("_", "-"))) for name, version in versions.items()}
    return [
        f"{name} is {version}, the lock has {pinned}: the record says so"
        for name, (version, pinned) in pairs.items()
        if version and pinned and version != pinned
    ]
