"""Where a dataset's images and labels come from: one class for each source."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cxrbench.study.recipe import Count, Seed, Split, Strict


class _Packable(Strict):
    """Where a dataset's images and labels come from."""

    block: str | None = Field(
        None,
        description="compared with datasets of this block alone, on seeds whose two runs shared a processor; "
        "tables and figures of all settings leave them out",
    )

    @property
    def scored_only(self) -> bool:
        """Whether no network is trained on the images."""
        return False

    def settings(self) -> dict[str, Any]:
        """The settings that decide pixels, labels and split, in JSON's types; without folders and recipe."""
        elsewhere = {"recipe", "folder", "table", "join", "archives", "expect_images", "block"}
        values = self.model_dump(mode="json", exclude=elsewhere)
        return values | ({"split": Path(values["split"]).name} if "split" in values else {})


class PhantomSource(_Packable):
    """Drawn radiographs with real label rows; always called phantom."""

    source: Literal["phantom"]
    pixels: int = Field(ge=16, le=1024)
    recipe: str
    images: dict[Split, Count] = Field({"train": 2800, "val": 800, "test": 1400})
    seed: Seed = 0


class NihSource(_Packable):
    """A folder or tarballs of NIH-named images of any size, with NIH's own label table."""

    source: Literal["nih"]
    pixels: int = Field(ge=16, le=1024)
    recipe: str
    folder: Path = Field(description="PNG files or tarballs, anywhere below; relative to the repository")
    archives: str = Field("*", description="those that `cxrbench data get` downloads: a shell pattern")
    reduced: Literal["opencv-bilinear-256-128"] | None = Field(
        None,
        description="how images of 1024 px first become 128 px; those of 128 px are taken as they are",
    )
    split: str = Field(
        "chexnet",
        description="official, chexnet, seeded-N, fold-K-of-N, or a CSV of image,split",
    )
    expect_images: dict[Split, Count] | None = Field(
        None, description="images per part, asserted when packing"
    )

    @property
    def steps(self) -> tuple[int, ...]:
        """The sides in pixels that ``reduced`` goes through: 256, 128; nothing where it is not set."""
        return tuple(int(part) for part in (self.reduced or "").split("-") if part.isdecimal())

    @model_validator(mode="after")
    def _not_enlarged(self) -> NihSource:
        if self.steps and self.pixels > self.steps[-1]:
            raise ValueError(
                f"{self.reduced} leaves {self.steps[-1]} pixels; choose no more, or drop 'reduced'"
            )
        return self


class ChestMnistSource(_Packable):
    """MedMNIST's reduced ChestX-ray14 in one of its four sizes; its patient ids are not published."""

    source: Literal["chestmnist"]
    pixels: Literal[28, 64, 128, 224]
    recipe: str
    folder: Path = Field(
        Path("data/raw/chestmnist"), description="where chestmnist.npz or chestmnist_64.npz is"
    )


Meaning = Literal["mask", "positive", "negative"]
ColumnValue = str | int | float  # of a column, compared as text


class TableSource(_Packable):
    """Anybody's radiographs: a table with a row per image, and a folder or archives of the images."""

    source: Literal["table"]
    pixels: int = Field(ge=16, le=1024)
    recipe: str
    table: Path | dict[str, Path] | None = Field(
        None,
        description="CSV, TSV or Parquet: image, patient, split (or none of it); view, sex, age; then the "
        "findings. Or a table for each part, or MedMNIST's npz; none: an image's finding is its folder",
    )
    join: list[Path] = Field(
        [], description="further tables: their rows are added by the columns that they share with the first"
    )
    folder: Path = Field(
        description="PNG, JPEG and DICOM files, tarballs and zip files; or one of these archives"
    )
    columns: dict[str, str] = Field(
        {}, description="our name of a column, or a name for a finding: what the table calls it"
    )
    keep: dict[str, ColumnValue | list[ColumnValue]] = Field(
        {}, description="column: value or values; rows with any other value are left out"
    )
    labels: str | None = Field(
        None, description="column that lists an image's findings, such as Mass|Nodule or ['mass', 'nodule']"
    )
    findings: list[str] | None = Field(
        None,
        min_length=1,
        description="columns of labels; none: all that are not known to be something else",
    )
    merge: Literal["any", "majority"] | None = Field(
        None,
        description="rows of one image: positive if any row is, or if more than half of its rows are; "
        "none: a second row is refused",
    )
    parts: dict[str, Split | list[Split]] = Field(
        {}, description="the table's name of a part: ours; or several of ours, between which it is divided"
    )
    patient: Literal["none"] | None = Field(
        None, description="none: patients are unknown, and each image counts as one"
    )
    patient_pattern: str | None = Field(
        None, description="the part of an image's path that names its patient, as a regular expression"
    )
    bits: int | None = Field(
        None, ge=8, le=16, description="bits used of each pixel of 16-bit PNG files, such as 12"
    )
    uncertain: Meaning | None = Field(None, description="what a label of -1 means; mask: it is left out")
    blank: Meaning | None = Field(None, description="what an empty label means; mask: it is left out")
    seed: Seed = Field(0, description="of the split by patient, where the table has no column split")
    stratify: bool = Field(
        False, description="whether a drawn split gives each part its share of every finding's patients"
    )
    fractions: dict[Split, float] = Field(
        {"train": 0.7, "val": 0.1, "test": 0.2},
        description="of the patients, where the table has no split; without train the images are only scored",
    )

    @property
    def scored_only(self) -> bool:
        """Whether ``fractions`` leave out train: no network is trained on the images."""
        return not self.fractions.get("train")

    @property
    def tables(self) -> dict[str, Path]:
        """The files of the table by part, or under an empty name, without joined ones."""
        return self.table if isinstance(self.table, dict) else {"": self.table} if self.table else {}

    @property
    def files(self) -> dict[str, Path]:
        """All files that rows are read from, by part or number."""
        return self.tables | {f"join {k}": path for k, path in enumerate(self.join)}

    @model_validator(mode="before")
    @classmethod
    def _arrays_hold_their_images(cls, value: Any) -> Any:
        table = value.get("table") if isinstance(value, dict) else None
        return {"folder": table} | value if str(table).endswith(".npz") else value

    @model_validator(mode="after")
    def _fractions_are_of_all(self) -> TableSource:
        shares = self.fractions
        scored = self.scored_only and shares.get("test", 0) > 0
        if not (len(shares) == 3 or scored) or not math.isclose(sum(shares.values()), 1):
            raise ValueError(
                "fractions of train, val and test must sum to 1; only images that are scored and not trained "
                "on leave train out: {test: 1}, or with val"
            )
        if min(shares.values()) < 0 or (not scored and min(shares.values()) == 0):
            raise ValueError("fractions must be above 0; leave out what has no images")
        if self.patient and self.patient_pattern:
            raise ValueError("patient and patient_pattern contradict each other; state one of them")
        try:
            re.compile(self.patient_pattern or "")
        except re.error as error:
            raise ValueError(f"patient_pattern: not a regular expression ({error})") from None
        return self


AnySource = PhantomSource | NihSource | ChestMnistSource | TableSource
Dataset = Annotated[AnySource, Field(discriminator="source")]
