"""The study of compilation: which training steps Neuron's compiler is given, by which releases of it."""

from itertools import product
from typing import Annotated, Literal

from pydantic import Field

from cxrbench.study.readers import matching
from cxrbench.study.recipe import Compiler, Count, Name, Strict

AuditedPrecision = Literal["fp32", "bf16"]
AutoCast = Literal["none", "matmult"]
Version = Annotated[str, matching(r"\d+(\.\d+)+", "a version such as 2.26.6360.0")]
Step = tuple[str, int, int, AuditedPrecision]  # network, pixels, batch, precision


class CompileOptions(Compiler):
    """Options of Neuron's compiler for a graph by itself: a recipe's, and a casting that was a default."""

    auto_cast: AutoCast = "none"


class CompileBlock(Strict):
    """A block of training steps: every network at every size, batch and precision."""

    networks: list[Name] = Field(min_length=1)
    pixels: list[Annotated[int, Field(ge=16, le=1024)]] = Field(min_length=1)
    batch: list[Count] = Field(min_length=1, description="images per step")
    precision: list[AuditedPrecision] = Field(min_length=1)


class Toolchain(Strict):
    """An earlier release of Neuron's compiler that the study's graphs are given too."""

    compiler: Version
    sdk: str = Field(description="release of the Neuron SDK that had it")
    python: str = Field(description="versions of Python that are documented for it")
    auto_cast: AutoCast = Field("none", description="its default at that time")


class Compilation(Strict):
    """Training steps for Neuron's compiler (``cxrbench compile --planned``), and the compiler's version."""

    target: Literal["trn1", "trn2"] = "trn1"
    compiler: Version = Field(description="of neuronx-cc; outcomes of other versions are recorded apart")
    hours: float = Field(2.0, gt=0, description="limit of one graph; more is status timed_out")
    earlier: list[Toolchain] = Field([], description="other releases, each a column of its own")
    controls: list[CompileBlock] = Field(
        [], description="steps that must compile before any other outcome is recorded"
    )
    blocks: list[CompileBlock] = Field(min_length=1)

    def steps(self) -> list[Step]:
        """Return network, pixels, batch and precision of every training step, in order, each once."""
        return _steps(self.blocks)

    def control_steps(self) -> list[Step]:
        """Return the same of the controls."""
        return _steps(self.controls)

    def options_of(self, version: str) -> CompileOptions:
        """Return the options that a release of the compiler is given here."""
        casts = {toolchain.compiler: toolchain.auto_cast for toolchain in self.earlier}
        return CompileOptions(auto_cast=casts.get(version, "none"))

    def toolchains(self) -> list[tuple[str, CompileOptions]]:
        """Return the columns of the study: the version of today first, then the earlier ones."""
        return [
            (name, self.options_of(name)) for name in (self.compiler, *(t.compiler for t in self.earlier))
        ]


def _steps(blocks: list[CompileBlock]) -> list[Step]:
    steps = (
        (network, pixels, batch, precision)
        for block in blocks
        for pixels, batch, precision, network in product(
            block.pixels, block.batch, block.precision, block.networks
        )
    )
    return list(dict.fromkeys(steps))
