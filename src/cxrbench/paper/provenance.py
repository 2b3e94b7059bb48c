"""What was run and what others report: every cell, every recorded measurement, every report."""

import json
from collections import Counter
from collections.abc import Iterator

import pandas as pd

from cxrbench.common.files import read_csv, sha256_file
from cxrbench.evidence.record import short_processor
from cxrbench.neuron.reports import read_reported
from cxrbench.paper.formats import Fields, Table, listed, missing, of_kinds, words
from cxrbench.paper.results import Results, host_in_words
from cxrbench.results.matrix import NOT_RUN, state_of
from cxrbench.study.names import GROUP

_ALIKE = [*GROUP, "status", "origin"]
_WHAT = {
    "train": "speed of training",
    "gains": "gains of ways to run a step",
    "steps": "steps on two platforms",
    "xla_ways": "XLA's ways",
    "audit": "graphs of training steps",
    "gate_table": "defects and variants put to the gate of steps",
}


def status_matrix(read: Results) -> Table:
    """States of our cells by architecture and platform, then what others report, marked as cited.

    Networks that only others report share a row if they agree; "not run" without a count: none is planned.
    """
    cells, reported, parts = read.cells, read_reported(), ["architecture", "platform"]
    if read.study.own:  # its page is about its own networks
        reported = reported[:0]
    states = cells.assign(state=[state_of(row).word for row in cells.itertuples()]).groupby(parts)["state"]
    ours = states.agg(lambda words: "; ".join(f"{n} {state}" for state, n in Counter[str](words).items()))
    theirs = reported.groupby(parts)["status"].agg(lambda words: f"; {listed(words)} (cited)")
    platforms = list(dict.fromkeys([*cells["platform"], *reported["platform"]]))
    trained = reported.loc[reported["part"] == "training", "architecture"]
    planned, rows = set(cells["architecture"]), []
    for network in dict.fromkeys([*cells["architecture"], *trained]):
        keys = {platform: (network, platform) for platform in platforms}
        texts = {platform: ours.get(key, NOT_RUN) + theirs.get(key, "") for platform, key in keys.items()}
        own = network if network in planned else ""  # a network of the study has a row of its own
        rows.append({"Architecture": network, "own": own, **texts})
    alike = pd.DataFrame(rows).groupby(["own", *platforms], sort=False)["Architecture"]
    shown = alike.agg(", ".join).reset_index()[["Architecture", *platforms]]
    return Table(shown)


def reports(read: Results) -> Table:
    """What others report, with the source of each, and whether we read it ourselves."""
    rows = read_reported()
    stated = {"target": "{}", "pixels": "{} px", "batch": "batch {}", "precision": "{}", "version": "{}"}
    rows["compiled"] = [
        ", ".join(
            form.format(row[name])
            for name, form in stated.items()
            if not missing(row[name]) and row[name] != ""
        )
        for row in rows.to_dict("records")
    ]
    shown = ["architecture", "platform", "status", "compiled", "images_per_second", "source", "source_was"]
    named = rows[[*shown, "words"]].rename(columns=lambda name: words(name).capitalize())
    return Table(named, {"Images per second": "exact"})


@of_kinds()
def cells_by_status(read: Results) -> Iterator[Fields]:
    """Cells alike in dataset, architecture, platform, status and origin: date, machine and commit."""
    for group, cells in read.cells.groupby(_ALIKE, sort=False, dropna=False):
        run = (cells if group[3] != NOT_RUN else cells[:0]).astype({"ended": "string", "commit": "string"})
        yield {
            **dict(zip(("Dataset", "Architecture", "Platform"), group[:3], strict=True)),
            "Seeds": _in_a_row(cells["seed"]),
            "Status": ", ".join(part for part in group[3:] if isinstance(part, str) and part),
            "Run on": listed(run["ended"].str[:10]),
            "Machine": _machines(run),
            "Commit": listed(run["commit"].str[:7]),
        }


def _in_a_row(seeds: pd.Series) -> str:
    """``0 to 17`` for more than three seeds in a row, else every seed."""
    in_a_row = len(seeds) > 3 and seeds.diff().iloc[1:].eq(1).all()
    return f"{seeds.iloc[0]} to {seeds.iloc[-1]}" if in_a_row else listed(seeds)


def _machines(runs: pd.DataFrame) -> str:
    """The machines of some cells, with their seeds where there are several; then busy seeds."""
    machines = {name: _seeds_in_words(rows["seed"]) for name, rows in runs.groupby("machine", sort=False)}
    texts = (
        short_processor(name) + (f" ({seeds})" if len(machines) > 1 else "")
        for name, seeds in machines.items()
    )
    busy = runs.loc[runs["busy"].fillna(False), "seed"]
    return "; ".join(texts) + (f"; busy: {_seeds_in_words(busy)}" if len(busy) else "")


def _seeds_in_words(seeds: pd.Series) -> str:
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {listed(seeds)}"


@of_kinds()
def measured_files(read: Results) -> Iterator[Fields]:
    """Recorded measurements that are no cells: what, where, when, at which commit, and the hash."""
    recorded = read.recorded
    for path in sorted([*(recorded / "bench").glob("*/*.*"), *(recorded / "audit").glob("*.csv")]):
        timed = path.parent.name != "audit"
        if path.suffix == ".json":
            kept = pd.DataFrame(json.loads(path.read_text(encoding="utf-8")))
        else:
            kept = read_csv(path)
        table = kept.reindex(columns=["measured", "commit"]).astype("string")
        yield {
            "What": _WHAT.get(path.stem, path.stem),
            "Machine": host_in_words(path.parent.name) if timed else "any: counted, not timed",
            "Measured": listed(table["measured"].str[:10]),
            "Commit": listed(table["commit"].str[:7]),
            "File": path.name,
            "SHA-256": sha256_file(path)[:12],
        }
