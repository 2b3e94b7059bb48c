"""Two sets of runs compared: known answers, an independent implementation, exchange, verdicts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import brentq

from columns import LABELS, SCORES
from conftest import ROOT
from cxrbench.statistics import compare_runs
from cxrbench.statistics.components import Verdict, verdict_of
from cxrbench.statistics.errors import UserError
from cxrbench.statistics.estimates import estimate_cell
from cxrbench.statistics.examples import predictions
from cxrbench.statistics.parity import Margins, parity
from cxrbench.statistics.predictions import findings_of, load_predictions
from cxrbench.study.names import Cell
from synthetic import draw_predictions, network_of

RECORDED = ROOT / "data/recorded"
FP32, BF16 = (RECORDED / f"nih128-32px-{precision}/resnet18/cpu" for precision in ("fp32", "bf16"))
ENDS = ("ci95_low", "ci95_high", "ci90_low", "ci90_high")

ORDERED = ("ci90_low", "ci90_high", "ci95_low", "ci95_high")


def tables(folder: Path, seeds=range(10)) -> dict[int, pd.DataFrame]:
    return {seed: load_predictions(folder / f"seed{seed}/predictions.parquet")[0] for seed in seeds}


@pytest.fixture(scope="module")
def drawn() -> pd.DataFrame:
    return draw_predictions(5, {"test": 200})


def trained(drawn: pd.DataFrame, seeds, shift: float = 0.0, other: int = 0) -> dict[int, pd.DataFrame]:
    """Runs on the same images; those of one seed have half of their noise in common, whatever ``other``."""
    return {seed: network_of(network_of(drawn, seed, 0.3), 1000 * other + seed, 0.3, shift) for seed in seeds}


@pytest.mark.parametrize("architecture", [pytest.param("resnet18", marks=pytest.mark.slow), "convnext_pico"])
def test_recorded_runs_give_what_the_parity_table_prints_to_the_last_digit(architecture: str) -> None:
    folders = {name: RECORDED / f"nih128-32px-{name}/{architecture}/cpu" for name in ("fp32", "bf16")}
    sides = {name: tables(folder, range(5)) for name, folder in folders.items()}
    cells = {
        Cell("d", architecture, name, seed): estimate_cell(table)
        for name, runs in sides.items()
        for seed, table in runs.items()
    }
    expected = parity(cells, Margins())
    # The table takes platforms in the order of their names: bf16 - fp32.
    pair = expected[expected["kind"] == "platforms"].set_index(["label", "metric"])
    found = compare_runs(sides["bf16"], sides["fp32"])
    compared = [row for row in found.rows if row["metric"] != "average_precision"]
    assert {(row["label"], row["metric"]) for row in compared} == set(pair.index) - {("every", "auroc")}
    for row in compared:
        ours = [row[name] for name in ("value_a", "value_b", "difference", *ENDS)]
        theirs = pair.loc[row["label"], row["metric"]]
        names = ["mean_a", "mean_b", "difference", "ci_low", "ci_high", "ci90_low", "ci90_high"]
        if row["label"] == "Hernia":  # four patients: no interval here, as `evaluate` gives none
            assert ours == [*theirs[names[:3]], None, None, None, None] and row["verdict"] == "cannot_tell"
            assert "fewer than 5 patients" in row["note"] and row["p_holm"] is None
            continue
        assert ours == list(theirs[names]), row
        assert row["p_holm"] is None or row["p_holm"] == theirs["p_holm"]


def auroc_and_patients(table: pd.DataFrame, finding: str) -> tuple[float, pd.Series]:
    """AUROC over all pairs of images, and what each patient adds to it, by the formulas of DeLong (1988) and
    Obuchowski (1997), with the jackknife's factors: slow, and nothing here is the package's."""
    truth, score = table[f"label_{finding}"] == 1, table[f"score_{finding}"]
    positive, negative = score[truth].to_numpy()[:, None], score[~truth].to_numpy()[None, :]
    beats = (positive > negative) + 0.5 * (positive == negative)
    area, parts = beats.mean(), []
    for place, patients in (
        (beats.mean(1), table["patient"][truth]),
        (beats.mean(0), table["patient"][~truth]),
    ):
        sums = pd.Series((place - area) / len(place)).groupby(patients.to_numpy()).sum()
        held = patients.value_counts(normalize=True).reindex(sums.index)
        parts.append(sums * np.sqrt((len(sums) - 1) / len(sums)) / (1 - held))
    return area, parts[0].add(parts[1], fill_value=0).reindex(table["patient"].unique(), fill_value=0)


def endpoint_by_hand(runs: dict[int, pd.DataFrame]) -> dict[int, tuple[float, pd.Series]]:
    """Mean AUROC over findings with ten positive patients, and each patient's influence on it, by run."""
    found = {}
    for seed, table in runs.items():
        table = table[table["split"] == "test"]
        enough = [
            name.removeprefix("label_")
            for name in LABELS
            if table["patient"][table[name] == 1].nunique() >= 10
        ]
        parts = [auroc_and_patients(table, finding) for finding in enough]
        found[seed] = np.mean([area for area, _ in parts]), sum(part for _, part in parts) / len(parts)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("paired", [True, False])
