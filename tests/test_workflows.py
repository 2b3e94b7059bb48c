"""What a hosted service runs on a pull request does what it says, step by step, here."""

import os
import re
import shutil
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
import yaml

from conftest import ROOT, clone_of_the_tree, keep_recorded, ran, text_of
from cxrbench.evidence.sums import write_sums

FOLDER = ROOT / ".github/workflows"
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yml"))}
JOBS = {(name, job): body for name, flow in WORKFLOWS.items() for job, body in flow["jobs"].items()}
PUBLISHING = re.compile(
    r"uses: actions/(?:upload-pages-artifact|deploy-pages)@[0-9a-f]{40} # v\d+\.\d+\.\d+\n"
)
ACTION = re.compile(r"uses: actions/(?:checkout|attest)@[0-9a-f]{40} # v\d+\.\d+\.\d+\n")


def test_workflows_read_only_and_pin_their_actions_by_hash() -> None:
    """All but the last job of pages, which may publish what the one before it has built, and the one that
    attests; both run nothing of the repository."""
    assert set(WORKFLOWS) == {"attest", "ci", "evidence", "pages"}
    for name, flow in WORKFLOWS.items():
        text = (FOLDER / f"{name}.yml").read_text()
        pinned = ACTION.findall(text) + (PUBLISHING.findall(text) if name == "pages" else [])
        assert len(pinned) == text.count("uses:") and "secrets" not in text
        assert flow["permissions"] == {} and "pull_request_target" not in text
    publish = JOBS["pages", "publish"]
    assert publish["permissions"] == {"pages": "write", "id-token": "write"}
    assert publish["if"] == "github.ref == 'refs/heads/main'" and [*publish["steps"][0]] == ["uses"]
    for name, job in JOBS.items():
        if name not in (("attest", "attest"), ("pages", "publish")):
            assert job["permissions"] == {"contents": "read"}
            assert job["steps"][0]["with"]["persist-credentials"] is False


def test_what_may_attest_runs_no_code_of_the_repository() -> None:
    assert "pull_request" not in WORKFLOWS["attest"][True]  # `on` is true in YAML 1.1
    job = JOBS["attest", "attest"]
    assert job["permissions"] == {"id-token": "write", "attestations": "write"} and job["needs"] == "build"
    write, attest = job["steps"]
    assert write["run"] == "printf '%s\\n' \"$SUMS\" > sums.txt" and attest["uses"].startswith(
        "actions/attest@"
    )


