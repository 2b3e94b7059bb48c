"""Recorded evidence: what is intact passes, damaged files are named, manipulations are found or admitted."""

import json
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from columns import LABELS, SCORES
from conftest import GONE, ROOT, must_fail, must_work, put_at, ran
from cxrbench.common.files import sha256_file
from cxrbench.evidence.history import commit_problems, other_recipes
from cxrbench.evidence.predictions import read_predictions
from cxrbench.evidence.record import read_record
from cxrbench.evidence.sums import read_sums, refused_measurement, sums_of, write_sums
from cxrbench.evidence.verify import NOT_SHOWN, verify_recorded
from cxrbench.study.config import read_study
from cxrbench.study.names import Cell, find_cells

DATA = ROOT / "data/recorded"
CELL, OTHER = (f"nih128-64px/resnet18/cpu/seed{seed}" for seed in (0, 1))
STUDY = read_study(ROOT / "config/config.yaml")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Two recorded cells in a folder that no git repository holds."""
    for cell in (CELL, OTHER):
        shutil.copytree(DATA / cell, tmp_path / "recorded" / cell)
    write_sums(tmp_path / "recorded")
    return tmp_path / "recorded"


def problems_of(root: Path) -> str:
    return "\n".join(verify_recorded(root, STUDY).problems)


def forge(root: Path, cell: str = CELL, record: Callable[[Any], Any] | None = None, **files: Any) -> None:
    """Change a cell's record and predictions and make every hash fit again."""
    folder = root / cell
    if "rows" in files:
        table = pd.read_parquet(folder / "predictions.parquet")
        changed = files["rows"](table)
        (table if changed is None else changed).to_parquet(folder / "predictions.parquet", index=False)
    path = folder / "record.json"
    value = json.loads(path.read_text())
    value = (record(value) or value) if record else value
    if value["predictions_sha256"]:
        value["predictions_sha256"] = sha256_file(folder / "predictions.parquet")
    path.write_text(json.dumps(value))
    write_sums(root)


def put(where: str, value: Any) -> Callable[[Any], Any]:
    """A change of one value of a record: ``put("host/cpu", "x")``."""
    return partial(put_at, where, value)


def test_intact_evidence_passes_and_its_limits_are_stated(recorded: Path) -> None:
    assert must_work("verify", "--recorded", recorded).stdout.splitlines() == [
        "2 recorded cells are intact",
        f"unsigned: {recorded}/SHA256SUMS.sig does not exist",
        f"not checked: commits: {recorded} is in no git repository here, or in one without its history",
        NOT_SHOWN,
    ]


def test_nothing_to_check_is_not_intact(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "recroded"):
        assert "nothing is recorded there" in must_fail("verify", "--recorded", folder)


def test_leftovers_of_others_are_no_cells_and_damaged_sums_are_named(recorded: Path) -> None:
    (recorded / CELL / ".record.json.x.part").write_text("{")
    assert not any(".part" in name for name in sums_of(recorded))
    shutil.copytree(recorded / CELL, recorded / f"{CELL}.bak")
    assert [str(cell) for cell in find_cells(recorded)] == [CELL, OTHER]
    sums = recorded / "SHA256SUMS"
    sums.write_bytes(b"\xff" + sums.read_bytes()[1:])
    found = problems_of(recorded)
    assert f"{CELL}/predictions.parquet: differs from its line in SHA256SUMS" in found
    assert "seed0.bak/train.log: is not listed in SHA256SUMS" in found


@pytest.mark.parametrize(
    "change", [str.upper, lambda text: text + text, lambda text: text.replace("t", "\0")]
)
def test_sums_that_are_not_as_record_writes_them_are_named(recorded: Path, change) -> None:
    path = recorded / "SHA256SUMS"
    path.write_text(change(path.read_text()))
    assert "SHA256SUMS" in problems_of(recorded)


@pytest.mark.parametrize("name", ["record.json", "predictions.parquet", "train.log"])
def test_one_flipped_byte_is_found(recorded: Path, name: str) -> None:
    path = recorded / CELL / name
    data = bytearray(path.read_bytes())
    data[int(0.7 * len(data))] ^= 1
    path.write_bytes(data)
    assert f"{CELL}/{name}: differs from its line in SHA256SUMS; make it again" in problems_of(recorded)


