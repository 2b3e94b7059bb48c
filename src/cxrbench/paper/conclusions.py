"""The study's conclusions, a few sentences each; every number in them is a value of the paper's."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from cxrbench.paper.items import as_text, chosen, keys_of

if TYPE_CHECKING:  # the graph asks which values are named, and pandas takes half a second
    from cxrbench.paper.formats import Values


@dataclass(frozen=True)
class Conclusion:
    """What was found about a topic, the ids of the claims, the names of the figures and tables that show it;
    and the question that it answers, with what was run for it."""

    topic: str
    text: str
    claims: tuple[str, ...]
    figures: tuple[str, ...]
    tables: tuple[str, ...]
    asks: str
    run: str


@cache
def written() -> list[dict[str, Any]]:
    """The conclusions as they stand in conclusions.toml."""
    text = resources.files(__package__).joinpath("conclusions.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["conclusions"]  # type: ignore[no-any-return]


def conclusions(values: Values, printed: Values | None = None) -> list[Conclusion]:
    """The conclusions with their values, without those that name an unknown one.

    ``values``: those of values.toml that the study defines; ``printed``: as they stand in the sentences.
    """
    shown, printed = [], values if printed is None else printed
    for entry in written():
        text = chosen(entry["text"], values)
        if keys_of(text) <= set(values):
            claims, figures, tables = (tuple(entry[kind]) for kind in ("claims", "figures", "tables"))
            run = as_text(chosen(entry["run"], values), printed)
            sentence = as_text(text, printed)
            shown.append(Conclusion(entry["topic"], sentence, claims, figures, tables, entry["asks"], run))
    return shown
