"""What a device would refuse for the trace's sake is no outcome, and nothing is one while a control fails."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import neuronx_cc
from cxrbench.evidence.compiled import ForeignGraph, read_compiled
from cxrbench.neuron.control_graphs import ALWAYS
from cxrbench.neuron.module import Contents, read_module
from cxrbench.neuron.operators import REFUSED_TYPES, TARGETS, names_in, unlisted

LISTED = names_in(neuronx_cc.LISTED.replace(" ", "\n"))


def proto(*tensors: torch.Tensor) -> bytes:
    """The module of what tensors on the device wait for."""
    import torch_xla

    return torch_xla._XLAC._get_xla_tensors_hlo_proto(list(tensors))


def test_no_dumped_graph_has_what_a_device_is_never_sent(dumped: Path) -> None:
    """Of the controls too; the networks of the study: test_study.py. Sources: tests/neuronx_cc.py."""
    files = [*dumped.glob("*.pb")]
    assert len(files) == 3 * (2 + len(ALWAYS))
    for file in files:
        contents = read_module(file.read_bytes())
        assert not contents.wide_types & REFUSED_TYPES and "erf" not in contents.opcodes, file
        assert unlisted(contents, LISTED, frozenset()) == [], file
    (gelu,) = dumped.glob("control_gelu*-step.hlo.pb")
    assert read_module(gelu.read_bytes()).targets == {"AwsNeuronGelu", "AwsNeuronGeluBackward"} < TARGETS


@pytest.mark.fault(
    "a graph has an operator or a type that no device sends", "a message; no outcome, no record"
)
def test_a_fault_of_the_trace_is_no_outcome(compile_here, platform, tmp_path: Path) -> None:
    values = platform.to_device(torch.ones(3))
    (folder := tmp_path / "collected/rank0").mkdir(parents=True)
    (folder / "fine.hlo_module.pb").write_bytes(proto(values * 2 + 1))
    (folder / "gelu.hlo_module.pb").write_bytes(proto(torch.nn.functional.gelu(values)))
    (folder / "wide.hlo_module.pb").write_bytes(proto(values.double() * 2))
    (folder / "other.pb").write_bytes(b"no module")
    done = compile_here("--from", tmp_path / "collected", "--record", "--json", sizes=())
    assert done.returncode == 0, done.stderr
    assert [row["network"] for row in json.loads(done.stdout)] == ["rank0/fine.hlo_module.pb"]
    for name, operator in (("gelu", "erf"), ("wide", "f64")):
        fault = f"a fault of the trace and no outcome: the graph has {operator}, which"
        assert f"rank0/{name}.hlo_module.pb: {fault}" in done.stderr
    assert "other.pb: not an HloModuleProto; left out" in done.stderr
    recorded = [record.graph for record in read_compiled(tmp_path / "data/recorded")]
    foreign = [graph for graph in recorded if isinstance(graph, ForeignGraph)]
    assert len(recorded) == 1 + len(ALWAYS) and [graph.file for graph in foreign] == [
        "rank0/fine.hlo_module.pb"
    ]
    logs = [log.read_text() for log in (tmp_path / "data/recorded/compile").rglob("*.log")]
    assert all("DRAM usage" in log for log in logs)  # of the compiler's own log
    (kept,) = (tmp_path / "data/recorded/compile").rglob("operators.txt")
    assert kept.parent.name == neuronx_cc.VERSION and names_in(kept.read_text()) == LISTED


@pytest.mark.fault(
    "Neuron's compiler refuses a control, or lists no operators", "one message; nothing is recorded"
)
@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("no LayerNorm", "the control control_layernorm-16px-batch4-fp32-step fails"),
        ("no list", "list-operators --framework XLA` ended with 0 and no operators"),
    ],
)
def test_while_a_control_fails_nothing_is_recorded(compile_here, tmp_path: Path, mode, message) -> None:
    done = compile_here("test_resnet", "--part", "forward", "--record", mode=mode)
    assert done.returncode == 1 and message in " ".join(done.stderr.split()), done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "data").exists()
    mended = compile_here("test_resnet", "--part", "forward", "--json")
    assert [row["status"] for row in json.loads(mended.stdout)] == ["ok"], mended.stderr


def test_operators_are_known_by_the_names_of_the_builder() -> None:
    codes = frozenset({"add", "batch-norm-training", "convert", "convolution", "maximum", "parameter", "erf"})
    of_graph = Contents(codes, frozenset({"AwsNeuronGelu", "Mine"}), frozenset({"s64"}), 1)
    assert unlisted(of_graph, LISTED, frozenset()) == ["Mine", "erf"]
    assert unlisted(of_graph, LISTED, frozenset({"erf"})) == ["Mine"]
    assert "erf" not in unlisted(of_graph, [*LISTED, "Erf"], frozenset())


@given(st.binary(max_size=60))
def test_other_bytes_are_no_module(content: bytes) -> None:
    with pytest.raises(ValueError, match="not an HloModuleProto"):
        read_module(content)
