"""A cell as a SageMaker training job: the estimator's arguments, the same as a request, and its check.

The check is botocore's: the service model that every AWS SDK is generated from, with the patterns and
enumerations that botocore itself leaves to the service. The SageMaker SDK is not needed to run: it is large,
and its version 3 has ModelTrainer instead of estimators. Where SDK 2 is installed, a test compares both.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from cxrbench.cells import Cell
from cxrbench.errors import UserError, nearest, suggestion
from cxrbench.cloud.bundle import ENTRY


@dataclass(frozen=True)
class Instance:
    """What a cell needs to run on an ml.* instance. ``image`` is repository:tag of an AWS container."""

    platform: str
    processes: int  # one per device
    image: str


# Sources: AWS's list of Deep Learning Containers (Neuron's training containers ended with SDK 2.30);
# github.com/aws/deep-learning-containers, docs/releasenotes/pytorch/pytorch-training-2.9-gpu-sagemaker.md.
_NEURON = "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.28.0-ubuntu24.04"
_CUDA = "pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04-sagemaker"
INSTANCES = {
    "ml.trn1.2xlarge": Instance("neuron", 2, _NEURON),
    "ml.trn1.32xlarge": Instance("neuron", 32, _NEURON),
    "ml.g5.xlarge": Instance("cuda", 1, _CUDA),
}
_SPARE = 1800  # seconds between the entry script's end and SageMaker's: set-up, and the record on its way


@dataclass(frozen=True)
class Order:
    """What a person decides about a job; addresses are s3://..."""

    cell: Cell
    instance: str
    role: str  # ARN of the role that the job runs as
    image: str  # the container, with its registry
    code: str  # the bundle
    data: str  # the folder with manifest.json, images.npy and index.parquet
    output: str
    hours: float = 12.0  # of training, and of compiling ahead of it
    spot: bool = False
    cache: str | None = None  # Neuron's compile cache
    called: str | None = None  # the job's name; none: one made of the cell

    def __post_init__(self) -> None:
        known = INSTANCES.get(self.instance)
        if known is None:
            hint = suggestion(self.instance, INSTANCES)
            raise UserError(f"no job is known for instance '{self.instance}'{hint}")
        if known.platform != self.cell.platform:
            raise UserError(f"{self.instance} trains cells of platform {known.platform}, not {self.cell}")
        for name in ("code", "data", "output"):
            if not str(getattr(self, name)).startswith("s3://"):
                raise UserError(f"--{name} '{getattr(self, name)}': write an address that begins with s3://")
        if not 0 < self.hours < math.inf:
            raise UserError(f"--hours {self.hours:g}: write a number of hours above 0, such as 12")

    @property
    def name(self) -> str:
        """The name asked for, else the cell's as SageMaker wants it: letters, digits and dashes, at most 63.

        An account may use a name once in a region: a second try of a cell needs one of its own.
        """
        if self.called is not None:
            return self.called
        return re.sub(r"[^A-Za-z0-9]+", "-", f"cxr-{self.cell}")[:63].strip("-")

    @property
    def seconds(self) -> int:
        """The longest the job may run; the entry script is given ``hours`` and ends before, with a record."""
        return round(self.hours * 3600) + _SPARE

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of the entry script."""
        known = INSTANCES[self.instance]
        words = {"cell": str(self.cell), "processes": known.processes, "hours": float(self.hours)}
        return words | ({"precompile": "yes"} if known.platform == "neuron" else {})


def estimator_arguments(order: Order) -> dict[str, Any]:
    """Keyword arguments of ``sagemaker.pytorch.PyTorch`` (SageMaker SDK 2); fit({"training": order.data})."""
    arguments: dict[str, Any] = {
        "entry_point": ENTRY,
        "source_dir": order.code,
        "role": order.role,
        "image_uri": order.image,
        "instance_type": order.instance,
        "instance_count": 1,
        "hyperparameters": order.hyperparameters,
        "distribution": {"torch_distributed": {"enabled": True}},
        "output_path": order.output,
        "volume_size": 100,
        "max_run": order.seconds,
        "environment": _environment(order),
        "disable_profiler": True,
        "debugger_hook_config": False,
    }
    if order.spot:
        checkpoints = f"{order.output}/checkpoints/{order.name}"
        arguments |= {
            "use_spot_instances": True,
            "max_wait": 2 * order.seconds,
            "checkpoint_s3_uri": checkpoints,
        }
    return arguments


def training_job(order: Order, region: str = "us-east-1") -> dict[str, Any]:
    """The CreateTrainingJob request that the estimator of :func:`estimator_arguments` sends."""
    wanted = estimator_arguments(order)
    parameters = wanted["hyperparameters"] | {
        "sagemaker_submit_directory": wanted["source_dir"],
        "sagemaker_program": wanted["entry_point"],
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": order.name,
        "sagemaker_region": region,
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": wanted["instance_type"],
    }
    data = {"S3DataType": "S3Prefix", "S3Uri": order.data, "S3DataDistributionType": "FullyReplicated"}
    request: dict[str, Any] = {
        "TrainingJobName": order.name,
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": wanted["image_uri"]},
        "RoleArn": wanted["role"],
        "InputDataConfig": [{"ChannelName": "training", "DataSource": {"S3DataSource": data}}],
        "OutputDataConfig": {"S3OutputPath": wanted["output_path"]},
        "ResourceConfig": {
            "InstanceType": wanted["instance_type"],
            "InstanceCount": wanted["instance_count"],
            "VolumeSizeInGB": wanted["volume_size"],
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": wanted["max_run"]},
        "HyperParameters": {key: json.dumps(value) for key, value in parameters.items()},
        "Environment": wanted["environment"],
        "ProfilerConfig": {"DisableProfiler": True},
    }
    if order.spot:
        request["EnableManagedSpotTraining"] = True
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = wanted["max_wait"]
        request["CheckpointConfig"] = {"S3Uri": wanted["checkpoint_s3_uri"]}
    return request


def _environment(order: Order) -> dict[str, str]:
    return {"NEURON_COMPILE_CACHE_URL": order.cache} if order.cache else {}


def check(request: dict[str, Any]) -> None:
    """Raise UserError unless ``request`` fits SageMaker's service model for CreateTrainingJob."""
    import botocore.session
    from botocore.validate import ParamValidator

    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.operation_model("CreateTrainingJob").input_shape
    report = ParamValidator().validate(request, shape)
    problems = [*report.generate_report().splitlines(), *_unfit(request, shape, "")]
    if problems:
        raise UserError("the request does not fit SageMaker's model: " + "; ".join(problems))