def test_the_clustered_paired_variance_is_that_of_an_independent_implementation(paired: bool) -> None:
    seeds = range(4), range(4) if paired else range(4, 8)
    a, b = tables(FP32, seeds[0]), tables(BF16, seeds[1])
    found = compare_runs(a, b)
    one, two = endpoint_by_hand(a), endpoint_by_hand(b)
    if paired:
        groups = [{seed: (one[seed][0] - two[seed][0], one[seed][1] - two[seed][1]) for seed in one}]
        difference = np.mean([value for value, _ in groups[0].values()])
        influence = sum(part for _, part in groups[0].values()) / 4
    else:
        groups = [one, two]
        difference = np.mean([v for v, _ in one.values()]) - np.mean([v for v, _ in two.values()])
        influence = sum(p for _, p in one.values()) / 4 - sum(p for _, p in two.values()) / 4
    of_patients = (influence**2).sum()
    observed = [np.var([value for value, _ in group.values()], ddof=1) / 4 for group in groups]
    luck = 0.0  # of patients in a single run: in the spread between runs already
    for group in groups:
        centre = sum(part for _, part in group.values()) / 4
        luck += sum(((part - centre) ** 2).sum() for _, part in group.values()) / 3 / 4
    row, beyond = found.main, max(sum(observed) - luck, 0)
    assert row["difference"] == pytest.approx(difference, rel=1e-9)
    reach = (row["ci95_high"] - row["ci95_low"]) / 2
    error = np.sqrt(of_patients + beyond)
    freedom = stats.t.ppf(0.975, 3), stats.t.ppf(0.975, 509)  # Satterthwaite's lies between these
    assert freedom[1] * error < reach <= freedom[0] * error * (1 + 1e-9)
    parts = [row["variance"] for row in found.variance]
    assert parts == pytest.approx([max(of_patients - luck, 0), min(luck, of_patients), beyond], abs=1e-14)
    assert sum(parts) == pytest.approx(error**2, rel=1e-9)


def test_one_run_each_is_the_clustered_paired_test_of_two_networks() -> None:
    a, b = tables(FP32, [0]), tables(BF16, [0])
    found = compare_runs(a, b)
    ((value_a, part_a),), ((value_b, part_b),) = (endpoint_by_hand(side).values() for side in (a, b))
    error = np.sqrt(((part_a - part_b) ** 2).sum())
    assert found.main["difference"] == pytest.approx(value_a - value_b, rel=1e-9)
    assert (found.main["ci95_high"] - found.main["ci95_low"]) / 2 > 1.96 * error
    assert any("seeds are not covered" in note for note in found.notes)
    assert found.variance == []


@pytest.mark.slow
def test_the_variance_of_patients_is_what_leaving_each_of_them_out_gives(drawn: pd.DataFrame) -> None:
    a, b = trained(drawn, [0])[0], trained(drawn, [0], other=1)[0]
    finding, patients = LABELS[2].removeprefix("label_"), drawn["patient"].unique()

    def difference(kept: np.ndarray) -> float:
        return float(np.subtract(*(auroc_and_patients(side[kept], finding)[0] for side in (a, b))))

    left_out = [difference((a["patient"] != patient).to_numpy()) for patient in patients]
    jackknife = (len(patients) - 1) * np.var(left_out)
    found = compare_runs({0: a}, {0: b}, findings=[finding]).main
    reach95, reach90 = (found[f"ci{level}_high"] - found["difference"] for level in (95, 90))
    freedom = brentq(lambda df: stats.t.ppf(0.975, df) / stats.t.ppf(0.95, df) - reach95 / reach90, 1, 1000)
    assert reach95 / stats.t.ppf(0.975, freedom) == pytest.approx(np.sqrt(jackknife), rel=0.1)


