"""Spot interruption notices: EC2 announces them two minutes ahead at its metadata address.

Asked only when the config says ``limits.spot_notice: true``. Source: Amazon EC2 User Guide, "Spot Instance
interruption notices" (metadata item ``spot/instance-action``, token-based IMDSv2).
"""

from __future__ import annotations

import os
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

METADATA_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"  # the variable AWS's own tools read
_ADDRESS = "http://169.254.169.254"
_ASK_SECONDS = 5.0  # as often as AWS recommends
_TIMEOUT_SECONDS = 2.0


@contextmanager
def watching(enabled: bool, on_notice: Callable[[], None]) -> Iterator[None]:
    """Call ``on_notice`` once, from a thread, when EC2 announces that this instance will go."""
    done = threading.Event()

    def watch() -> None:
        while not _announced():
            if done.wait(_ASK_SECONDS):
                return
        on_notice()

    if enabled:
        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _announced() -> bool:
    """Return whether the metadata item exists; a machine without the address is never interrupted."""
    base = os.environ.get(METADATA_VARIABLE, _ADDRESS).rstrip("/") + "/latest"
    try:
        token = _ask(f"{base}/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        _ask(f"{base}/meta-data/spot/instance-action", "GET", {"X-aws-ec2-metadata-token": token})
    except OSError:
        return False  # 404: no notice
    return True


def _ask(url: str, method: str, headers: dict[str, str]) -> str:
    request = urllib.request.Request(url, method=method, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
        return str(answer.read().decode())
