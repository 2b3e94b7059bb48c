"""Downloads over a network that breaks: whole and right in the end, or one message and no final name."""

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bad_server import (
    BadServer,
    another_range,
    cut,
    flipped,
    server,
    status,
    trickle,
    without_length,
    write_registry,
)

from conftest import ROOT, cxrbench, must_fail, must_work, ran
from cxrbench.common.errors import UserError
from cxrbench.datasets.download import Options, download
from cxrbench.datasets.registry import RemoteFile, inspect, part_of, read_files
from test_terminal import on_a_terminal

__all__ = ["server"]
QUICK = Options(jobs=2, retries=3, timeout=1.0, first_wait=0.01, longest_wait=0.05)
SIZE = 3_000_000
NAME = "images_001.tar.gz"
COMMAND = [sys.executable, "-m", "cxrbench"]


@pytest.fixture
def data(server: BadServer) -> bytes:
    """The server's only file."""
    server.files[NAME] = np.random.default_rng(0).bytes(SIZE)
    return server.files[NAME]


@pytest.fixture
def files(server: BadServer, data: bytes, tmp_path: Path) -> list[RemoteFile]:
    return read_files(write_registry(tmp_path / "registry.csv", server))


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    return tmp_path / "raw"


@pytest.fixture
def words(files: list[RemoteFile], raw: Path, tmp_path: Path) -> list[str]:
    """The command that downloads the server's file, after ``cxrbench``."""
    return ["data", "download", "d", "--folder", str(raw), "--registry", str(tmp_path / "registry.csv")]


def fetch(files: list[RemoteFile], folder: Path, *mirrors: object, **changes: float) -> None:
    download(files, folder, replace(QUICK, mirrors=tuple(map(str, mirrors)), **changes))


@pytest.mark.fault("a connection breaks during a download", "continued at the byte where it broke")
def test_a_connection_that_breaks_is_continued_where_it_broke(server, files, data, raw) -> None:
    server.faults[NAME] = [cut(1_000_000), cut(500_000), status(500), status(503), cut(700_000)]
    fetch(files, raw)
    assert (raw / NAME).read_bytes() == data
    starts = [start for _, start in server.requests]
    assert starts == [0, 1_000_000, 1_500_000, 1_500_000, 1_500_000, 2_200_000]
    assert server.sent == SIZE, "nothing was fetched twice"
    assert [p.name for p in raw.iterdir()] == [NAME]


def test_progress_renews_patience(server, files, data, raw) -> None:
    server.faults[NAME] = [cut(100_000)] * 20
    fetch(files, raw, retries=0)
    assert (raw / NAME).read_bytes() == data


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(500), id="500 then 200"),
        pytest.param(status(429, Retry_After="0"), id="429 then 200"),
        pytest.param(cut(1_000_000, stall=True), id="a stall"),
        pytest.param(trickle, id="a trickle"),
        pytest.param(cut(change=flipped), id="a flipped byte, then the right one"),
        pytest.param(without_length(1_000_000), id="no length, cut"),
    ],
)
def test_a_fault_that_passes_is_outlived(fault, server, files, data, raw) -> None:
    server.faults[NAME] = [fault]
    fetch(files, raw, timeout=0.5)
    assert (raw / NAME).read_bytes() == data
    assert len(server.requests) == 2


@pytest.mark.parametrize("part", [b"", b"longer than the file"])
def test_a_server_without_ranges_or_a_part_too_long_starts_again(part, server, files, data, raw) -> None:
    if part:
        raw.mkdir()
        part_of(raw, NAME).write_bytes(data + part)
    else:
        server.rangeless.add(NAME)
        server.faults[NAME] = [cut(1_000_000)]
    fetch(files, raw)
    assert (raw / NAME).read_bytes() == data
    assert server.sent == SIZE + (0 if part else 1_000_000)


@pytest.mark.fault("a server stays broken or sends another file", "a message with every answer; no file")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(cut(change=flipped), "another hash than the registry's", id="flipped"),
        pytest.param(cut(change=lambda d: d[1:]), "offers 2,999,999 bytes, the file has 3,000,", id="short"),
        pytest.param(cut(change=lambda d: d + b"x"), "offers 3,000,001 bytes", id="long"),
        pytest.param(without_length(2 * SIZE, times=2), "sends more than the 3,000,000 bytes", id="endless"),
        pytest.param(status(404), "the server answers 404", id="404"),
        pytest.param(status(416), "the server answers 416", id="416 without a range"),
        pytest.param(status(500), "the server answers 500 .*gave up after 4 attempts", id="500"),
        pytest.param(status(302, Location="/first/" + NAME), "redirects", id="redirect loop"),
        pytest.param(status(302, Location="file:///etc/x"), "No connection adapters", id="a file"),
        pytest.param(cut(0, stall=True), "gave up after", id="silence"),
        pytest.param(lambda handler, data, start: handler.connection.close(), "gave up after", id="closed"),
    ],
)
def test_a_fault_that_stays_is_one_message_and_no_file(fault, message, server, files, raw) -> None:
    server.faults[NAME] = [fault] * 50
    with pytest.raises(UserError, match=rf"(?s){NAME}: no source had the file.*{message}.*--mirror"):
        fetch(files, raw, timeout=0.2)
    assert [path for path in raw.iterdir() if path.stat().st_size] == []


