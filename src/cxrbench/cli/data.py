"""``cxrbench data``: fetch, check and pack datasets; look at phantoms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    PACKED,
    RECORDED,
    REGISTRY,
    RESULTS,
    STUDY,
    RecordedOption,
    StudyOption,
    say,
    wrapped,
)
from cxrbench.common.errors import UserError, and_more, printable

if TYPE_CHECKING:
    from cxrbench.datasets.registry import RemoteFile
    from cxrbench.study.config import Dataset

app = typer.Typer(help="Download and pack datasets.", no_args_is_help=True)

RAW = Path("data/raw")
_UNASKED = 1e9  # bytes that are downloaded without a question
NameArgument = Annotated[str, typer.Argument(help="A dataset of the registry, e.g. nih or chestmnist.")]
FolderOption = Annotated[Path | None, typer.Option(help="Folder of the files. Default: data/raw/NAME.")]
MirrorOption = Annotated[
    list[str] | None,
    typer.Option("--mirror", help="Address or folder with the same files. It is tried first."),
]
OnlyOption = Annotated[str, typer.Option(help="Shell pattern of file names.")]
TimeoutOption = Annotated[
    float, typer.Option(min=0.1, help="Seconds without data after which a connection counts as broken.")
]
WaitOption = Annotated[
    float, typer.Option(min=0, help="Seconds before the first retry. Each later wait is twice as long.")
]
RegistryOption = Annotated[Path, typer.Option(help="Table of the files that can be downloaded.")]


@app.command("download")
def data_download(
    name: NameArgument,
    folder: FolderOption = None,
    check: Annotated[
        bool, typer.Option("--check", help="Download nothing. Fails unless all files are present and intact.")
    ] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Download damaged files again too.")] = False,
    mirror: MirrorOption = None,
    only: OnlyOption = "*",
    timeout: TimeoutOption = 60.0,
    wait: WaitOption = 1.0,
    registry: RegistryOption = REGISTRY,
    yes: Annotated[bool, typer.Option("--yes", help="Download more than 1 GB without being asked.")] = False,
) -> None:
    """Download a dataset's files. After an interruption, the same command continues.

    The size and the hash of each file are checked.
    """
    from cxrbench.datasets.registry import read_files

    files, place = read_files(registry, name, only), folder or RAW / name
    if check:
        _check(files, place, f"cxrbench data download {name} --folder {place} --repair")
        return
    from cxrbench.datasets.download import Options, download

    _ask_before(files, place, yes)
    options = Options(mirrors=tuple(mirror or ()), timeout=timeout, first_wait=wait)
    before = download(files, place, options, mend=repair)
    there = sum(state.state == "present" for state in before)
    say(f"{name}: {len(files)} files in {place}, {there} of them were there before")


def _check(files: list[RemoteFile], place: Path, remedy: str) -> None:
    """Print whether each file is present, missing or damaged; exit with 1 unless all are present."""
    from cxrbench.datasets.download import Options
    from cxrbench.datasets.registry import inspect

    states = inspect(files, place, Options().jobs)
    for file, state, why in states:
        print(wrapped("  ".join(printable(field) for field in (file.name, state, why) if field), "    "))
    if any(state.state != "present" for state in states):
        say(f"to repair, run: {remedy}")
        raise typer.Exit(1)


def _ask_before(files: list[RemoteFile], place: Path, yes: bool) -> None:
    """Say what is to be downloaded; where it is much, ask a terminal, and elsewhere want ``yes``."""
    from cxrbench.datasets.registry import bytes_in_words, is_there

    if absent := [file for file in files if not is_there(place / file.name, file)]:
        say(f"to be downloaded: {bytes_in_words(absent)} into {place}")
        if sum(file.size or 0 for file in absent) > _UNASKED and not yes:
            if not sys.stdin.isatty():
                name = absent[0].dataset
                raise UserError(f"{name}: more than 1 GB; add --yes, or --only PATTERN for some of the files")
            typer.confirm("Download?", abort=True, err=True)


@app.command("pack")
def data_pack(
    name: Annotated[str, typer.Argument(help="A dataset of the study.")],
    study: StudyOption = STUDY,
    out: Annotated[Path | None, typer.Option(help="manifest.json to write.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Images decoded at once. It does not change the result.")
    ] = None,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Decode, resize and split a dataset's images into one array, in one pass."""
    from cxrbench.study.config import read_study

    folder = out.parent if out else PACKED / name
    if out and (out.name, folder.name) != ("manifest.json", name):
        raise UserError(
            f"--out {out}: a packed dataset is a folder of its name; write FOLDER/{name}/manifest.json"
        )
    pack_dataset(name, read_study(study).dataset(name), folder.parent, recorded, workers)


