"""An RO-Crate of a finished run: the graph, its jobs with their commands, and the files they read and wrote.

Snakemake's reporter plugin ``fairscape`` gathers the jobs. The crate that it writes itself is no valid
RO-Crate (its context is not RO-Crate's, files have no path as identifier), so what it gathered is typed anew
with the rocrate library, as a Workflow Run Crate 0.5 (https://w3id.org/ro/wfrun/workflow/0.5), RO-Crate 1.1.

``python -m cxrbench.report.crate GATHERED OUT`` runs in the environment of requirements/crate.lock, which has
neither typer nor pandas: only the standard library, rocrate and our own writing of files are imported here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rocrate.model.contextentity import ContextEntity
from rocrate.rocrate import ROCrate

from cxrbench.errors import UserError

_LICENCE = "https://spdx.org/licenses/MIT"
_RUN_PROFILES = {"process": "Process Run Crate", "workflow": "Workflow Run Crate"}
_WHOLE_FOLDERS = ("record.json", "macros.tex")  # declared alone, written with what lies beside them
_KINDS = {
    ".csv": "text/csv", ".json": "application/json", ".md": "text/markdown", ".pdf": "application/pdf",
    ".parquet": "application/vnd.apache.parquet", ".tex": "application/x-tex", ".bib": "application/x-bibtex",
    ".yaml": "application/yaml", ".txt": "text/plain", ".log": "text/plain",
}  # fmt: skip


def write_crate(gathered: Path, root: Path, out: Path) -> int:
    """Write the crate of the run in ``gathered`` (files relative to ``root``) to the new folder ``out``.

    Returns how many files it holds. UserError when ``gathered`` is not what the reporter writes.
    """
    try:
        run = json.loads(gathered.read_text(encoding="utf-8"))
        jobs, engine = run["jobs"], run["run"]["engine_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{gathered}: not a run that the reporter gathered ({error}); make crate") from None
    if not jobs:
        raise UserError("this run has no finished job: run `make paper` first, then `make crate`")
    crate = ROCrate(version="1.1")
    author = _describe(crate, root, max(job["endtime"] or "" for job in jobs))
    graph = crate.add_workflow(
        root / "Snakefile", "Snakefile", main=True, lang="snakemake", lang_version=engine
    )
    graph["author"], graph["license"] = author, {"@id": _LICENCE}
    files: dict[str, Any] = {}
    for path in sorted({path for job in jobs for path in _files_of(job, root)} | set(run["configfiles"])):
        if (root / path).is_file():
            files[path] = crate.add_file(root / path, path, properties=_properties(root / path))
    _add_run(crate, graph, run, files, author)
    crate.write(out)
    return len(files)


def _describe(crate: ROCrate, root: Path, ended: str) -> Any:
    """Title, licence, author and profiles of the whole; returns the author."""
    title = re.search(r'^title: "?(.*?)"?$', (root / "CITATION.cff").read_text(encoding="utf-8"), flags=re.M)
    crate.name = title[1] if title else root.name
    crate.description = (
        "A run of the study's graph: evidence, tables, figures and paper, with the command of each."
    )
    crate.datePublished = ended
    crate.license = crate.add(
        ContextEntity(crate, _LICENCE, properties={"@type": "CreativeWork", "name": "MIT License"})
    )
    profiles = [
        crate.add(
            ContextEntity(
                crate,
                f"https://w3id.org/ro/wfrun/{key}/0.5",
                properties={"@type": "CreativeWork", "name": name, "version": "0.5"},
            )
        )
        for key, name in _RUN_PROFILES.items()
    ]
    workflow = ContextEntity(
        crate,
        "https://w3id.org/workflowhub/workflow-ro-crate/1.0",
        properties={"@type": "CreativeWork", "name": "Workflow RO-Crate", "version": "1.0"},
    )
    crate.root_dataset["conformsTo"] = [*profiles, crate.add(workflow)]
    authors = {"@type": "Organization", "name": "The cxrbench authors"}
    return crate.add(ContextEntity(crate, "#authors", properties=authors))


def _add_run(crate: ROCrate, graph: Any, run: Mapping[str, Any], files: dict[str, Any], author: Any) -> None:
    """One action for the whole run and one for each job, with what it read and what it wrote."""
    jobs = run["jobs"]
    made = {path for job in jobs for path in _beside(job["outputs"], files)}
    used = {path for job in jobs for path in job["inputs"] if path in files} - made
    times = [[job[key] for job in jobs if job[key]] for key in ("starttime", "endtime")]
    whole = {
        "name": "Run of the study's graph",
        "startTime": min(times[0]),
        "endTime": max(times[1]),
        "agent": author,
        "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
    }
    crate.add_action(graph, "#run", _of(files, used), _of(files, made), properties=whole)
    program = ContextEntity(
        crate,
        "#cxrbench",
        properties={
            "@type": "SoftwareApplication",
            "name": "cxrbench",
            "url": "Snakefile",
            "version": "0.1.0",
        },
    )
    crate.add(program)
    for number, job in enumerate(jobs, start=1):
        name = " ".join([job["rule"], *job["wildcards"].values()])
        properties = {
            "name": name,
            "description": job["shellcmd"] or name,
            "startTime": job["starttime"],
            "endTime": job["endtime"],
            "agent": author,
        }
        crate.add_action(
            program,
            f"#job{number}",
            _of(files, job["inputs"]),
            _of(files, _beside(job["outputs"], files)),
            properties={key: value for key, value in properties.items() if value},
        )


def _files_of(job: Mapping[str, Any], root: Path) -> list[str]:
    """Files that a job read and wrote, with what was written beside a declared output."""
    found = [*job["inputs"], *job["outputs"]]
    for path in job["outputs"]:
        if Path(path).name in _WHOLE_FOLDERS:
            found += [str(one.relative_to(root)) for one in (root / path).parent.iterdir() if one.is_file()]
    return [path for path in found if not Path(path).is_absolute()]


def _beside(outputs: Iterable[str], files: Iterable[str]) -> list[str]:
    """The files of the crate that these declared outputs stand for."""
    whole = {str(Path(path).parent) for path in outputs if Path(path).name in _WHOLE_FOLDERS}
    declared = set(outputs)
    return [path for path in files if path in declared or str(Path(path).parent) in whole]


def _of(files: dict[str, Any], paths: Iterable[str]) -> list[Any]:
    return [files[path] for path in sorted(set(paths)) if path in files]


def _properties(path: Path) -> dict[str, str]:
    kind = _KINDS.get(path.suffix)
    size = {"name": path.name, "contentSize": str(path.stat().st_size)}
    return size | ({"encodingFormat": kind} if kind else {})


if __name__ == "__main__":
    try:
        count = write_crate(Path(sys.argv[1]), Path.cwd(), Path(sys.argv[2]))
    except UserError as error:
        sys.exit(f"cxrbench: {error}")
    print(f"{count} files and their run are in {sys.argv[2]}", file=sys.stderr)
