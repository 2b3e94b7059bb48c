"""A crate against the public validator, roc-validator, without a network.

Most of its checks need RO-Crate's JSON-LD context, which it would fetch. Here it finds the one that the
rocrate library carries in its cache of web pages. That is a newer one: what we use of it means the same in
1.1, except that types of workflows moved from bioschemas.org to bioschemas.org/terms, which is undone.

``python -m cxrbench.report.crate_check CRATE [OPTIONS OF rocrate-validator validate]``, in the environment of
requirements/crate.lock.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import resources
from io import BytesIO
from pathlib import Path

import requests
from requests.adapters import HTTPAdapter
from requests_cache import CachedSession
from urllib3 import HTTPResponse

CONTEXT = "https://w3id.org/ro/crate/1.1/context"


class _FromTheLibrary(HTTPAdapter):
    """Answers every request with the context that the rocrate library carries."""

    def send(self, request: requests.PreparedRequest, *_: object, **__: object) -> requests.Response:
        text = resources.files("rocrate").joinpath("data/ro-crate.jsonld").read_text(encoding="utf-8")
        body = text.replace("https://bioschemas.org/terms/", "https://bioschemas.org/").encode()
        kind = {"Content-Type": "application/ld+json"}
        answer = HTTPResponse(BytesIO(body), headers=kind, status=200, preload_content=False)
        return self.build_response(request, answer)


def check(crate: Path, *options: str) -> int:
    """Validate the folder ``crate``, print what the validator says, return its exit status: 0 for valid."""
    with tempfile.TemporaryDirectory(prefix="cxrbench-crate-") as folder:
        cache = Path(folder) / "pages"
        with CachedSession(cache_name=str(cache), backend="sqlite", expire_after=-1) as session:
            session.mount("https://", _FromTheLibrary())
            session.get(CONTEXT)
        program = Path(sys.executable).parent / "rocrate-validator"
        words = [
            "-y",
            "validate",
            str(crate),
            "--no-paging",
            "--offline",
            "--cache-path",
            str(cache),
            *options,
        ]
        return subprocess.run([str(program), *words], check=False).returncode


if __name__ == "__main__":
    sys.exit(check(Path(sys.argv[1]), *sys.argv[2:]))
