"""What a cell is trained by: the recipe, which is hashed, and the weights that it begins with."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file, sha256_json
from cxrbench.common.readers import Row, Text, matching, read_rows
from cxrbench.study.names import NAME_FORM, PART

Name = Annotated[str, matching(PART, NAME_FORM)]
Sha256 = Annotated[str, matching("[0-9a-f]{64}", "a sha256: 64 hex digits, such as sha256sum prints")]
Count = Annotated[int, Field(gt=0, le=10**9)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
Split = Literal["train", "val", "test"]
SPLITS: tuple[str, ...] = get_args(Split)
Precision = Literal["fp32", "tf32", "bf16"]
EmulatedWeights = Literal["fp32", "bf16_nearest", "bf16_stochastic"]
Arithmetic = Literal["own", "fp32_reordered", "matmult_bf16", "tf32_conv", "bf16_nearest", "bf16_stochastic"]
WEIGHTS_TABLE = Path("data/weights.csv")  # a row per published file: its package, and the hash of its tensors
_UNRECORDED_COMPILER = {"model_type": "generic", "optlevel": 2}
# Implied values of fields that older records lack: a field with this value is not hashed.
_UNRECORDED: dict[str, Any] = {
    "compiler": _UNRECORDED_COMPILER,
    "weights": "scratch",
    "layer_decay": 1.0,
    "drop_rate": 0.0,
    "deterministic": True,
    "emulated_weights": "fp32",
    "arithmetic": "own",
}


class Strict(BaseModel):
    """A frozen model that refuses keys it does not know, infinite numbers and NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Augmentation(Strict):
    """What happens to a training image; drawn per image from (seed, epoch, image)."""

    flip: float = Field(0.5, ge=0, le=1, description="probability of a horizontal flip")
    shift: float = Field(0.08, ge=0, lt=0.5, description="largest shift, as a fraction of the side")
    scale: float = Field(0.15, ge=0, lt=1, description="largest relative change of size")


class Compiler(Strict):
    """Options of Neuron's compiler besides the precision: its documented defaults of today, explicit."""

    model_type: Literal["generic", "transformer", "unet-inference", "cnn-training"] = Field(
        "generic", description="cnn-training is in AWS's ResNet-50 sample and not documented"
    )
    optlevel: Literal[1, 2, 3] = 2


class _Pretrained(Strict):
    """How the pixels that initial weights were made for were normalised."""

    mean: float | None = Field(None, description="of pixels in 0..1; none: that of the weights")
    std: float | None = Field(None, gt=0, description="likewise")

    @model_validator(mode="after")
    def _both(self) -> Self:
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std belong together; give both or neither")
        return self


class FileWeights(_Pretrained):
    """Initial weights in a file; its place is not hashed, its content is."""

    file: Path = Field(description="safetensors, or a state dict saved by torch; relative to the repository")
    sha256: Sha256 = Field(description="of the file")


class TimmWeights(_Pretrained):
    """Initial weights that timm downloads."""

    timm: Name = Field(description="a tag of the network's weights, such as in1k; default: timm's choice")


def _kind_of_weights(value: Any) -> str:
    if isinstance(value, dict | _Pretrained):
        return "timm" if "timm" in dict(value) else "file"
    return "scratch"


# A string, or one of two mappings told apart by their keys.
Weights = Annotated[
    Annotated[Literal["scratch"], Tag("scratch")]
    | Annotated[FileWeights, Tag("file")]
    | Annotated[TimmWeights, Tag("timm")],
    Discriminator(_kind_of_weights),
]


