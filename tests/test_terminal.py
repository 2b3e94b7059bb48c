"""The command line as a person meets it: help that teaches, colours only where they are wanted."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command

from conftest import ROOT, cxrbench, must_fail, must_work, ran
from cxrbench.cli import app
from cxrbench.cli.words import in_columns

ESCAPE = "\x1b"
WRONG = ("cell", "check", "no-cell")  # ends in one of our own messages


def shown_on_a_terminal(command: list[str], cwd: Path, **changes: str) -> str:
    """What a command prints on a real pseudo-terminal, both streams together."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR")}
    environment = kept | {"PYTHONPATH": f"{cwd}/src", "TERM": "xterm-256color", "COLUMNS": "100"} | changes
    parent, child = pty.openpty()
    termios.tcsetwinsize(child, (24, int(environment["COLUMNS"])))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), child)
    process = subprocess.Popen(command, cwd=cwd, env=environment, close_fds=True, **streams)
    os.close(child)
    shown = b""
    try:
        while part := os.read(parent, 65536):
            shown += part
    except OSError:  # Linux says so when the last writer has gone
        pass
    os.close(parent)
    process.wait(60)
    return shown.decode()


def on_a_terminal(*words: str, **changes: str) -> str:
    """What ``cxrbench`` prints on a terminal."""
    return shown_on_a_terminal([sys.executable, "-m", "cxrbench", *words], ROOT, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("words", [("--help",), ("tran",), WRONG], ids=["help", "usage", "message"])
def test_colours_are_for_terminals_whose_users_want_them(words: tuple[str, ...]) -> None:
    assert ESCAPE in on_a_terminal(*words)
    for changes in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = on_a_terminal(*words, **changes)
        assert shown.strip() and ESCAPE not in shown
    done = cxrbench(*words)
    assert ESCAPE not in done.stdout + done.stderr


def test_a_long_message_is_wrapped_on_a_terminal_and_one_line_elsewhere() -> None:
    words = ("train", "phantom-32px/resnet18/cpu/seed0", "--out", "elsewhere/some.json")
    assert len(message := must_fail(*words).strip()) > 80 and "\n" not in message
    shown = on_a_terminal(*words, COLUMNS="80", NO_COLOR="1").splitlines()
    assert len(shown) > 1 and max(map(len, shown)) <= 80
    assert " ".join(map(str.strip, shown)) == message


def test_an_empty_no_color_is_none() -> None:
    assert ESCAPE in on_a_terminal(*WRONG, NO_COLOR="")


def test_the_version_names_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRBENCH_COMMIT", "0123456789abcdef-dirty")
    shown = must_work("--version").stdout
    assert re.fullmatch(r"cxrbench( [\d.]+)?, commit 0123456789ab with changes\n", shown)


def test_the_help_has_its_groups_in_order_and_examples_that_exist() -> None:
    shown = must_work("--help").stdout
    panels = re.split(r"╭─ (\w+):", shown)[1:]
    groups = {
        name: set(re.findall(r"^│ ([\w-]+) ", rows, flags=re.M))
        for name, rows in zip(panels[::2], panels[1::2], strict=True)
    }
    assert list(groups) == ["Use", "Check", "Maintain"]
    for name in ("record", "report", "sagemaker", "precompile", "bench"):
        assert name in groups["Maintain"], name
    assert {"evaluate", "power", "train"} <= groups["Use"] and {"verify", "claims"} <= groups["Check"]
    examples = re.findall(r"^ +cxrbench (.+?)\s*$", shown, flags=re.M)
    assert len(examples) == 7
    for example in examples:
        words = re.findall(r"(?<!\S)(?:[a-z]+|--why)(?!\S)", example)
        done = must_work(*[word for word in words if not word.startswith("-")], "--help")
        assert all(word in done.stdout for word in words if word.startswith("-")), example


CELL = "data/recorded/nih128-64px/resnet18/cpu/seed0"
JOB = "--spend 20000 --porting 20000 --horizon 12 --capacity 1"
SPREAD = "--patient-se 0.0038 --measured-on 510 --seed-sd 0.009 --patients 2000"
ON_80_COLUMNS = {  # every documented command that answers at once: its words
    "audit": "convnext_tiny --pixels 64",  # captures a graph
    "cell check": "nih128-64px/resnet18/cuda/seed0",
    "claims": "--why",
    "compare": "nih128-32px-fp32/resnet18/cpu nih128-32px-bf16/resnet18/cpu",
    "compile": "--outcomes",
    "cost decide": f"--architecture cnn {JOB}",
    "cost mine": "convnext_tiny --images 60000 --epochs 10 --gpu-speed 600",
    "cost table": CELL,
    "evaluate": f"{CELL} --replicates 20",
    "plan": "",
    "power": f"{SPREAD} --difference 0.002",
    "verify": "",
}
AT_LENGTH = {  # documented commands that train, measure, download or change files
    *("bench gains", "bench metrics", "bench record", "bench steps", "bench train", "cell compare"),
    *("contribute", "cost refresh", "data download", "data get", "data pack", "data sheet"),
    *("precompile", "predict", "record", "report"),
    *("sagemaker bundle", "sagemaker job", "train"),
}


def documented() -> set[str]:
    """The commands that the README, ARTIFACT.md and the pages of docs/ name."""
    pages = [ROOT / "README.md", ROOT / "ARTIFACT.md", *(ROOT / "docs").glob("*.md")]
    text, names = "\n".join(page.read_text(encoding="utf-8") for page in pages), set()
    whole = get_command(app)
    whole.get_command(None, "")  # of an unknown one all are loaded
    for line in re.findall(r"cxrbench((?: [a-z][a-z-]*)+)", text):
        command, words = whole, []
        for word in line.split():
            if (inside := getattr(command, "commands", {}).get(word)) is None:
                break
            command, words = inside, [*words, word]
        if words and not hasattr(command, "commands"):
            names.add(" ".join(words))
    return names


def leaves(command: Any, name: str = "") -> list[str]:
    """The names of the commands below ``command`` that have none below them."""
    inside = getattr(command, "commands", None)
    return (
        [name]
        if inside is None
        else [leaf for key in inside for leaf in leaves(inside[key], f"{name} {key}")]
    )


def test_a_person_types_every_command() -> None:
    """What rules or maintainers alone call is a script of workflow/scripts or a module of benchmarks."""
    whole = get_command(app)
    whole.get_command(None, "")  # of an unknown one all are loaded
    assert len(found := leaves(whole)) <= 32, found


def test_each_documented_command_is_looked_at_on_80_columns_or_takes_long() -> None:
    assert documented() == {*ON_80_COLUMNS, *AT_LENGTH}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name in ("audit", "verify")))
        for name in ("--help", *ON_80_COLUMNS)
    ],
)
def test_a_documented_command_fits_80_columns(name: str) -> None:
    words = [*name.split(), *ON_80_COLUMNS.get(name, "").split()]
    shown = on_a_terminal(*words, COLUMNS="80", NO_COLOR="1")
    assert shown.strip() and "Traceback" not in shown
    assert [line for line in shown.splitlines() if len(line) > 80] == []


