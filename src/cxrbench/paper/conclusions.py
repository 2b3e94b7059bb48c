"""The study's conclusions, a few sentences each; every number in them is a value of the paper's."""

from collections.abc import Callable
from dataclasses import dataclass

from cxrbench.paper.formats import Values
from cxrbench.paper.items import as_text, keys_of


@dataclass(frozen=True)
class Conclusion:
    """What was found about a topic, and the ids of the claims and the names of the tables that show it."""

    topic: str
    text: str
    claims: tuple[str, ...]
    tables: tuple[str, ...]


_Said = tuple[str, str | Callable[[Values], str], tuple[str, ...], tuple[str, ...]]  # as in a Conclusion


def _count_of(values: Values, key: str) -> int:
    """Return a count; zero where there is none."""
    count = values.get(key, 0)
    assert isinstance(count, int), f"{key} is no count"
    return count


def _status(values: Values) -> str:
    """The sentence on what was run; on accelerators only while nothing has."""
    cuda, neuron, accelerated = (
        _count_of(values, f"cells/{name}/run") for name in ("cuda", "neuron", "accelerated")
    )
    waits = _count_of(values, "cells/neuron/total") and not neuron
    nothing = (
        f"Nothing here has run on AWS Trainium{'' if cuda else ' or on an NVIDIA GPU'}. " if waits else ""
    )
    where = (
        ", {cells/cuda/run} of them on CUDA and {cells/neuron/run} on Trainium"
        if accelerated
        else ", all on CPUs"
    )
    still_open = " Whether Trainium trains as accurately as CUDA is still open." if waits else ""
    return f"{nothing}{{cells/run}} of {{cells/total}} {{cells/kind}} trainings are done{where}.{still_open}"


def _accuracy(values: Values) -> str:
    return (
        "At {largest/pixels} pixels `{largest/network}`, from {largest/weights} weights, reached a mean "
        "AUROC of {largest/endpoint} on {largest/patients} test patients, with "
        f"{{largest/seeds}} seed{'s' * (_count_of(values, 'largest/seeds') > 1)}."
    )


def _parity(values: Values) -> str:
    said = (
        "AUROC is equivalent within {margin/auroc} in {parity/equivalent} of {parity/pairs} comparisons of "
        "platforms on real radiographs. The largest difference is {parity/largest}."
    )
    if _count_of(values, "parity/pairs/accelerated"):
        return said
    return (
        f"{said} None of these platforms is an accelerator: this checks the software and says nothing about "
        "hardware."
    )


# Sentences are plain text, as captions are, or functions of the values that return them. The first says what
# was run, the others are findings. The README has the first four: of 25 words at most, with numbers that are
# in the tables they name.
_CONCLUSIONS: tuple[_Said, ...] = (
    (
        "Status",
        _status,
        ("O01", "O10"),
        ("cells",),
    ),
    (
        "Patients before seeds",
        """Of the variance of mean AUROC, {sources/endpoint/patients} is the choice of {sources/patients} test
        patients, {sources/endpoint/patients by network} that choice by network, and {sources/endpoint/seed}
        the seed.""",
        ("P02",),
        ("variance",),
    ),
    (
        "Precision",
        """Mean AUROC in {precision/first} and in {precision/second} is {precision/verdict} within
        {margin/auroc} for {precision/networks}, with {precision/seeds} seeds each.""",
        (),
        ("precision",),
    ),
    (
        "Accuracy reached",
        _accuracy,
        ("O19",),
        ("endpoint", "dataset"),
    ),
    (
        "Cost",
        """At undated spot prices, with unchanged run times on the smallest instances, the preprint's
        {claim/P08/stated} times the cost becomes {claim/O02}.""",
        ("P08", "O02", "O11"),
        ("ratios",),
    ),
    (
        "Parity",
        _parity,
        ("O18",),
        ("parity",),
    ),
    (
        "Power",
        """To show the preprint's difference of {power/difference} would take
        {power/preprint/macro} test patients in macro F1, and {power/preprint/micro} in micro F1. This
        is by the spread of our {power/recipes} recipes, with {power/seeds} seeds. We have
        {power/patients} test patients.""",
        ("P02",),
        ("power",),
    ),
    (
        "Claims",
        """{claims/findings} findings speak against the published texts: {claims/contradicted} are
        contradicted by documents or prices, {claims/inconsistent} by the text's own numbers,
        {claims/stale} by newer prices or documents. The other {claims/findings/assumed} hold if the
        text means what our test assumes. AWS's own example saves
        {claim/S18/stated} % at its prices and {claim/O16/stated} % at those of
        {price/date}.""",
        ("S18", "O16"),
        ("claims",),
    ),
)


def conclusions(values: Values) -> list[Conclusion]:
    """Return the conclusions with their values, without those that name an unknown one.

    ``values``: those of :func:`cxrbench.paper.numbers.numbers`.
    """
    shown = []
    for topic, text, *where in _CONCLUSIONS:
        template = text(values) if callable(text) else text
        if keys_of(template) <= set(values):
            shown.append(Conclusion(topic, as_text(template, values), *where))
    return shown
