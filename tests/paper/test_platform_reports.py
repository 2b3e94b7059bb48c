"""What others measured: the rows keep the rule that the table states, and counts follow the rows."""

from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.common.errors import UserError
from cxrbench.paper.formats import Values
from cxrbench.paper.platform_reports import FILE, published, read_published
from cxrbench.paper.values import values_of

from .conftest import made_up

KEYS = [f"published/{name}" for name in ("all", "seed", "varied", "shown", "abstracts")]


def breaks_the_rule(row: pd.Series) -> bool:
    """Whether a row says that its runs could show something although they are too few, and no collapse."""
    enough = row["seeds"] == "varied" and min(int(row[f"runs_{side}"].split()[0]) for side in "ab") >= 3
    return row["shown"] == "yes" and not enough and "collapse" not in row["why"]


def test_a_row_could_show_what_it_says_by_several_seeds_or_a_collapse() -> None:
    rows = read_published(ROOT / FILE)
    assert not any(breaks_the_rule(row) for _, row in rows.iterrows())
    one_seed = rows[rows["seeds"] == "one"].iloc[0]
    assert breaks_the_rule(one_seed.replace("no", "yes")), "the rule can be broken"
    assert rows["source"].str.contains(r"https://|doi:|arXiv:").all() and rows["source"].is_unique


def counts() -> Values:
    return values_of(made_up(metrics=pd.DataFrame({"metric": [], "label": [], "cell": []})), KEYS)


def test_counts_follow_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FILE.parent.mkdir()
    text = (ROOT / FILE).read_text()
    FILE.write_text(text)
    before = counts()
    assert before["published/all"] == len(published(made_up()).texts) == text.count("\n") - 1
    FILE.write_text(text.replace("1,1,one,", "1,1,varied,", 1).replace(",abstract\n", ",thread\n", 1))
    after = counts()
    moved = {key: int(after[key]) - int(before[key]) for key in before if after[key] != before[key]}
    assert moved == {"published/varied": 1, "published/abstracts": -1}
    FILE.write_text(text.replace(",abstract\n", ",heard of\n", 1))
    with pytest.raises(UserError, match=r"published_comparisons\.csv:2: .*read"):
        counts()
