"""What patients and seeds can show: the power of comparisons, simulated coverage, families of verdicts."""

import pandas as pd

from cxrbench.paper.formats import Columns, Table, WithInterval, table
from cxrbench.paper.results import Results
from cxrbench.paper.seed_pairs import ARMS, arms_compared
from cxrbench.results import simulated
from cxrbench.results.literature import reproductions
from cxrbench.results.pairs import EMULATED_PLATFORMS, MOST_SEEDS, PRECISION
from cxrbench.statistics.components import POWER
from cxrbench.statistics.estimates import ENDPOINT
from cxrbench.statistics.metrics import METRICS, as_title
from cxrbench.statistics.parity import family_counts
from cxrbench.statistics.power import (
    PREPRINT,
    SHARES,
    fixed_patients,
    patients_by_definition,
    upper_seeds,
)

_NETWORK = "convnext_pico"  # the preprint's


def what_can_be_shown(read: Results) -> Table:
    """What these patients and seeds can show on the main dataset, and what a verdict would need."""
    rows = _main(read)
    upper = upper_seeds(rows, read.study.margins.auroc_macro)
    fixed = fixed_patients(rows, read.spread)
    columns: Columns = {
        "Network": ("name", lambda row: f"{row.architecture} {row.platform}"),
        "Metric": ("name", lambda row: as_title(METRICS[row.metric].label, row.metric)),
        "Error": "patient_se:fine",
        "SD": "seed_sd:fine",
        "Not shared": ("ratio", lambda row: f"{row.share:g}"),
        "Could show": "smallest_margin:reach",
        "Power": "power_at_zero:share",
        "Seeds needed": ("needed", lambda row: row.seeds_needed if pd.notna(row.margin) else ""),
        "Seeds, upper": ("needed", lambda row: upper.get(row.Index, "")),
        "Patients needed": ("needed", lambda row: row.patients_needed if pd.notna(row.margin) else ""),
        "Seeds to see": "seeds_to_see:count",
        "Patients to see": (
            "needed",
            lambda row: "" if pd.isna(row.difference) else row.patients_to_see,
        ),
        "Patients, fixed": ("needed", lambda row: fixed.get(row.Index, "")),
    }
    return table(rows, columns)


def _main(read: Results) -> pd.DataFrame:
    return read.power[read.power["dataset"] == read.main()]


def of_endpoint(read: Results) -> pd.DataFrame:
    """The rows of power.csv of the main dataset's networks on the first platform, by the main endpoint and at
    assumed shares."""
    rows = _main(read)
    rows = rows[rows["metric"] == "auroc"]
    return rows[rows["platform"] == next(iter(_main(read)["platform"]), "")]


def patients_by_recipe(read: Results) -> pd.DataFrame:
    """The patients that show the preprint's difference, by the spread of each recipe on real radiographs.

    Columns ``metric``, ``patients`` and ``fixed``, with thresholds taken as they are; none where nothing
    tells the seeds.
    """
    real = read.not_set_apart(read.spread[~read.spread["drawn"]])
    anew, fixed = (patients_by_definition(real, given).astype({"patients": float}) for given in (False, True))
    return anew.assign(fixed=fixed["patients"])[: 0 if seeds_to_see(read).empty else None]


def what_runs_share(read: Results) -> Table:
    """Power and seeds by what the two runs of a seed have in common: in two precisions, and in the emulated
    arithmetic of two platforms."""
    keys = ["architecture", "platform", "dataset_a", "dataset_b"]
    shares = read.table("shares").rename(columns={"dataset": "dataset_a"})
    shares = shares[(shares["label"] == ENDPOINT) & (shares["metric"] == "auroc")]
    on_one = (shares["platform"] == shares["platform_b"]) & (shares["platform"] != "all")
    shares = shares.loc[on_one, [*keys, "share", "share_low", "share_high"]]
    rows = seeds_needed(read).merge(shares, on=keys, how="left", validate="one_to_one")
    sides = rows[["dataset_a", "dataset_b"]].map(lambda name: _arithmetic_of(read, name))
    columns: Columns = {
        "Network": "architecture",
        "CPU runs in": ("name", lambda row: " - ".join(sides.loc[row.Index].replace(ARMS))),
        "Not shared": ("ratio", lambda row: WithInterval(row.share, row.share_low, row.share_high)),
        "Power": "power_as_measured:share",
        "Recorded": "subsets:share",
        "Seeds": ("count", lambda row: _up_to_most(row.as_measured)),
        "Worst power": "power_at_worst:share",
        "Worst seeds": ("count", lambda row: _up_to_most(row.at_worst)),
    }
    shown = (rows["differs"] == PRECISION) | (sides == EMULATED_PLATFORMS).all(axis=1)
    return table(rows[shown].sort_values("architecture", kind="stable"), columns)


