"""What git's history says of recorded evidence: commits that are named, files that were added or removed."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from cxrbench.common.files import git, why_git_fails
from cxrbench.evidence.allowed import COMMIT
from cxrbench.evidence.checks import CLOCKS, moment_of
from cxrbench.evidence.record import RECORD, Record
from cxrbench.study.names import Cell
from cxrbench.study.recipe import Recipe

_TRAINER, _STUDY = "src/cxrbench/training", "config/config.yaml"  # of every commit that can train
_RECORDS = ("--", f"*/{RECORD}")
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def commit_problems(root: Path, records: dict[Cell, Record], not_checked: list[str]) -> Iterator[str]:
    """Yield commits that are not in git, younger than the run, or cannot have trained it; and late ends."""
    commits = {record.commit for record in records.values()}
    named = [commit for commit in sorted(commits) if COMMIT.fullmatch(commit)]
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
        elif cell.dataset not in study["datasets"]:
            yield f"{where}: the study of commit {record.commit[:12]} has no dataset {cell.dataset}"
        if ended and ended.timestamp() > added.get(f"{cell}/{RECORD}", ended.timestamp()) + CLOCKS:
            yield f"{where}: ended {record.ended}, after the commit that added it was made"


@cache
def _study_of(root: Path, commit: str) -> dict[str, Any] | None:
    """The datasets and recipes in the study of a commit; None where it lacks a study or a trainer."""
    if not git(root, "ls-tree", "--full-tree", "--name-only", commit, _TRAINER):
        return None
    try:
        study = yaml.load(git(root, "show", f"{commit}:{_STUDY}") or "", _Loader)
    except yaml.YAMLError:
        return None
    parts = {name: study.get(name) for name in ("datasets", "recipes")} if isinstance(study, dict) else {}
    return parts if parts and all(isinstance(part, dict) for part in parts.values()) else None


def other_recipes(root: Path, records: dict[Cell, Record]) -> Iterator[tuple[Cell, str]]:
    """Yield cells of another recipe than the study of their commit gives their dataset.

    Nothing is said of a commit that is not in git, or whose recipe this version cannot read.
    """
    for cell, record in records.items():
        study = _study_of(root, record.commit) if COMMIT.fullmatch(record.commit) else None
        dataset = study and study["datasets"].get(cell.dataset)
        name = dataset.get("recipe") if isinstance(dataset, dict) else None
        try:
            given = Recipe.model_validate(study["recipes"][name]) if study else None
        except (KeyError, TypeError, ValidationError):
            continue
        if given and given.hash() != record.recipe_hash:
            of_commit = f"the study of its commit {record.commit[:12]} gives {cell.dataset} {given.hash()}"
            yield cell, f"recipe_hash is {record.recipe_hash}; {of_commit} (recipe {name})"


def _added(root: Path) -> dict[str, int]:
    """When each record below ``root`` was last committed; without those that were changed since."""
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
    """The records that git had below ``root`` and that are not there any more, each as a note."""
    asked = ("--diff-filter=D", "--relative", "--name-only")
    texts = git(root, "log", *asked, "--format=", *_RECORDS), git(root, "diff", *asked, "HEAD", *_RECORDS)
    names = {name for text in texts for name in (text or "").splitlines() if name}
    gone = sorted(root / name for name in names if not (root / name).exists())
    return [f"{path}: was recorded, and is no more; git log -- {path} says when" for path in gone]
