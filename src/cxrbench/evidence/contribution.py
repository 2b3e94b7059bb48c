"""A contribution: the records and measurements of one machine in one archive, written, and read as hostile.

``records/<cell>/`` has a cell's evidence, ``bench/`` rows of `cxrbench bench`, ``graphs/`` what a Neuron
device sent to its compiler, ``versions.json`` the software, ``SUMMARY.md`` the same in words; SHA256SUMS
lists all files. Names of machine and user, paths and addresses are left out
(:mod:`cxrbench.evidence.private`): a log that had some gets another hash.
"""

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

from cxrbench.datasets.archives import Content, read_images
from cxrbench.evidence.private import clean_record, cleaned, without_places
from cxrbench.evidence.record import LOG, RECORD, Record, load_in_words, read_record
from cxrbench.evidence.store import (
    EVIDENCE_FILES,
    KEYS,
    EvidenceStore,
    Rows,
    check_evidence,
    copy_evidence,
    read_measured,
)
from cxrbench.evidence.sums import SUMS, read_sums, sums_of, updated_sums, write_sums
from cxrbench.evidence.verify import verify_recorded
from cxrbench.study.config import Study
from cxrbench.study.files import sha256_file, write_json, write_text, written_aside
from cxrbench.study.names import PART, Cell, UserError, find_cells, printable
from cxrbench.study.platforms import ACCELERATED, ENTRIES

_FORMAT = 1
RECORDS, BENCH, SUMMARY, VERSIONS = "records", "bench", "SUMMARY.md", "versions.json"
GRAPHS = "graphs"  # that Neuron's compiler was sent, by dataset and network, named by their hashes
MEASURED = ("train", "gate", "steps")  # kinds of measurements
CONTENT = Content("training records", "ask its sender for it again")
LEFT_OUT = "names of users and machines, paths, addresses and serial numbers"
_NAME = re.compile(
    rf"{re.escape(SUMMARY)}|{re.escape(VERSIONS)}|{SUMS}|{BENCH}/({'|'.join(MEASURED)})\.json"
    rf"|{GRAPHS}/{PART}/{PART}/[0-9a-f]{{64}}\.pb"
    rf"|{RECORDS}/{PART}/{PART}/{PART}/seed(0|[1-9][0-9]{{0,9}})/({'|'.join(map(re.escape, EVIDENCE_FILES))})"
)
_MACHINE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")  # becomes a folder's name
_LOCK = Path(__file__).parents[3] / "requirements/base.lock"
_MOST_FILES, _MOST_BYTES = 5000, 512 << 20


def write_archive(
    cells: list[Cell],
    runs: Path,
    bench: Path,
    out: Path,
    clean: Callable[[str], str],
    work: Path,
    graphs: Path | None = None,
) -> Path:
    """Write the evidence of ``cells`` below ``runs`` to ``out``/contribution-MACHINE-DATE.tar.gz; return it.

    ``clean`` takes out of texts what must not travel; ``work`` is an empty folder to put the files together;
    ``graphs``: a folder that may have graphs of the cells' networks.
    """
    records = {cell: _add_cell(cell.folder(runs), cell.folder(work / RECORDS), clean) for cell in cells}
    platforms = {cell.platform for cell in cells}
    for kind in MEASURED:
        rows = read_measured(bench / f"{kind}.json")
        if ours := [row for row in rows if str(row.get("platform")).split(",")[0] in platforms | {"cpu"}]:
            write_json(work / BENCH / f"{kind}.json", cleaned(ours, clean))
    for network in {Path(cell.dataset, cell.architecture) for cell in cells if graphs}:
        if graphs and (graphs / network).is_dir():
            shutil.copytree(graphs / network, work / GRAPHS / network)
    first = next(iter(records.values()))
    write_json(work / VERSIONS, {"format": _FORMAT, "commit": first.commit, "versions": first.versions})
    write_text(work / SUMMARY, overview(records))
    write_sums(work)
    day = max(record.ended for record in records.values())[:10]
    path = out / f"contribution-{_machine_name(first, cells[0].platform)}-{day}.tar.gz"
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


