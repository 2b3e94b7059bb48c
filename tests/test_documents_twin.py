"""README, ARTIFACT, the practitioner's page, abstract, Table 1 and a build's last lines against the twin.

``SAID`` says where which quantity stands: sentences as printed, with names of the twin (documents_twin.py) in
place of numbers. ``FIXED`` has the numbers that are not computed, each with its reason. A sentence that its
document lacks, a wrong number in it, and a number that is in neither table are complaints.
"""

import ast
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

import documents_twin
from conftest import ROOT, must_work, once
from documents_twin import Near, numbers

pytestmark = pytest.mark.slow
WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven"),
    *("twelve", "thirteen", "fourteen"),
)
# Not of names, such as bf16, g5.xlarge or nih128-64px, in which digits follow a letter or a hyphen.
PRINTED = rf"[+-]?\d[\d,]*(?:\.\d+)?|{'|'.join(WORDS)}|{'|'.join(map(str.capitalize, WORDS))}"
NUMBER = re.compile(
    rf"(?<![\w.-])(?:[+-]?\d[\d,.]*|\b(?:{'|'.join(WORDS[2:])}|half|third|quarter|twice)\b)", re.I
)

FAR = "below {margin} mean AUROC, far end of the wider network's {level} % interval |"
REACHED = "The {level} % interval of either network's difference reaches the margin."
BEST = "{best} ({best/low} to {best/high})"
SPOT = "{spot/low} to {spot/high}"
RATIO = "{preprint/low} to {preprint/high} times"
SAID = {
    "README.md": [
        "{run} of {planned} planned training runs are done, all on CPUs, {drawn} of them with synthetic "
        "images.",
        "Of mean AUROC's variance at {smallest/pixels} pixels, {share/patients} % is the choice of "
        "{largest/patients} test patients, "
        "{share/seed} % the seed, {share/luck} % their interaction.",
        "Neuron's former default arithmetic and an A10G's give mean AUROC equivalent within {margin} for "
        "{arithmetic/networks} ({arithmetic/seeds} seeds).",
        "With {largest/train} training images of {largest/pixels} pixels, {largest/network} (pretrained "
        "weights) reached a mean AUROC of "
        f"{BEST} on {{largest/patients}} test patients ({{largest/seeds}} seeds).",
        f"If the preprint's {RATIO} holds on demand, spot prices make it {SPOT} times "
        "(trn1, smallest g5 sizes, {spot/regions} regions).",
        "| {rebuild/seconds} s on {rebuild/where} |",
        "the same, after {small} short training runs on synthetic images |",
        "{small/minutes} min more on {small/cores} cores ({small/processor}) |",
    ],
    "ARTIFACT.md": [  # the main claims
        "ResNet-18 and ConvNeXt-Pico each have equivalent mean AUROC at {smallest/pixels} pixels "
        "(uncorrected), with {pico/seeds} seeds on CPUs",
        f"{FAR} {{backends/far}}: follows | {{rebuild/seconds}} s | - | {REACHED}",
        "With training data fixed, {share/patients} % of the variance of one run's mean AUROC at "
        "{smallest/pixels} pixels is the choice of the test patients.",
        "of the variance, {settings/ten} settings with {precision/seeds} seeds | {fraction/patients}: "
        "follows | {rebuild/seconds} s |",
        "At {smallest/pixels} pixels ResNet-18 and ConvNeXt-Pico each have equivalent mean AUROC in fp32 and "
        "in bf16, with {precision/seeds} seeds.",
        f"{FAR} {{precision/far}}: follows | {{rebuild/seconds}} s | E10 | {REACHED}",
        "ResNet-18, equivalent mean AUROC at {smallest/pixels} pixels, with {arithmetic/seeds} seeds.",
        f"{FAR} {{arithmetic/bound}}: follows | {{rebuild/seconds}} s | E9 | {REACHED}",
    ],
    "docs/practitioner.md": [
        "ConvNeXt-T reaches {published/trn2.3xlarge} images/s on a trn2.3xlarge and {published/a10g} on an",
        "take {example/minutes} minutes and {example/usd} USD on a g5.xlarge at an assumed",
        "costs as much as {example/runs} such runs.",
        f"does not explain the preprint's cost, {RATIO} a GPU's.",
        "if you spend more than {pays from} USD a month.",
    ],
    "abstract": [
        "We used neither Trainium nor CUDA and recorded {run} training runs of small networks on small "
        "images, a few synthetic, all on CPUs.",
        "the choice of {largest/patients} test patients explains {share/patients} % of the variance of one "
        "run's mean AUROC, the seed {share/seed} %, on the smallest images.",
        "give mean AUROC equivalent within {margin}. Over {arithmetic/seeds} seeds, the {level} % "
        "interval of their difference is {arithmetic/convnext_pico/low} to "
        "{arithmetic/convnext_pico/high} for ConvNeXt-Pico and {arithmetic/resnet18/low} to "
        "{arithmetic/resnet18/high} for ResNet-18.",
        "If only patients are shared, an estimated {power/needed} seeds of ConvNeXt-Pico per platform",
    ],
    "Table 1": [
        "{neuron/run} of {neuron/planned} training runs on Trainium, {cuda/run} of {cuda/planned} on CUDA | "
        "Open. | In mean AUROC at {smallest/pixels} pixels, if equal, an estimated {power/needed} seeds of "
        "Pico on each",
        "show a difference of {difference} in F1? | {pairs/recipes} settings of several seeds each | No, "
        "on our test patients: in {pairs/recipes/above} of them the median pair of seeds on one processor "
        "differs by more (). | "
        "In macro F1 with tuned thresholds, at best {power/seeds} seeds and {to see/patients/low} to "
        "{to see/patients/high} test patients, at worst {to see/runs/low} to {to see/runs/high} seeds on "
        "ours",
        "{precision/pairs} comparisons with fp32, on CPUs | Equivalent in {precision/equivalent} of "
        "{precision/pairs}, after correction in {precision/corrected} ().",
        "Emulation on CPUs, {arithmetic/seeds} seeds, of neuronx-cc",
        "| Mean AUROC at {smallest/pixels} pixels is equivalent within {margin} for "
        "{arithmetic/networks} ().",
        "{backends} networks with and without XLA, mostly on different CPUs | Mean AUROC is equivalent in "
        "{backends/equivalent} of {backends}, after correction",
        "Counts of the graphs of {audited} networks |",
        f"The stated {RATIO}, if on demand, becomes {SPOT} at undated spot prices.",
    ],
    "summary": [
        "Training runs: {run} of {planned} have evidence ({run} recorded).",
        "Mean test AUROC {best} ({best/low} to {best/high}): {best/name}.",
    ],
}
SIZES = "size of the installed packages, measured once"
RELEASE = "the last release of Neuron's compiler with the emulated default (docs/arithmetic.md)"
FIXED = {  # place -> reason -> texts
    "README.md": {
        "the preprint's abstract": ["three to five times the cost"],
        "definitions": [
            "one half is chance)",
            "ten or more positive test patients",
            "a 95 % confidence interval",
            "between two",
            "two sets",
        ],
        SIZES: ["1 GB", "7.6 GB"],
        "the oldest Python that set-up starts with, and the locked": [
            "Python 3.9 or newer",
            "locked 3.11",
        ],
        RELEASE: ["up to 2.21"],
        "a command to type": ["HOURS=1"],
    },
    "ARTIFACT.md": {
        "O21's fraction as stated, and how far another may be": ["0.9 ± 0.005"],
        RELEASE: ["up to 2.21"],
    },
    "docs/practitioner.md": {
        "jobs, instances and the bound from rooflines: tests/paper/test_templates.py computes them again": [
            *(
                "small: an hour",
                "half a dollar more.",
                "takes a third of the g6e's time",
                "takes about 60 % of the g6e's time",
                "the p5.4xlarge a third",
                "With all eight GPUs busy",
                "costs about a quarter as much",
                "but 1.8 to 11 times its price",
                "very large: two weeks",
                "uses one. Spot prices",
                "Below 1, even a slower",
                "RTX 3090",
            ),
            *(
                "93 to 100 % of networks",
                "a factor of two of the middle for 99 % or more",
                "0.59 to 1.02 times",
            ),
            "on demand, for 4 networks",
        ],
        "releases and announcements of Neuron's SDK": [
            *("SDK 2.30 on (released 2026-05-21)", "(SDK 2.33, 2026-10-19;"),
            "pull request 116, not merged, no date, SDK 2.29",
        ],
        "a point of the page": ["(point 6)"],
        "the preprint": ["(Fisher, medRxiv 2025.12.23.25342933, abstract, 2025-12-23)"],
        "the example's job, which its results are computed from": [
            *(
                "60,000 images in 10 epochs, and 6,000 scored",
                "600 images/s. A port",
                "(in a third of the time)",
            ),
            *("of 20,000 USD", "claimed 30 % better", "ratio of 0.7692. Then 20,000 USD come"),
        ],
        "facts and steps are numbered": [
            *(
                "Steps 1 and 2 are",
                "only step 4",
                "Steps 1 to 3 need no AWS account.",
            ),
        ],
        "how the commands behave": [
            "above 1: the answer",
            "--ratio 0.6 0.7",
            "your two",
        ],
        "services and terms of others": [
            *(
                "AWS Machine Learning Blog, 2026-05-07",
                "the default is 0.",
                "Article 28 asks",
                "article 9 of the GDPR",
                "GDPRhub, article 9",
                "EDPB, Guidelines 07/2020, section 1.3",
            ),
        ],
    },
    "abstract": {
        "the power that seeds are counted for": ["show equal platforms equivalent in four of five studies"],
    },
    "Table 1": {
        "the networks of the preprint's claim": ["Four networks through"],
        "Holm over the verdicts of a table: tests/statistics/test_parity.py": ["in 1 ()"],
        RELEASE: ["up to 2.21"],
    },
    "summary": {"verdicts, which tests/claims computes again": ["23 follow, 1 not testable here"]},
}


