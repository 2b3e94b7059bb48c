"""Every value that the prose may name; the sentences are in the LaTeX source."""

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from cxrbench.analysis.auroc import FEWEST
from cxrbench.analysis.estimates import ENDPOINT
from cxrbench.analysis.f1_search import TARGET, nearest_definition
from cxrbench.analysis.matrix import NOT_RUN, REFUSED
from cxrbench.analysis.parity import checks_software
from cxrbench.analysis.subgroups import WIDEST
from cxrbench.claims.file import OURS
from cxrbench.claims.inputs import Basis
from cxrbench.claims.ledger import Verdict, against, findings
from cxrbench.evidence.record import short_processor
from cxrbench.paper import data_card, measurements, power, provenance, seed_pairs
from cxrbench.paper.cost_numbers import cost_values
from cxrbench.paper.formats import Estimate, Parts, Range, listed, text, words
from cxrbench.paper.ledger import assumed
from cxrbench.paper.prose import Filled, Value, Values
from cxrbench.paper.results import (
    PHANTOM,
    Group,
    Results,
    difference,
    is_phantom,
    processors_differ,
    rows_of,
)
from cxrbench.study.names import GROUP
from cxrbench.study.platforms import ACCELERATED

VERDICTS = ("equivalent", "different", "inconclusive")


def numbers(read: Results) -> Values:
    """Return every value that the prose may name, by key."""
    endpoint, prices = read.study.endpoint, read.study.prices
    values: Filled = {
        "f1/target": Value(TARGET, "ratio"),
        "subgroups/widest": Value(WIDEST, "given"),
        "endpoint/patients": endpoint.positive_patients,
        "endpoint/declared": str(endpoint.declared or "no day"),
        "endpoint/dated": int(endpoint.declared is not None),
        "findings/fewest": FEWEST,
        "study/networks": listed(read.ok["architecture"]),
        "study/precisions": listed(read.study.recipe(name).precision for name in read.ok["dataset"]),
        "price/region": prices.region,
        "price/basis": words(prices.basis),
    }
    if read.study.paper.title:
        values["paper/title"] = read.study.paper.title
    own = (_cell_numbers, _dataset_numbers, _group_numbers, _picked_numbers, _f1_numbers, _parity_numbers)
    others = (_claim_numbers, _contrast_numbers, _literature_numbers, cost_values)
    parts = (data_card, measurements, power, provenance, seed_pairs)
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
        "recorded": ok & (cells["origin"] == "recorded"),
        "fresh": ok & (cells["origin"] == "fresh"),
        "accelerated/run": run & cells["platform"].isin(ACCELERATED),
    }
    values: Filled = {f"cells/{name}": int(mask.sum()) for name, mask in masks.items()}
    planned = cells["cell"].isin(map(str, read.study.all_cells()))
    values["cells/kind"] = "planned" if planned.all() else "planned or recorded"
    values["cells/refused/names"] = _code(cells["cell"][refused])
    for name in ("total", "run", "not run"):
        counts = masks[name].groupby(cells["platform"]).sum()
        values |= {f"cells/{platform}/{name}": int(count) for platform, count in counts.items()}
    return values


def _code(names: Iterable[str], between: str = ", ") -> str:
    return between.join(f"`{name}`" for name in names)


def _dataset_numbers(read: Results) -> Values:
    """Return recipe, images and patients of each dataset: ``<dataset>/<what>``, ``patients/unknown``."""
    values: Filled = {}
    unknown = []
    for dataset in read.cells["dataset"].unique():
        recipe = read.study.recipe(dataset)
        of: Filled = {
            name: str(getattr(recipe, name)) for name in ("epochs", "batch", "precision", "threads")
        }
        of |= {"learning rate": Value(recipe.learning_rate, "given"), "recipe": recipe.hash()}
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
    return {
        **values,
        "patients/unknown": len(unknown),
        "patients/unknown names": names,
        "patients/unknown sentence": sentence if unknown else "",
    }


