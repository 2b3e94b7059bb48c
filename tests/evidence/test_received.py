"""A stranger's archive is refused or shown in full, in bounds, and changes nothing that is recorded."""

import hashlib
import itertools
import json
import re
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from columns import SCORES
from conftest import ROOT, must_fail, must_work, put_at, ran
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.evidence import allowed, private
from cxrbench.evidence.allowed import (
    ROWS,
    Versions,
    as_name,
    as_sentence,
    conforming,
    odd_in_record,
    own_lines,
)
from cxrbench.evidence.received import MOST_MEMORY, unpack, unpack_limited
from cxrbench.evidence.record import Record, read_record
from cxrbench.evidence.store import copy_evidence
from cxrbench.evidence.sums import write_sums
from cxrbench.evidence.verify import verify_recorded
from cxrbench.statistics.predictions import LABEL
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell
from cxrbench.training.repeat import FirstEpoch
from evidence.test_contribution import (
    NEW,
    OLD,
    RECORD,
    Files,
    archived,
    files_in,
    measured_row,
    place,
    received,
    tree,
    write,
)
from evidence.test_verify import places

__all__ = ["place"]  # a fixture
DATA = ROOT / "data/recorded"
STUDY = read_study(ROOT / "config/config.yaml")
PARQUET = f"records/{NEW}/predictions.parquet"
LOG = f"records/{NEW}/train.log"
VALUE = json.loads((NEW.folder(DATA) / "record.json").read_text())
STRANGE = (
    "=HYPERLINK(1)",
    "+1",
    "-1",
    "@x",
    "<script>",
    "\u202ex",
    "Mass \u2265 3",
    "\u2603",
    "a\u0301",
    "x" * 501,
    "\x1b[2J",
)


def with_record(files: Files, change: Callable[[Any], Any], **others: bytes) -> Files:
    """The files of an archive whose record is changed."""
    value = json.loads(files[RECORD])
    value = change(value) or value
    return files | {RECORD: json.dumps(value).encode()} | others


# ---------------------------------------------------------------------------------- measurements


@pytest.mark.slow
@pytest.mark.fault(
    "a contribution has another row for settings that are recorded",
    "recorded -> new; kept with --replace only",
)
def test_a_recorded_row_is_replaced_only_when_asked(place: Path) -> None:
    row = measured_row(place)
    kept = place / f"data/recorded/bench/{row['machine']}/train.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps([row]))
    write_sums(place / "data/recorded")
    faster = {name: value * 100 if type(value) is float else value for name, value in row.items()}
    faster["blocks_of_each"] = {
        name: [100 * speed for speed in speeds] for name, speeds in row["blocks_of_each"].items()
    }
    faster |= {name: value for name, value in row.items() if "share" in name or "ratio" in name}
    files = files_in(archived(place))
    archive = write(place / "c.tar.gz", files | {"bench/train.json": json.dumps([faster]).encode()})
    before = tree(place)
    said = must_fail(*received(archive), cwd=place)
    assert f"recorded -> new: bench/{row['machine']}/train.json: cpu, resnet18, 64 px" in said
    assert "ours 213.178 -> 21317.8" in said and "repeat with --replace" in said
    assert tree(place) == before
    must_work(*received(archive), "--replace", cwd=place)
    assert json.loads(kept.read_text()) == [faster]
    same = write(place / "c.tar.gz", files | {"bench/train.json": json.dumps([faster]).encode()})
    assert "recorded -> new" not in must_work(*received(same), cwd=place).stderr


ROW_CHANGES = [
    lambda row: row | {name: "abc" for name, value in row.items() if type(value) is float},
    lambda row: row | {"pixels": [1]},
    lambda row: row | {"ours": 1e300},
    lambda row: row | {"spread": -1.0},
    lambda row: row | {"batch": "16"},
    lambda row: row | {"extra": 1},
    lambda row: row | {"ours": 2 * row["ours"]},
    lambda row: row | {"ratio_to_timm": 9.0},
    lambda row: row | {"share_of_limit": 0.5},
    lambda row: row | {"blocks_of_each": {"ours": row["blocks_of_each"]["ours"]}},
    lambda row: row | {"dirty": True},
    lambda row: row | {"versions": {"torch": "=1"}},
    lambda row: row | {"timm_best_flags": "<b>"},
    lambda row: {name: value for name, value in row.items() if name != "spread"},
]


