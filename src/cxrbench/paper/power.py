"""What patients and seeds can show: the power of comparisons, simulated coverage, families of verdicts."""

import pandas as pd

from cxrbench.paper.formats import Columns, Filled, Range, Table, Value, Values, WithInterval, range_or, table
from cxrbench.paper.results import Results, is_phantom
from cxrbench.results import simulated
from cxrbench.results.literature import reproductions
from cxrbench.statistics.components import POWER
from cxrbench.statistics.metrics import METRICS, as_title
from cxrbench.statistics.parity import family_counts
from cxrbench.statistics.power import (
    ASSUMED,
    DIFFERENCE,
    PREPRINT,
    SHARES,
    fixed_patients,
    patients_by_definition,
    sufficient_seeds,
    upper_seeds,
)
from cxrbench.study.names import GROUP

_NONE = "none would do"
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
        "Share": (
            "ratio",
            lambda row: (
                f"{row.share:g}" if row.share_from == ASSUMED else WithInterval(row.share, note="measured")
            ),
        ),
        "Could show": "smallest_margin:reach",
        "Power": "power_at_zero:share",
        "Seeds needed": "seeds_needed:needed",
        "Seeds, upper": ("needed", lambda row: upper.get(row.Index, "")),
        "Patients needed": "patients_needed:needed",
        "Seeds to see": "seeds_to_see:count",
        "Patients to see": (
            "needed",
            lambda row: "" if pd.isna(row.difference) else row.patients_to_see,
        ),
        "Patients, fixed": ("needed", lambda row: fixed.get(row.Index, "")),
    }
    return table(rows, columns)


def numbers(read: Results) -> Values:
    """Return ``power/...`` of the main dataset, ``margin/...``, ``coverage/...`` and ``family/...``."""
    margins = read.study.margins
    apart = reproductions(read.literature)
    return {
        "margin/auroc": Value(margins.auroc_macro, "given"),
        "margin/label": Value(margins.auroc_label, "given"),
        "margin/f1": Value(margins.f1, "given"),
        "power/difference": Value(DIFFERENCE, "given"),
        **{f"preprint/f1/{platform}": Value(f1, "fine") for platform, f1 in PREPRINT.items()},
        "power/level": Value(POWER, "share"),
        **({"margin/reproductions": Value(apart[0], "fine")} if apart else {}),
        **({"margin/reproductions/largest": Value(apart[1], "reach")} if apart else {}),
        **_power(read),
        **{
            name: range_or(100 * rates, "rate", "not simulated")
            for name, rates in simulated.rates(read.recorded).items()
        },
        **families(read.parity),
    }


def _main(read: Results) -> pd.DataFrame:
    return read.power[read.power["dataset"] == read.main()]


def power_drawn(read: Results) -> pd.DataFrame:
    """Return the rows of the main endpoint for the preprint's network (else the first) at assumed shares."""
    rows = _main(read)
    rows = rows[(rows["metric"] == "auroc") & (rows["share_from"] == ASSUMED)]
    names = rows["architecture"]
    rows = rows[names == (_NETWORK if _NETWORK in set(names) else next(iter(names), _NETWORK))]
    return rows[rows["platform"] == next(iter(rows["platform"]), "")]


def _power(read: Results) -> Values:
    """Return ``power/...``: by the main dataset's networks on the first platform; the preprint's difference
    by all recipes on real radiographs."""
    rows = _main(read)
    if rows.empty:
        return {}
    assumed = (rows["metric"] == "auroc") & (rows["share_from"] == ASSUMED)
    whole = rows[assumed & (rows["platform"] == rows["platform"].iloc[0])]
    values: Filled = {
        "power/seeds": range_or(whole["measured_seeds"], "count", _NONE),
        "power/patients": range_or(whole["patients"], "count", _NONE),
        "power/seed freedom": range_or(whole["seed_freedom"], "plain", _NONE),
        **_preprint(read),
    }
    for network, at_shares in whole.groupby("architecture"):
        powers = at_shares["power_at_zero"]  # they fall with the share
        values[f"power/{network}/ends"] = Value(Range(powers.iloc[-1], powers.iloc[0]), "share")
    needed = sufficient_seeds(whole, str(whole["dataset"].iloc[0]))
    upper = upper_seeds(whole, read.study.margins.auroc_macro)
    names = whole["architecture"]
    for network, seeds in needed.items():  # also with the true seed spread at its upper limit
        values[f"power/plan/{network}"] = seeds
        limit = next(most for at, most in upper.items() if names[at] == network)
        values[f"power/plan/{network}/upper"] = Value(limit, "needed")
    return values


def _preprint(read: Results) -> Values:
    """Return ``power/preprint/...``: what the preprint's difference takes by the spread of every recipe."""
    real = read.spread[~is_phantom(read.spread["dataset"])]
    anew, fixed = (patients_by_definition(real, given).astype({"patients": float}) for given in (False, True))
    rows = read.power[~is_phantom(read.power["dataset"]) & read.power["difference"].notna()]
    apart = rows[(rows["share"] == SHARES[-1]) & (rows["share_from"] == ASSUMED)]
    if anew.empty or apart.empty:
        return {}
    values: Filled = {"power/recipes": len(anew.drop_duplicates(GROUP))}
    for name, metric in (("macro", "f1_macro"), ("micro", "f1_micro")):
        patients, as_they_are = (at.loc[at["metric"] == metric, "patients"] for at in (anew, fixed))
        values |= {
            f"power/preprint/{name}": range_or(patients, "about", _NONE),
            f"power/preprint/{name}/median": Value(patients.median(), "about"),
            f"power/preprint/{name}/fixed": range_or(as_they_are, "about", _NONE),
            f"power/preprint/{name}/seeds": range_or(
                apart.loc[apart["metric"] == metric, "seeds_to_see"], "count", _NONE
            ),
        }
    return values


def families(parity: pd.DataFrame) -> Values:
    """Return ``family/<real or phantoms>/...``: how many verdicts Holm's correction leaves."""
    phantom = is_phantom(parity["dataset"])
    real, phantoms = (family_counts(rows) for rows in (parity[~phantom], parity[phantom]))
    kept = "endpoint equivalent after correction"
    return {
        "family/real/sentence": _corrected(real),
        f"family/real/{kept}": real[kept],
        "family/phantoms/sentence": _corrected(phantoms),
    }


def _corrected(counts: dict[str, int]) -> str:
    """Return in a sentence how many verdicts stay so when they are corrected for their number."""
    if not counts["verdicts"]:
        return "No verdict was tested."
    stay = "; ".join(
        f"of {counts[verdict]} {verdict}, {counts[f'{verdict} after correction']} stay so"
        for verdict in ("equivalent", "different")
        if counts[verdict]
    )
    decided = f"corrected over all of them (Holm), {stay}" if stay else "all are inconclusive"
    pairs = f"{counts['pairs']} pair{'s' * (counts['pairs'] > 1)}"
    return f"The table's verdicts are {counts['verdicts']}, on {pairs}: {decided}."
