"""The study's conclusions, a few sentences each; every number in them is a value of the paper's."""

import re
from dataclasses import dataclass, replace

from cxrbench.paper.fmt import Values
from cxrbench.paper.latex import as_text, with_words_chosen


@dataclass(frozen=True)
class Conclusion:
    """What was found about a topic, and the ids of the claims and the names of the tables that show it."""

    topic: str
    text: str
    claims: tuple[str, ...]
    tables: tuple[str, ...]


# Texts are LaTeX, as captions are. The first says what was run, the others are findings. The README has the
# first four: of 25 words at most, with numbers that are in the tables they name.
_CONCLUSIONS = (
    Conclusion(
        "Status",
        r"""\ifany{cells/neuron/run}{}{\ifany{cells/neuron/total}{Nothing here has run on AWS
        Trainium\ifany{cells/cuda/run}{}{ or on an NVIDIA GPU}. }{}}\val{cells/run} of \val{cells/total}
        \val{cells/kind} trainings are done\ifany{cells/accelerated/run}{, \val{cells/cuda/run} of them on
        CUDA and \val{cells/neuron/run} on Trainium}{, all on CPUs}.\ifany{cells/neuron/run}{}{
        \ifany{cells/neuron/total}{Whether Trainium trains as accurately as CUDA is still open.}{}}""",
        claims=("O01", "O10"),
        tables=("cells",),
    ),
    Conclusion(
        "Seeds against platforms",
        r"""The seed alone moved macro F1 by more than the preprint's \val{power/difference} in
        \val{pairs/seed/f1_macro/above} of \val{pairs/seed/f1_macro/pairs} pairs: one training per platform
        cannot test it here.""",
        claims=("P02",),
        tables=("pairs",),
    ),
    Conclusion(
        "Precision",
        r"""\val{precision/first} and \val{precision/second} are \val{precision/verdict} within
        \val{margin/auroc} (\val{precision/seeds} seeds each; \SI{90}{\percent} intervals):
        \val{precision/differences}.""",
        claims=(),
        tables=("contrasts", "endpoint"),
    ),
    Conclusion(
        "Accuracy reached",
        r"""\code{\val{largest/network}}, from \val{largest/weights} weights, reached an AUROC over all
        findings of \val{largest/auroc} on \val{largest/patients} test patients, at \val{largest/pixels}
        pixels, with \val{largest/seeds} \ifmany{largest/seeds}{seeds}{seed}.""",
        claims=("O19",),
        tables=("endpoint", "dataset"),
    ),
    Conclusion(
        "Cost",
        r"""At undated spot prices, with unchanged run times on the smallest instances, the preprint's
        \val{claim/P08/stated} times the cost becomes \val{claim/O02}.""",
        claims=("P08", "O02", "O11"),
        tables=("ratios",),
    ),
    Conclusion(
        "Parity",
        r"""AUROC is equivalent within \val{margin/auroc} in \val{parity/equivalent} of \val{parity/pairs}
        comparisons of platforms on real radiographs. The largest difference is
        \val{parity/largest}.\ifany{parity/pairs/accelerated}{}{ None of these platforms is an accelerator:
        this checks the software and says nothing about hardware.}""",
        claims=("O18",),
        tables=("parity",),
    ),
    Conclusion(
        "Power",
        r"""To show the preprint's difference of \val{power/difference} would take
        \val{power/preprint/macro} test patients in macro F1, and \val{power/preprint/micro} in micro F1. This
        is by the spread of our \val{power/recipes} recipes, with \val{power/seeds} seeds. We have
        \val{power/patients} test patients.""",
        claims=("P02",),
        tables=("power",),
    ),
    Conclusion(
        "Claims",
        r"""\val{claims/findings} findings speak against the published texts: \val{claims/contradicted} are
        contradicted by documents or prices, \val{claims/inconsistent} by the text's own numbers,
        \val{claims/stale} by newer prices or documents. The other \val{claims/findings/assumed} hold if the
        text means what our test assumes. AWS's own example saves
        \val{claim/S18/stated}~\% at its prices and \val{claim/O16/stated}~\% at those of
        \val{price/date}.""",
        claims=("S18", "O16"),
        tables=("claims",),
    ),
)


def conclusions(values: Values) -> list[Conclusion]:
    """Return the conclusions as plain text, without those that name an unknown value.

    ``values``: those of :func:`cxrbench.paper.numbers.numbers`.
    """
    chosen = [replace(one, text=with_words_chosen(one.text, values)) for one in _CONCLUSIONS]
    named = [(one, set(re.findall(r"\\val\{([^}]*)\}", one.text))) for one in chosen]
    return [replace(one, text=as_text(one.text, values)) for one, keys in named if keys <= set(values)]
