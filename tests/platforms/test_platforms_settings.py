"""Neuron's environment: flags from the recipe, a cache that is local or in S3, rounding; and who may run."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cxrbench.common.errors import UserError
from cxrbench.platforms import neuron_settings as settings
from cxrbench.platforms import torchneuron_settings
from cxrbench.study import platforms
from cxrbench.study.config import CompileOptions, Compiler

CHOSEN = Compiler(model_type="transformer", optlevel=1)


@pytest.mark.parametrize(
    ("compiler", "given_flags", "changed"),
    [
        (Compiler(), "", {}),
        (CHOSEN, "", {"--model-type": "transformer", "--optlevel": "1"}),
        (Compiler(), "-O2", {}),
        (Compiler(), "--model-type generic", {}),
        (Compiler(), "--enable-saturate-infinity", {"--enable-saturate-infinity": ""}),
        (Compiler(), "--cache_dir=/scratch/neff --lnc 1", {"--cache_dir": "/scratch/neff", "--lnc": "1"}),
    ],
)
def test_the_recipe_decides_the_flags_and_others_may_be_added(compiler, given_flags, changed) -> None:
    always = {"--auto-cast": "none", "--model-type": "generic", "--optlevel": "2"}
    wanted = [f"{flag}={value}" if value else flag for flag, value in (always | changed).items()]
    found = settings.compiler_flags("fp32", compiler, given_flags)
    assert found == [*wanted, "--retry_failed_compilation"]


@pytest.mark.parametrize(
    ("version", "on_trn1", "on_trn2"),
    [
        ("2.26.6360.0+abc", [], []),
        ("2.27.5334.0", ["none"], ["none", "--native-int64"]),
        ("2.28.7631.0+1", ["none"], ["none", "--native-int64"]),
        ("", [], []),
    ],
)
def test_64_bit_integers_are_explicit_where_the_compiler_has_the_flags(
    version, on_trn1, on_trn2, monkeypatch
) -> None:
    def said(flags: list[str]) -> list[str]:
        of = [flag.replace("--implicit-integer-downcast=", "") for flag in flags]
        return sorted((flag for flag in of if flag in ("none", "--native-int64")), reverse=True)

    assert said(settings.graph_flags(CompileOptions(), version, "trn1")) == on_trn1
    assert said(settings.graph_flags(CompileOptions(), version, "trn2")) == on_trn2
    monkeypatch.setattr(settings, "installed", lambda package: version or None)
    assert said(settings.compiler_flags("fp32", Compiler(), "")) == on_trn1


OTHER = r"is not what the recipe names .*set `compiler: \{(optlevel|model_type): "
PRECISION = "choose the precision in the recipe"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        *((flags, OTHER) for flags in ("-O1", "--optlevel 1", "--optlevel=3", "--model-type=cnn-training")),
        ("--auto-cast=all", PRECISION),
        ("--auto-cast matmult", PRECISION),
        ("--auto-cast-type=bf16", PRECISION),
        ("--verbose=1 generic", "'generic' belongs to no flag"),
    ],
)
def test_flags_that_contradict_the_recipe_are_refused(flags: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings.compiler_flags("fp32", Compiler(), flags)


@given(st.permutations(["--optlevel=1", "--lnc=1", "--retry_failed_compilation", "--model-type=transformer"]))
def test_flags_that_were_set_once_stay_as_they_are(words: list[str]) -> None:
    once = settings.compiler_flags("bf16", CHOSEN, " ".join(words))
    assert settings.compiler_flags("bf16", CHOSEN, " ".join(once)) == once


@pytest.mark.parametrize("module", [settings, torchneuron_settings])
def test_rounding_and_its_seed_are_explicit(module) -> None:
    found = settings.as_found(module.environment("bf16", Compiler(), {}))
    assert found["stochastic_rounding"] == {"enabled": False, "seed": "0"}


@pytest.mark.parametrize(
    ("compiler", "given", "message"),
    [
        (Compiler(optlevel=1), {}, "recipe's `compiler` is for platform neuron"),
        (Compiler(), {"NEURON_CC_FLAGS": "--auto-cast=all"}, "NEURON_CC_FLAGS is set"),
        (Compiler(), {"NEURON_COMPILER_OPT_LEVEL": "-O3"}, "NEURON_COMPILER_OPT_LEVEL is set"),
    ],
)
def test_torchneuron_refuses_settings_that_its_compiler_lacks(compiler, given, message) -> None:
    with pytest.raises(UserError, match=message):
        torchneuron_settings.environment("fp32", compiler, given)


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A mount table as Linux writes it: NFS 4 (as EFS is mounted) and Lustre (FSx) beside local disks."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mounts").write_text(
        "/dev/nvme0n1p1 / ext4 rw,relatime,discard 0 0\n"
        "proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"
        "fs-0a1b2c3d.efs.us-east-1.amazonaws.com:/ /efs nfs4 rw,relatime,vers=4.1,rsize=1048576,hard 0 0\n"
        "10.0.0.7@tcp:/fsx /efs/fast lustre rw,flock,lazystatfs 0 0\n"
        "/dev/nvme1n1 /efs/fast/disk xfs rw,relatime 0 0\n"
    )
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))
    (tmp_path / "link").symlink_to("/efs/a")
    return tmp_path


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NEURON_COMPILE_CACHE_URL", "/efs/neff", r"lies on a network file system \(nfs4\).* local folder"),
        ("NEURON_COMPILE_CACHE_URL", "/efs/fast/neff", r"lies on a network file system \(lustre\)"),
        ("NEURON_COMPILE_CACHE_URL", "{here}/link/neff", r"network file system \(nfs4\)"),
        ("NEURON_CC_FLAGS", "--cache_dir=/efs/neff", r"network file system \(nfs4\)"),
        ("NEURON_COMPILE_CACHE_URL", "gs://bucket/neff", "use a local folder or an s3:// address"),
    ],
)
def test_a_cache_where_neurons_locks_fail_is_refused(mounts: Path, variable, value, message) -> None:
    with pytest.raises(UserError, match=message):
        settings.environment("fp32", Compiler(), {variable: value.format(here=mounts)})


@pytest.mark.parametrize(
    "location", ["/efs/fast/disk/neff", "/efsx", "s3://bucket/neff", settings.DEFAULT_CACHE]
)
def test_a_local_cache_or_one_in_s3_is_taken(mounts: Path, location: str) -> None:
    chosen = settings.environment("fp32", Compiler(), {"NEURON_COMPILE_CACHE_URL": location})
    assert chosen["NEURON_COMPILE_CACHE_URL"] == location


@pytest.mark.parametrize("name", ["neuron", "torchneuron"])
def test_a_machine_without_the_device_gets_one_sentence(name: str) -> None:
    if Path("/dev/neuron0").exists():
        pytest.skip("this machine has a Neuron device")
    reason = platforms.unavailable(name)
    assert reason == "there is no Neuron device on this machine (/dev/neuron0 does not exist)"
    with pytest.raises(UserError, match=f"platform {name} cannot run here: there is no Neuron device"):
        platforms.load(name, 1, "fp32")


WANTED = "not installed here (install requirements/{}.txt, see docs/neuron.md)"


@pytest.mark.parametrize(
    ("version", "neuron", "torchneuron"),
    [
        (None, WANTED.format("neuron"), WANTED.format("torchneuron")),
        ("2.9.0.2.15.32035+e5f", None, "is the torch_xla one, for trn1; platform torchneuron needs"),
        ("2.14.3.0.1234", "is TorchNeuron, for trn2 and trn3; platform neuron needs", None),
    ],
)
def test_the_two_products_are_distinguished(version, neuron, torchneuron, tmp_path, monkeypatch) -> None:
    (tmp_path / "neuron0").touch()
    monkeypatch.setattr(settings, "DEVICE_FOLDER", tmp_path)
    if version:  # metadata as pip leaves it
        info = tmp_path / f"torch_neuronx-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch-neuronx\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path)
    for name, expected in (("neuron", neuron), ("torchneuron", torchneuron)):
        reason = platforms.unavailable(name)
        assert reason is None if expected is None else expected in reason and "\n" not in reason


def test_asking_which_platforms_can_run_imports_no_torch() -> None:
    code = (
        "import sys; from cxrbench.study import platforms; "
        "[platforms.unavailable(name) for name in platforms.PLATFORMS]; "
        "from cxrbench.platforms import neuron_tools; "
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
