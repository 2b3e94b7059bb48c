"""splits.csv, all splits with their hashes, and label_noise.csv, labels against adjudicated ones."""

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import RESULTS


def data_tables(
    out: Annotated[Path, typer.Option(help="Folder to write into.")] = RESULTS / "tables",
) -> None:
    """Write splits.csv and label_noise.csv; no image is needed."""
    from cxrbench.datasets.split import splits
    from cxrbench.results.label_noise import label_noise
    from cxrbench.study.files import write_csv

    write_csv(out / "splits.csv", splits())
    write_csv(out / "label_noise.csv", label_noise())


if __name__ == "__main__":
    run_script(data_tables)
