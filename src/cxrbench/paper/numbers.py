"""Every value that the prose may name; the sentences are in the LaTeX source."""

from collections.abc import Iterable

import pandas as pd

from cxrbench.claims.file import OURS
from cxrbench.claims.ledger import Verdict, against, findings
from cxrbench.paper import cost_tables, data_card, measurements, platform_reports, power, seed_pairs, settings
from cxrbench.paper.formats import Filled, Parts, Range, Value, Values, WithInterval, listed, text, words
from cxrbench.paper.ledger import findings_if_assumed
from cxrbench.paper.results import (
    PHANTOM,
    Results,
    difference,
    is_phantom,
    range_of_seeds,
    rows_of,
)
from cxrbench.results.matrix import NOT_RUN, REFUSED
from cxrbench.results.subgroups import WIDEST
from cxrbench.statistics.auroc import FEWEST
from cxrbench.statistics.f1_search import TARGET, nearest_definition
from cxrbench.statistics.metrics import ENDPOINT, MACRO
from cxrbench.study.names import GROUP
from cxrbench.study.platforms import ACCELERATED

_VERDICTS = ("equivalent", "different", "inconclusive")


def numbers(read: Results) -> Values:
    """Return every value that the prose may name, by key."""
    endpoint = read.study.endpoint
    values: Filled = {
        "f1/target": Value(TARGET, "f1_given"),
        "subgroups/widest": Value(WIDEST, "given"),
        "endpoint/patients": endpoint.positive_patients,
        "endpoint/declared": str(endpoint.declared or "no day"),
        "endpoint/dated": int(endpoint.declared is not None),
        "findings/fewest": FEWEST,
        "study/networks": listed(read.ok["architecture"]),
        "study/precisions": listed(read.study.recipe(name).precision for name in read.ok["dataset"]),
        "price/region": read.study.prices.region,
    }
    if read.study.paper.title:
        values["paper/title"] = read.study.paper.title
    own = (_cell_numbers, _dataset_numbers, _group_numbers, _picked_numbers, _f1_numbers, _parity_numbers)
    others = (_claim_numbers, _contrast_numbers, _literature_numbers)
    parts = (cost_tables, data_card, measurements, platform_reports, power, seed_pairs, settings)
    for numbers_of in (*own, *others, *(part.numbers for part in parts)):
        values |= numbers_of(read)
    return values


def _cell_numbers(read: Results) -> Values:
    """Return counts of cells, ``cells/<what>`` and ``cells/<platform>/<what>``; failed cells were run.

    ``waiting``: those not run that need no accelerator. ``kind`` is what all of them are, in words.
    """
    cells = read.cells
    run, ok, refused = cells["status"] != NOT_RUN, cells["status"] == "ok", cells["origin"] == REFUSED
    masks = {
        "total": cells["cell"].notna(),
        "run": run,
        "not run": ~run & ~refused,
        "waiting": ~run & ~refused & ~cells["platform"].isin(ACCELERATED),
        "ok": ok,
        "failed": run & ~ok,
        "refused": refused,
        "accelerated/run": run & cells["platform"].isin(ACCELERATED),
    }
    values: Filled = {f"cells/{name}": int(mask.sum()) for name, mask in masks.items()}
    planned = cells["cell"].isin(map(str, read.study.all_cells()))
    values["cells/kind"] = "planned" if planned.all() else "planned or recorded"
    values["cells/refused/names"] = _code(cells["cell"][refused])
    for name in ("total", "run"):
        counts = masks[name].groupby(cells["platform"]).sum()
        values |= {f"cells/{platform}/{name}": int(count) for platform, count in counts.items()}
    return values


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _dataset_numbers(read: Results) -> Values:
    """Return recipe, images and patients of each dataset, ``<dataset>/<what>``, and ``patients/...``."""
    values: Filled = {}
    unknown = []
    for dataset in read.cells["dataset"].unique():
        recipe = read.study.recipe(dataset)
        of: Filled = {name: str(getattr(recipe, name)) for name in ("epochs", "batch", "precision")}
        of["learning rate"] = Value(recipe.learning_rate, "given")
        of["cells"] = len(rows_of(read.cells, dataset))
        of["pixels"] = read.study.dataset(dataset).pixels
        if identity := read.identity(dataset):
            patients = sum(identity.patients.values())
            of |= {f"{split}/images": Value(count, "count") for split, count in identity.images.items()}
            of["images"] = Value(sum(identity.images.values()), "count")
            of["patients"] = Value(patients or "unknown", "count")
            unknown += [] if patients else [dataset]
        values |= {f"{dataset}/{name}": value for name, value in of.items()}
    names = _code(unknown)
    sentence = f"Patients of {names} are unknown: each image counts as one, and intervals are too narrow."
    return {**values, "patients/unknown sentence": sentence if unknown else ""}