WORD = st.text("abcdefgh_/0123456789", min_size=1, max_size=14)
VALUE = st.one_of(
    st.floats(-1e9, 1e9),
    st.sampled_from([float("nan"), float("inf"), None]),
    st.integers(0, 10**9),
    st.lists(WORD, min_size=1, max_size=9).map(" ".join),
)


@pytest.mark.slow
@given(
    st.lists(st.lists(VALUE, min_size=6, max_size=6), max_size=5),
    st.lists(WORD, min_size=6, max_size=6, unique=True),
)
def test_a_table_fits_100_columns_and_loses_no_word(rows: list[list[object]], names: list[str]) -> None:
    table = pd.DataFrame(rows, columns=names, dtype=object)
    printed = in_columns(table)
    assert all(len(line) <= 100 for line in printed.splitlines()), printed
    assert not re.search(r"\b(nan|None|inf)\b|<NA>", printed)
    texts = [text for row in rows for text in row if isinstance(text, str)]
    assert all(word in printed for text in texts for word in text.split())


def test_a_result_that_is_the_same_in_all_rows_stays_in_them_while_there_is_room() -> None:
    rows = pd.DataFrame({"platform": ["cpu", "cuda"], "basis": "spot", "power": 0.5})
    printed = in_columns(rows)
    assert printed.count("0.5") == 2 and printed.endswith("In all rows: basis spot.")
    wide = rows.assign(**{f"a_result_of_{n}_letters": float(n) for n in range(9)})
    assert "power 0.5" in in_columns(wide).split("In all rows: ")[1]


