"""The study of compilation: its order, what is kept, and what the paper counts of it."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import neuronx_cc
from conftest import ROOT, must_work, ran
from cxrbench.common.files import sha256_file
from cxrbench.evidence.compiled import (
    PARTS,
    CompileRecord,
    Neff,
    TracedGraph,
    keep_compiled,
    read_compiled,
)
from cxrbench.evidence.expected import NOT_RUN
from cxrbench.evidence.record import Failure
from cxrbench.neuron import capture
from cxrbench.neuron.campaign import dump_steps
from cxrbench.neuron.capture import NotCaptured
from cxrbench.neuron.control_graphs import ALWAYS
from cxrbench.neuron.outcomes import GRAPH_KEY, STATES, columns, outcomes, states
from cxrbench.neuron.rules import Setting
from cxrbench.study.config import Compilation, CompileOptions, read_study
from cxrbench.training.plan import must_be_architectures
from paper.conftest import made_up

from . import dying_trace
from .conftest import NETWORKS

VERSION = neuronx_cc.VERSION.partition("+")[0]
STUDY = read_study(ROOT / "config/config.yaml")
PLANNED = STUDY.compilation
SMALL = Compilation.model_validate(
    {
        "compiler": VERSION,
        "blocks": [
            {"networks": ["test_convnext"], "pixels": [64], "batch": [2], "precision": ["fp32"]},
            {"networks": [*NETWORKS], "pixels": [64], "batch": [2], "precision": ["fp32"]},
            {"networks": ["test_vit"], "pixels": [56], "batch": [2, 1], "precision": ["fp32"]},
        ],
    }
)


def study_file(folder: Path, **changed: object) -> Path:
    """Write the study with a small compilation."""
    study = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    study["compilation"] = SMALL.model_dump() | changed
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    return folder / "study.yaml"


def order(stderr: str) -> list[str]:
    """The graphs in the order in which they were compiled."""
    return re.findall(r"^(?!control_)(\S+-\S+px-\S+): ", stderr, flags=re.M)


def test_the_study_asks_the_preprints_claim_first_and_names_what_can_be_built():
    steps = PLANNED.steps()
    assert len(steps) == len(set(steps)) == 23 * 2 * 4 * 2
    assert [step[0] for step in steps[:2]] == ["convnext_pico", "convnext_tiny"]
    images, recipe = STUDY.dataset("nih002-224px"), STUDY.recipe("nih002-224px")
    cells = [cell for cell in STUDY.all_cells() if cell.dataset == "nih002-224px"]
    trained = [(cell.architecture, images.pixels, recipe.batch, recipe.precision) for cell in cells]
    assert steps[:4] == list(dict.fromkeys(trained)) and len(cells) == 24
    assert {step[0] for step in steps[4:18]} == {"convnext_pico", "convnext_tiny"}
    assert [step[1] for step in steps] == sorted((step[1] for step in steps), reverse=True)
    assert all(step[2] == 1 for step in steps[4:8] + steps[18:60])
    names = {step[0] for step in steps}
    must_be_architectures(names)
    sizes = {
        name.removesuffix("_linear_mlp").removesuffix("_conv_mlp") for name in names if "convnext" in name
    }
    assert Counter(name.startswith("convnext") for name in names)[True] == 2 * len(sizes) == 14


def states_of(read) -> Counter[str]:
    """How many planned training steps are in which state."""
    return Counter(states(outcomes(read.study.compilation, read_compiled(read.recorded)))["state"])


def done_of(read) -> int:
    """How many planned graphs a compiler has been given."""
    return int((outcomes(read.study.compilation, read_compiled(read.recorded))["status"] != NOT_RUN).sum())


@pytest.mark.fault(
    "a network of the study cannot be traced; another compiler than the study's",
    "a message and the rest goes on; outcomes under their own version, in no table",
)
def test_the_study_is_compiled_in_its_order_and_goes_on(compile_here, tmp_path):
    config = study_file(tmp_path)
    words = ("--planned", "--study", config, "--record")
    first = compile_here(*words, "--part", "step", sizes=())
    assert first.returncode == 0 and "test_vit: cannot be trained at 56 px" in first.stderr
    steps = [f"{network}-64px-batch2-fp32" for network in ("test_convnext", "test_resnet")]
    assert order(first.stderr) == [f"{step}-step" for step in steps]
    again = compile_here(*NETWORKS, *words, sizes=())
    assert order(again.stderr) == [f"{step}-{part}" for step in steps for part in ("backward", "forward")]
    none = compile_here(*NETWORKS, *words, "--pixels", 128, sizes=())
    assert none.returncode == 1 and "no such training step" in none.stderr
    assert not re.search("not the study's|Traceback", first.stderr + again.stderr + none.stderr)

    records = read_compiled(tmp_path / "data/recorded")
    assert Counter(record.failed for record in records) == {False: 4 + len(ALWAYS), True: 2}
    read = made_up(study=read_study(config), recorded=tmp_path / "data/recorded")
    assert done_of(read) == 6
    assert states_of(read) == {"compiles": 1, "backward fails": 1, NOT_RUN: 2}

    study_file(tmp_path, compiler="1.2.3")
    other = compile_here(*NETWORKS, "--planned", "--study", config)
    assert other.returncode == 0
    assert f"neuronx-cc {neuronx_cc.VERSION} is not the study's 1.2.3" in other.stderr
    read = made_up(study=read_study(config), recorded=tmp_path / "data/recorded")
    assert states_of(read) == {NOT_RUN: 4}


def words_of(line: str) -> list[str]:
    """A command of the documentation as the shell divides it."""
    return ran("sh", "-c", f"printf '%s\n' {line}", cwd=ROOT).stdout.split()


def test_the_documented_commands_run(compile_here, tmp_path):
    section = (ROOT / "docs/neuron.md").read_text().split("## Which networks compile")[1].split("\n## ")[0]
    lines = re.search(r"```sh\n(.*?)```", section, flags=re.S)[1].splitlines()
    activate, make, own, rest, path, *commands = lines
    assert activate == ". .venv/bin/activate" and make == "python -m venv .venv-neuronx-cc"
    pip, pinned = ".venv-neuronx-cc/bin/pip", [f"neuronx-cc=={PLANNED.compiler}", "nki==0.5.0"]
    pins = (ROOT / "requirements/neuron.txt").read_text().splitlines()
    index = next(line for line in pins if line.startswith("--index")).split()
    assert words_of(own) == [pip, "install", "--no-deps", *index, *pinned]
    assert words_of(rest) == [pip, "install", *pinned, "islpy<2026.2"]
    assert path == 'export PATH="$PATH:$PWD/.venv-neuronx-cc/bin"'
    (tmp_path / "config").mkdir()
    study_file(tmp_path).rename(tmp_path / "config/config.yaml")
    for command in commands:
        program, name, *options = command.split()
        assert (program, name) == ("cxrbench", "compile")
        done = compile_here(*options)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    assert len(read_compiled(tmp_path / "data/recorded")) == 6 + len(ALWAYS)
    assert len(PLANNED.steps()) == int(re.search(r"all (\d+) a month", section)[1])
    assert f"stopped after {PLANNED.hours:g} hours (`hours:`)" in " ".join(section.split())
    must_work("verify", cwd=tmp_path)


def test_a_recipes_options_are_recorded_beside_the_defaults_and_out_of_the_table(compile_here, tmp_path):
    path = study_file(tmp_path)
    study = yaml.safe_load(path.read_text())
    study["recipes"]["quick"] = {"epochs": 1, "batch": 2, "compiler": {"optlevel": 1}}
    path.write_text(yaml.safe_dump(study))
    words = ("test_resnet", "--planned", "--part", "forward", "--study", path, "--record")
    unknown = compile_here(*words, "--recipe", "quik", sizes=())
    assert unknown.returncode == 1 and "has no recipe 'quik'; did you mean 'quick'?" in unknown.stderr
    quick = compile_here(*words, "--recipe", "quick", sizes=())
    assert quick.returncode == 0 and "recipe quick has options of its own" in quick.stderr
    read = made_up(study=read_study(path), recorded=tmp_path / "data/recorded")
    assert done_of(read) == 0
    assert "options of its own" not in compile_here(*words, sizes=()).stderr
    cnn = compile_here(*words, "--model-type", "cnn-training", sizes=())
    assert "this call has options of its own" in cnn.stderr
    beside = json.loads(compile_here("--outcomes", "--study", path, "--json", sizes=()).stdout)
    assert beside == []  # a forward that compiles says nothing of a step
    records = read_compiled(read.recorded)
    of_test = [record.flags for record in records if record.graph.name.startswith("test_")]
    flags = [flag for flags in of_test for flag in flags if flag.startswith("--optlevel")]
    assert sorted(flags) == ["--optlevel=1", "--optlevel=2", "--optlevel=2"]
    assert done_of(read) == 1
    must_work("verify", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.fault("a process that traces a network is killed", "a message; the other networks are traced")
def test_a_killed_trace_is_a_message_about_its_own_network(tmp_path, monkeypatch):
    monkeypatch.setattr("cxrbench.neuron.campaign._trace", dying_trace.trace)
    messages: list[str] = []
    steps = [(name, Setting(32, 2)) for name in (dying_trace.DIES, "test_convnext", "test_vit")]
    written = dump_steps(steps, tmp_path, messages.append)
    assert Counter(graph.network for graph in written.values()) == {"test_convnext": 3, "test_vit": 3}
    killed, *traced = messages
    assert killed.startswith(f"{dying_trace.DIES}: the process that traced it was killed")
    assert [" ".join(text.split()[:2]) for text in traced] == ["traced test_convnext", "traced test_vit"]


@pytest.mark.fault("a graph above protobuf's two gigabytes", "a message; no file")
def test_a_graph_too_large_for_its_file_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(capture, "LARGEST_FILE", 1000)  # two gigabytes take hours to trace
    with pytest.raises(NotCaptured, match=r"its forward graph has .* bytes, above protobuf's 1,000"):
        capture.dump_network("test_resnet", Setting(32, 2), tmp_path, {})
    assert not list(tmp_path.iterdir())


# -- records and the plan are joined by their keys -------------------------------------------------

GRAPHS = [(*step, part) for step in SMALL.steps() for part in PARTS]
ENDINGS = (("ok", None), ("compile_failed", None), ("timed_out", "hours"), ("out_of_memory", "memory"))


def record_of(
    graph: tuple, ending: tuple, code: str, number: int = 0, log: Path | None = None, **changed: object
) -> CompileRecord:
    status, stopped = ending
    named = dict(zip(GRAPH_KEY, graph, strict=True))
    traced = TracedGraph(**named, sha256=f"{number:064}", instructions=1, versions={"torch": "2.9"})
    failure = Failure(kind="", fingerprint=code, returncode=70, signal=None, last_lines=[])
    values = {
        "graph": traced,
        "target": "trn1",
        "compiler": neuronx_cc.VERSION,
        "flags": [],
        "status": status,
        "stopped": stopped,
        "failure": None if status == "ok" else failure,
        "seconds": 1.0,
        "limit_hours": 2.0,
        "host": {},
        "started": "2026-01-01T00:00:00+00:00",
        "commit": "",
        "dirty": False,
        "neff": Neff(bytes=1, sha256="") if status == "ok" else None,
        "log_sha256": sha256_file(log) if log else "",
    }
    return CompileRecord.model_validate(values | changed)


def keep(recorded: Path, *of: Any, **changed: object) -> None:
    """Record a compilation of :func:`record_of` with a log."""
    (log := recorded.with_name("log")).write_text("a log")
    keep_compiled([(record_of(*of, log=log, **changed), log)], recorded, replace=False)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(GRAPHS), st.sampled_from(ENDINGS)), st.randoms())
def test_a_planned_graph_finds_its_record_whatever_the_order(endings, shuffled):
    records = [record_of(graph, ending, f"code of {graph}") for graph, ending in endings.items()]
    strangers = [
        record_of(GRAPHS[0], ENDINGS[1], "older", started="2025-01-01T00:00:00+00:00"),
        record_of(GRAPHS[1], ENDINGS[1], "another version", compiler=f"{VERSION}1"),
        record_of(GRAPHS[2], ENDINGS[1], "another target", target="trn2"),
        record_of(("resnet18", 64, 2, "fp32", "step"), ENDINGS[1], "not planned"),
    ]
    strangers = strangers if GRAPHS[0] in endings else strangers[1:]
    shuffled.shuffle(everything := [*records, *strangers])
    table = outcomes(SMALL, everything)
    assert [*table[GRAPH_KEY].itertuples(index=False, name=None)] == GRAPHS
    for row in table.itertuples():
        graph = tuple(getattr(row, name) for name in GRAPH_KEY)
        status, _ = endings.get(graph, (NOT_RUN, None))
        assert row.status == status
        assert row.code == (f"code of {graph}" if status not in ("ok", NOT_RUN) else "")
    steps = states(table)
    assert list(zip(*(steps[name] for name in GRAPH_KEY[:-1]), strict=True)) == SMALL.steps()
    assert set(steps["state"]) <= {*STATES}


def test_each_release_is_a_column_with_the_casting_of_its_time():
    earlier = [{"compiler": "2.21.33363.0", "sdk": "2.26.1", "python": "3.9", "auto_cast": "matmult"}]
    planned = Compilation.model_validate(SMALL.model_dump() | {"earlier": earlier})
    old, cnn = planned.options_of("2.21.33363.0"), {"model_type": "cnn-training"}
    step = planned.steps()[0]
    records = [
        record_of((*step, "step"), ENDINGS[0], "", 1),
        record_of((*step, "step"), ENDINGS[1], "A", 2, compiler="2.21.33363.0+abc", options=old),
        record_of(
            (*step, "step"), ENDINGS[0], "", 3, compiler="2.21.33363.0+abc"
        ),  # another casting: none of them
        record_of((*step, "step"), ENDINGS[1], "B", 4, options=CompileOptions(**cnn)),
    ]
    table = columns(planned, records)
    names = [f"{VERSION} (generic)", f"{VERSION} (cnn-training)", "2.21.33363.0 (generic, auto-cast matmult)"]
    assert [*table.columns[4:]] == names and len(table) == len(planned.steps())
    assert [*table.loc[0, names]] == ["compiles", "step fails", "step fails"]
    assert set(table.loc[1:, names[0]]) == {NOT_RUN}


@pytest.mark.parametrize(
    ("endings", "state"),
    [
        ({}, NOT_RUN),
        ({"step": ENDINGS[0]}, "compiles"),
        ({"step": ENDINGS[1]}, "step fails"),
        ({"step": ENDINGS[1], "backward": ENDINGS[1], "forward": ENDINGS[0]}, "backward fails"),
        ({"step": ENDINGS[2], "forward": ENDINGS[1]}, "forward fails"),
        ({"step": ENDINGS[3], "forward": ENDINGS[0]}, "stopped by a limit"),
        ({"forward": ENDINGS[0]}, NOT_RUN),
    ],
)
def test_a_training_step_fails_where_its_first_part_fails(endings, state):
    step = SMALL.steps()[0]
    records = [record_of((*step, part), ending, "") for part, ending in endings.items()]
    assert states(outcomes(SMALL, records))["state"][0] == state
