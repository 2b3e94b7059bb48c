"""An archive of a stranger: read as hostile, checked whole, compared with what is recorded, and kept at once.

Reading happens in a process of its own with limits on memory and time that the system holds: an archive that
needs more is refused. Everything is checked before anything is written.
"""

import multiprocessing
import os
import re
import resource
import shutil
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from cxrbench.common.errors import UserError, printable
from cxrbench.common.files import json_text
from cxrbench.datasets.archives import read_images
from cxrbench.evidence.allowed import IMAGE, ROWS, SENTENCE, Versions, is_own, odd_in_record
from cxrbench.evidence.contribution import (
    BENCH,
    CONTENT,
    FORMAT,
    GRAPHS,
    RECORDS,
    SUMMARY,
    VERSIONS,
    places_of,
    row_in_words,
)
from cxrbench.evidence.history import other_recipes
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.private import clean_record, cleaned, without_places
from cxrbench.evidence.record import LOG, RECORD, Record, read_json, read_record
from cxrbench.evidence.store import (
    DEFAULTS,
    EVIDENCE_FILES,
    KEYS,
    EvidenceStore,
    Rows,
    check_evidence,
    copy_all,
    merged,
    read_measured,
)
from cxrbench.evidence.sums import SUMS, link_problems, read_sums, sums_of, updated_sums
from cxrbench.evidence.verify import Verified, verify_recorded
from cxrbench.statistics.predictions import LABEL, SCORE
from cxrbench.study.config import Study
from cxrbench.study.names import PART, Cell, find_cells
from cxrbench.study.platforms import ENTRIES

MOST_MEMORY, MOST_SECONDS = 1 << 30, 60  # of the process that reads an archive: bytes, seconds
_MIB = 1 << 20
_LARGEST = {  # bytes of a file, by the end of its name
    LOG: _MIB,
    RECORD: _MIB,
    SUMMARY: _MIB,
    VERSIONS: _MIB,
    SUMS: _MIB,
    ".json": 4 * _MIB,
    ".parquet": 32 * _MIB,
    ".pb": 32 * _MIB,
}
_MOST_FILES, _MOST_BYTES = 1000, 256 * _MIB
_MOST_ROWS = 500_000  # of predictions and of measurements together
_LONGEST_LINE = 500
_FILES = "|".join(map(re.escape, EVIDENCE_FILES))
_NAME = re.compile(
    rf"{re.escape(SUMMARY)}|{re.escape(VERSIONS)}|{SUMS}|{BENCH}/({'|'.join(ROWS)})\.json"
    rf"|{GRAPHS}/{PART}/{PART}/[0-9a-f]{{64}}\.pb"
    rf"|{RECORDS}/{PART}/{PART}/{PART}/seed(0|[1-9][0-9]{{0,9}})/({_FILES})",
    re.ASCII,
)


