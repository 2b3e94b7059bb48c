"""SageMaker without AWS: the request against the service's model, the entry script for real."""

import json
import os
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from conftest import GONE, ROOT, SIZES, TINY, must_fail, must_work, put_at, ran
from cxrbench.cloud import submit
from cxrbench.cloud.submit import INSTANCES, Order, check_request, estimator_arguments, training_job
from cxrbench.common.errors import UserError
from cxrbench.common.files import sha256_file
from cxrbench.evidence.store import check_evidence
from cxrbench.study.config import parse_study
from cxrbench.study.names import Cell
from cxrbench.training.job import PRECOMPILED

REGISTRY = "123456789012.dkr.ecr.us-east-1.amazonaws.com"
ORDERS = {
    instance: Order(
        cell=Cell("nih128-64px", "convnext_pico", its.platform, 0),
        instance=instance,
        role="arn:aws:iam::123456789012:role/service-role/training",
        image=f"{REGISTRY}/{its.image}",
        code="s3://bucket/code/bundle.tar.gz",
        data="s3://bucket/packed/nih128-64px",
        output="s3://bucket/jobs",
    )
    for instance, its in INSTANCES.items()
}


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize(
    ("instance", "processes", "precompile"),
    [("ml.trn1.2xlarge", 2, "yes"), ("ml.trn1.32xlarge", 32, "yes"), ("ml.g5.xlarge", 1, None)],
)
def test_a_request_uses_every_device_and_compiles_ahead(instance, processes, precompile, spot) -> None:
    order = replace(ORDERS[instance], hours=4, spot=spot, cache="s3://bucket/neff")
    request = training_job(order)
    check_request(request)
    parameters = {name: json.loads(value) for name, value in request["HyperParameters"].items()}
    assert (parameters["cell"], parameters["processes"]) == (str(order.cell), processes)
    assert (parameters["hours"], parameters.get("precompile")) == (4, precompile)
    assert parameters["sagemaker_torch_distributed_enabled"] is True
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 4.5 * 3600  # after the trainer's own end
    assert [channel["ChannelName"] for channel in request["InputDataConfig"]] == ["training"]


def test_a_second_try_has_a_name_of_its_own() -> None:
    order = ORDERS["ml.trn1.2xlarge"]
    assert training_job(order)["TrainingJobName"] == "cxr-nih128-64px-convnext-pico-neuron-seed0"
    second = training_job(replace(order, called="pico-again", spot=True))
    check_request(second)
    assert second["TrainingJobName"] == "pico-again"
    assert second["CheckpointConfig"]["S3Uri"] == "s3://bucket/jobs/checkpoints/pico-again"
    for name in ("pico_again", "-pico", "p" * 64, ""):
        with pytest.raises(UserError, match="TrainingJobName"):
            check_request(training_job(replace(order, called=name)))


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ("RoleArn", "training", "RoleArn: 'training' does not match"),
        ("ResourceConfig/InstanceType", "ml.trn1.4xlarge", "did you mean 'ml.trn1.2xlarge'"),
        ("ResourceConfig/InstanceCount", "one", "InstanceCount"),
        ("OutputDataConfig/S3OutputPath", "file:///results", "does not match"),
        ("StoppingCondition/MaxRuntimeInSeconds", 0, "MaxRuntimeInSeconds"),
        ("HyperParameters/cell", "x" * 3000, "3000 characters, 2500 are allowed"),
        ("Distribution", {}, "Distribution"),
        ("RoleArn", GONE, "RoleArn"),
    ],
)
def test_what_the_service_would_refuse_is_refused_here(where: str, value: Any, message: str) -> None:
    request = put_at(where, value, training_job(ORDERS["ml.trn1.2xlarge"]))
    with pytest.raises(UserError, match=re.escape(message)) as error:
        check_request(request)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instance": "ml.trn1.4xlarge"}, "did you mean 'ml.trn1.2xlarge'"),
        ({"cell": Cell("d", "resnet18", "cuda", 0)}, "trains cells of platform neuron, not d/resnet18/cuda"),
        ({"data": "/data/packed"}, "--data '/data/packed': write an address that begins with s3://"),
        ({"hours": 0.0}, "--hours 0: write a number of hours above 0"),
        ({"hours": float("inf")}, "--hours inf: write a number of hours above 0"),
    ],
)
def test_an_order_that_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        replace(ORDERS["ml.trn1.2xlarge"], **changes)