def pack_dataset(name: str, config: Dataset, root: Path, recorded: Path, workers: int | None = None) -> None:
    """Pack a dataset below ``root``; name the first image that is not one that cells were recorded from."""
    from cxrbench.datasets.packed import pack
    from cxrbench.statistics.sample import MIN_PATIENTS

    manifest = pack(name, config, root, workers, say, recorded)
    say(f"packed {name}: {', '.join(f'{n} {split}' for split, n in manifest['images'].items())} images")
    unit = "patients" if manifest.get("patients_known", True) else "images"
    counts = (f"{f} {'/'.join(map(str, n.values()))}" for f, n in manifest["positive_patients"].items())
    say(f"positive {unit} (train/val/test): {', '.join(counts)}")
    few = [f for f, n in manifest["positive_patients"].items() if n["val"] < MIN_PATIENTS]
    if few:
        say(
            f"no threshold can be tuned, so there will be no F1, for {', '.join(few)}: fewer than "
            f"{MIN_PATIENTS} positive validation {unit}"
        )
    if odd := manifest["odd"]:
        say(
            f"{len(odd):,} of {sum(manifest['images'].values()):,} images look odd; see them with "
            f"`cxrbench data sheet {name}`, and mend or remove what is wrong:"
        )
        for image, why in odd.items():
            say(f"  {image}: {why}")
    if unlike := manifest.get("unlike_recorded", []):
        say(
            f"{len(unlike):,} of {sum(manifest['images'].values()):,} images are not those of the recorded "
            f"evidence: {unlike[0]}{and_more(len(unlike) - 1)}; scores of cells trained on them cannot be "
            "compared with recorded ones: get the archive again (cxrbench data download --repair)"
        )


@app.command("sheet")
def data_sheet(
    name: Annotated[str | None, typer.Argument(help="A packed dataset. Default: phantoms.")] = None,
    packed: Annotated[Path, typer.Option(help="Folder of packed datasets.")] = PACKED,
    out: Annotated[
        Path | None, typer.Option(help="PNG to write. Default: results/odd-NAME.png, or the one in docs/.")
    ] = None,
) -> None:
    """Draw a contact sheet: the oddest thirty images of a packed dataset, or phantoms."""
    from cxrbench.common.files import written_aside

    out = out or (RESULTS / f"odd-{name}.png" if name else Path("docs/phantom-contact-sheet.png"))
    if name:
        from cxrbench.datasets.odd import contact_sheet
        from cxrbench.datasets.packed import read_packed

        dataset = read_packed(packed / name)
        names, known = dataset.index["image"].tolist(), dataset.manifest.get("odd", {})
        with written_aside(out) as aside:
            contact_sheet(dataset.images, names, known).save(aside, "PNG")
    else:
        from cxrbench.datasets.nih_table import FINDINGS
        from cxrbench.paper.figures_data import phantoms

        with written_aside(out) as aside:
            phantoms(("PA", "AP", *FINDINGS), 2, 8).savefig(
                aside, format="png", dpi=200, metadata={"Software": None}
            )
    say(f"wrote {out}")