def test_a_missing_or_added_file_is_found(recorded: Path) -> None:
    (recorded / CELL / "train.log").unlink()
    (recorded / CELL / "extra\x1b[31m.txt").write_text("x")
    said = must_fail("verify", "--recorded", recorded)
    assert f"{CELL}/train.log: is missing, but listed in SHA256SUMS" in said
    assert r"extra\x1b[31m.txt: is not listed" in said and "\x1b" not in said


def repository(folder: Path) -> str:
    """Make a git repository of ``folder`` with a trainer and a study, all committed; return the commit."""
    for name in ("src/cxrbench/training/method.py", "config/config.yaml"):
        (folder / name).parent.mkdir(parents=True)
        shutil.copyfile(ROOT / name, folder / name)
    ran("git", "-C", folder, "init", "-q", check=True)
    return committed(folder)


def committed(folder: Path, part: str = ".") -> str:
    """Commit a ``part`` of ``folder``, as of a day before any recorded run; return the commit."""
    git = ["git", "-C", folder, "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["add", part], ["commit", "-qm", "x", "--date", "2026-01-01T00:00:00Z"]):
        ran(*git, *words, check=True, env={"GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"})
    return ran(*git, "rev-parse", "HEAD", check=True).stdout.strip()


def test_git_is_named_as_the_remedy_where_it_has_a_copy(recorded: Path) -> None:
    repository(recorded)
    (recorded / CELL / "train.log").unlink()
    (recorded / OTHER / "record.json").write_text("{")
    (recorded / "new.csv").write_text("x")
    found = problems_of(recorded)
    for name in (f"{CELL}/train.log", f"{OTHER}/record.json"):
        assert f"restore it: git checkout HEAD -- {recorded / name}" in found
    assert "new.csv: is not listed in SHA256SUMS; make it again" in found


@pytest.mark.fault("a folder of recorded evidence is a link", "verify and builds name it")
@pytest.mark.parametrize("part", [CELL, "nih128-64px", f"{CELL}/train.log"])
def test_a_link_is_named(recorded: Path, part: str) -> None:
    shutil.move(recorded / part, recorded.parent / "elsewhere")
    (recorded / part).symlink_to(recorded.parent / "elsewhere")
    write_sums(recorded)
    assert f"{recorded / part}: a link, which is no evidence" in must_fail("verify", "--recorded", recorded)
    assert "a link, which is no evidence" in (refused_measurement(recorded) or "")


def test_columns_in_another_order_are_no_difference(recorded: Path) -> None:
    forge(recorded, rows=lambda rows: rows[[*rows.columns[::-1]]])
    assert problems_of(recorded) == ""


def test_patients_of_another_type_are_no_difference(recorded: Path) -> None:
    for cell, kind in ((CELL, "int32"), (OTHER, "int64")):
        forge(recorded, cell, rows=lambda rows, kind=kind: rows.assign(patient=-rows["patient"].astype(kind)))
    found = problems_of(recorded)
    assert "patient of image" in found and "is not the same in both" not in found


# ---------------------------------------------------------------------------------- malformed files


@pytest.mark.fault("rows of predictions.parquet are malformed, hashes remade", "file, column and reason")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.drop(columns="patient"), "column patient is missing"),
        (lambda rows: rows.assign(image=range(len(rows))), "image must hold string values only, not integer"),
        (
            lambda rows: rows.astype({"score_Mass": str}),
            "score_Mass must hold floating values only, not string",
        ),
    ],
)
def test_malformed_predictions_are_named(recorded: Path, change, message: str) -> None:
    forge(recorded, rows=change)
    found = [line for line in verify_recorded(recorded, STUDY).problems if message in line]
    assert found and found[0].startswith(f"{recorded / CELL / 'predictions.parquet'}: ")


