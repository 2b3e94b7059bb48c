"""What must not travel with a record: names, places, addresses and serial numbers of somebody's machine.

Two kinds are taken out of free texts: what this machine says of itself, to the letter, and what looks like a
path, an address or a serial number, on any machine. A text that was cleaned is not changed again.
"""

import getpass
import ipaddress
import os
import re
import socket
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

PATH, NAME, ADDRESS, SERIAL = "<path>", "<name>", "<address>", "<serial>"
FREE_TEXTS = ("failure", "timing", "energy", "platform", "weights")  # of a record
_ROOT = Path(__file__).parents[3]
_SHORTEST = 3  # letters of a name that is looked for
_OF_NOBODY = {"root", "user", "localhost", "ubuntu", "debian", "admin", "ec2-user", "runner", "jovyan"}
_SERIALS = (
    "/etc/machine-id",
    *(f"/sys/class/dmi/id/{part}_serial" for part in ("product", "board", "chassis")),
)
_END = r"\s/\"'`:,;()<>|"  # no part of a path in a text
_PACKAGES = re.compile(r"/(?:[^/\n\"']+/)*(?=(?:site|dist)-packages/)")
_ADDRESSES = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w)"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_USERS = re.compile(r"[\w.+-]+@[\w-][\w.-]*")  # also of who built a driver
_UNLIKE = (  # what a text may have of any machine, and what stands for it
    (re.compile(r"\b\w+:///?[^\s\"'<>]+"), ADDRESS),
    (re.compile(r"(?<=([\"']))/(?:(?!\1)[^/\n])+/(?:(?!\1)[^\n])+(?=\1)"), PATH),
    (re.compile(rf"(?<![\w.>/])(?:~|\.\.(?:/\.\.)*)?(?:/[^{_END}]+){{2,}}/?|~/[^{_END}]+"), PATH),
    (re.compile(rf"(?<![\w.>/:])//(?:[^{_END}]+/?)+|\b[A-Za-z]:\\[^\s\"',;]+"), PATH),
    (_USERS, NAME),
    (re.compile(r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"), SERIAL),
    (re.compile(r"\b(?:(?:GPU|MIG)-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"), SERIAL),
)


def without_places(text: str) -> str:
    """Return ``text`` without paths, URLs, user@host, IP and hardware addresses, and serial numbers."""
    text = _PACKAGES.sub("", text)
    for pattern, word in _UNLIKE:
        text = pattern.sub(word, text)
    return _ADDRESSES.sub(_address, text)


def _address(match: re.Match[str]) -> str:
    with suppress(ValueError):
        ipaddress.ip_address(match[0])
        return ADDRESS if len(match[0]) > 2 else match[0]
    return match[0]


def of_this_machine() -> Callable[[str], str]:
    """Return a function that takes what this machine and its user are called out of a text, and the rest."""
    return partial(_cleaned, _places(), _names())


def _cleaned(places: dict[str, str], names: re.Pattern[str] | None, text: str) -> str:
    for place, word in places.items():
        below = "" if word != PATH else rf"(?:/[^{_END}]*)*"
        text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![\w.-]){below}", word, text)
    text = without_places(text)
    return names.sub(NAME, text) if names else text


def _places() -> dict[str, str]:
    """Return this machine's folders with what stands for them, longest first; names below ours may stay."""
    ours = {_ROOT: ".", Path(sys.prefix): "environment", Path(sys.base_prefix): "python"}
    others = (Path.cwd(), Path.home(), Path(tempfile.gettempdir()))
    places = {str(folder): PATH for other in others for folder in (other, other.resolve())}
    places |= {str(folder): word for own, word in ours.items() for folder in (own, own.resolve())}
    return {place: places[place] for place in sorted(places, key=len, reverse=True) if len(place) > 1}


def _names() -> re.Pattern[str] | None:
    """Return a pattern of the names of user and machine and of its serial numbers; None where it has none."""
    words = {socket.gethostname(), socket.gethostname().split(".")[0], Path.home().name}
    words |= {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER")}
    with suppress(OSError, KeyError):
        words.add(getpass.getuser())
    for path in _SERIALS:
        with suppress(OSError):
            words.add(Path(path).read_text(encoding="utf-8", errors="replace").strip())
    named = sorted(word for word in words if len(word) >= _SHORTEST and word.lower() not in _OF_NOBODY)
    either = "|".join(map(re.escape, named))
    return re.compile(rf"(?<!\w)(?:{either})(?!\w)", re.IGNORECASE) if named else None


def cleaned(value: Any, clean: Callable[[str], str]) -> Any:
    """Return nested JSON with every text cleaned; keys stay."""
    if isinstance(value, dict):
        return {key: cleaned(part, clean) for key, part in value.items()}
    if isinstance(value, list):
        return [cleaned(part, clean) for part in value]
    return clean(value) if isinstance(value, str) else value


def clean_record(record: dict[str, Any], clean: Callable[[str], str]) -> dict[str, Any]:
    """Return record.json's value with its free texts cleaned, and the driver, which may name who built it."""
    texts = {key: cleaned(record[key], clean) for key in FREE_TEXTS if key in record}
    host = dict(record["host"])
    if host.get("driver"):
        host["driver"] = _USERS.sub(NAME, host["driver"])
    return record | texts | {"host": host}
