"""Every number that the paper's prose may name, as text for a macro."""

from __future__ import annotations

from collections import Counter

import pandas as pd

from cxrbench.analysis.f1_search import TARGET
from cxrbench.analysis.matrix import NOT_RUN, REFUSED
from cxrbench.analysis.parity import checks_software
from cxrbench.claims.file import OURS
from cxrbench.claims.inputs import Basis
from cxrbench.claims.ledger import Verdict, against, findings
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.evidence.machine import load_in_words, short_processor
from cxrbench.paper import artifact, label_noise, multiplicity, power, provenance, simulated, splits
from cxrbench.paper.audit import audit_values
from cxrbench.paper.cost_numbers import cost_values
from cxrbench.paper.feasibility import reported_values
from cxrbench.paper.latex import escape
from cxrbench.paper.measurements import measurement_values
from cxrbench.paper.results import PHANTOM, Group, Results, counted, listed, processors_differ
from cxrbench.study.platform_names import ACCELERATED

VERDICTS = ("equivalent", "different", "inconclusive")


def numbers(read: Results) -> dict[str, str]:
    """Every number that the prose may name; ``dataset/architecture/platform/metric`` and counts."""
    cells = read.cells
    run = cells[cells["status"] != NOT_RUN]
    ok = cells[cells["status"] == "ok"]
    refused = cells[cells["origin"] == REFUSED]
    values = {
        "cells/total": str(len(cells)),
        "cells/run": str(len(run)),
        "cells/ok": str(len(ok)),
        "cells/failed": str(len(run) - len(ok)),
        "cells/not run": str(_not_run(cells).sum()),
        "cells/refused": str(len(refused)),
        "cells/refused/said": _refused_said(refused["cell"]),
        "cells/recorded": str((ok["origin"] == "recorded").sum()),
        "cells/fresh": str((ok["origin"] == "fresh").sum()),
        "f1/target": f"{TARGET:.2f}",
        "price/region": escape(read.study.prices.region),
        "price/basis": escape(read.study.prices.basis.replace("_", " ")),
    }
    for dataset in dict.fromkeys(cells["dataset"]):
        values |= _dataset_numbers(dataset, read)
    for group in dict.fromkeys(
        cells[["dataset", "architecture", "platform"]].itertuples(index=False, name=None)
    ):
        values |= _group_numbers(group, read)
    for more in (
        _run_numbers,
        _accuracy_numbers,
        _claim_numbers,
        _throughput_numbers,
        _literature_numbers,
        cost_values,
        measurement_values,
        audit_values,
        label_noise.numbers,
        splits.numbers,
        power.numbers,
        multiplicity.numbers,
        artifact.numbers,
        provenance.values,
        simulated.numbers,
    ):
        values |= more(read)
    return values | reported_values()


def _not_run(cells: pd.DataFrame) -> pd.Series:
    """Which cells nobody has run; a refused one is none of them."""
    return (cells["status"] == NOT_RUN) & (cells["origin"] != REFUSED)


def _refused_said(cells: pd.Series) -> str:
    """A sentence on recorded evidence that was not used, or nothing."""
    if cells.empty:
        return ""
    names = ", ".join(rf"\code{{{escape(cell)}}}" for cell in cells)
    return (
        f"Recorded evidence that is not what was recorded is refused, and nothing here rests on it: {names}."
    )


def _run_numbers(read: Results) -> dict[str, str]:
    """Cells of each platform: ``cells/<platform>/total``, ``.../run`` (failures too) and ``.../not run``;
    what those that need no accelerator wait for (``cells/waiting``), or nothing."""
    values = {}
    for platform, some in read.cells.groupby("platform"):
        values[f"cells/{platform}/total"] = str(len(some))
        values[f"cells/{platform}/run"] = str((some["status"] != NOT_RUN).sum())
        values[f"cells/{platform}/not run"] = str(_not_run(some).sum())
    waiting = (_not_run(read.cells) & ~read.cells["platform"].isin(ACCELERATED)).any()
    values["cells/waiting"] = "; the rest wait for hours of a processor, not for hardware" if waiting else ""
    return values


