"""Splits by patient: NIH's official, the CheXNet reproductions', a seeded one, a CSV file's, and phantoms'.

The two published lists name every image of ChestX-ray14; both keep a patient's images together, so they
are stored here by patient (``splits/*.csv.gz``, made from the lists named in data/README.md).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from cxrbench.common.errors import UserError, and_more, nearest, shortened
from cxrbench.common.readers import Row, Text, one_of, read_rows
from cxrbench.datasets.nih_table import FINDINGS, read_nih_table
from cxrbench.study.recipe import SPLITS

PUBLISHED_SPLITS = ("chexnet", "official")
_SEEDED = re.compile(r"seeded-([0-9]{1,9})")
_FOLD = re.compile(r"fold-([0-9]{1,2})-of-([0-9]{1,2})")
_VAL_OF_REST = 0.125  # of the patients outside a fold
_SEEDED_SHARES = {"train": 0.7, "val": 0.1, "test": 0.2}  # of a seeded split: shares of patients
_VAL_OF_OFFICIAL = 0.125  # NIH's list has no validation part; this share of its train_val patients
_FEWEST, _SHARE = 30, 0.035  # phantoms: patients of each finding in a split, and as a share of its images
_MOST = 4  # phantoms: images of a patient


def assign_split(table: pd.DataFrame, split: str, folder: Path | None = None) -> pd.Series:
    """The part ('train', 'val', 'test') of each row of ``table`` (columns image, patient).

    ``split`` is a published name, ``seeded-N`` (N a whole number: patients drawn at random), ``fold-K-of-N``
    (each patient is a test patient in exactly one of the N), or a CSV file (columns image, split), looked for
    in ``folder`` first.
    Raises UserError when an image has no part, a file names absent images, or a patient is in two parts.
    """
    if split in PUBLISHED_SPLITS:
        parts = table["patient"].map(_published(split))
        if split == "official":
            drawn = table["patient"].map(lambda patient: _uniform(f"official-val-{patient}"))
            parts = parts.mask((parts == "train_val") & (drawn < _VAL_OF_OFFICIAL), "val")
            parts = parts.replace("train_val", "train")
    elif match := _SEEDED.fullmatch(split):
        parts = draw_split(table["patient"], int(match[1]), _SEEDED_SHARES)
    elif fold := fold_of(split):
        parts = _fold(table["patient"], *fold)
    else:
        parts = table["image"].map(_from_file(_find(split, folder), set(table["image"])))
    if parts.isna().any():
        missing = table["image"][parts.isna()]
        raise UserError(
            f"split '{split}': no part has image {missing.iloc[0]}"
            f"{and_more(len(missing) - 1)}; add what is missing to the split, or take it out of the folder"
        )
    _check_disjoint(table.assign(split=parts), f"split '{split}'")
    return parts


def fold_of(split: str) -> tuple[int, int] | None:
    """The number of a fold and of all folds where ``split`` is ``fold-K-of-N``.

    >>> fold_of("fold-2-of-5"), fold_of("chexnet")
    ((2, 5), None)
    """
    match = _FOLD.fullmatch(split)
    return (int(match[1]), int(match[2])) if match else None


def draw_split(
    patients: pd.Series, seed: int, shares: Mapping[str, float], strata: pd.Series | None = None
) -> pd.Series:
    """The part of each row: of the ``patients``, each part's share, in the order of ``shares``.

    A patient's part depends on ``seed`` and its own name, not on which other patients there are. With
    ``strata``, the group of each patient, it depends on the others: each group is divided by the shares.
    """
    names, bounds = list(shares), np.cumsum([*shares.values()])[:-1]
    place = pd.Series({patient: _uniform(f"seeded-{seed}-{patient}") for patient in patients.unique()})
    if strata is not None:  # places in the order of the draw, evenly spaced
        groups = place.groupby(strata.loc[place.index])
        place = (groups.rank() - 0.5) / groups.transform("size")
    parts = np.array(names, dtype=object)[np.searchsorted(bounds, place, side="right")]
    return patients.map(pd.Series(parts, place.index))


def _fold(patients: pd.Series, fold: int, folds: int) -> pd.Series:
    """The part of each row: patients of fold ``fold`` of 1 to ``folds`` for test, an eighth of the rest for
    val. A patient's part depends on its own name alone."""
    if not 1 <= fold <= folds or folds < 2:
        raise UserError(f"split 'fold-{fold}-of-{folds}': write fold-K-of-N with K from 1 to N, N at least 2")

    def part(patient: Any) -> str:
        if int(_uniform(f"fold-{patient}") * folds) == fold - 1:
            return "test"
        return "val" if _uniform(f"fold-val-{patient}") < _VAL_OF_REST else "train"

    return patients.map({patient: part(patient) for patient in patients.unique()})