@pytest.mark.slow
@pytest.mark.fault("record.json is malformed, sums remade", "file, key and reason")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"dataset": {', '"dataset": null, "x": {', "key 'x': Extra inputs are not permitted"),
        ('"epoch": 20', '"epoch": ' + "9" * 5000, "is not a number that a record has"),
        ('"attempts": 4', '"attempts": 1e999', "is not a number that a record has"),
        ('"train_loss": 0.159138991615989', '"train_loss": NaN', "NaN is not a number"),
        ('"platform": {', '"platform": {"x": ' + "[" * 100_000 + "]" * 100_000 + ",", "nested too deeply"),
        ('"device": "CPU (AVX512)"', '"device": "\ud800"', "not a readable record ('utf-8' codec"),
        ('"device": "CPU (AVX512)"', '"device": "\\ud800"', "surrogates not allowed"),
        ('"cell"', '"sell"', "key 'cell': Field required"),
        ("{", "[{", "not a readable record"),
    ],
)
def test_a_malformed_record_is_named(recorded: Path, old: str, new: str, message: str) -> None:
    path = recorded / CELL / "record.json"
    text = path.read_text()
    assert old in text
    path.write_bytes(text.replace(old, new, 1).encode(errors="surrogatepass"))
    write_sums(recorded)
    found = [line for line in verify_recorded(recorded, STUDY).problems if message in line]
    assert found and found[0].startswith(str(path)), problems_of(recorded)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


def places(value: Any, where: str = "") -> list[str]:
    inner = value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    return [where.strip("/"), *(p for key, one in inner for p in places(one, f"{where}/{key}"))]


PLACES = places(json.loads((DATA / CELL / "record.json").read_text()))[1:]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One recorded cell with few rows: thousands of changes are tried on it."""
    root = tmp_path_factory.mktemp("small")
    shutil.copytree(DATA / CELL, root / CELL)
    forge(root, rows=lambda rows: rows.iloc[::50])
    return root


@pytest.mark.slow
@pytest.mark.fault("bytes of recorded files are changed at random, hashes remade", "a message or the answer")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["record.json", "predictions.parquet", "SHA256SUMS"]),
    changes=st.lists(st.tuples(st.integers(0), st.binary(max_size=4), st.integers(0, 4)), max_size=4),
)
def test_no_change_of_bytes_gives_a_traceback(small: Path, name: str, changes) -> None:
    path = small / name if name == "SHA256SUMS" else small / CELL / name
    kept = {each: each.read_bytes() for each in (path, small / "SHA256SUMS", small / CELL / "record.json")}
    try:
        data = bytearray(kept[path])
        for place, added, removed in changes:
            place %= len(data) + 1
            data[place : place + removed] = added
        path.write_bytes(data)
        if name == "predictions.parquet":
            forge(small)
        elif name == "record.json":
            write_sums(small)
        same = bytes(data) == kept[path]
        assert same or verify_recorded(small, STUDY).problems
    finally:
        for each, content in kept.items():
            each.write_bytes(content)


@pytest.mark.slow
@pytest.mark.fault("random values of record.json are replaced, sums remade", "a message or the answer")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=JSON)
def test_no_value_of_a_record_gives_a_traceback(small: Path, place: str, value: Any) -> None:
    path = small / CELL / "record.json"
    kept = path.read_bytes()
    try:
        record = json.loads(kept)
        put(place, value)(record)
        path.write_text(json.dumps(record))
        write_sums(small)
        assert all(line.isprintable() for line in verify_recorded(small, STUDY).problems)
    finally:
        path.write_bytes(kept)
        write_sums(small)


# ---------------------------------------------------------------------------------- manipulations


def rewritten(change: Callable[[pd.DataFrame], pd.DataFrame | None]) -> Callable[[Path], None]:
    """A manipulation of predictions in which the record's counts are made to fit too."""

    def apply(root: Path) -> None:
        def both(record: Any) -> None:
            rows = read_predictions(root / CELL / "predictions.parquet")
            dataset = record["dataset"]
            for split, part in rows.groupby("split"):
                dataset["images"][split], dataset["patients"][split] = len(part), part["patient"].nunique()
                for label in LABELS:
                    finding = label.removeprefix("label_")
                    dataset["positive_images"][finding][split] = int(part[label].sum())

        forge(root, rows=change)
        forge(root, record=both)

    return apply


