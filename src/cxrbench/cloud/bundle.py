"""The code of a training job, as SageMaker unpacks it in its container. Equal trees give equal bytes."""

from __future__ import annotations

import gzip
import io
import re
import tarfile
from pathlib import Path

from cxrbench.study.config import Study
from cxrbench.study.errors import UserError
from cxrbench.study.files import written_aside
from cxrbench.training.host import commit

PACKAGE = Path(__file__).resolve().parent.parent
ENTRY = "train.py"
# Installed in the container on top of its own PyTorch; NumPy is the container's (Neuron's compiler pins it).
NEEDED = ("timm", "pandas", "psutil", "pyarrow", "pydantic", "pyyaml", "rich", "scikit-learn", "typer")
_KEPT = (".py", ".gz", ".toml")


def write_bundle(path: Path, study: Study, lock: Path = Path("requirements/base.lock")) -> list[str]:
    """Write a tar.gz with entry script, package, study and pins to ``path``; return the names in it."""
    head, dirty = commit()
    files = {
        ENTRY: Path(__file__).with_name("entry.py").read_bytes(),
        "study.json": study.model_dump_json(indent=1).encode(),
        "requirements.txt": "".join(f"{pin}\n" for pin in pins(lock)).encode(),
        "commit.txt": f"{head}{'-dirty' if dirty else ''}\n".encode(),
    }
    for source in PACKAGE.rglob("*"):
        if source.is_file() and source.suffix in _KEPT and "__pycache__" not in source.parts:
            files[f"cxrbench/{source.relative_to(PACKAGE).as_posix()}"] = source.read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # without time and owner
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    with written_aside(path) as aside:
        aside.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return sorted(files)


def pins(lock: Path) -> list[str]:
    """Return ``name==version`` of what training imports, from the lock of the other platforms."""
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{lock}: cannot be read ({error.strerror}); call this from the repository") from None
    locked = dict(re.findall(r"^([A-Za-z0-9_.\-]+)==([^\s;\\]+)", text, flags=re.M))
    if missing := [name for name in NEEDED if name not in locked]:
        raise UserError(f"{lock}: no version of {', '.join(missing)}; run `make lock`")
    return [f"{name}=={locked[name]}" for name in NEEDED]
