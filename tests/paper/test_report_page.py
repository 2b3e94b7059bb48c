"""The HTML page: one file that needs no network, safe whatever the evidence says, always the same bytes."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pandas as pd
import pytest
from markupsafe import escape
from typer.testing import CliRunner

from columns import SCORES
from conftest import ROOT, must_fail, must_work, text_of
from cxrbench.claims.ledger import VERDICTS
from cxrbench.cli import app
from cxrbench.common.files import sha256_file
from cxrbench.evidence.expected import EXPECTED
from cxrbench.evidence.predictions import read_predictions, write_predictions
from cxrbench.evidence.record import Failure, read_record
from cxrbench.paper.conclusions import conclusions
from cxrbench.paper.items import as_text, figures, tables
from cxrbench.paper.page import write_page
from cxrbench.paper.page.links import address_of, addressed
from cxrbench.paper.results import Results
from cxrbench.results.matrix import REFUSED
from cxrbench.study.config import Study

from .conftest import named_values

CELL = "nih128-64px/resnet18/cpu/seed0"
FAILED = "nih128-64px/resnet18/cpu/seed101"  # seeds that no study has
CHANGED = "nih128-64px/resnet18/cpu/seed102"
HOSTILE = "<script>window.hacked = 1</script> \\input{/etc/passwd} 100% a_b <img src=x onerror=hack()> \" ' &"
NETWORK = "broken_net"
FRAMES = (
    "const [done] = arguments; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)))"
)
UNFOLD = "for (const one of document.querySelectorAll('details')) one.open = true"


# -- evidence --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(from_evidence: Path) -> Iterator[Path]:
    """The folder with all tables, as working directory; tests put folders of results beside them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(from_evidence)
        yield from_evidence