def _add_cell(source: Path, target: Path, clean: Callable[[str], str]) -> Record:
    """Copy a cell's evidence, private texts taken out and hashes renewed; return the record."""
    value = read_record(source).model_dump(mode="json")
    copy_evidence(source, target)
    kept = clean_record(value, clean)
    if (log := target / LOG).exists():
        text = log.read_bytes().decode(errors="replace")
        if (plain := clean(text)) != text:
            log.write_bytes(plain.encode())
            kept["log_sha256"] = sha256_file(log)
    if kept != value:  # else it keeps its bytes
        write_text(target / RECORD, Record.model_validate(kept).to_json())
    return read_record(target)


def _machine_name(record: Record, platform: str) -> str:
    device = record.host.device if platform in ACCELERATED else ""
    text = f"{device} {record.host.cpu} {record.host.cores} cores".lower()
    return "-".join(re.findall(r"[a-z0-9]+", text))


def overview(records: dict[Cell, Record]) -> str:
    """Return what a contribution holds as Markdown: cells with outcome and speed, machines, versions."""
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
        ("Software", [f"{name} {of}" for name, of in next(iter(named.values())).versions.items() if of]),
        ("Unlike the lock", sorted({text for rec in records.values() for text in unlike_lock(rec.versions)})),
        ("Code", sorted({f"commit {rec.commit}{' with changes' * rec.dirty}" for rec in records.values()})),
        ("Left out", [f"{LEFT_OUT} of your machine"]),
    ):
        if texts:
            lines += ["", f"## {head}", "", *(f"- {text}" for text in texts)]
    return "".join(f"{printable(line)}\n" for line in lines)


def unlike_lock(versions: dict[str, str | None]) -> list[str]:
    """Return in words each package of another version than this checkout's lock has."""
    lock = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", _LOCK.read_text(encoding="utf-8"), re.M))
    pairs = {name: (version, lock.get(name.replace("_", "-"))) for name, version in versions.items()}
    return [
        f"{name} is {version}, the lock has {pinned}: the record says so"
        for name, (version, pinned) in pairs.items()
        if version and pinned and version != pinned
    ]


def unpack(archive: Path, folder: Path) -> list[Cell]:
    """Unpack a contribution into an empty ``folder`` and return its cells, each checked by itself.

    UserError for anything that :func:`write_archive` does not write; then remove ``folder``.
    """
    if not archive.is_file() or not archive.name.lower().endswith((".tar.gz", ".tgz")):
        raise UserError(f"{archive}: no contribution of this name; name a file contribution-....tar.gz")
    count, size = 0, 0

    def name_of(name: str) -> str:
        if not _NAME.fullmatch(name):
            raise UserError(f"{archive}: '{printable(name)}' is no part of a contribution: {CONTENT.foreign}")
        return name

    for name, where, data in read_images([archive], name_of=name_of, content=CONTENT):
        count, size = count + 1, size + len(data)
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise UserError(
                f"{where}: more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes: {CONTENT.foreign}"
            )
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    if read_sums(folder) != (present := sums_of(folder)):
        listed = read_sums(folder)
        wrong = min(name for name in {*listed, *present} if listed.get(name) != present.get(name))
        raise UserError(f"{archive}: {printable(wrong)} is not as {SUMS} lists it; {CONTENT.again}")
    if renamed := [
        name for name, sha in present.items() if name.startswith(f"{GRAPHS}/") and sha not in name
    ]:
        raise UserError(
            f"{archive}: {renamed[0]} does not have the hash that it is named by; {CONTENT.again}"
        )
    _check_version(archive, folder)
    if not (cells := find_cells(folder / RECORDS)):
        raise UserError(f"{archive}: it has no record; {CONTENT.again}")
    if lone := [name for name in present if name.startswith(f"{RECORDS}/") and not _of(name, cells)]:
        raise UserError(f"{archive}: {lone[0]} lies beside no record; {CONTENT.again}")
    try:
        for cell in cells:
            check_evidence(cell.folder(folder / RECORDS), cell)
        for kind in MEASURED:
            _check_rows(folder / BENCH / f"{kind}.json", kind)
    except UserError as error:
        raise UserError(f"{archive}: {str(error).replace(f'{folder}/', '')}") from None
    return cells


