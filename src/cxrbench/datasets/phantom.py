"""The phantom dataset: real rows of NIH's label table, drawn as radiograph-like images.

Nothing is downloaded: labels, patients, views, sex and age are NIH's, the lungs come from real masks, both
from the torchxrayvision wheel. The pictures are drawn (`phantom_drawing`), the findings placed by label.
Scores on a phantom say that the pipeline works; they say nothing about reading radiographs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from cxrbench.cores import cores
from cxrbench.datasets.findings import FINDINGS, SPLITS
from cxrbench.datasets.nih_table import read_nih_table
from cxrbench.datasets.phantom_drawing import Row, draw_one
from cxrbench.datasets.phantom_scene import read_lungs, textures
from cxrbench.errors import UserError
from cxrbench.files import written_aside

PREFIX = "phantom_"  # of every image name, so that a phantom is never taken for NIH's image
VIEWS = ("PA", "AP")
COLUMNS = ("image", "patient", "split", "view", "sex", "age", *FINDINGS)
RARE_SHARE = 0.035  # of a split's images: how many patients each finding is given, where NIH has them
PER_PATIENT = 4  # at most this many images of one patient
REPEATED = 0.4  # chance of each further image of a patient

# ------------------------------------------------------------------------------------------ rows


def choose_rows(
    table: pd.DataFrame, images: dict[str, int], seed: int, min_patients: int = 30
) -> pd.DataFrame:
    """Rows of NIH's table for the phantom, sorted by image.

    `table` is `read_nih_table()`; `images` says how many images train, val and test get. Each patient is in
    one split, with one to four images. Every finding has at least `min_patients` positive patients in each
    split, more where NIH has them; the other patients are drawn at random.
    Returns image ("phantom_" + NIH's name), patient, split, view, sex, age and the 14 findings.
    Raises UserError when a finding has too few patients or a split too few images.
    """
    if wrong := set(images) ^ set(SPLITS):
        raise UserError(
            f"phantom images: {sorted(wrong)} is missing or unknown; give a number for {list(SPLITS)}"
        )
    rng = np.random.default_rng(seed)
    shuffled = table.iloc[rng.permutation(len(table))].reset_index(drop=True)
    chosen = _Chosen(shuffled, rng)
    rarest_first = sorted(FINDINGS, key=lambda f: shuffled.loc[shuffled[f] == 1, "patient"].nunique())
    for finding in rarest_first:
        for split in SPLITS:
            chosen.require(finding, split, min_patients)
    for split in SPLITS:
        if (need := chosen.count(split)) > images[split]:
            raise UserError(
                f"phantom images: {split} has {images[split]} images, but {min_patients} patients for each "
                f"of the 14 findings take {need}; give {split} at least {need}"
            )
    for finding in rarest_first:
        for split in SPLITS:
            chosen.enrich(finding, split, round(RARE_SHARE * images[split]), images[split])
    for split in SPLITS:
        chosen.fill(split, images[split])
    return chosen.rows()


class _Chosen:
    """Rows taken so far; row numbers are positions in a shuffled table, so the first is a random one."""

    def __init__(self, table: pd.DataFrame, rng: np.random.Generator) -> None:
        self.table, self.rng = table, rng
        self.labels = table[list(FINDINGS)].to_numpy()
        self.patients = table["patient"].to_numpy()
        self.by_patient = table.groupby("patient", sort=False).indices
        self.taken: dict[str, list[int]] = {split: [] for split in SPLITS}
        self.used: set[int] = set()

    def count(self, split: str) -> int:
        return len(self.taken[split])

    def _positive(self, finding: str, split: str) -> int:
        rows = self.taken[split]
        return len(set(self.patients[rows][self.labels[rows, FINDINGS.index(finding)] == 1]))

    def _unused(self, finding: str) -> Iterator[int]:
        """A positive row of each patient not taken yet."""
        for row in np.nonzero(self.labels[:, FINDINGS.index(finding)])[0]:
            if self.patients[row] not in self.used:
                yield int(row)

    def _take(self, row: int, split: str) -> None:
        self.taken[split].append(row)
        self.used.add(self.patients[row])

    def require(self, finding: str, split: str, patients: int) -> None:
        """One positive image of as many patients as are missing; UserError when NIH has no more."""
        have = self._positive(finding, split)
        for row in self._unused(finding):
            if have >= patients:
                return
            self._take(row, split)
            have += 1
        if have < patients:
            total = len(set(self.patients[self.labels[:, FINDINGS.index(finding)] == 1]))
            raise UserError(
                f"phantom rows: {finding} has {total} patients in the label table, too few for {patients} "
                f"in each of {', '.join(SPLITS)}; lower min_patients to {total // len(SPLITS)} or less"
            )

    def enrich(self, finding: str, split: str, patients: int, limit: int) -> None:
        """More patients with a finding, while there are any and they leave half of the split to chance."""
        have = self._positive(finding, split)
        for row in self._unused(finding):
            if have >= patients or self.count(split) >= limit // 2:
                return
            self._take(row, split)
            have += 1

    def fill(self, split: str, images: int) -> None:
        """Further images of some patients, then random patients, until the split has its images."""
        for row in list(self.taken[split]):
            self._repeat(row, split, images)
        for row, patient in enumerate(self.patients):
            if self.count(split) >= images:
                return
            if patient not in self.used:
                self._take(row, split)
                self._repeat(row, split, images)
        if self.count(split) < images:
            raise UserError(
                f"phantom images: NIH has too few patients for {images} images in {split}; ask for fewer"
            )

    def _repeat(self, row: int, split: str, images: int) -> None:
        others = [int(other) for other in self.by_patient[self.patients[row]] if other != row]
        for other in others[: PER_PATIENT - 1]:
            if self.count(split) >= images or self.rng.random() >= REPEATED:
                return
            self._take(other, split)

    def rows(self) -> pd.DataFrame:
        parts = [self.table.iloc[rows].assign(split=split) for split, rows in self.taken.items()]
        chosen = pd.concat(parts, ignore_index=True)
        chosen["image"] = PREFIX + chosen["image"]
        return chosen[list(COLUMNS)].sort_values("image", ignore_index=True)


# ------------------------------------------------------------------------------------------ pictures


def draw(
    rows: pd.DataFrame, pixels: int, seed: int, workers: int | None = None, chunk: int = 256
) -> Iterator[np.ndarray]:
    """Pictures of `rows` in their order, as arrays of at most (chunk, pixels, pixels) uint8.

    Each picture depends on the seed, its row and its size only, whatever `workers` (None: one per core; 1:
    only this process) and `chunk`. Raises UserError, when the first chunk is asked for, for a size
    below 16 or above 2048 pixels.
    """
    if not 16 <= pixels <= 2048:
        raise UserError(f"phantom pictures have 16 to 2048 pixels, not {pixels}; change the dataset's pixels")
    pieces = _pieces(rows, chunk)
    workers = min(workers or cores(), -(-len(rows) // chunk))
    if workers <= 1:
        for piece in pieces:
            yield _draw_piece(piece, pixels, seed)
        return
    read_lungs()  # once here: forked workers inherit them
    textures(pixels)
    with ProcessPoolExecutor(workers) as pool:
        waiting = deque(
            pool.submit(_draw_piece, piece, pixels, seed) for piece in islice(pieces, workers + 1)
        )
        while waiting:
            yield waiting.popleft().result()
            for piece in islice(pieces, 1):  # keep only a few pieces in memory
                waiting.append(pool.submit(_draw_piece, piece, pixels, seed))


def _pieces(rows: pd.DataFrame, chunk: int) -> Iterator[list[Row]]:
    labels = rows[list(FINDINGS)].to_numpy()
    named = [
        Row(
            image,
            int(patient),
            view,
            sex,
            tuple(f for f, positive in zip(FINDINGS, row, strict=True) if positive),
        )
        for image, patient, view, sex, row in zip(
            rows["image"], rows["patient"], rows["view"], rows["sex"], labels, strict=True
        )
    ]
    for start in range(0, len(named), chunk):
        yield named[start : start + chunk]


def _draw_piece(piece: list[Row], pixels: int, seed: int) -> np.ndarray:
    return np.stack([draw_one(row, pixels, seed) for row in piece])


def examples(kinds: Sequence[str], each: int, pixels: int, seed: int = 0) -> list[tuple[str, np.ndarray]]:
    """Captioned phantoms (pixels, pixels) uint8: ``each`` of every kind, which is a finding alone, PA or AP.

    PA and AP stand for that view without a finding. Rows are drawn at random from NIH's table.
    """
    table = read_nih_table()
    alone = table[table[list(FINDINGS)].sum(axis=1) <= 1].sample(frac=1, random_state=seed)
    healthy = alone[alone[list(FINDINGS)].sum(axis=1) == 0]
    picked = {
        f"No Finding ({kind})" if kind in VIEWS else kind: (
            healthy[healthy["view"] == kind] if kind in VIEWS else alone[alone[kind] == 1]
        ).iloc[:each]
        for kind in kinds
    }
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
