"""Audits of many networks as rows of one table: captured (and cached), or recorded. Imports no torch."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.common.files import cores, sha256_json, write_csv, write_json
from cxrbench.evidence.sums import updated_sums
from cxrbench.neuron.networks import family_of
from cxrbench.neuron.rules import AUDITED_PARTS, CORE_GIB, Facts, Setting, facts_of, flagged, verdicts
from cxrbench.study.platforms import installed
from cxrbench.training.plan import must_be_architectures

_CACHE_FORMAT = 4  # of cached facts: raise it when facts are counted in another way
_CAPTURES_PER_PROCESS = 4  # fewer are not worth the seconds that another import of torch takes
FILE = Path("audit/audit.csv")  # below data/recorded
AUDIT_KEY = ["pixels", "batch", "precision", "part", "architecture"]
PACKAGES = ("torch", "torch_xla", "timm")
_TEXTS = dict.fromkeys(("kernels", *PACKAGES), str)  # "3" and "2.9" are not numbers here
Wanted = tuple[str, Setting]
_Result = TypeVar("_Result")


def survey(
    architectures: Iterable[str], settings: Sequence[Setting], cache: Path, say: Callable[[str], None]
) -> pd.DataFrame:
    """A row per network, setting and part, from ``cache`` where these versions captured it.

    Raises UserError for an unknown name before anything is captured.
    """
    wanted, libraries = list(product(dict.fromkeys(architectures), settings)), versions()
    places = {
        (name, setting): cache
        / sha256_json({"format": _CACHE_FORMAT, "versions": libraries, "setting": vars(setting)})[:16]
        / f"{name}.json"
        for name, setting in wanted
    }
    captured = {key: facts for key in wanted if (facts := _cached(places[key]))}
    missing = [key for key in wanted if key not in captured]
    names = list(dict.fromkeys(name for name, _ in missing))
    must_be_architectures(names, "without a name, `cxrbench audit` captures its own list")
    workers = max(1, min(cores(), len(missing) // _CAPTURES_PER_PROCESS))
    for number, (key, facts) in enumerate(traced(_capture, missing, workers), start=1):
        if facts is None:
            raise UserError(
                f"{key[0]}: the process that captured its graphs was killed, most likely for lack of "
                "memory; finished captures are kept: run the same command again, or name fewer networks"
            )
        write_json(places[key], {part: vars(counted) for part, counted in facts.items()})
        captured[key] = facts
        say(f"captured {key[0]} ({number} of {len(missing)})")
    for key in wanted:
        if problem := captured[key]["step"].problem:
            say(f"{key[0]}: {problem}")
    graphs = product(wanted, AUDITED_PARTS)
    rows = [
        audit_row(name, setting, captured[name, setting][part], libraries) for (name, setting), part in graphs
    ]
    return pd.DataFrame(rows)


def versions() -> dict[str, str]:
    """The versions of the libraries that decide a graph; UserError when one is not installed."""
    versions_here = {name: version for name in PACKAGES if (version := installed(name))}
    if missing := [name for name in PACKAGES if name not in versions_here]:
        raise UserError(
            f"{missing[0]} is not installed here: `make setup` installs what captures graphs; "
            "recorded audits are in data/recorded/audit"
        )
    return versions_here


def _cached(path: Path) -> dict[str, Facts] | None:
    """Read cached facts; None when there are none, or the file is damaged (it is then written again)."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return {part: facts_of(kept[part]) for part in AUDITED_PARTS}
    except (OSError, ValueError, LookupError, TypeError):
        return None


def traced(
    trace: Callable[..., _Result], wanted: Sequence[Wanted], workers: int
) -> Iterator[tuple[Wanted, _Result | None]]:
    """Trace each of ``wanted`` in a pool of processes, as on Neuron; yield it with its result, in order.

    None: the process that traced it was killed, and so was one that traced it alone.
    """
    if not wanted:
        return
    pool_of = partial(ProcessPoolExecutor, mp_context=get_context("spawn"), initializer=as_on_neuron)
    pool = pool_of(workers)
    try:
        waiting = [pool.submit(trace, *step) for step in wanted]
        for step, future in zip(wanted, waiting, strict=True):
            if isinstance(future.exception(), BrokenProcessPool):  # whichever network broke it
                with pool_of(1) as own:
                    future = own.submit(trace, *step)
            killed = isinstance(future.exception(), BrokenProcessPool)
            yield step, None if killed else future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # at an error or Ctrl-C the rest is not traced


def as_on_neuron() -> None:
    """Turn functionalization off before torch_xla is imported (Neuron SDK docs, torch-neuron-envvars)."""
    os.environ["XLA_DISABLE_FUNCTIONALIZATION"] = "1"
    # Else torch_neuronx, where installed, puts its custom calls into torch_xla (aws-neuron-sdk issue 789).
    os.environ["NEURON_INTERNAL_USE_VANILLA_TORCH_XLA"] = "1"


def _capture(name: str, setting: Setting) -> dict[str, Facts]:
    from cxrbench.neuron.capture import audit_network

    return audit_network(name, setting)


def audit_row(architecture: str, setting: Setting, facts: Facts, versions: dict[str, Any]) -> dict[str, Any]:
    """A line of audit.csv."""
    failure, others = flagged(facts, setting)
    return {
        "architecture": architecture,
        "family": family_of(architecture),
        **vars(setting),
        **vars(facts),
        "traffic_least_mib_per_image": round(facts.least_traffic_mib_per_image(setting.batch), 1),
        "step_gib": round(facts.step_gib(setting.batch), 2),
        "largest_batch": facts.largest_batch(CORE_GIB),
        "predicts_failure": failure,
        "other_rules": others,
        **versions,
    }


def of_setting(table: pd.DataFrame, setting: Setting, part: str = "step") -> pd.DataFrame:
    """The rows of an audit's ``table`` that were captured in a setting, of one part."""
    wanted = (setting.pixels, setting.batch, setting.precision, part)
    return table[(table[AUDIT_KEY[:4]] == wanted).all(axis=1)] if len(table) else table


def with_verdicts(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of ``table``, each with the verdict of every rule."""
    rows: list[dict[str, Any]] = table.to_dict("records")
    for values in rows:
        setting = Setting(values["pixels"], values["batch"], values["precision"])
        values["verdicts"] = verdicts(facts_of(values), setting)
    return rows


def read_audit(recorded: Path) -> pd.DataFrame:
    """Read the table below ``recorded``: a row per network, setting and part; empty when nothing is there."""
    path = recorded / FILE
    if not path.exists():
        return pd.DataFrame(columns=[*AUDIT_KEY, "problem"])
    try:
        table = pd.read_csv(path, keep_default_na=False, dtype=_TEXTS)
        for values in table.to_dict("records"):
            facts_of(values)
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: {error}; restore it with git, or record it again") from None
    if missing := [name for name in AUDIT_KEY if name not in table]:
        raise UserError(f"{path}: columns are missing: {', '.join(missing)}; restore it with git")
    return table


def record_audit(table: pd.DataFrame, recorded: Path) -> Path:
    """Put the rows of ``table`` into the recorded table, in place of equal keys, and update the sums."""
    before = read_audit(recorded)
    if len(before):
        table = pd.concat([before, table])[table.columns].drop_duplicates(AUDIT_KEY, keep="last")
    with updated_sums(recorded):
        write_csv(recorded / FILE, table.sort_values(AUDIT_KEY, ascending=[False, *[True] * 4]))
    return recorded / FILE
