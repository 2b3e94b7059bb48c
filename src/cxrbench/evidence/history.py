"""What git's history says of recorded evidence: commits that are named, files that were added or removed."""

import re
from collections.abc import Iterator
from pathlib import Path

from cxrbench.evidence.checks import CLOCKS, moment_of
from cxrbench.evidence.record import RECORD, Record
from cxrbench.study.files import git, why_git_fails
from cxrbench.study.names import Cell

_TRAINER, _STUDY = "src/cxrbench/training", "config/config.yaml"  # of every commit that can train
_RECORDS = ("--", f"*/{RECORD}")


def commit_problems(root: Path, records: dict[Cell, Record], not_checked: list[str]) -> Iterator[str]:
    """Yield commits that are not in git, younger than the run, or cannot have trained it; and late ends."""
    commits = {record.commit for record in records.values()}
    named = [commit for commit in sorted(commits) if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit)]
    shallow = git(root, "rev-parse", "--is-shallow-repository")
    made = git(root, "log", "--no-walk", "--ignore-missing", "--format=%H %ct", "--stdin", lines=named)
    if shallow != "false\n" or made is None:
        reason = why_git_fails(root) or f"{root} is in no git repository here, or in one without its history"
        not_checked.append(f"commits: {reason}")
        return
    times = {commit: int(time) for commit, time in (line.split() for line in made.splitlines())}
    studies = {commit: _study_of(root, commit) for commit in times}
    added = _added(root)
    for cell, record in records.items():
        started, ended = moment_of(record.started), moment_of(record.ended)
        where, study = cell.folder(root) / RECORD, studies.get(record.commit)
        if record.commit == "unknown" and record.dirty:
            not_checked.append(f"the commit of {cell}, which was trained outside a checkout")
        elif record.commit not in times:
            yield f"{where}: commit {record.commit} is not in git; fetch it, or record the cell again"
        elif started and started.timestamp() < times[record.commit] - CLOCKS:
            yield f"{where}: started {record.started}, before its commit {record.commit[:12]} was made"
        elif study is None:
            yield f"{where}: commit {record.commit[:12]} has no trainer or no study ({_TRAINER}, {_STUDY})"
        elif not re.search(rf"^\s+{re.escape(cell.dataset)}\s*:", study, re.M):
            yield f"{where}: the study of commit {record.commit[:12]} has no dataset {cell.dataset}"
        if ended and ended.timestamp() > added.get(f"{cell}/{RECORD}", ended.timestamp()) + CLOCKS:
            yield f"{where}: ended {record.ended}, after the commit that added it was made"


def _study_of(root: Path, commit: str) -> str | None:
    """Return the study of a commit; None where that lacks a study or a trainer."""
    trainer = git(root, "ls-tree", "--full-tree", "--name-only", commit, _TRAINER)
    return git(root, "show", f"{commit}:{_STUDY}") if trainer else None


def _added(root: Path) -> dict[str, int]:
    """Return when each record below ``root`` was last committed; without those that were changed since."""
    log = git(root, "log", "--relative", "--name-only", "--format=@%ct", *_RECORDS) or ""
    changed = set((git(root, "diff", "--relative", "--name-only", "HEAD", *_RECORDS) or "").splitlines())
    times: dict[str, int] = {}
    now = 0
    for line in log.splitlines():
        if line.startswith("@"):
            now = int(line[1:])
        elif line and line not in changed:
            times.setdefault(line, now)
    return times


def removed_records(root: Path) -> list[str]:
    """Return the records that git had below ``root`` and that are not there any more, each as a note."""
    asked = ("--diff-filter=D", "--relative", "--name-only")
    texts = git(root, "log", *asked, "--format=", *_RECORDS), git(root, "diff", *asked, "HEAD", *_RECORDS)
    names = {name for text in texts for name in (text or "").splitlines() if name}
    gone = sorted(root / name for name in names if not (root / name).exists())
    return [f"{path}: was recorded, and is no more; git log -- {path} says when" for path in gone]