class Recipe(Strict):
    """Everything that decides a result besides data, network, platform and seed. Hashed."""

    epochs: Count = Field(description="passes over the training part; the last one is scored")
    batch: Count = Field(description="images per optimizer step, over all processes")
    optimizer: Literal["adamw"] = "adamw"
    learning_rate: float = Field(1e-3, gt=0, description="at the peak of the schedule")
    weight_decay: float = Field(0.05, ge=0)
    schedule: Literal["warmup_cosine"] = "warmup_cosine"
    warmup: float = Field(0.1, ge=0, lt=1, description="fraction of all steps spent warming up")
    averaging: float = Field(0.99, ge=0, lt=1, description="decay per step of the averaged weights; 0: none")
    weights: Weights = Field(
        "scratch", description="initial weights: scratch, {file: PATH, sha256: HEX} or {timm: TAG}"
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of each layer of the network over that of the next one"
    )
    drop_rate: float = Field(0.0, ge=0, lt=1, description="dropout before the classifier")
    drop_path: float = Field(0.0, ge=0, lt=1, description="stochastic depth, where the network has it")
    prior_bias: bool = Field(True, description="start the classifier's bias at the log-odds of each label")
    augmentation: Augmentation = Augmentation()
    precision: Precision = Field(
        "fp32", description="bf16: autocast with fp32 weights; tf32: a GPU's fp32 with shorter factors"
    )
    emulated_weights: EmulatedWeights = Field(
        "fp32",
        description="weights held in bf16, emulated on cpu alone: rounded after each step to the nearest "
        "value, or stochastically, as Trainium's documented mode does",
    )
    arithmetic: Arithmetic = Field(
        "own",
        description="that of the platform; or a documented one of another device, emulated on cpu alone "
        "(docs/arithmetic.md)",
    )
    deterministic: bool = Field(
        True, description="kernels that repeat to the bit, where cuda has a choice; false: the fastest"
    )
    activation_checkpointing: bool = False
    threads: Count = Field(2, description="CPU threads of the trainer: one and two give different bits")
    compiler: Compiler = Compiler.model_validate(_UNRECORDED_COMPILER)

    @model_validator(mode="after")
    def _emulated_in_fp32(self) -> Self:
        if self.arithmetic == "own":
            return self
        if self.precision != "fp32" or self.emulated_weights != "fp32":
            raise ValueError(
                f"arithmetic {self.arithmetic} rounds fp32 itself; drop precision and emulated_weights"
            )
        if self.activation_checkpointing:  # would be computed again outside of the emulation
            raise ValueError(f"arithmetic {self.arithmetic} cannot recompute; drop activation_checkpointing")
        return self

    def hash(self) -> str:
        """Sixteen hex digits that depend on all values above but the path of a weights file."""
        values = self.model_dump(mode="json")
        if isinstance(values["weights"], dict):  # equal bytes are equal weights, wherever they lie
            given = values["weights"].items()
            values["weights"] = {key: value for key, value in given if key != "file" and value is not None}
        kept = {k: v for k, v in values.items() if k not in _UNRECORDED or v != _UNRECORDED[k]}
        return sha256_json(kept)[:16]

    def published(self) -> dict[str, Any]:
        """The values as a record holds them: weights by the name of their file, without its folder."""
        values = self.model_dump(mode="json")
        if isinstance(self.weights, FileWeights):
            values["weights"]["file"] = self.weights.file.name
        return values


# -- files of initial weights: whether they are here, and where they are published ----------------


class PublishedWeights(Row):
    """A file of initial weights, and the package that it is made from."""

    KEY: ClassVar = ("sha256",)
    sha256: Sha256  # of the file that recipes name
    tensors: Sha256
    architecture: Text
    package: Annotated[Text, matching(r"[\w.-]+==[\w.]+", "a package and its version, such as name==1.0")]
    wheel: Sha256
    size: Annotated[int, Field(gt=0, alias="bytes")]
    member: Text
    licence: Text


def published_weights(weights: Any, table: Path = WEIGHTS_TABLE) -> PublishedWeights | None:
    """The place where ``weights`` of a recipe are published, or None where nobody has written that down."""
    if not isinstance(weights, FileWeights) or not table.is_file():
        return None
    rows = read_rows(table, PublishedWeights).values()
    return next((row for row in rows if row.sha256 == weights.sha256), None)


@cache
def weights_missing(weights: Weights) -> str | None:
    """The reason initial ``weights`` are not on this machine, in one sentence, or None.

    Raises UserError for a file of another content; one with the same tensors counts as the same. Weights of
    timm are downloaded when a cell is trained.
    """
    if not isinstance(weights, FileWeights):
        return None
    row = published_weights(weights)
    if not weights.file.is_file():
        remedy = "put or link them there" if row is None else f"they are in {row.package}"
        return f"the weights {weights.file} are not on this machine: {remedy}"
    digest = sha256_file(weights.file)
    if digest != weights.sha256 and not (row and has_tensors(weights.file, row.tensors)):
        raise UserError(
            f"{weights.file}: its sha256 is {digest}, the recipe says {weights.sha256}: other weights; get "
            "the file again whole, or correct sha256 in the recipe"
        )
    return None


def has_tensors(path: Path, wanted: str) -> bool:
    """Whether the tensors of a file have the sha256 ``wanted``; a file without tensors has not."""
    try:
        from safetensors import SafetensorError
    except ImportError:  # the small environment, which trains nothing
        return False
    try:
        return tensors_sha256(path) == wanted
    except (SafetensorError, ValueError, TypeError):
        return False


def tensors_sha256(path: Path) -> str:
    """The sha256 over all tensors of a safetensors file, by name: name, type, shape, then bytes.

    Raises SafetensorError or ValueError for another file.
    """
    from safetensors import safe_open

    digest = hashlib.sha256()
    with safe_open(path, "np") as file:
        for name in sorted(file.keys()):
            tensor = file.get_tensor(name)
            digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
            digest.update(tensor.tobytes())
    return digest.hexdigest()