def _group_numbers(read: Results) -> Values:
    """Return seeds, status, AUROC, speed and cost: ``<dataset>/<architecture>/<platform>/<what>``."""
    values: Filled = {}
    for group in dict.fromkeys(read.cells[GROUP].itertuples(index=False, name=None)):
        seeds = len(rows_of(read.ok, *group))
        of: Filled = {"seeds": seeds, "status": listed(rows_of(read.cells, *group)["status"])}
        if seeds:
            of |= _speed_numbers(group, read)
            of["auroc"] = Value(read.mean(group, "auroc", "macro"), "auroc")
            of["endpoint"] = Value(read.mean(group, "auroc", ENDPOINT), "auroc")
        values |= {f"{'/'.join(group)}/{name}": value for name, value in of.items()}
    return values


def _speed_numbers(group: Group, read: Results) -> Values:
    """Return speed, time and cost of the runs that stand for a group, means over seeds with their range."""
    runs = read.runs(group)
    if runs.empty:
        return {}
    timings = [read.record(row.cell, row.origin).timing for row in runs.itertuples()]
    speeds = pd.Series([timing.images_per_second for timing in timings], dtype=float)
    return {
        "images per second": _mean_and_range(speeds, "speed"),
        "minutes": _mean_and_range(runs["hours_total"] * 60, "one"),
        "device": short_processor(runs["machine"].iloc[0]),
        "usd": _mean_and_range(runs["usd_total"], "hours"),
        "usd kind": listed(runs["kind"]),
        "instance": listed(runs["instance"]),
        "price date": listed(runs["as_of"]),
    }


def _mean_and_range(values: pd.Series, kind: str) -> str | Value:
    """Return the mean and the range over seeds; a single seed has no range."""
    if values.isna().all():
        return "not reached"
    limits = (values.min(), values.max()) if len(values) > 1 else ()
    return Value(Estimate(values.mean(), *limits), kind)


def _picked_numbers(read: Results) -> Values:
    """Return the best network on real radiographs, ``best/...``, and on their largest size, ``largest/...``.

    ``<pick>/rivals``: how many networks it was picked from, besides itself.
    """
    values: Filled = {}
    pixels = [read.study.dataset(name).pixels for name, *_ in read.scored() if not name.startswith(PHANTOM)]
    picks = {
        "best": (read.best(), len(read.scored(main=True))),
        "largest": (read.largest(), pixels.count(max(pixels, default=0))),
    }
    for pick, (group, networks) in picks.items():
        if group is None:
            continue
        aurocs = read.of(group, "auroc", "macro")
        patients = aurocs["n_patients"].iloc[0]
        scores = {
            "auroc": read.mean(group, "auroc", "macro"),
            "endpoint": read.mean(group, "auroc", ENDPOINT),
            "once": read.mean(group, "auroc_patient_weighted", ENDPOINT),
            "f1_macro": read.f1(group, "f1_macro"),
            "f1_micro": read.f1(group, "f1_micro"),
        }
        of: Filled = {
            **dict(zip(("dataset", "network", "platform"), group, strict=True)),
            **{name: Value(score, "auroc") for name, score in scores.items()},
            "rivals": networks - 1,
            "seeds": len(aurocs),
            "patients": Value(patients if patients > 0 else "unknown", "count"),  # also where it is missing
            "endpoint/note": listed(read.of(group, "auroc", ENDPOINT)["note"]),
            "lowest": Value(aurocs["value"].min(), "fine"),
            "highest": Value(aurocs["value"].max(), "fine"),
            "weights": "random" if read.study.recipe(group[0]).weights == "scratch" else "pretrained",
            "pixels": read.study.dataset(group[0]).pixels,
        }
        values |= {f"{pick}/{name}": value for name, value in of.items()}
    return values


def _f1_numbers(read: Results) -> Values:
    """Return the findings behind the F1 of the best network, and its definition nearest to the preprint's
    value: ``f1/...``."""
    best = read.best()
    if best is None:
        return {}
    notes = listed(read.of(best, "f1_macro", "macro")["note"])
    values: Filled = {"f1/scope": notes or f"all {len(read.findings(*best))} labels"}
    if nearest := nearest_definition(read.rows_of_cells(read.f1_search, best)):
        values["f1/nearest"] = words(nearest.definition.removeprefix("f1_"))
        values["f1/nearest value"] = Value(read.f1(best, nearest.definition), "auroc")
        values["f1/nearest without skill"] = Value(nearest.no_skill, "score")
    return values


