"""``cxrbench data``: pack datasets, look at phantoms."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import PACKED, STUDY, StudyOption, say

app = typer.Typer(help="Pack datasets; look at phantoms.", no_args_is_help=True)


@app.command("pack")
def data_pack(
    name: Annotated[str, typer.Argument(help="A dataset of the study.")],
    study: StudyOption = STUDY,
    out: Annotated[Path | None, typer.Option(help="manifest.json to write.")] = None,
) -> None:
    """Decode, resize and split a dataset's images into one array, in one pass."""
    from cxrbench.config import read_study
    from cxrbench.datasets.packed import pack

    folder = out.parent if out else PACKED / name
    config = read_study(study).dataset(name)
    manifest = pack(name, config, folder.parent)
    say(f"packed {name}: {', '.join(f'{n} {split}' for split, n in manifest['images'].items())} images")


@app.command("sheet")
def data_sheet(out: Path = Path("docs/phantom-contact-sheet.png")) -> None:
    """Draw a contact sheet of phantoms: what the embedded dataset looks like."""
    from cxrbench.datasets.phantom import contact_sheet

    contact_sheet(out)
    say(f"wrote {out}")