@pytest.mark.parametrize("change", ROW_CHANGES)
def test_a_row_of_another_type_or_range_is_refused(place: Path, change: Callable[[Any], Any]) -> None:
    row = measured_row(place)
    ROWS["train"].model_validate(row)
    with pytest.raises(ValidationError):
        ROWS["train"].model_validate(change(row))


def test_recorded_rows_have_the_types_of_contributed_ones() -> None:
    for kind in ROWS:
        for row in rows_of(kind):
            ROWS[kind].model_validate(row)


def rows_of(kind: str) -> list[dict[str, Any]]:
    """Rows of a kind as they are recorded; of the gate, as `bench steps` writes them."""
    if kind != "gate":
        return json.loads((DATA / f"bench/amd-epyc-family-25-model-17-2-cores/{kind}.json").read_text())
    named = {
        "architecture": "test_convnext",
        "precision": "fp32",
        "platform": "cpu",
        "pixels": 32,
        "batch": 64,
    }
    worst = {"operator": "stem.0 (Conv2d)", "tensor": "gradient of weight", "size": [24, 1, 7, 7]}
    worst |= {"direction": 1.5e-7, "norm": 2.0, "floor": 0.0, "ratio": 1e18}
    worst |= {"direction_tolerance": 1.4e-6, "norm_tolerance": 9.5e-7}
    found = {"repeats": True, "tensors": 912, "differences": 1, "worst": [worst]}
    where = {"measured": "2026-11-26T14:45:58+00:00", "machine": "intel-xeon-2-cores", "commit": "2" * 40}
    return [named | found | where | {"dirty": False, "versions": {"torch": "2.9.1", "timm": "1.0.31"}}]


def test_a_setting_that_stands_twice_is_refused(place: Path) -> None:
    row = measured_row(place)
    files = files_in(archived(place)) | {"bench/train.json": json.dumps([row, row]).encode()}
    with pytest.raises(UserError, match="row 1 has the settings of another row"):
        unpack(write(place / "c.tar.gz", files), place / "aside")


# ---------------------------------------------------------------------------------- texts


TEXTS = st.text(max_size=700) | st.sampled_from(STRANGE)


@given(TEXTS)
def test_texts_of_an_archive_are_of_one_form_and_stay(text: str) -> None:
    for made, form in ((as_name(text), allowed.SHORT), (as_sentence(text), allowed.SENTENCE)):
        assert form.fullmatch(made), made
    assert as_name(as_name(text)) == as_name(text) and as_sentence(as_sentence(text)) == as_sentence(text)
    assert own_lines(own_lines(text)) == own_lines(text)
    assert all(allowed.is_own(line) for line in own_lines(text).splitlines())


@given(st.lists(st.sampled_from(places(VALUE)), min_size=1, max_size=3), TEXTS)
def test_what_a_maker_sends_a_receiver_takes(where: list[str], text: str) -> None:
    """Any text in a record that its own type takes is brought into the form that is let through."""
    value = json.loads(json.dumps(VALUE))
    for one in where:
        if re.match(r"host/(device|cpu|os|driver)$|timing/how|energy/reason|platform/", one):
            put_at(one, text, value)
    try:
        value = Record.model_validate(value).model_dump(mode="json")
    except ValidationError:
        return
    kept = Record.model_validate(conforming(value, False))
    assert not [*odd_in_record(kept)]
    assert conforming(kept.model_dump(mode="json"), False) == kept.model_dump(mode="json")


