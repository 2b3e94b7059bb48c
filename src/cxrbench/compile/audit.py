"""Audits of many networks as rows of one table: captured (and cached), or recorded. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.compile.networks import family_of
from cxrbench.compile.rules import CORE_GIB, Facts, Setting, facts_of, flagged, verdicts
from cxrbench.evidence.sums import updated_sums
from cxrbench.platforms import installed
from cxrbench.study.cores import cores
from cxrbench.study.errors import UserError
from cxrbench.study.files import sha256_json, write_csv, write_json
from cxrbench.training.plan import must_be_architectures

FORMAT = 2  # of cached facts: raise it when facts are counted in another way
FEW = 4  # networks per process; fewer are not worth the seconds that another import of torch takes
FILE = Path("audit/audit.csv")  # below data/recorded
KEY = ["pixels", "batch", "precision", "architecture"]
PACKAGES = ("torch", "torch_xla", "timm")
_TEXTS = dict.fromkeys(("kernels", *PACKAGES), str)  # "3" and "2.9" are not numbers here


def survey(
    architectures: Iterable[str], setting: Setting, cache: Path, say: Callable[[str], None]
) -> pd.DataFrame:
    """Return a row per network, from ``cache`` where it was captured with these versions and setting.

    Raises UserError for an unknown name before anything is captured.
    """
    names, libraries = list(dict.fromkeys(architectures)), versions()
    folder = cache / sha256_json({"format": FORMAT, "versions": libraries, "setting": vars(setting)})[:16]
    known = {name: facts for name in names if (facts := _cached(folder / f"{name}.json"))}
    missing = [name for name in names if name not in known]
    must_be_architectures(missing, "without a name, `cxrbench audit` captures its own list")
    for number, (name, facts) in enumerate(_captured(missing, setting), start=1):
        write_json(folder / f"{name}.json", vars(facts))
        known[name] = facts
        say(f"captured {name} ({number} of {len(missing)})")
    for name in names:
        if problem := known[name].problem:
            say(f"{name}: {problem}")
    return pd.DataFrame([row(name, setting, known[name], libraries) for name in names])


def versions() -> dict[str, str]:
    """Return the versions of the libraries that decide a graph; UserError when one is not installed."""
    found = {name: version for name in PACKAGES if (version := installed(name))}
    if missing := [name for name in PACKAGES if name not in found]:
        raise UserError(
            f"{missing[0]} is not installed here: `make setup` installs what captures graphs; "
            "recorded audits are in data/recorded/audit"
        )
    return found


def _cached(path: Path) -> Facts | None:
    """Read cached facts; None when there are none, or the file is damaged (it is then written again)."""
    try:
        return facts_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _captured(names: list[str], setting: Setting) -> Iterator[tuple[str, Facts]]:
    """Capture networks in order: in this process when they are few, else in one process per core."""
    workers = min(cores(), len(names) // FEW)
    if workers < 2:
        yield from ((name, _capture(name, setting)) for name in names)
        return
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            yield from zip(names, pool.map(_capture, names, repeat(setting)), strict=True)
    except BrokenProcessPool:
        raise UserError(
            "a process that captured graphs was killed, most likely for lack of memory; finished "
            "captures are kept: run the same command again, or name fewer networks"
        ) from None


def _capture(architecture: str, setting: Setting) -> Facts:
    from cxrbench.compile.capture import audit_network

    return audit_network(architecture, setting)


def row(architecture: str, setting: Setting, facts: Facts, versions: dict[str, Any]) -> dict[str, Any]:
    """Return a line of audit.csv."""
    return {
        "architecture": architecture,
        "family": family_of(architecture),
        **vars(setting),
        **vars(facts),
        "traffic_least_mib_per_image": round(facts.least_traffic_mib_per_image(setting.batch), 1),
        "step_gib": round(facts.step_gib(setting.batch), 2),
        "largest_batch": facts.largest_batch(CORE_GIB),
        "rules_broken": flagged(facts, setting),
        **versions,
    }


def explained(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of ``table``, each with the verdict of every rule."""
    rows: list[dict[str, Any]] = table.to_dict("records")
    for values in rows:
        setting = Setting(values["pixels"], values["batch"], values["precision"])
        values["verdicts"] = verdicts(facts_of(values), setting)
    return rows


def read_audit(recorded: Path) -> pd.DataFrame:
    """Read the table below ``recorded``, one row per network and setting; empty when nothing was recorded."""
    path = recorded / FILE
    if not path.exists():
        return pd.DataFrame(columns=KEY)
    try:
        table = pd.read_csv(path, keep_default_na=False, dtype=_TEXTS)
        for values in table.to_dict("records"):
            facts_of(values)
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: {error}; restore it with git, or record it again") from None
    if missing := [name for name in KEY if name not in table]:
        raise UserError(f"{path}: columns are missing: {', '.join(missing)}; restore it with git")
    return table


def record_audit(table: pd.DataFrame, recorded: Path) -> Path:
    """Put the rows of ``table`` into the recorded table, in place of equal keys, and update the sums."""
    before = read_audit(recorded)
    if len(before):
        table = pd.concat([before, table]).drop_duplicates(KEY, keep="last")
    with updated_sums(recorded):
        write_csv(recorded / FILE, table.sort_values(KEY, ascending=[False, True, True, True]))
    return recorded / FILE
