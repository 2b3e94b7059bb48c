"""All files of a dataset at once: what is there already, room on the disk, transfers side by side."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrbench.datasets.download import Download, Patience, digest_of, part_of, sources_of
from cxrbench.datasets.progress import Reporter, progress
from cxrbench.datasets.registry import RemoteFile
from cxrbench.datasets.streams import Broken, Refused, new_session, opened
from cxrbench.errors import UserError

State = Literal["present", "missing", "damaged"]


@dataclass(frozen=True)
class FileState:
    """What stands under a file's name, and why it is taken for that."""

    file: RemoteFile
    state: State
    why: str


def inspect(files: list[RemoteFile], folder: Path, jobs: int) -> list[FileState]:
    """Each file's state by size and hash, in order; reads everything that is there."""
    total = sum(_size(folder / file.name) for file in files)
    with progress("checking", total) as tell, ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda file: _inspect(file, folder, tell), files))


def _inspect(file: RemoteFile, folder: Path, tell: Reporter) -> FileState:
    path = folder / file.name
    if not path.is_file():
        begun = _size(part_of(folder, file.name))
        return FileState(file, "missing", f"{begun:,} bytes of it are fetched" if begun else "")
    if file.size is not None and (size := path.stat().st_size) != file.size:
        return FileState(file, "damaged", f"{size:,} bytes instead of {file.size:,}")
    try:
        digest = digest_of(path, file.algorithm, tell.gained)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); make it readable") from None
    if digest != file.digest:
        return FileState(file, "damaged", f"{file.algorithm} is {digest} instead of {file.digest}")
    return FileState(file, "present", "")


def download(
    files: list[RemoteFile], folder: Path, mirrors: tuple[str, ...], jobs: int, patience: Patience
) -> list[FileState]:
    """Fetch what is missing of ``files`` into ``folder``, ``jobs`` at a time; returns what was there before.

    Raises UserError before the first byte when the disk has no room or another file stands under a name,
    and at the end with all files that no source gave; the others are in place by then.
    """
    _make(folder)
    states = inspect(files, folder, jobs)
    for state in states:
        if state.state == "damaged":
            raise UserError(
                f"{folder / state.file.name}: stands there but is not the registry's file ({state.why}); "
                f"move it away, or replace it: cxrbench data verify {state.file.dataset} --folder {folder} "
                "--mend"
            )
    missing = [state.file for state in states if state.state == "missing"]
    # A size that a source states is good enough to ask for room, and never held against another source.
    sized = [_with_size(file, mirrors, patience.timeout) for file in missing]
    _must_have_room(sized, folder)
    _transfer(missing, folder, mirrors, jobs, patience, total=sum(file.size or 0 for file in sized))
    return states


def mend(
    states: list[FileState], folder: Path, mirrors: tuple[str, ...], jobs: int, patience: Patience
) -> None:
    """Fetch the files that are damaged or missing, and no others; a file cut short is continued."""
    _make(folder)
    for state in states:
        path, part = folder / state.file.name, part_of(folder, state.file.name)
        if state.state == "damaged":
            cut = state.file.size is not None and path.stat().st_size < state.file.size
            if cut and not part.exists():
                path.rename(part)
            else:
                path.unlink()
    download([state.file for state in states if state.state != "present"], folder, mirrors, jobs, patience)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); choose another --folder") from None


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _with_size(file: RemoteFile, mirrors: tuple[str, ...], timeout: float) -> RemoteFile:
    """The file with the size a source states, where the registry has none: room is checked beforehand."""
    if file.size is not None:
        return file
    for source in sources_of(file, mirrors):
        try:
            with opened(new_session(), source, 0, timeout) as stream:
                if stream.total is not None:
                    return file.model_copy(update={"size": stream.total})
        except (Broken, Refused):
            continue  # the transfer itself will say what is wrong with it
    return file


def _must_have_room(files: list[RemoteFile], folder: Path) -> None:
    need = sum(max(0, (file.size or 0) - _size(part_of(folder, file.name))) for file in files)
    if need > (free := shutil.disk_usage(folder).free):
        raise UserError(
            f"{folder}: {len(files)} files need {_bytes(need)} more and the disk has {_bytes(free)} free; "
            f"free {_bytes(need - free)}, choose another place with --folder, or fewer files with --only"
        )


def _bytes(count: int) -> str:
    return f"{count / 1e9:,.2f} GB" if count >= 1e7 else f"{count:,} bytes"


def _transfer(
    files: list[RemoteFile],
    folder: Path,
    mirrors: tuple[str, ...],
    jobs: int,
    patience: Patience,
    total: int,
) -> None:
    stop, failures = threading.Event(), []
    with progress("fetching", total) as tell, ThreadPoolExecutor(jobs) as pool:
        running = {
            pool.submit(Download(file, folder, patience, tell, stop).run, sources_of(file, mirrors)): file
            for file in files
        }
        try:
            for done, future in enumerate(as_completed(running), start=1):
                try:
                    future.result()
                    tell.say(f"{running[future].name}: here and whole ({done} of {len(files)})")
                except UserError as error:
                    failures.append(str(error))
                    tell.say(str(error))
        except BaseException:
            stop.set()  # Ctrl-C: the parts stay, the next run goes on from them
            pool.shutdown(cancel_futures=True)
            raise
    if failures:
        raise UserError("\n".join(failures))