@pytest.mark.parametrize(
    "name", ["host/cpu", "host/os", "host/device", "versions/torch", "commit", "started"]
)
@pytest.mark.parametrize("text", STRANGE)
def test_a_text_of_another_form_is_refused(name: str, text: str) -> None:
    value = json.loads(json.dumps(VALUE))
    put_at(name, text, value)
    assert any(name.replace("/", ".") in problem for problem in odd_in_record(Record.model_validate(value)))


@pytest.mark.parametrize("where", ["images", "positive_images", "positive_images/Mass", "settings/images"])
@pytest.mark.parametrize("key", ["=HYPERLINK(1)", "<b>", "a" * 5000, "\u202ex"])
def test_a_key_of_another_form_is_refused(where: str, key: str) -> None:
    value = json.loads(json.dumps(VALUE))
    inner: Any = value["dataset"]
    for part in where.split("/"):
        inner = inner[part]
    inner[key] = {} if where == "positive_images" else 3
    assert [*odd_in_record(Record.model_validate(value))]


def test_recorded_evidence_would_be_let_through() -> None:
    for path in sorted(DATA.glob("*/*/*/seed*/record.json")):
        record = read_record(path)
        assert not [*odd_in_record(record)], path
        assert conforming(record.model_dump(mode="json"), False) == record.model_dump(mode="json")
        log = path.with_name("train.log").read_text()
        assert own_lines(log) == log


def test_a_log_of_other_lines_is_refused_and_a_failed_runs_is_sent_only_when_asked(place: Path) -> None:
    files = files_in(archived(place))
    for text in (
        b"x = 1\n",
        b"\0" * 5000,
        files[LOG] + b"epoch 4/3: train loss nan, val loss 1, 1 s\n",
        b"a" * (1 << 20),
    ):
        sha = hashlib.sha256(text).hexdigest()
        changed = with_record(files, lambda record, sha=sha: record.update(log_sha256=sha), **{LOG: text})
        with pytest.raises(UserError, match="another form than a trainer's"):
            unpack(write(place / "c.tar.gz", changed), place / "aside")


SECRETS = (
    *("ip-10-0-0-12.ec2.internal", "gpu-node-07.cluster.example.org", "arn:aws:iam::123456789012:role/x"),
    *("i-0abc123def4567890", "AKIAABCDEFGHIJKLMNOP", "HF_TOKEN=hf_abcdefghijklmnopqrstuv", "0000:3b:00.0"),
    *(r"\\server\share\x", "~bob/x", "someone@host.example"),
)


def test_accounts_keys_and_neighbours_are_taken_out_of_what_is_sent() -> None:
    for secret in SECRETS:
        left = private.without_places(f"on {secret} we")
        assert secret.rpartition("=")[2] not in left and private.without_places(left) == left, left


PIECES = (
    "a",
    "/a",
    "1.",
    "a@",
    "~a/",
    "\\a",
    "arn:",
    "A_",
    "ip-1-",
    '"/a/',
    "aa:",
    "x://",
    "a-",
    " ",
    "<",
    "\n/a",
)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize("read", [private.without_places, own_lines, as_sentence, as_name])
def test_the_time_of_every_expression_grows_with_the_text_and_not_its_square(
    read: Callable[[str], str], piece: str
) -> None:
    def seconds(length: int) -> float:
        text, best = piece * (length // len(piece)), float("inf")
        for _ in range(3):
            begin = time.process_time()
            read(text)
            best = min(best, time.process_time() - begin)
        return max(best, 1e-3)

    # Eight times the text: 8 for what grows with it, 64 for its square.
    assert seconds(1 << 18) < 32 * seconds(1 << 15)


# ---------------------------------------------------------------------------------- files


def predictions(files: Files, folder: Path, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Files:
    """The files of an archive with other predictions, hashes made to fit."""
    (folder / "old.parquet").write_bytes(files[PARQUET])
    change(pd.read_parquet(folder / "old.parquet")).to_parquet(folder / "new.parquet", index=False)
    sha = sha256_file(folder / "new.parquet")
    changed = with_record(files, lambda record: record.update(predictions_sha256=sha))
    return changed | {PARQUET: (folder / "new.parquet").read_bytes()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.assign(extra="x" * 1000), "unknown column 'extra'"),
        (lambda rows: rows.rename(columns=lambda name: name.replace("Mass", "M\u00e4ss")), "unknown column"),
        (lambda rows: rows.assign(image="=" + rows["image"]), "is no name of one"),
        (lambda rows: rows.assign(image=rows["image"] + "\u202e"), "is no name of one"),
    ],
)
def test_columns_and_names_that_no_predictions_have_are_refused(
    place: Path, change: Any, message: str
) -> None:
    files = predictions(files_in(archived(place)), place, change)
    with pytest.raises(UserError, match=message):
        unpack(write(place / "c.tar.gz", files), place / "aside")