def _group_numbers(read: Results) -> Values:
    """Return seeds, status, time and cost: ``<dataset>/<architecture>/<platform>/<what>``."""
    values: Filled = {}
    for group in dict.fromkeys(read.cells[GROUP].itertuples(index=False, name=None)):
        of: Filled = {
            "seeds": len(rows_of(read.ok, *group)),
            "status": listed(rows_of(read.cells, *group)["status"]),
        }
        runs = read.runs(group)
        if len(runs):
            of["minutes"] = _mean_and_range(runs["hours_total"] * 60, "minutes")
            of["usd"] = _mean_and_range(runs["usd_total"], "usd_run")
            of["instance"] = listed(runs["instance"])
        values |= {f"{'/'.join(group)}/{name}": value for name, value in of.items()}
    return values


def _mean_and_range(values: pd.Series, kind: str) -> Value:
    """Return the mean and the range over seeds; a single seed has no range."""
    limits = (values.min(), values.max()) if len(values) > 1 else ()
    return Value(WithInterval(values.mean(), *limits), kind)


def _picked_numbers(read: Results) -> Values:
    """Return the best network on real radiographs, ``best/...``, and on their largest size, ``largest/...``.

    ``largest/rivals``: how many networks it was picked from, besides itself.
    """
    best, largest = read.best(), read.largest()
    if best is None or largest is None:  # no real radiographs: both
        return {}
    values: Filled = {}
    for pick, group in (("best", best), ("largest", largest)):
        values |= {f"{pick}/dataset": group[0], f"{pick}/network": group[1]}
        values[f"{pick}/seeds"] = len(read.of(group, "auroc", MACRO))
    dataset = largest[0]
    pixels = [read.study.dataset(name).pixels for name, *_ in read.scored() if not name.startswith(PHANTOM)]
    patients = read.of(largest, "auroc", MACRO)["n_patients"].iloc[0]
    return {
        **values,
        "best/f1_macro": Value(read.f1(best, "f1_macro"), "auroc"),
        "best/f1_micro": Value(read.f1(best, "f1_micro"), "auroc"),
        "best/endpoint/note": listed(read.of(best, "auroc", ENDPOINT)["note"]),
        "largest/auroc": Value(read.mean(largest, "auroc", MACRO), "auroc"),
        "largest/endpoint": Value(read.mean(largest, "auroc", ENDPOINT), "auroc"),
        "largest/patients": Value(patients if patients > 0 else "unknown", "count"),  # also where missing
        "largest/pixels": max(pixels),
        "largest/rivals": pixels.count(max(pixels)) - 1,
        "largest/weights": "random" if read.study.recipe(dataset).weights == "scratch" else "pretrained",
    }


def _f1_numbers(read: Results) -> Values:
    """Return ``f1/...`` of the best network: the findings behind it, its definition nearest to the preprint's
    value, and what "any finding" is in NIH's official test part."""
    best = read.best()
    if best is None:
        return {}
    notes = listed(read.of(best, "f1_macro", MACRO)["note"])
    values: Filled = {"f1/scope": notes or f"all {len(read.findings(*best))} labels"}
    rows = read.rows_of_cells(read.f1_search, best)
    any_finding = rows[rows["definition"] == "f1_any_finding"]
    if len(any_finding):
        values["f1/any finding/here"] = Value(range_of_seeds(any_finding["prevalence"]), "score")
        values["f1/any finding/needed"] = Value(range_of_seeds(any_finding["prevalence_needed"]), "score")
        values["f1/official"] = Value(range_of_seeds(any_finding["value_elsewhere"]), "score")
        values["f1/official without skill"] = Value(any_finding["no_skill_elsewhere"].mean(), "score")
    if nearest := nearest_definition(rows):
        values["f1/nearest"] = words(nearest.definition.removeprefix("f1_"))
        values["f1/nearest value"] = Value(read.f1(best, nearest.definition), "auroc")
        values["f1/nearest without skill"] = Value(nearest.no_skill, "score")
    return values