def unpack_limited(archive: Path, folder: Path) -> list[Cell]:
    """The result of :func:`unpack`, from a process that may have :data:`MOST_MEMORY` and a minute."""
    context = multiprocessing.get_context("spawn")  # none of what this process holds
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_unpack_and_tell, args=(archive, folder, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(MOST_SECONDS):
            raise UserError(f"{archive}: reading it takes more than {MOST_SECONDS} s; {CONTENT.again}")
        told = ours.recv()
    except EOFError:
        limit = f"{MOST_MEMORY >> 20} MiB of memory"
        raise UserError(f"{archive}: reading it takes more than {limit}; {CONTENT.again}") from None
    finally:
        process.kill()
        process.join()
    if isinstance(told, str):
        raise UserError(told)
    return [Cell.parse(name) for name in told]


def _unpack_and_tell(archive: Path, folder: Path, tell: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    # For a reader that outlives who waits for it: of several threads, so that the wait ends first.
    seconds = MOST_SECONDS * (1 + (os.cpu_count() or 1))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        tell.send([str(cell) for cell in unpack(archive, folder)])
    except UserError as error:
        tell.send(str(error))
    except MemoryError:
        os._exit(1)  # which the other side hears


def unpack(archive: Path, folder: Path) -> list[Cell]:
    """Unpack a contribution into an empty ``folder`` and return its cells, each checked by itself.

    UserError for anything that ``write_archive`` does not write; then remove ``folder``.
    """
    if not archive.is_file() or not archive.name.lower().endswith((".tar.gz", ".tgz")):
        raise UserError(f"{archive}: no contribution of this name; name a file contribution-....tar.gz")
    count, size = 0, 0

    def name_of(name: str) -> str:
        if not _NAME.fullmatch(name):
            raise UserError(f"{archive}: '{printable(name)}' is no part of a contribution: {CONTENT.foreign}")
        return name

    for name, where, content in read_images([archive], name_of=name_of, content=CONTENT):
        count, size = count + 1, size + len(content)
        if count > _MOST_FILES or size > _MOST_BYTES:
            raise UserError(
                f"{where}: more than {_MOST_FILES:,} files or {_MOST_BYTES:,} bytes: {CONTENT.foreign}"
            )
        most = next(most for end, most in _LARGEST.items() if name.endswith(end))
        if len(content) > most:
            raise UserError(f"{where}: {len(content):,} bytes, more than {most:,}: {CONTENT.foreign}")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    try:
        return _checked(folder)
    except UserError as error:
        raise UserError(f"{archive}: {str(error).replace(f'{folder}/', '')}") from None


def _checked(folder: Path) -> list[Cell]:
    """The cells of an unpacked contribution; UserError for the first thing that is wrong."""
    if (listed := read_sums(folder)) != (present := sums_of(folder)):
        wrong = min(name for name in {*listed, *present} if listed.get(name) != present.get(name))
        raise UserError(f"{printable(wrong)} is not as {SUMS} lists it; {CONTENT.again}")
    _check_versions(folder / VERSIONS)
    if not (cells := find_cells(folder / RECORDS)):
        raise UserError(f"it has no record; {CONTENT.again}")
    if lone := [name for name in present if name.startswith(f"{RECORDS}/") and not _of(name, cells)]:
        raise UserError(f"{lone[0]} lies beside no record; {CONTENT.again}")
    networks = {f"{GRAPHS}/{cell.dataset}/{cell.architecture}" for cell in cells}
    for name, sha in present.items():
        if not name.startswith(f"{GRAPHS}/"):
            continue
        if sha not in name:
            raise UserError(f"{name} does not have the hash that it is named by; {CONTENT.again}")
        if name.rpartition("/")[0] not in networks:
            raise UserError(f"{name} is of no network that it has a record of; {CONTENT.again}")
    records: dict[Cell, Record] = {}
    for cell in cells:
        where = cell.folder(folder / RECORDS)
        record = records[cell] = check_evidence(where, cell)
        for problem in (*odd_in_record(record), *_odd_log(where / LOG, record)):
            raise UserError(f"{where / RECORD}: {printable(problem)}; {CONTENT.again}")
        for file in sorted(where.glob("*.parquet")):
            _check_predictions(file, record)
    places = places_of(records)
    for kind in ROWS:
        _check_rows(folder / BENCH / f"{kind}.json", kind, places)
    return cells


def _of(name: str, cells: list[Cell]) -> bool:
    return Cell.parse(name.removeprefix(f"{RECORDS}/").rpartition("/")[0]) in cells


def _check_versions(path: Path) -> None:
    try:
        given = read_json(path)
    except UserError:
        raise UserError(f"{VERSIONS} is missing or damaged; {CONTENT.again}") from None
    if isinstance(given, dict) and (version := given.get("format")) != FORMAT:
        reason = f"its format is {printable(version)[:20]}, this cxrbench reads {FORMAT}"
        raise UserError(f"{reason}; update both checkouts with git pull and send it again")
    _typed(path, Versions, given)


def _typed(path: Path | str, model: Any, given: Any) -> None:
    try:
        model.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path}: {printable(key)[:100]}: {printable(first['msg'])[:300]}; {CONTENT.again}"
        ) from None