def test_a_key_that_stands_twice_is_refused(place: Path) -> None:
    files = files_in(archived(place))
    text = files[RECORD].replace(b'"status": "ok"', b'"status": "crashed", "status": "ok"')
    with pytest.raises(UserError, match="key 'status' stands twice"):
        unpack(write(place / "c.tar.gz", files | {RECORD: text}), place / "aside")


def test_graphs_are_of_a_network_that_the_archive_has_a_record_of(place: Path) -> None:
    sha = hashlib.sha256(b"x").hexdigest()
    files = files_in(archived(place)) | {f"graphs/phantom-32px/resnet50/{sha}.pb": b"x"}
    with pytest.raises(UserError, match="of no network that it has a record of"):
        unpack(write(place / "c.tar.gz", files), place / "aside")


def test_a_file_that_stands_twice_is_refused_by_its_kind(place: Path) -> None:
    whole = archived(place)
    with tarfile.open(whole) as tar, tarfile.open(place / "c.tar.gz", "w:gz") as twice:
        for member in [*tar, *tar]:
            twice.addfile(member, tar.extractfile(member))
    with pytest.raises(UserError, match=r"file [A-Za-z]+.* was already read from"):
        unpack(place / "c.tar.gz", place / "aside")


@pytest.mark.slow
def test_a_folder_of_no_cell_and_a_record_that_is_gone_are_named(place: Path) -> None:
    recorded = place / "data/recorded"
    for name in ("seed01", "seed\u00b2"):
        shutil.copytree(OLD.folder(recorded), OLD.folder(recorded).with_name(name))
    write_sums(recorded)
    found = verify_recorded(recorded, STUDY)
    assert found.cells == [OLD]
    for name in ("seed01", "seed\u00b2"):
        assert any(f"/{name}/record.json: in no folder of a cell" in problem for problem in found.problems)
        shutil.rmtree(OLD.folder(recorded).with_name(name))
    with pytest.raises(UserError, match="is not a cell"):
        Cell.parse(str(OLD).replace("seed1", "seed01"))
    copy_evidence(NEW.folder(DATA), NEW.folder(recorded))
    write_sums(recorded)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        ran(*git, *words, cwd=place, check=True)
    assert verify_recorded(recorded, STUDY).notes == []
    shutil.rmtree(NEW.folder(recorded))
    write_sums(recorded)
    for _ in range(2):  # in the work tree, then in a commit
        (note,) = verify_recorded(recorded, STUDY).notes
        assert f"{NEW}/record.json: was recorded, and is no more" in note
        ran(*git, "commit", "-qam", "y", cwd=place)
    (place / "data/expected_status.csv").write_text(
        f"cell,status,reason\n{NEW},crashed,x\n{OLD},ok,x\n*/x,ok,x\n"
    )
    (_, note) = verify_recorded(recorded, STUDY).notes
    assert f"expected_status.csv: {NEW} has a reviewed outcome" in note


# ---------------------------------------------------------------------------------- forgeries


def forge_scores(files: Files, folder: Path, scores: np.ndarray) -> Files:
    return predictions(files, folder, lambda rows: rows.assign(**dict(zip(SCORES, scores.T, strict=True))))