def _of(name: str, cells: list[Cell]) -> bool:
    return Cell.parse(name.removeprefix(f"{RECORDS}/").rpartition("/")[0]) in cells


def _check_version(archive: Path, folder: Path) -> None:
    try:
        version = json.loads((folder / VERSIONS).read_text(encoding="utf-8"))["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise UserError(f"{archive}: {VERSIONS} is missing or damaged; {CONTENT.again}") from None
    if version != _FORMAT:
        other = f"its format is {printable(version)[:20]}, this cxrbench reads {_FORMAT}"
        raise UserError(f"{archive}: {other}; update both checkouts with git pull and send it again")


def _check_rows(path: Path, kind: str) -> None:
    """Raise UserError for rows of measurements that would be no rows in a build, or leave their folder."""
    for number, row in enumerate(_finite(path)):
        texts = [name for name in ("machine", "measured", "commit", *KEYS[kind]) if name not in row]
        if texts or not _MACHINE.fullmatch(str(row["machine"])):
            fault = f"lacks {texts[0]}" if texts else f"names the machine '{printable(row['machine'])[:60]}'"
            raise UserError(f"{path}: row {number} {fault}; {CONTENT.again}")
        if cleaned(row, without_places) != row:
            raise UserError(f"{path}: row {number} has a path or an address; {CONTENT.again}")


def _finite(path: Path) -> Rows:
    rows = read_measured(path)
    try:
        json.dumps(rows, allow_nan=False)
    except (ValueError, RecursionError):
        raise UserError(f"{path}: a number is infinite or none; {CONTENT.again}") from None
    return rows


def keep_graphs(folder: Path, recorded: Path) -> int:
    """Copy the graphs of an unpacked contribution to what is recorded; return how many there are."""
    if (folder / GRAPHS).is_dir():
        with updated_sums(recorded):
            shutil.copytree(folder / GRAPHS, recorded / GRAPHS, dirs_exist_ok=True)
    return len(list((folder / GRAPHS).rglob("*.pb")))


def problems_with(cells: list[Cell], runs: Path, recorded: Path, study: Study, work: Path) -> list[str]:
    """Return what is wrong with the evidence of ``cells`` below ``runs``, beside all that is recorded.

    ``work``: an empty folder in a checkout, whose history has the commits.
    """
    copy = work / "recorded"
    shutil.copytree(recorded, copy, ignore=shutil.ignore_patterns(f"{SUMS}.sig", ".*"))
    store = EvidenceStore(copy)
    store.keep(cells, runs)
    problems = verify_recorded(copy, study).problems
    for cell in cells:
        where = cell.folder(copy)
        if cell.platform not in ENTRIES:
            problems.append(f"{where}: this version has no platform {cell.platform}")
        elif cell.dataset not in study.datasets:
            problems.append(f"{where}: the study has no dataset {cell.dataset}")
        elif reason := store.source_of(cell, study).reason:
            problems.append(reason)
        if _tells(where):
            problems.append(f"{where}: it has a path, an address or a serial number of a machine")
    return [problem.replace(f"{copy}/", "") for problem in dict.fromkeys(problems)]


def _tells(folder: Path) -> bool:
    """Return whether a cell's evidence has what :func:`write_archive` leaves out."""
    value = read_record(folder).model_dump(mode="json")
    log = folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    return clean_record(value, without_places) != value or without_places(text) != text
