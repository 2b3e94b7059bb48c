"""The Containerfile builds where no registry of images is reached: on a Debian made here, by buildah."""

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from conftest import ROOT, clone_of_the_tree, ran

SECONDS = 180  # of the slow tests' twenty minutes
# How this machine reaches its package index goes into the base; the repository names none.
INDEX = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "PIP_CERT", "SSL_CERT_FILE")
TEX = ("latexmk", "pdflatex", "kpsewhich")  # stand-ins: installing LaTeX takes minutes
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")


def test_the_images_run_as_a_user_and_take_their_packages_from_the_locks() -> None:
    text = (ROOT / "Containerfile").read_text()
    stages = text.split("\nFROM ")
    assert re.search(r"^ARG BASE=docker\.io/library/debian@sha256:[0-9a-f]{64}$", stages[0], re.M)
    assert [stage.splitlines()[0].rpartition(" AS ")[2] for stage in stages[1:]] == ["base", "train", "paper"]
    assert "USER author" in stages[1] and "USER" not in "".join(stages[2:])
    for stage, lock in zip(stages[2:], ("base", "paper"), strict=True):
        assert f'requirements/setup.sh "" "$VENV" requirements/{lock}.lock' in stage
    page = (ROOT / "docs/containers.md").read_text()
    for tool in ("podman", "docker"):
        assert f"{tool} build --target " in page and f"{tool} run --rm" in page


def test_what_git_ignores_stays_out_of_the_images() -> None:
    kept_out = set((ROOT / ".dockerignore").read_text().split())
    caches = {".pytest_cache", ".mypy_cache", ".ruff_cache"}  # one pattern has them all
    for line in (ROOT / ".gitignore").read_text().split():
        name = line.strip("/") if not line.startswith("!") else line.replace("/", "", 1)
        assert {name, f"**/{name}"} & kept_out or name in caches, line


class Store:
    """A store of images in a folder; each command ends, or the test is skipped, before time is up."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.end = folder, time.monotonic() + SECONDS

    def run(self, *words: object, **how: object) -> CompletedProcess[str]:
        try:
            done = ran(*words, **{"timeout": max(self.end - time.monotonic(), 1)} | how)
        except subprocess.TimeoutExpired:
            pytest.skip(f"this machine is too busy: no image within {SECONDS} s")
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done

    def buildah(self, command: str, *words: object, **how: object) -> str:
        where = ("--root", self.folder / "store", "--runroot", self.folder / "run")
        return self.run("buildah", *where, command, *words, **how).stdout.strip()

    def make_base(self) -> str:
        """Import a Debian from its package archive, with stand-ins for LaTeX."""
        archive = self.folder / "debian.tar"
        how = ("--variant=apt", "--dpkgopt=force-unsafe-io", "bookworm", archive)
        try:
            self.run("mmdebstrap", *how)
        except AssertionError as error:
            pytest.skip(f"no Debian can be made here: {str(error).splitlines()[-1]}")
        base = self.buildah("from", "scratch")
        self.buildah("add", "-q", base, archive, "/")
        for name in TEX:
            (self.folder / name).write_text("#!/bin/sh\n")
            (self.folder / name).chmod(0o755)
            self.buildah("copy", "-q", base, self.folder / name, f"/usr/local/bin/{name}")
        if OWN_CERTIFICATES.is_dir():
            self.buildah("copy", "-q", base, OWN_CERTIFICATES, OWN_CERTIFICATES)
        for name in INDEX:
            if value := os.environ.get(name):
                self.buildah("config", "--env", f"{name}={value}", base)
        self.buildah("commit", "-q", "--rm", base, "localhost/base")
        return "localhost/base"


@pytest.mark.slow
def test_the_paper_image_builds_and_verifies_the_evidence(tmp_path: Path) -> None:
    if not (shutil.which("buildah") and shutil.which("mmdebstrap")):
        pytest.skip("buildah or mmdebstrap is not installed; `make containers` installs them")
    if os.geteuid() != 0:
        pytest.skip("making a Debian without a registry of images takes root")
    asked = ran("make", "containers", cwd=ROOT)
    assert (asked.returncode, asked.stdout + asked.stderr) == (0, ""), "what is there is not installed again"
    clone_of_the_tree(folder := tmp_path / "checkout")
    store = Store(tmp_path)
    how = ("--isolation", "chroot", "--layers=false", "--target", "paper")
    store.buildah("bud", *how, "--build-arg", f"BASE={store.make_base()}", "-t", "localhost/paper", folder)
    image = store.buildah("from", "localhost/paper")

    def inside(*words: str) -> str:
        return store.buildah("run", "--isolation", "chroot", image, "--", *words)

    assert inside("id", "-un") == "author"
    assert (
        inside("/opt/venv/bin/python", "-c", "import importlib.util as u; print(u.find_spec('torch'))")
        == "None"
    )
    assert "recorded cells are intact" in inside("/opt/venv/bin/cxrbench", "verify")
