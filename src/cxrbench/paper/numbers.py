"""Every number that the paper's prose may name, as text for a macro; the sentences stand in the LaTeX source."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from cxrbench.analysis.cells import NOT_RUN, REFUSED
from cxrbench.analysis.f1_search import TARGET
from cxrbench.claims.evidence import Basis
from cxrbench.claims.ledger import Verdict, against, findings
from cxrbench.claims.model import OURS
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.evidence.machine import GROUP, load_in_words, short_processor
from cxrbench.paper import (
    artifact,
    cost_numbers,
    feasibility,
    label_noise,
    measurements,
    multiplicity,
    power,
    provenance,
    simulated,
    splits,
)
from cxrbench.paper.latex import escape
from cxrbench.paper.multiplicity import checks_software
from cxrbench.paper.results import (
    PHANTOM,
    Group,
    Results,
    counted,
    ends,
    is_phantom,
    listed,
    processors_differ,
    rows_of,
    words,
)
from cxrbench.study.platform_names import ACCELERATED

VERDICTS = ("equivalent", "different", "inconclusive")


def numbers(read: Results) -> dict[str, str]:
    """Return every number that the prose may name, by key; values are LaTeX."""
    values = {
        "f1/target": f"{TARGET:.2f}",
        "price/region": escape(read.study.prices.region),
        "price/basis": escape(words(read.study.prices.basis)),
    }
    for more in (
        _cell_numbers,
        _dataset_numbers,
        _group_numbers,
        _best_numbers,
        _parity_numbers,
        _claim_numbers,
        _literature_numbers,
        cost_numbers.cost_values,
        measurements.throughput_values,
        measurements.xla_values,
        measurements.step_values,
        measurements.audit_values,
        label_noise.numbers,
        splits.numbers,
        power.numbers,
        multiplicity.numbers,
        artifact.numbers,
        provenance.values,
        simulated.numbers,
        feasibility.reported_values,
    ):
        values |= more(read)
    return values


def _cell_numbers(read: Results) -> dict[str, str]:
    """Return counts of cells: ``cells/<what>``, and ``cells/<platform>/<what>`` with failures among the run.

    ``cells/waiting``: those not run that need no accelerator.
    """
    cells = read.cells
    run, refused = cells["status"] != NOT_RUN, cells["origin"] == REFUSED
    left = ~run & ~refused
    masks = {
        "total": cells["cell"].notna(),
        "run": run,
        "not run": left,
        "ok": cells["status"] == "ok",
        "failed": run & (cells["status"] != "ok"),
        "refused": refused,
        "recorded": (cells["status"] == "ok") & (cells["origin"] == "recorded"),
        "fresh": (cells["status"] == "ok") & (cells["origin"] == "fresh"),
        "waiting": left & ~cells["platform"].isin(ACCELERATED),
    }
    values = {f"cells/{what}": str(mask.sum()) for what, mask in masks.items()}
    values["cells/refused/names"] = ", ".join(rf"\code{{{escape(cell)}}}" for cell in cells["cell"][refused])
    for platform in cells["platform"].unique():
        its = cells["platform"] == platform
        some = {what: str((masks[what] & its).sum()) for what in ("total", "run", "not run")}
        values |= {f"cells/{platform}/{what}": count for what, count in some.items()}
    return values


def _dataset_numbers(read: Results) -> dict[str, str]:
    """Return recipe, images and patients of each dataset: ``<dataset>/<what>``."""
    values = {}
    for dataset in read.cells["dataset"].unique():
        recipe = read.study.recipe(dataset)
        some = {
            "epochs": str(recipe.epochs),
            "batch": str(recipe.batch),
            "learning rate": f"{recipe.learning_rate:g}",
            "precision": recipe.precision,
            "threads": str(recipe.threads),
            "recipe": recipe.hash(),
            "pixels": str(read.study.dataset(dataset).pixels),
        }
        if identity := read.identity(dataset):
            for split in SPLITS:
                some[f"{split}/images"] = f"{identity.images[split]:,}"
                some[f"{split}/patients"] = counted(identity.patients[split])
            some["images"] = f"{sum(identity.images.values()):,}"
            some["patients"] = counted(sum(identity.patients.values()))
        values |= {f"{dataset}/{what}": text for what, text in some.items()}
    return values


def _group_numbers(read: Results) -> dict[str, str]:
    """Return seeds, status, scores, speed and cost: ``<dataset>/<architecture>/<platform>/<what>``."""
    values = {}
    for group in dict.fromkeys(read.cells[GROUP].itertuples(index=False, name=None)):
        cells = rows_of(read.cells, *group)
        ok = int((cells["status"] == "ok").sum())
        some = {"seeds": str(ok), "status": listed(cells["status"])}
        if ok:
            scores = {"auroc": "macro", "average_precision": "macro", "f1_macro": "macro", "f1_micro": "all"}
            some |= {metric: read.mean(group, metric, label) for metric, label in scores.items()}
            some["auroc/patients"] = counted(read.of(group, "auroc", "macro")["n_patients"].iloc[0])
            some |= _speed_numbers(group, read)
        values |= {f"{'/'.join(group)}/{what}": escape(text) for what, text in some.items()}
    return values


def _speed_numbers(group: Group, read: Results) -> dict[str, str]:
    """Return speed, time and cost of the runs that stand for a group, means over seeds with their range."""
    runs = rows_of(read.cost, *group)
    runs = runs[runs["headline"] & (runs["status"] == "ok")]
    if runs.empty:
        return {}
    timings = [read.record(row.cell, row.origin).timing for row in runs.itertuples()]
    speeds = pd.Series([timing.images_per_second for timing in timings], dtype=float)
    load = runs["others_share"]
    return {
        "images per second": _mean_and_range(speeds, "{:.0f}"),
        "minutes": _mean_and_range(runs["hours_total"] * 60, "{:.1f}"),
        "device": short_processor(runs["machine"].iloc[0]),
        "load": load_in_words(None if load.isna().any() else float(load.max())),
        "usd": _mean_and_range(runs["usd_total"], "{:.3f}"),
        "usd kind": listed(runs["kind"]),
        "instance": listed(runs["instance"]),
        "price date": listed(runs["as_of"]),
    }


def _mean_and_range(values: pd.Series, form: str) -> str:
    """Return ``0.021 (0.019 to 0.024)``: the mean and the range over seeds; one seed has no range."""
    if values.isna().all():
        return "not reached"
    low, mean, high = (form.format(value) for value in (values.min(), values.mean(), values.max()))
    return f"{mean} ({low} to {high})" if len(values) > 1 else mean


def _best_numbers(read: Results) -> dict[str, str]:
    """Return the scores of the best network on real radiographs, ``best/...``, and its F1, ``f1/...``.

    ``best/rivals``: how many networks of the main dataset it was picked from, besides itself.
    """
    best = read.best()
    if best is None or best[0].startswith(PHANTOM):
        return {}
    aurocs = read.of(best, "auroc", "macro")
    texts = {
        "best/network": best[1],
        "best/platform": best[2],
        "best/dataset": best[0],
        "best/rivals": str(len(read.scored(main=True)) - 1),
        "best/seeds": str(len(aurocs)),
        "best/lowest": f"{aurocs['value'].min():.4f}",
        "best/highest": f"{aurocs['value'].max():.4f}",
        "best/patients": counted(aurocs["n_patients"].iloc[0]),
        "best/auroc": read.mean(best, "auroc", "macro"),
        "best/f1_macro": read.mean(best, "f1_macro", "macro"),
        "best/f1_micro": read.mean(best, "f1_micro", "all"),
        "f1/scope": listed(read.of(best, "f1_macro", "macro")["note"]) or f"all {len(FINDINGS)} labels",
    }
    f1 = read.f1_search[read.f1_search["cell"].str.startswith(f"{'/'.join(best)}/")]
    means = f1.groupby("definition")[["value", "value_no_skill"]].mean().dropna(subset="value")
    if len(means):
        nearest = str((means["value"] - TARGET).abs().idxmin())
        texts["f1/nearest"] = words(nearest.removeprefix("f1_"))
        texts["f1/nearest value"] = read.mean(best, nearest, "macro" if nearest == "f1_macro" else "all")
        texts["f1/nearest without skill"] = f"{means.loc[nearest, 'value_no_skill']:.3f}"
    return {key: escape(text) for key, text in texts.items()}


def _parity_numbers(read: Results) -> dict[str, str]:
    """Return every verdict on pairs of platforms, counted, the unfavourable ones too.

    ``parity/pairs/...``: pairs on real radiographs, by macro AUROC; ``parity/phantoms/...``: all verdicts.
    """
    compared = read.parity[read.parity["kind"] != "noise floor"]
    drawn = is_phantom(compared["dataset"])
    real, phantoms = compared[~drawn], compared[drawn & compared["label"].isin(["macro", "every"])]
    macro = real[real["label"] == "macro"]
    pairs, f1 = macro[macro["metric"] == "auroc"], macro[macro["metric"] == "f1_macro"]
    checks = sum(checks_software(row) for row in pairs.itertuples())
    counts = phantoms["verdict"].value_counts()
    return {
        **{f"parity/{verdict}": str((pairs["verdict"] == verdict).sum()) for verdict in VERDICTS},
        "parity/pairs": str(len(pairs)),
        "parity/pairs/compared": ", ".join(f"{count} of {pair}" for pair, count in _named(pairs).items()),
        "parity/pairs/checks": str(checks),
        "parity/pairs/accelerated": str(len(pairs) - checks),
        "parity/pairs/processors": str(sum(processors_differ(row) for row in pairs.itertuples())),
        "parity/auroc": _verdicts(pairs),
        "parity/f1": _verdicts(f1),
        "parity/findings": _verdicts(real[real["label"].isin(FINDINGS)]),
        "parity/phantoms": str(len(phantoms)),
        "parity/phantoms/compared": "; ".join(_named(phantoms)),
        "parity/phantoms/verdicts": ", ".join(
            f"{counts[verdict]} {'is' if counts[verdict] == 1 else 'are'} {verdict}"
            for verdict in VERDICTS
            if verdict in counts
        ),
    }


def _verdicts(rows: pd.DataFrame) -> str:
    """Return ``equivalent in 8 of 14, inconclusive in 6``."""
    counts = rows["verdict"].value_counts()
    found = [f"{verdict} in {counts[verdict]}" for verdict in VERDICTS if verdict in counts]
    first, *others = found or ["not computed in 0"]
    return ", ".join([f"{first} of {len(rows)}", *others])


def _named(rows: pd.DataFrame) -> dict[str, int]:
    """Return the two platforms that rows of parity.csv compare, as text, and how many rows do."""
    compared = zip(rows["platform_a"], rows["platform_b"], strict=True)
    return Counter(" and ".join(rf"\code{{{escape(name)}}}" for name in pair) for pair in compared)


def _claim_numbers(read: Results) -> dict[str, str]:
    """Return counts by verdict and, of claims of others, by what they were held against: ``claims/...``.

    ``claim/<id>``, ``claim/<id>/now``: what was computed for a claim; ``.../size``: without its sign.
    """
    others, ours = read.claims[read.claims["source"] != OURS], read.claims["source"] == OURS
    counts = {
        **{verdict: (others["verdict"] == verdict).sum() for verdict in Verdict},
        **{f"against/{basis}": (others["basis"] == basis).sum() for basis in Basis},
        "against/outside": (~others["basis"].isin(["", Basis.OWN])).sum(),
        "total": len(read.claims),
        "others": len(others),
        "ours": ours.sum(),
        "findings": findings(read.claims),
        "findings/entries": len(against(read.claims)),
    }
    values = {f"claims/{what}": str(count) for what, count in counts.items()}
    for row in read.claims.itertuples():
        key = f"claim/{row.id}"
        values[f"{key}/verdict"] = escape(row.verdict)
        for name, low, high in (
            (key, row.computed_low, row.computed_high),
            (f"{key}/now", row.now_low, row.now_high),
        ):
            if low != "":
                size = ends(_three_digits(float(low)), _three_digits(float(high)))
                values[name], values[f"{name}/size"] = size.replace("-", "$-$"), size.replace("-", "")
    return values


def _three_digits(value: float) -> str:
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:g}"


def _literature_numbers(read: Results) -> dict[str, str]:
    """Return sizes and citations of the published values that stand beside ours."""
    table = read.literature
    sizes = {name: table[f"n_{name}_published"].dropna().map("{:,.0f}".format) for name in ("train", "test")}
    values = {f"literature/{name}": listed(some) for name, some in sizes.items()}
    return values | {"literature/sources": escape("; ".join(table["citation"].unique()), 1000)}