@pytest.mark.slow
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), runs=st.sampled_from([(1, 1), (2, 2), (3, 3), (4, 3), (1, 3)]))
def test_exchanging_the_sides_changes_signs_alone(
    drawn: pd.DataFrame, seed: int, runs: tuple[int, int]
) -> None:
    a = trained(drawn, range(seed, seed + runs[0]), 0.05)
    b = trained(drawn, range(seed, seed + runs[1]), other=1)
    there, back = compare_runs(a, b), compare_runs(b, a)
    for row, other in zip(there.rows, back.rows, strict=True):
        mirrored = {
            **{"value_a": row["value_b"], "value_b": row["value_a"]},
            **{"runs_a": row["runs_b"], "runs_b": row["runs_a"], "difference": minus(row["difference"])},
            **{
                name: minus(row[name.replace("low", "x").replace("high", "low").replace("x", "high")])
                for name in ENDS
            },
        }
        assert other == row | mirrored
    assert there.variance == back.variance


def minus(value: float | None) -> float | None:
    return None if value is None else -value


@pytest.mark.slow
def test_a_side_against_itself_is_refused_and_against_equal_runs_equivalent() -> None:
    with pytest.raises(UserError, match="are the same files, so nothing is compared; give each side"):
        compare_runs(FP32, FP32)
    runs = tables(FP32, range(3))
    found = compare_runs(runs, {seed: table.copy() for seed, table in runs.items()})
    assert found.verdict == "equivalent"
    assert [found.main[name] for name in ("difference", *ENDS)] == [0] * 5


def test_runs_in_both_sides_are_an_error(tmp_path: Path) -> None:
    for folder, seeds in (("a", (0, 1, 2)), ("b", (3, 4))):
        (tmp_path / folder).mkdir()
        for seed in seeds:
            (tmp_path / folder / f"seed{seed}").symlink_to(FP32 / f"seed{seed}")
    (tmp_path / "b/seed5").symlink_to(FP32 / "seed2")
    with pytest.raises(UserError, match=r"run 2 of A is run 5 of B too"):
        compare_runs(tmp_path / "a", tmp_path / "b")


def test_a_worse_platform_is_different_and_a_noisy_one_is_not_called_equal(drawn: pd.DataFrame) -> None:
    good = trained(drawn, range(5), 0.6)
    assert compare_runs(good, trained(drawn, range(5), other=1)).verdict == "different"
    few = drawn[drawn["patient"] <= 60]
    unclear = compare_runs(trained(few, range(3)), trained(few, range(3, 6)))
    assert unclear.verdict == "inconclusive"
    assert unclear.needs and (unclear.needs.patients_needed_as_measured or 0) > few["patient"].nunique()


def test_equivalent_comes_before_different() -> None:
    assert verdict_of((0.001, 0.004, 0.0005, 0.0045), 0.01) is Verdict.EQUIVALENT
    assert verdict_of((0.001, 0.010, 0.0005, 0.011), 0.01) is Verdict.DIFFERENT  # an end on the margin
    assert verdict_of((-0.011, 0.004, -0.012, 0.005), 0.01) is Verdict.INCONCLUSIVE
    assert verdict_of((np.nan, 0.004, -0.012, 0.005), 0.01) is Verdict.CANNOT_TELL


def test_no_verdict_contradicts_its_row(drawn: pd.DataFrame) -> None:
    """Verdicts are those of the printed intervals and, of a finding that differs, of its printed p."""
    found = compare_runs(trained(drawn, range(3), 0.15), trained(drawn, range(3), other=1))
    for row in found.rows:
        ends = [np.nan if row[name] is None else row[name] for name in ORDERED]
        if row["metric"] != "auroc":
            assert row["verdict"] is None, "no margin of it is established"
            continue
        single = row["label"] in drawn.columns or row["p_holm"] is not None
        assert row["verdict"] == verdict_of(ends, row["margin"], row["p_holm"] if single else 0)
    assert {"different", "inconclusive"} <= {row["verdict"] for row in found.rows}


def test_a_finding_is_different_only_after_correction_for_all_of_them() -> None:
    ends = (0.021, 0.06, 0.01, 0.07)  # excludes zero, and the margin
    assert verdict_of(ends, 0.02, 0.049) is Verdict.DIFFERENT
    assert verdict_of(ends, 0.02, 0.051) is Verdict.INCONCLUSIVE
    assert verdict_of((-0.01, 0.01, -0.02, 0.02), 0.02, 1.0) is Verdict.EQUIVALENT, "no test of a difference"


