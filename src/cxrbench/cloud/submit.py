"""A cell as a SageMaker training job: its code as a bundle, its request, and a check of the request.

The check reads botocore's service model, with the patterns and enumerations that botocore leaves to the
service. The SageMaker SDK is not needed; where version 2 is installed, a test compares both.
"""

import gzip
import io
import json
import math
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cxrbench.common.errors import UserError, nearest, suggestion
from cxrbench.common.files import written_aside
from cxrbench.evidence.record import commit_of_code
from cxrbench.study.config import Study
from cxrbench.study.names import Cell
from cxrbench.study.recipe import FileWeights

PACKAGE = Path(__file__).resolve().parent.parent
ENTRY = "train.py"
# Installed in the container on top of its own PyTorch; NumPy is the container's (Neuron's compiler pins it).
NEEDED = ("timm", "pandas", "psutil", "pyarrow", "pydantic", "pyyaml", "rich", "scikit-learn", "typer")
_KEPT = (".py", ".gz", ".toml", ".txt")
_LEFT_OUT = {"__pycache__", "paper", "claims"}  # of no use to a container that trains


@dataclass(frozen=True)
class Instance:
    """What a cell needs to run on an ml.* instance. ``image`` is repository:tag of an AWS container."""

    platform: str
    processes: int  # one per device
    image: str


# Sources: AWS's list of Deep Learning Containers (Neuron's training containers ended with SDK 2.30);
# github.com/aws/deep-learning-containers, docs/releasenotes/pytorch/pytorch-training-2.9-gpu-sagemaker.md.
_NEURON = "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04"
_CUDA = "pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04-sagemaker"
INSTANCES = {
    "ml.trn1.2xlarge": Instance("neuron", 2, _NEURON),
    "ml.trn1.32xlarge": Instance("neuron", 32, _NEURON),
    "ml.g5.xlarge": Instance("cuda", 1, _CUDA),
}
_SPARE = 1800  # seconds between the entry script's end and SageMaker's, for set-up and upload of the record


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
    cache: str | None = None  # Neuron's compile cache; None: a folder of the job's own below ``output``
    called: str | None = None  # the job's name; None: made from the cell

    def __post_init__(self) -> None:
        if self.instance not in INSTANCES:
            hint = suggestion(self.instance, INSTANCES)
            raise UserError(f"no job is known for instance '{self.instance}'{hint}")
        if (platform := INSTANCES[self.instance].platform) != self.cell.platform:
            raise UserError(f"{self.instance} trains cells of platform {platform}, not {self.cell}")
        if not self.role.startswith("arn:"):
            example = "arn:aws:iam::123456789012:role/NAME"
            raise UserError(f"--role '{self.role}': write the ARN of a role, such as {example}")
        for name in ("code", "data", "output"):
            if not (address := getattr(self, name)).startswith("s3://"):
                raise UserError(f"--{name} '{address}': write an address that begins with s3://")
        if not 0 < self.hours < math.inf:
            raise UserError(f"--hours {self.hours:g}: write a number of hours above 0, such as 12")

    @property
    def name(self) -> str:
        """The job's name, which an account may use once in a region; made from the cell unless ``called``."""
        made = re.sub(r"[^A-Za-z0-9]+", "-", f"cxr-{self.cell}")[:63].strip("-")
        return made if self.called is None else self.called

    @property
    def seconds(self) -> int:
        """The longest the job may run; the entry script gets ``hours`` and ends earlier, with a record."""
        return round(self.hours * 3600) + _SPARE

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Arguments of the entry script."""
        instance = INSTANCES[self.instance]
        words = {"cell": str(self.cell), "processes": instance.processes, "hours": float(self.hours)}
        return words | ({"precompile": "yes"} if instance.platform == "neuron" else {})

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the container."""
        if INSTANCES[self.instance].platform != "neuron":
            return {}
        # In S3, or an interrupted job on spot compiles anew; its own, because a killed job leaves locks.
        return {"NEURON_COMPILE_CACHE_URL": self.cache or f"{self.output}/neuron-cache/{self.name}"}

    @property
    def checkpoints(self) -> str:
        """Where a job on spot instances keeps its checkpoints."""
        return f"{self.output}/checkpoints/{self.name}"


def estimator_arguments(order: Order) -> dict[str, Any]:
    """The arguments of ``sagemaker.pytorch.PyTorch`` (SDK 2), for fit({"training": order.data})."""
    wait, checkpoints = 2 * order.seconds, order.checkpoints
    spot = {"use_spot_instances": True, "max_wait": wait, "checkpoint_s3_uri": checkpoints}
    return {
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
        "environment": order.environment,
        "disable_profiler": True,
        "debugger_hook_config": False,
    } | (spot if order.spot else {})