PROGRESS = """
from cxrbench.cli.progress import Display
with Display("nih128-64px/convnext_pico/cpu/seed0") as display:
    display.show("train", at_once=True)
    for step in (10, 40, 70):
        display.show_progress(epoch=1, epochs=5, step=step, steps=700, loss=0.1234, images_per_second=154.4)
"""


@pytest.mark.parametrize(
    ("width", "shown", "cut"),
    [
        (60, "step 70/700", "nih"),
        (80, "loss 0.1234  nih128", "seed0"),
        (120, "convnext_pico/cpu/seed0", None),
    ],
)
def test_progress_is_one_line_whose_end_a_narrow_terminal_cuts(
    width: int, shown: str, cut: str | None
) -> None:
    screen = shown_on_a_terminal([sys.executable, "-c", PROGRESS], ROOT, COLUMNS=str(width))
    states = re.sub(rf"{ESCAPE}\[[0-9;?]*[A-Za-z]", "", screen).replace("\n", "\r").split("\r")
    states = [line.rstrip() for line in states if line.strip()]
    last = states[-1]
    assert re.match(r"(. )?epoch 1/5, \d:\d\d:\d\d left, 154 images/s, step 70/700", last), screen
    assert shown in last and (cut is None or cut not in last), last
    assert all(len(line) <= width for line in states), states


def test_a_terminal_that_cannot_rewrite_a_line_gets_lines() -> None:
    shown = shown_on_a_terminal([sys.executable, "-c", PROGRESS], ROOT, TERM="dumb")
    assert shown == "nih128-64px/convnext_pico/cpu/seed0: train\r\n"


def test_progress_in_a_log_is_lines() -> None:
    code = "import cxrbench.cli.progress\ncxrbench.cli.progress._LINE_SECONDS = 0" + PROGRESS
    done = ran(sys.executable, "-c", code)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    phase, first, _, last = done.stderr.splitlines()
    cell = "nih128-64px/convnext_pico/cpu/seed0"
    assert phase == f"{cell}: train"
    assert first == f"{cell}: epoch 1/5, 154 images/s, step 10/700, loss 0.1234"
    left = r"\d:\d\d:\d\d left"
    assert re.fullmatch(rf"{cell}: epoch 1/5, {left}, 154 images/s, step 70/700, loss 0.1234", last)