def test_rows_have_all_keys_and_no_nan() -> None:
    found = compare_runs(tables(FP32, range(3)), tables(BF16, range(3)))
    keys = {
        *("metric", "label", "value_a", "value_b", "difference", "ci90_low", "ci90_high", "ci95_low"),
        *("ci95_high", "margin", "verdict", "runs_a", "runs_b", "paired", "patients", "images"),
    }
    assert all(keys <= row.keys() == found.rows[0].keys() for row in found.rows)
    assert not any(
        isinstance(value, float) and np.isnan(value) for row in found.rows for value in row.values()
    )
    assert {row["verdict"] for row in found.rows if row["metric"].startswith("f1")} == {None}


def test_order_of_runs_and_of_rows_does_not_matter(drawn: pd.DataFrame) -> None:
    a, b = trained(drawn, range(3)), trained(drawn, range(3), other=1)
    mixed = {seed: b[seed].sample(frac=1, random_state=seed) for seed in (2, 0, 1)}
    assert compare_runs(a, mixed).rows == compare_runs(a, b).rows


@pytest.mark.parametrize(
    ("seeds_a", "seeds_b", "paired", "compared"),
    [
        ((0, 1, 2), (0, 1, 2), True, (3, 3)),
        ((0, 1, 2, 3), (1, 2, 3, 7), True, (3, 3)),
        ((0, 1, 2), (1, 2, 5), False, (3, 3)),
        ((0, 1), (0, 1), True, (2, 2)),
        ((0, 1, 2), (3, 4, 5, 6), False, (3, 4)),
    ],
)
def test_runs_are_paired_by_their_numbers(drawn, seeds_a, seeds_b, paired: bool, compared) -> None:
    found = compare_runs(trained(drawn, seeds_a), trained(drawn, seeds_b, other=1))
    assert (found.main["paired"], (found.main["runs_a"], found.main["runs_b"])) == (paired, compared)
    named = [note for note in found.notes if "1, 2, 3" in note]
    assert bool(named) == (seeds_b == (1, 2, 3, 7))


def test_runs_without_numbers_are_never_paired(tmp_path: Path) -> None:
    """Numbers that stood for missing ones met: "seed2, seed3, x, y" on both sides were paired crosswise."""
    answers = []
    for names in (("seed2", "seed3", "x", "y"), ("u", "v", "x", "y"), ("seed1", "best", "x", "y")):
        folder = tmp_path / names[0]
        for side, skills in (("a", (0.2, 0.2, 3, 3)), ("b", (3, 3, 0.2, 0.2))):
            (folder / side).mkdir(parents=True)
            for k, (name, skill) in enumerate(zip(names, skills, strict=True)):
                table = predictions(10 * k + (side == "b"), skill)
                table.to_csv(folder / side / f"{name}.csv", index=False)
        found = compare_runs(folder / "a", folder / "b").main
        assert not found["paired"]
        answers.append((found["ci90_low"], found["ci90_high"]))
    assert answers[0] == pytest.approx(answers[1]) and answers[2] == pytest.approx(answers[1])


@pytest.mark.parametrize("name", ["image", "patient"])
def test_names_with_and_without_a_point_zero_are_one(name: str, tmp_path: Path) -> None:
    """pandas makes a column with a gap one of floats; 7 and 7.0 were two patients."""
    numbered = predictions(0).assign(image=range(120))
    for side, table in (("a", numbered.astype({name: float})), ("b", numbered)):
        worse = table if side == "a" else table.assign(score_Mass=table["score_Mass"] / 2)
        worse.to_parquet(tmp_path / f"{side}.parquet")
    found = compare_runs(tmp_path / "a.parquet", tmp_path / "b.parquet").main
    assert (found["patients"], found["images"]) == (40, 80)


def test_a_column_of_seeds_may_have_come_as_text(tmp_path: Path) -> None:
    runs = pd.concat([predictions(k).assign(seed=f"{k}.0") for k in range(3)])
    runs.to_parquet(tmp_path / "a.parquet")
    others = pd.concat([predictions(9 + k).assign(seed=k) for k in range(3)])
    others.to_parquet(tmp_path / "b.parquet")
    found = compare_runs(tmp_path / "a.parquet", tmp_path / "b.parquet").main
    assert (found["runs_a"], found["runs_b"], found["paired"]) == (3, 3, True)