@pytest.mark.fault("no name of a server can be resolved", "a message after two tries")
def test_a_name_without_an_address_is_asked_for_twice(server, data, raw, tmp_path, capsys) -> None:
    registry = write_registry(tmp_path / "registry.csv", server, url="http://nowhere.invalid/x")
    with pytest.raises(UserError, match=r"nowhere.*gave up after 2 attempts without progress"):
        fetch(read_files(registry), raw, retries=8)
    assert capsys.readouterr().err.count("trying again") == 1


@pytest.mark.fault("a server answers with terminal escapes", "they are printed as escapes")
def test_a_servers_words_cannot_steer_a_terminal(server, files, raw, capsys) -> None:
    server.faults[NAME] = [status(404, reason="\x1b[2Jgone")]
    with pytest.raises(UserError, match=r"404 \\x1b\[2Jgone"):
        fetch(files, raw)
    shown = capsys.readouterr().err
    assert r"\x1b[2Jgone" in shown and "\x1b" not in shown


def test_a_partial_answer_from_elsewhere_is_not_appended(server, files, raw) -> None:
    server.faults[NAME] = [cut(1_000_000), *[another_range] * 50]
    with pytest.raises(UserError, match="it was asked for bytes from 1000000 on and answers 'bytes 999993-"):
        fetch(files, raw)
    assert part_of(raw, NAME).stat().st_size == 1_000_000


def test_a_mirror_goes_on_where_the_first_source_gave_up(server, data, raw, tmp_path) -> None:
    registry = write_registry(tmp_path / "r.csv", server, mirrors=f"{server.url}/second/{NAME}")
    server.faults[NAME] = [cut(1_000_000), *[status(500)] * 4]
    fetch(read_files(registry), raw)
    assert (raw / NAME).read_bytes() == data
    assert server.sent == SIZE


def test_a_folder_and_an_address_serve_as_mirrors(server, files, data, raw, tmp_path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / NAME).write_bytes(data)
    fetch(files, raw, copies)
    assert (raw / NAME).read_bytes() == data and server.requests == []
    (copies / NAME).write_bytes(flipped(data))  # a bad copy is not believed; the next source is asked
    fetch(files, tmp_path / "raw2", copies, tmp_path / "nowhere", f"{server.url}/mirror")
    assert (tmp_path / "raw2" / NAME).read_bytes() == data


def test_what_is_there_is_not_fetched_and_what_is_not_the_registrys_stays(server, files, data, raw) -> None:
    raw.mkdir()
    (raw / NAME).write_bytes(data)
    fetch(files, raw)
    (raw / NAME).write_bytes(b"my own")
    with pytest.raises(UserError, match=r"not the registry's file .*wait for the process .*move it away"):
        fetch(files, raw)
    assert (raw / NAME).read_bytes() == b"my own" and server.requests == []


def test_room_is_checked_before_the_first_byte(server, data, raw, tmp_path) -> None:
    files = read_files(write_registry(tmp_path / "r.csv", server, bytes=str(10**18)))
    with pytest.raises(UserError, match=r"need 1,000,000,000.000 GB more and the disk has [\d.,]+ GB free"):
        fetch(files, raw)
    assert server.requests == []


def test_a_size_nobody_wrote_down_is_asked_for(server, data, raw, tmp_path, monkeypatch) -> None:
    files = read_files(write_registry(tmp_path / "r.csv", server, bytes=""))
    server.faults[NAME] = [status(500), cut(1_000_000)]
    (tmp_path / NAME).write_bytes(data[:100_000])  # a bad copy; its size does not count against the server's
    fetch(files, raw, tmp_path)
    assert (raw / NAME).read_bytes() == data
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(UserError, match=r"need 0.003 GB more and the disk has 0.000 GB"):
        fetch(files, tmp_path / "elsewhere")


def test_verify_finds_what_is_missing_or_damaged_and_mends_only_that(server, data, raw, tmp_path) -> None:
    names = ["good.gz", "gone.gz", "flipped.gz", "cut.gz"]
    server.files = {name: data[k:] + data[:k] for k, name in enumerate(names)}
    files = read_files(write_registry(tmp_path / "r.csv", server))
    fetch(files, raw)
    (raw / "gone.gz").unlink()
    (raw / "flipped.gz").write_bytes(flipped(server.files["flipped.gz"]))
    (raw / "cut.gz").write_bytes(server.files["cut.gz"][:2_000_000])
    server.requests.clear()
    states = inspect(files, raw, 2)
    assert [s.state for s in states] == ["present", "missing", "damaged", "damaged"]
    assert "2,000,000 bytes instead of 3,000,000" in states[3].why and "instead of md5:" in states[2].why
    download(files, raw, QUICK, mend=True)
    assert sorted(server.requests) == [("cut.gz", 2_000_000), ("flipped.gz", 0), ("gone.gz", 0)]
    assert {name: (raw / name).read_bytes() for name in names} == server.files


