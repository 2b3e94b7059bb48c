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
    r"https?://[\w./%#?=&~+-]*[\w/]": lambda at: at[0],
    r"([\w-]+/[\w.-]+) ([\w./-]+\.\w+) @([0-9a-f]{7,40})": lambda at: (
        f"https://github.com/{at[1]}/blob/{at[3]}/{at[2]}"
    ),
    r"github\.com/[\w-]+/[\w./-]*\w": lambda at: f"https://{at[0]}",
    r"doi:(10\.\d+/[\w./-]*\w)": lambda at: f"https://doi.org/{at[1]}",
    r"medRxiv (\d{4}(?:\.\d+){3})": lambda at: f"https://doi.org/10.64898/{at[1]}",
    r"arXiv (\d{4}\.\d{4,5})(?: (v\d+))?": lambda at: f"https://arxiv.org/abs/{at[1]}{at[2] or ''}",
    r"(?<![\w@./-])(?:[a-z0-9-]+\.)+(?:com|org|io)(?![\w./-])": lambda at: f"https://{at[0]}",
}
_MARKED = re.compile("\ue000([^\ue001]*)\ue001([^\ue002]*)\ue002")


def address_of(source: str) -> str:
    """The first address that a source names; empty where it names none."""
    found = ((re.search(pattern, source), address) for pattern, address in _PLACES.items())
    return next((address(at) for at, address in found if at), "")


def addressed(text: str, rest: Callable[[str], Markup] = escape) -> Markup:
    """``text`` with the places that it names as links, and what ``rest`` makes of the words between."""
    for pattern, address in _PLACES.items():
        if at := re.search(pattern, text):
            link = linked(address(at), at[0])
            return addressed(text[: at.start()], rest) + link + addressed(text[at.end() :], rest)
    return rest(text)


def linked(address: str, text: str) -> Markup:
    """A link, or the text alone where there is no address."""
    return Markup('<a class="out" href="{}">{}</a>').format(address, text) if address else escape(text)


def marked(values: Values) -> Values:
    """The values with marks around numbers, which say which table of results they are from."""
    shown = {}
    for key, value in values.items():
        entry, text = entry_of(key), str(value)
        table = entry.table if entry and ":" not in entry.table else ""
        number = len(text) < 80 and re.search(r"\d", text)
        shown[key] = f"\ue000{table}\ue001{text}\ue002" if number else text
    return shown


def parts_of(text: str) -> list[tuple[str | None, str]]:
    """The pieces of a text with marked values: each with its table (empty: none), or None before words."""
    found: list[tuple[str | None, str]] = []
    done = 0
    for at in _MARKED.finditer(text):
        found += [(None, text[done : at.start()]), (at[1], at[2])]
        done = at.end()
    return [*found, (None, text[done:])]


@dataclass(frozen=True)
class Links:
    """What stands beside a page in the folder ``beside``, and where the values of ``read`` come from."""

    read: Results
    beside: Path

    @cached_property
    def _results(self) -> str:
        inside = Path(relpath(self.read.folder, self.beside)).as_posix()
        return "" if inside == "." else f"{quote(inside)}/"

    def csv(self, name: str) -> str:
        """The address of a table of the results."""
        return f"{self._results}tables/{quote(name)}.csv"

    def of_cell(self, name: str, file: str = "record.json") -> str:
        """The address of a file of a cell's evidence; empty where there is none."""
        folder = Cell.parse(name).folder(self.read.folder / "cells")
        return f"{self._results}cells/{quote(name)}/{file}" if (folder / file).is_file() else ""

    def of_value(self, table: str, head: str, first: str, text: str) -> str:
        """Where the value of a table's column comes from, in the row that begins with ``first``."""
        if not text:
            return ""
        if table == "table_prices":
            return self._of_prices.get((first, head), "")
        if table == "table_literature":
            return self._of_baselines.get(head, "") if re.match(r"\d", text) else ""
        if table == "table_published" and head == "Source":
            return self._of_comparisons.get(text, "")
        return self._of_instances.get(text, "")

    @cached_property
    def _of_prices(self) -> dict[tuple[str, str], str]:
        """The source of the newest price of an instance on a basis, and of the first one on demand."""
        found: dict[tuple[str, str], str] = {}
        for row in self.read.table("prices").itertuples():
            address = address_of(str(row.source))
            found.setdefault((row.instance, "On demand before"), address if row.basis == "on_demand" else "")
            found[row.instance, words(row.basis).capitalize()] = address
        return found

    @cached_property
    def _of_instances(self) -> dict[str, str]:
        """The source of the newest price on demand of an instance, or of its only price."""
        prices = self.read.table("prices")
        rows = prices.assign(demand=prices["basis"] == "on_demand").sort_values("demand", kind="stable")
        return {row.instance: address_of(str(row.source)) for row in rows.itertuples()}

    @cached_property
    def _of_baselines(self) -> dict[str, str]:
        """The address of each published table of scores, by its column."""
        found = {}
        for row in self.read.literature.itertuples():
            address = address_of(row.citation)
            name = address.removeprefix("https://github.com/")
            found[name if name != address else words(row.source)] = address
        return found

    @cached_property
    def _of_comparisons(self) -> dict[str, str]:
        """The address of each published comparison of platforms, by its name."""
        return {row.name: address_of(row.source) for row in read_published().itertuples(index=False)}
