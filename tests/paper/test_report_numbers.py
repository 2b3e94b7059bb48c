"""What the prose says follows from the tables, also where cells fail, are refused, or none is left to run."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.evidence.record import DatasetIdentity
from cxrbench.paper import documents, items
from cxrbench.paper.conclusions import conclusions, written
from cxrbench.paper.formats import Values
from cxrbench.paper.items import as_text, keys_of
from cxrbench.paper.results import Results
from cxrbench.paper.values import values_of
from cxrbench.results.matrix import cells_table

from .conftest import drawn_by_name, named_values

COUNTS = ("total", "ok", "failed", "not run", "refused")


def test_failed_and_refused_cells_are_counted_once(read: Results) -> None:
    before, cells = counts(named_values(read, "cells/")), read.cells.copy()
    failed = cells.index[(cells["status"] == "ok") & (cells["platform"] == "cpu")][-1]
    refused = cells.index[(cells["status"] == "not run") & (cells["platform"] == "cuda")][0]
    cells.loc[failed, "status"] = "crashed"
    cells.loc[refused, "origin"] = "refused"
    values = named_values(replace(read, cells=cells), "cells/")
    after = counts(values)
    assert after["ok"] == before["ok"] - 1
    assert (after["failed"], after["refused"]) == (before["failed"] + 1, before["refused"] + 1)
    assert after["ok"] + after["failed"] + after["not run"] + after["refused"] == after["total"]
    keys = [f"cells/{name}/run" for name in dict.fromkeys(cells["platform"])]
    by_platform = values_of(replace(read, cells=cells), keys)
    assert sum(by_platform[key] for key in keys) == after["ok"] + after["failed"]


def counts(values: Values) -> dict[str, int]:
    return {name: values[f"cells/{name}"] for name in COUNTS}


def test_no_claims_number_is_printed_with_an_exponent(read: Results) -> None:
    every = values_of(read, [f"claim/{name}" for name in read.claims["id"]])
    printed = {name: str(value) for name, value in every.items()}
    assert printed["claim/O14"] == "14,400"
    assert [name for name, text in printed.items() if re.search(r"\de[+-]?\d", text)] == []


def test_captions_name_the_datasets_whose_patients_are_unknown(read: Results, monkeypatch) -> None:
    captions = [items.tables()[name].caption for name in ("auroc", "f1", "average_precision")]
    keys = {key for caption in captions for key in keys_of(caption)}
    known = values_of(read, keys)
    assert not any("are unknown" in as_text(caption, known) for caption in captions)
    identity = Results.identity

    def without_patients(self: Results, dataset: str) -> DatasetIdentity | None:
        found = identity(self, dataset)
        same = found is None or dataset != "nih128-64px"
        return found if same else found.model_copy(update={"patients": dict.fromkeys(found.patients, 0)})

    monkeypatch.setattr(Results, "identity", without_patients)
    values = values_of(read, keys)
    for caption in captions:
        assert "Patients of nih128-64px are unknown: each image counts as one" in as_text(caption, values)


def test_nothing_waits_for_a_processor_once_all_its_cells_ran(read: Results) -> None:
    here = read.cells["platform"].isin(["cpu", "xla_cpu"])
    done = read.cells[~here | (read.cells["status"] == "ok")]
    assert (done["status"] == "not run").any()
    assert named_values(replace(read, cells=done), "cells/")["cells/waiting"] == 0
    one_waits = done.copy()
    one_waits.loc[one_waits.index[one_waits["status"] == "ok"][-1], "status"] = "not run"
    assert named_values(replace(read, cells=one_waits), "cells/")["cells/waiting"] == 1


def test_a_recorded_cell_that_nobody_planned_is_not_called_planned(read: Results) -> None:
    """The study plans one seed of one network; the others of its dataset are recorded here all the same."""
    values = named_values(read, "cells/")
    assert f"{values['cells/total']} planned training runs are done" in conclusions(values)[0].text
    dataset = "nih128-64px"
    block = {"dataset": dataset, "architectures": ["resnet18"], "platforms": ["cpu"], "seeds": [0]}
    study = read.study.model_validate(
        read.study.model_dump(mode="json", exclude_none=True) | {"cells": [block], "run": []}
    )
    cells = cells_table(study, sorted(Path("results/cells").glob("*/*/*/*/record.json")), read.recorded)
    assert set(cells["dataset"]) == {dataset} and set(cells["status"]) == {"ok"} and len(cells) > 3
    values = named_values(replace(read, study=study, cells=cells), "cells/")
    text = conclusions(values)[0].text
    assert f"{len(cells)} of {len(cells)} planned or recorded training runs are done" in text
    pages = [*(ROOT / "paper").rglob("*.tex"), *(ROOT / "src/cxrbench/paper").rglob("*.t*")]
    assert [
        path
        for path in pages
        if re.search(r"cells/total\} (?!\\val|(are )?\{cells/kind|training runs)", path.read_text())
    ] == []


@pytest.mark.parametrize(
    ("others", "counts", "verdicts"),
    [
        (["xla_cpu", "xla_cpu"], (2, 0), "inconclusive in 2 of 2"),
        (["xla_cpu", "cuda"], (2, 1), "inconclusive in 2 of 2"),
        ([], (0, 0), "not computed in 0 of 0"),
    ],
)
def test_comparisons_on_real_radiographs_are_counted(read: Results, others, counts, verdicts: str) -> None:
    pairs = [*(("nih", other) for other in others), *([("phantom", "cuda")] if others else [])]
    rows = pd.DataFrame(pairs, columns=["dataset", "platform_b"]).assign(
        kind="platforms", platform_a="cpu", label="endpoint", metric="auroc", verdict="inconclusive"
    )
    rows = drawn_by_name(rows).reindex(columns=read.parity.columns).astype({"drawn": bool})
    values = named_values(replace(read, parity=rows), "parity/")
    assert tuple(values[f"parity/pairs{of}"] for of in ("", "/accelerated")) == counts
    assert values["parity/auroc"] == verdicts


def test_tables_and_numbers_need_no_cell_and_no_measurement(read: Results, tmp_path: Path) -> None:
    frames = {name: value[:0] for name, value in vars(read).items() if isinstance(value, pd.DataFrame)}
    cells = read.cells.assign(status="not run", origin="", ended=float("nan"), commit=float("nan"))
    nothing = replace(read, **frames | {"cells": cells, "claims": read.claims, "recorded": tmp_path})
    made = {name: item.make(nothing).texts for name, item in items.tables().items()}
    assert made["gains"].empty and made["auroc"].empty and set(made["cells"]["Status"]) == {"not run"}
    values = named_values(nothing)
    assert values["cells/run"] == 0 and values["parity/pairs"] == 0 and "largest/auroc" not in values


def test_the_best_network_is_never_said_to_be_the_best_of_other_datasets() -> None:
    """It is chosen on the main dataset; others are other images, or the same at another size."""
    sections = [path.read_text() for path in sorted((ROOT / "paper/sections").glob("*.tex"))]
    prose = "\n".join([*sections, *(item.caption for item in items.tables().values())])
    named = re.findall(r"best network[^:;]*", prose)
    assert named and all("{best/dataset}" in text for text in named)


def test_conclusions_are_made_of_the_papers_values_and_name_what_shows_them(read: Results) -> None:
    values = named_values(read)
    made = {one.topic: one for one in conclusions(values)}
    order = ["Status", "Accuracy reached", "Cost", "Parity", "Power", "Published claims"]
    others = ("Variance of one score", "Precision")  # need ten seeds, and pairs of precisions
    assert [topic for topic in made if topic not in others] == order
    pairs = read.parity.query("kind != 'noise floor' and label == 'endpoint' and metric == 'auroc'")
    real = pairs[~pairs["dataset"].str.startswith("phantom")]
    largest = f"{max(real['difference'], key=abs):+.4f}".replace("-", "\u2212")
    assert f"difference is {largest} (90 % interval" in made["Parity"].text
    (preprint,) = read.claims.query("id == 'P08'")["stated"]
    assert f"the preprint's {preprint} times holds on demand" in made["Cost"].text
    for one in made.values():
        assert not re.search(r"[\\{}]|not run|undefined|\b(none|nan)\b", one.text), one
        assert set(one.claims) <= set(read.claims["id"]) and set(one.tables) <= set(items.tables())


def numbers_in(text: str) -> set[float]:
    levels = re.sub(r"\b9[05] %|F1|\b(bf|fp|tf)\d+|[a-z]\w*_\w*|resnet\d+", "", text)  # and names
    digits = re.findall(r"[+\u2212-]?\d[\d,]*(?:\.\d+)?", levels)
    return {abs(float(one.replace(",", "").lstrip("+\u2212-"))) for one in digits}


def test_the_tables_that_a_finding_of_the_readme_names_have_its_numbers(read: Results) -> None:
    status, *findings = conclusions(named_values(read))
    cells = items.tables()["cells"].make(read).rows
    seeds = cells.assign(seeds=cells["Seeds"].map(seeds_of))
    run = seeds["Status"] != "not run"
    assert numbers_in(status.text) == {seeds.loc[run, "seeds"].sum(), seeds["seeds"].sum()}
    of_readme = [one["topic"] for one in written()[1 : 1 + documents.SHOWN_FINDINGS]]
    for one in (one for one in findings if one.topic in of_readme):
        tables = [items.tables()[name].make(read).texts for name in one.tables]
        texts = [str(text) for table in tables for text in (*table, *table.to_numpy().ravel())]
        assert numbers_in(one.text) and numbers_in(one.text) <= set().union(*map(numbers_in, texts)), one


def seeds_of(text: str) -> int:
    """How many seeds ``0, 1, 5 to 7`` names."""
    ends = [list(map(int, part.split(" to "))) for part in text.split(", ")]
    return sum(part[-1] - part[0] + 1 for part in ends)


def test_a_conclusion_with_an_unknown_value_is_left_out(read: Results) -> None:
    values = {key: value for key, value in named_values(read).items() if not key.startswith("parity/")}
    topics = [one.topic for one in conclusions(values)]
    assert "Parity" not in topics and {"Status", "Cost", "Power", "Published claims"} <= {*topics}
    assert conclusions({}) == []


def test_the_status_says_what_has_not_run_only_while_it_has_not(read: Results) -> None:
    values = named_values(read, "cells/")
    here, *_ = conclusions(values)
    assert here.text.startswith("Nothing here has run on AWS Trainium or on an NVIDIA GPU. ")
    assert here.text.endswith("all on CPUs. Whether Trainium trains as accurately as CUDA is still open.")
    on_trainium, *_ = conclusions({**values, "cells/neuron/run": 3, "cells/accelerated/run": 3})
    assert on_trainium.text.endswith("done, 0 of them on CUDA and 3 on Trainium.")
    of_others = {name: value for name, value in values.items() if not re.match("cells/(cuda|neuron)/", name)}
    own, *_ = conclusions(of_others)
    assert own.text.endswith("planned training runs are done, all on CPUs.") and "Trainium" not in own.text


@pytest.mark.slow
def test_the_documents_quote_what_the_paper_computes_of_power(from_all_evidence: Path) -> None:
    values = json.loads((from_all_evidence / "results/values.json").read_text(encoding="utf-8"))
    text = " ".join((ROOT / "docs/statistics.md").read_text().split())
    for name in ("macro", "macro/median", "micro", "micro/median", "macro/fixed", "micro/fixed"):
        value = values[f"power/preprint/{name}"]
        assert value in text, f"{name}: the paper has {value}"


@pytest.mark.slow
def test_the_table_of_seeds_is_the_curves_read_off_where_they_pass_the_power(from_all_evidence: Path) -> None:
    curves = pd.read_csv(from_all_evidence / "results/tables/powers.csv")
    rows = pd.read_csv(from_all_evidence / "results/tables/table_shared.csv", dtype=str).to_numpy()
    datasets = {
        "fp32 - bf16": ("-32px-fp32", "-32px-bf16"),
        "Neuron - A10G": ("-arith-matmult", "-arith-tf32"),
    }
    assert len(rows) == 4
    shares = pd.read_csv(from_all_evidence / "results/tables/shares.csv").query("label == 'endpoint'")
    for network, between, not_shared, *printed in rows:
        ends = [
            curves[f"dataset_{side}"].str.endswith(end)
            for side, end in zip("ab", datasets[between], strict=True)
        ]
        curve = curves[(curves["architecture"] == network) & ends[0] & ends[1]].set_index("seeds")
        measured, worst = curve["as_measured"], curve["at_worst"]
        sides = curve[["dataset_a", "dataset_b"]].iloc[0].to_numpy()
        of_pair = (shares[["dataset", "dataset_b"]] == sides).all(axis=1) & (
            shares["architecture"] == network
        )
        (share,) = shares.loc[of_pair, "share"]
        assert not_shared.startswith(f"{share:.2f} (")
        assert printed == [
            f"{100 * measured[3]:.0f} %",
            f"{100 * curve['subsets'][3]:.0f} %",
            f"{measured[measured >= 0.8].index.min()}",
            f"{100 * worst[3]:.0f} %",
            f"{worst[worst >= 0.8].index.min()}",
        ]