def test_no_time_is_estimated_from_the_first_slow_steps() -> None:
    code = """
import cxrbench.cli.progress as display
display._LINE_SECONDS = 0
with display.Display("a cell") as shown:
    for step, speed in ((1, None), (3, None), (10, 90.0), (20, 90.0)):
        shown.show_progress(epoch=1, epochs=2, step=step, steps=50, loss=0.5, images_per_second=speed)
"""
    done = ran(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert [" left" in line for line in done.stderr.splitlines()] == [False, False, False, True]


@pytest.mark.parametrize(("phases", "known"), [(["evaluate", "train"], True), (["setup", "train"], False)])
def test_the_speed_of_a_start_is_kept_over_its_epochs(phases: list[str], known: bool) -> None:
    code = f"""
import cxrbench.cli.progress as display
display._LINE_SECONDS = 0
step = dict(event="progress", epoch=1, epochs=2, steps=50, loss=0.5, images_per_second=90.0)
shown = display.Display("a cell")
shown.take(step | dict(step=10))
for name in {phases}:
    shown.take(dict(event="phase", phase=name))
shown.take(step | dict(step=20))
"""
    done = ran(sys.executable, "-c", code)
    assert done.returncode == 0, done.stderr
    assert (" left" in done.stderr.splitlines()[-1]) == known


def must_say(message: str, *parts: str) -> None:
    """Fail unless the message has one line of ours, with these parts."""
    (line,) = [line for line in message.splitlines() if line.startswith("cxrbench:")]
    assert all(part in line for part in parts), line


@pytest.mark.slow
def test_a_place_of_the_wrong_kind_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    scores = next((ROOT / "data/recorded").glob("*/*/*/seed*/predictions.parquet"))
    message = must_fail("evaluate", scores, "--replicates", 50, "--out", tmp_path)
    must_say(message, str(tmp_path), "this is a folder; name a file")
    message = must_fail("claims", "--out", tmp_path / "file/claims.csv")
    must_say(message, str(tmp_path / "file"), "a file")
    message = must_fail("train", "phantom-32px/resnet18/cpu/seed0", "--out", tmp_path)
    must_say(message, f"write --out {tmp_path}/record.json")
    message = must_fail("report", "--only", "summary", "--results", tmp_path / "nowhere")
    must_say(
        message, "nowhere/scores.json", "no cell was scored here yet; run `make paper-from-evidence` first"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_command_that_needs_the_clone_says_so_outside_of_it(tmp_path: Path) -> None:
    for words in (["cost", "mine", "resnet50", "--images", "9", "--epochs", "1"], ["claims"], ["plan"]):
        message = must_fail(*words, cwd=tmp_path)
        must_say(message, "there is no such file", "; run it in a clone of the repository, which has it")


def test_a_message_about_a_file_that_is_there_asks_for_no_clone(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/prices.csv").write_text("instance\n")
    message = must_fail("cost", "table", ROOT / CELL, "--study", ROOT / "config/config.yaml", cwd=tmp_path)
    assert "data/prices.csv" in message and "clone" not in message, message


def test_a_part_that_the_report_does_not_have_is_named_before_anything_is_read(tmp_path: Path) -> None:
    message = must_fail("report", "--only", "tables,figurs", "--results", tmp_path / "nowhere")
    must_say(message, "--only: there is no part 'figurs'; did you mean 'figures'")


def test_a_read_only_folder_is_one_message(small_disk) -> None:
    path = small_disk("size=1m,ro") / "claims.csv"
    must_say(must_fail("claims", "--out", path), str(path), "name another place")


@pytest.mark.slow
def test_a_package_installed_from_a_clone_runs_in_it_while_they_are_alike(tmp_path: Path) -> None:
    """`pip install .` and then the README's comparison were refused in the very clone."""
    clone, installed = tmp_path / "clone/src/cxrbench", tmp_path / "site-packages/cxrbench"
    for place in (clone, installed):
        shutil.copytree(ROOT / "src/cxrbench", place, ignore=shutil.ignore_patterns("__pycache__"))
    start = f"import sys; sys.path.insert(0, '{installed.parent}'); from cxrbench.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = (sys.executable, "-c", start, "power", "--patient-se", "0.0038", "--measured-on", "510")
    done = ran(*words, cwd=tmp_path / "clone", env=environment)
    assert done.returncode == 0, done.stderr
    with (clone / "__init__.py").open("a") as file:
        file.write("# edited since\n")
    done = ran(*words, cwd=tmp_path / "clone", env=environment)
    assert done.returncode == 1 and "not of the checkout" in done.stderr


@pytest.mark.slow
@pytest.mark.fault("cxrbench of one checkout is called in another", "refused in one message that says how")
def test_the_code_of_another_checkout_is_not_run_unasked(tmp_path: Path) -> None:
    """As a shared environment would: the code is found without PYTHONPATH."""
    (tmp_path / "src/cxrbench/cli").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    code = f"import sys; sys.path.insert(0, '{ROOT}/src'); from cxrbench.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def called(folder: Path, **changes: str) -> subprocess.CompletedProcess[str]:
        words = ("power", "--patient-se", "0.0038", "--measured-on", "510")
        return ran(sys.executable, "-c", code, *words, cwd=folder, env=environment | changes)

    refused = called(tmp_path / "data")
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    must_say(refused.stderr, str(ROOT), f"set PYTHONPATH={tmp_path / 'src'}")
    assert called(tmp_path, PYTHONPATH=f"{ROOT}/src").returncode == 0
    assert called(ROOT / "docs").returncode == 0
    assert called(tmp_path.parent).returncode == 0, "outside a checkout"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full on this system")
@pytest.mark.parametrize("words", [("--help",), ("claims", "O18", "--json")])
@pytest.mark.fault("the disk that takes a command's output is full", "one message; no traceback")
def test_a_full_disk_for_what_is_printed_is_one_message(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "cxrbench", *words]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "No space left on device where this command writes; free some there" in done.stderr


@pytest.mark.slow
@pytest.mark.fault("a terminal without UTF-8", "question marks for other letters; no traceback")
def test_a_terminal_without_utf_8_is_no_traceback(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    rows = ["image,label_Hühner,score_Hühner", *(f"{i},{i % 2},{(i % 7) / 7}" for i in range(60))]
    (tmp_path / "scores.csv").write_text("\n".join(rows), encoding="utf-8")
    for words in (["--help"], ["evaluate", tmp_path / "scores.csv", "--replicates", "20"]):
        command = [sys.executable, "-m", "cxrbench", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True)
        assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
        assert done.stdout.isascii()
    assert b"H?hner" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cell"], "CELL is missing: make cell CELL=phantom-32px/"),
        (["cell", "CELL=phantom-32px"], "'phantom-32px' is not a cell: write CELL=dataset/architecture/"),
        (["cell", "CELL=$(touch made); `touch made`"], "is not a cell"),
        (["contribute"], "name what to train: make contribute PLATFORM=cuda HOURS=2"),
        (["contribute", "CELL=phantom"], "'phantom' is not a cell"),
        (["papr"], "there is no target 'papr'; these are the targets:\n  make help"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_make_checks_what_is_named_before_it_installs(words: list[str], said: str, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("CELL", "PLATFORM")}
    done = ran("make", *words, f"VENV={tmp_path}/venv", cwd=ROOT, env=environment)
    assert done.returncode == 2 and said in done.stderr and "installing" not in done.stderr
    assert not (tmp_path / "venv").exists() and not (ROOT / "made").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "phantom-32px/resnet81/cpu/seed0"], "no architecture 'resnet81'; did you mean 'resnet18'"),
        (["train", "phantom-32px/resnet18/gpu/seed0"], "unknown platform 'gpu'; did you mean 'cuda'?"),
        (["train", "phantom-32px/resnet18/trn1/seed0"], "unknown platform 'trn1'; did you mean 'neuron'?"),
        (["train", "phantom-32px/resnet18/xla_cpi/seed0"], "did you mean 'xla_cpu'?"),
        (["train", "phantom-32px/resnet18/zzz/seed0"], "unknown platform 'zzz' (known: cpu, cuda"),
        (["data", "get", "nih"], "the datasets made of them are nih128-64px"),
        (["data", "get", "chestmnist"], "unknown dataset 'chestmnist'"),
        (["claims", "o99"], "has no claim 'O99'"),
        (["evaluate", "nih128-32px-fp32/resnet18/cpu"], "10 runs; name one, such as data/recorded/nih128"),
        (["evaluate", "nih128-32px-fp32/resnet18/cpu/seed77"], "beside it are 10 runs, such as data/rec"),
        (
            ["evaluate", "results/runs/d/resnet18/cpu/seed9"],
            "not trained yet; run `cxrbench train d/resnet18/",
        ),
        (
            ["evaluate", "results/runs/d/r/cpu/seed9/predictions.parquet"],
            "run `cxrbench train d/r/cpu/seed9`",
        ),
        (["evaluate", "results/elsewhere/seed9"], "there is no such file"),
        (["cost", "decide"], "--spend is missing: USD per month"),
        (["cost", "decide", *JOB.split()], "--architecture is missing: cnn, transformer"),
    ],
    ids=lambda words: " ".join(words[:3]) if isinstance(words, list) else "",
)
def test_a_wrong_or_missing_word_is_named_first(words: list[str], said: str) -> None:
    done = ran(sys.executable, "-m", "cxrbench", *words, cwd=ROOT, stdin=subprocess.DEVNULL)
    assert done.returncode in (1, 3) and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and "pack" not in done.stderr


def test_claims_are_printed_by_their_names() -> None:
    shown = must_work("claims", "O18", "P02").stdout
    assert set(re.findall(r"^(\w\d\d) ", shown, flags=re.M)) == {"O18", "P02"}
    rows = json.loads(must_work("claims", "O18", "--json").stdout)
    assert [row["id"] for row in rows] == ["O18"]


@pytest.mark.parametrize(
    "words", [("claims", "--json"), ("claims", "O18"), ("cost", "table", "data/recorded")]
)
def test_a_reader_that_has_gone_is_told_from_a_claim_that_does_not_follow(words: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)  # as `head` does
    try:
        done = subprocess.run(
            [sys.executable, "-m", "cxrbench", *words], stdout=write, stderr=subprocess.PIPE, cwd=ROOT
        )
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_a_closed_output_is_no_traceback() -> None:
    done = ran("bash", "-c", f"{sys.executable} -m cxrbench data --help >&-", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