def _accuracy_numbers(read: Results) -> dict[str, str]:
    """The best network on the main dataset (``best/...``), and what was concluded on parity."""
    real = read.parity[
        ~read.parity["dataset"].str.startswith(PHANTOM) & (read.parity["kind"] != "noise floor")
    ]
    whole = real[(real["label"] == "macro") & (real["metric"] == "auroc")]
    values = {f"parity/{verdict}": str((whole["verdict"] == verdict).sum()) for verdict in VERDICTS}
    values["parity/sentence"] = _parity_sentence(real)
    values["parity/software"] = _software_only(real)
    values["parity/phantoms"] = _parity_of_phantoms(read.parity)
    best = read.best()
    if best is None or best[0].startswith(PHANTOM):
        return values
    chosen = sum(group[0] == best[0] for group in read.scored()) > 1
    aurocs = read.of(best, "auroc", "macro")
    f1 = read.f1_search[read.f1_search["cell"].str.startswith("/".join(best) + "/")]
    by_definition = f1.groupby("definition")["value"].mean().dropna()
    if len(by_definition):
        nearest = (by_definition - TARGET).abs().idxmin()
        values["f1/nearest"] = escape(str(nearest).removeprefix("f1_").replace("_", " "))
        label = "macro" if nearest == "f1_macro" else "all"
        values["f1/nearest value"] = escape(read.mean(best, str(nearest), label))
        without = f1.loc[f1["definition"] == nearest, "value_no_skill"].mean()
        values["f1/nearest without skill"] = f"{without:.3f}"
    scope = listed(read.of(best, "f1_macro", "macro")["note"])
    values["f1/scope"] = escape(scope or f"all {len(FINDINGS)} labels")
    return values | {
        "best/network": escape(best[1]),
        "best/platform": escape(best[2]),
        "best/dataset": escape(best[0]),
        "best/auroc": escape(read.mean(best, "auroc", "macro")),
        "best/seeds sentence": (
            f"its {len(aurocs)} seeds reach from {aurocs['value'].min():.4f} to {aurocs['value'].max():.4f}"
            if len(aurocs) > 1
            else "one seed was trained, so the spread over seeds is unknown"
        ),
        "best/of": "network with the highest test AUROC" if chosen else "only network yet",
        "best/picked": (
            "It is picked by that value, which may be a little too high for it." if chosen else ""
        ),
        "best/patients": counted(aurocs["n_patients"].iloc[0]),
        "best/f1_macro": escape(read.mean(best, "f1_macro", "macro")),
        "best/f1_micro": escape(read.mean(best, "f1_micro", "all")),
    }


def _parity_sentence(real: pd.DataFrame) -> str:
    """Every verdict on pairs of platforms over real radiographs, counted: the unfavourable ones too."""
    macro = real[real["label"] == "macro"]
    whole = macro[macro["metric"] == "auroc"]
    if whole.empty:
        return "No pair of platforms can be compared on real radiographs: no network has been run on two"
    pairs = ", ".join(f"{count} of {pair}" for pair, count in _pairs(whole).items())
    parts = [
        f"macro AUROC is {_verdict_counts(whole)}",
        f"macro F1 is {_verdict_counts(macro[macro['metric'] == 'f1_macro'])}",
        f"AUROC of single findings is {_verdict_counts(real[real['label'].isin(FINDINGS)])}",
    ]
    checks = all(checks_software(row) for row in whole.itertuples())
    compared = "Checks of the software" if checks else "Pairs of platforms"
    return f"{compared} on real radiographs: {pairs}; {'; '.join(parts)}"


def _verdict_counts(rows: pd.DataFrame) -> str:
    """``equivalent in 8 of 14, inconclusive in 6``."""
    counts = rows["verdict"].value_counts()
    found = [(verdict, counts[verdict]) for verdict in VERDICTS if verdict in counts]
    (first, count), *others = found or [("not computed", 0)]
    return ", ".join([f"{first} in {count} of {len(rows)}", *(f"{word} in {more}" for word, more in others)])


