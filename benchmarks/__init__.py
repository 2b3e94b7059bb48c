"""Benchmarks of this machine; each row says when, where and at which commit it was measured."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cxrbench.common.files import cores
from cxrbench.evidence.record import commit_of_code, cpu_name, now
from cxrbench.study.platforms import ACCELERATED, installed

if TYPE_CHECKING:
    from cxrbench.platforms.base import Platform


def folder_name(device: str = "") -> str:
    """Return a folder name for this machine: accelerator ``device``, processor and cores."""
    return "-".join(re.findall(r"[a-z0-9]+", f"{device} {cpu_name()} {cores()} cores".lower()))


def measured_now(platform: Platform | None = None) -> dict[str, Any]:
    """Return when, where, at which commit and with which libraries a measurement is made.

    ``platform``: what it is made on, where that may be an accelerator.
    """
    head, dirty = commit_of_code()
    description = platform.describe() if platform and platform.name in ACCELERATED else {}
    return {
        "measured": now(),
        "machine": folder_name(description.get("device", "")),
        **{name: description[name] for name in ("device", "driver", "sdk") if name in description},
        "commit": head,
        "dirty": dirty,
        "versions": {name: installed(name) for name in ("torch", "timm")},
    }
