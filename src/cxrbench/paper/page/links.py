"""Links that leave the page: to CSV tables and records beside it, and to addresses that sources name."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup, escape

from cxrbench.paper.entries import entry_of
from cxrbench.paper.formats import Values, words
from cxrbench.paper.platform_reports import read_published
from cxrbench.paper.results import Results
from cxrbench.study.names import Cell

# A place outside as sources write it, with what makes an address of it; the first that fits counts.
_PLACES: Mapping[str, Callable[[re.Match[str]], str]] = {
    r"https?://[\w./%#?=&~+-]*[\w/]": lambda match: match[0],
    r"([\w-]+/[\w.-]+) ([\w./-]+\.\w+) @([0-9a-f]{7,40})": lambda match: (
        f"https://github.com/{match[1]}/blob/{match[3]}/{match[2]}"
    ),
    r"github\.com/[\w-]+/[\w./-]*\w": lambda match: f"https://{match[0]}",
    r"doi:(10\.\d+/[\w./-]*\w)": lambda match: f"https://doi.org/{match[1]}",
    r"medRxiv (\d{4}(?:\.\d+){3})": lambda match: f"https://doi.org/10.64898/{match[1]}",
    r"arXiv (\d{4}\.\d{4,5})(?: (v\d+))?": lambda match: f"https://arxiv.org/abs/{match[1]}{match[2] or ''}",
    r"(?<![\w@./-])(?:[a-z0-9-]+\.)+(?:com|org|io)(?![\w./-])": lambda match: f"https://{match[0]}",
}
STUDY_FILE = "study.json"  # beside the tables: what a study sets
_MARKED = re.compile("\ue000([^\ue001]*)\ue001([^\ue002]*)\ue002")


def address_of(source: str) -> str:
    """The first address that a source names; empty where it names none."""
    searches = ((re.search(pattern, source), address) for pattern, address in _PLACES.items())
    return next((address(match) for match, address in searches if match), "")


def addressed(text: str, show_words: Callable[[str], Markup] = escape) -> Markup:
    """``text`` with the places that it names as links, and what ``show_words`` makes of the words between."""
    for pattern, address in _PLACES.items():
        if match := re.search(pattern, text):
            before, after = text[: match.start()], text[match.end() :]
            link = linked(address(match), match[0])
            return addressed(before, show_words) + link + addressed(after, show_words)
    return show_words(text)


def linked(address: str, text: str) -> Markup:
    """A link, or the text alone where there is no address."""
    return Markup('<a class="out" href="{}">{}</a>').format(address, text) if address else escape(text)


def marked(values: Values) -> Values:
    """The values with marks around numbers, which say which table of results they are from, or that the study
    sets them."""
    texts = {}
    for key, value in values.items():
        entry, text = entry_of(key), str(value)
        table = (entry.link or (entry.table if ":" not in entry.table else "")) if entry else ""
        table = STUDY_FILE if entry and entry.setting else table
        has_number = len(text) < 80 and re.search(r"\d", text)
        texts[key] = f"\ue000{table}\ue001{text}\ue002" if has_number else text
    return texts


def marked_pieces(text: str) -> list[tuple[str | None, str]]:
    """The pieces of a text with marked values: each with its table (empty: none), or None before words."""
    pieces: list[tuple[str | None, str]] = []
    end = 0
    for match in _MARKED.finditer(text):
        pieces += [(None, text[end : match.start()]), (match[1], match[2])]
        end = match.end()
    return [*pieces, (None, text[end:])]


@dataclass(frozen=True)
class Links:
    """What stands beside a page in the folder ``beside``, and where the values of ``read`` come from."""

    read: Results
    beside: Path

    @cached_property
    def _results(self) -> str:
        path = Path(relpath(self.read.folder, self.beside)).as_posix()
        return "" if path == "." else f"{quote(path)}/"

    def csv(self, table: str) -> str:
        """The address of a table of the results, or of the study that a build was of."""
        return self._results + (STUDY_FILE if table == STUDY_FILE else f"tables/{quote(table)}.csv")

    def of_cell(self, cell: str, file: str = "record.json") -> str:
        """The address of a file of a cell's evidence; empty where there is none."""
        folder = Cell.parse(cell).folder(self.read.folder / "cells")
        return f"{self._results}cells/{quote(cell)}/{file}" if (folder / file).is_file() else ""

    def of_value(self, table: str, column: str, row_name: str, text: str) -> str:
        """Where the value of a table's column comes from, in the row that begins with ``row_name``."""
        if not text:
            return ""
        if table == "table_prices":
            return self._of_prices.get((row_name, column), "")
        if table == "table_literature":
            return self._of_baselines.get(column, "") if re.match(r"\d", text) else ""
        if table == "table_published" and column == "Source":
            return self._of_comparisons.get(text.removesuffix("*"), "")  # read as an abstract only
        return self._of_instances.get(text, "")

    @cached_property
    def _of_prices(self) -> dict[tuple[str, str], str]:
        """The source of the newest price of an instance on a basis, and of the first one on demand."""
        addresses: dict[tuple[str, str], str] = {}
        for row in self.read.table("prices").itertuples():
            address = address_of(str(row.source))
            on_demand = address if row.basis == "on_demand" else ""
            addresses.setdefault((row.instance, "On demand before"), on_demand)
            addresses[row.instance, words(row.basis).capitalize()] = address
        return addresses

    @cached_property
    def _of_instances(self) -> dict[str, str]:
        """The source of the newest price on demand of an instance, or of its only price."""
        prices = self.read.table("prices")
        rows = prices.assign(demand=prices["basis"] == "on_demand").sort_values("demand", kind="stable")
        return {row.instance: address_of(str(row.source)) for row in rows.itertuples()}

    @cached_property
    def _of_baselines(self) -> dict[str, str]:
        """The address of each published table of scores, by its column."""
        addresses = {}
        for row in self.read.literature.itertuples():
            address = address_of(row.citation)
            repository = address.removeprefix("https://github.com/")
            addresses[repository if repository != address else words(row.source)] = address
        return addresses

    @cached_property
    def _of_comparisons(self) -> dict[str, str]:
        """The address of each published comparison of platforms, by its name."""
        return {row.name: address_of(row.source) for row in read_published().itertuples(index=False)}
