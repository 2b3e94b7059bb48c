"""Packing: kills, full disks, any number of workers; the same bytes or one message."""

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock
from tarballs import member, names, source, study, tar, write_tar

from conftest import ROOT, must_fail, must_work, ran
from cxrbench.cli import _IN_A_CLONE
from cxrbench.common.errors import UserError
from cxrbench.datasets.packed import must_be_packed_from, pack, read_packed
from own_images import encoded


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 small images in three tarballs and, the last tenth, loose."""
    folder, rng = tmp_path_factory.mktemp("many"), np.random.default_rng(0)
    images = [(name, encoded(rng.integers(0, 256, (24, 24), dtype=np.uint8))) for name in names(1500)]
    for k in range(3):
        some = [member(f"images/{name}", data) for name, data in images[450 * k : 450 * (k + 1)]]
        write_tar(folder / f"images_{k:03}.tar.gz", tar(some))
    for name, data in images[1350:]:
        (folder / name).write_bytes(data)
    return folder


def without_folder(manifest: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key != "folder"}


@pytest.fixture(scope="module")
def truth(many: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The manifest of packing them in one go with one worker."""
    return without_folder(pack("d", source(many), tmp_path_factory.mktemp("truth"), workers=1))


@pytest.fixture
def words(many: Path, tmp_path: Path) -> list[str]:
    """The command that packs them into ``packed/d``, after ``cxrbench``."""
    out = tmp_path / "packed/d/manifest.json"
    return ["data", "pack", "d", "--study", str(study(tmp_path, many)), "--out", str(out)]


def test_workers_do_not_change_a_byte_and_what_was_there_is_replaced(many, truth, tmp_path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/images.npy").write_bytes(b"before")
    assert without_folder(pack("d", source(many), tmp_path, workers=7)) == truth
    assert [path.name for path in tmp_path.iterdir()] == ["d"]


@pytest.mark.slow
@pytest.mark.fault("`data pack` is killed or interrupted", "no dataset; the next run starts anew, same bytes")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_leaves_no_dataset_and_the_next_starts_anew(number, words, truth, tmp_path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "cxrbench", *words], cwd=ROOT)
    while not (tmp_path / "packed/.d.part/images.npy").exists():
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(number)
    assert process.wait() != 0
    left = {path.name for path in (tmp_path / "packed").iterdir()}
    assert left == ({".d.part", ".d.lock"} if number == signal.SIGKILL else set())
    must_work(*words)
    assert without_folder(json.loads((tmp_path / "packed/d/manifest.json").read_text())) == truth
    assert [path.name for path in (tmp_path / "packed").iterdir()] == ["d"]


@pytest.mark.fault("a tarball is cut short while packing", "a message names it; no dataset")
def test_a_damaged_tarball_is_named_and_packing_succeeds_once_it_is_whole(many, truth, tmp_path) -> None:
    folder = shutil.copytree(many, tmp_path / "raw")
    whole = (folder / "images_002.tar.gz").read_bytes()
    (folder / "images_002.tar.gz").write_bytes(whole[:-2000])
    with pytest.raises(UserError, match=r"images_002.tar.gz: damaged tarball .*fetch it again"):
        pack("d", source(folder), tmp_path / "packed")
    assert list((tmp_path / "packed").iterdir()) == []
    (folder / "images_002.tar.gz").write_bytes(whole)
    assert without_folder(pack("d", source(folder), tmp_path / "packed")) == truth


@pytest.mark.slow
@pytest.mark.fault("the disk is full while packing", "a message; nothing is left, the next run succeeds")
def test_a_full_disk_is_one_message_and_no_dataset(words: list[str], tmp_path: Path) -> None:
    """A limit on file size stands in for a quota: the kernel refuses the write all the same."""
    done = ran("prlimit", "--fsize=100000", sys.executable, "-m", "cxrbench", *words, cwd=ROOT)
    assert done.returncode == 1 and "d: the disk is full; free some space" in done.stderr
    assert "Traceback" not in done.stderr and list((tmp_path / "packed").iterdir()) == []
    must_work(*words)


def test_a_link_or_another_process_is_refused_before_the_work(many: Path, tmp_path: Path) -> None:
    said = "d: another process on .* is packing it"
    with FileLock(tmp_path / ".d.lock"), pytest.raises(UserError, match=said):
        pack("d", source(many), tmp_path)
    (tmp_path / "d").symlink_to(tmp_path)
    with pytest.raises(UserError, match="is a link, which packing would replace"):
        pack("d", source(many), tmp_path)
    assert (tmp_path / "d").is_symlink()


