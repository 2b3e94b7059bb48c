"""An archive of records: it tells nothing of its maker's machine, and is received whole or not at all."""

import gzip
import hashlib
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from columns import SCORES
from conftest import ROOT, change_record, must_fail, must_work
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.evidence.contribution import machines_of, overview, write_archive
from cxrbench.evidence.private import clean_record, of_this_machine, without_places
from cxrbench.evidence.record import read_record
from cxrbench.evidence.store import copy_evidence
from cxrbench.evidence.sums import write_sums
from cxrbench.study.names import Cell

OLD, NEW = (Cell("phantom-32px", "resnet18", "cpu", seed) for seed in (1, 0))
RECORD = f"records/{NEW}/record.json"
ESCAPED = Path("/tmp/cxrbench-test-escaped.json")
Files = dict[str, bytes]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with one recorded cell, and another cell as if it had been trained there."""
    shutil.copytree(OLD.folder(ROOT / "data/recorded"), OLD.folder(tmp_path / "data/recorded"))
    write_sums(tmp_path / "data/recorded")
    copy_evidence(NEW.folder(ROOT / "data/recorded"), NEW.folder(tmp_path / "results/runs"))
    return tmp_path


def archived(place: Path, clean: Callable[[str], str] = lambda text: text) -> Path:
    (work := place / "work").mkdir()
    results = place / "results"
    return write_archive([NEW], results / "runs", results / "bench", place, clean, work, results / "graphs")


def measured_row(place: Path) -> dict[str, Any]:
    """A recorded row of speeds, as if it had been measured on the machine of NEW."""
    (row, *_) = json.loads(
        (ROOT / "data/recorded/bench/amd-epyc-family-25-model-17-2-cores/train.json").read_text()
    )
    return row | {"machine": machines_of(read_record(NEW.folder(place / "results/runs")), "cpu")[0]}


def files_in(archive: Path) -> Files:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def write(path: Path, files: Files, *others: tarfile.TarInfo) -> Path:
    """Write an archive of ``files``, with the sums of its files, and ``others`` without content."""
    folder = path.parent / "again"
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        if not name.startswith(("/", "..")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
    write_sums(folder)
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for name, data in (files | {"SHA256SUMS": (folder / "SHA256SUMS").read_bytes()}).items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
        for header in others:
            tar.addfile(header)
    path.write_bytes(gzip.compress(plain.getvalue(), 1))
    return path


def received(archive: Path) -> list[object]:
    return ["contribute", "--receive", archive, "--no-build", "--study", ROOT / "config/config.yaml"]


def tree(place: Path) -> dict[str, str]:
    return {str(path): sha256_file(path) for path in (place / "data").rglob("*") if path.is_file()}


def test_what_was_trained_elsewhere_is_kept_as_recorded_evidence(place: Path) -> None:
    bench = place / "results/bench"
    bench.mkdir()
    row = measured_row(place)
    others = [row | {"machine": "another-2-cores"}, row | {"dirty": True, "batch": 8}]
    others.append(row | {"platform": "cuda"})
    (bench / "train.json").write_text(json.dumps([row, *others]))
    archive = archived(place)
    ended = json.loads((place / f"results/runs/{NEW}/record.json").read_text())["ended"]
    assert re.fullmatch(rf"contribution-.+-2-cores-{ended[:10]}\.tar\.gz", archive.name)
    assert sorted(files_in(archive)) == sorted(
        ["SHA256SUMS", "SUMMARY.md", "versions.json", "bench/train.json"]
        + [f"records/{NEW}/{name}" for name in ("predictions.parquet", "record.json", "train.log")]
    )
    done = must_work(*received(archive), cwd=place)
    assert f"| {NEW} | ok | 0." in done.stdout and f"recorded {NEW}" in done.stderr
    for name in ("record.json", "predictions.parquet", "train.log"):  # the same bytes
        kept = NEW.folder(place / "data/recorded") / name
        assert kept.read_bytes() == (NEW.folder(ROOT / "data/recorded") / name).read_bytes()
    assert json.loads((place / f"data/recorded/bench/{row['machine']}/train.json").read_text()) == [row]
    assert "2 recorded cells are intact" in must_work("verify", cwd=place).stdout
    assert "is identical to the recorded run" in must_work(*received(archive), cwd=place).stderr
    assert not list((place / "results").glob(".contribution-*"))


def test_graphs_that_a_device_sent_are_kept_by_their_hashes(place: Path) -> None:
    graph = hashlib.sha256(b"a graph").hexdigest()
    for network, content in (("resnet18", b"a graph"), ("resnet50", b"of no cell")):
        (folder := place / "results/graphs/phantom-32px" / network).mkdir(parents=True)
        (folder / f"{graph}.pb").write_bytes(content)
    archive = archived(place)
    kept = f"graphs/phantom-32px/resnet18/{graph}.pb"
    assert [name for name in files_in(archive) if name.startswith("graphs/")] == [kept]
    done = must_work(*received(archive), cwd=place)
    assert "1 graphs of a Neuron device: `cxrbench compile --from data/recorded/graphs`" in done.stderr
    assert (place / "data/recorded" / kept).read_bytes() == b"a graph"
    must_work("verify", cwd=place)
    other = write(place / "contribution-other.tar.gz", files_in(archive) | {kept: b"another"})
    assert "does not have the hash that it is named by" in must_fail(*received(other), cwd=place)


def test_nothing_of_the_makers_machine_is_in_the_bytes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/wilhelmine lund")
    monkeypatch.setenv("USER", "wilhelmine")
    monkeypatch.setattr("socket.gethostname", lambda: "ward7-pc.clinic.example")
    folder = NEW.folder(place / "results/runs")
    private = [
        'File "/home/wilhelmine lund/cxr/src/cxrbench/training/loop.py", line 3',
        f"{ROOT}/src/x.py {place}/y http://wilhelmine:pw@proxy.example:80/z ../../{'home'}/other/q",
        "on ward7-pc at 192.168.17.4 and fe80::1ff:fe23:4567:890a, aa:bb:cc:dd:ee:0f",
        "GPU-0a1b2c3d-1111-2222-3333-444455556666 C:\\Users\\lund\\x (root@ward7-pc)",
    ]
    log = (folder / "train.log").read_text()
    (folder / "train.log").write_text(log + "\n".join(private))
    change_record(
        folder, log_sha256=sha256_file(folder / "train.log"), host={"driver": f"550.54 {private[3][-14:]}"}
    )
    change_record(folder, platform={"why": private[1], "all": private}, energy={"reason": private[2]})
    bytes_of = files_in(archive := archived(place, of_this_machine()))
    whole = gzip.decompress(archive.read_bytes()).lower()
    for word in (
        b"wilhelmine",
        b"lund",
        b"ward7",
        b"clinic",
        b"192.168",
        b"fe80",
        b"aa:bb",
        b"0a1b2c3d",
        b"/home",
    ):
        assert word not in whole, word
    assert str(ROOT).encode() not in whole and str(place).encode() not in whole and b"proxy" not in whole
    kept = bytes_of[f"records/{NEW}/train.log"].decode()
    assert kept.startswith(log) and re.fullmatch(
        r"\[4 other lines, sha256 [0-9a-f]{64}\]\n", kept[len(log) :]
    )
    with tarfile.open(archive) as tar:
        assert {(member.uid, member.gid, member.uname, member.mtime) for member in tar} == {(0, 0, "", 0)}
    must_work(*received(archive), cwd=place)


@pytest.mark.parametrize(
    "text",
    [
        "nih128-64px/resnet18/cpu/seed0 at 3.1 images/s, 12:30:05, neuronx-cc 2.26.6360.0 and 91002",
        "training images over wall seconds between device synchronisations; x::y and a / b",
        "torch.optim.adam._fused_adam --auto-cast=none site-packages/torch/nn/modules/conv.py:554",
    ],
)
def test_what_is_no_place_stays(text: str) -> None:
    assert without_places(text) == of_this_machine()(text) == text


def test_recorded_evidence_tells_nothing_of_a_machine() -> None:
    for path in sorted((ROOT / "data/recorded").glob("*/*/*/seed*/record.json")):
        value, log = json.loads(path.read_text()), path.with_name("train.log").read_text()
        assert clean_record(value, without_places) == value and without_places(log) == log, path


def link(name: str) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return header


@pytest.mark.fault(
    "a contribution has links, paths that lead out, foreign or giant files", "one message; nothing kept"
)
@pytest.mark.parametrize(
    ("files", "others", "message"),
    [
        ({str(ESCAPED): b"x"}, (), "has an absolute path"),
        ({f"../{ESCAPED.name}": b"x"}, (), "leads out of its folder"),
        ({}, (link(RECORD),), "is a link to '/etc/passwd'"),
        ({"records/x/y/cpu/seed0/run.sh": b"x"}, (), "is no part of a contribution"),
        ({"records/x/y/cpu/seed00/record.json": b"x"}, (), "is no part of a contribution"),
        ({"bench/\x1b[2J.json": b"x"}, (), r"\x1b[2J.json' is no part of a contribution"),
        ({"SUMMARY.md": bytes(70 << 20)}, (), "bytes, more than one may have"),
        ({"records/x/y/cpu/seed0/train.log": b"x"}, (), "x/y/cpu/seed0/train.log lies beside no record"),
        ({"versions.json": b'{"format": 2}'}, (), "its format is 2, this cxrbench reads 1"),
        ({"versions.json": b"[" * 100_000}, (), "versions.json is missing or damaged"),
        ({"bench/train.json": b'[{"machine": "../../x"}]'}, (), "row 0: architecture: Field required"),
        ({"bench/train.json": b"[NaN]"}, (), "bench/train.json: not a readable record (NaN is not a number"),
        ({"bench/train.json": b"[1]"}, (), "row 0: : Input should be a valid dict"),
        ({"bench/train.json": b"{}"}, (), "bench/train.json: a list of rows is expected"),
    ],
)
def test_a_hostile_archive_is_one_message(place: Path, files: Files, others: Any, message: str) -> None:
    archive = write(
        archived(place), files_in(place / next(place.glob("contribution-*")).name) | files, *others
    )
    before = tree(place)
    said = must_fail(*received(archive), cwd=place)
    assert message in said and said.count("\n") == 1 and "\x1b" not in said
    assert tree(place) == before and not ESCAPED.exists() and not (place / ESCAPED.name).exists()
    assert not list((place / "results").glob(".contribution-*"))


def test_a_row_that_names_another_folder_or_platform_is_refused(place: Path) -> None:
    files = files_in(archived(place))
    for change, message in (
        ({"machine": "../../x"}, "machine: Value error, '../../x' does not have the form"),
        ({"machine": "a/b"}, "does not have the form"),
        ({"machine": "amd-epyc-family-25-model-17-64-cores"}, "of which it has no record"),
        ({"platform": "cuda"}, "row 0 names cuda on '"),
    ):
        text = json.dumps([measured_row(place) | change]).encode()
        archive = write(place / "c.tar.gz", files | {"bench/train.json": text})
        assert message in must_fail(*received(archive), cwd=place)


def test_a_file_that_is_not_as_the_sums_list_it_is_named(place: Path) -> None:
    archive = archived(place)
    files = files_in(archive)
    with tarfile.open(archive, "w:gz") as tar:
        for name, data in (files | {RECORD: files[RECORD].replace(b"0", b"1", 1)}).items():
            header = tarfile.TarInfo(name)
            header.size = len(data)
            tar.addfile(header, io.BytesIO(data))
    assert f"{RECORD} is not as SHA256SUMS lists it" in must_fail(*received(archive), cwd=place)


@pytest.mark.fault("the disk fills up under a contribution's archive", "a message; no archive")
def test_a_full_disk_leaves_no_archive(place: Path, small_disk: Callable[[str], Path]) -> None:
    (work := place / "work").mkdir()
    disk, (runs, bench) = small_disk("size=16k"), (place / "results" / name for name in ("runs", "bench"))
    with pytest.raises(UserError, match=r"contribution-.*: the disk is full; free some space"):
        write_archive([NEW], runs, bench, disk, str, work)
    assert not list(disk.iterdir())


@pytest.mark.fault("a contribution is cut short or a byte of it is flipped", "one message; nothing kept")
def test_a_damaged_archive_is_one_message(place: Path) -> None:
    archive = archived(place)
    whole, before = archive.read_bytes(), tree(place)
    for data in (b"", whole[:-9], whole[: len(whole) // 2], whole[:900] + b"x" + whole[901:], b"hello"):
        archive.write_bytes(data)
        said = must_fail(*received(archive), cwd=place)
        assert archive.name in said and said.count("\n") == 1
    assert tree(place) == before


def forged(place: Path, change: Callable[[Any], Any], rows: Callable[[Any], Any] | None = None) -> Path:
    """An archive whose record is changed, with every hash made to fit."""
    files = files_in(archived(place))
    name = f"records/{NEW}/predictions.parquet"
    if rows:
        table = rows(pd.read_parquet(io.BytesIO(files[name])))
        table.to_parquet(place / "forged.parquet", index=False)
        files[name] = (place / "forged.parquet").read_bytes()
    value = json.loads(files[RECORD])
    change(value)
    if rows:
        value["predictions_sha256"] = sha256_file(place / "forged.parquet")
    return write(place / "c.tar.gz", files | {RECORD: json.dumps(value).encode()})


def better(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(**{name: table[name.replace("score", "label")].astype("float32") for name in SCORES})


@pytest.mark.fault("a contribution from another version of torch", "recorded, and the summary says so")
def test_another_version_of_torch_is_recorded_and_marked(place: Path) -> None:
    archive = forged(place, lambda record: record["versions"].update(torch="2.7.0"))
    done = must_work(*received(archive), cwd=place)
    pinned = re.search(r"^torch==(\S+)", (ROOT / "requirements/base.lock").read_text(), re.M)
    assert f"- torch is 2.7.0, the lock has {pinned[1]}: the record says so\n" in done.stdout
    kept = read_record(NEW.folder(place / "data/recorded"))
    assert kept.versions["torch"] == "2.7.0" and "torch 2.7.0" in kept.machine
    assert "Unlike the lock" not in overview({OLD: read_record(OLD.folder(place / "data/recorded"))})


@pytest.mark.fault("a contribution was forged and every hash made to fit", "the contradiction; nothing kept")
@pytest.mark.parametrize(
    ("change", "rows", "message"),
    [
        (lambda record: record.update(cell=str(OLD)), None, "the record is of cell"),
        (lambda record: record["timing"].update(images_per_second=1e5), None, "the epochs of history allow"),
        (lambda record: record["recipe"].update(epochs=2), None, "recipe_hash is"),
        (lambda record: record.update(ended="2020-01-01T00:00:00+00:00"), None, "before it started"),
        (lambda record: None, better, "macro AUROC of the validation part"),
        (lambda record: None, lambda table: table.assign(patient=table["patient"] + 1), "NIH's label table"),
        (lambda record: record["platform"].update(x=f"/{'home'}/me/x"), None, "a path, an address"),
        (lambda record: record.update(dirty=True), None, "dirty is true"),
        (lambda record: record.update(commit="unknown"), None, "commit is 'unknown'"),
    ],
)
def test_a_forged_record_is_refused(place: Path, change: Any, rows: Any, message: str) -> None:
    archive, before = forged(place, change, rows), tree(place)
    said = must_fail(*received(archive), cwd=place)
    assert message in said and archive.name in said and tree(place) == before


@pytest.mark.fault("a contribution meets a link in data/recorded", "the link; nothing kept")
def test_a_link_among_recorded_cells_is_named(place: Path) -> None:
    archive, old = archived(place), OLD.folder(place / "data/recorded")
    old.rename(place / "elsewhere")
    old.symlink_to(place / "elsewhere")
    write_sums(place / "data/recorded")
    before = tree(place)
    said = must_fail(*received(archive), cwd=place)
    assert f"{OLD}: a link, which is no evidence" in said and said.count("\n") == 1
    assert tree(place) == before


def test_a_copy_of_recorded_predictions_is_refused(place: Path) -> None:
    copy_evidence(OLD.folder(ROOT / "data/recorded"), NEW.folder(place / "results/runs"))
    change_record(NEW.folder(place / "results/runs"), cell=str(NEW))
    assert "one of them is a copy" in must_fail(*received(archived(place)), cwd=place)


@pytest.mark.slow
def test_another_recipe_or_an_unknown_dataset_is_refused(place: Path, tmp_path: Path) -> None:
    archive, study = archived(place), (ROOT / "config/config.yaml").read_text()
    for text, message in (("brief-fp32:", "with another recipe"), ("phantom-32px", "has no dataset")):
        other = (
            study.replace("epochs: 3", "epochs: 2") if ":" in text else study.replace(text, "phantom-33px")
        )
        (tmp_path / "study.yaml").write_text(other)
        said = must_fail("contribute", "--receive", archive, "--study", tmp_path / "study.yaml", cwd=place)
        assert message in said
