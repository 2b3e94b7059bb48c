"""Recorded evidence as a whole: which of it is refused before it is used, and who signed it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cxrbench.evidence.record import LOG, PREDICTIONS, RECORD, check_evidence
from cxrbench.evidence.sums import SUMS, read_sums, signature_of
from cxrbench.study.cells import Cell
from cxrbench.study.errors import UserError
from cxrbench.study.files import remedy, sha256_file

NAMESPACE = "cxrbench-evidence"  # a signature made for another purpose does not count


class Recorded:
    """The evidence below ``root``; each cell is looked at once, when it is first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sums: dict[str, str] | None = None
        self._refused: dict[Cell, str | None] = {}

    def refused(self, cell: Cell) -> str | None:
        """Return why the evidence of ``cell`` is not used, with a remedy; None when it is fit or absent.

        Refused are files that differ from SHA256SUMS or from the record's own hashes, that are missing, or
        that this version cannot read. ``cxrbench verify`` looks further, and at all files.
        """
        if cell not in self._refused:
            self._refused[cell] = self._look_at(cell)
        return self._refused[cell]

    def _look_at(self, cell: Cell) -> str | None:
        if self._sums is None:
            self._sums = read_sums(self.root)
        folder = cell.folder(self.root)
        listed = {name: self._sums.get(f"{cell}/{name}") for name in (RECORD, PREDICTIONS, LOG)}
        if listed[RECORD] is None and not (folder / RECORD).exists():
            return None
        for name, expected in listed.items():
            path = folder / name
            if expected is not None and (not path.is_file() or sha256_file(path) != expected):
                what = "differs from" if path.is_file() else "is missing, but stands in"
                return f"{path} {what} {SUMS}; {remedy(path)}"
        try:
            check_evidence(folder, cell)
        except UserError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class Signature:
    """Whether SHA256SUMS is signed: by whom, or why that is unknown."""

    state: Literal["signed", "unsigned", "wrong", "not checked"]
    text: str


def read_signature(root: Path) -> Signature:
    """Check ``root``/SHA256SUMS.sig against the allowed_signers beside ``root``."""
    sums, signature, allowed = root / SUMS, signature_of(root), root.parent / "allowed_signers"
    if not signature.is_file():
        return Signature("unsigned", f"unsigned: {signature} does not exist")
    if not shutil.which("ssh-keygen"):
        return Signature("not checked", f"{signature}: not checked, ssh-keygen is not installed here")
    if (
        not sums.is_file()
        or _keygen("check-novalidate", "-n", NAMESPACE, "-s", signature, signs=sums) is None
    ):
        return Signature(
            "wrong", f"{signature}: does not match {sums.name}; sign again or restore both files"
        )
    found = _keygen("find-principals", "-s", signature, "-f", allowed) if allowed.is_file() else None
    signer = found.splitlines()[0] if found else None
    known = ("-n", NAMESPACE, "-s", signature, "-f", allowed, "-I", signer)
    if signer is None or _keygen("verify", *known, signs=sums) is None:
        return Signature("wrong", f"{signature}: no key of {allowed} made it; add the signer's line there")
    return Signature("signed", f"signed by {signer}")


def sign(root: Path, key: Path | None) -> Path:
    """Sign ``root``/SHA256SUMS with the ssh key ``key``, else with the user's own; return the key.

    ssh-keygen asks for the key's passphrase, or has the agent sign when ``key`` is a public key.
    """
    names = ("id_ed25519", "id_ed25519_sk", "id_ecdsa", "id_ecdsa_sk", "id_rsa")
    places = [key] if key else [Path.home() / ".ssh" / name for name in names]
    if (found := next((place for place in places if place.is_file()), None)) is None:
        raise UserError(f"{places[0]}: there is no such ssh key; name yours with --key")
    if not shutil.which("ssh-keygen"):
        raise UserError("ssh-keygen is not installed here; install OpenSSH's client to sign")
    signature_of(root).unlink(missing_ok=True)  # ssh-keygen asks before it replaces one
    command = ["ssh-keygen", "-Y", "sign", "-n", NAMESPACE, "-f", str(found), str(root / SUMS)]
    if subprocess.run(command).returncode:
        raise UserError(f"{found}: ssh-keygen could not sign with this key; {root / SUMS} is unsigned")
    return found


def _keygen(action: str, *words: object, signs: Path | None = None) -> str | None:
    """Return what `ssh-keygen -Y` prints, with the file ``signs`` as its input; None when it refuses."""
    data = signs.read_bytes() if signs else b""
    done = subprocess.run(["ssh-keygen", "-Y", action, *map(str, words)], input=data, capture_output=True)
    return None if done.returncode else done.stdout.decode(errors="replace")
