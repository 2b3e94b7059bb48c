"""A user's mistake, and how a message about one is worded: what is wrong, where, and what to do."""

import difflib
from collections.abc import Iterable


def printable(text: object) -> str:
    r"""``text`` with control characters escaped: names must not steer a terminal.

    >>> printable("a\x1b[31mred")
    'a\\x1b[31mred'
    """
    if (given := str(text)).isprintable():
        return given
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in given)


class UserError(Exception):
    r"""Wrong config, missing data, damaged evidence: shown as one message, never as a traceback.

    >>> str(UserError("no column \x1b[31mred"))
    'no column \\x1b[31mred'
    """

    def __init__(self, message: object) -> None:
        super().__init__("\n".join(map(printable, str(message).split("\n"))))


def nearest(word: str, names: Iterable[str], count: int = 3) -> str:
    """A hint such as ``; did you mean 'resnet18'?`` for a misspelt ``word``, or an empty string.

    >>> nearest("resnet81", ["resnet18", "convnext_pico"])
    "; did you mean 'resnet18'?"
    >>> nearest("CNN", ["cnn", "transformer"])
    "; did you mean 'cnn'?"
    >>> nearest("g6e", ["g6.xlarge", "g6e.xlarge"])
    "; did you mean 'g6e.xlarge'?"
    """
    folded, given = {str(name).casefold(): str(name) for name in names}, word.casefold()
    begun = [name for name in folded if given and name.startswith(given)][:count]
    close = [folded[name] for name in begun or difflib.get_close_matches(given, folded, count, 0.5)]
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def and_more(count: int) -> str:
    """The words `` and 3 more``; nothing where there are none.

    >>> f"Mass{and_more(2)}", f"Mass{and_more(0)}"
    ('Mass and 2 more', 'Mass')
    """
    return f" and {count:,} more" if count else ""


def shortened(value: object) -> str:
    """A value as a message shows it: printable, and the beginning alone when it is long.

    >>> shortened("x" * 101)[-22:]
    'xx... (101 characters)'
    """
    text = printable(value)
    return text if len(text) <= 100 else f"{text[:60]}... ({len(text)} characters)"


def counted(count: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