def test_one_run_against_several_has_no_interval(drawn: pd.DataFrame) -> None:
    found = compare_runs(trained(drawn, [0]), trained(drawn, range(3), other=1))
    assert found.verdict == "cannot_tell"
    assert found.main["difference"] is not None and found.main["ci90_low"] is None


def test_two_runs_have_one_degree_of_freedom(drawn: pd.DataFrame) -> None:
    found = compare_runs(trained(drawn, range(2)), trained(drawn, range(2), other=1)).main
    wide, wider = (found[f"ci{level}_high"] - found[f"ci{level}_low"] for level in (90, 95))
    assert wider / wide == pytest.approx(stats.t.ppf(0.975, 1) / stats.t.ppf(0.95, 1))


def test_ties_count_half(drawn: pd.DataFrame) -> None:
    coarse = {
        seed: table.assign(**table[SCORES].round(1)) for seed, table in trained(drawn, range(3)).items()
    }
    found = compare_runs(coarse, trained(drawn, range(3), other=1))
    expected = np.mean([value for value, _ in endpoint_by_hand(coarse).values()])
    assert found.main["value_a"] == pytest.approx(expected, rel=1e-9)


def test_a_mean_over_one_finding_has_its_interval_and_says_what_it_leaves_out(drawn: pd.DataFrame) -> None:
    """Findings with a single positive patient are in no mean."""
    kept = drawn.copy()
    for name in LABELS[1:3]:
        kept.loc[kept[name].eq(1) & (kept["patient"] != kept["patient"][kept[name].eq(1)].iloc[0]), name] = 0
    findings = [name.removeprefix("label_") for name in LABELS[:3]]
    found = compare_runs(trained(kept, range(3)), trained(kept, range(3), other=1), findings=findings)
    by_label = {row["label"]: row for row in found.rows if row["metric"] == "auroc"}
    for name in ("difference", *ENDS):
        assert by_label["endpoint"][name] == by_label["macro"][name] == by_label[findings[0]][name]
    assert findings[1] in by_label["macro"]["note"] and "single patient" in by_label["macro"]["note"]


def test_scores_without_an_error_are_notes(drawn: pd.DataFrame) -> None:
    a, b = trained(drawn, range(3)), trained(drawn, range(3), other=1)
    a = {
        seed: table.assign(**{SCORES[0]: 0.5, SCORES[2]: table[LABELS[2]] * 0.9}) for seed, table in a.items()
    }
    b = {seed: table.assign(**{SCORES[2]: table[LABELS[2]] * 0.8}) for seed, table in b.items()}
    found = compare_runs(a, b)
    finding, perfect = (LABELS[k].removeprefix("label_") for k in (0, 2))
    assert any(f"all scores of {finding} are equal in 3 of 3" in note for note in found.notes)
    assert any(f"the AUROC of {perfect} is 1" in note for note in found.notes)
    (row,) = [row for row in found.rows if (row["label"], row["metric"]) == (perfect, "auroc")]
    assert (row["verdict"], row["ci95_low"]) == ("cannot_tell", None)


def test_an_only_finding_has_one_verdict() -> None:
    """The headline judged it by the margin of means, its row by that of a finding."""
    found = compare_runs(tables(FP32, range(3)), tables(BF16, range(3)), findings=["Pneumothorax"])
    rows = [row for row in found.rows if row["metric"] == "auroc"]
    assert {row["margin"] for row in rows} == {0.01} and len({row["verdict"] for row in rows}) == 1
    several = compare_runs(tables(FP32, range(3)), tables(BF16, range(3)), findings=["Pneumothorax", "Mass"])
    assert {row["margin"] for row in several.rows if row["metric"] == "auroc"} == {0.01, 0.02}


def test_an_only_finding_that_differs_does_so_in_both_of_its_rows(drawn: pd.DataFrame) -> None:
    """With three seeds p among many findings has two degrees of freedom; alone it is not one of many."""
    finding = findings_of(drawn)[0]
    found = compare_runs(trained(drawn, range(3), 0.3), trained(drawn, range(3), other=1), findings=[finding])
    rows = [row for row in found.rows if row["metric"] == "auroc"]
    assert {row["verdict"] for row in rows} == {"different"} and rows[-1]["p_holm"] < 0.05, rows
