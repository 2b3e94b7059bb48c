"""Every number that the prose may name, as text for a macro; the sentences are in the LaTeX source."""

from collections import Counter

import pandas as pd

from cxrbench.analysis.auroc import FEWEST
from cxrbench.analysis.estimates import ENDPOINT
from cxrbench.analysis.f1_search import TARGET
from cxrbench.analysis.matrix import NOT_RUN, REFUSED
from cxrbench.analysis.parity import checks_software
from cxrbench.analysis.subgroups import WIDEST
from cxrbench.claims.file import OURS
from cxrbench.claims.inputs import Basis
from cxrbench.claims.ledger import Verdict, against, findings
from cxrbench.evidence.machine import GROUP, short_processor
from cxrbench.paper import compilation, data_card, fmt, measurements, power, provenance, seed_pairs
from cxrbench.paper.cost_numbers import cost_values
from cxrbench.paper.fmt import Values, counted, difference, ends, listed, words
from cxrbench.paper.latex import escape
from cxrbench.paper.ledger import assumed
from cxrbench.paper.results import PHANTOM, Group, Results, is_phantom, processors_differ, rows_of
from cxrbench.study.platform_names import ACCELERATED

VERDICTS = ("equivalent", "different", "inconclusive")


def numbers(read: Results) -> Values:
    """Return every number that the prose may name, by key; values are LaTeX."""
    values = {
        "f1/target": f"{TARGET:.2f}",
        "subgroups/widest": f"{WIDEST:g}",
        "endpoint/patients": str(read.study.endpoint.positive_patients),
        "endpoint/declared": escape(read.study.endpoint.declared or "no day"),
        "endpoint/dated": str(int(read.study.endpoint.declared is not None)),
        "findings/fewest": str(FEWEST),
        "study/networks": escape(listed(read.ok["architecture"])),
        "study/precisions": escape(
            listed(read.ok["dataset"].map(lambda name: read.study.recipe(name).precision))
        ),
        "price/region": escape(read.study.prices.region),
        "price/basis": escape(words(read.study.prices.basis)),
    }
    if read.study.paper.title:
        values["paper/title"] = escape(read.study.paper.title)
    own = (_cell_numbers, _dataset_numbers, _group_numbers, _picked_numbers, _f1_numbers, _parity_numbers)
    others = (_claim_numbers, _contrast_numbers, _literature_numbers, cost_values)
    parts = (compilation, data_card, measurements, power, provenance, seed_pairs)
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
    values = {f"cells/{name}": str(mask.sum()) for name, mask in masks.items()}
    planned = cells["cell"].isin(map(str, read.study.all_cells()))
    values["cells/kind"] = "planned" if planned.all() else "planned or recorded"
    values["cells/refused/names"] = ", ".join(rf"\code{{{escape(cell)}}}" for cell in cells["cell"][refused])
    for name in ("total", "run", "not run"):
        counts = masks[name].groupby(cells["platform"]).sum()
        values |= {f"cells/{platform}/{name}": str(count) for platform, count in counts.items()}
    return values


def _dataset_numbers(read: Results) -> Values:
    """Return recipe, images and patients of each dataset: ``<dataset>/<what>``, ``patients/unknown``."""
    values: Values = {}
    unknown = []
    for dataset in read.cells["dataset"].unique():
        recipe = read.study.recipe(dataset)
        texts = {name: f"{getattr(recipe, name)}" for name in ("epochs", "batch", "precision", "threads")}
        texts |= {"learning rate": f"{recipe.learning_rate:g}", "recipe": recipe.hash()}
        texts |= {"pixels": str(read.study.dataset(dataset).pixels)}
        if identity := read.identity(dataset):
            texts |= {f"{split}/images": f"{count:,}" for split, count in identity.images.items()}
            texts["images"] = f"{sum(identity.images.values()):,}"
            texts["patients"] = counted(sum(identity.patients.values()))
            unknown += [] if any(identity.patients.values()) else [dataset]
        values |= {f"{dataset}/{name}": text for name, text in texts.items()}
    names = ", ".join(rf"\code{{{escape(dataset)}}}" for dataset in unknown)
    return values | {"patients/unknown": str(len(unknown)), "patients/unknown names": names}


