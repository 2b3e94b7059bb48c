"""Two platforms' final scores, one number a run and no images: compared over runs alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from cxrbench.statistics.auroc import Estimate
from cxrbench.statistics.columns import read_columns
from cxrbench.statistics.comparison import MARGIN, Comparison, difference_of
from cxrbench.statistics.components import verdict_of
from cxrbench.statistics.errors import UserError, nearest
from cxrbench.statistics.parity import compared_seeds

_NEEDED = ("seed", "score")


def compare_scores(
    path: Path, by: str, margin: float = MARGIN, columns: dict[str, str] | None = None
) -> Comparison:
    """The differences in score between two platforms, from a table with a run a row: columns ``by``, ``seed``
    and ``score``.

    Repeats of a seed are averaged; the side that the table names first is A. Runs with one seed are paired.
    Raises UserError for a table that is not one, with its line.

    >>> import tempfile
    >>> runs = {"gpu": ["a"] * 3 + ["b"] * 3, "seed": [0, 1, 2] * 2}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "scores.csv"
    ...     scores = [0.71, 0.72, 0.73, 0.70, 0.72, 0.73]
    ...     pd.DataFrame(runs).assign(score=scores).to_csv(path)
    ...     found = compare_scores(path, "gpu", margin=0.02)
    >>> found.verdict, round(found.main['difference'], 4)
    ('equivalent', 0.0033)
    """
    if not 0 < margin < np.inf:
        raise UserError(f"margin {margin:g}: a margin is a finite number above zero; give such a number")
    table = _read(path, by, columns or {})
    sides: dict[str, dict[int, Estimate]] = {}
    means = table.groupby([by, "seed"], sort=False)["score"].mean()
    for (platform, seed), mean in means.items():
        nobody, known = np.zeros((1, 1)), np.array([np.inf])
        sides.setdefault(platform, {})[int(seed)] = Estimate(np.array([mean]), nobody, known)
    if len(sides) != 2:
        raise UserError(
            f"{path}: {by} has {len(sides)} values ({', '.join(sides)}); keep the rows of two of them"
        )
    (name_a, a), (name_b, b) = sides.items()
    notes = [
        f"A is {name_a}, B is {name_b}",
        "no images: this covers runs alone; other test patients are not covered",
    ]
    if repeats := len(table) - len(means):
        notes.append(f"repeats of a seed are averaged: {len(table)} rows, {repeats} of them repeats")
    paired_a, paired_b = compared_seeds(a, b)
    if len(paired_a) < len(a) or len(paired_b) < len(b):
        notes.append(f"paired by the {len(paired_a)} seeds that both have; the others are left out")
    return Comparison([_row(paired_a, paired_b, margin)], notes)


def _row(a: dict[int, Estimate], b: dict[int, Estimate], margin: float) -> dict:
    difference = difference_of(a, b)
    ends = [end[0] for end in difference.ends()]
    note, scale = None, max(abs(run.value[0]) for side in (a, b) for run in side.values())
    if min(len(a), len(b)) < 2:
        ends = [np.nan] * 4
    elif difference.error[0] <= 1e-9 * scale:  # rounding of floats is no spread either
        ends, note = [np.nan] * 4, "the scores do not vary: are they rounded?"
    names = ("ci90_low", "ci90_high", "ci95_low", "ci95_high")
    return {
        **{"metric": "score", "label": None},
        **{
            name: float(np.mean([run.value for run in s.values()]))
            for name, s in (("value_a", a), ("value_b", b))
        },
        "difference": float(difference.value[0]),
        **{name: float(end) if np.isfinite(end) else None for name, end in zip(names, ends, strict=True)},
        **{
            **{"p_holm": None, "noticeable": None},
            "margin": margin,
            "verdict": str(verdict_of(ends, margin)),
            "images": None,
            "note": note,
        },
        **{"runs_a": len(a), "runs_b": len(b), "paired": a.keys() == b.keys(), "patients": None},
    }


def _read(path: Path, by: str, columns: dict[str, str]) -> pd.DataFrame:
    theirs = {name: columns.get(name, name) for name in _NEEDED}
    if len({by, *theirs.values()}) < 1 + len(theirs):
        raise UserError(
            f"--by {by}: platform, seed and score are three columns, here {by} and "
            f"{' and '.join(theirs.values())}; name a column for each"
        )
    if not path.is_file():
        raise UserError(f"{path}: there is no such file; name a table with one run per row")

    def ours(names: list[str]) -> dict[str, str | None]:
        for name, kind in {by: "--by", **theirs}.items():
            wanted = theirs.get(name, name)
            if wanted not in names:
                option = f"--by {by}" if kind == "--by" else f"{name} (or name it: --columns {name}=NAME)"
                raise UserError(
                    f"{path}: there is no column {wanted} for {option}{nearest(wanted, names, 1)}; it has "
                    f"{', '.join(names)}"
                )
        return {by: "str", theirs["seed"]: None, theirs["score"]: None}

    is_csv = path.suffix.lower() != ".parquet"
    table = read_columns(path, is_csv, ours, lambda: "write it again")
    table = table.rename(columns={wanted: name for name, wanted in theirs.items()})
    for name in _NEEDED:
        values = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        bad = ~np.isfinite(values)
        if name == "seed":  # above, two numbers can be one float
            bad |= (values != np.round(values)) | (np.abs(values) > 2**53)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            kind = f"a whole number up to {2**53}" if name == "seed" else "a finite number"
            place = f"line {table.index[row] + 2}" if is_csv else f"row {table.index[row] + 1}"
            raise UserError(f"{path}: {name} is '{table[name].iloc[row]}' in {place}; write {kind}")
        table[name] = values
    if (empty := table[by].isna() | (table[by].astype(str).str.strip() == "")).any():
        raise UserError(f"{path}: {by} is empty in {int(empty.sum())} rows; fill it in")
    return table