def _parity_numbers(read: Results) -> Values:
    """Return every verdict on pairs of platforms, counted, the unfavourable ones too.

    ``parity/pairs/...``: pairs on real radiographs, by the main endpoint; ``parity/phantoms/...``: all
    verdicts.
    """
    compared = read.parity[read.parity["kind"] != "noise floor"]
    drawn = is_phantom(compared["dataset"])
    real, phantoms = compared[~drawn], compared[drawn & compared["label"].isin([ENDPOINT, "macro", "every"])]
    macro = real[real["label"] == "macro"]
    pairs = real[real["label"] == ENDPOINT]
    checks = sum(map(checks_software, pairs.itertuples()))
    counts = phantoms["verdict"].value_counts().reindex(VERDICTS).dropna().astype(int)
    verdicts = (f"{count} {'is' if count == 1 else 'are'} {verdict}" for verdict, count in counts.items())
    counts = {
        "parity/pairs": len(pairs),
        "parity/equivalent": (pairs["verdict"] == "equivalent").sum(),
        "parity/pairs/checks": checks,
        "parity/pairs/accelerated": len(pairs) - checks,
        "parity/pairs/processors": sum(map(processors_differ, pairs.itertuples())),
        "parity/phantoms": len(phantoms),
    }
    return {
        **{name: int(count) for name, count in counts.items()},
        **_largest(pairs),
        "parity/pairs/compared": ", ".join(f"{count} of {pair}" for pair, count in _named(pairs).items()),
        "parity/auroc": _verdicts(pairs),
        "parity/all findings": _verdicts(macro[macro["metric"] == "auroc"]),
        "parity/f1": _verdicts(macro[macro["metric"] == "f1_macro"]),
        "parity/findings": _verdicts(real[real["label"].isin(read.findings())]),
        "parity/phantoms/compared": "; ".join(_named(phantoms)),
        "parity/phantoms/verdicts": ", ".join(verdicts),
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
    verdicts = [f"{verdict} in {counts[verdict]}" for verdict in VERDICTS if verdict in counts]
    first, *others = verdicts or ["not computed in 0"]
    return ", ".join([f"{first} of {len(rows)}", *others])


def _named(rows: pd.DataFrame) -> dict[str, int]:
    """Return the two platforms that rows of parity.csv compare, and how many rows do."""
    compared = zip(rows["platform_a"], rows["platform_b"], strict=True)
    return Counter(_code(pair, " and ") for pair in compared)


def _claim_numbers(read: Results) -> Values:
    """Return counts of claims, ``claims/...``: of others, findings by verdict and entries by what they were
    held against; rows that rest on one fact are one finding.

    ``claims/findings``: those that speak against a text; ``.../assumed``: of these only if it means what its
    test assumes; ``.../entries``: how many rows they are.
    ``claim/<id>``, ``claim/<id>/now``: what was computed for a claim; ``.../size``: without its sign;
    ``.../stated``: what its source says.
    """
    others = read.claims[read.claims["source"] != OURS]
    contrary = against(others)
    counts = {
        **{str(verdict): findings(others[others["verdict"] == verdict]) for verdict in Verdict},
        **{f"against/{basis}": (others["basis"] == basis).sum() for basis in Basis},
        "total": len(read.claims),
        "others": len(others),
        "ours": len(read.claims) - len(others),
        "findings": findings(contrary),
        "findings/assumed": assumed(others),
        "findings/entries": len(contrary),
    }
    values: Filled = {f"claims/{name}": int(count) for name, count in counts.items()}
    for row in read.claims.itertuples():
        key = f"claim/{row.id}"
        values |= {f"{key}/verdict": str(row.verdict), f"{key}/stated": str(row.stated)}
        computed = {key: (row.computed_low, row.computed_high), f"{key}/now": (row.now_low, row.now_high)}
        for name, limits in computed.items():
            if limits[0] != "":
                low, high = map(float, limits)
                values[name] = Value(Range(low, high), "claimed")
                values[f"{name}/size"] = Value(Range(abs(low), abs(high)), "claimed")
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
    means = rows.loc[rows["label"] == "macro"].drop_duplicates("source")["published"]
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
