"""The data card does not drift, the splits have their hashes, and label noise is what scikit-learn says."""

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, precision_score, recall_score

from conftest import ROOT
from cxrbench.datasets.decoding import contrast_table
from cxrbench.datasets.split import PUBLISHED_SPLITS, abnormal_share, splits
from cxrbench.paper import formats
from cxrbench.paper.data_card import NOISE_COLUMNS, write_card
from cxrbench.results.label_noise import EXACT, NONE, label_noise, read_adjudicated

CARD, REGISTRY = ROOT / "data/README.md", ROOT / "data/registry.csv"


@pytest.fixture(scope="module")
def noise():
    return label_noise()


@pytest.mark.slow
def test_the_generated_parts_of_the_data_card_are_up_to_date(tmp_path) -> None:
    text = CARD.read_text(encoding="utf-8")
    (card := tmp_path / "README.md").write_text(text)
    write_card(card, REGISTRY)
    assert card.read_text(encoding="utf-8") == text, "run workflow/scripts/data_card.py"
    for count in ("112,120", "30,805", "60,361", "20,796", "4,187,084,020", "19,894", "227", "5,302"):
        assert f" {count} " in text, "as published"


def test_every_part_of_every_split_has_a_hash_of_its_own() -> None:
    table = splits()
    assert table["sha256"].is_unique and table["sha256"].str.fullmatch("[0-9a-f]{64}").all()
    tested = table[table["part"] == "test"].set_index("split")
    shares = (tested["abnormal"] / tested["images"])[[*PUBLISHED_SPLITS]].to_dict()
    assert shares == pytest.approx({name: abnormal_share(name) for name in PUBLISHED_SPLITS})
    assert shares == pytest.approx({"chexnet": 0.469, "official": 0.6147}, abs=5e-4)
    assert (table.groupby("split")[["images", "patients"]].sum() == (112_120, 30_805)).all(axis=None)


def test_agreement_is_that_of_scikit_learn(noise) -> None:
    table = read_adjudicated()
    for row in noise[noise["relation"] != NONE].to_dict("records"):
        truth = table[f"adjudicated {row['finding']}"]
        called = table[row["nih_labels"].split(" or ")].any(axis=1)
        assert row["sensitivity"] == pytest.approx(recall_score(truth, called))
        assert row["specificity"] == pytest.approx(recall_score(~truth, ~called))
        assert row["ppv"] == pytest.approx(precision_score(truth, called))
        assert row["kappa"] == pytest.approx(cohen_kappa_score(truth, called))
        assert row["sensitivity_low"] < row["sensitivity"] < row["sensitivity_high"]


def test_intervals_are_by_patient(noise) -> None:
    """They agree with the linearised standard error of a ratio of sums over patients, within its accuracy."""
    table = read_adjudicated()
    truth, called = table["adjudicated Nodule or mass"], table[["Nodule", "Mass"]].any(axis=1)
    sums = np.column_stack([(truth & called), truth]).astype(float)
    by_patient = np.array([sums[rows].sum(axis=0) for rows in table.groupby("patient").indices.values()])
    ratio = by_patient[:, 0].sum() / by_patient[:, 1].sum()
    residuals = (by_patient[:, 0] - ratio * by_patient[:, 1]) / by_patient[:, 1].sum()
    error = np.sqrt((residuals**2).sum())
    row = noise[noise["finding"] == "Nodule or mass"].iloc[0]
    width = row["sensitivity_high"] - row["sensitivity_low"]
    assert width / (2 * 1.96 * error) == pytest.approx(1, abs=0.1)


def test_the_table_says_what_is_exact_approximate_and_absent(noise) -> None:
    assert noise["images"].eq(4376).all() and noise["patients"].eq(1695).all()
    assert noise.loc[noise["relation"] == EXACT, "finding"].tolist() == ["Pneumothorax", "Nodule or mass"]
    shown = formats.table(noise, NOISE_COLUMNS).texts.set_index("Adjudicated finding")
    assert shown.loc["Fracture", "NIH's labels"] == "NIH has no such label"
    assert shown.loc["Fracture", "Sensitivity"] == ""
    assert shown.loc["Airspace opacity", "NIH's labels"].str.contains("approximate").all()


def test_the_filter_that_is_used_keeps_a_nodule_wherever_it_lies() -> None:
    table = contrast_table().set_index("Filter")
    total, rim = "12 px nodule: total", "Rim"
    used = table.loc["bilinear, antialiased (used)"]
    least, _, most = (int(text) for text in used[total].removesuffix(" %").split(" / "))
    assert least > 90 and most < 110 and used[rim] == "0 %"
    assert table.loc["bilinear, not antialiased", total].startswith("0 / ")
    assert table.loc["Lanczos, antialiased", rim] != "0 %"


def test_the_tables_of_the_paper_need_no_image() -> None:
    assert (len(splits()), len(label_noise())) == (9, 5)