def test_the_hashes_that_are_attested_are_those_of_the_build(tmp_path: Path) -> None:
    for name in ("data/recorded/SHA256SUMS", "paper/paper.pdf"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    (step,) = [step for step in JOBS["attest", "build"]["steps"] if step.get("id") == "sums"]
    given, sums = tmp_path / "output", tmp_path / "sums.txt"
    done = ran("bash", "-ec", step["run"], cwd=tmp_path, env=os.environ | {"GITHUB_OUTPUT": str(given)})
    assert done.returncode == 0, done.stderr
    first, *lines, last = given.read_text().splitlines()
    assert (first, last) == ("sums<<END", "END")
    write = {"SUMS": "\n".join(lines)}
    ran("bash", "-ec", JOBS["attest", "attest"]["steps"][0]["run"], cwd=tmp_path, env=write, check=True)
    assert ran("sha256sum", "--check", sums, cwd=tmp_path).stdout.count(": OK\n") == 2


def test_zizmor_finds_nothing() -> None:
    if shutil.which("zizmor") is None:
        pytest.skip("zizmor is not on PATH; `make lint` puts it there")
    done = ran("zizmor", "--offline", "--pedantic", FOLDER.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_issue_form_and_request_lead_to_the_archive_of_contribute() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/record.yml").read_text())
    assert {"name", "description", "body"} <= set(form)
    asked = {item["id"]: item for item in form["body"] if item["type"] != "markdown"}
    assert {"archive", "machine", "consent"} == set(asked)
    for item in asked.values():
        assert item["attributes"]["label"] and item["type"] in {"input", "textarea", "checkboxes"}
    (command,) = re.findall(r"`make (contribute [^`]*)`", form["body"][0]["attributes"]["value"])
    for page in (".github/pull_request_template.md", "docs/contribute.md"):
        assert "cxrbench contribute --receive " in (ROOT / page).read_text()
    assert f"make {command} " in (ROOT / "docs/contribute.md").read_text()
    for path in FOLDER.parent.rglob("*.*"):  # no archive by hand, and no page that is not there
        assert "tar c" not in path.read_text(), path
        for page in re.findall(r"(?:docs|notebooks)/[\w.]+\w", path.read_text()):
            assert (ROOT / page).is_file(), (path, page)


def checkout(folder: Path) -> Path:
    """A checkout with git's history and this environment in .venv."""
    ran("git", "clone", "-q", ROOT, folder, check=True)
    clone_of_the_tree(folder)
    for venv in (folder / ".venv", folder.with_name("temporary") / "venv"):  # of the change, and of its base
        venv.mkdir(parents=True)
        for part in Path(sys.prefix).iterdir():
            if not part.name.startswith("."):
                (venv / part.name).symlink_to(part)
        for name, lock in (("full", "base"), ("paper", "paper")):
            summed = ran("sha256sum", folder / f"requirements/{lock}.lock", check=True).stdout.split()[0]
            (venv / f".cxrbench-{name}").write_text(f"{summed}\n")
    return folder


def with_a_new_record(folder: Path) -> Path:
    """Leave two recorded cells in a checkout, one of them new in its last commit."""
    keep_recorded(folder, "phantom-32px/resnet18/*/seed0")
    new = folder / "data/recorded/phantom-32px/resnet18/xla_cpu"
    shutil.copytree(new, aside := folder.with_name("new"))
    keep_recorded(folder, "phantom-32px/resnet18/cpu/seed0")
    commit(folder, "Base")
    shutil.copytree(aside, new, dirs_exist_ok=True)
    write_sums(folder / "data/recorded")
    commit(folder, "Record a cell")
    return folder


def commit(folder: Path, subject: str) -> None:
    ran("git", "add", "-A", cwd=folder, check=True)
    who = ("-c", "user.name=one", "-c", "user.email=one@example.org", "-c", "commit.gpgsign=false")
    ran("git", *who, "commit", "-q", "-m", subject, cwd=folder, check=True)


def run_steps(job: dict[str, Any], folder: Path, **variables: str) -> dict[str, CompletedProcess[str]]:
    """Run every `run` step of a ``job`` as it stands in the hosted shell; return outcomes."""
    (tools := folder.with_name("tools")).mkdir(exist_ok=True)
    if shutil.which("sudo") is None:  # the hosted machine's user is not root
        (tools / "sudo").write_text('#!/bin/sh\nexec "$@"\n')
        (tools / "sudo").chmod(0o755)
    (temporary := folder.with_name("temporary")).mkdir(exist_ok=True)
    environment = os.environ | {"PATH": f"{os.environ['PATH']}:{tools}", "RUNNER_TEMP": str(temporary)}
    environment |= {"GITHUB_STEP_SUMMARY": str(folder.with_name("summary.md"))} | variables
    environment["PYTHONPATH"] = str(folder / "src")  # as if this environment had been made in the checkout
    environment.pop("VENV", None)
    done = {}
    for step in job["steps"]:
        if "run" in step:
            words = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"])
            done[step.get("name", step["run"])] = ran(*words, cwd=folder, env=environment)
    return done


@pytest.mark.slow
@pytest.mark.parametrize("name", [job for flow, job in JOBS if flow == "ci" and job != "lint"])
def test_the_steps_of_ci_pass_here(name: str, tmp_path: Path, latex: None) -> None:
    folder = checkout(tmp_path / "checkout")
    if name == "paper":  # fewer cells are scored sooner
        with_a_new_record(folder)
    few = {"PYTEST_ADDOPTS": "-k test_every_pin_has_a_hash"} if name == "test" else {}  # all run already
    for step, done in run_steps(JOBS["ci", name], folder, **few).items():
        assert done.returncode == 0, f"{step}: {done.stdout[-2000:]}{done.stderr[-2000:]}"


@pytest.mark.slow
def test_the_steps_for_evidence_say_what_is_new_and_what_it_changes(tmp_path: Path, latex: None) -> None:
    folder = with_a_new_record(checkout(tmp_path / "checkout"))
    base = ran("git", "rev-parse", "HEAD^", cwd=folder, check=True).stdout.strip()
    for step, done in run_steps(JOBS["evidence", "evidence"], folder, BASE=base).items():
        assert done.returncode == 0, f"{step}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    summary = (tmp_path / "summary.md").read_text()
    assert summary.count("```") == 10
    assert re.search(r"phantom-32px/resnet18/xla_cpu/seed0/record.json +\| ", summary)
    assert "2 recorded cells are intact" in summary
    assert re.search(r"^[+] +phantom-32px +resnet18 +xla_cpu +0[.]", summary, flags=re.M)  # its AUROC
    assert re.search(r"tables/.*metrics.csv[}]? +\| ", summary)
    assert "phantom-32px" in text_of(folder / "paper/paper.pdf")


def verified(folder: Path) -> CompletedProcess[str]:
    """What the check says of the last commit of ``folder``; the paper of its base is not built here."""
    base = ran("git", "rev-parse", "HEAD^", cwd=folder, check=True).stdout.strip()
    steps = {step.get("name"): step for step in JOBS["evidence", "evidence"]["steps"]}
    make = f'git worktree add --detach "$RUNNER_TEMP/base" {base}'
    job = {"steps": [steps["What is new"], {"name": "base", "run": make}, steps["Verify"]]}
    return run_steps(job, folder, BASE=base)["Verify"]


@pytest.mark.slow
@pytest.mark.fault("a pull request whose evidence was changed", "its check fails and the summary says why")
def test_changed_evidence_fails_the_check(tmp_path: Path) -> None:
    folder = with_a_new_record(checkout(tmp_path / "checkout"))
    log = folder / "data/recorded/phantom-32px/resnet18/xla_cpu/seed0/record.json"
    log.write_text(log.read_text().replace("0", "1", 1))
    assert verified(folder).returncode == 1
    assert "record.json" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
@pytest.mark.fault("a pull request brings its own checker and signers", "its base's check it; they are named")
def test_a_change_is_checked_by_the_code_and_the_signers_of_its_base(tmp_path: Path) -> None:
    folder = with_a_new_record(checkout(tmp_path / "checkout"))
    record = folder / "data/recorded/phantom-32px/resnet18/xla_cpu/seed0/record.json"
    record.write_text(record.read_text().replace("0", "1", 1))
    for name in ("src/cxrbench/evidence/verify.py", "src/cxrbench/__main__.py", "numpy.py", "cxrbench.py"):
        (folder / name).write_text("import sys\nprint('9 recorded cells are intact')\nsys.exit(0)\n")
    with (folder / "data/allowed_signers").open("a") as signers:
        signers.write("me@example.org ssh-ed25519 AAAA\n")
    ran("git", "reset", "-q", "--soft", "HEAD^", cwd=folder, check=True)
    commit(folder, "Record a cell, and more")
    done = verified(folder)
    summary = (tmp_path / "summary.md").read_text()
    assert done.returncode == 1 and "9 recorded cells" not in summary, done.stdout + done.stderr
    for name in ("M\tsrc/cxrbench/evidence/verify.py", "M\tdata/allowed_signers", "A\tnumpy.py"):
        assert name in summary
    assert "me@example.org" not in (folder / "data/allowed_signers").read_text()