@pytest.mark.parametrize("spot", [False, True])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_the_sdks_estimator_sends_the_same_request(order: Order, spot: bool, monkeypatch) -> None:
    monkeypatch.setenv("SAGEMAKER_SUPPRESS_V2_WARNING", "1")
    estimators = pytest.importorskip("sagemaker.pytorch", reason="SageMaker SDK 2 is not installed")
    import boto3
    from botocore.stub import Stubber
    from sagemaker.estimator import _TrainingJob
    from sagemaker.session import Session

    order = replace(order, spot=spot)
    account = {"region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}
    boto = boto3.Session(**account)
    client = boto.client("sagemaker")
    with Stubber(client):  # nothing is sent
        session = Session(boto_session=boto, sagemaker_client=client, default_bucket="bucket")
        session._default_bucket = "bucket"
        estimator = estimators.PyTorch(**estimator_arguments(order), sagemaker_session=session)
        estimator._prepare_for_training(job_name=order.name)
        wanted = _TrainingJob._get_train_args(estimator, {"training": order.data}, None)
        sent = session._get_train_request(**wanted)
    assert sent == training_job(order)


def test_the_command_prints_a_checked_request() -> None:
    order = ORDERS["ml.trn1.2xlarge"]
    job = ["sagemaker", "job", order.cell, "--instance", order.instance, "--role", order.role]
    job += ["--code", order.code, "--data", order.data, "--output", order.output, "--registry", REGISTRY]
    assert json.loads(must_work(*job, "--estimator").stdout) == estimator_arguments(order)
    changed = replace(order, called="again", hours=4.0)
    assert json.loads(must_work(*job, "--name", "again", "--hours", 4).stdout) == training_job(changed)
    assert "--role 'training': write the ARN of a role" in must_fail(*job, "--role", "training")
    message = must_fail(*job, "--role", "arn:aws:iam::1:role/training")
    assert message.startswith("cxrbench: the request does not fit")


@pytest.fixture(scope="module")
def bundled(tmp_path_factory: pytest.TempPathFactory, drawn: Path) -> Path:
    """A bundle of a small study with initial weights, unpacked as SageMaker unpacks it."""
    weights = {"file": str(drawn), "sha256": sha256_file(drawn)}
    study = {
        "datasets": {"phantom-32px": {"source": "phantom", "pixels": 32, "recipe": "fast", "images": SIZES}},
        "recipes": {"fast": {"epochs": 1, "batch": 64, "averaging": 0.9, "threads": 1, "weights": weights}},
        "cells": [],
        "limits": {"keep_weights": True},
    }
    folder = tmp_path_factory.mktemp("bundle")
    for name in ("a", "b"):
        submit.write_bundle(folder / name, parse_study(study), ROOT / "requirements/base.lock")
    assert (folder / "a").read_bytes() == (folder / "b").read_bytes()
    (folder / "code").mkdir()
    ran("tar", "-xf", folder / "a", "-C", folder / "code", check=True)  # Python before 3.11.4 has no filters
    return folder / "code"


def test_the_bundle_has_what_a_container_needs(bundled: Path) -> None:
    names = {"train.py", "study.json", "requirements.txt", "commit.txt", "cxrbench", "weights"}
    assert {path.name for path in bundled.iterdir()} == names
    assert (bundled / "requirements.txt").read_text().split() == submit.pins(ROOT / "requirements/base.lock")
    assert not {"torch", "torchvision", "numpy"} & set(submit.NEEDED)  # the container's own
    package = (bundled / "cxrbench").rglob("*")
    assert sum(path.stat().st_size for path in package if path.is_file()) < 1_700_000


@pytest.mark.slow
def test_the_entry_script_trains_under_torchrun_and_leaves_a_record(
    bundled: Path, packed: Path, drawn: Path, tmp_path: Path
) -> None:
    """As in a container: torchrun around it, packed data in the channel, the record in the model folder."""
    cell = Cell("phantom-32px", TINY, "cpu", 0)
    torchrun = ("-m", "torch.distributed.run", "--nnodes", 1, "--nproc_per_node", 2)
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "OMP_WAIT_POLICY") if name in os.environ}
    places = {"SM_CHANNEL_TRAINING": str(packed), "SM_MODEL_DIR": str(tmp_path / "model")}
    environment = inherited | places | {"SM_CURRENT_INSTANCE_TYPE": "ml.c5.large"}
    words = ("train.py", "--cell", cell, "--processes", 2)
    done = ran(sys.executable, *torchrun, *words, cwd=bundled, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    record = check_evidence(tmp_path / "model" / str(cell), cell)
    assert record.status == "ok" and record.platform["processes"] == 2
    assert record.weights is not None and record.weights.sha256 == sha256_file(drawn)
    assert record.kept_weights_sha256 == sha256_file(tmp_path / "model" / str(cell) / "weights.safetensors")
    # What is downloaded and unpacked is what `cxrbench record` takes.
    must_work("record", cell, "--runs", tmp_path / "model", "--recorded", tmp_path / "recorded")
    assert (tmp_path / "recorded" / str(cell) / "record.json").exists()


def entry(bundled: Path, *words: str, **environment: str) -> CompletedProcess[str]:
    """The entry script with only the given SM_* variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SM_", "PYTHONPATH"))}
    return ran(sys.executable, bundled / "train.py", *words, env=kept | environment)


@pytest.mark.slow
def test_the_entry_script_says_what_is_missing(bundled: Path, tmp_path: Path) -> None:
    channel, kept = {"SM_CHANNEL_TRAINING": str(tmp_path / "channel")}, {"SM_MODEL_DIR": str(tmp_path)}
    for cell, places, message in (
        ("a/b/cpu/seed0", kept, "SM_CHANNEL_TRAINING is not set"),
        ("phantom-32px/resnet18/cpu/seed0", channel | kept, "not packed yet"),
        ("other/resnet18/cpu/seed0", channel | kept, "unknown dataset 'other'"),
    ):
        done = entry(bundled, "--cell", cell, **places)
        assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr


@pytest.fixture
def stub(bundled: Path, tmp_path: Path) -> Path:
    """The entry script and the study beside a package that only notes its arguments."""
    for name in ("train.py", "study.json"):
        shutil.copy(bundled / name, tmp_path / name)
    (tmp_path / "cxrbench/study").mkdir(parents=True)
    (tmp_path / "cxrbench/__init__.py").write_text("")
    recover = "def recover(name): print('locks cleared:', name)\n"
    (tmp_path / "cxrbench/study/platforms.py").write_text(recover)
    (tmp_path / "cxrbench/__main__.py").write_text(
        "import json, os, pathlib, sys, time\n"
        "command, cell, *words = sys.argv[1:]\n"
        "options = dict(zip(words[::2], words[1::2]))\n"
        "limits = json.load(open(options['--study']))['limits']\n"
        "noted = json.dumps({'cell': cell, 'options': options, 'limits': limits})\n"
        "pathlib.Path(__file__).parents[1].joinpath(command).write_text(noted)\n"
        "time.sleep(float(os.environ.get('SLOW', '0')) * (command == 'precompile'))\n"
    )
    return tmp_path


def arguments(order: Order) -> list[str]:
    """The order's hyperparameters as SageMaker's container hands them to the entry script."""
    given = training_job(order)["HyperParameters"].items()
    parts = [(f"--{name}", str(json.loads(value))) for name, value in given if name[:10] != "sagemaker_"]
    return [word for part in parts for word in part]


PLACES = {"SM_CHANNEL_TRAINING": "/channel", "SM_MODEL_DIR": "/model"}


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_entry_script_does_what_the_order_says(instance: str, stub: Path) -> None:
    order = replace(ORDERS[instance], hours=4.0)
    done = entry(stub, *arguments(order), **PLACES)
    assert done.returncode == 0, done.stderr
    train = json.loads((stub / "train").read_text())
    assert train["cell"] == str(order.cell) and train["options"]["--packed"] == "/channel/manifest.json"
    assert train["options"]["--out"] == f"/model/{order.cell}/record.json"
    assert train["limits"]["processes"] == INSTANCES[instance].processes
    if order.cell.platform != "neuron":
        assert train["limits"]["hours"] == 4 and not (stub / "precompile").exists()
        return
    precompile = json.loads((stub / "precompile").read_text())
    assert precompile["limits"] == train["limits"] | {"hours": 4}
    assert precompile["options"]["--work"] == train["options"]["--work"]
    assert 3.9 < train["limits"]["hours"] < 4  # what compiling ahead took is taken off


@pytest.mark.slow
def test_compiling_ahead_without_end_is_stopped_and_its_seconds_are_kept(stub: Path) -> None:
    order = replace(ORDERS["ml.trn1.2xlarge"], hours=0.0005)
    done = entry(stub, *arguments(order), **PLACES, SLOW="60")
    assert done.stdout == "locks cleared: neuron\n"
    assert done.returncode == 0 and "compiling ahead took all 0.0005 h" in done.stderr
    train = json.loads((stub / "train").read_text())
    assert train["limits"]["hours"] == 1 / 60  # time for a record
    kept = json.loads((Path(train["options"]["--work"]) / str(order.cell) / PRECOMPILED).read_text())
    assert kept == {"seconds": 1.8, "graphs": None, "succeeded": None, "failed": None}


@pytest.mark.slow
def test_a_job_whose_hours_are_over_leaves_a_record(bundled: Path, packed: Path, tmp_path: Path) -> None:
    cell = Cell("phantom-32px", TINY, "cpu", 0)
    places = {"SM_CHANNEL_TRAINING": str(packed), "SM_MODEL_DIR": str(tmp_path)}
    done = entry(bundled, "--cell", str(cell), "--hours", str(1 / 3600), **places)
    assert done.returncode == 0, done.stderr
    assert check_evidence(tmp_path / str(cell), cell).status == "timed_out"


def test_other_processes_of_sagemakers_torchrun_leave_at_once(bundled: Path) -> None:
    done = entry(bundled, "--cell", "a/b/cpu/seed0", RANK="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