def test_the_scores_of_another_seed_with_noise_are_no_run(place: Path) -> None:
    old = pd.read_parquet(OLD.folder(DATA) / "predictions.parquet")
    noise = np.random.default_rng(0).uniform(-1e-7, 1e-7, (len(old), len(SCORES)))
    folder = NEW.folder(place / "results/runs")
    copy_evidence(OLD.folder(DATA), folder)
    value = json.loads((folder / "record.json").read_text()) | {"cell": str(NEW)}
    (folder / "record.json").write_text(json.dumps(value))
    files = forge_scores(
        files_in(archived(place)), place, np.clip(old[SCORES] + noise, 0, 1).to_numpy("float32")
    )
    said = must_fail(*received(write(place / "c.tar.gz", files)), cwd=place)
    assert re.search(r"orders the test images as \S+ does \(rank correlation 1.000\)", said)


def faster(record: Any) -> None:
    """All times and speeds 50 times better, alike."""
    for name in ("setup", "train", "evaluate"):
        record["timing"][f"{name}_seconds"] /= 50
    record["timing"]["images_per_second"] *= 50
    for epoch in record["history"]:
        epoch["train_seconds"] /= 50
        epoch["eval_seconds"] /= 50


@pytest.mark.slow
@pytest.mark.fault(
    "a contribution contradicts itself, its machine or its time", "the contradiction; nothing kept"
)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (faster, "epoch 1: seconds is "),
        (lambda record: record["history"][1].update(train_loss=0.01), "epoch 2: train loss is "),
        (
            lambda record: record.update(
                started="2098-01-01T00:00:00+00:00", ended="2099-01-01T00:00:00+00:00"
            ),
            "after this machine's clock",
        ),
        (lambda record: record.update(micro_batch=3), "which does not divide the batch"),
        (lambda record: record["host"].update(cores=9**17), "host.cores is"),
        (lambda record: record["host"].update(memory_gib=0), "host.memory_gib is 0"),
        (lambda record: record.update(peak_memory_mib=1e6), "more than the machine's"),
        (lambda record: record["dataset"]["settings"].update(x="y"), "unknown key 'x'"),
    ],
)
def test_a_cheap_contradiction_is_refused(place: Path, change: Any, message: str) -> None:
    archive = write(place / "c.tar.gz", with_record(files_in(archived(place)), change))
    before = tree(place)
    assert message in must_fail(*received(archive), cwd=place)
    assert tree(place) == before


@pytest.mark.slow
def test_what_is_unusual_and_may_be_true_is_shown(place: Path) -> None:
    """Test scores like the labels: nothing contradicts them, and whoever receives them is told to look."""

    def better(rows: pd.DataFrame) -> pd.DataFrame:
        of_test = rows["split"] == "test"
        for name in SCORES:
            label = rows[name.replace("score_", LABEL)].astype("float32")
            rows[name] = rows[name].where(~of_test, 0.5 * rows[name] + 0.5 * label)
        return rows

    files = predictions(files_in(archived(place)), place, better)
    done = must_work(*received(write(place / "c.tar.gz", files)), cwd=place)
    assert re.search(r"^Look at: .*macro AUROC is 1.000 on test", done.stdout, re.M)
    assert "look at: " in must_work("verify", cwd=place).stdout


def test_first_epochs_of_other_processors_agree_and_those_of_other_seeds_do_not() -> None:
    """Recorded runs of the phantoms and of ConvNeXt, each beside all others of its network."""
    runs = [read_record(path) for path in sorted(DATA.glob("*/*/*cpu/seed*/record.json"))]
    kept = [run for run in runs if run.cell.startswith("phantom-") or "/convnext_pico/" in run.cell]
    kept = [run for run in kept if run.recipe["precision"] == "fp32" and "arith" not in run.cell]
    pairs = {True: 0, False: 0}
    for one, other in itertools.permutations(kept, 2):
        (_, network, _, seed), (_, others, _, of_other) = one.cell.split("/"), other.cell.split("/")
        same = one.dataset.packed == other.dataset.packed and one.recipe_hash == other.recipe_hash
        if same and network == others:
            again = FirstEpoch(other.history[0], steady=network.startswith("convnext"))
            agrees, words = again.beside(one.history[0])
            if seed == of_other or again.steady:
                assert agrees == (seed == of_other), (one.cell, other.cell, words)
            pairs[agrees] += 1
    assert min(pairs.values()) >= 20


