"""Which values documents name, and the entry of values.toml for each; no pandas, so that the graph may ask.

One search for a key, or for its last part where {names} stand for the others, leads to its line.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from pathlib import Path

from cxrbench.common.errors import UserError, and_more
from cxrbench.paper.conclusions import written
from cxrbench.paper.items import figures, keys_of, tables

FILE = "src/cxrbench/paper/values.toml"  # in messages
# Of LaTeX: what is named outside of its comments.
_NAMED = re.compile(r"\\(?:val|ifany|ifmany)\{([^{}#]*)\}")
TEMPLATES = Path("documents")  # below the folder of the paper
_IN_MARKDOWN = re.compile(r'\bvalue\("([^"]+)"\)')  # printed, or in a condition
_COMMENT = re.compile(r"(?<!\\)%.*")


@dataclass(frozen=True)
class ValueLine:
    """A line of values.toml, whose head says what its fields are."""

    key: str
    table: str = ""
    rows: str = ""
    column: str = ""
    take: str = "only"
    setting: str = ""
    constant: str = ""
    function: str = ""
    kind: str = ""
    empty: str | int | None = None
    none: str | None = None
    link: str = ""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = re.split(r"\{(\w+)\}", self.key)
        names = (f"(?P<{part}>[^/]+)" if number % 2 else re.escape(part) for number, part in enumerate(parts))
        return re.compile("".join(names))

    def parts_of(self, key: str) -> dict[str, str] | None:
        """What the names in braces stand for in ``key``; None where it is another's."""
        match = self._pattern.fullmatch(key)
        return None if match is None else match.groupdict()


@cache
def entries() -> dict[str, ValueLine]:
    """The entries of values.toml by their keys."""
    text = resources.files(__package__).joinpath("values.toml").read_text(encoding="utf-8")
    return {key: ValueLine(key, **fields) for key, fields in tomllib.loads(text).items()}


def entry_of(key: str) -> ValueLine | None:
    """The entry of a key: its own, else the one with names in braces that fits; None without any."""
    known = entries()
    if key in known:
        return known[key]
    return next((entry for entry in known.values() if entry.parts_of(key)), None)


def named_in_latex(text: str) -> set[str]:
    r"""The keys that LaTeX names by ``\val``, ``\ifany`` or ``\ifmany``."""
    return set(_NAMED.findall(_COMMENT.sub("", text)))


def named_in_markdown(template: str) -> set[str]:
    """The keys that a template of paper/documents names by ``value("key")``."""
    return set(_IN_MARKDOWN.findall(template))


def named(paper: Path) -> dict[str, list[str]]:
    """Every key that a document names, with where: LaTeX and templates below ``paper``, and
    :func:`named_in_sentences`."""
    where = named_in_sentences()
    latex = ((path, named_in_latex) for path in (*paper.glob("*.tex"), *paper.glob("sections/**/*.tex")))
    markdown = ((path, named_in_markdown) for path in (paper / TEMPLATES).rglob("*.jinja"))
    for path, keys_in in sorted((*latex, *markdown), key=lambda pair: pair[0]):
        for key in sorted(keys_in(path.read_text(encoding="utf-8"))):
            where.setdefault(key, []).append(str(path))
    return dict(sorted(where.items()))


def named_in_sentences() -> dict[str, list[str]]:
    """Every key that a caption or a conclusion names, with where."""
    where: dict[str, list[str]] = {}
    for kind, items in (("table", tables()), ("figure", figures())):
        for item in items.values():
            for key in keys_of(item.caption):
                where.setdefault(key, []).append(f"caption of {kind} {item.name}")
    for entry in written():
        for key in keys_of(entry["text"]) | keys_of(entry["run"]):
            where.setdefault(key, []).append(f"conclusion '{entry['topic']}'")
    return where


def must_agree(where: Mapping[str, Iterable[str]]) -> None:
    """Raise UserError where a document names a key without an entry, or an entry is named by none."""
    unknown = [key for key in where if entry_of(key) is None]
    if unknown:
        places = ", ".join(where[unknown[0]])
        raise UserError(
            f"{places}: there is no value '{unknown[0]}'{and_more(len(unknown) - 1)}; "
            f"give it a line in {FILE}, or name another"
        )
    used = {entry.key for key in where if (entry := entry_of(key))}
    if idle := [key for key in entries() if key not in used]:
        more = and_more(len(idle) - 1)
        raise UserError(f"{FILE}: no document names '{idle[0]}'{more}; remove the line, or name it")
