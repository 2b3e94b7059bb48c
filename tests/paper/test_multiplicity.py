"""Families of verdicts, and pairs that check software alone."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from cxrbench.analysis.parity import COLUMNS, checks_software, family
from cxrbench.paper.items import tables
from cxrbench.paper.latex import as_text
from cxrbench.paper.power import families


def parity_rows(*verdicts: tuple[str, float]) -> pd.DataFrame:
    """Rows of parity.csv on macro AUROC, one pair each: verdict and the p that it stands on."""
    rows = [
        {"dataset": "nih", "architecture": f"a{number}", "kind": "platforms", "platform_a": "cpu",
         "platform_b": "cuda", "label": "macro", "metric": "auroc", "verdict": verdict,
         "p_equivalent": p if verdict == "equivalent" else 0.9,
         "p_holm": 0.9 if verdict == "equivalent" else p}
        for number, (verdict, p) in enumerate(verdicts)
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS)


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        (
            [("equivalent", 0.01), ("equivalent", 0.04), ("different", 0.03), ("inconclusive", 0.5)],
            "The table's verdicts are 4, on 4 pairs: corrected over all of them (Holm), "
            "of 2 equivalent, 1 stay so; of 1 different, 0 stay so.",
        ),
        (
            [("different", 0.01)],
            "on 1 pair: corrected over all of them (Holm), of 1 different, 1 stay so.",
        ),
        ([("inconclusive", 0.5)], "verdicts are 1, on 1 pair: all are inconclusive."),
        ([], "No verdict was tested."),
    ],
)
def test_a_caption_counts_its_family_and_what_the_correction_leaves(verdicts, sentence: str) -> None:
    rows = parity_rows(*verdicts)
    values = families(pd.concat([rows, rows.assign(dataset="phantom-32px")]))
    for name in ("parity", "parity_phantoms"):
        assert sentence in as_text(tables()[name].caption, values)


def test_a_family_is_every_tested_verdict_of_a_table_corrected_together() -> None:
    rows = parity_rows(("equivalent", 0.01), ("equivalent", 0.04), ("different", 0.03), ("inconclusive", 0.5))
    assert list(family(rows)["p_family"]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    rows = parity_rows(("inconclusive", float("nan")), ("equivalent", float("nan")), ("equivalent", 0.01))
    found = family(pd.concat([rows, rows.assign(kind="noise floor"), rows.assign(label="Mass")]))
    assert list(found["p_family"]) == [0, 0.01], "the same for every seed and patient needs no test"


@pytest.mark.parametrize(("a", "b", "check"), [("cpu", "xla_cpu", True), ("cpu", "cuda", False)])
def test_a_pair_without_an_accelerator_checks_software(a: str, b: str, check: bool) -> None:
    assert checks_software(SimpleNamespace(platform_a=a, platform_b=b)) is check
