"""Audits of many networks as rows of one table; what was captured before is read. Imports no torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from cxrbench.audit.facts import Facts, Setting, facts_of
from cxrbench.audit.networks import family_of
from cxrbench.audit.rules import CORE_GIB, flagged, verdicts
from cxrbench.cores import cores
from cxrbench.errors import UserError, nearest
from cxrbench.files import sha256_json, write_json

FORMAT = 2  # of what is kept: raise it when facts are counted in another way
FEW = 4  # networks per process; fewer are not worth the seconds that another import of torch takes
PACKAGES = ("torch", "torch_xla", "timm")


def versions() -> dict[str, str]:
    """The libraries that decide a graph; UserError when one is not installed."""
    try:
        return {name: metadata.version(name) for name in PACKAGES}
    except metadata.PackageNotFoundError as error:
        raise UserError(
            f"{error.name} is not installed here: `make setup` installs what captures graphs; "
            "recorded audits are in data/recorded/audit"
        ) from None


def survey(
    architectures: Iterable[str], setting: Setting, cache: Path, say: Callable[[str], None]
) -> pd.DataFrame:
    """One row per network: name, family, setting, facts, rules, versions.

    Facts are kept in ``cache`` under versions and setting. Raises UserError for an unknown name before
    anything is captured.
    """
    names, found = list(dict.fromkeys(architectures)), versions()
    kept = {name: _read(_place(cache, name, setting, found)) for name in names}
    missing = [name for name, facts in kept.items() if facts is None]
    if missing:
        check_names(missing)
    for number, (name, facts) in enumerate(_captured(missing, setting), start=1):
        write_json(_place(cache, name, setting, found), vars(facts))
        kept[name] = facts
        say(f"captured {name} ({number} of {len(missing)})")
    rows = []
    for name in names:
        facts = kept[name] or Facts()
        if facts.problem:
            say(f"{name}: {facts.problem}")
        rows.append(row(name, setting, facts, found))
    return pd.DataFrame(rows)


def _captured(names: list[str], setting: Setting) -> Iterator[tuple[str, Facts]]:
    """Facts of networks in order: here when they are few, else in one process per core."""
    workers = min(cores(), len(names) // FEW)
    if workers < 2:
        for name in names:
            yield name, _capture(name, setting)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        try:
            yield from zip(names, pool.map(partial(_capture, setting=setting), names), strict=True)
        except BrokenProcessPool:
            raise UserError(
                "a process that captured graphs was killed, most likely for want of memory; what was "
                "captured is kept: run the same command again, or name fewer networks"
            ) from None


def _capture(architecture: str, setting: Setting) -> Facts:
    from cxrbench.audit.capture import audit_network

    return audit_network(architecture, setting)


def check_names(architectures: Iterable[str]) -> None:
    """UserError with the nearest names when timm and the variants know nothing of the kind."""
    import timm

    from cxrbench.training.variants import VARIANTS, register_variants

    register_variants()
    for name in architectures:
        if not timm.is_model(name):
            known = timm.list_models()
            raise UserError(
                f"unknown architecture '{name}'{nearest(name, known)}; timm {timm.__version__} knows "
                f"{len(known) - len(VARIANTS)} names, `cxrbench audit` without one takes its own list"
            )


def row(architecture: str, setting: Setting, facts: Facts, found: dict[str, str]) -> dict[str, Any]:
    """One line of audit.csv."""
    return {
        "architecture": architecture,
        "family": family_of(architecture),
        **vars(setting),
        **vars(facts),
        "traffic_least_mib_per_image": round(facts.least_traffic_mib_per_image(setting.batch), 1),
        "step_gib": round(facts.step_gib(setting.batch), 2),
        "largest_batch": facts.largest_batch(CORE_GIB),
        "rules_broken": flagged(facts, setting),
        **found,
    }


def explained(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows with the verdict of every rule: found, source, whether it looks at network or setting."""
    rows: list[dict[str, Any]] = []
    for one in table.to_dict("records"):
        values = {str(key): value for key, value in one.items()}
        setting = Setting(values["pixels"], values["batch"], values["precision"])
        found = [
            {
                "rule": verdict.rule.name,
                "of": verdict.rule.of,
                "flagged": verdict.flagged,
                "found": verdict.found,
                "says": verdict.rule.says,
                "ground": verdict.rule.ground,
                "source": verdict.rule.source,
            }
            for verdict in verdicts(facts_of(values), setting)
        ]
        rows.append(values | {"verdicts": found})
    return rows


def _place(cache: Path, architecture: str, setting: Setting, found: dict[str, str]) -> Path:
    key = sha256_json({"format": FORMAT, "versions": found, "setting": vars(setting)})[:16]
    return cache / key / f"{architecture}.json"


def _read(path: Path) -> Facts | None:
    """Kept facts; none when there are none, or the file is damaged (it is then made again)."""
    try:
        return facts_of(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