def _software_only(real: pd.DataFrame) -> str:
    """What pairs without an accelerator show, and that processors differ; empty where neither is so."""
    pairs = real[(real["label"] == "macro") & (real["metric"] == "auroc")]
    if pairs.empty:
        return ""
    differ = sum(processors_differ(row) for row in pairs.itertuples())
    said = []
    checks = sum(checks_software(row) for row in pairs.itertuples())
    if checks:
        some = (
            "None of these platforms is" if checks == len(pairs) else f"In {checks} of them neither side is"
        )
        said.append(
            f"{some} an accelerator: such pairs check the software and are no evidence about hardware."
        )
    if differ:
        said.append(f"In {differ} of {len(pairs)} pairs the processors differ too.")
    return " ".join(said)


def _pairs(rows: pd.DataFrame) -> dict[str, int]:
    """The two platforms that rows of parity.csv compare, as text, and how many rows do."""
    compared = zip(rows["platform_a"], rows["platform_b"], strict=True)
    return Counter(" and ".join(rf"\code{{{escape(name)}}}" for name in pair) for pair in compared)


def _parity_of_phantoms(parity: pd.DataFrame) -> str:
    """How many verdicts on which pairs of platforms over all phantoms there are, and how many of each."""
    pairs = parity[parity["dataset"].str.startswith(PHANTOM) & (parity["kind"] != "noise floor")]
    pairs = pairs[pairs["label"].isin(["macro", "every"])]
    if pairs.empty:
        return "no pair of platforms was run"
    counts = pairs["verdict"].value_counts()
    return f"of {len(pairs)} verdicts on {'; '.join(_pairs(pairs))} " + ", ".join(
        f"{counts[verdict]} {'is' if counts[verdict] == 1 else 'are'} {verdict}"
        for verdict in VERDICTS
        if verdict in counts
    )


def _claim_numbers(read: Results) -> dict[str, str]:
    """Counts by verdict and, of claims of others, by what they were held against; and what was computed for
    each claim: ``claim/<id>``, ``claim/<id>/now``."""
    others = read.claims[read.claims["source"] != OURS]
    found = {"claims": others["verdict"].value_counts(), "claims/against": others["basis"].value_counts()}
    values = {f"claims/{verdict}": "0" for verdict in Verdict}
    values |= {f"claims/against/{basis}": "0" for basis in Basis}
    for kind, counts in found.items():
        values |= {f"{kind}/{name}": str(count) for name, count in counts.items() if name}
    values["claims/against/outside"] = str((~others["basis"].isin(["", Basis.OWN])).sum())
    values["claims/total"] = str(len(read.claims))
    values["claims/others"] = str(len(others))
    values["claims/ours"] = str(len(read.claims) - len(others))
    values["claims/findings"] = str(findings(read.claims))
    values["claims/findings/entries"] = str(len(against(read.claims)))
    for row in read.claims.itertuples():
        for key, low, high in (
            (f"claim/{row.id}", row.computed_low, row.computed_high),
            (f"claim/{row.id}/now", row.now_low, row.now_high),
        ):
            if low != "":
                ends = [_three_digits(float(end)).replace("-", "$-$") for end in (low, high)]
                values[key] = ends[0] if ends[0] == ends[1] else " to ".join(ends)
                values[f"{key}/size"] = values[key].replace("$-$", "")
        values[f"claim/{row.id}/verdict"] = escape(row.verdict)
    return values


def _three_digits(value: float) -> str:
    short = float(f"{value:.3g}")
    return f"{short:,.0f}" if abs(short) >= 1000 else f"{short:g}"


def _throughput_numbers(read: Results) -> dict[str, str]:
    """The smallest and largest ratio over what was measured on any machine."""
    values = {}
    for name in ("ratio_to_timm", "ratio_to_timm_best", "share_of_limit"):
        column = read.throughput.get(name)
        values[f"throughput/{name}"] = (
            r"\emph{not measured}" if column is None else f"{column.min():.2f} to {column.max():.2f}"
        )
    peers = read.throughput.filter(["ratio_to_timm", "ratio_to_timm_best"])
    if len(peers):
        faster = peers.min(axis=1)
        values["throughput/ratio_to_faster"] = f"{faster.min():.2f} to {faster.max():.2f}"
    return values