def _odd_log(path: Path, record: Record) -> Iterator[str]:
    """Yield what in a log is neither a trainer's own line nor, of a failed run, a text of known form."""
    if not path.exists():
        if record.status == "ok":
            yield f"there is no {LOG}, which every trainer writes"
        return
    for number, line in enumerate(path.read_bytes().decode(errors="replace").split("\n"), 1):
        known = not line or is_own(line)
        if not known and record.status != "ok":  # with --send-log
            known = len(line) <= _LONGEST_LINE and SENTENCE.fullmatch(line) is not None
        if not known:
            yield f"line {number} of {LOG} has another form than a trainer's: {line[:80]!r}"
            return


def _check_predictions(path: Path, record: Record) -> None:
    """Raise UserError for columns, rows or names of images that no predictions have."""
    from pyarrow import ArrowException, parquet

    findings = record.dataset.positive_images if record.dataset else {}
    columns = {f"{kind}{finding}" for kind in (LABEL, SCORE) for finding in findings}
    try:
        with parquet.ParquetFile(path) as file:
            names, rows = file.schema_arrow.names, file.metadata.num_rows
    except (ArrowException, OSError, ValueError):
        read_predictions(path)  # it says why
        raise
    if odd := [name for name in names if name not in {"image", "patient", "split", *columns}]:
        raise UserError(f"{path}: unknown column '{printable(odd[0])[:60]}'; {CONTENT.again}")
    if rows > _MOST_ROWS:
        raise UserError(f"{path}: {rows:,} rows, more than {_MOST_ROWS:,}; {CONTENT.again}")
    table = read_predictions(path)
    for name in ("image", "patient"):
        if name in table and not (texts := table[name].astype(str)).str.fullmatch(IMAGE.pattern).all():
            first = texts[~texts.str.fullmatch(IMAGE.pattern)].iloc[0]
            raise UserError(f"{path}: {name} '{printable(first)[:60]}' is no name of one; {CONTENT.again}")


def _check_rows(path: Path, kind: str, places: set[tuple[str, str]]) -> None:
    """Raise UserError for rows of measurements that are none, or that belong to no record's machine."""
    if not path.exists():
        return
    rows = read_json(path)
    if not isinstance(rows, list) or not 0 < len(rows) <= _MOST_ROWS // 100:
        raise UserError(f"{path}: a list of rows is expected; {CONTENT.again}")
    settings = set()
    for number, row in enumerate(rows):
        _typed(f"{path}: row {number}", ROWS[kind], row)
        if (row["platform"], row["machine"]) not in places:
            named = f"names {row['platform']} on '{row['machine'][:60]}', of which it has no record"
            raise UserError(f"{path}: row {number} {named}; {CONTENT.again}")
        if cleaned(row, without_places) != row:
            raise UserError(f"{path}: row {number} has a path or an address; {CONTENT.again}")
        setting = (*_setting(row, kind), row.get("step"))
        if setting in settings:
            raise UserError(f"{path}: row {number} has the settings of another row; {CONTENT.again}")
        settings.add(setting)


def _setting(row: dict[str, Any], kind: str) -> tuple[Any, ...]:
    return tuple((DEFAULTS | row).get(name) for name in KEYS[kind])


# -- beside what is recorded -------------------------------------------------------------------------


def measured_in(folder: Path) -> dict[str, Rows]:
    """The rows of measurements of an unpacked contribution by kind."""
    return {kind: read_measured(folder / BENCH / f"{kind}.json") for kind in ROWS}


class RowChanges(NamedTuple):
    """What the measurements of a contribution become, and what they would replace, in words."""

    files: dict[Path, Rows]  # below data/recorded
    replaced: list[str]


def row_changes(folder: Path, recorded: Path) -> RowChanges:
    """The files that the rows of an unpacked contribution change, and recorded rows that differ."""
    files: dict[Path, Rows] = {}
    replaced: list[str] = []
    for kind, rows in measured_in(folder).items():
        for machine in dict.fromkeys(row["machine"] for row in rows):
            place = Path(BENCH) / machine / f"{kind}.json"
            before = read_measured(recorded / place)
            sent = [row for row in rows if row["machine"] == machine]
            of_setting: dict[tuple[Any, ...], tuple[Rows, Rows]] = {}
            for new, some in enumerate((before, sent)):
                for row in some:
                    of_setting.setdefault(_setting(row, kind), ([], []))[new].append(row)
            both = {key: pair for key, pair in of_setting.items() if all(pair) and pair[0] != pair[1]}
            replaced += [f"{place}: {_change(*pair)}" for pair in both.values()]
            if merged(before, sent, kind) != before:
                files[place] = merged(before, sent, kind)
    return RowChanges(files, replaced)