def _group_numbers(read: Results) -> Values:
    """Return seeds, status, AUROC, speed and cost: ``<dataset>/<architecture>/<platform>/<what>``."""
    values: Values = {}
    for group in dict.fromkeys(read.cells[GROUP].itertuples(index=False, name=None)):
        seeds = len(rows_of(read.ok, *group))
        texts = {"seeds": str(seeds), "status": listed(rows_of(read.cells, *group)["status"])}
        if seeds:
            texts |= _speed_numbers(group, read) | {"auroc": read.mean(group, "auroc", "macro")}
            texts["endpoint"] = read.mean(group, "auroc", ENDPOINT)
        values |= {f"{'/'.join(group)}/{name}": escape(text) for name, text in texts.items()}
    return values


def _speed_numbers(group: Group, read: Results) -> Values:
    """Return speed, time and cost of the runs that stand for a group, means over seeds with their range."""
    runs = read.runs(group)
    if runs.empty:
        return {}
    timings = [read.record(row.cell, row.origin).timing for row in runs.itertuples()]
    speeds = pd.Series([timing.images_per_second for timing in timings], dtype=float)
    return {
        "images per second": _mean_and_range(speeds, "{:.0f}"),
        "minutes": _mean_and_range(runs["hours_total"] * 60, "{:.1f}"),
        "device": short_processor(runs["machine"].iloc[0]),
        "usd": _mean_and_range(runs["usd_total"], "{:.3f}"),
        "usd kind": listed(runs["kind"]),
        "instance": listed(runs["instance"]),
        "price date": listed(runs["as_of"]),
    }


def _mean_and_range(values: pd.Series, form: str) -> str:
    """Return ``0.021 (0.019 to 0.024)``: the mean and the range over seeds; a single seed has no range."""
    if values.isna().all():
        return "not reached"
    low, mean, high = (form.format(value) for value in (values.min(), values.mean(), values.max()))
    return f"{mean} ({low} to {high})" if len(values) > 1 else mean


def _picked_numbers(read: Results) -> Values:
    """Return the best network on real radiographs, ``best/...``, and on their largest size, ``largest/...``.

    ``<pick>/rivals``: how many networks it was picked from, besides itself.
    """
    values: Values = {}
    pixels = [read.study.dataset(name).pixels for name, *_ in read.scored() if not name.startswith(PHANTOM)]
    picks = {
        "best": (read.best(), len(read.scored(main=True))),
        "largest": (read.largest(), pixels.count(max(pixels, default=0))),
    }
    for pick, (group, networks) in picks.items():
        if group is None:
            continue
        aurocs = read.of(group, "auroc", "macro")
        texts = {
            **dict(zip(("dataset", "network", "platform"), group, strict=True)),
            "rivals": str(networks - 1),
            "seeds": str(len(aurocs)),
            "patients": counted(aurocs["n_patients"].iloc[0]),
            "auroc": read.mean(group, "auroc", "macro"),
            "endpoint": read.mean(group, "auroc", ENDPOINT),
            "endpoint/note": listed(read.of(group, "auroc", ENDPOINT)["note"]),
            "once": read.mean(group, "auroc_patient_weighted", ENDPOINT),
            "lowest": f"{aurocs['value'].min():.4f}",
            "highest": f"{aurocs['value'].max():.4f}",
            "f1_macro": read.f1(group, "f1_macro"),
            "f1_micro": read.f1(group, "f1_micro"),
            "weights": "random" if read.study.recipe(group[0]).weights == "scratch" else "pretrained",
            "pixels": str(read.study.dataset(group[0]).pixels),
        }
        values |= {f"{pick}/{name}": escape(text) for name, text in texts.items()}
    return values