def make(results: Path) -> str:
    """Return the page of ``results`` by the public command."""
    words = ["--results", results, "--study", results / "study.json"]
    done = CliRunner().invoke(app, ["report", "--only", "page", *map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return (results / "report.html").read_text(encoding="utf-8")


@cache
def results_of(folder: str) -> Results:
    """The tables of a folder; of the hostile one a claim and a case have hostile words."""
    read = Results.of_build(Path(folder), Path(folder, "study.json"), Path("data/recorded"))
    if folder == "hostile":
        read.claims.loc[0, "says"] = read.tables["break_even"].loc[0, "case"] = HOSTILE
    return read


@pytest.fixture(scope="module")
def page(built: Path) -> str:
    """A page, built once: a failed cell and a changed one beside the recorded, and hostile text wherever
    evidence has text."""
    results = Path("hostile")
    shutil.copytree("results", results)
    record = read_record(Path("results/cells", CELL))
    failed, changed = (results / "cells" / cell for cell in (FAILED, CHANGED))
    failed.mkdir(parents=True)
    log = f"{'A' * 2**20}\n{HOSTILE}\n\x1b[31mred\x1b[0m \u202egnp.exe \x00\nlast line\n"
    (failed / "train.log").write_text(log)
    failure = Failure(kind=HOSTILE, fingerprint=HOSTILE, returncode=1, last_lines=[HOSTILE, "B" * 2**20])
    changes = {"cell": FAILED, "status": "crashed", "phase": "train", "failure": failure, "dirty": True}
    changes |= {"history": record.history[:3], "predictions_sha256": None, "commit": "<i>c</i>"}
    changes |= {"log_sha256": sha256_file(failed / "train.log"), "versions": {"torch": HOSTILE}}
    (failed / "record.json").write_text(record.model_copy(update=changes).to_json())
    shutil.copytree(results / "cells" / CELL, changed)  # its predictions were edited after the run
    (changed / "record.json").write_text(record.model_copy(update={"cell": CHANGED}).to_json())
    predictions = read_predictions(changed / "predictions.parquet")
    write_predictions(changed / "predictions.parquet", predictions.assign(**(predictions[SCORES] * 0.5)))
    study = json.loads((results / "study.json").read_text())
    real = {"dataset": "nih128-64px", "architectures": ["resnet18"], "platforms": ["cpu"]}
    study["cells"] += [study["cells"][0] | {"architectures": [NETWORK]}, real | {"seeds": [101, 102]}]
    (results / "study.json").write_text(json.dumps(study))
    names = [*json.loads((results / "scores.json").read_text()), FAILED, CHANGED]
    records = [results / "cells" / name / "record.json" for name in names]
    must_work("score.py", *records, "--results", results, "--study", results / "study.json", cwd=Path.cwd())
    results_of("hostile").write()
    write_page(results_of("hostile"), EXPECTED, results / "report.html")
    return (results / "report.html").read_text(encoding="utf-8")


# -- reading a page --------------------------------------------------------------------------------


class Read(HTMLParser):
    """What stands in a page: its elements with their attributes, and the text inside each kind."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "input", "br", "wbr"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"
        if tag in ("dt", "dd", "th", "td", "h3", "h4"):
            self.text += " "

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, *tags: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def words(self) -> str:
        return " ".join(self.text.split())


# -- what is on it ---------------------------------------------------------------------------------


def test_the_page_is_one_well_formed_document_that_names_nothing_outside(built: Path, page: str) -> None:
    text = re.sub(r"base64,[\w+/= ]+", "", page)  # pictures have any short word in them
    for place in (str(built), str(ROOT), os.uname().nodename):
        assert not re.search(rf"\b{re.escape(place)}\b", text), place
    read = Read(page)
    assert read.open == []
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes in read.elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            if tag != "a" and (address := attributes.get(name)):
                assert address.startswith(("data:", "#")), f"<{tag} {name}={address[:60]}>"
            if (address := attributes.get(name)) and address.startswith("#"):
                assert address[1:] in ids, f"{address} leads nowhere"
    assert not re.search(r"url\((?!#)|@import|@font-face", page) and not re.search("<[^>]* style=", page)
    assert not read.all("button") and not [tag for tag, one in read.elements if "hidden" in one]  # no script
    policy = next(one["content"] for one in read.all("meta") if one.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")


def leaving(read: Read) -> list[str]:
    """Where the links lead that leave the page."""
    return [one["href"] or "" for one in read.all("a") if not (one["href"] or "").startswith("#")]


def test_values_link_to_tables_records_and_sources_and_no_link_is_broken(built: Path, page: str) -> None:
    links = leaving(Read(page))
    print(f"{len(links)} links leave the page")  # pytest -s
    inside = [link for link in links if not link.startswith("https://")]
    assert len(links) - len(inside) > 100 and all(link.strip() == link and link for link in links)
    broken = {link for link in inside if not (built / "hostile" / unquote(link)).is_file()}
    assert not broken
    for one in conclusions(named_values(results_of("hostile"))):
        (answer,) = re.findall(rf"<h3>{re.escape(escape(one.asks))}</h3>.*?</p>", page, flags=re.S)
        for number in re.findall(
            r'(?<![">\w.,/-])\d[\d.,]*\d(?![\w<])', re.sub("<a .*?</a>|<h3>.*?</h3>|&#39;", "", answer)
        ):
            assert number in one.text and not re.search(r"\.\d", number), (
                f"{number} of {one.asks} links nowhere"
            )
    for name in tables():
        assert f"tables/table_{name}.csv" in inside, name
    for cell in pd.read_csv("hostile/tables/cells.csv", keep_default_na=False).query("origin != ''")["cell"]:
        assert f"cells/{cell}/record.json" in inside, cell


def test_prices_and_published_values_link_to_their_sources(page: str) -> None:
    (prices,) = re.findall(r'<table id="table_prices">(.*?)</table>', page, flags=re.S)
    values = re.findall(r"<td[^>]*>(.*?)</td>", prices)
    priced = [value for value in values if re.search(r"\d\.\d+ \(", value)]
    assert len(priced) > 20
    unlinked = [value for value in priced if 'href="https://' not in value]
    assert len(unlinked) < len(priced) / 4  # sources that have no address
    (published,) = re.findall(r'<table id="table_published">(.*?)</table>', page, flags=re.S)
    assert published.count('href="https://') >= 10
    (said,) = re.findall(r'<table id="table_sources">(.*?)</table>', page, flags=re.S)
    assert 'href="https://doi.org/10.64898/' in said


@pytest.mark.parametrize(
    ("source", "address"),
    {
        "a/b pkg/x.go @1d927085 (generated)": "https://github.com/a/b/blob/1d927085/pkg/x.go",
        "README of github.com/arnoweng/CheXNet (3d45ee77)": "https://github.com/arnoweng/CheXNet",
        "Wang et al. 2017, arXiv 1705.02315 v5, Table 17": "https://arxiv.org/abs/1705.02315v5",
        "medRxiv, doi:10.64898/2025.12.23.25342933": "https://doi.org/10.64898/2025.12.23.25342933",
        "https://github.com/apple/ml-cvnets/issues/59": "https://github.com/apple/ml-cvnets/issues/59",
        "javascript:alert(1) a book": "",
    }.items(),
)
def test_an_address_is_read_from_the_words_of_a_source(source: str, address: str) -> None:
    assert address_of(source) == address
    assert (f'href="{address}"' in addressed(source)) == bool(address)


def test_absent_facts_are_left_out_of_a_record(page: str) -> None:
    read = Read(page)
    facts = re.findall(r"<div><dt>(.*?)</dt><dd>(.*?)</dd></div>", page)
    assert len(facts) > 100 and all(value and value != "none" for _, value in facts)
    assert "dirty no" in read.words


def test_headings_tables_and_figures_can_be_found_without_seeing_them(page: str) -> None:
    read = Read(page)
    levels = [int(tag[1]) for tag, _ in read.elements if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(read.all("table")) == len(read.all("caption")) > 25
    assert all(one.get("scope") in ("row", "col") for one in read.all("th"))
    drawn = [one["aria-label"] or "" for one in read.all("svg") if one["role"] == "img"]
    assert len(drawn) == len(read.all("svg")) and all(len(alt) > 40 for alt in drawn)
    assert set(drawn) == {item.alt for item in figures().values()} and not read.all("img")
    for item in [*tables().values(), *figures().values()]:
        caption = as_text(item.caption, {})
        assert caption.endswith((".", "not run")) and not re.search(r"[\\{}~`]", caption), item.name


def test_conclusions_come_first_and_link_to_what_shows_them(built: Path, page: str) -> None:
    read, found = Read(page), conclusions(named_values(results_of("hostile")))
    before, _ = read.words.split("What trains where", 1)
    assert len(found) > 4 and all(one.text in before for one in found)
    links = [one.get("href") for one in read.all("a")]
    for one in found:
        assert {f"#claim_{name}" for name in one.claims} <= set(links)
    assert len(page.encode()) < 3_000_000


def test_each_question_has_its_answer_its_figures_and_its_tables_in_this_order(page: str) -> None:
    found = {one.asks: one for one in conclusions(named_values(results_of("hostile")))}
    articles = re.findall(r"<article id=.*?</article>", page, flags=re.S)
    assert len(articles) == len(found) and {"cells", "prices"} <= {
        *sum((o.figures for o in found.values()), ())
    }
    for article, (asks, one) in zip(articles, found.items(), strict=True):
        kinds = r'<(h3)>|class="(answer)"|<figure id="(\w+)"|<table id="(\w+)"'
        order = ["".join(parts) for parts in re.findall(kinds, article)]
        figures_first = [f"figure_{name}" for name in one.figures] + [f"table_{name}" for name in one.tables]
        assert order == ["h3", "answer", *figures_first], asks
    for kind in ("figure", "table"):  # each stands on the page once
        names = re.findall(rf'<{kind} id="(\w+)"', page)
        assert len(names) == len(set(names))


def test_the_page_has_every_claim_table_and_cell_with_how_to_run_it_again(built: Path, page: str) -> None:
    read, record = Read(page), read_record(ROOT / "data/recorded" / CELL)
    sections = [one["id"] for one in read.all("section")]
    assert sections == ["answers", "figures", "tables", "claims", "cells", "glossary"]
    words = read.words
    claims = pd.read_csv("hostile/tables/claims.csv", keep_default_na=False)
    assert all(row.id in words and " ".join(row.says.split()) in words for row in claims.itertuples())
    assert all(f"{verdict} {count}" in words for verdict, count in claims["verdict"].value_counts().items())
    for name, item in tables().items():
        for head, texts in item.make(
            results_of("hostile")
        ).texts.items():  # a column without a text is left out
            told = [head, *texts] if any(texts) else []
            assert all(" ".join(text.split()) in words for text in told), f"{name}: {head}"
    part = words.split("All cells.")[-1]
    for cell in pd.read_csv("hostile/tables/cells.csv")["cell"]:
        assert f"make cell CELL={cell}" in part  # those that nobody ran too
    log = (ROOT / "data/recorded" / CELL / "train.log").read_text().splitlines()
    facts = ("evidence recorded", record.ended, record.commit, record.host.cpu, record.versions["torch"])
    for shown in (*facts, record.recipe_hash, log[-1]):
        assert shown in part, shown


def test_the_page_shows_the_matrix_of_cells_csv(built: Path, page: str) -> None:
    run, folded = re.findall(r'<table class="matrix">(.*?)</table>', page, flags=re.S)
    assert "recorded" not in folded
    table = run + folded
    cells = pd.read_csv("hostile/tables/cells.csv", keep_default_na=False)
    cells["state"] = cells["origin"].where(cells["status"] == "ok", cells["status"])
    groups = cells.groupby(["dataset", "architecture", "platform", "state"]).size().reset_index(name="seeds")
    unrun = groups[groups["state"] == "not run"]
    assert re.findall(r'<th scope="col">(.*?)</th>', run)[1:] == list(cells["platform"].unique())
    badges = re.findall(r'class="badge [^>]*>(.*?)<', table)
    assert Counter(text.removesuffix(" (unexpected)") for text in badges) == Counter(groups["state"])
    assert Counter(re.findall(r'aria-label="(.*?)"', table)) == Counter(cells["cell"][cells["origin"] != ""])
    assert Counter(map(int, re.findall(r"(\d+) seed", table))) == Counter(unrun["seeds"])


def test_badges_are_coloured_by_the_verdict_that_they_begin_with(page: str) -> None:
    colours = {text: colour for colour, text in re.findall(r'class="badge (\w*)"[^>]*>([^<]*)<', page)}
    assert {"contradicted", "inconsistent", "recorded", "not run", "noise floor", "stay"} <= set(colours)
    expected = {"contradicted": "bad", "inconsistent": "bad", "equivalent": "good", "recorded": "good"}
    expected |= {"inconclusive": "warn", "not run": "none", "noise floor": "none", "stay": "none"}
    for text, colour in colours.items():
        assert all(colour == of for word, of in expected.items() if text.startswith(word)), text


def test_numbers_stand_right_and_what_all_rows_share_is_said_once(built: Path, page: str) -> None:
    (table,) = re.findall(r'<table id="table_cost">(.*?)</table>', page, flags=re.S)
    heads = re.findall(r'<th scope="col"( class=number)?>(.*?)</th>', table)
    made = tables()["cost"].make(results_of("hostile"))
    assert [name for _, name in heads] == [name for name in made.rows if made.texts[name].nunique() > 1]
    assert all((made.side(name) == "r") == bool(right) for right, name in heads)
    hours = [float(value) for value in re.findall(r'data-value="(.*?)">\d+\.\d{3}<', table)]
    assert len(hours) >= len(made.rows) and set(made.rows["Train h"]) <= set(hours), (
        "sorted by the number itself"
    )
    assert re.search("In all rows: .*Region: us-east-1", table)
    assert re.search(r"\d+ rows? that nobody has run", page)


def test_words_lead_to_the_glossary(page: str) -> None:
    read = Read(page)
    terms = {f"#{one['id']}" for one in read.all("dt") if one.get("id")}
    links = [one["href"] for one in read.all("a") if (one.get("href") or "").startswith("#term-")]
    assert (
        {"#term-seed", "#term-cell", "#term-F1", "#term-equivalent", "#term-not-run"} <= set(links) <= terms
    )
    for caption in re.findall(r"<figcaption>(.*?)</figcaption>", page, flags=re.S):
        named = re.findall(r'href="(#term-.*?)"', caption)
        assert len(named) == len(set(named))


# -- bad input -------------------------------------------------------------------------------------


def test_hostile_text_is_shown_as_it_is_and_does_nothing(page: str) -> None:
    read = Read(page)
    assert read.open == [] and len(read.all("script")) == 1
    assert not [a for _, one in read.elements for a in one if a.startswith("on") or a == "style"]
    assert not [one for one in read.all("img") if not (one["src"] or "").startswith("data:image/svg+xml;")]
    assert read.words.count(HOSTILE) >= 7  # claim, table, failure twice, its lines, a version, the log
    assert f"make cell CELL=phantom-32px/{NETWORK}/cpu/seed0" in read.words
    assert "<i>c</i>" in read.words and "dirty yes" in read.words
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", page)
    assert "root:" not in read.words


def test_a_failed_and_a_changed_cell_are_shown_and_long_lines_are_cut(page: str) -> None:
    read = Read(page)
    for shown in ("status crashed", "phase train", "crashed (unexpected)", "returncode 1", "failed 1"):
        assert shown in read.words, shown
    part = read.words.split(f"{CHANGED} fresh")[-1]
    assert "This evidence is refused: predictions.parquet: its sha256 differs" in part
    assert len(page) < 3_000_000
    assert max(len(run) for run in re.findall("A+", read.text)) == 400 and "A … [cut]" in read.text
    assert max(len(run) for run in re.findall("B+", read.text)) == 2000
    assert "last line" in read.words


def test_a_study_that_nobody_ran_has_a_page(built: Path) -> None:
    folder = Path("unrun")
    folder.mkdir()
    shutil.copy("results/study.json", folder)
    (folder / "scores.json").write_text("{}")
    results = results_of("unrun")
    results.cells.loc[0, ["origin", "failure"]] = [REFUSED, f"the log is another one {HOSTILE}"]
    results = replace(results, claims=results.claims[:0])
    write_page(results, EXPECTED, folder / "report.html")
    read = Read((folder / "report.html").read_text(encoding="utf-8"))
    empty = [name for name, item in tables().items() if item.make(results).rows.empty]
    assert "No cell of this study has been run, and none is recorded." in read.words
    assert read.words.count("Nothing of this has been run.") == len(empty) + 1  # and no claim
    assert {"auroc", "cost", "parity", "claims"} <= set(empty)
    assert f"refused 1 not run {len(results.cells) - 1}" in read.words
    assert f"is refused, and nothing here rests on it: the log is another one {HOSTILE}" in read.words


def own_study() -> Results:
    """The results of a build as if its radiographs were a user's own table's."""
    read = Results.of_build(Path("results"), Path("results/study.json"), Path("data/recorded"))
    study = json.loads(read.study.model_dump_json())
    for name, dataset in study["datasets"].items():
        if not name.startswith("phantom"):
            kept = {"pixels": dataset["pixels"], "recipe": dataset["recipe"]}
            study["datasets"][name] = {"source": "table", "table": "t.csv", "folder": "images"} | kept
    return replace(read, study=Study.model_validate(study))


def test_the_page_of_an_own_study_says_nothing_of_ours(built: Path) -> None:
    results = own_study()
    write_page(results, EXPECTED, Path("own.html"))
    page = Path("own.html").read_text(encoding="utf-8")
    read = Read(page)
    assert "Results of this study" in read.words and "How good are the networks?" in read.words
    for ours in ("preprint", "Trainium or CUDA", "USD", "our loop", "Look at", "convnext_pico`", "Claims"):
        assert ours not in read.words, ours
    targets = {
        one["id"]
        for tag in ("section", "article", "table", "figure", "dt", "details", "tr", "main")
        for one in read.all(tag)
        if one.get("id")
    }
    links = {one["href"][1:] for one in read.all("a") if (one.get("href") or "").startswith("#")}
    assert {
        link for link in links if not link.startswith("nih") and not link.startswith("phantom")
    } <= targets
    assert "does not exceed chance" not in read.words
    for table in (results.spread, results.metrics):
        main = (table["label"] == "endpoint") & (table["metric"] == "auroc")
        assert main.any()
        table.loc[main, "ci_low"] = 0.4
    said = [one.text for one in conclusions(named_values(results))]
    assert [text for text in said if "does not exceed chance, because the interval contains 0.5" in text]


@pytest.mark.slow
def test_without_a_build_the_message_says_what_to_run(tmp_path: Path) -> None:
    message = must_fail("report", "--only", "page", "--results", tmp_path)
    assert "scores.json: no cell was scored here yet; run `make paper-from-evidence`" in message
    assert not list(tmp_path.iterdir())


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A headless Chromium that writes down its console and its requests."""
    from selenium import webdriver

    driver, browser = shutil.which("chromedriver"), shutil.which("chromium")
    if driver is None or browser is None:
        pytest.skip("Chromium is not installed: run `make browser`")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield found
    found.quit()


@pytest.fixture
def opened(chromium: Any, built: Path, page: str) -> Any:
    """The browser with the page open, read from a file, on a wide screen."""
    screen(chromium, 1280)  # so that scrolling is done when it returns
    chromium.get((built / "hostile/report.html").as_uri())
    return chromium


def screen(browser: Any, width: int, motion: str = "reduce", scheme: str = "light") -> None:
    """Set the width of the screen in CSS pixels, whether the reader likes motion, and light or dark."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    likes = {"prefers-reduced-motion": motion, "prefers-color-scheme": scheme}
    features = [{"name": name, "value": value} for name, value in likes.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def sorted_by(browser: Any, table: str, name: str, key: str = "") -> tuple[str, list[str]]:
    """Sort a table by a column, with a key or a click; return the direction and the column's texts."""
    found = f"//table[@id='{table}']//th[@scope='col'][normalize-space(.)='{name}']"
    cell = browser.find_element("xpath", found)
    button = cell.find_element("tag name", "button")
    button.send_keys(key) if key else button.click()
    rows = "[...arguments[0].closest('table').tBodies[0].rows]"
    script = f"return {rows}.map(row => row.cells[arguments[0].cellIndex].textContent.trim())"
    return cell.get_attribute("aria-sort"), browser.execute_script(script, cell)


@pytest.mark.slow
def test_it_opens_quietly_and_asks_for_nothing(opened: Any) -> None:
    assert opened.get_log("browser") == []
    sent = [json.loads(one["message"])["message"] for one in opened.get_log("performance")]
    asked = {one["params"]["request"]["url"] for one in sent if one["method"] == "Network.requestWillBeSent"}
    assert asked and all(one.startswith(("file:", "data:")) for one in asked)
    assert {one for one in asked if one.startswith("file:")} == {opened.current_url}
    assert opened.execute_script("return window.hacked") is None
    heights = (
        "return [...document.querySelectorAll('.wide svg')].map(one => one.getBoundingClientRect().height)"
    )
    assert min(opened.execute_script(heights)) > 20


@pytest.mark.slow
def test_tables_sort_by_click_and_by_keyboard_and_the_ledger_filters(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.execute_script(UNFOLD)
    said = opened.find_element("id", "said")
    up = sorted_by(opened, "table_claims", "claims")
    assert up == ("ascending", sorted(up[1], key=int))
    down = sorted_by(opened, "table_claims", "claims", Keys.ENTER)
    assert down == ("descending", sorted(up[1], key=int, reverse=True))
    assert said.get_attribute("textContent") == "Sorted by claims, descending."
    sources = sorted_by(opened, "table_claims", "Source", Keys.SPACE)
    assert sources == ("ascending", sorted(sources[1]))
    assert len(opened.find_elements("css selector", "#table_claims [aria-sort]")) == 1
    for _ in range(2):  # rows without a number come last in both directions
        filled = [bool(text) for text in sorted_by(opened, "cells_list", "Images/s")[1]]
        assert filled == sorted(filled, reverse=True)
    claims = pd.read_csv("hostile/tables/claims.csv", keep_default_na=False)
    opened.find_element("css selector", "#claims > .filter input").send_keys("contradicted")
    rows = opened.find_elements("css selector", "#ledger tbody tr")
    shown = [row for row in rows if row.is_displayed()]
    assert len(rows) == len(claims) > len(shown) >= (claims["verdict"] == "contradicted").sum()
    assert said.get_attribute("textContent") == f"{len(shown)} of {len(rows)} claims."


@pytest.mark.slow
def test_a_verdicts_tile_shows_its_claims_only(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    verdicts = pd.read_csv("hostile/tables/claims.csv", keep_default_na=False)["verdict"]
    buttons = opened.find_elements("css selector", "#claims .counts button")
    tiles = {one.text.split("\n")[0]: one for one in buttons}
    assert [*tiles] == ["all", *(name for name in VERDICTS if name in set(verdicts))]

    def shown() -> list[str]:
        down = [name for name, one in tiles.items() if one.get_attribute("aria-pressed") == "true"]
        assert down == [pressed]
        rows = opened.find_elements("css selector", "#ledger tbody tr:not([hidden]) .badge")
        return sorted(one.get_attribute("textContent") for one in rows)

    pressed = "all"
    assert shown() == sorted(verdicts)
    for pressed, key in (("stale", Keys.ENTER), ("contradicted", Keys.SPACE)):
        tiles[pressed].send_keys(key)
        assert set(shown()) == {pressed} and len(shown()) == (verdicts == pressed).sum()
    tiles[pressed].click()  # again
    pressed = "all"
    assert shown() == sorted(verdicts)
    tiles["stale"].click()
    opened.find_element("css selector", "#answers a[href='#claim_O01']").click()
    opened.execute_async_script(FRAMES)  # it unfolds after the click
    assert opened.find_element("id", "claim_O01").is_displayed() and shown() == sorted(verdicts)


@pytest.mark.slow
def test_the_keyboard_reaches_the_answers_first_and_links_unfold_a_cell(opened: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    opened.find_element("tag name", "body").send_keys(Keys.TAB)
    skip = opened.switch_to.active_element
    assert skip.text == "Skip to the answers" and skip.value_of_css_property("outline-style") == "solid"
    skip.send_keys(Keys.ENTER)
    assert opened.switch_to.active_element.get_attribute("id") == "main"
    folded = opened.find_element("id", CELL)
    assert folded.get_attribute("open") is None
    opened.find_element("css selector", f".matrix a[href='#{CELL}']").send_keys(Keys.ENTER)
    assert folded.get_attribute("open") is not None
    assert folded.find_element("tag name", "summary") == opened.switch_to.active_element


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize(
    ("name", "seen"),
    [("claim_O21", "#claim_O21"), ("table_parity", "details:has(> .scroll #table_parity) > summary")],
)
def test_a_link_ends_at_a_claim_and_at_the_title_of_a_table(
    opened: Any, width: int, name: str, seen: str
) -> None:
    address = opened.current_url
    screen(opened, width)
    opened.get("about:blank")
    opened.get(f"{address}#{name}")
    opened.execute_async_script(FRAMES)  # tables become cards
    bar = "matchMedia('(min-width: 62.5rem)').matches ? 0 : document.querySelector('nav').offsetHeight"
    top = f"document.querySelector('{seen}').getBoundingClientRect().top"
    hidden, at = opened.execute_script(f"return [{bar}, {top}]")
    assert hidden <= at < 450


@pytest.mark.slow
def test_print_has_our_claims_which_the_answers_cite(opened: Any) -> None:
    unfolded = "return document.getElementById('claim_O01').closest('#ledger > details').open"
    assert not opened.execute_script(unfolded)
    opened.execute_cdp_cmd("Page.printToPDF", {})
    assert opened.execute_script(unfolded)


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 1000, 1280])
def test_nothing_is_wider_than_the_screen_and_the_page_is_short_until_it_is_opened(
    opened: Any, width: int
) -> None:
    screen(opened, width)
    height = opened.execute_script("return document.documentElement.scrollHeight")
    print(f"{width} pixels wide: {height} high")  # pytest -s
    assert height < {320: 28_000, 390: 26_000, 1000: 18_000, 1280: 16_000}[width]
    opened.execute_script(UNFOLD)
    opened.execute_async_script(FRAMES)  # cards are chosen after a frame
    measure = "const d = document.documentElement; return [d.scrollWidth, d.clientWidth]"
    wide, visible = opened.execute_script(measure)
    assert wide == visible > width - 20  # but for a scroll bar
    outside = """return [...document.querySelectorAll('main *')].filter(one => !one.closest('.unseen') && (
        one.getBoundingClientRect().right > innerWidth + 1
        || getComputedStyle(one).overflowX !== 'visible' && one.scrollWidth > one.clientWidth + 1))
        .map(one => one.outerHTML.slice(0, 80))"""
    assert opened.execute_script(outside) == []  # and nothing scrolls sideways
    cards = opened.execute_script("return document.querySelectorAll('.cards').length")
    assert (cards > 20) if width < 400 else (cards < 30)


@pytest.mark.slow
def test_points_of_a_figure_say_their_values_and_a_series_stands_alone(opened: Any) -> None:
    hover = """const [point, done] = arguments; point.scrollIntoView({block: 'center'});
        const box = point.getBoundingClientRect(), at = {clientX: box.x, clientY: box.y, bubbles: true};
        point.dispatchEvent(new PointerEvent('pointerover', at));
        const tip = document.getElementById('tip'); done([tip.hidden, tip.textContent])"""
    figure = opened.find_element("id", "figure_auroc_per_label")
    points = figure.find_elements("css selector", ".wide [data-series] use")
    hidden, text = opened.execute_async_script(hover, points[0])
    assert not hidden and re.search(r"resnet18, cpu · \w.*, AUROC 0\.\d+", text), text
    buttons = figure.find_elements("css selector", ".series button")
    assert len(buttons) > 1

    def shown() -> set[str]:
        marks = figure.find_elements("css selector", ".wide [data-series]:not([hidden])")
        return {mark.get_attribute("data-series") for mark in marks}

    everything = shown()
    buttons[0].click()
    assert shown() == {buttons[0].text} < everything
    intervals = "return arguments[0].querySelectorAll('.wide [data-series] path:not(defs *)').length"
    assert opened.execute_script(intervals, figure) >= len(points)  # they go with their points
    buttons[0].click()
    assert shown() == everything


@pytest.mark.slow
def test_on_a_phone_figures_are_narrow_and_cards_are_headed_by_what_differs(opened: Any) -> None:
    screen(opened, 390)
    opened.refresh()
    seen = "return [...document.querySelectorAll('#figure_parity svg')].map(one => one.checkVisibility())"
    assert opened.execute_script(seen) == [False, True]
    small = """return [...document.querySelectorAll('.narrow text')].filter(one => one.checkVisibility()
        && one.getBoundingClientRect().height < 7).map(one => one.textContent)"""
    assert opened.execute_script(small) == []
    opened.execute_script(UNFOLD)
    opened.execute_async_script(FRAMES)
    headed = """return [...document.querySelectorAll('.cards table:not(.matrix)')].map(table => {
        const rows = [...table.tBodies[0].rows];
        if (!rows.length) return ['', 1, 1, 1];
        const of = (row) => [...row.querySelectorAll('.head')];
        const told = rows.map(row => of(row).map(one => one.textContent.trim()).join('|'));
        const title = table.caption.textContent.slice(0, 40);
        return [title, of(rows[0]).length, rows.length, new Set(told).size]; })"""
    found = opened.execute_script(headed)
    assert len(found) > 10 and all(1 <= heads <= 4 for _, heads, _, _ in found)
    alike = [title for title, _, rows, kinds in found if kinds < rows]
    assert len(alike) < len(found) / 4, alike  # rows that differ in numbers alone


@pytest.mark.slow
def test_long_tables_are_filtered_by_words(opened: Any) -> None:
    opened.execute_script(UNFOLD)
    box = opened.find_element("xpath", "//table[@id='cells_list']/../preceding-sibling::label//input")
    box.send_keys("resnet18 xla_cpu")
    rows = opened.find_elements("css selector", "#cells_list tbody tr:not([hidden])")
    texts = [row.get_attribute("textContent") for row in rows]
    assert texts and all("resnet18" in text and "xla_cpu" in text for text in texts)
    assert opened.find_elements("css selector", "#cells_list tbody tr[hidden]")


@pytest.mark.slow
def test_the_contents_stay_in_sight(opened: Any) -> None:
    at = (
        "scrollTo(0, 3000); const box = document.querySelector('nav').getBoundingClientRect(); return box.top"
    )
    for width, folded in ((1280, False), (390, True)):
        screen(opened, width)
        opened.refresh()
        assert 0 <= opened.execute_script(at) < 20
        contents = opened.find_element("css selector", "nav details")
        assert (contents.get_attribute("open") is None) == folded
    contents.find_element("tag name", "summary").click()
    contents.find_element("css selector", "a[href='#answer-cost'], a[href='#glossary']").click()
    assert contents.get_attribute("open") is None


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_what_is_pressed_is_large_enough(opened: Any, width: int) -> None:
    screen(opened, width)
    opened.refresh()
    opened.execute_script(UNFOLD)
    opened.execute_async_script(FRAMES)
    # WCAG 2.5.8 leaves out links within a sentence.
    small = """return [...document.querySelectorAll('a, button, summary, input')].filter(one => {
        const box = one.getBoundingClientRect();
        return one.checkVisibility() && !one.closest('p, caption, figcaption, dd, .skip, .long, td > details')
            && (box.width < 23.9 || box.height < 23.9); }).map(one => one.outerHTML.slice(0, 90))"""
    assert opened.execute_script(small) == []


CONTRAST = """
const rgb = (text) => { const n = text.match(/[\\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
const light = (c) => c.slice(0, 3).map(v => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const ground = (one) => { for (; one; one = one.parentElement) {
    const c = rgb(getComputedStyle(one).backgroundColor); if (c[3] === 1) return c; } };
const low = [];
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || one.closest('script, style, .unseen')) continue;
    const pair = [light(rgb(getComputedStyle(one).color)), light(ground(one))].sort((a, b) => b - a);
    const ratio = (pair[0] + .05) / (pair[1] + .05);
    if (ratio < 4.5) low.push(`${ratio.toFixed(2)} ${one.outerHTML.slice(0, 80)}`);
}
return low;
"""


@pytest.mark.slow
def test_text_stands_out_and_moves_only_for_those_who_like_it(opened: Any) -> None:
    opened.execute_script(UNFOLD)
    for scheme in ("light", "dark"):
        screen(opened, 1280, scheme=scheme)
        assert opened.execute_script(CONTRAST) == [], scheme
    behaviour = "return getComputedStyle(document.documentElement).scrollBehavior"
    assert opened.execute_script(behaviour) == "auto"
    screen(opened, 1280, motion="no-preference")
    assert opened.execute_script(behaviour) == "smooth"


@pytest.mark.slow
def test_a_print_holds_answers_and_figures_and_only_what_was_unfolded(opened: Any, tmp_path: Path) -> None:
    import base64

    for summary in opened.find_elements("css selector", "#answer-status > details > summary"):
        summary.click()
    printed = opened.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})
    (tmp_path / "page.pdf").write_bytes(base64.b64decode(printed["data"]))
    text = text_of(tmp_path / "page.pdf")
    words = " ".join(text.split())
    for one in conclusions(named_values(results_of("hostile"))):
        assert one.asks in words, one.asks
    assert "Cells by status" in words and "Origin of the evidence" in words  # which were unfolded
    assert not any(folded in words for folded in ("End of the log", "Run it again", "Skip to the answers"))


@pytest.mark.slow
def test_a_screen_reader_finds_landmarks_and_a_name_for_everything(opened: Any) -> None:
    opened.execute_script(UNFOLD)
    nodes = opened.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    shown = [one for one in nodes if not one.get("ignored")]
    told = Counter((one["role"]["value"], one.get("name", {}).get("value", "").strip()) for one in shown)
    roles = Counter(one["role"]["value"] for one in shown)
    assert roles["banner"] == roles["navigation"] == roles["main"] == 1
    named = ("button", "link", "image", "table", "searchbox", "heading", "columnheader", "region")
    assert not any(told[role, ""] for role in named)
    assert told["group", ""] == len(opened.find_elements("tag name", "details"))  # a summary names it
    assert roles["image"] == len(figures()) and roles["table"] > 25
    assert told["link", CELL]