def _literature_numbers(read: Results) -> dict[str, str]:
    """Sizes and citations of the published values that stand beside ours."""
    table = read.literature
    return {
        "literature/train": ", ".join(f"{n:,.0f}" for n in table["n_train_published"].dropna().unique()),
        "literature/test": ", ".join(f"{n:,.0f}" for n in table["n_test_published"].dropna().unique()),
        "literature/sources": escape("; ".join(table["citation"].unique()), 1000),
    }


def _dataset_numbers(dataset: str, read: Results) -> dict[str, str]:
    recipe = read.study.recipe(dataset)
    values = {
        f"{dataset}/epochs": str(recipe.epochs),
        f"{dataset}/batch": str(recipe.batch),
        f"{dataset}/learning rate": f"{recipe.learning_rate:g}",
        f"{dataset}/precision": recipe.precision,
        f"{dataset}/threads": str(recipe.threads),
        f"{dataset}/recipe": recipe.hash(),
        f"{dataset}/pixels": str(read.study.dataset(dataset).pixels),
    }
    if identity := read.identity(dataset):
        for split in SPLITS:
            values[f"{dataset}/{split}/images"] = f"{identity.images[split]:,}"
            values[f"{dataset}/{split}/patients"] = counted(identity.patients[split])
        values[f"{dataset}/images"] = f"{sum(identity.images.values()):,}"
        values[f"{dataset}/patients"] = counted(sum(identity.patients.values()))
    return values


def _group_numbers(group: Group, read: Results) -> dict[str, str]:
    key = "/".join(group)
    cells = read.cells[(read.cells[["dataset", "architecture", "platform"]] == group).all(axis=1)]
    ok = cells[cells["status"] == "ok"]
    values = {f"{key}/seeds": str(len(ok)), f"{key}/status": escape(listed(cells["status"]))}
    if ok.empty:
        return values
    aurocs = read.of(group, "auroc", "macro")
    for metric, label in (
        ("auroc", "macro"),
        ("average_precision", "macro"),
        ("f1_macro", "macro"),
        ("f1_micro", "all"),
    ):
        values[f"{key}/{metric}"] = escape(read.mean(group, metric, label))
    values |= {f"{key}/auroc/patients": counted(aurocs["n_patients"].iloc[0])}
    return values | _speed_numbers(key, read.runs(group), read)


def _speed_numbers(key: str, runs: pd.DataFrame, read: Results) -> dict[str, str]:
    """Speed, time and cost of the runs that stand for a group, means over seeds with their range."""
    if runs.empty:
        return {}
    records = [read.record(row.cell, row.origin) for row in runs.itertuples()]
    speeds = pd.Series([record.timing.images_per_second for record in records], dtype=float)
    return {
        f"{key}/images per second": _mean_and_range(speeds, "{:.0f}"),
        f"{key}/minutes": _mean_and_range(runs["hours_total"] * 60, "{:.1f}"),
        f"{key}/device": escape(short_processor(runs["machine"].iloc[0])),
        f"{key}/load": _load(runs["others_share"]),
        f"{key}/usd": _mean_and_range(runs["usd_total"], "{:.3f}"),
        f"{key}/usd kind": escape(listed(runs["kind"])),
        f"{key}/instance": escape(listed(runs["instance"])),
        f"{key}/price date": escape(listed(runs["as_of"])),
    }


def _mean_and_range(values: pd.Series, form: str) -> str:
    """``0.021 (0.019 to 0.024)``: the mean and the range over seeds; one seed has no range."""
    if values.isna().all():
        return r"\emph{not reached}"
    low, mean, high = (form.format(value) for value in (values.min(), values.mean(), values.max()))
    return f"{mean} ({low} to {high})" if len(values) > 1 else mean


def _load(shares: pd.Series) -> str:
    """How busy the machine was while these cells trained, the busiest first."""
    return escape(load_in_words(None if shares.isna().any() else float(shares.max())))
