"""JSON Schemas of the study and the run record, generated from the types."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import BaseModel

from cxrbench.config import Study
from cxrbench.evidence import Record
from cxrbench.files import write_text

_SCHEMAS: dict[str, type[BaseModel]] = {"study.schema.json": Study, "record.schema.json": Record}


def schema_text(name: str) -> str:
    """The text of the schema file called ``name``."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **_SCHEMAS[name].model_json_schema()}
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def write_schemas(folder: Path) -> list[Path]:
    """Write all schemas into ``folder``; returns their paths."""
    for name in _SCHEMAS:
        write_text(folder / name, schema_text(name))
    return [folder / name for name in _SCHEMAS]