def choose_rows(table: pd.DataFrame, images: Mapping[Any, int], seed: int) -> pd.DataFrame:
    """Choose rows of NIH's ``table`` for phantoms: so many ``images`` for train, val and test.

    A patient is in one split, with one to four images. Every finding has at least 30 positive patients in
    each split, more where NIH has them; the other patients are drawn at random.
    """
    if set(images) != set(SPLITS):
        raise UserError(f"phantom images: give a number for each of {list(SPLITS)}, not for {list(images)}")
    rng, patients = np.random.default_rng(seed), table["patient"].max() + 1
    rows = table.iloc[rng.permutation(len(table))]
    place, most = rng.random(patients), np.minimum(rng.geometric(0.6, patients), _MOST)  # of each patient
    chosen, taken = {split: rows[:0] for split in SPLITS}, set[int]()
    rarest_first = table[list(FINDINGS)].sum().sort_values(kind="stable").index
    for share, finding, split in product(
        (0, _SHARE), rarest_first, SPLITS
    ):  # first the fewest of all findings
        absent = max(_FEWEST, round(share * images[split])) - int(chosen[split][finding].sum())
        positive = rows[rows[finding] == 1].drop_duplicates("patient")
        new = positive[~positive["patient"].isin(taken)][: max(0, absent)]
        chosen[split] = pd.concat([chosen[split], new])
        taken.update(new["patient"])
    for split, positive in chosen.items():
        if (need := len(positive)) > images[split]:
            raise UserError(
                f"phantom images: {split} has {images[split]} images, but {_FEWEST} patients for each of the "
                f"14 findings take {need}; give {split} at least {need}"
            )
        own = rows["patient"].isin(positive["patient"])
        others = rows[own | ~rows["patient"].isin(taken)]
        others = others.iloc[np.argsort(place[others["patient"]] - own[others.index], kind="stable")]
        both = pd.concat([positive, others]).drop_duplicates("image")
        both = both[both.groupby("patient").cumcount() < most[both["patient"]]][: images[split]]
        if len(both) < images[split]:
            raise UserError(f"phantom images: NIH has too few patients for {images[split]} images in {split}")
        chosen[split] = both.assign(
            split=split, image="phantom_" + both["image"]
        )  # never taken for NIH's image
        taken.update(both["patient"])
    columns = ["image", "patient", "split", "view", "sex", "age", *FINDINGS]
    return pd.concat(chosen.values())[columns].sort_values("image", ignore_index=True)


def _check_disjoint(table: pd.DataFrame, where: str) -> None:
    """Raise UserError when a patient has images in two parts."""
    parts = table.groupby("patient")["split"].nunique()
    if (parts > 1).any():
        patient = parts.index[parts > 1][0]
        rows = table[table["patient"] == patient]
        places = ", ".join(f"{r.image} in {r.split}" for r in rows.drop_duplicates("split").itertuples())
        raise UserError(f"{where}: patient {patient} is in two parts ({places}); split by patient")


def part_hash(images: Iterable[str]) -> str:
    """Hex sha256 of a part: its image names, sorted, one a line (so ``sort part.txt | sha256sum``)."""
    return hashlib.sha256("".join(f"{image}\n" for image in sorted(images)).encode()).hexdigest()


def _published(name: str) -> pd.Series:
    return pd.read_csv(Path(__file__).with_name("splits") / f"{name}.csv.gz", index_col="patient")["split"]


def _uniform(text: str) -> float:
    """A number from 0 up to 1 that depends on ``text`` only, not on which other patients there are."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def file_of(split: str, folder: Path | None) -> Path | None:
    """The file that ``split`` names; None for a published or drawn one, or where there is no such file."""
    if split in PUBLISHED_SPLITS or _SEEDED.fullmatch(split) or _FOLD.fullmatch(split):
        return None
    candidates = [Path(split)] if folder is None else [folder / split, Path(split)]
    return next((path for path in candidates if path.is_file()), None)


def _find(split: str, folder: Path | None) -> Path:
    if (path := file_of(split, folder)) is not None:
        return path
    raise UserError(
        f"split '{split}': neither a published split{nearest(split, (*PUBLISHED_SPLITS, 'seeded-0'))} nor a "
        f"file; use {', '.join(PUBLISHED_SPLITS)}, seeded-N, fold-K-of-N, or the path of a CSV with columns "
        "image,split"
    )


class _Placed(Row):
    """A line of a split file."""

    KEY: ClassVar = ("image",)
    image: Text
    split: Annotated[str, one_of(SPLITS)]


def _from_file(path: Path, present: set[str]) -> pd.Series:
    rows = read_rows(path, _Placed)
    for line, row in rows.items():
        if row.image not in present:
            absent = sum(row.image not in present for row in rows.values())
            raise UserError(
                f"{path}:{line}: column image: the image folder lacks {shortened(row.image)}"
                f"{and_more(absent - 1)}; fetch what is missing, or take it out of the split file"
            )
    return pd.Series({row.image: row.split for row in rows.values()}, name="split", dtype=str)


@cache
def abnormal_share(split: str, part: str = "test") -> float:
    """The share of ChestX-ray14's images in a part of a split that have any finding."""
    table = read_nih_table()
    return float(table.loc[assign_split(table, split) == part, list(FINDINGS)].any(axis=1).mean())


def splits() -> pd.DataFrame:
    """One row per split and part: images, patients, ``abnormal`` images (with a finding), images of
    each finding, sha256 of sorted names."""
    table, rows = read_nih_table(), []
    for split in (*PUBLISHED_SPLITS, "seeded-0"):
        parts = assign_split(table, split)
        for part in SPLITS:
            members = table[parts == part]
            row = {
                "split": split,
                "part": part,
                "images": len(members),
                "patients": members["patient"].nunique(),
                "abnormal": int(members[list(FINDINGS)].any(axis=1).sum()),
            }
            rows.append(
                row | members[list(FINDINGS)].sum().to_dict() | {"sha256": part_hash(members["image"])}
            )
    return pd.DataFrame(rows)