def better(part: str) -> Callable[[pd.DataFrame], None]:
    def change(rows: pd.DataFrame) -> None:
        of_part = rows["split"] == part
        right = 0.9 * rows[SCORES].to_numpy() + 0.1 * rows[LABELS].to_numpy()
        rows.loc[of_part, SCORES] = right[of_part].astype("float32")

    return change


def hard_rows_dropped(rows: pd.DataFrame) -> pd.DataFrame:
    hard = (rows["split"] == "test") & (rows["label_Mass"] == 1) & (rows["score_Mass"] < 0.02)
    assert hard.any()
    return rows[~hard]


def copied(root: Path, platform: str, **values: Any) -> str:
    """A copy of CELL as a cell of another platform, with ``values`` in its record; returns its name."""
    cell = CELL.replace("/cpu/", f"/{platform}/")
    shutil.copytree(root / CELL, root / cell)
    forge(root, cell, record=lambda record: record | {"cell": cell} | values)
    return cell


def forged_neuron_cell(root: Path) -> None:
    forge(root, copied(root, "neuron"), record=put("host/device", "Trainium NeuronCore (trn1)"))


def forged_cuda_cell(root: Path) -> None:
    forge(root, copied(root, "cuda"), rows=better("test"))


def forged_cuda_cell_in_setup(root: Path) -> None:
    cell = copied(root, "cuda", phase="setup")
    forge(root, cell, rows=lambda rows: rows.assign(**(rows[SCORES] * 0.999).astype("float32")))


def copied_from_another_seed(root: Path) -> None:
    rows = read_predictions(root / OTHER / "predictions.parquet")
    forge(root, rows=lambda _: rows[[*rows.columns[::-1]]])


def exchanged_predictions(root: Path) -> None:
    one, other = root / CELL / "predictions.parquet", root / OTHER / "predictions.parquet"
    first = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(first)
    forge(root)
    forge(root, OTHER)


def exchanged_cells(root: Path) -> None:
    (root / CELL).rename(root / "x")
    (root / OTHER).rename(root / CELL)
    (root / "x").rename(root / OTHER)
    write_sums(root)


def exchanged_and_renamed_cells(root: Path) -> None:
    exchanged_cells(root)
    forge(root, CELL, record=put("cell", CELL))
    forge(root, OTHER, record=put("cell", OTHER))


def exchanged_architectures(root: Path) -> None:
    cell = OTHER.replace("resnet18", "convnext_pico")
    shutil.copytree(DATA / cell, root / cell)
    shutil.rmtree(root / OTHER)
    (root / cell).rename(root / OTHER)
    forge(root, OTHER, record=put("cell", OTHER))


def changed(where: str, value: Any) -> Callable[[Path], None]:
    return lambda root: forge(root, record=put(where, value))


def twice_as_fast(root: Path) -> None:
    speed = json.loads((root / CELL / "record.json").read_text())["timing"]["images_per_second"]
    forge(root, record=put("timing/images_per_second", 2 * speed))


def twice_as_fast_in_many_attempts(root: Path) -> None:
    twice_as_fast(root)
    forge(root, record=put("attempts", 99))


def without_its_log(root: Path) -> None:
    (root / CELL / "train.log").unlink()
    forge(root, record=put("log_sha256", None))


def assigned(**columns: Callable[[pd.DataFrame], Any]) -> Callable[[Path], None]:
    return rewritten(lambda rows: rows.assign(**columns))


