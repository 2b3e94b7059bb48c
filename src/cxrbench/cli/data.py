"""``cxrbench data``: fetch, verify and pack datasets; look at phantoms."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cxrbench.cli.words import (
    PACKED,
    RECORDED,
    REGISTRY,
    RESULTS,
    STUDY,
    JsonOption,
    RecordedOption,
    StudyOption,
    say,
    wrapped,
)
from cxrbench.study.names import UserError, and_more, printable

if TYPE_CHECKING:
    from cxrbench.study.config import Dataset

app = typer.Typer(help="Download, check and pack datasets.", no_args_is_help=True)

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
    mirror: MirrorOption = None,
    only: OnlyOption = "*",
    timeout: TimeoutOption = 60.0,
    wait: WaitOption = 1.0,
    registry: RegistryOption = REGISTRY,
    yes: Annotated[bool, typer.Option("--yes", help="Download more than 1 GB without being asked.")] = False,
) -> None:
    """Download a dataset's files. After an interruption, the same command continues."""
    from cxrbench.datasets.download import Options, download
    from cxrbench.datasets.registry import bytes_in_words, is_there, read_files

    files, place = read_files(registry, name, only), folder or RAW / name
    if absent := [file for file in files if not is_there(place / file.name, file)]:
        say(f"to be downloaded: {bytes_in_words(absent)} into {place}")
        if sum(file.size or 0 for file in absent) > _UNASKED and not yes:
            if not sys.stdin.isatty():
                raise UserError(f"{name}: more than 1 GB; add --yes, or --only PATTERN for some of the files")
            typer.confirm("Download?", abort=True, err=True)
    before = download(files, place, Options(mirrors=tuple(mirror or ()), timeout=timeout, first_wait=wait))
    there = sum(state.state == "present" for state in before)
    say(f"{name}: {len(files)} files in {place}, {there} of them were there before")


@app.command("verify")
def data_verify(
    name: NameArgument,
    folder: FolderOption = None,
    mend: Annotated[bool, typer.Option("--repair", help="Download damaged and missing files again.")] = False,
    mirror: MirrorOption = None,
    only: OnlyOption = "*",
    timeout: TimeoutOption = 60.0,
    wait: WaitOption = 1.0,
    registry: RegistryOption = REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Check each file's size and hash. Fails unless all files are present and intact."""
    from cxrbench.datasets.download import Options, download
    from cxrbench.datasets.registry import inspect, read_files

    files, place = read_files(registry, name, only), folder or RAW / name
    options = Options(mirrors=tuple(mirror or ()), timeout=timeout, first_wait=wait)
    states = inspect(files, place, options.jobs)
    if mend and (broken := [state.file for state in states if state.state != "present"]):
        download(broken, place, options, mend=True)
        states = inspect(files, place, options.jobs)
    _print_rows([(s.file.name, s.state, s.why) for s in states], ("file", "state", "why"), as_json)
    if any(state.state != "present" for state in states):
        say(f"to repair, run: cxrbench data verify {name} --folder {place} --repair")
        raise typer.Exit(1)


@app.command("check-links")
def data_check_links(
    name: Annotated[str | None, typer.Argument(help="A dataset of the registry. Default: all.")] = None,
    timeout: TimeoutOption = 20.0,
    strict: Annotated[bool, typer.Option("--strict", help="Fail when an address is dead.")] = False,
    registry: RegistryOption = REGISTRY,
    as_json: JsonOption = False,
) -> None:
    """Check whether every address of the registry still offers its file.

    A dead address fails the command only with --strict.
    """
    from cxrbench.datasets.download import check_links
    from cxrbench.datasets.registry import read_files

    rows = check_links(read_files(registry, name), timeout)
    _print_rows(rows, ("dataset", "file", "state", "answer", "url"), as_json)
    if strict and any(row[2] == "dead" for row in rows):
        raise typer.Exit(1)


def _print_rows(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], as_json: bool) -> None:
    if as_json:
        print(json.dumps([dict(zip(header, row, strict=True)) for row in rows], indent=1))
        return
    for row in rows:
        print(wrapped("  ".join(printable(field) for field in row if field), "    "))


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
            "compared with recorded ones: get the archive again (cxrbench data verify)"
        )


@app.command("checks")
def data_checks(
    name: Annotated[str, typer.Argument(help="A packed dataset of the study, as large as its reduction.")],
    study: StudyOption = STUDY,
    packed: Annotated[Path, typer.Option(help="Folder of packed datasets.")] = PACKED,
    recorded: RecordedOption = RECORDED,
) -> None:
    """Record a check value of each reduced image. Packing names images that have another one."""
    from cxrbench.datasets.nih import write_checks
    from cxrbench.datasets.packed import read_packed
    from cxrbench.evidence.sums import updated_sums
    from cxrbench.study.config import NihSource, read_study

    config = read_study(study).dataset(name)
    if not isinstance(config, NihSource):
        raise UserError(f"{name}: only images of NIH are reduced; name such a dataset")
    with updated_sums(recorded):
        written = write_checks(read_packed(packed / name), config, recorded)
    say(f"wrote {written}")


@app.command("sheet")
def data_sheet(
    name: Annotated[str | None, typer.Argument(help="A packed dataset. Default: phantoms.")] = None,
    packed: Annotated[Path, typer.Option(help="Folder of packed datasets.")] = PACKED,
    out: Annotated[
        Path | None, typer.Option(help="PNG to write. Default: results/odd-NAME.png, or the one in docs/.")
    ] = None,
) -> None:
    """Draw a contact sheet: the oddest thirty images of a packed dataset, or phantoms."""
    from cxrbench.study.files import written_aside

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


@app.command("card")
def data_card(card: Path = Path("data/README.md"), registry: RegistryOption = REGISTRY) -> None:
    """Rewrite the generated parts of the data card."""
    from cxrbench.paper.data_card import write_card

    write_card(card, registry)
    say(f"wrote {card}")
