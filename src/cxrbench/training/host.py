"""What machine this is and at which commit the code stands, for the record. Imports no torch."""

import os
import platform as python_platform
import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cxrbench.study.files import cores, git

_DMI = Path("/sys/devices/virtual/dmi/id")


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's own name, with family and model where a hypervisor hides its number."""
    with suppress(OSError):
        facts = dict(re.findall(r"^([a-z ]+?)\s*: *(.*?) *$", cpuinfo.read_text("utf-8"), re.M))
        if name := facts.get("model name"):
            hidden = not re.search(r"\d", name) and {"cpu family", "model"} <= facts.keys()
            return f"{name} family {facts['cpu family']} model {facts['model']}" if hidden else name
    return python_platform.processor() or python_platform.machine()


def described() -> dict[str, Any]:
    """Return what records say of any machine: processor, cores, memory, system, as Linux 6.1, EC2 type."""
    import psutil  # imported here: every command loads this module

    library, version = python_platform.libc_ver()
    instance = os.environ.get("SM_CURRENT_INSTANCE_TYPE")
    with suppress(OSError):
        if not instance and "Amazon EC2" in (_DMI / "sys_vendor").read_text(encoding="utf-8"):
            instance = (_DMI / "product_name").read_text(encoding="utf-8").strip()
    release = ".".join(python_platform.release().split(".")[:2])
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "os": f"{python_platform.system()} {release}" + (f", {library} {version}" if library else ""),
        "instance": instance or None,
    }


def published(log: bytes) -> str:
    """Return a log as text, with short names for this machine's folders."""
    text = log.decode(errors="backslashreplace")
    folders = {
        os.getcwd(): ".", sys.prefix: "<env>", sys.base_prefix: "<python>", os.path.expanduser("~"): "~",
    }  # fmt: skip
    for folder, name in folders.items():
        if folder not in ("/", "~"):  # a container's root, an unknown home
            text = text.replace(folder, name)
    return text


def commit() -> tuple[str, bool]:
    """Return (commit, whether the checkout of this code differs); ('unknown', True) where there is none."""
    if given := os.environ.get("CXRBENCH_COMMIT"):  # in a container without a checkout
        return given.removesuffix("-dirty"), given.endswith("-dirty")
    package = Path(__file__).parents[1]  # the checkout of the package, not the caller's
    named = git(package, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty")
    untracked = git(package, "ls-files", "--others", "--exclude-standard")
    if named is None or untracked is None:
        return "unknown", True
    head, changed, _ = named.strip().partition("-dirty")
    return head, bool(changed or untracked)


def now() -> str:
    """Return the time as records have it: UTC, whole seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")
