"""Events from the trainer to its runner, on a pipe shared with other processes and the log."""

import json

import pytest

from cxrbench.training.process import EVENT, event, parse_events
from cxrbench.training.supervisor import run

PHASE = {"event": "phase", "phase": "compile"}
TOLD = EVENT + json.dumps(PHASE)
HALF = TOLD[:18]


@pytest.mark.parametrize(
    ("line", "events", "texts"),
    [
        ("\n", [], []),
        (f"{TOLD}2026-01-02 INFO another process\n", [PHASE], ["2026-01-02 INFO another process"]),
        (f"......{TOLD}\n", [PHASE], ["......"]),
        (f"......{TOLD}{TOLD}......{TOLD}", [PHASE] * 3, ["......", "......"]),
        (f"{HALF}{TOLD}\n", [PHASE], [HALF]),
        (f"{TOLD[:-1]}\n", [], [TOLD[:-1]]),
        (f"{EVENT}[1]\n", [], [f"{EVENT}[1]"]),
        (
            f'{EVENT}{{"event": "crashed", "message": "{EVENT}"}}',
            [{"event": "crashed", "message": EVENT}],
            [],
        ),
    ],
)
def test_an_event_is_found_wherever_it_stands_in_a_line(line, events, texts) -> None:
    assert parse_events(line) == (events, texts)


@pytest.mark.parametrize(
    ("rank", "name", "told"), [("0", "phase", True), ("1", "phase", False), ("1", "crashed", True)]
)
def test_an_event_has_a_line_of_its_own(rank, name, told, capfd, monkeypatch) -> None:
    monkeypatch.setenv("RANK", rank)
    print("compiling ....", end="")
    event(name, phase="setup")
    lines = capfd.readouterr().out.splitlines()
    assert lines == ["compiling ....", *([EVENT + json.dumps({"event": name, "phase": "setup"})] * told)]


@pytest.mark.fault("bytes in a log that are no UTF-8", "the record, and the bytes as \\xNN in its log")
def test_what_shares_a_line_with_an_event_is_kept(broken_job, tmp_path) -> None:
    forward = (
        f"print('....' + {TOLD!r} + 'INFO other'); print({HALF!r}, flush=True); import os\n"
        "        os.write(1, b'\\xc3\\x28\\x00'); raise ValueError('odd size')"
    )
    job = broken_job(forward)
    job.work.mkdir(parents=True)
    (job.work / "train.log").write_bytes(b"\xff\xfe of an earlier start\n")
    record = run(job, tmp_path / "out")
    assert (record.phase, record.failure.fingerprint) == ("compile", "ValueError: odd size")
    log = (tmp_path / "out/train.log").read_text().splitlines()
    assert {"....", "INFO other", HALF, r"\xff\xfe of an earlier start"} <= set(log) and all(log)
    assert any(r"\xc3(" in line for line in log)