def _unfit(value: Any, shape: Any, where: str) -> list[str]:
    """Strings that break the model's enumerations, patterns or lengths; botocore does not look at these."""
    if shape.type_name == "structure":
        parts = [(value[key], shape.members[key], f"{where}.{key}") for key in value if key in shape.members]
    elif shape.type_name == "list":
        parts = [(one, shape.member, f"{where}[{number}]") for number, one in enumerate(value)]
    elif shape.type_name == "map":
        parts = [(one, shape.value, f"{where}.{key}") for key, one in value.items()]
        parts += [(key, shape.key, f"{where} (key {key})") for key in value]
    elif shape.type_name == "string" and isinstance(value, str):
        return _unfit_text(value, shape, where.removeprefix("."))
    else:
        parts = []
    return [problem for part in parts for problem in _unfit(*part)]


def _unfit_text(value: str, shape: Any, where: str) -> list[str]:
    pattern, most = shape.metadata.get("pattern"), shape.metadata.get("max")
    if shape.enum and value not in shape.enum:
        return [f"{where}: '{value}' is not one of its values{nearest(value, shape.enum)}"]
    if pattern and not re.fullmatch(pattern, value):
        return [f"{where}: '{value}' does not match {pattern}"]
    if most is not None and len(value) > most:
        return [f"{where}: {len(value)} characters, {most} are allowed"]
    return []
