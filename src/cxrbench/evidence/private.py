"""What must not travel with a record: names, places, addresses and serial numbers of somebody's machine.

Two kinds are taken out of free texts: what this machine says of itself, to the letter, and what looks like a
path, an address, an account, a key or a serial number, on any machine. A text that was cleaned is not changed
again. Each line is looked at by itself and cut before that, so that no expression takes more than its square.
What an archive may hold at all is in :mod:`cxrbench.evidence.allowed`.
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

PATH, NAME, ADDRESS, SERIAL, CUT = "<path>", "<name>", "<address>", "<serial>", "<cut>"
FREE_TEXTS = ("failure", "timing", "energy", "platform", "weights")  # of a record
_ROOT = Path(__file__).parents[3]
_LONGEST = 2000  # characters of a line that are looked at; the others are cut off
_SHORTEST = 3  # letters of a name that is looked for
_OF_NOBODY = {"root", "user", "localhost", "ubuntu", "debian", "admin", "ec2-user", "runner", "jovyan"}
_SERIALS = (
    "/etc/machine-id",
    *(f"/sys/class/dmi/id/{part}_serial" for part in ("product", "board", "chassis")),
)
_END = r"\s/\"'`:,;()<>|"  # no part of a path in a text
_PACKAGES = re.compile(r"/(?:[^/\n\"']{1,255}/){0,40}(?=(?:site|dist)-packages/)")
_ADDRESSES = re.compile(
    r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w)"
    r"|(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:])"
)
_USERS = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-][\w.-]*")  # also of who built a driver
_UNLIKE = (  # what a text may have of any machine, and what stands for it
    (re.compile(r"\b\w+:///?[^\s\"'<>]+"), ADDRESS),
    (re.compile(r"(?<=([\"']))/(?:(?!\1)[^/\n])+/(?:(?!\1)[^\n])+(?=\1)"), PATH),
    (re.compile(rf"(?<![\w.>/])(?:~|\.\.(?:/\.\.)*)?(?:/[^{_END}]+){{2,}}/?|~/[^{_END}]+"), PATH),
    (re.compile(rf"(?<![\w.>/:])//(?:[^{_END}]+/?)+|\b[A-Za-z]:\\[^\s\"',;]+"), PATH),
    (re.compile(rf"\\\\[^\s\"',;\\]+(?:\\[^\s\"',;]*)?|(?<![\w.>/])~[\w.-]{{1,64}}/[^{_END}]*"), PATH),
    (re.compile(r"\barn:[\w:/.*-]+"), SERIAL),
    (
        re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\b(?:hf|gh[opsu]|sk|xox[abp])[-_][A-Za-z0-9_-]{16,}"),
        SERIAL,
    ),
    (
        re.compile(r"\b[A-Z0-9_]{0,40}(?:TOKEN|SECRET|PASSWORD|API_?KEY)[A-Z0-9_]{0,20}\s?[=:]\s?[^\s<]\S*"),
        SERIAL,
    ),
    (re.compile(r"\b(?:i|vol|eni|subnet|sg|vpc)-[0-9a-f]{8,17}\b"), SERIAL),
    (_USERS, NAME),
    (re.compile(r"\bip-\d{1,3}(?:-\d{1,3}){3}\b(?:\.[\w.-]+)?"), ADDRESS),
    (
        re.compile(
            r"(?<![\w.-])(?:[A-Za-z0-9-]{1,63}\.){1,8}(?:internal|local|lan|corp|example\.(?:org|com|net))\b"
        ),
        NAME,
    ),
    (re.compile(r"\b[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]\b"), SERIAL),
    (re.compile(r"\b(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"), SERIAL),
    (re.compile(r"\b(?:(?:GPU|MIG)-)?[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\b"), SERIAL),
)


def without_places(text: str) -> str:
    """``text`` without paths, URLs, addresses of users and machines, accounts, keys and serials."""
    return "".join(map(_line_without_places, text.splitlines(keepends=True)))


def _line_without_places(line: str) -> str:
    if len(line) > _LONGEST:
        line = line[: _LONGEST - len(CUT) - 1] + CUT + "\n" * line.endswith("\n")
    line = _PACKAGES.sub("", line)
    for pattern, word in _UNLIKE:
        line = pattern.sub(word, line)
    return _ADDRESSES.sub(_address, line)


def _address(match: re.Match[str]) -> str:
    with suppress(ValueError):
        ipaddress.ip_address(match[0])
        return ADDRESS if len(match[0]) > 2 else match[0]
    return match[0]


def of_this_machine() -> Callable[[str], str]:
    """A function that takes what this machine and its user are called out of a text, and the rest."""
    return partial(_cleaned, _places(), _names())


def _cleaned(places: dict[str, str], names: re.Pattern[str] | None, text: str) -> str:
    for place, word in places.items():
        below = "" if word != PATH else rf"(?:/[^{_END}]*)*"
        text = re.sub(rf"(?<![\w.-]){re.escape(place)}(?![\w.-]){below}", word, text)
    text = without_places(text)
    return names.sub(NAME, text) if names else text


def _places() -> dict[str, str]:
    """This machine's folders with what stands for them, longest first; names below ours may stay."""
    ours = {_ROOT: ".", Path(sys.prefix): "environment", Path(sys.base_prefix): "python"}
    others = (Path.cwd(), *_home(), Path(tempfile.gettempdir()))
    places = {str(folder): PATH for base in others for folder in (base, base.resolve())}
    places |= {str(folder): word for own, word in ours.items() for folder in (own, own.resolve())}
    return {place: places[place] for place in sorted(places, key=len, reverse=True) if len(place) > 1}


def _home() -> list[Path]:
    """The user's home; nothing where a user without an entry has none."""
    with suppress(RuntimeError):
        return [Path.home()]
    return []


def _names() -> re.Pattern[str] | None:
    """A pattern of the names of user and machine and of its serial numbers; None where it has none."""
    words = {socket.gethostname(), socket.gethostname().split(".")[0], *(home.name for home in _home())}
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
    """Nested JSON with every text cleaned; keys stay.

    A driver's version may look like an address (2.29.0.0): of it only who built it is taken out.
    """
    if isinstance(value, dict):
        return {
            key: _USERS.sub(NAME, part) if key == "driver" and isinstance(part, str) else cleaned(part, clean)
            for key, part in value.items()
        }
    if isinstance(value, list):
        return [cleaned(part, clean) for part in value]
    return clean(value) if isinstance(value, str) else value


def clean_record(record: dict[str, Any], clean: Callable[[str], str]) -> dict[str, Any]:
    """record.json's value with its free texts cleaned, and the driver, which may name who built it."""
    texts = {key: cleaned(record[key], clean) for key in FREE_TEXTS if key in record}
    host = dict(record["host"])
    if host.get("driver"):
        host["driver"] = _USERS.sub(NAME, host["driver"])
    return record | texts | {"host": host}