def _parity_numbers(read: Results) -> Values:
    """Return every verdict on pairs of platforms on real radiographs, counted, the unfavourable ones too.

    ``parity/pairs/...``: by the main endpoint.
    """
    compared = read.parity[read.parity["kind"] != "noise floor"]
    real = compared[~is_phantom(compared["dataset"])]
    pairs = real[real["label"] == ENDPOINT]
    on_accelerators = pairs[["platform_a", "platform_b"]].isin(ACCELERATED).any(axis=1)
    on_accelerators = pairs[["platform_a", "platform_b"]].isin(ACCELERATED).any(axis=1)
    return {
        "parity/pairs": len(pairs),
        "parity/equivalent": int((pairs["verdict"] == "equivalent").sum()),
        "parity/pairs/accelerated": int(on_accelerators.sum()),
        **_largest(pairs),
        "parity/auroc": _verdicts(pairs),
        "parity/f1": _verdicts(real[(real["label"] == MACRO) & (real["metric"] == "f1_macro")]),
        "parity/findings": _verdicts(real[real["label"].isin(read.findings())]),
    }


def _largest(pairs: pd.DataFrame) -> Values:
    """Return ``parity/largest``: the largest difference, with the interval that its verdict rests on."""
    sizes = pairs.dropna(subset=["difference", "ci90_low"])["difference"].astype(float).abs()
    for row in pairs.loc[sizes.nlargest(1).index].itertuples():
        interval = text(Range(row.ci90_low, row.ci90_high), "signed")
        return {
            "parity/largest": f"{text(row.difference, 'signed')} (90 % interval {interval}): "
            f"{row.architecture} on {row.platform_a} and {row.platform_b}"
        }
    return {}


def _verdicts(rows: pd.DataFrame) -> str:
    """Return ``equivalent in 8 of 14, inconclusive in 6``."""
    counts = rows["verdict"].value_counts()
    verdicts = [f"{verdict} in {counts[verdict]}" for verdict in _VERDICTS if verdict in counts]
    first, *others = verdicts or ["not computed in 0"]
    return ", ".join([f"{first} of {len(rows)}", *others])


def _claim_numbers(read: Results) -> Values:
    """Return counts of others' claims, ``claims/...``: findings by verdict; rows on one fact are one.

    ``claims/findings``: those that speak against a text; ``.../assumed``: of these only if it means what its
    test assumes. ``claim/<id>``: what was computed for a claim; ``.../stated``: what its source says.
    """
    others = read.claims[read.claims["source"] != OURS]
    values: Filled = {
        **{f"claims/{verdict}": findings(others[others["verdict"] == verdict]) for verdict in Verdict},
        "claims/others": len(others),
        "claims/findings": findings(against(others)),
        "claims/findings/assumed": findings_if_assumed(others),
    }
    for row in read.claims.itertuples():
        key = f"claim/{row.id}"
        values |= {f"{key}/verdict": str(row.verdict), f"{key}/stated": str(row.stated)}
        if row.computed_low != "":
            values[key] = Value(Range(float(row.computed_low), float(row.computed_high)), "claimed")
    return values


def _contrast_numbers(read: Results) -> Values:
    """Return differences in the main endpoint, ``worth/<dataset>/<other dataset>/<architecture>/<platform>``.

    ``worth/weights``: how many of them are between initial weights alone.
    """
    rows = read.contrasts[read.contrasts["label"] == ENDPOINT]
    values: Filled = {"worth/weights": int((rows["differs"] == "weights").sum())}
    for row in rows.itertuples():
        key = f"worth/{row.dataset_a}/{row.dataset_b}/{row.architecture}/{row.platform}"
        values[key] = Value(difference(row), "difference")
    return values


def _literature_numbers(read: Results) -> Values:
    """Return sizes and citations of the published values that stand beside ours."""
    rows = read.literature
    means = rows.loc[rows["label"] == MACRO].drop_duplicates("source")["published"]
    return {
        **{
            f"literature/{name}": Value(_different(rows[f"n_{name}_published"]), "count")
            for name in ("train", "test")
        },
        "literature/macro": Value(Parts(tuple(sorted(means)), " and "), "score"),
        "literature/sources": "; ".join(rows["citation"].unique()),
    }


def _different(values: pd.Series) -> Parts:
    return Parts(tuple(values.dropna().unique()), ", ")
