"""``cxrbench sagemaker``: a cell as a training job on SageMaker, checked without AWS."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import STUDY, CellArgument, StudyOption, say
from cxrbench.study.names import Cell

app = typer.Typer(
    help="Prepare a cell as a training job on SageMaker, and check it without AWS.", no_args_is_help=True
)


@app.command("bundle")
def sagemaker_bundle(
    out: Annotated[Path, typer.Argument(help="The tar.gz to write; copy it to S3 afterwards.")],
    study: StudyOption = STUDY,
) -> None:
    """Pack the code and the study for SageMaker."""
    from cxrbench.cloud.submit import write_bundle
    from cxrbench.study.config import read_study

    names = write_bundle(out, read_study(study))
    say(f"wrote {out}: {len(names)} files")


@app.command("job")
def sagemaker_job(
    cell: CellArgument,
    instance: Annotated[str, typer.Option(help="ml.trn1.2xlarge, ml.trn1.32xlarge or ml.g5.xlarge.")],
    role: Annotated[str, typer.Option(help="ARN of the role that the job runs as.")],
    code: Annotated[str, typer.Option(help="s3:// address of the bundle.")],
    data: Annotated[str, typer.Option(help="s3:// address of the packed dataset's folder.")],
    output: Annotated[str, typer.Option(help="s3:// address for the record.")],
    registry: Annotated[str, typer.Option(help="Host of AWS's container registry in your region.")],
    image: Annotated[str | None, typer.Option(help="Another image: repository:tag.")] = None,
    hours: Annotated[
        float, typer.Option(help="Hours after which the trainer stops and writes its record.")
    ] = 12.0,
    spot: Annotated[
        bool, typer.Option("--spot", help="Use spot instances, and resume after an interruption.")
    ] = False,
    cache: Annotated[str | None, typer.Option(help="s3:// address of Neuron's compile cache.")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the job. Default: made from the cell. A second try needs another name."),
    ] = None,
    region: Annotated[str, typer.Option(help="AWS region.")] = "us-east-1",
    estimator: Annotated[
        bool, typer.Option("--estimator", help="Print arguments for the Python SDK instead of the request.")
    ] = False,
) -> None:
    """Print the request of a training job, for `aws sagemaker create-training-job --cli-input-json`."""
    from cxrbench.cloud.submit import INSTANCES, Order, check_request, estimator_arguments, training_job

    if image is None and instance in INSTANCES:
        image = INSTANCES[instance].image
    container = f"{registry}/{image}"
    order = Order(Cell.parse(cell), instance, role, container, code, data, output, hours, spot, cache, name)
    request = training_job(order, region=region)
    check_request(request)
    print(json.dumps(estimator_arguments(order) if estimator else request, indent=1))