def _change(old: Rows, new: Rows) -> str:
    """The changes in rows of one setting, recorded -> new: the first numbers, and how many more."""
    setting = row_in_words({key: value for key, value in old[0].items() if key != "ours"})
    changes = [
        f"{name} {was:.6g} -> {now:.6g}"
        for before, after in zip(old, new, strict=False)
        for name, was in before.items()
        if type(was) in (int, float) and type(now := after.get(name)) in (int, float) and was != now
    ]
    if len(old) != len(new):
        changes.insert(0, f"{len(old)} rows -> {len(new)}")
    more = f" and {len(changes) - 3} other numbers" if len(changes) > 3 else ""
    return f"{setting}: {'; '.join(changes[:3]) or 'measured at another time'}{more}"


def keep_received(cells: list[Cell], folder: Path, changes: RowChanges, recorded: Path) -> int:
    """Write what was checked to what is recorded, all files aside first; return how many graphs there are.

    ``cells``: those that are not recorded yet, or are to be replaced.
    """
    graphs = sorted((folder / GRAPHS).rglob("*.pb"))
    texts = {recorded / graph.relative_to(folder): graph.read_bytes() for graph in graphs}
    texts |= {recorded / place: json_text(rows).encode() for place, rows in changes.files.items()}
    with updated_sums(recorded):
        copy_all([(cell.folder(folder / RECORDS), cell.folder(recorded)) for cell in cells], texts)
    return len(graphs)


def verified_with(cells: list[Cell], runs: Path, recorded: Path, study: Study, work: Path) -> Verified:
    """The messages of verification about all that is recorded with the evidence of ``cells`` below ``runs``.

    ``work``: an empty folder in a checkout, whose history has the commits.
    """
    if linked := next(link_problems(recorded), None):  # copied, it would be one no more
        raise UserError(linked)
    copy = work / "recorded"
    shutil.copytree(recorded, copy, ignore=shutil.ignore_patterns(f"{SUMS}.sig", ".*"))
    store = EvidenceStore(copy)
    store.keep(cells, runs)
    verified = verify_recorded(copy, study)
    for cell, text in other_recipes(copy, {cell: read_record(cell.folder(copy)) for cell in cells}):
        verified.problems.append(f"{cell.folder(copy) / RECORD}: {text}")
    for cell in cells:
        where = cell.folder(copy)
        if cell.platform not in ENTRIES:
            verified.problems.append(f"{where}: this version has no platform {cell.platform}")
        elif cell.dataset not in study.datasets:
            verified.problems.append(f"{where}: the study has no dataset {cell.dataset}")
        elif reason := store.source_of(cell, study).reason:
            verified.problems.append(reason)
        else:
            verified.problems += _odd_settings(where, read_record(where), study, cell)
        if _tells(where):
            verified.problems.append(f"{where}: it has a path, an address or a serial number of a machine")

    def plain(texts: list[str]) -> list[str]:
        return [printable(text).replace(f"{copy}/", "") for text in dict.fromkeys(texts)]

    return Verified(
        verified.cells,
        plain(verified.problems),
        verified.not_checked,
        verified.signature,
        plain(verified.notes),
    )


def _odd_settings(where: Path, record: Record, study: Study, cell: Cell) -> Iterator[str]:
    """Yield settings of the record's dataset that the study's has not."""
    settings = (record.dataset.settings or {}) if record.dataset else {}
    for name in settings.keys() - study.dataset(cell.dataset).settings().keys():
        yield f"{where}: dataset.settings has the unknown key '{name}'"


def _tells(folder: Path) -> bool:
    """Whether a cell's evidence has what ``write_archive`` leaves out."""
    value = read_record(folder).model_dump(mode="json")
    log = folder / LOG
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    host = {name: fact for name, fact in value["host"].items() if isinstance(fact, str)}
    return (
        clean_record(value, without_places) != value
        or without_places(text) != text
        or cleaned(host, without_places) != host
    )