def test_a_damaged_packed_dataset_is_a_mistake_and_no_result(packed: Path, tmp_path: Path) -> None:
    shutil.copytree(packed, tmp_path / "d")
    for name, content in (("images.npy", b""), ("manifest.json", b"[]"), ("manifest.json", b"{}")):
        (tmp_path / "d" / name).write_bytes(content)
        with pytest.raises(UserError, match=r"damaged .*; run `cxrbench data pack d`"):
            read_packed(tmp_path / "d")


OWN = """
datasets: {mine: {source: table, table: labels.csv, folder: images, pixels: 64, recipe: short}}
recipes: {short: {epochs: 1, batch: 8}}
cells: [{dataset: mine, architectures: [resnet18], platforms: [cpu], seeds: [0]}]
run: ["mine/*/cpu/*"]
"""


def test_what_is_not_packed_is_said_with_the_command_and_no_clone_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(OWN)
    train = ["train", "mine/resnet18/cpu/seed0", "--study"]
    said = must_fail(*train, "mine.yaml", cwd=tmp_path)
    assert "mine/manifest.json: not packed yet; run `cxrbench data pack mine --study mine.yaml`\n" in said
    for words in ([*train, "mine.yaml"], [*train, "config/mine.yaml"], ["data", "sheet", "nosuch"]):
        assert "clone" not in must_fail(*words, cwd=tmp_path), words


def test_only_files_of_every_clone_are_said_to_be_in_one() -> None:
    kept = ran("git", "ls-files", "config", "data", cwd=ROOT, check=True).stdout.split()
    assert _IN_A_CLONE - {"data/recorded"} <= {*kept}
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    defaults = set(re.findall(r'Path\(\s*"((?:data|config)/[\w/.]+\.\w+)"\s*\)', source))
    assert "data/prices.csv" in defaults and defaults <= _IN_A_CLONE


def test_what_was_packed_from_another_config_is_not_trained_on(many: Path, tmp_path: Path) -> None:
    pack("d", source(many), tmp_path)
    must_be_packed_from(source(many), tmp_path / "d")
    for key, wanted in {"pixels": 17, "split": "seeded-3"}.items():
        with pytest.raises(UserError, match=f"packed with {key} .*, the study says {wanted}"):
            must_be_packed_from(source(many, **{key: wanted}), tmp_path / "d")


def test_the_manifest_has_the_hash_of_each_part(packed: Path, tmp_path: Path) -> None:
    """As anyone can compute it: sorted names, one a line."""
    index = pd.read_parquet(packed / "index.parquet")
    for part, expected in read_packed(packed).manifest["split_parts_sha256"].items():
        (tmp_path / "part.txt").write_text("\n".join(index.loc[index["split"] == part, "image"]) + "\n")
        shown = ran("sh", "-c", f"LC_ALL=C sort {tmp_path}/part.txt | sha256sum", check=True).stdout
        assert shown.split()[0] == expected


PEAK = """
import re, sys
from pathlib import Path
from cxrbench.datasets.packed import pack
from cxrbench.study.config import NihSource
pack("d", NihSource(source="nih", pixels=64, recipe="x", folder=sys.argv[1]), Path(sys.argv[2]))
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
def test_memory_stays_flat(nih128: Path, tmp_path: Path) -> None:
    """VmHWM and not ru_maxrss: that of a new process begins with what its parent had."""
    done = ran(sys.executable, "-c", PEAK, nih128, tmp_path, check=True)
    assert int(done.stdout) / 1024 < 500  # MiB, for ten thousand radiographs


@pytest.mark.slow
def test_a_process_that_ends_after_reading_keeps_its_exit_code(packed: Path) -> None:
    read = f"from cxrbench.datasets.packed import read_packed; read_packed({str(packed)!r})"
    ended = {ran(sys.executable, "-c", f"import sys; {read}; sys.exit(78)").returncode for _ in range(24)}
    assert ended == {78}  # Arrow's threads aborted one in eight when pandas had handed them an open file


@pytest.mark.slow
def test_packing_is_timed_in_each_format(tmp_path: Path) -> None:
    few = ("--images", 12, "--drawn", 2, "--blocks", 1, "--out", tmp_path / "pack.json")
    command = (sys.executable, "-m", "benchmarks.packing")
    for name in ("jpeg", "dicom", "dicom"):
        ran(*command, name, *few, cwd=ROOT, check=True)
    rows = json.loads((tmp_path / "pack.json").read_text())
    assert [row["format"] for row in rows] == ["jpeg", "dicom"]
    assert all(row["files_to_alone"] > 0 for row in rows) and "files_to_image_folder" not in rows[1]
    wrong = ran(*command, "gif", *few, cwd=ROOT)
    assert wrong.returncode == 1 and wrong.stderr == "cxrbench: unknown format 'gif'; use png, jpeg, dicom\n"
