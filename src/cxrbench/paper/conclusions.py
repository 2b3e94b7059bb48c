"""The study's conclusions, a few sentences each; every number in them is a value of the paper's."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from cxrbench.paper.fmt import Values
from cxrbench.paper.latex import as_text


@dataclass(frozen=True)
class Conclusion:
    """What was found about a topic, and the ids of the claims and the names of the tables that show it."""

    topic: str
    text: str
    claims: tuple[str, ...]
    tables: tuple[str, ...]


# Texts are LaTeX, as captions are. The first says what was run, the others are findings.
_CONCLUSIONS = (
    Conclusion(
        "Status",
        r"""\val{cells/run} of \val{cells/total} planned training runs are done: \val{cells/cpu/run} with
        PyTorch on CPUs, \val{cells/xla_cpu/run} through XLA on CPUs, \val{cells/cuda/run} on CUDA and
        \val{cells/neuron/run} on Trainium.\ifany{cells/neuron/run}{}{ Whether Trainium trains as accurately
        as CUDA is therefore still open.}""",
        claims=("O01", "O10"),
        tables=("matrix",),
    ),
    Conclusion(
        "Accuracy",
        r"""On real radiographs (\code{\val{largest/dataset}}), \code{\val{largest/network}} on
        \code{\val{largest/platform}} reaches a test AUROC of \val{largest/auroc}, averaged over the
        findings: \val{largest/patients} patients,
        \ifmany{largest/seeds}{mean of \val{largest/seeds} seeds}{one seed}, 95~\% interval.
        \ifany{largest/rivals}{It scored highest of the networks trained at this size, so the value may be
        slightly too high.}{}""",
        claims=(),
        tables=("auroc", "auroc_elsewhere"),
    ),
    Conclusion(
        "Parity",
        r"""Macro AUROC is equivalent in \val{parity/equivalent} of \val{parity/pairs} comparisons of
        platforms on real radiographs, within the margin of \val{margin/auroc} declared in advance. The
        largest difference is \val{parity/largest}.\ifany{parity/pairs/accelerated}{}{ None of these
        platforms is an accelerator: the comparisons check the software and say nothing about hardware.}""",
        claims=(),
        tables=("parity",),
    ),
    Conclusion(
        "Power",
        r"""To detect the preprint's difference of \val{power/difference} in F1 would take
        \val{power/preprint/patients} test patients (\val{power/preprint/patients fixed} with thresholds
        taken as fixed) or \val{power/preprint/seeds} seeds on each platform. This study has
        \val{power/patients} test patients and \val{power/seeds} seeds.""",
        claims=("P02",),
        tables=("power",),
    ),
    Conclusion(
        "Cost",
        r"""The preprint puts training on trn1 at \val{claim/P08/stated} times the cost of g5. With run
        times unchanged and undated spot prices, it is \val{claim/O02} times in one region and as little as
        \val{claim/O11} times in another.""",
        claims=("P08", "O02", "O11"),
        tables=("ratios",),
    ),
    Conclusion(
        "Claims",
        r"""Of \val{claims/others} published claims, \val{claims/confirmed} are confirmed and
        \val{claims/adds up} add up; \val{claims/contradicted} are contradicted, \val{claims/inconsistent}
        inconsistent, \val{claims/stale} stale, \val{claims/conditional} conditional, and
        \val{claims/not testable here} cannot be tested here. A case study's saving of \val{claim/K33}~\%,
        run times as printed, is \val{claim/K33/now}~\% at the prices of \val{price/date}.""",
        claims=("K33", "O12"),
        tables=("claims",),
    ),
)


def conclusions(values: Values) -> list[Conclusion]:
    """Return the conclusions as plain text, without those that name an unknown value.

    ``values``: those of :func:`cxrbench.paper.numbers.numbers`.
    """
    named = [(one, re.findall(r"\\val\{([^}]*)\}", one.text)) for one in _CONCLUSIONS]
    return [replace(one, text=as_text(one.text, values)) for one, keys in named if set(keys) <= set(values)]
