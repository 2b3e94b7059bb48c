"""The phantom dataset: real rows of NIH's label table, drawn as radiograph-like images.

Nothing is downloaded: labels, patients, views, sex and age are NIH's, the lungs come from real masks, both
from the torchxrayvision wheel. The pictures are drawn (`phantom_drawing`), the findings placed by label.
Scores on a phantom show that the pipeline works; they mean nothing for reading radiographs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import chain, product
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.sources import Chunks, Source
from cxrbench.study.config import PhantomSource
from cxrbench.study.cores import cores
from cxrbench.study.errors import UserError
from cxrbench.study.files import written_aside

VIEWS = ("PA", "AP")
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
        config = self.config
        images = {str(split): count for split, count in config.images.items()}
        self.rows = choose_rows(read_nih_table(), images, config.seed)
        names = iter(self.rows["image"])
        for pictures in draw(self.rows, config.pixels, config.seed, self.workers):
            yield [next(names) for _ in pictures], pictures

    def index(self, names: list[str]) -> pd.DataFrame:
        return self.rows  # all of them, in this order

    def describe(self) -> dict[str, object]:
        return {
            "seed": self.config.seed,
            "split": "drawn by patient; rare findings oversampled, so prevalence is not NIH's",
            "resized": "not resized: drawn at this size",
        }


def choose_rows(
    table: pd.DataFrame, images: dict[str, int], seed: int, min_patients: int = 30
) -> pd.DataFrame:
    """Choose rows of NIH's ``table``: ``images`` of them for train, val and test, sorted by image.

    Each patient is in one split, with one to four images. Every finding has at least ``min_patients``
    positive patients in each split, more where NIH has them; the other patients are drawn at random.
    Raises UserError when a finding has too few patients or a split too few images.
    """
    if wrong := set(images) ^ set(SPLITS):
        raise UserError(
            f"phantom images: {sorted(wrong)} is missing or unknown; give a number for {list(SPLITS)}"
        )
    rng = np.random.default_rng(seed)
    chosen = _Chosen(table.iloc[rng.permutation(len(table))].reset_index(drop=True), rng)
    total = {finding: table["patient"][table[finding] == 1].nunique() for finding in FINDINGS}
    rarest_first = list(product(sorted(FINDINGS, key=total.__getitem__), SPLITS))
    for finding, split in rarest_first:
        if chosen.add(finding, split, min_patients, len(table)) < min_patients:
            raise UserError(
                f"phantom rows: {finding} has {total[finding]} patients in the label table, too few for "
                f"{min_patients} in each of {', '.join(SPLITS)}; lower min_patients to "
                f"{total[finding] // len(SPLITS)} or less"
            )
    for split in SPLITS:
        if (need := len(chosen.rows[split])) > images[split]:
            raise UserError(
                f"phantom images: {split} has {images[split]} images, but {min_patients} patients for each "
                f"of the 14 findings take {need}; give {split} at least {need}"
            )
    for finding, split in rarest_first:  # half of a split is left to chance
        chosen.add(finding, split, round(_RARE_SHARE * images[split]), images[split] // 2)
    for split in SPLITS:
        chosen.fill(split, images[split])
    rows = pd.concat(chosen.table.iloc[rows].assign(split=split) for split, rows in chosen.rows.items())
    rows["image"] = "phantom_" + rows["image"]  # never taken for NIH's image
    columns = ["image", "patient", "split", "view", "sex", "age", *FINDINGS]
    return rows[columns].sort_values("image", ignore_index=True)


class _Chosen:
    """Row numbers taken for each split; they count in a shuffled table, so the first is a random row."""

    def __init__(self, table: pd.DataFrame, rng: np.random.Generator) -> None:
        self.table, self.rng, self.patients = table, rng, table["patient"]
        self.by_patient = table.groupby("patient", sort=False).indices
        self.rows: dict[str, list[int]] = {split: [] for split in SPLITS}
        self.used: set[int] = set()

    def add(self, finding: str, split: str, patients: int, most: int) -> int:
        """Take positive images of unused patients until the split has ``patients`` of them or ``most`` rows.

        Returns how many positive patients the split has.
        """
        rows, positive = self.rows[split], self.patients[self.table[finding] == 1]
        have = positive[positive.index.isin(rows)].nunique()
        unused = positive[~positive.isin(self.used)].drop_duplicates()
        taken = unused[: max(0, min(patients - have, most - len(rows)))]
        rows += taken.index.tolist()
        self.used.update(taken)
        return have + len(taken)

    def fill(self, split: str, images: int) -> None:
        """Take further images of the split's patients, then random patients, up to ``images``."""
        rows = self.rows[split]
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
        raise UserError(
            f"phantom images: NIH has too few patients for {images} images in {split}; ask for fewer"
        )