def started(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen([*COMMAND, *map(str, words)], cwd=ROOT, stderr=subprocess.PIPE, text=True)


@pytest.mark.fault("a download is killed", "the same command continues to the same bytes")
def test_a_killed_download_goes_on_and_ends_with_the_same_bytes(server, words, data, raw) -> None:
    server.faults[NAME] = [cut(1_500_000, stall=True)]
    process, part = started(*words), part_of(raw, NAME)
    assert server.stalled.wait(60)
    while not part.exists() or part.stat().st_size < 1_000_000:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (raw / NAME).exists()
    kept = part.stat().st_size
    done = must_work(*words)
    assert (raw / NAME).read_bytes() == data
    assert server.requests == [(NAME, 0), (NAME, kept)]
    assert f"continuing after {kept:,} bytes" in done.stderr
    assert [p.name for p in raw.iterdir()] == [NAME]


def test_two_processes_do_not_fetch_a_file_twice(server, words, data, raw) -> None:
    server.faults[NAME] = [cut(1_500_000, stall=True)]
    first = started(*words, "--wait", "0.01", "--timeout", "20")
    assert server.stalled.wait(60)
    second = started(*words)
    assert second.stderr is not None and second.stderr.readline().startswith("to be downloaded: ")
    assert "has been fetching into it since" in second.stderr.readline()
    server.released.set()  # the stalled answer ends short; the first process goes on
    for process in (first, second):
        _, messages = process.communicate()
        assert process.returncode == 0, messages
    assert (raw / NAME).read_bytes() == data
    assert len(server.requests) == 2 and server.sent == SIZE
    assert [p.name for p in raw.iterdir()] == [NAME]


@pytest.mark.fault("the disk fills up during a download", "a message; what came is kept")
def test_a_disk_that_fills_up_keeps_what_came_and_says_so(words, data, raw) -> None:
    """A limit on file size stands in for a quota: the kernel refuses the write all the same."""
    done = ran("prlimit", "--fsize=1000000", *COMMAND, *words, cwd=ROOT)
    assert done.returncode == 1 and "the disk is full; the 1,000,000 bytes fetched are kept" in done.stderr
    assert "Traceback" not in done.stderr and not (raw / NAME).exists()
    must_work(*words)
    assert (raw / NAME).read_bytes() == data


def test_a_check_says_it_in_lines_and_repair_mends(server, words, data, raw) -> None:
    place = words[3:]
    missing = cxrbench(*words, "--check")
    assert missing.returncode == 1 and missing.stdout == f"{NAME}  missing\n"
    assert f"cxrbench data download d --folder {raw} --repair" in missing.stderr and not server.requests
    raw.mkdir()
    (raw / NAME).write_bytes(bytes(SIZE))
    assert f"{NAME}  damaged  " in cxrbench(*words, "--check").stdout
    assert "--repair" in must_fail(*words)
    must_work(*words, "--repair")
    assert must_work(*words, "--check").stdout == f"{NAME}  present\n" and (raw / NAME).read_bytes() == data
    assert "did you mean 'd'" in must_fail("data", "download", "dd", *place)
    assert f"d  {NAME}  ok  3,000,000 bytes" in must_work("check_links.py", *place[2:]).stdout
    server.faults[NAME] = [status(404)]
    links = cxrbench("check_links.py", *place[2:], "--strict")
    assert links.returncode == 1 and "dead  the server answers 404" in links.stdout


def test_many_bytes_are_asked_for_first(server, words, data, raw, tmp_path) -> None:
    write_registry(tmp_path / "registry.csv", server, bytes="45000000000")
    message = must_fail(*words)
    assert (
        f"to be downloaded: {NAME} (45.0 GB from 127.0.0.1) into {raw}" in message and "add --yes" in message
    )
    assert server.requests == []
    must_fail(*words, "--yes")  # the server's file is another: that is found by asking it
    assert server.requests != []
    write_registry(tmp_path / "registry.csv", server)
    assert "(0.0 GB from" in must_work(*words).stderr and (raw / NAME).read_bytes() == data


def test_a_terminal_shows_one_bar_with_speed_and_time_left(words, raw) -> None:
    shown = on_a_terminal(*words, COLUMNS="120")
    assert (raw / NAME).exists()
    assert "fetching: 100%" in shown and "3.00M/3.00M" in shown and "B/s]" in shown and "<00:00" in shown
