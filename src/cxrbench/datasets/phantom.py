"""The phantom dataset: real rows of NIH's label table, drawn as radiograph-like images.

Nothing is downloaded: labels, patients, views, sex and age are NIH's, the lungs come from real masks, both
from the torchxrayvision wheel. The pictures are drawn (`phantom_drawing`), the findings placed by label.
Scores on a phantom show that the pipeline works; they mean nothing for reading radiographs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.sources import Chunks
from cxrbench.study.config import PhantomSource
from cxrbench.study.cores import cores
from cxrbench.study.errors import UserError
from cxrbench.study.files import written_aside

VIEWS = ("PA", "AP")
_PREFIX = "phantom_"  # of every image name, so that a phantom is never taken for NIH's image
_RARE_SHARE = 0.035  # of a split's images: patients given to each finding, where NIH has them
_PER_PATIENT = 4  # images at most
_REPEATED = 0.4  # chance of each further image of a patient


class PhantomImages:
    """The drawings of a :class:`PhantomSource`."""

    findings = FINDINGS

    def __init__(
        self, config: PhantomSource, workers: int | None = None, say: Callable[[str], None] | None = None
    ) -> None:
        images = {str(split): count for split, count in config.images.items()}
        self.config, self.workers = config, workers
        self.rows = choose_rows(read_nih_table(), images, config.seed)

    @staticmethod
    def present(config: PhantomSource) -> bool:
        """Phantoms are drawn anywhere."""
        return True

    def chunks(self) -> Chunks:
        """Names and pixels, in the order of the names."""
        names, start = self.rows["image"].tolist(), 0
        for images in draw(self.rows, self.config.pixels, self.config.seed, self.workers):
            yield names[start : start + len(images)], images
            start += len(images)

    def index(self, names: list[str]) -> pd.DataFrame:
        """Return the rows of ``names``."""
        return self.rows.set_index("image").loc[names].reset_index()

    def describe(self) -> dict[str, object]:
        """Return the manifest's entries about the drawings."""
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
    total = {f: table.loc[table[f] == 1, "patient"].nunique() for f in FINDINGS}
    rarest_first = sorted(FINDINGS, key=total.__getitem__)
    for finding in rarest_first:
        for split in SPLITS:
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
    for finding in rarest_first:  # half of a split is left to chance
        for split in SPLITS:
            chosen.add(finding, split, round(_RARE_SHARE * images[split]), images[split] // 2)
    for split in SPLITS:
        chosen.fill(split, images[split])
    parts = [chosen.table.iloc[rows].assign(split=split) for split, rows in chosen.rows.items()]
    rows = pd.concat(parts, ignore_index=True)
    rows["image"] = _PREFIX + rows["image"]
    columns = ["image", "patient", "split", "view", "sex", "age", *FINDINGS]
    return rows[columns].sort_values("image", ignore_index=True)


class _Chosen:
    """Row numbers taken for each split; they count in a shuffled table, so the first is a random row."""

    def __init__(self, table: pd.DataFrame, rng: np.random.Generator) -> None:
        self.table, self.rng = table, rng
        self.patients = table["patient"].to_numpy()
        self.by_patient = table.groupby("patient", sort=False).indices
        self.rows: dict[str, list[int]] = {split: [] for split in SPLITS}
        self.used: set[int] = set()

    def _take(self, row: int, split: str) -> None:
        self.rows[split].append(row)
        self.used.add(self.patients[row])

    def add(self, finding: str, split: str, patients: int, most: int) -> int:
        """Take a positive image of unused patients until the split has ``patients`` of them or ``most`` rows.

        Returns how many positive patients the split has.
        """
        positive = self.table[finding].to_numpy() == 1
        have = len({self.patients[row] for row in self.rows[split] if positive[row]})
        for row in np.flatnonzero(positive):
            if have >= patients or len(self.rows[split]) >= most:
                break
            if self.patients[row] not in self.used:
                self._take(int(row), split)
                have += 1
        return have

    def fill(self, split: str, images: int) -> None:
        """Take further images of the split's patients, then random patients, up to ``images``."""
        for row in list(self.rows[split]):
            self._repeat(row, split, images)
        for row, patient in enumerate(self.patients):
            if len(self.rows[split]) >= images:
                return
            if patient not in self.used:
                self._take(row, split)
                self._repeat(row, split, images)
        if len(self.rows[split]) < images:
            raise UserError(
                f"phantom images: NIH has too few patients for {images} images in {split}; ask for fewer"
            )

    def _repeat(self, row: int, split: str, images: int) -> None:
        others = [int(other) for other in self.by_patient[self.patients[row]] if other != row]
        for other in others[: _PER_PATIENT - 1]:
            if len(self.rows[split]) >= images or self.rng.random() >= _REPEATED:
                return
            self._take(other, split)


def draw(
    rows: pd.DataFrame, pixels: int, seed: int, workers: int | None = None, chunk: int = 256
) -> Iterator[np.ndarray]:
    """Pictures of ``rows`` in their order, as arrays of at most (chunk, pixels, pixels) uint8.

    Each picture depends on the seed, its row and its size only, not on ``workers`` (None: one per core) or
    ``chunk``. Raises UserError for a size below 16 or above 2048 pixels.
    """
    from cxrbench.datasets import phantom_drawing  # imported here: planning a build needs no scipy

    if not 16 <= pixels <= 2048:
        raise UserError(f"phantom pictures have 16 to 2048 pixels, not {pixels}; change the dataset's pixels")
    pieces = (rows.iloc[start : start + chunk] for start in range(0, len(rows), chunk))
    drawn = partial(phantom_drawing.draw_rows, pixels=pixels, seed=seed)
    if (workers := min(workers or cores(), -(-len(rows) // chunk))) <= 1:
        yield from map(drawn, pieces)
        return
    phantom_drawing.prepare(pixels)  # forked workers inherit it
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(drawn, pieces)


def examples(kinds: Sequence[str], each: int, pixels: int, seed: int = 0) -> list[tuple[str, np.ndarray]]:
    """Captioned phantoms (pixels, pixels) uint8: ``each`` of every kind, which is a finding alone, PA or AP.

    PA and AP stand for that view without a finding. Rows are drawn at random from NIH's table.
    """
    table = read_nih_table()
    alone = table[table[list(FINDINGS)].sum(axis=1) <= 1].sample(frac=1, random_state=seed)
    healthy = alone[alone[list(FINDINGS)].sum(axis=1) == 0]
    picked = {}
    for kind in kinds:
        caption = f"No Finding ({kind})" if kind in VIEWS else kind
        rows = healthy[healthy["view"] == kind] if kind in VIEWS else alone[alone[kind] == 1]
        picked[caption] = rows.iloc[:each]
    captions = [caption for caption, some in picked.items() for _ in range(len(some))]
    pictures = np.concatenate(list(draw(pd.concat(picked.values()), pixels, seed, workers=1)))
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