def draw(
    rows: pd.DataFrame, pixels: int, seed: int, workers: int | None = None, chunk: int = 256
) -> Iterator[np.ndarray]:
    """Yield pictures of ``rows`` in their order, as arrays of at most (chunk, pixels, pixels) uint8.

    Each picture depends on the seed, its row and its size only, not on ``workers`` (None: one per core) or
    ``chunk``. Raises UserError for a size below 16 or above 2048 pixels.
    """
    from cxrbench.datasets.phantom_drawing import draw_rows  # imported here: planning needs no scipy
    from cxrbench.datasets.phantom_scene import read_lungs, textures

    if not 16 <= pixels <= 2048:
        raise UserError(f"phantom pictures have 16 to 2048 pixels, not {pixels}; change the dataset's pixels")
    pieces = [rows.iloc[start : start + chunk] for start in range(0, len(rows), chunk)]
    drawn = partial(draw_rows, pixels=pixels, seed=seed)
    if (workers := min(workers or cores(), len(pieces))) <= 1:
        yield from map(drawn, pieces)
        return
    read_lungs()  # forked workers inherit masks and textures
    textures(pixels)
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(drawn, pieces)


def examples(kinds: Sequence[str], each: int, pixels: int, seed: int = 0) -> list[tuple[str, np.ndarray]]:
    """Captioned phantoms (pixels, pixels) uint8: ``each`` of every kind, which is a finding alone, PA or AP.

    PA and AP stand for that view without a finding. Rows are drawn at random from NIH's table.
    """
    table = read_nih_table()
    alone = table[table[list(FINDINGS)].sum(axis=1) <= 1].sample(frac=1, random_state=seed)
    labels = alone[list(FINDINGS)]
    shown = labels.idxmax(axis=1).where(labels.any(axis=1), alone["view"])
    rows = pd.concat(alone[shown == kind].iloc[:each] for kind in kinds)
    captions = [f"No Finding ({kind})" if kind in VIEWS else kind for kind in shown[rows.index]]
    pictures = np.concatenate(list(draw(rows, pixels, seed, workers=1)))
    return list(zip(captions, pictures, strict=True))


def contact_sheet(path: Path, pixels: int = 256, seed: int = 0) -> None:
    """Write a PNG of captioned phantoms: four without a finding, PA and AP, and two of each finding alone."""
    shown = examples((*VIEWS, *FINDINGS), 2, pixels, seed)
    columns, caption_height = 8, 18
    lines = -(-len(shown) // columns)
    sheet = Image.new("L", (columns * pixels, lines * (pixels + caption_height)), 255)
    write = ImageDraw.Draw(sheet)
    for number, (caption, picture) in enumerate(shown):
        x, y = number % columns * pixels, number // columns * (pixels + caption_height)
        sheet.paste(Image.fromarray(picture), (x, y + caption_height))
        write.text((x + 4, y + 3), caption, fill=0)
    few = sheet.point(lambda grey: grey & 0xFC | grey >> 6)  # 64 greys: noise hardly compresses
    with written_aside(path) as aside:
        few.save(aside, format="PNG", optimize=True)