FOUND: dict[str, Any] = {}  # the twin's numbers, see the fixture


def plain(markdown: str) -> str:
    """Markdown as one line without marks, comments, addresses, numbers of items and commands to type."""
    tables = r"<!-- begin (?:jobs|thresholds).*?end (?:jobs|thresholds) -->"
    marks = rf"{tables}|<!--.*?-->|^ *```.*?^ *```|\]\([^)]*\)|[`*\[\]]|^#+ |^\d\. "
    return " ".join(re.sub(marks, "", markdown, flags=re.DOTALL | re.MULTILINE).split())


def expanded(tex: str, macros: str) -> str:
    """LaTeX as one line, with the values of a build's macros; columns are parted as in Markdown."""
    values = dict(re.findall(r"\\csname cxr@(.*?)\\endcsname\{(.*)\}$", macros, flags=re.M))
    for mark, char in (
        (r"\_", "_"),
        (r"\%", "%"),
        (r"\,", " "),
        ("$-$", "-"),
        (r"$\pm$", "±"),
        ("~", " "),
        ("&", "|"),
        ("%\n", ""),
    ):
        tex, values = tex.replace(mark, char), {key: text.replace(mark, char) for key, text in values.items()}
    values = {key: re.sub(r"\\code\{(.*?)\}", r"\1", text) for key, text in values.items()}
    tex = re.sub(r"\\val\{([^{}]*)\}", lambda of: values.get(of[1], "not run"), tex)
    tex = re.sub(r"\\(?:code|emph)\{([^{}]*)\}", r"\1", tex)
    tex = re.sub(r"\\autoref\{[^{}]*\}", "", tex)

    def chosen(of: re.Match[str]) -> str:
        count = int(re.match(r"\d*", values.get(of[2], ""))[0] or 0)
        return of[3] if count > (of[1] == "many") else of[4]

    while tex != (tex := re.sub(r"\\if(any|many)\{([^{}]*)\}\{([^{}]*)\}\{([^{}]*)\}", chosen, tex)):
        pass
    return " ".join(re.sub(r"\\[a-z]+(?:\[[^]]*\])?(?:\{[^{}]*\})*", " ", tex).split())


