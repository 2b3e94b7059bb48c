"""The code of a training job: what SageMaker unpacks in its container. The same bytes for the same tree."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path

from cxrbench.config import Study
from cxrbench.errors import UserError
from cxrbench.files import written_aside
from cxrbench.training.host import commit

PACKAGE = Path(__file__).resolve().parent.parent
ENTRY = "train.py"
# Installed in the container on top of its own PyTorch; NumPy is the container's (Neuron's compiler pins it).
NEEDED = ("timm", "pandas", "psutil", "pyarrow", "pydantic", "pyyaml", "rich", "scikit-learn", "typer")
_KEPT = (".py", ".gz")


def write_bundle(path: Path, study: Study, lock: Path = Path("requirements/base.lock")) -> list[str]:
    """Write a tar.gz with entry script, package, study and pins to ``path``; returns the names in it."""
    head, dirty = commit()
    files = {
        ENTRY: (PACKAGE / "cloud/entry.py").read_bytes(),
        "study.json": study.model_dump_json(indent=1).encode(),
        "requirements.txt": "".join(f"{pin}\n" for pin in pins(lock)).encode(),
        "commit.txt": f"{head}{'-dirty' if dirty else ''}\n".encode(),
    }
    for source in sorted(PACKAGE.rglob("*")):
        if source.is_file() and source.suffix in _KEPT and "__pycache__" not in source.parts:
            files[f"cxrbench/{source.relative_to(PACKAGE).as_posix()}"] = source.read_bytes()
    with written_aside(path) as aside:
        aside.write_bytes(_packed(files))
    return sorted(files)


def _packed(files: dict[str, bytes]) -> bytes:
    """A tar.gz that holds neither the time nor the owner of a file."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w") as tar,
    ):
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def pins(lock: Path) -> list[str]:
    """``name==version`` of what training imports, as the other platforms have it from the same lock."""
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{lock}: cannot be read ({error.strerror}); call this from the repository") from None
    locked = dict(re.findall(r"^([A-Za-z0-9_.\-]+)==([^\s;\\]+)", text, flags=re.M))
    if missing := [name for name in NEEDED if name not in locked]:
        raise UserError(f"{lock}: no version of {', '.join(missing)}; run `make lock`")
    return [f"{name}=={locked[name]}" for name in NEEDED]