NEURON, SWAPPED = "a Neuron cell copied from a CPU cell", {"val": "test", "test": "val"}
FOUND = [
    ("better scores in validation", rewritten(better("val")), "macro AUROC of the validation part"),
    ("doubled speed", twice_as_fast, "images_per_second is 308.9, the epochs of history allow"),
    ("doubled speed, many attempts", twice_as_fast_in_many_attempts, "the epochs of history allow"),
    (NEURON, forged_neuron_cell, "neuron/seed0/record.json: host.driver is missing"),
    (NEURON, forged_neuron_cell, "host.sdk is None, which does not name neuronx-cc"),
    (NEURON, forged_neuron_cell, "versions.torch_neuronx is missing"),
    (NEURON, forged_neuron_cell, "platform.compiler_flags is missing"),
    (NEURON, forged_neuron_cell, "timing.compiles is 0, which cannot be on neuron"),
    (NEURON, forged_neuron_cell, f"has the same predictions as {CELL}"),
    ("a CUDA cell made from a CPU cell", forged_cuda_cell, "host.device is CPU (AVX512) of None GiB"),
    ("a CUDA cell in setup", forged_cuda_cell_in_setup, "phase is setup, which does not fit status ok"),
    ("another seed's, columns turned", copied_from_another_seed, "orders the test images as"),
    ("cells exchanged", exchanged_cells, "move it to the folder of that cell"),
    ("predictions exchanged", exchanged_predictions, "macro AUROC of the validation part"),
    ("an architecture exchanged", exchanged_architectures, "8537806 parameters; resnet18 has 11177422"),
    ("hard rows dropped", rewritten(hard_rows_dropped), "is not the same in both"),
    ("hard rows dropped, counts left", lambda root: forge(root, rows=hard_rows_dropped), "images.test is"),
    ("val and test swapped", assigned(split=lambda r: r["split"].map(SWAPPED)), "by the study's split"),
    (
        *("a label changed", assigned(label_Hernia=lambda r: (r["label_Hernia"] + (r.index == 0)) % 2)),
        "differs from NIH's label table",
    ),
    (
        "another patient",
        assigned(patient=lambda r: r["patient"] + 10**5 * (r.index == 0)),
        "patient of image",
    ),
    ("images renamed", assigned(image=lambda r: "chestmnist_" + r["image"]), "is not in NIH's label table"),
    ("images called drawn", assigned(image=lambda r: "phantom_" + r["image"]), "is not in NIH's label table"),
    ("a start after the end", changed("started", "2027-01-01T00:00:00+00:00"), "before it started"),
    ("a date that is none", changed("ended", "yesterday"), "is not a moment with its time zone"),
    ("a shorter run", changed("ended", "2026-11-21T11:00:00+00:00"), "between start and end"),
    ("a negative time", changed("timing/setup_seconds", -1.0), "timing.setup_seconds is -1.0"),
    ("no time", changed("timing/setup_seconds", float("nan")), "NaN is not a number"),
    ("too little training", changed("timing/train_seconds", 9.0), "the epochs of history took"),
    ("another recipe", changed("recipe/epochs", 40), "recipe_hash is 62c78c5409725e3a, that of its recipe"),
    ("an impossible recipe", changed("recipe/batch", -1), "recipe.batch: Input should be greater than 0"),
    ("an epoch taken out", changed("history/3", GONE), "history has the epochs"),
    ("no validation AUROC", changed("history/19/val_auroc", None), "against its labels"),
    (
        "a validation AUROC of 5",
        changed("history/3/val_auroc", 5.0),
        "key 'history.3.val_auroc': Input should",
    ),
    ("no dataset", changed("dataset", None), "dataset is null"),
    ("no parameters", changed("parameters", None), "parameters is null"),
    ("no versions", changed("versions", {}), "versions.torch is null"),
    ("no attempt", changed("attempts", 0), "key 'attempts': Input should be greater than"),
    ("one attempt", changed("attempts", 1), "attempts is 1, and its log tells of 4 starts"),
    ("no log", without_its_log, "train.log: missing, and every trainer writes one"),
    (
        "a failure",
        changed("failure", {"kind": "x", "fingerprint": "x"}),
        "failure is given, but status is ok",
    ),
    (
        "a lost count",
        changed("dataset/images/val", GONE),
        "images.val is 938, in the record's dataset nothing",
    ),
]


@pytest.mark.fault(
    "recorded evidence is manipulated and every hash remade", "verify names cell and contradiction"
)
@pytest.mark.parametrize(("what", "manipulate", "message"), FOUND, ids=[f"{a}: {c}" for a, _, c in FOUND])
def test_a_manipulation_is_found(recorded: Path, what: str, manipulate, message: str) -> None:
    manipulate(recorded)
    found = problems_of(recorded)
    assert message in found, f"{what}: {found}"
    assert "SHA256SUMS" not in found