def training_job(order: Order, region: str = "us-east-1") -> dict[str, Any]:
    """The CreateTrainingJob request that the estimator of :func:`estimator_arguments` sends."""
    parameters = order.hyperparameters | {
        "sagemaker_submit_directory": order.code,
        "sagemaker_program": ENTRY,
        "sagemaker_container_log_level": 20,
        "sagemaker_job_name": order.name,
        "sagemaker_region": region,
        "sagemaker_torch_distributed_enabled": True,
        "sagemaker_instance_type": order.instance,
    }
    source = {"S3DataType": "S3Prefix", "S3Uri": order.data, "S3DataDistributionType": "FullyReplicated"}
    request: dict[str, Any] = {
        "TrainingJobName": order.name,
        "AlgorithmSpecification": {"TrainingInputMode": "File", "TrainingImage": order.image},
        "RoleArn": order.role,
        "InputDataConfig": [{"ChannelName": "training", "DataSource": {"S3DataSource": source}}],
        "OutputDataConfig": {"S3OutputPath": order.output},
        "ResourceConfig": {"InstanceType": order.instance, "InstanceCount": 1, "VolumeSizeInGB": 100},
        "StoppingCondition": {"MaxRuntimeInSeconds": order.seconds},
        "HyperParameters": {key: json.dumps(value) for key, value in parameters.items()},
        "Environment": order.environment,
        "ProfilerConfig": {"DisableProfiler": True},
    }
    if order.spot:
        request["EnableManagedSpotTraining"] = True
        request["StoppingCondition"]["MaxWaitTimeInSeconds"] = 2 * order.seconds
        request["CheckpointConfig"] = {"S3Uri": order.checkpoints}
    return request


def check_request(request: dict[str, Any]) -> None:
    """Raise UserError unless ``request`` fits SageMaker's service model for CreateTrainingJob."""
    import botocore.session
    from botocore.validate import ParamValidator

    model = botocore.session.get_session().get_service_model("sagemaker")
    shape = model.operation_model("CreateTrainingJob").input_shape
    report = ParamValidator().validate(request, shape)
    if problems := [*report.generate_report().splitlines(), *_problems(request, shape, "")]:
        raise UserError("the request does not fit SageMaker's model: " + "; ".join(problems))


def _problems(value: Any, shape: Any, where: str) -> Iterator[str]:
    """Yield the strings that break the model's enumerations, patterns or lengths, which botocore skips."""
    match shape.type_name, value:
        case "structure", dict():
            for name in filter(shape.members.__contains__, value):  # ParamValidator reports the others
                yield from _problems(value[name], shape.members[name], f"{where}.{name}".removeprefix("."))
        case "list", list():
            for number, part in enumerate(value):
                yield from _problems(part, shape.member, f"{where}[{number}]")
        case "map", dict():
            for key, part in value.items():
                yield from _problems(key, shape.key, f"{where} (key {key})")
                yield from _problems(part, shape.value, f"{where}.{key}")
        case "string", str():
            pattern, longest = shape.metadata.get("pattern"), shape.metadata.get("max", math.inf)
            if shape.enum and value not in shape.enum:
                yield f"{where}: unknown value '{value}'{nearest(value, shape.enum)}"
            elif pattern and not re.fullmatch(pattern, value):
                yield f"{where}: '{value}' does not match {pattern}"
            elif len(value) > longest:
                yield f"{where}: {len(value)} characters, {longest} are allowed"


def write_bundle(path: Path, study: Study, lock: Path = Path("requirements/base.lock")) -> list[str]:
    """Write a tar.gz with entry script, package, study, weights and pins to ``path``; return the names in it.

    SageMaker unpacks it in its container. Equal trees give equal bytes. Files of weights that are not here
    are left out; a job that needs one ends with a message.
    """
    head, dirty = commit_of_code()
    files = {
        ENTRY: Path(__file__).with_name("entry.py").read_bytes(),
        "study.json": study.model_dump_json(indent=1).encode(),
        "requirements.txt": "".join(f"{pin}\n" for pin in pins(lock)).encode(),
        "commit.txt": f"{head}{'-dirty' if dirty else ''}\n".encode(),
    }
    for source in PACKAGE.rglob("*"):
        place = source.relative_to(PACKAGE)
        if source.is_file() and source.suffix in _KEPT and _LEFT_OUT.isdisjoint(place.parts):
            files[f"cxrbench/{place.as_posix()}"] = source.read_bytes()
    for recipe in study.recipes.values():
        if isinstance(weights := recipe.weights, FileWeights) and weights.file.is_file():
            files[f"weights/{weights.sha256}/{weights.file.name}"] = weights.file.read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # without time and owner
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    with written_aside(path) as aside:
        aside.write_bytes(gzip.compress(packed.getvalue(), mtime=0))
    return sorted(files)


def pins(lock: Path) -> list[str]:
    """``name==version`` of what training imports, from the lock of the other platforms."""
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{lock}: cannot be read ({error.strerror}); call this from the repository") from None
    locked = dict(re.findall(r"^([A-Za-z0-9_.\-]+)==([^\s;\\]+)", text, flags=re.M))
    if missing := [name for name in NEEDED if name not in locked]:
        raise UserError(f"{lock}: no version of {', '.join(missing)}; run `make lock`")
    return [f"{name}=={locked[name]}" for name in NEEDED]
