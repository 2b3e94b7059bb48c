"""Environment of TorchNeuron, which has a cache of its own. Imports no torch."""

from collections.abc import Mapping
from functools import partial

from cxrbench.common.errors import UserError
from cxrbench.platforms.neuron_settings import RUNTIME, why_not
from cxrbench.study.config import Compiler

unavailable = partial(why_not, "torchneuron")


def environment(precision: str, compiler: Compiler, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that decide how a cell runs; UserError for compiler settings, which do not exist.

    TorchNeuron may have been imported with torch before (docs/neuron.md): only documented defaults are set.
    """
    undocumented = "TorchNeuron documents no flags for its compiler"
    if compiler != Compiler():
        raise UserError(
            f"the recipe's `compiler` is for platform neuron: {undocumented}; use a recipe without it"
        )
    # The second one is not documented: it is refused in case a version reads it.
    for variable in ("NEURON_CC_FLAGS", "NEURON_COMPILER_OPT_LEVEL"):
        if value := given.get(variable):
            raise UserError(
                f"{variable} is set ({value}): {undocumented}, and one may change the precision or speed of "
                "what the recipe names; unset it"
            )
    # A graph that does not compile must fail, not run eagerly without anybody noticing; and what runs eagerly
    # (loss, update, average, augmentation) may go to the host only where Neuron has no such operator.
    return RUNTIME | {
        "TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION": "1",
        "TORCH_NEURONX_FALLBACK_ONLY_FOR_UNIMPLEMENTED_OPS": "1",
    }