NOT_FOUND = [
    ("better scores of the test part", rewritten(better("test"))),
    ("another processor", changed("host/cpu", "AMD EPYC 9R14")),
    ("another day", lambda root: (changed("started", "2025-11-21T10:54:58+00:00")(root),
                                  changed("ended", "2025-11-21T11:16:41+00:00")(root))),
    ("seeds exchanged, names too", exchanged_and_renamed_cells),
]  # fmt: skip


@pytest.mark.fault("a whole run is made up so that it fits", "verify states that it cannot show this")
@pytest.mark.parametrize(("what", "manipulate"), NOT_FOUND, ids=[what for what, _ in NOT_FOUND])
def test_what_cannot_be_found_is_what_verify_says_it_cannot_show(
    recorded: Path, what: str, manipulate
) -> None:
    manipulate(recorded)
    assert problems_of(recorded) == ""
    assert "Scores, times and machines can be made up to fit" in NOT_SHOWN


def test_a_commit_must_be_in_git_and_older_than_the_run(recorded: Path) -> None:
    commit = repository(recorded)
    found = problems_of(recorded)
    assert found.count("is not in git; fetch it, or record the cell again") == 2
    for cell in (CELL, OTHER):
        forge(recorded, cell, record=put("commit", commit))
    assert problems_of(recorded) == ""
    forge(recorded, record=put("started", "2025-11-21T10:54:58+00:00"))
    assert "before its commit" in problems_of(recorded)
    forge(recorded, record=put("commit", "--all"))
    assert "commit --all is not in git" in problems_of(recorded)


def test_another_recipe_than_that_of_its_commit_is_named(recorded: Path) -> None:
    commit, study = repository(recorded), recorded / "config/config.yaml"
    for cell in (CELL, OTHER):  # not as they were committed, so nobody knows when they will be
        forge(recorded, cell, record=put("commit", commit))

    def beside(text: str) -> tuple[str, str]:
        """What contradicts, and what is another recipe than, a study whose commit both records name."""
        study.write_text(text)
        named = committed(recorded, "config") if text != given else commit
        records = {
            Cell.parse(cell): read_record(recorded / cell).model_copy(update={"commit": named})
            for cell in (CELL, OTHER)
        }
        recipes = (text for _, text in other_recipes(recorded, records))
        return "\n".join(commit_problems(recorded, records, [])), "\n".join(recipes)

    given = study.read_text()
    assert given.count("epochs: 20\n") == 1
    assert beside(given) == ("", "")
    problems, recipes = beside(given.replace("epochs: 20\n", "epochs: 21\n"))
    assert problems == "" and len(re.findall("gives nih128-64px [0-9a-f]{16} ", recipes)) == 2
    assert beside(given.replace("epochs: 20\n", "epochs: many\n")) == ("", "")  # read by its version alone
    assert "or no study" in beside("datasets: [")[0]
    assert "no dataset nih128-64px" in beside("datasets: {x: 1}\nrecipes: {}")[0]


def test_a_machine_with_all_that_neuron_records_passes(recorded: Path) -> None:
    """The facts that platforms/neuron.py writes, as a record holds them."""
    cell = copied(recorded, "neuron")
    shutil.rmtree(recorded / CELL)
    host = {"device": "Trainium NeuronCore (NEURON)", "device_count": 2, "device_memory_gib": 16.0}
    host |= {"driver": "aws-neuronx-dkms 2.22", "sdk": "neuronx-cc 2.21, torch-neuronx 2.9, libneuronxla 2.2"}

    def facts(record: Any) -> None:
        record["host"] |= host
        record["versions"]["torch_neuronx"] = "2.9"
        record["platform"] |= {"compiler_flags": "--optlevel=2", "compile_cache": "/var/tmp/cache"}
        record["timing"]["compiles"] = 4

    forge(recorded, cell, record=facts)
    assert problems_of(recorded) == ""


def test_a_failed_setup_need_not_name_a_machine(recorded: Path) -> None:
    failed = {"status": "load_failed", "phase": "setup", "history": [], "dataset": None}
    failed |= {"predictions_sha256": None, "failure": {"kind": "x", "fingerprint": "x"}}
    cell = copied(recorded, "neuron", **failed)
    (recorded / cell / "predictions.parquet").unlink()
    write_sums(recorded)
    assert problems_of(recorded) == ""
    forge(recorded, cell, record=put("phase", "compile"))
    assert "host.driver is missing" in problems_of(recorded)
    forge(recorded, cell, record=lambda record: record | {"phase": "done", "failure": None})
    found = problems_of(recorded)
    assert "phase is done, which does not fit status load_failed" in found
    assert "failure is null, but status is load_failed" in found


