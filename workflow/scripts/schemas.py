"""JSON Schemas of study and run record, and the names of the networks, from the code."""

import json
from pathlib import Path
from typing import Annotated

import typer

from cxrbench.cli import run_script
from cxrbench.cli.words import say


def schemas(
    folder: Annotated[Path, typer.Option(help="Folder of the schemas.")] = Path("workflow/schemas"),
    networks: Annotated[Path | None, typer.Option(help="File of the names. Default: the package's.")] = None,
) -> None:
    """Write the JSON Schemas and the names of the networks that can be built, a line each."""
    import timm

    from cxrbench.common.files import write_text
    from cxrbench.evidence.record import Record
    from cxrbench.study.config import Study
    from cxrbench.training.network import register_variants
    from cxrbench.training.plan import ARCHITECTURES

    register_variants()
    texts = {networks or ARCHITECTURES: "\n".join(timm.list_models()) + "\n"}
    for name, model in (("study", Study), ("record", Record)):
        schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
        texts[folder / f"{name}.schema.json"] = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    for path, text in texts.items():
        write_text(path, text)
        say(f"wrote {path}")


if __name__ == "__main__":
    run_script(schemas)
