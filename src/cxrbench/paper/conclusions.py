"""The study's conclusions, a few sentences each; every number in them is a value of the paper's."""

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
        \code{\val{largest/platform}}, trained from \val{largest/weights}, reaches a mean test AUROC of
        \val{largest/endpoint} over the findings with at least \val{endpoint/patients} positive patients, and
        \val{largest/auroc} over all: \val{largest/patients} patients,
        \ifmany{largest/seeds}{mean of \val{largest/seeds} seeds}{one seed}, 95~\% interval.
        \ifany{largest/rivals}{It scored highest of the trainings at this size, so the value may be
        slightly too high.}{}""",
        claims=(),
        tables=("auroc", "auroc_elsewhere"),
    ),
    Conclusion(
        "Parity",
        r"""That mean AUROC is equivalent in \val{parity/equivalent} of \val{parity/pairs} comparisons of
        platforms on real radiographs, within the margin of \val{margin/auroc}, declared in
        advance and justified afterwards; corrected for all verdicts of the table, in
        \val{family/real/endpoint equivalent after correction}. The largest difference is
        \val{parity/largest}. Macro F1 is \val{parity/f1}, AUROC of single findings
        \val{parity/findings}.\ifany{parity/pairs/accelerated}{}{ None of these platforms is an accelerator:
        the comparisons check the software and say nothing about hardware.}""",
        claims=(),
        tables=("parity",),
    ),
    Conclusion(
        "Seeds against platforms",
        r"""Changing only the seed changes macro F1 by more than the preprint's \val{power/difference} in
        \val{pairs/seed/f1_macro/above} of \val{pairs/seed/f1_macro/pairs} pairs of our networks (median
        \val{pairs/seed/f1_macro/median}), micro F1 in \val{pairs/seed/f1_micro/above} of
        \val{pairs/seed/f1_micro/pairs} (median \val{pairs/seed/f1_micro/median}). The pairs come from
        \val{pairs/recipes} recipes on the same test patients, so they are not independent. One training per
        platform can neither show that difference nor exclude it at this size.
        \ifany{pairs/precision/f1_macro/pairs}{With the same seed, changing the precision does so in
        \val{pairs/precision/f1_macro/above} of \val{pairs/precision/f1_macro/pairs} pairs in macro and
        \val{pairs/precision/f1_micro/above} of \val{pairs/precision/f1_micro/pairs} in micro F1.}{}""",
        claims=("P02",),
        tables=("pairs",),
    ),
    Conclusion(
        "Power",
        r"""Showing the preprint's difference in F1, \val{power/difference}, would take
        \val{power/preprint/macro} test patients in macro F1 and \val{power/preprint/micro} in micro F1, by
        the spread of our \val{power/recipes} recipes, with \val{power/seeds} seeds of equal skill on both
        platforms and thresholds chosen anew. If seeds vary independently on the two, it would take
        \val{power/preprint/macro/seeds} or \val{power/preprint/micro/seeds} seeds on each with our
        \val{power/patients} test patients. The networks recorded on \code{\val{best/dataset}} have
        \val{power/seeds} seeds; a verdict on ConvNeXt-Pico needs \val{power/plan/convnext_pico} on each.""",
        claims=("P02",),
        tables=("power",),
    ),
    Conclusion(
        "Cost",
        r"""The preprint puts training on trn1 at \val{claim/P08/stated} times the cost of g5. If both
        were the smallest instances of their families, which the abstract does not say, then with run times
        unchanged and at spot prices, which are undated and each of an instance's cheapest zone, perhaps not
        the same one, it is \val{claim/O02} times in
        \val{price/region}, and as little as \val{claim/O11} times at \val{cost/depends at} prices, where trn1
        could be cheaper.""",
        claims=("P08", "O02", "O11"),
        tables=("ratios",),
    ),
    Conclusion(
        "Claims",
        r"""\val{claims/findings} findings speak against the published texts: \val{claims/contradicted} are
        contradicted by documents or prices, \val{claims/inconsistent} by the text's own numbers,
        \val{claims/stale} by newer prices or documents, and \val{claims/findings/assumed} if the text means
        what our test assumes. \val{claims/confirmed} others are confirmed from outside;
        \val{claims/not testable here} cannot be tested here. AWS's own example saves
        \val{claim/S18/stated}~\% at its prices and \val{claim/O16/stated}~\% at those of \val{price/date},
        run times as printed: AWS has cut the GPU's price since.""",
        claims=("S18", "O16"),
        tables=("claims",),
    ),
)


def conclusions(values: Values) -> list[Conclusion]:
    """Return the conclusions as plain text, without those that name an unknown value.

    ``values``: those of :func:`cxrbench.paper.numbers.numbers`.
    """
    named = [(one, re.findall(r"\\val\{([^}]*)\}", one.text)) for one in _CONCLUSIONS]
    return [replace(one, text=as_text(one.text, values)) for one, keys in named if set(keys) <= set(values)]