# ---------------------------------------------------------------------------------- record, signatures


def test_evidence_of_another_cell_is_refused(recorded: Path, tmp_path: Path) -> None:
    other = CELL.replace("seed0", "seed7")
    shutil.copytree(recorded / CELL, tmp_path / "runs" / other)
    said = must_fail("record", other, "--runs", tmp_path / "runs", "--recorded", tmp_path / "n")
    assert "move it to the folder of that cell" in said


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """An ssh key without a passphrase."""
    if not shutil.which("ssh-keygen"):
        pytest.skip("ssh-keygen is not installed here")
    ran("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", tmp_path / "key", check=True)
    return tmp_path / "key"


def allow(recorded: Path, signer: str, key: Path) -> None:
    line = f'{signer} namespaces="cxrbench-evidence" {key.with_suffix(".pub").read_text()}'
    (recorded.parent / "allowed_signers").write_text(f"# who may sign\n{line}")


@pytest.mark.slow
@pytest.mark.fault("a signed file is changed and its sum remade", "verify: the signature does not match")
def test_a_signature_is_attributed_and_ends_with_the_next_change(recorded: Path, key: Path) -> None:
    runs = recorded.parent / "runs"
    shutil.copytree(recorded / CELL, runs / CELL)
    words = ("record", CELL, "--runs", runs, "--recorded", recorded)
    assert f"signed with {key}" in must_work(*words, "--sign", "--key", key).stderr
    unknown = verify_recorded(recorded, STUDY)
    assert unknown.signature.state == "wrong" and "add the signer's line there" in unknown.problems[0]
    allow(recorded, "ada@example.org", key)
    assert "\nsigned by ada@example.org\n" in must_work("verify", "--recorded", recorded).stdout
    kept = (recorded / "SHA256SUMS.sig").read_bytes()

    forge(runs.parent / "runs", record=put("host/cpu", "Another processor"))
    assert "SHA256SUMS.sig: removed, SHA256SUMS has changed" in must_work(*words, "--replace").stderr
    assert verify_recorded(recorded, STUDY).signature.state == "unsigned"
    (recorded / "SHA256SUMS.sig").write_bytes(kept)
    assert "SHA256SUMS.sig: does not match SHA256SUMS" in must_fail("verify", "--recorded", recorded)
    must_work("record", "--recorded", recorded, "--sign", "--key", key)
    assert verify_recorded(recorded, STUDY).signature.state == "signed"


@pytest.mark.parametrize("damage", [b"", b"\xff\x00", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n"])
def test_a_damaged_signature_or_list_of_signers_is_no_signature(
    recorded: Path, key: Path, damage: bytes
) -> None:
    allow(recorded, "ada@example.org", key)
    (recorded / "SHA256SUMS.sig").write_bytes(damage)
    assert verify_recorded(recorded, STUDY).signature.state == "wrong"


def test_signing_without_a_usable_key_is_an_error(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded / CELL, tmp_path / "runs" / CELL)
    words = ("record", CELL, "--runs", tmp_path / "runs", "--recorded", recorded)
    for key, reason in ((tmp_path / "none", "no such ssh key"), (Path(sys.executable), "could not sign")):
        assert reason in must_fail(*words, "--key", key)
    assert "name the cells to record" in must_fail("record", "--recorded", recorded, code=2)


# ---------------------------------------------------------------------------------- this repository


@pytest.mark.slow
def test_what_this_repository_records_is_intact() -> None:
    done = verify_recorded(DATA, STUDY)
    assert done.problems == []
    assert len(done.cells) == len(find_cells(DATA))
    assert not any("split" in what for what in done.not_checked)
    for cell in done.cells:
        assert (cell.folder(DATA) / "predictions.parquet").stat().st_size < 300_000
    assert read_sums(DATA) == sums_of(DATA)
