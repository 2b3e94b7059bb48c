"""Patterns of English that a program can find: ``python tests/english.py`` prints each place and ends with 1.

Run by `make lint`, over docstrings of src/ and prose of docs/, ARTIFACT.md, the paper and its captions.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCSTRINGS = {r'"""Returns? (what|how|why|where|which)\b': "a noun phrase, such as: The reason ..., or None"}
PROSE = {
    r"\bLook at\b(?! (them|what))": "say what the figure or table shows",
    r"\b(in sight|at hand)\b": "had been seen; available",
    r"\b(it|that|and|command) goes on\b": "resumes, continues",
    r"\bmay turn\b": "could become",
    r"\bless that\b": "minus, or the difference a − b",
    r"\bis no (speed|part|random|sample)\b": "is not a valid speed, is not a random sample",
    r"\bprints? as (\\emph\{)?.?not run": 'is marked "not run"',
    r"\bhold the truth\b": "contain the true value",
    r"\b[Dd]rawn (radiographs|images|cells)\b": "synthetic",
    r"\bstand-ins?\b": "fake, stub",
    r"\b[Tt]rainings\b": "training runs",
    r"\btake the same words\b": "the commands are the same",
}
TEXTS = ("docs/*.md", "README.md", "ARTIFACT.md", "paper/sections/*.tex", "src/cxrbench/**/*s.toml")


def found(text: str, patterns: dict[str, str]) -> Iterator[tuple[int, str, str]]:
    """The places of patterns in a text: line, what stands there, and what to write instead."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in patterns.items():
            for match in re.finditer(pattern, line):
                yield number, match[0], instead


def main() -> int:
    """Print each place where a pattern is; 1 if there is any."""
    pages = [path for pattern in TEXTS for path in sorted(ROOT.glob(pattern))]
    sets = [(pages, PROSE), (sorted(ROOT.glob("src/**/*.py")), DOCSTRINGS)]
    places = [
        f"{path.relative_to(ROOT)}:{number}: '{words}': write {instead}"
        for paths, patterns in sets
        for path in paths
        for number, words, instead in found(path.read_text(encoding="utf-8"), patterns)
    ]
    print("\n".join(places), end="\n" * bool(places))
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main())