@pytest.fixture(scope="session", autouse=True)
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The twin's numbers, computed once for all workers."""
    folder = once(tmp_path_factory, "twin", lambda to: (to / "found").write_bytes(pickle.dumps(numbers())))
    FOUND.update(pickle.loads((folder / "found").read_bytes()))
    return FOUND


def value_of(name: str) -> Any:
    return FOUND[name]


def wrong(name: str, printed: str) -> bool:
    """Whether a printed number is not the quantity, rounded as it is printed."""
    value, slack = value if isinstance(value := value_of(name), Near) else (value, 0)
    if printed.lower() in WORDS:
        return WORDS.index(printed.lower()) != value
    decimals = len(printed.partition(".")[2])
    return abs(float(printed.replace(",", "")) - value) > slack + 0.5000001 * 10**-decimals


def complaints(place: str, text: str) -> list[str]:
    """What is wrong with a document's text, in sentences."""
    wrongs = []
    for sentence in SAID[place]:
        match, names = read(sentence, text)
        if not match:
            wrongs.append(f"{place}: does not say '{sentence}'")
            continue
        for name, printed in zip(names, match.groups(), strict=True):
            if wrong(name, printed):
                wrongs.append(f"{place}: {name} is printed as {printed} and is {value_of(name)}")
        text = text[: match.start()] + " # " + text[match.end() :]
    for constant in (text for texts in FIXED[place].values() for text in texts):
        if constant not in text:
            wrongs.append(f"{place}: does not say '{constant}'")
        text = text.replace(constant, " # ")
    for new in NUMBER.finditer(text):
        around = text[max(new.start() - 60, 0) : new.end() + 30]
        wrongs.append(f"{place}: {new[0]} is in neither SAID nor FIXED: '...{around}...'")
    return wrongs


def read(sentence: str, text: str) -> tuple[re.Match[str] | None, list[str]]:
    """Where a document says a sentence, and the names of the numbers that it reads there."""
    pattern, names = "", []
    for k, part in enumerate(re.split(r"\{(.*?)\}", sentence)):
        if k % 2 and not isinstance(value_of(part), str):
            pattern += f"({PRINTED})"
            names.append(part)
        else:
            pattern += re.escape(value_of(part) if k % 2 else part)
    return re.search(pattern, text), names


