"""SHA256SUMS, the hash of every recorded file, and its signature."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrbench.common.errors import UserError
from cxrbench.common.files import locked, remedy, sha256_file, write_text

SUMS = "SHA256SUMS"
NAMESPACE = "cxrbench-evidence"  # a signature made for another purpose does not count
_KEYS = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")


def read_sums(root: Path) -> dict[str, str]:
    """The sha256 by path that ``root``/SHA256SUMS lists; empty where there is no such file.

    A damaged line gives an entry that matches no file.
    """
    path = root / SUMS
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}


def sums_of(root: Path) -> dict[str, str]:
    """The sha256 by path of every recorded file below ``root``, sorted by path."""
    files = sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith((".", SUMS)))
    return {p.relative_to(root).as_posix(): sha256_file(p) for p in files}


def link_problems(root: Path) -> Iterator[str]:
    """Yield the links below ``root``: what they lead to may change, and SHA256SUMS need not list it."""
    for path in sorted(p for p in root.rglob("*") if p.is_symlink()):
        yield f"{path}: a link, which is no evidence; put what it leads to in its place, or remove it"


def refused_measurement(root: Path) -> str | None:
    """The reason evidence below ``root`` besides cells cannot be used: a file is not as listed.

    Cells are checked one by one (:meth:`cxrbench.evidence.store.EvidenceStore.refused`).
    """
    if linked := next(link_problems(root), None):
        return linked
    listed = read_sums(root)
    files = {p.relative_to(root).as_posix(): p for p in root.rglob("*") if p.is_file()}
    kept = {name for name, path in files.items() if not path.name.startswith((".", SUMS))}
    for name in sorted(kept | listed.keys() - {""}):
        path = root / name
        if path.parent.name.startswith("seed"):
            continue
        if name not in listed:
            return f"{path} is not listed in {SUMS}; {remedy(root / SUMS)}"
        if name not in files:
            return f"{path} is missing, but listed in {SUMS}; {remedy(path)}"
        if sha256_file(path) != listed[name]:
            return f"{path} differs from {SUMS}; {remedy(path)}"
    return None


def sums_text(sums: dict[str, str]) -> str:
    """The text of SHA256SUMS, as `sha256sum --check` reads it."""
    return "".join(f"{digest}  {name}\n" for name, digest in sums.items())


@contextmanager
def updated_sums(root: Path) -> Iterator[None]:
    """Rewrite ``root``/SHA256SUMS after the body; UserError before it when a listed file has changed.

    Otherwise damage to an untouched file would get a sum of its own.
    """
    root.parent.mkdir(parents=True, exist_ok=True)
    with locked(root.with_name(f".{root.name}.lock"), root, "recording there", wait=True):
        present = sums_of(root)
        if changed := [name for name, digest in read_sums(root).items() if present.get(name) != digest]:
            first = root / changed[0]
            raise UserError(f"{first} changed since the last record (files: {len(changed)}); {remedy(first)}")
        yield
        write_sums(root)


def write_sums(root: Path) -> None:
    """Update ``root``/SHA256SUMS; remove the signature of another text, with a message."""
    path, text, signature = root / SUMS, sums_text(sums_of(root)), _signature_of(root)
    if path.is_file() and path.read_bytes() == text.encode():
        return
    if signature.exists():
        signature.unlink()
        removed = f"removed, {SUMS} has changed; cxrbench record --sign makes another"
        print(f"{signature}: {removed}", file=sys.stderr)
    write_text(path, text)


@dataclass(frozen=True)
class Signature:
    """Whether SHA256SUMS is signed: by whom, or why that is unknown."""

    state: Literal["signed", "unsigned", "wrong", "not checked"]
    text: str


def read_signature(root: Path) -> Signature:
    """Check ``root``/SHA256SUMS.sig against the allowed_signers beside ``root``."""
    sums, signature, allowed = root / SUMS, _signature_of(root), root.parent / "allowed_signers"
    if not signature.is_file():
        return Signature("unsigned", f"unsigned: {signature} does not exist")
    if not shutil.which("ssh-keygen"):
        return Signature("not checked", f"{signature}: not checked, ssh-keygen is not installed here")
    signed = ("-n", NAMESPACE, "-s", signature)
    if not sums.is_file() or _keygen("check-novalidate", *signed, content=sums.read_bytes()) is None:
        reason = f"does not match {SUMS}; sign again or restore both files"
        return Signature("wrong", f"{signature}: {reason}")
    signers = _keygen("find-principals", "-s", signature, "-f", allowed) if allowed.is_file() else None
    signer = signers.splitlines()[0] if signers else None
    by_signer = (*signed, "-f", allowed, "-I", signer)
    if signer is None or _keygen("verify", *by_signer, content=sums.read_bytes()) is None:
        return Signature("wrong", f"{signature}: no key of {allowed} made it; add the signer's line there")
    return Signature("signed", f"signed by {signer}")


def sign(root: Path, key: Path | None) -> Path:
    """Sign ``root``/SHA256SUMS with the ssh key ``key``, else with the user's own; return the key.

    ssh-keygen asks for the key's passphrase, or has the agent sign when ``key`` is a public key.
    """
    folder = Path(os.path.expanduser("~")) / ".ssh"  # stays ~ for a user without a home
    places = [key] if key else [folder / name for name in _KEYS]
    if (own := next((place for place in places if place.is_file()), None)) is None:
        raise UserError(f"{places[0]}: there is no such ssh key; name yours with --key")
    if not shutil.which("ssh-keygen"):
        raise UserError("ssh-keygen is not installed here; install OpenSSH's client to sign")
    _signature_of(root).unlink(missing_ok=True)  # ssh-keygen asks before it replaces one
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(own), str(root / SUMS)]
    if subprocess.run(command).returncode:
        raise UserError(
            f"{own}: ssh-keygen could not sign with this key; {root / SUMS} is unsigned: "
            "name another key with --key"
        )
    return own


def _signature_of(root: Path) -> Path:
    return root / f"{SUMS}.sig"


def _keygen(action: str, *words: object, content: bytes = b"") -> str | None:
    """The output of `ssh-keygen -Y` when it reads ``content``, or None when it refuses."""
    done = subprocess.run(["ssh-keygen", "-Y", action, *map(str, words)], input=content, capture_output=True)
    return None if done.returncode else done.stdout.decode(errors="replace")
