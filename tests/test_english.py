"""The check of English in `make lint`: it finds what it is for and lets correct sentences pass."""

import pytest

from english import DOCSTRINGS, PROSE, found


@pytest.mark.parametrize(
    ("text", "patterns", "words"),
    [
        ('    """Return what no tarball of ours has.', DOCSTRINGS, "what no"),
        ('"""Returns why it failed', DOCSTRINGS, "why"),
        ("Look at the bars: they overlap.", PROSE, "Look at"),
        ("Choices were made with test scores in sight.", PROSE, "in sight"),
        ("1e9 is no speed", PROSE, "is no speed"),
        ("A cell prints as \\emph{not run}.", PROSE, "not run"),
        ("one network on drawn images", PROSE, "drawn images"),
        ("tested with stand-ins on a CPU", PROSE, "stand-ins"),
    ],
)
def test_a_pattern_is_found_in_its_line(text: str, patterns: dict[str, str], words: str) -> None:
    ((number, what, instead),) = found(f"First line.\n{text}\n", patterns)
    assert number == 2 and (words in what or what in text) and instead


@pytest.mark.parametrize(
    "text",
    [
        '"""The reason an archive member is refused, or None."""\n"""Return the mean of what was scored."""',
        "Look at them, then commit. The command continues. No speed is given.",
        "Images were drawn at random from the archive; the bars are drawn to scale.",
        "This is not a random sample, and no part of it was seen.",
    ],
)
def test_correct_sentences_pass(text: str) -> None:
    assert list(found(text, DOCSTRINGS | PROSE)) == []