@pytest.mark.slow
@pytest.mark.fault(
    "the history of a contribution is another seed's, and every hash made to fit",
    "with --repeat: both losses of its first epoch; nothing kept",
)
def test_a_history_that_the_cell_does_not_give_is_refused(place: Path) -> None:
    again = ("--repeat", "--registry", ROOT / "data/registry.csv", "--packed", place / "packed")
    files = files_in(archived(place))
    value, other = json.loads(files[RECORD]), read_record(OLD.folder(DATA)).history[0]
    lines = files[LOG].decode().splitlines(keepends=True)
    lines[0] = f"epoch 1/3: train loss {other.train_loss:.4f}, val loss {other.val_loss:.4f}, "
    lines[0] += f"{value['history'][0]['train_seconds']:.1f} s\n"
    value["history"][0] |= {"train_loss": other.train_loss, "val_loss": other.val_loss}
    log = "".join(lines).encode()
    value["log_sha256"] = hashlib.sha256(log).hexdigest()
    forged = files | {RECORD: json.dumps(value).encode(), LOG: log}
    before = tree(place)
    said = must_fail(*received(write(place / "c.tar.gz", forged)), *again, cwd=place)
    assert (
        f"train_loss {other.train_loss:.6f} in its record" in said
        and "tolerance 0.003" in said
        and "nothing was recorded" in said
    )
    assert tree(place) == before
    done = must_work(*received(write(place / "c.tar.gz", files)), *again, cwd=place)
    assert re.search(
        rf"^{NEW}: first epoch trained again: train_loss 0.243082 in its record", done.stdout, re.M
    )
    assert f"recorded {NEW}" in done.stderr


# ---------------------------------------------------------------------------------- the promise


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from([*ROWS, "versions"]), key=st.text(max_size=3), value=JSON, at=st.integers(0, 40))
def test_no_value_of_a_row_passes_that_a_build_could_not_use(
    kind: str, key: str, value: Any, at: int
) -> None:
    """What passes keeps its types: numbers stay finite numbers, texts keep their form."""
    model = ROWS.get(kind, Versions)
    row = {"format": 1, "commit": "0" * 40, "versions": {"torch": "2.9.1"}}
    if kind in ROWS:
        row = rows_of(kind)[0]
    name = [*row, key][at % (len(row) + 1)]
    try:
        made = model.model_validate(row | {name: value})
    except ValidationError:
        return
    text = json.dumps(made.model_dump(mode="json"), allow_nan=False, ensure_ascii=False)
    assert not set(text) & set("<=\u202e\u2603\x1b") or name == "joules_reason", text


def fuzzed(draw: st.DrawFn, files: Files) -> Files:
    """The files of an archive with one to three mutations of bytes, values or files."""
    files = dict(files)
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(files)))
        match draw(st.sampled_from(["value", "bytes", "repeat", "rename", "remove"])):
            case "value" if name.endswith(".json"):
                try:
                    value = json.loads(files[name])
                    put_at(draw(st.sampled_from(places(value)[1:] or [""])), draw(JSON), value)
                    files[name] = json.dumps(value).encode()
                except (ValueError, KeyError, IndexError, TypeError):
                    continue
            case "bytes" | "value":
                data, at = bytearray(files[name]), draw(st.integers(0, len(files[name])))
                data[at : at + draw(st.integers(0, 4))] = draw(st.binary(max_size=4))
                files[name] = bytes(data)
            case "repeat":
                files[name] = files[name] + draw(st.sampled_from([b"a", b"/a", b"1.", b"\0"])) * 100_000
            case "rename":
                files[draw(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))] = files[name]
            case "remove" if len(files) > 1:
                del files[name]
    return files


