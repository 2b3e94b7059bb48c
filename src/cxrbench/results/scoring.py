"""The metrics of the study's cells, and of a file of predictions from anywhere (metrics.csv)."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pandas as pd

from cxrbench.common.errors import UserError
from cxrbench.common.files import cores, read_csv
from cxrbench.statistics.evaluate import COLUMNS, Evaluation, evaluate, one_per_metric, require_controls
from cxrbench.statistics.predictions import FILE, findings_of, load_predictions
from cxrbench.study.names import Cell

MANY_FINDINGS = 200  # from here on more than seconds: 10 s of one core for 300 findings of 2,000 images
CELL_COLUMNS = ["cell", "dataset", "architecture", "platform", "seed", *COLUMNS]


def evaluate_cell(record_path: Path, replicates: int | None, least: int) -> Evaluation:
    """The metrics of a cell's test part (rows of metrics.csv); no rows for a failed cell.

    The controls (constant, label as score, shuffled labels) run first; one that fails is a UserError.
    """
    from cxrbench.evidence.predictions import read_predictions
    from cxrbench.evidence.record import read_record

    record = read_record(record_path)
    if record.status != "ok":
        note = f"{record.cell}: {record.status}, so there is nothing to score"
        return Evaluation(pd.DataFrame(columns=CELL_COLUMNS), [note])
    path = record_path.parent / FILE
    predictions = read_predictions(path)
    require_controls(predictions, str(path))
    table, notes = evaluate(predictions, replicates=replicates, least=least)
    return Evaluation(of_cell(table, Cell.parse(record.cell)), [f"{record.cell}: {note}" for note in notes])


def of_cell(metrics: pd.DataFrame, cell: Cell) -> pd.DataFrame:
    """Rows of metrics.csv: the metrics of a cell under its name."""
    return metrics.assign(cell=str(cell), **vars(cell))[CELL_COLUMNS]


def evaluate_file(
    path: Path,
    replicates: int | None,
    least: int,
    say: Callable[[str], None] = lambda text: None,
    columns: Mapping[str, str] | None = None,
) -> Evaluation:
    """The metrics of a predictions file from anywhere, and notes on what it lacks.

    ``say`` is told before what takes minutes; ``columns`` maps our names of columns to the file's.
    """
    ended = path / "record.json"
    if ended.is_file() and not (path / FILE).is_file():
        from cxrbench.evidence.record import read_record  # pydantic, which a file of scores does without

        raise UserError(
            f"{path}: no predictions, the run ended as {read_record(ended).status}; train it again"
        )
    if not path.exists() and (cell := _run_of(path)):
        raise UserError(f"{path}: not trained yet; run `cxrbench train {cell}`")
    predictions, lacking = load_predictions(path, columns)
    if (count := len(findings_of(predictions))) > MANY_FINDINGS:
        say(f"scoring {count:,} findings of {len(predictions):,} images: this may take minutes")
    table, notes = evaluate(predictions, replicates=replicates, least=least)
    return Evaluation(table, [*lacking, *notes])


def _run_of(path: Path) -> Cell | None:
    """The cell whose folder below ``results/runs`` a path names, or whose file there; else None."""
    parts = path.parts
    if "runs" not in parts:
        return None
    named = parts[len(parts) - parts[::-1].index("runs") :][:4]
    with suppress(UserError):
        return Cell.parse("/".join(named))
    return None


def evaluate_cells(records: Sequence[Path], replicates: int | None, least: int) -> Evaluation:
    """The metrics of many cells, in their order, by a process per core; none give no rows.

    Where a cell has several records, a column ``source`` has their files.
    """
    work = partial(evaluate_cell, replicates=replicates, least=least)
    with ProcessPoolExecutor(max(1, min(cores(), len(records)))) as pool:
        scored = list(pool.map(work, records))
    tables = [
        cell.table.assign(source=str(path))
        for cell, path in zip(scored, records, strict=True)
        if not cell.table.empty
    ]
    if len({table["cell"].iloc[0] for table in tables}) == len(tables):
        tables = [table[CELL_COLUMNS] for table in tables]
    table = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=CELL_COLUMNS)
    return Evaluation(table, [note for cell in scored for note in cell.notes])


def evaluate_files(
    files: Sequence[Path],
    replicates: int | None,
    least: int,
    say: Callable[[str], None] = lambda text: None,
    columns: Mapping[str, str] | None = None,
) -> Evaluation:
    """The metrics of each file, or of a cell by its record, with a column ``source`` where there are
    several; a note begins with its source there."""
    places = [path.parent if path.name == "record.json" else path for path in files]
    scored = [evaluate_file(path, replicates, least, say, columns) for path in places]
    if len(scored) == 1:
        return scored[0]
    named = list(zip(map(str, files), scored, strict=True))
    table = pd.concat([result.table.assign(source=source) for source, result in named], ignore_index=True)
    notes = [f"{source}: {note}" for source, result in named for note in result.notes]
    return Evaluation(table[["source", *table.columns.drop("source")]], notes)


def each_once(notes: Sequence[str], sources: int) -> list[str]:
    """Notes on several sources, each once, with the number of sources where it is not of all."""
    if sources < 2:
        return list(notes)
    counts = Counter(note.partition(": ")[2] for note in notes)
    return [text if count == sources else f"{text} ({count} of {sources})" for text, count in counts.items()]


def read_metrics(path: Path) -> pd.DataFrame:
    """The rows of metrics.csv, one per cell, label and metric: the intervals to report."""
    return one_per_metric(read_csv(path, dtype={"note": str, "ci_method": str}))
