"""``cxrbench audit`` as users call it: tables, JSON, evidence, and what goes wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from conftest import ROOT, must_fail, must_work
from cxrbench.cli.audit import AUDIT_CAVEAT
from cxrbench.common.errors import UserError
from cxrbench.evidence.verify import verify_recorded
from cxrbench.neuron.audit import audit_row, of_setting, read_audit, record_audit, survey
from cxrbench.neuron.rules import AUDITED_PARTS, RULES, Facts, Setting, facts_of

SMALL = ["--pixels", "32", "--batch", "4"]
NAMES = ["test_resnet", "test_convnext", "hrnet_w18_small"]
VERSIONS = {"torch": "2", "torch_xla": "2", "timm": "1"}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory):
    """One call that does everything, and its folder."""
    folder = tmp_path_factory.mktemp("audit")
    where = ["--cache", folder / "cache", "--recorded", folder / "recorded", "--out", folder / "audit.csv"]
    return must_work("audit", *NAMES, *SMALL, *where, "--json", "--record"), folder


@pytest.mark.slow
def test_json_has_counts_and_verdicts_and_messages_state_the_recipe(done) -> None:
    run, _ = done
    resnet, convnext, hrnet = json.loads(run.stdout)[1::2]  # after forward, the step
    assert resnet["instructions"] > 1000 and resnet["batchnorms"] == 15 and convnext["layernorms"] > 0
    assert len(convnext["verdicts"]) == len(RULES)
    assert all(verdict["source"] and verdict["found"] for verdict in convnext["verdicts"])
    assert {"pixels": 32, "batch": 4, "precision": "fp32"}.items() <= resnet.items()
    assert resnet["torch_xla"].startswith("2.9") and resnet["timm"] and resnet["torch"]
    assert hrnet["instructions"] == 0 and [verdict["rule"] for verdict in hrnet["verdicts"]] == ["R8"]
    said = " ".join(run.stderr.split())
    fallback = "hrnet_w18_small: a step is not one graph: aten::upsample_nearest2d_backward"
    for text in ("32 px, batch 4, fp32", "dead code included", "timm 1.", AUDIT_CAVEAT, fallback):
        assert text in said
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_csv_and_recorded_rows_are_the_same_and_verified(done) -> None:
    run, folder = done
    written = pd.read_csv(folder / "audit.csv", keep_default_na=False)
    assert list(written["architecture"]) == [name for name in NAMES for _ in AUDITED_PARTS]
    recorded = read_audit(folder / "recorded")
    assert sorted(recorded["architecture"]) == sorted(NAMES * 2)
    for number, part in enumerate(AUDITED_PARTS):
        graphs = of_setting(recorded, Setting(32, 4), part).set_index("architecture")
        assert facts_of(graphs.loc["test_convnext"]) == facts_of(json.loads(run.stdout)[2 + number])
    assert verify_recorded(folder / "recorded").problems == []
    assert "audit/audit.csv" in (folder / "recorded/SHA256SUMS").read_text()


@pytest.mark.slow
def test_a_second_call_reads_and_imports_no_torch(done) -> None:
    _, folder = done
    code = (
        "import sys; from pathlib import Path; from cxrbench.neuron.rules import Setting\n"
        "from cxrbench.neuron.audit import survey\n"
        f"table = survey({NAMES}, [Setting(32, 4)], Path(r'{folder / 'cache'}'), print)\n"
        f"table.to_csv(r'{folder / 'again.csv'}', index=False)\n"
        "assert not {'torch', 'timm', 'torch_xla'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT / "src")})
    assert (folder / "again.csv").read_bytes() == (folder / "audit.csv").read_bytes()


@pytest.mark.slow
def test_a_table_for_people_names_each_rule_once(done) -> None:
    _, folder = done
    run = must_work("audit", *NAMES, *SMALL, "--cache", folder / "cache")
    assert run.stdout.count("NCC_ITEN404") == 1 and run.stdout.count("issue 1295") == 1
    assert "flagged" in run.stdout and "clear" in run.stdout


@pytest.mark.slow
def test_a_damaged_kept_file_is_made_again(done) -> None:
    _, folder = done
    (kept,) = (folder / "cache").glob("*/test_resnet.json")
    whole = kept.read_bytes()
    kept.write_bytes(whole[: len(whole) // 2])
    messages: list[str] = []
    survey(["test_resnet"], [Setting(32, 4)], folder / "cache", messages.append)
    assert messages == ["captured test_resnet (1 of 1)"]
    assert kept.read_bytes() == whole


@pytest.mark.slow
def test_networks_in_several_processes_are_counted_alike(done, tmp_path: Path) -> None:
    """Eight networks share two processes where there are two cores."""
    _, folder = done
    others = ["test_vit", "test_efficientnet", "test_byobnet"]
    names = ["test_resnet", "test_convnext", *others, "test_convnext2", "test_convnext3", "test_mambaout"]
    run = must_work("audit", *names, *SMALL, "--cache", tmp_path, "--json")
    rows = {row["architecture"]: row for row in json.loads(run.stdout) if row["part"] == "step"}
    assert list(rows) == names and "captured test_mambaout (8 of 8)" in run.stderr
    for name in ("test_resnet", "test_convnext"):
        (alone,) = (folder / "cache").glob(f"*/{name}.json")
        assert facts_of(rows[name]) == facts_of(json.loads(alone.read_text())["step"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["test_resnet", "convnext_tiny_conv_ml"], "did you mean 'convnext_tiny_conv_mlp'"),
        (["test_resnet", "--precision", "fp8"], "--precision: unknown value 'fp8'; use fp32 or bf16"),
    ],
)
def test_a_mistake_is_one_message(words: list[str], message: str, tmp_path: Path) -> None:
    assert message in must_fail("audit", *words, "--cache", tmp_path)
    assert not any(tmp_path.iterdir())


def rows(setting: Setting, *names: str, **changes: object) -> pd.DataFrame:
    return pd.DataFrame([audit_row(name, setting, Facts(**changes), VERSIONS) for name in names])


def test_recording_replaces_equal_keys_and_keeps_others(tmp_path: Path) -> None:
    small, large = Setting(64, 32), Setting(224, 32)
    record_audit(rows(small, "a", "b", parameters=1).assign(of_a_retired_rule=0), tmp_path)
    record_audit(rows(large, "a", parameters=2), tmp_path)
    record_audit(rows(small, "b", "c", parameters=3), tmp_path)
    table = read_audit(tmp_path)
    assert "of_a_retired_rule" not in table
    kept = table[["pixels", "architecture", "parameters"]].itertuples(index=False, name=None)
    assert list(kept) == [(224, "a", 2), (64, "a", 1), (64, "b", 3), (64, "c", 3)]
    assert verify_recorded(tmp_path).problems == []


@pytest.mark.parametrize("text", ["", "architecture\nresnet18\n", "pixels,batch\n1,2\n"])
def test_a_damaged_recorded_table_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit/audit.csv").write_text(text)
    with pytest.raises(UserError, match=r"audit\.csv: .*restore it with git"):
        read_audit(tmp_path)
