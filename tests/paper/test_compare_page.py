"""A comparison as a page in one file and as a picture."""

import re
from pathlib import Path

import pytest

from columns import LABELS, SCORES
from conftest import must_work
from cxrbench.paper.compare_page import write_comparison, write_plot
from cxrbench.statistics import compare_runs
from cxrbench.statistics import compare_words as words
from cxrbench.statistics.comparison import Comparison
from cxrbench.statistics.errors import UserError
from synthetic import draw_predictions, network_of

HOSTILE = "<script>alert(1)</script> & a name that is long"


def sides(runs: tuple[int, int] = (3, 3)) -> list[dict]:
    """Predictions of runs on two platforms: two findings, one of a name that would break a page."""
    drawn = draw_predictions(3, {"test": 120})
    kept = ["image", "patient", "split", *LABELS[:2], *SCORES[:2]]
    names = {LABELS[1]: f"label_{HOSTILE}", SCORES[1]: f"score_{HOSTILE}"}
    return [
        {
            seed: network_of(drawn, 100 * side + seed, 0.3)[kept].rename(columns=names)
            for seed in range(of, of + n)
        }
        for side, (n, of) in enumerate(zip(runs, (0, 5), strict=True))
    ]


@pytest.fixture(scope="module")
def found() -> Comparison:
    a, b = sides()
    return compare_runs(a, b)


def written(found: Comparison, path: Path) -> str:
    write_comparison(found, path, ["gpu", "a port"])
    return path.read_text()


def test_a_page_has_sentence_intervals_variance_table_and_how_to_cite(found, tmp_path: Path) -> None:
    page = written(found, tmp_path / "page.html")
    text = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    opening, _, rest = words.sentence(found).partition(": ")
    assert opening in text and rest[1:] in text
    _, rows = words.shown_table(found)
    assert all(value in text for row in rows for value in row[1:])
    assert page.count('<tr><th scope="row">') == len(rows)
    assert "patients x run" in text and words.settle(found.needs, found.verdict) in text
    assert "cxrbench compare gpu 'a port'" in page.replace("&#x27;", "'") and "Schuirmann" in text
    assert words.sentence_for_a_paper(found) in text
    assert page == written(found, tmp_path / "again.html")


def test_a_page_stands_alone_and_its_picture_has_words_and_the_page_s_colours(found, tmp_path: Path) -> None:
    page = written(found, tmp_path / "page.html")
    outside = set(re.findall(r"https?://[^\"'\s)<]+", page)) - {
        "http://www.w3.org/1999/xlink",
        "http://www.w3.org/2000/svg",
    }
    assert outside == set() and "<script" not in page and "&lt;script&gt;" in page
    (svg,) = re.findall(r"<svg.*?</svg>", page, flags=re.S)
    alternative = re.search(r'<svg role="img" aria-label="([^"]*)"', svg)
    assert alternative and f"{found.main['difference']:+.4f}" in alternative[1]
    assert "currentColor" in svg and "var(--mark)" in svg and "#1b1f24" not in svg
    assert "<text" in svg and "prefers-color-scheme: dark" in page and "width=device-width" in page


def test_one_run_beside_a_reference_and_one_against_one_have_pages_too(tmp_path: Path) -> None:
    a, b = sides((1, 4))
    beside = compare_runs(a, b, reference=True)
    page = written(beside, tmp_path / "reference.html")
    assert "<h1>Inside</h1>" in page and "prediction interval" in page and 'data-head="noticed"' in page
    (number,) = b.keys() - {6, 7, 8}
    alone = written(compare_runs(a, {number: b[number]}), tmp_path / "alone.html")
    assert "variance by source" not in alone and "for these two runs alone" in alone


@pytest.mark.parametrize(("ending", "start"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")])
def test_a_picture_is_in_the_format_of_its_name(found, ending: str, start: bytes, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_plot(found, tmp_path / (name + ending))
    one, two = ((tmp_path / (name + ending)).read_bytes() for name in ("one", "two"))
    assert one.startswith(start) and one == two


def test_another_format_is_refused(found, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ends in \.png, \.pdf, \.svg"):
        write_plot(found, tmp_path / "plot.txt")


def test_the_command_writes_both(tmp_path: Path) -> None:
    scores = [
        "platform,seed,score",
        *(f"{p},{s},0.{70 + s + k}" for k, p in enumerate("ab") for s in range(3)),
    ]
    (tmp_path / "scores.csv").write_text("\n".join(scores))
    must_work(
        "compare", "scores.csv", "--by", "platform", "--html", "page.html", "--plot", "plot.svg", cwd=tmp_path
    )
    assert "patients are not covered" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "plot.svg").is_file()