def _f1_numbers(read: Results) -> Values:
    """Return the findings behind the F1 of the best network, and its definition nearest to the preprint's
    value: ``f1/...``."""
    best = read.best()
    if best is None:
        return {}
    notes = listed(read.of(best, "f1_macro", "macro")["note"])
    values = {"f1/scope": notes or f"all {len(read.findings(*best))} labels"}
    f1 = read.rows_of_cells(read.f1_search, best)
    means = f1.groupby("definition")[["value", "value_no_skill"]].mean().dropna(subset="value")
    if len(means):
        nearest = str((means["value"] - TARGET).abs().idxmin())
        values["f1/nearest"] = words(nearest.removeprefix("f1_"))
        values["f1/nearest value"] = read.f1(best, nearest)
        values["f1/nearest without skill"] = f"{means.loc[nearest, 'value_no_skill']:.3f}"
    return {key: escape(text) for key, text in values.items()}


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
    return {
        "parity/pairs": str(len(pairs)),
        "parity/equivalent": str((pairs["verdict"] == "equivalent").sum()),
        **_largest(pairs),
        "parity/pairs/compared": ", ".join(f"{count} of {pair}" for pair, count in _named(pairs).items()),
        "parity/pairs/checks": str(checks),
        "parity/pairs/accelerated": str(len(pairs) - checks),
        "parity/pairs/processors": str(sum(map(processors_differ, pairs.itertuples()))),
        "parity/auroc": _verdicts(pairs),
        "parity/all findings": _verdicts(macro[macro["metric"] == "auroc"]),
        "parity/f1": _verdicts(macro[macro["metric"] == "f1_macro"]),
        "parity/findings": _verdicts(real[real["label"].isin(read.findings())]),
        "parity/phantoms": str(len(phantoms)),
        "parity/phantoms/compared": "; ".join(_named(phantoms)),
        "parity/phantoms/verdicts": ", ".join(verdicts),
    }


def _largest(pairs: pd.DataFrame) -> Values:
    """Return ``parity/largest``: the largest difference, with the interval that its verdict rests on."""
    sizes = pairs.dropna(subset=["difference", "ci90_low"])["difference"].astype(float).abs()
    columns: fmt.Columns = {
        "largest": "{difference:+.4f} (90 % interval {ci90_low:+.4f} to {ci90_high:+.4f}): {architecture} on "
        "{platform_a} and {platform_b}"
    }
    largest = fmt.keyed(pairs.loc[sizes.nlargest(1).index], "parity", columns)
    return {key: escape(text).replace("-", "$-$") for key, text in largest.items()}


def _verdicts(rows: pd.DataFrame) -> str:
    """Return ``equivalent in 8 of 14, inconclusive in 6``."""
    counts = rows["verdict"].value_counts()
    verdicts = [f"{verdict} in {counts[verdict]}" for verdict in VERDICTS if verdict in counts]
    first, *others = verdicts or ["not computed in 0"]
    return ", ".join([f"{first} of {len(rows)}", *others])


def _named(rows: pd.DataFrame) -> dict[str, int]:
    """Return the two platforms that rows of parity.csv compare, as LaTeX, and how many rows do."""
    compared = zip(rows["platform_a"], rows["platform_b"], strict=True)
    return Counter(" and ".join(rf"\code{{{escape(name)}}}" for name in pair) for pair in compared)


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
    values = {f"claims/{name}": str(count) for name, count in counts.items()}
    for row in read.claims.itertuples():
        key = f"claim/{row.id}"
        values |= {f"{key}/verdict": escape(row.verdict), f"{key}/stated": escape(row.stated)}
        computed = {key: (row.computed_low, row.computed_high), f"{key}/now": (row.now_low, row.now_high)}
        for name, limits in computed.items():
            if limits[0] != "":
                text = ends(*(_three_digits(float(limit)) for limit in limits))
                values |= {name: text.replace("-", "$-$"), f"{name}/size": text.replace("-", "")}
    return values


def _three_digits(value: float) -> str:
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:g}"


def _contrast_numbers(read: Results) -> Values:
    """Return differences in the main endpoint, ``worth/<dataset>/<other dataset>/<architecture>/<platform>``.

    ``worth/weights``: how many of them are between initial weights alone.
    """
    rows = read.contrasts[read.contrasts["label"] == ENDPOINT]
    values = {"worth/weights": str((rows["differs"] == "weights").sum())}
    for row in rows.itertuples():
        key = f"worth/{row.dataset_a}/{row.dataset_b}/{row.architecture}/{row.platform}"
        values[key] = difference(row)
    return values


def _literature_numbers(read: Results) -> Values:
    """Return sizes and citations of the published values that stand beside ours."""
    table = read.literature
    sizes = {name: table[f"n_{name}_published"].dropna().map("{:,.0f}".format) for name in ("train", "test")}
    values = {f"literature/{name}": listed(counts) for name, counts in sizes.items()}
    means = table.loc[table["label"] == "macro"].drop_duplicates("source")["published"]
    values["literature/macro"] = " and ".join(f"{value:.3f}" for value in sorted(means))
    return values | {"literature/sources": escape("; ".join(table["citation"].unique()), 1000)}
