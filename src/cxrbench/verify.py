"""All recorded evidence, checked: what ``cxrbench verify`` does."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from cxrbench.cells import Cell, find_cells
from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.errors import UserError
from cxrbench.evidence import LABELS, PREDICTIONS, Record, check_evidence, read_predictions, sums_of


def verify_recorded(root: Path) -> tuple[list[Cell], list[str]]:
    """The cells below ``root`` and everything that is wrong with them, one message a problem.

    UserError when there is nothing to check: a wrong folder is not intact evidence.
    """
    if not root.is_dir() or not any(root.iterdir()):
        raise UserError(f"{root}: nothing is recorded there; name the folder with --recorded")
    cells, problems = find_cells(root), _changed_files(root)
    for cell in cells:
        try:
            verify_cell(cell.folder(root), cell)
        except UserError as error:
            problems.append(str(error))
    return cells, problems


def verify_cell(folder: Path, cell: Cell) -> None:
    """Raise UserError when a cell's evidence contradicts its record, itself or NIH's label table."""
    record = check_evidence(folder, cell)
    if record.status == "ok":
        predictions = read_predictions(folder / PREDICTIONS)
        _check_counts(predictions, record, folder)
        _check_labels(predictions, folder)


def _changed_files(root: Path) -> list[str]:
    """Differences between the files below ``root`` and its SHA256SUMS."""
    path = root / "SHA256SUMS"
    if not path.exists():
        return [f"{path}: missing; `cxrbench record` writes it"]
    listed = set(path.read_text(encoding="utf-8", errors="replace").splitlines())
    found = set(sums_of(root).splitlines())
    problems = []
    for line in sorted(listed ^ found, key=lambda line: line[66:]):
        name = root / line[66:]
        change = "is not listed as it is" if line in found else "differs from its line, or is missing"
        problems.append(f"{name}: {change} in {path.name}; restore it with git, or record the cell again")
    return problems


def _check_counts(predictions: pd.DataFrame, record: Record, folder: Path) -> None:
    assert record.dataset is not None  # a record with status ok names its data
    found = predictions["split"].value_counts().to_dict()
    expected = {split: record.dataset.images[split] for split in ("val", "test")}
    if found != expected:
        raise UserError(f"{folder / PREDICTIONS}: rows per split are {found}, the record says {expected}")


def _check_labels(predictions: pd.DataFrame, folder: Path) -> None:
    """Patients and labels must be NIH's; phantoms carry NIH's rows under a prefix."""
    if predictions["image"].str.startswith("chestmnist_").all():
        return  # MedMNIST does not say which of NIH's images are whose
    names = predictions["image"].str.removeprefix("phantom_")
    table = read_nih_table().set_index("image")
    if not (known := names.isin(table.index)).all():
        raise UserError(f"{folder / PREDICTIONS}: image {names[~known].iloc[0]} is not in NIH's label table")
    truth = table.loc[names]
    for finding, column in zip(("patient", *FINDINGS), ("patient", *LABELS), strict=True):
        wrong = predictions[column].to_numpy() != truth[finding].to_numpy()
        if wrong.any():
            raise UserError(
                f"{folder / PREDICTIONS}: {column} of image {predictions['image'][wrong].iloc[0]} "
                f"({wrong.sum()} in all) differs from NIH's label table (v2020)"
            )
