"""A check value of each reduced image, in data/recorded/pixels."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import PACKED, RECORDED, STUDY, RecordedOption, StudyOption, say
from cxrbench.common.errors import UserError


def check_values(
    name: Annotated[str, typer.Argument(help="A packed dataset of the study, as large as its reduction.")],
    study: StudyOption = STUDY,
    packed: Annotated[Path, typer.Option(help="Folder of packed datasets.")] = PACKED,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Record a check value of each reduced image. Packing names images that have another one."""
    from cxrbench.datasets.nih import write_checks
    from cxrbench.datasets.packed import read_packed
    from cxrbench.evidence.sums import updated_sums
    from cxrbench.study.config import NihSource, read_study

    config = read_study(study).dataset(name)
    if not isinstance(config, NihSource):
        raise UserError(f"{name}: only images of NIH are reduced; name such a dataset")
    with updated_sums(recorded):
        written = write_checks(read_packed(packed / name), config, recorded)
    say(f"wrote {written}")


if __name__ == "__main__":
    run_script(check_values)