def memory(name: str) -> int:
    """Bytes of this process: resident (VmRSS), or their peak (VmHWM)."""
    return 1024 * int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1])


@pytest.mark.slow
@pytest.mark.fault(
    "archives of strangers are changed at random", "refused or shown in full, in bounds; nothing else changes"
)
def test_an_archive_is_refused_or_shown_in_bounds_and_changes_nothing_recorded(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The promise of docs/contribute.md: a minute of time, 1 GiB of memory, no file but in its own folder."""
    monkeypatch.chdir(place)
    row = measured_row(place)
    whole = files_in(archived(place)) | {"bench/train.json": json.dumps([row]).encode()}
    outside, taken = tree(place), 0
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the tests before this one
    memory_before = memory("VmRSS")

    @settings(max_examples=100, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def refused_or_shown(data: st.DataObject) -> None:
        nonlocal taken
        files = data.draw(st.composite(fuzzed)(whole))
        shutil.rmtree(aside := place / "aside", ignore_errors=True)
        aside.mkdir()
        begin = time.process_time()
        try:
            archive = write(
                place / "c.tar.gz",
                {name: data for name, data in files.items() if "\0" not in name and "/" not in name[-1:]},
            )
        except (OSError, ValueError, UnicodeError):
            return
        try:
            cells = unpack(archive, aside)
            taken += 1
            assert [str(cell) for cell in cells] and all(
                not [*odd_in_record(read_record(c.folder(aside / "records")))] for c in cells
            )
        except UserError as error:
            assert str(error).isprintable() and len(str(error)) < 3000
        assert time.process_time() - begin < 60

    refused_or_shown()
    assert tree(place) == outside
    assert taken < 100  # most are refused
    assert memory("VmHWM") - memory_before < MOST_MEMORY


HUNGRY = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from cxrbench.evidence import received

def eat(folder):
    data = bytearray({size})
    data[::4096] = b"x" * len(data[::4096])
    while {endless}:
        pass

received.unpack = lambda archive, folder: eat(folder) or []
received.MOST_SECONDS = {seconds}
if __name__ == "__main__":
    try:
        received.unpack_limited(Path("c.tar.gz"), Path("x"))
    except received.UserError as error:
        print(error)
"""


@pytest.mark.slow
@pytest.mark.fault("reading an archive takes more than 1 GiB or its time", "refused; the reader is stopped")
@pytest.mark.parametrize(
    ("size", "endless", "message"),
    [
        (MOST_MEMORY + (1 << 28), False, "takes more than 1024 MiB of memory"),
        (1, True, "takes more than 3 s"),
    ],
)
def test_a_reader_that_needs_too_much_is_stopped(
    tmp_path: Path, size: int, endless: bool, message: str
) -> None:
    script = tmp_path / "hungry.py"
    script.write_text(
        HUNGRY.format(paths=[str(ROOT / "src")], size=size, endless=endless, seconds=3 if endless else 60)
    )
    done = ran("python", script, cwd=tmp_path)
    assert message in done.stdout, done.stdout + done.stderr[-2000:]


@pytest.mark.slow
def test_the_limited_reader_reads_what_the_other_reads(place: Path) -> None:
    archive = archived(place)
    assert unpack_limited(archive, place / "one") == unpack(archive, place / "two") == [NEW]
    assert verify_recorded(DATA, STUDY).problems == []


def test_a_drivers_version_is_no_address() -> None:
    row = {"driver": "aws-neuronx-dkms 2.29.0.0", "device": "10.0.0.1", "rows": [{"driver": "2.31.1.0"}]}
    assert private.cleaned(row, private.without_places) == row | {"device": "<address>"}
