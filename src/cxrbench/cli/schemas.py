"""``cxrbench schema``: JSON Schemas of study and run record, and the names of the networks, from the code."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli.words import say
from cxrbench.study.files import write_text

_SCHEMAS = ("study.schema.json", "record.schema.json")


def schema_text(name: str) -> str:
    """The text of the schema file called ``name``."""
    from cxrbench.evidence.record import Record
    from cxrbench.study.config import Study

    model = Study if name == _SCHEMAS[0] else Record
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def architectures_text() -> str:
    """The names of the networks that can be built, a line each. Imports timm, so torch."""
    import timm

    from cxrbench.training.state import register_variants

    register_variants()
    return "\n".join(timm.list_models()) + "\n"


def schema(
    folder: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("workflow/schemas"),
) -> None:
    """Write the JSON Schemas of a study and of a run record."""
    from cxrbench.training.plan import ARCHITECTURES

    texts = {folder / name: schema_text(name) for name in _SCHEMAS}
    texts |= {ARCHITECTURES: architectures_text()}
    for path, text in texts.items():
        write_text(path, text)
        say(f"wrote {path}")
