"""The phantom dataset: real rows of NIH's label table, drawn as radiograph-like images.

Nothing is downloaded: the torchxrayvision wheel has NIH's rows and real lung masks. Findings are placed by
label. Scores on phantoms show that the pipeline works; they mean nothing for reading radiographs.
"""

from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np
import pandas as pd

from cxrbench.datasets.findings import FINDINGS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.sources import Chunks, Source
from cxrbench.study.config import PhantomSource
from cxrbench.study.errors import UserError
from cxrbench.study.files import cores
from cxrbench.study.recipe import SPLITS

_FEWEST = 30  # patients of each finding in each split; NIH has 134 with a hernia
_RARE_SHARE = 0.035  # of a split's images: patients given to each finding, where NIH has them
_PER_PATIENT = 4  # images at most
_REPEATED = 0.4  # chance of each further image of a patient


class Images(Source):
    """The drawings of a :class:`PhantomSource`."""

    findings = FINDINGS

    @staticmethod
    def present(config: PhantomSource) -> bool:
        return True  # drawn anywhere

    def chunks(self) -> Chunks:
        self.rows = choose_rows(read_nih_table(), self.config.images, self.config.seed)
        pictures = draw(self.rows, self.config.pixels, self.config.seed, self.workers)
        for name, picture in zip(self.rows["image"], pictures, strict=True):
            yield [name], picture[None]

    def index(self, names: list[str]) -> pd.DataFrame:
        return self.rows  # all of them, in this order

    def describe(self) -> dict[str, object]:
        return {
            "seed": self.config.seed,
            "split": "drawn by patient; rare findings oversampled, so prevalence is not NIH's",
            "resized": "not resized: drawn at this size",
        }


def choose_rows(table: pd.DataFrame, images: Mapping[Any, int], seed: int) -> pd.DataFrame:
    """Choose rows of NIH's ``table``, so many ``images`` for train, val and test, sorted by image.

    A patient is in one split, with one to four images. Every finding has at least 30 positive patients in
    each split, more where NIH has them; the other patients are drawn at random.
    """
    if set(images) != set(SPLITS):
        raise UserError(f"phantom images: give a number for each of {list(SPLITS)}, not for {list(images)}")
    rng = np.random.default_rng(seed)
    chosen = _Chosen(table.iloc[rng.permutation(len(table))].reset_index(drop=True), rng)
    total = {finding: table["patient"][table[finding] == 1].nunique() for finding in FINDINGS}
    rarest_first = list(product(sorted(FINDINGS, key=total.__getitem__), SPLITS))
    for finding, split in rarest_first:
        chosen.add(finding, split, _FEWEST, len(table))
    for finding, split in rarest_first:  # half of a split is left to chance
        chosen.add(finding, split, round(_RARE_SHARE * images[split]), images[split] // 2)
    for split in SPLITS:
        chosen.fill(split, images[split])
    rows = pd.concat(chosen.table.iloc[rows].assign(split=split) for split, rows in chosen.rows.items())
    rows["image"] = "phantom_" + rows["image"]  # never taken for NIH's image
    columns = ["image", "patient", "split", "view", "sex", "age", *FINDINGS]
    return rows[columns].sort_values("image", ignore_index=True)


class _Chosen:
    """Row numbers of each split; they count in a shuffled table, so the first is a random row."""

    def __init__(self, table: pd.DataFrame, rng: np.random.Generator) -> None:
        self.table, self.rng, self.patients = table, rng, table["patient"]
        self.by_patient = table.groupby("patient", sort=False).indices
        self.rows: dict[str, list[int]] = {split: [] for split in SPLITS}
        self.used: set[int] = set()

    def add(self, finding: str, split: str, patients: int, most: int) -> None:
        """Take positive images of unused patients, up to ``patients`` of them or ``most`` rows in all."""
        rows, positive = self.rows[split], self.patients[self.table[finding] == 1]
        have = positive[positive.index.isin(rows)].nunique()
        unused = positive[~positive.isin(self.used)].drop_duplicates()
        taken = unused[: max(0, min(patients - have, most - len(rows)))]
        rows += taken.index.tolist()
        self.used.update(taken)

    def fill(self, split: str, images: int) -> None:
        """Take further images of the split's patients, then random patients, up to ``images``."""
        rows = self.rows[split]
        if (need := len(rows)) > images:
            raise UserError(
                f"phantom images: {split} has {images} images, but {_FEWEST} patients for each of the 14 "
                f"findings take {need}; give {split} at least {need}"
            )
        unused = (row for row, patient in self.patients.items() if patient not in self.used)
        for row in chain(rows.copy(), unused):
            if (patient := self.patients[row]) not in self.used:
                self.used.add(patient)
                rows.append(row)
            others = self.by_patient[patient]
            for other in others[others != row][: _PER_PATIENT - 1]:
                if len(rows) >= images or self.rng.random() >= _REPEATED:
                    break
                rows.append(other)
            if len(rows) >= images:
                return
        raise UserError(f"phantom images: NIH has too few patients for {images} images in {split}")


def draw(rows: pd.DataFrame, pixels: int, seed: int, workers: int | None = None) -> Iterator[np.ndarray]:
    """Yield a picture of each row, (pixels, pixels) uint8; ``workers`` (None: all cores) change no byte."""
    from cxrbench.datasets.phantom_drawing import draw_row  # imported here: planning needs no scipy
    from cxrbench.datasets.phantom_scene import read_lungs, textures

    drawn, records = partial(draw_row, pixels=pixels, seed=seed), rows.to_dict("records")
    if (workers := min(workers or cores(), len(rows))) <= 1:
        yield from map(drawn, records)
        return
    read_lungs()  # forked workers inherit masks and textures
    textures(pixels)
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(drawn, records, chunksize=64)