def _up_to_most(seeds: float) -> float | str:
    return f"more than {MOST_SEEDS}" if pd.isna(seeds) else seeds


def _arithmetic_of(read: Results, dataset: str) -> str:
    """The arithmetic that a dataset's recipe emulates, else its precision."""
    recipe = read.study.recipe(dataset)
    return recipe.precision if recipe.arithmetic == "own" else recipe.arithmetic


def most(values: pd.Series) -> float:
    """The highest of values; NaN if one of them is, which no number of seeds that was tried reaches."""
    return float(values.max(skipna=False))


def seeds_needed(read: Results) -> pd.DataFrame:
    """The seeds with which each pair of settings of powers.csv has a power of 80 %: ``as_measured`` and
    ``at_worst``; ``power_*`` and ``subsets`` with the fewest seeds. Pairs of emulated arithmetic count for
    networks with all their declared seeds."""
    pair = ["architecture", "dataset_a", "dataset_b", "platform", "differs"]
    cases = ["as_measured", "at_worst"]
    power = {case: f"power_{case}" for case in cases}
    curves = read.table("powers")
    whole = [*arms_compared(read)[pair[:3]].itertuples(index=False, name=None)]
    rows = []
    for names, curve in curves.groupby(pair, sort=False):
        if names[-1] == PRECISION or names[:3] in whole:
            enough = {case: curve.loc[curve[case] >= POWER, "seeds"].min() for case in cases}
            fewest = curve.loc[curve["seeds"].idxmin(), [*cases, "subsets"]].rename(power)
            rows.append(dict(zip(pair, names, strict=True)) | enough | dict(fewest))
    return pd.DataFrame(rows, columns=[*pair, *cases, *power.values(), "subsets"])


def seeds_to_see(read: Results) -> pd.DataFrame:
    """The rows of power.csv on real radiographs about the preprint's difference, with nothing shared."""
    rows = read.power[~read.power["drawn"] & read.power["difference"].notna()]
    return rows[rows["share"] == SHARES[-1]]


def f1_of_preprint(_: Results, platform: str) -> float | None:
    """The preprint's F1 on a platform that it names."""
    return PREPRINT.get(platform)


def reproductions_apart(read: Results) -> pd.DataFrame:
    """A row of how far two published reproductions of one network lie apart: in the mean and at most."""
    apart = reproductions(read.literature)
    return pd.DataFrame() if apart is None else pd.DataFrame([apart], columns=["macro", "largest"])


def simulated_rates(read: Results) -> pd.DataFrame:
    """How often simulated intervals hold the truth: ``of`` what, and each ``rate``."""
    rates = simulated.rates(read.recorded).items()
    return pd.concat(
        [pd.DataFrame({"rate": values}).assign(of=name) for name, values in rates], ignore_index=True
    )


def endpoint_equivalent_after_correction(parity: pd.DataFrame) -> int:
    """How many pairs stay equivalent in the main endpoint when verdicts are corrected for their number."""
    return family_counts(parity)["endpoint equivalent after correction"]


def corrected(parity: pd.DataFrame) -> str:
    """How many verdicts stay so when they are corrected for their number, in a sentence."""
    counts = family_counts(parity)
    if not counts["verdicts"]:
        return "No verdict was tested."
    stay = "; ".join(
        f"{counts[f'{verdict} after correction']} of {counts[verdict]} {verdict} stay so"
        for verdict in ("equivalent", "different")
        if counts[verdict]
    )
    decided = f"after Holm's correction {stay}" if stay else "all are inconclusive"
    pairs = f"{counts['pairs']} pair{'s' * (counts['pairs'] > 1)}"
    return (
        f"The table has {counts['verdicts']} verdict{'s' * (counts['verdicts'] > 1)}, on {pairs}: {decided}."
    )
