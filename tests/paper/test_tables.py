"""Tables: means with their intervals, calibration, reports of others, and what fits a page."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from conftest import ROOT, must_work, text_of
from cxrbench.common.errors import UserError
from cxrbench.datasets.nih_table import FINDINGS
from cxrbench.evidence.store import AHEAD, STEP_DIFFERENCES, STEP_FLOOR
from cxrbench.neuron.audit import read_audit
from cxrbench.neuron.reports import FORWARD, Reported, Score, read_reported, score
from cxrbench.paper import items, seed_pairs, tables
from cxrbench.paper.formats import Judgement, Parts, PlusMinus, Range, Table, Value, WithInterval, text
from cxrbench.paper.items import as_latex, as_text
from cxrbench.paper.latex import macros, placed
from cxrbench.paper.measurements import below_goal, gate, largest_steps, predictive_value, speeds, throughput
from cxrbench.paper.provenance import status_matrix
from cxrbench.paper.results import Results, mean_of_seeds, read_measurements, with_interval
from cxrbench.statistics.f1_search import OTHERS
from cxrbench.study.config import read_study

from .conftest import a_paper, made_up

GROUP = ("nih", "resnet18", "cpu")
NETWORK = "nih128-64px resnet18 cpu"
WIDE = pd.DataFrame({name: ["same", "same"] for name in "abcdefgh"} | {"i": ["1", "2"]})


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([0.70, 0.72, 0.74], "0.720 (0.650 to 0.790)"),  # the interval of the mean, no mean of intervals
        ([0.7], "0.700 (0.100 to 0.900)"),
        ([0.70, float("nan"), 0.74], "0.720 (2 of 3 seeds)"),
    ],
)
def test_a_mean_over_seeds_has_its_own_interval(values: list[float], shown: str) -> None:
    key = dict(zip(("dataset", "architecture", "platform"), GROUP, strict=True))
    key |= {"metric": "auroc", "label": "macro"}
    metrics = pd.DataFrame([key | {"value": value, "ci_low": 0.1, "ci_high": 0.9} for value in values])
    mean = key | {"mean": sum(values) / len(values), "ci_low": 0.65, "ci_high": 0.79}
    read = made_up(metrics=metrics, spread=pd.DataFrame([mean]))
    assert text(read.mean(GROUP, "auroc", "macro"), "auroc") == shown
    assert text(read.mean(GROUP, "auroc", "Mass"), "auroc") == "undefined"
    assert text(mean_of_seeds(metrics["value"] * float("nan")), "auroc") == "undefined"
    if len(values) > 1:
        with pytest.raises(ValueError):
            with_interval(metrics)  # networks are not averaged with their intervals


def test_a_variance_stands_beside_its_error_where_one_was_computed() -> None:
    rows = pd.DataFrame(
        {
            "metric": "f1_macro",
            "source": ["seed", "setting"],
            "setting": [None, "precision"],
            "network": [None, "a"],
        }
    )
    rows = rows.assign(
        variance=[1.87e-6, -4.4e-6], error=[5.32e-6, np.nan], sd=[0.0014, 0], fraction=0.01, p=0.9
    )
    shown = seed_pairs.sources(made_up(sources=rows)).texts
    assert shown[["Variance", "Error"]].to_numpy().tolist() == [
        ["1.9·10^-6", "5.3·10^-6"],
        ["-4.4·10^-6", ""],
    ]


@pytest.mark.parametrize(("seeds", "interval"), [(3, "setting, 3 seeds"), (1, "one network")])
def test_calibration_stands_beside_what_chance_would_show(read: Results, seeds: int, interval: str) -> None:
    table = tables.calibration(replace(read, metrics=read.metrics[read.metrics["seed"] < seeds])).rows
    assert not table["Network"].str.contains("phantom").any()
    row = table.set_index("Network").loc[NETWORK]
    chance, error = row["By chance"], row["Calibration error"]
    assert 0 < chance.low <= error.low <= error.high < 0.05 and (error.low < error.high) == (seeds > 1)
    assert row["Interval of"] == interval
    for column in ("In the large, %", "Brier score", "Average precision"):
        assert row[column].low < row[column].value < row[column].high, column


def test_average_precision_stands_beside_prevalence(read: Results) -> None:
    made = tables.average_precision(read)
    table = made.rows
    assert len(table) == len(FINDINGS) + 1 and len(made.foot) == 1  # macro; whose interval it is
    identity = read.identity("nih128-64px")
    share = identity.positive_images["Effusion"]["test"] / identity.images["test"]
    assert table.set_index("Finding").loc["Effusion", "Prevalence"] == pytest.approx(share)


@pytest.mark.parametrize(
    ("seeds", "shown"),
    [
        ([0.2, 0.3, 0.4], "0.200 to 0.400"),
        ([np.nan] * 3, "none"),
        ([0.0] * 3, "any"),
        ([np.nan, np.nan, 0.9], "0.900 (1 of 3 seeds), none (2 of 3 seeds)"),
        ([0.0, 0.5, 0.7], "0.500 to 0.700 (2 of 3 seeds), any (1 of 3 seeds)"),
    ],
)
def test_the_prevalence_needed_is_a_range_only_of_seeds_that_agree(read: Results, seeds, shown: str) -> None:
    best = "/".join(read.best())
    search = read.f1_search[read.f1_search["cell"] == f"{best}/seed0"]
    rows = [search.assign(cell=f"{best}/seed{n}", prevalence_needed=value) for n, value in enumerate(seeds)]
    table = tables.what_f1_could_be(replace(read, f1_search=pd.concat(rows)))
    assert set(table.texts["Prevalence needed"]) == {shown, "-"}  # the others have none
    assert (table.texts["Prevalence needed"] == "-").sum() == len(OTHERS)


def test_a_wide_table_says_once_what_all_rows_share_and_a_single_row_stands_upright() -> None:
    item = items.tables()["auroc"]
    text = placed(item, Table(WIDE))
    assert text.count("same") == 8 and "In all rows:" in text and len(sides(text)) == 1
    assert "1 \\\\" in text and "2 \\\\" in text
    upright, narrow = placed(item, Table(WIDE.head(1))), placed(item, Table(WIDE[["a", "i"]], {"i": "count"}))
    assert len(sides(upright)) == 2 and "a & same" in upright
    assert "In all rows" not in narrow and sides(narrow) == ["l", "r"]


def sides(latex: str) -> list[str]:
    """Return where the columns of a table stand."""
    columns = re.search(r"\\begin\{tabulary\}\{\\linewidth\}\{@\{\}(\w+)@\{\}\}", latex)
    assert columns
    return list(columns[1].lower())


@pytest.mark.parametrize("columns", [15, 20, 40])
def test_columns_that_no_page_holds_stand_in_parts_below_each_other(columns: int) -> None:
    heads = ["Finding", *(f"network{number:04d}" for number in range(columns))]
    rows = pd.DataFrame(
        [[f"{row}x{number:08d}" for number in range(columns + 1)] for row in "ab"], columns=heads
    )
    text = placed(items.tables()["auroc"], Table(rows))
    assert 2 < len(sides(text)) <= 13
    assert all(text.count(name) == 1 for name in (*heads[1:], *rows.iloc[:, 1:].to_numpy().flat))
    assert text.count("Finding &") == text.count("ax00000000 &") == text.count(r"\midrule Finding") + 1


def test_a_column_repeats_nothing_only_while_all_columns_before_it_repeat_too() -> None:
    rows = pd.DataFrame([["a", "x", "1"], ["a", "x", "1"], ["b", "x", "1"]], columns=["A", "B", "C"])
    text = placed(items.tables()["auroc"], Table(rows))
    lines = [line for line in text.split("\n") if line.endswith(r" \\")]
    assert lines[1:] == [r"a & x & 1 \\", r" &  & 1 \\", r"b & x & 1 \\"]


@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (WithInterval(0.0004, -0.0012, 0.002), "difference", "+0.0004 (-0.0012 to +0.0020)"),
        (WithInterval(0.5, note="too few patients"), "auroc", "0.500 (too few patients)"),
        (Range(0.25, 0.25), "ratio", "0.25"),
        (Range(12, float("inf")), "one", "12.0 to never"),
        (PlusMinus(0.0304, 0.0033), "usd", "0.0304 ± 0.0033"),
        (PlusMinus(0.5, float("nan")), "usd", "0.500 (1 seed)"),
        (1234.5, "usd", "1,234"),
        (Parts((3, 4), " of "), "count", "3 of 4"),
        (Judgement("equivalent", 0.01, Range(-0.001, 0.002), starred=True), "verdict",
         "equivalent within 0.01: -0.0010 to +0.0020 *"),
        (float("nan"), "usd", "none"),
        (None, "count", ""),
        ("not stated", "count", "not stated"),
    ],
)  # fmt: skip
def test_a_kind_prints_every_shape_of_a_value(value, kind: str, shown: str) -> None:
    assert text(value, kind) == shown


def test_a_row_below_is_no_row_of_numbers(read: Results) -> None:
    table = tables.auroc_per_label(read)
    assert set(table.foot["Finding"]) == {"Interval of", "Run on"}
    assert all(isinstance(value, WithInterval) for value in table.rows.iloc[:, 1:].to_numpy().ravel())
    assert len(table.texts) == len(table.rows) + len(table.foot)


def test_the_words_of_a_caption_are_the_same_in_html_and_pdf(tmp_path: Path, request) -> None:
    caption = "`a_b` has {key} of 95 % at {missing}; -0.1 ± 2."
    values = {"key": Value(Range(-2, 3), "signed")}
    shown = as_text(caption, values)
    assert shown == "a_b has \u22122.0000 to +3.0000 of 95 % at not run; \u22120.1 ± 2."
    assert as_text("see {tab:auroc}", {}) == "see “Test AUROC per finding”"
    assert as_latex("see {tab:auroc}") == r"see \autoref{tab:auroc}"
    request.getfixturevalue("latex")
    source = (ROOT / "paper/main.tex").read_text()
    commands = re.findall(r"^\\newcommand\{\\(?:val|code)\}.*", source, flags=re.M)
    head = r"\documentclass{article}\usepackage[T1]{fontenc}\usepackage{etoolbox}\pagestyle{empty}"
    lines = [
        head,
        *commands,
        r"\input{generated/macros}\begin{document}",
        as_latex(caption),
        r"\end{document}",
    ]
    must_work(*a_paper(tmp_path, "\n".join(lines), macros(values)), cwd=tmp_path)
    assert "".join(text_of(tmp_path / "out.pdf").split()) == "".join(shown.split())


def test_reports_of_others_are_marked_and_never_hide_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    rows = [("neuron", "not run", ""), ("cpu", "ok", "recorded"), ("cpu", "compile_failed", "fresh")]
    cells = pd.DataFrame(rows, columns=["platform", "status", "origin"])
    cells = cells.assign(dataset="d", architecture="convnext_tiny", seed=cells.index)
    cells["cell"] = [f"d/convnext_tiny/{row.platform}/seed{row.seed}" for row in cells.itertuples()]
    study = read_study(ROOT / "config/config.yaml")
    table = status_matrix(made_up(cells=cells, study=study)).rows.set_index("Architecture")
    cited = "reported to fail, forward reported to run (cited)"
    assert table.loc["convnext_tiny", "neuron"] == f"1 not run; {cited}"
    assert table.loc["convnext_tiny", "cpu"] == "1 recorded; 1 compile failed"
    outside = table[table.index.str.contains("maxvit")].iloc[0]
    assert outside["cpu"] == "not run" and outside["neuron"].startswith("not run; reported to work")
    forward = read_reported().query("platform == 'neuron'").set_index("architecture")
    forward = forward.loc["convnext_tiny", "status"].tolist()
    assert forward == ["reported to fail", FORWARD], "a forward pass is no training"


def test_a_short_interval_is_not_broken_between_lines() -> None:
    texts = ["+0.0029 (-0.0035 to +0.0093)", "0.46 (0.39 to 0.52)", "-0.00008 (-0.00019 to +0.00003)"]
    text = placed(items.tables()["auroc"], Table(pd.DataFrame({"a": texts, "b": 1})))
    assert "0.0035~to~+0.0093)" in text and "(0.39~to~0.52)" in text
    assert "0.00019 to +0.00003)" in text, "too long for a narrow column"


def test_whoever_names_the_audit_says_what_its_flags_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    says = predictive_value(score(read_reported(), read_audit(Path("data/recorded"))))
    assert "no predictive value: of 8 reports about networks that they flag 2 are failures" in says
    for page in ("docs/commands.md", "docs/audit.md"):
        assert says in " ".join((ROOT / page).read_text(encoding="utf-8").split()), page
    for advice in ("paper/sections/abstract.tex", "paper/sections/discussion.tex", "docs/practitioner.md"):
        assert "cxrbench audit" not in (text := (ROOT / advice).read_text(encoding="utf-8"))
        assert "graph audit" not in text
    assert predictive_value(Score(flagged_failed=1)) == "", "nothing to compare with"


def test_each_recorded_speed_is_judged_and_the_slow_ones_have_their_roofline() -> None:
    read = SimpleNamespace(recorded=ROOT / "data/recorded")
    rows, shown = read_measurements(read.recorded, "train"), throughput(read).texts
    assert len(shown) == len(rows)
    ahead = rows["ratio_to_timm_best"] >= AHEAD
    assert (shown["Best by 1.10"] == ahead.map({True: "yes", False: "no"})).all()
    kept = rows[["ratio_to_timm_kept", "ratio_to_timm_best_kept"]].min(axis=1, skipna=False)
    assert set(shown.loc[kept.isna(), "Never behind"]) == {""} and kept.notna().any()
    assert (
        shown.loc[kept.notna(), "Never behind"] == (kept.dropna() >= 1).map({True: "yes", False: "no"})
    ).all()
    assert (shown["In matrix work"] != "").sum() == rows["matrix_share"].notna().sum() > 0
    below = speeds(read).query("below")
    assert len(below) == (~ahead).sum()
    said = below_goal(below)
    assert said.count(": at most") == (~ahead & rows["matrix_share"].notna()).sum()
    assert said.count("not recorded") == (~ahead & rows["matrix_share"].isna()).sum()


def test_the_largest_differences_of_steps_stand_beside_the_noise_floor() -> None:
    read = SimpleNamespace(recorded=ROOT / "data/recorded")
    rows, shown = read_measurements(read.recorded, "steps"), largest_steps(read).texts
    of = ["architecture", "host", "platform"]
    largest = rows[rows["precision"] == "fp32"].groupby(of, sort=False)[list(STEP_DIFFERENCES)].max()
    for row, said in zip(
        (key for key in largest.index if key[2] != STEP_FLOOR), shown.to_dict("records"), strict=True
    ):
        most, floor = (
            largest.loc[(*row[:2], name), "gradient_norm_difference"] for name in (row[2], STEP_FLOOR)
        )
        assert said["Network"] == f"{row[0]} {row[2]}"
        printed = said["Gradient norm"].replace("·10^", "e").rstrip(")").split(" (")
        assert [float(value) for value in printed] == [float(f"{value:.0e}") for value in (most, floor)]


def test_defects_that_the_gate_found_and_variants_that_it_let_pass_are_counted(tmp_path: Path) -> None:
    (recorded,) = (ROOT / "data/recorded/bench").glob("*/gate_table.csv")
    rows = pd.read_csv(recorded, keep_default_na=False)
    assert (rows["commit"].str.len() == 40).all() and set(rows["list"]) == {"defect", "correct"}
    shown = gate(SimpleNamespace(recorded=ROOT / "data/recorded")).texts.set_index("Precision")
    assert list(shown.index) == list(dict.fromkeys(rows["precision"]))
    for precision, of in rows.groupby("precision"):
        for name, column in (("defect", "Defects found"), ("correct", "Variants passed")):
            ratios = [float(row.ratio) for row in of.itertuples() if row.list == name]
            right = sum(ratio > 1 if name == "defect" else ratio <= 1 for ratio in ratios)
            assert shown.loc[precision, column] == f"{right} of {len(ratios)}"
            assert right == len(ratios) or name == "defect", "a correct variant was stopped"
    # One that was missed, and a variant that was stopped, are not counted as right.
    (place := tmp_path / "bench/here/gate_table.csv").parent.mkdir(parents=True)
    rows.assign(ratio=rows["list"].map({"defect": 0.5, "correct": 2.0})).to_csv(place, index=False)
    wrong = gate(SimpleNamespace(recorded=tmp_path)).texts
    assert all(text.startswith("0 of ") for text in [*wrong["Defects found"], *wrong["Variants passed"]])


@pytest.mark.parametrize(
    ("read_file", "row", "message"),
    [
        (read_reported, "a,neuron,forward,ran,,,,,,,x.com,read,w", "column outcome: unknown value 'ran'"),
        (read_reported, "a,neuron,half,works,,,,,,,x.com,read,w", "column part: unknown value 'half'"),
        (read_reported, "a,neuron,forward,works,,,0,,,,x.com,read,w", "column batch: '0' must be above 0"),
        (read_reported, "a,neuron,training,works,,,,,,,x.com,heard,w", "column source_was: unknown value"),
        (read_reported, "a,neuron,training,works,,,,,,,,read,w", "column source: is empty"),
    ],
)
def test_a_word_that_a_file_may_not_have_is_named_with_its_line(tmp_path, read_file, row, message) -> None:
    path = tmp_path / "file.csv"
    path.write_text(f"{','.join(Reported.columns())}\n{row}\n")
    with pytest.raises(UserError, match=re.escape(f"file.csv:2: {message}")):
        read_file(path)


def test_arms_of_a_block_are_compared_once_all_planned_seeds_are_recorded() -> None:
    """What was declared for ten seeds is not answered by six."""
    study = read_study(ROOT / "config/config.yaml")
    arms = [f"nih128-32px-arith-{arm}" for arm in ("matmult", "tf32")]
    row = {
        "dataset_a": arms[0], "dataset_b": arms[1], "architecture": "resnet18", "platform": "cpu",
        "differs": "arithmetic", "label": "endpoint", "difference": 0.001, "ci90_low": -0.002,
        "ci90_high": 0.004, "margin": 0.01, "p_family": 0.01, "verdict": "equivalent", "drawn": False,
        "last_difference": 0.0012, "last_ci90_low": -0.0018, "last_ci90_high": 0.0042,
    }  # fmt: skip
    planned = pd.DataFrame([vars(cell) | {"cell": str(cell)} for cell in study.all_cells()])
    for seeds, shown in ((range(10), 1), (range(6), 0)):
        contrasts = pd.DataFrame([row | {"seeds_a": ",".join(map(str, seeds))}])
        read = made_up(contrasts=contrasts, cells=planned, study=study)
        assert len(seed_pairs.arms(read).texts) == shown
    assert f"±{seed_pairs.SECOND_MARGIN}" in (ROOT / "docs/arithmetic.md").read_text(encoding="utf-8")
    ends = [(-0.002, 0.0049), (-0.002, 0.005), (-0.0051, 0.004)]
    wide = pd.DataFrame(
        row | {"seeds_a": "0,1,2,3,4,5,6,7,8,9", "ci90_low": low, "ci90_high": high} for low, high in ends
    )
    within = seed_pairs.arms(made_up(contrasts=wide, cells=planned, study=study)).texts
    assert within["Within 0.005"].tolist() == ["yes", "not shown", "not shown"]
    assert within["Last step"].iloc[0] == "+0.0012 (-0.0018 to +0.0042)"


@pytest.mark.parametrize(
    ("ends", "networks"),
    [
        ((0.004, 0.0049), "ConvNeXt-Pico and ResNet-18"),
        ((0.004, 0.006), "ConvNeXt-Pico alone"),
        ((0.006, 0.006), "no network"),
    ],
)
def test_the_second_margin_names_the_networks_that_lie_within_it(ends, networks: str) -> None:
    study = read_study(ROOT / "config/config.yaml")
    names, numbers = ("convnext_pico", "resnet18"), "0,1,2,3,4,5,6,7,8,9"
    contrasts = pd.DataFrame(
        {
            "dataset_a": "nih128-32px-arith-matmult", "dataset_b": "nih128-32px-arith-tf32",
            "architecture": name, "platform": "cpu", "differs": "arithmetic", "label": "endpoint",
            "difference": 0.001, "ci90_low": -0.002, "ci90_high": end, "verdict": "equivalent",
            "drawn": False, "seeds_a": numbers, "last_difference": 0.001, "last_ci90_low": -0.002,
            "last_ci90_high": end,
        }
        for name, end in zip(names, ends, strict=True)
    )  # fmt: skip
    contrasts = contrasts.assign(metric="auroc")
    beyond = dict.fromkeys(("beyond", "ci_low", "ci_high", "seed_sd", "seed_sd_of_orders"), 0.001)
    table = pd.DataFrame({"architecture": name, **beyond} for name in names)
    planned = pd.DataFrame([vars(cell) | {"cell": str(cell)} for cell in study.all_cells()])
    read = made_up(contrasts=contrasts, cells=planned, study=study, tables={"arithmetic": table})
    (said,) = seed_pairs.arithmetic_of_platforms(read).to_dict("records")
    assert said["second"] == networks
