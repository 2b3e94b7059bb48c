"""Where the images and labels of a dataset come from, typed: one class for each source."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cxrbench.study.recipe import Count, Strict

Seed = Annotated[int, Field(ge=0, lt=2**32)]


class _Packable(Strict):
    """Where a dataset's images and labels come from."""

    def settings(self) -> dict[str, Any]:
        """Return what decides pixels, labels and split, as JSON has it; without folders and recipe."""
        elsewhere = {"recipe", "folder", "table", "archives", "expect_images"}
        values = self.model_dump(mode="json", exclude=elsewhere)
        return values | ({"split": Path(values["split"]).name} if "split" in values else {})


class PhantomSource(_Packable):
    """Drawn radiographs with real label rows; always called phantom."""

    source: Literal["phantom"]
    pixels: int = Field(ge=16, le=1024)
    recipe: str
    images: dict[Literal["train", "val", "test"], Count] = Field({"train": 2800, "val": 800, "test": 1400})
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
        "chexnet", description="official, chexnet, seeded-N, or a CSV file with columns image,split"
    )
    expect_images: dict[Literal["train", "val", "test"], Count] | None = Field(
        None, description="images per part, asserted when packing"
    )

    @property
    def steps(self) -> tuple[int, ...]:
        """Return the sides in pixels that ``reduced`` goes through: 256, 128; nothing where it is not set."""
        return tuple(int(part) for part in (self.reduced or "").split("-") if part.isdecimal())

    @model_validator(mode="after")
    def _not_enlarged(self) -> NihSource:
        if self.steps and self.pixels > self.steps[-1]:
            what = f"{self.reduced} leaves {self.steps[-1]} pixels"
            raise ValueError(f"{what}; choose no more, or drop 'reduced'")
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


class TableSource(_Packable):
    """Anybody's radiographs: a table with a row per image, and a folder or archives of the images."""

    source: Literal["table"]
    pixels: int = Field(ge=16, le=1024)
    recipe: str
    table: Path = Field(
        description="CSV or Parquet: image, patient, split (or none of it); view, sex, age; then the findings"
    )
    folder: Path = Field(
        description="PNG, JPEG and DICOM files, tarballs and zip files; or one of these archives"
    )
    findings: list[str] | None = Field(
        None,
        min_length=1,
        description="columns of labels; none: all that are not known to be something else",
    )
    patient: Literal["none"] | None = Field(
        None, description="none: patients are unknown, and each image counts as one"
    )
    uncertain: Meaning | None = Field(None, description="what a label of -1 means; mask: it is left out")
    blank: Meaning | None = Field(None, description="what an empty label means; mask: it is left out")
    seed: Seed = Field(0, description="of the split by patient, where the table has no column split")
    fractions: dict[Literal["train", "val", "test"], float] = Field(
        {"train": 0.7, "val": 0.1, "test": 0.2}, description="of the patients, where the table has no split"
    )

    @model_validator(mode="after")
    def _fractions_are_of_all(self) -> TableSource:
        shares = self.fractions.values()
        if len(shares) != 3 or min(shares) <= 0 or not math.isclose(sum(shares), 1):
            raise ValueError("fractions of train, val and test must be above 0 and sum to 1; correct them")
        return self


AnySource = PhantomSource | NihSource | ChestMnistSource | TableSource
Dataset = Annotated[AnySource, Field(discriminator="source")]