def committed() -> dict[str, str]:
    """Texts by place; of ARTIFACT.md the main claims."""
    texts = {name: (ROOT / name).read_text() for name in ("README.md", "ARTIFACT.md", "docs/practitioner.md")}
    texts["ARTIFACT.md"] = texts["ARTIFACT.md"].split("<!-- begin main -->")[1].split("<!-- end main -->")[0]
    return {place: plain(text) for place, text in texts.items()}


@pytest.fixture(scope="module")
def built(from_all_evidence: Path) -> dict[str, str]:
    """The same of what a build from all evidence makes."""
    macros = (from_all_evidence / "paper/generated/macros.tex").read_text()
    abstract, first = (
        (from_all_evidence / f"paper/sections/{name}.tex").read_text()
        for name in ("abstract", "introduction")
    )
    words = ("--results", "results", "--study", "config/config.yaml", "--paper", "paper/paper.pdf")
    return {
        "abstract": expanded(abstract, macros),
        "Table 1": expanded(first.split(r"\midrule")[1].split(r"\bottomrule")[0], macros),
        "summary": plain(must_work("report", "--only", "summary", *words, cwd=from_all_evidence).stdout),
    }


def misprinted(name: str, printed: str) -> str:
    """A printed number that is the least wrong."""
    if printed.lower() in WORDS:
        return WORDS[WORDS.index(printed.lower()) + 1]
    decimals, value = len(printed.partition(".")[2]), value_of(name)
    slack = value.slack if isinstance(value, Near) else 0
    number = float(printed.replace(",", "")) + 10**-decimals
    while not wrong(name, f"{number:.{decimals}f}"):
        number += max(slack / 10, 10**-decimals)
    assert number < float(printed.replace(",", "")) + 2.2 * slack + 1.1 * 10**-decimals, name
    return f"{number:,.{decimals}f}"


def check_plants(place: str, text: str) -> None:
    """Every number of a text made wrong by itself is found; so are new ones, and a sentence that is gone."""
    clean = complaints(place, text)
    for sentence in SAID[place]:
        match, names = read(sentence, text)
        for k, name in enumerate(names, 1):
            start, end = match.span(k)
            changed = text[:start] + misprinted(name, match[k]) + text[end:]
            assert f"{place}: {name} is printed as" in "".join(complaints(place, changed)), (name, match[k])
        gone = text[: match.start()] + text[match.end() :]
        assert f"{place}: does not say '{sentence}'" in complaints(place, gone)
    for new in ("It took 17 days.", "Eleven failed.", "This is 0.9 better."):
        for changed in (f"{new} {text}", f"{text} {new}"):
            (more,) = set(complaints(place, changed)) - set(clean)
            assert "in neither SAID nor FIXED" in more and new in more


@pytest.mark.parametrize("place", committed())
def test_committed_documents_say_what_the_twin_computes(place: str) -> None:
    assert complaints(place, committed()[place]) == []


@pytest.mark.parametrize("place", ["abstract", "Table 1", "summary"])
def test_a_build_says_what_the_twin_computes(place: str, built: dict[str, str]) -> None:
    assert complaints(place, built[place]) == []


@pytest.mark.fault("a number of a document is changed, or one is added", "the twin of the documents names it")
@pytest.mark.parametrize("place", committed())
def test_planted_numbers_are_found(place: str) -> None:
    check_plants(place, committed()[place])


@pytest.mark.parametrize("place", ["abstract", "Table 1", "summary"])
def test_numbers_planted_into_a_build_are_found(place: str, built: dict[str, str]) -> None:
    check_plants(place, built[place])


def test_ends_of_an_interval_may_miss_by_a_tenth_of_its_half(found: dict[str, Any]) -> None:
    (end, slack), name = found["best/low"], "best/low"
    assert not any(wrong(name, f"{end + sign * 0.99 * slack:.6f}") for sign in (-1, 1))
    assert all(wrong(name, f"{end + sign * 1.01 * slack:.6f}") for sign in (-1, 1))


def test_sentences_have_no_numbers_of_their_own() -> None:
    """A number is a name of the twin's, or stands in FIXED with a reason."""
    sentences = [re.sub(r"\{.*?\}", "#", text) for place in SAID for text in SAID[place]]
    assert [text for text in sentences if NUMBER.search(text)] == []


def test_the_twin_uses_nothing_of_ours() -> None:
    tree = ast.walk(ast.parse(Path(documents_twin.__file__).read_text()))
    imported = [node for node in tree if isinstance(node, ast.Import | ast.ImportFrom)]
    assert "cxrbench" not in "".join(map(ast.unparse, imported)) and len(imported) > 9
