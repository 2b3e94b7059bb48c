"""Downloads over a network that breaks: whole and right in the end, or one message and no final name."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
from pathlib import Path

import numpy as np
import pytest
from bad_server import (
    BadServer,
    another_range,
    cut,
    flipped,
    other,
    server,
    stall,
    status,
    trickle,
    without_length,
    write_registry,
)
from tqdm import tqdm

from conftest import ROOT, cxrbench
from cxrbench.datasets.download import Patience, Transfer, download, inspect, part_of
from cxrbench.datasets.registry import RemoteFile, read_files
from cxrbench.study.errors import UserError

__all__ = ["server"]
QUICK = Patience(retries=3, timeout=1.0, first_wait=0.01, longest_wait=0.05)
SIZE = 3_000_000
NAME = "images_001.tar.gz"


@pytest.fixture
def data() -> bytes:
    return np.random.default_rng(0).bytes(SIZE)


@pytest.fixture
def files(server: BadServer, data: bytes, tmp_path: Path) -> list[RemoteFile]:
    server.files[NAME] = data
    return read_files(write_registry(tmp_path / "registry.csv", server))


def fetch(files: list[RemoteFile], folder: Path, *mirrors: str, patience: Patience = QUICK) -> None:
    download(files, folder, mirrors, 2, patience)


def starts(server: BadServer) -> list[int]:
    return [start for _, start in server.requests]


@pytest.mark.fault("a connection breaks during a download", "continued at the byte where it broke")
def test_a_connection_that_breaks_is_continued_where_it_broke(server, files, data, tmp_path) -> None:
    server.faults[NAME] = [cut(1_000_000), cut(500_000), status(500), status(503), cut(700_000)]
    fetch(files, tmp_path / "raw")
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    assert starts(server) == [0, 1_000_000, 1_500_000, 1_500_000, 1_500_000, 2_200_000]
    assert server.sent == SIZE, "nothing was fetched twice"
    assert [p.name for p in (tmp_path / "raw").iterdir()] == [NAME]


def test_progress_renews_patience(server, files, data, tmp_path) -> None:
    server.faults[NAME] = [cut(100_000)] * 20
    fetch(files, tmp_path / "raw", patience=Patience(retries=0, timeout=1, first_wait=0))
    assert (tmp_path / "raw" / NAME).read_bytes() == data


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(status(500), id="500 then 200"),
        pytest.param(status(429, Retry_After="0"), id="429 then 200"),
        pytest.param(stall(1_000_000), id="a stall"),
        pytest.param(trickle, id="a trickle"),
        pytest.param(other(flipped), id="a flipped byte, then the right one"),
        pytest.param(without_length(1_000_000), id="no length, cut"),
    ],
)
def test_a_fault_that_passes_is_outlived(fault, server, files, data, tmp_path) -> None:
    server.faults[NAME] = [fault]
    fetch(files, tmp_path / "raw", patience=Patience(retries=3, timeout=0.5, first_wait=0.01))
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    assert len(server.requests) == 2


def test_a_server_without_ranges_starts_again(server, files, data, tmp_path) -> None:
    server.rangeless.add(NAME)
    server.faults[NAME] = [cut(1_000_000)]
    fetch(files, tmp_path / "raw")
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    assert server.sent == 1_000_000 + SIZE


def forever(fault) -> list:
    return [fault] * 50


@pytest.mark.fault("a server stays broken or sends another file", "a message with every answer; no file")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (other(flipped), "another hash than the registry's"),
        (other(lambda data: data[:-1]), "offers 2,999,999 bytes, the file has 3,000,000"),
        (other(lambda data: data + b"x"), "offers 3,000,001 bytes"),
        (status(404), "the server answers 404"),
        (status(500), "the server answers 500 .*given up after 4 tries"),
        (status(302, Location="/first/" + NAME), "redirects"),
        (status(302, Location="file:///etc/passwd"), "cannot be asked"),
        (stall(0), "given up after"),
        (lambda handler, data, start: handler.connection.close(), "given up after"),
    ],
    ids=[
        "flipped",
        "short",
        "long",
        "404",
        "500",
        "redirect loop",
        "redirect to a file",
        "silence",
        "closed",
    ],
)
def test_a_fault_that_stays_is_one_message_and_no_file(fault, message, server, files, tmp_path) -> None:
    server.faults[NAME] = forever(fault)
    with pytest.raises(UserError, match=rf"(?s){NAME}: no source gave it.*{message}.*--mirror"):
        fetch(files, tmp_path / "raw", patience=Patience(3, timeout=0.2, first_wait=0.01))
    assert not (tmp_path / "raw" / NAME).exists()


@pytest.mark.fault("a server answers with terminal escapes", "they are printed as escapes")
def test_a_servers_words_cannot_steer_a_terminal(server, files, tmp_path, capsys) -> None:
    server.faults[NAME] = [status(404, reason="\x1b[2Jgone")]
    with pytest.raises(UserError, match=r"404 \\x1b\[2Jgone"):
        fetch(files, tmp_path / "raw")
    shown = capsys.readouterr().err
    assert r"\x1b[2Jgone" in shown and "\x1b" not in shown


def test_more_bytes_than_there_are_end_before_the_disk_is_full(server, files, tmp_path) -> None:
    server.faults[NAME] = forever(lambda handler, data, start: without_length(2 * SIZE)(handler, data * 2, 0))
    with pytest.raises(UserError, match="sends more than the 3,000,000 bytes"):
        fetch(files, tmp_path / "raw")
    assert list((tmp_path / "raw").iterdir()) == []


def test_a_partial_answer_from_elsewhere_is_not_appended(server, files, tmp_path) -> None:
    server.faults[NAME] = [cut(1_000_000), *forever(another_range)]
    with pytest.raises(UserError, match="it was asked for bytes from 1000000 on and answers 'bytes 999993-"):
        fetch(files, tmp_path / "raw")
    assert part_of(tmp_path / "raw", NAME).stat().st_size == 1_000_000


def test_a_mirror_goes_on_where_the_first_source_gave_up(server, data, tmp_path) -> None:
    server.files[NAME] = data
    registry = write_registry(tmp_path / "r.csv", server, mirrors=f"{server.url}/second/{NAME}")
    server.faults[NAME] = [cut(1_000_000), *[status(500)] * 4]
    fetch(read_files(registry), tmp_path / "raw")
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    assert server.sent == SIZE


def test_a_folder_and_an_address_serve_as_mirrors(server, files, data, tmp_path) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    (copies / NAME).write_bytes(data)
    fetch(files, tmp_path / "raw", str(copies))
    assert (tmp_path / "raw" / NAME).read_bytes() == data and server.requests == []
    (copies / NAME).write_bytes(flipped(data))  # a bad copy is not believed; the next source is asked
    fetch(files, tmp_path / "raw2", str(copies), f"{server.url}/mirror")
    assert (tmp_path / "raw2" / NAME).read_bytes() == data


def test_what_is_there_is_not_fetched_and_what_is_not_the_registrys_is_not_touched(
    server, files, data, tmp_path
) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / NAME).write_bytes(data)
    fetch(files, tmp_path / "raw")
    assert server.requests == []
    (tmp_path / "raw" / NAME).write_bytes(b"my own")
    with pytest.raises(UserError, match=r"is not the registry's file .*move it away"):
        fetch(files, tmp_path / "raw")
    assert (tmp_path / "raw" / NAME).read_bytes() == b"my own"


def test_room_is_checked_before_the_first_byte(server, data, tmp_path) -> None:
    server.files[NAME] = data
    files = read_files(write_registry(tmp_path / "r.csv", server, bytes=str(10**18)))
    with pytest.raises(UserError, match=r"need 1,000,000,000.00 GB more and the disk has [\d.,]+ GB free"):
        fetch(files, tmp_path / "raw")
    assert server.sent == 0 and server.requests == []


def test_a_size_nobody_wrote_down_is_asked_for(server, data, tmp_path, monkeypatch) -> None:
    server.files[NAME] = data
    files = read_files(write_registry(tmp_path / "r.csv", server, sizes=False))
    server.faults[NAME] = [status(500), cut(1_000_000)]
    fetch(files, tmp_path / "raw")
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    full = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    with pytest.raises(UserError, match=r"need 2,999,\d+ bytes more|need 3,000,000 bytes more"):
        fetch(files, tmp_path / "elsewhere")


def test_a_size_from_a_bad_copy_is_not_held_against_the_next_source(server, data, tmp_path) -> None:
    server.files[NAME] = data
    files = read_files(write_registry(tmp_path / "r.csv", server, sizes=False))
    (tmp_path / "copies").mkdir()
    (tmp_path / "copies" / NAME).write_bytes(data[:100_000])
    fetch(files, tmp_path / "raw", str(tmp_path / "copies"))
    assert (tmp_path / "raw" / NAME).read_bytes() == data


def test_what_comes_to_stand_there_meanwhile_is_not_taken_for_whole(server, files, data, tmp_path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    (raw / NAME).write_bytes(data[:5])  # somebody copies it while we fetch
    transfer = Transfer(files[0], raw, QUICK, tqdm(disable=True), threading.Event())
    with pytest.raises(UserError, match="appeared during the download and is not the registry's file"):
        transfer.run()
    (raw / NAME).write_bytes(data)
    transfer.run()
    assert server.requests == []


def test_verify_tells_present_from_missing_and_damaged_and_mends_only_that(server, data, tmp_path) -> None:
    names = ["good.gz", "gone.gz", "flipped.gz", "cut.gz"]
    server.files = {name: data[k:] + data[:k] for k, name in enumerate(names)}
    files = read_files(write_registry(tmp_path / "r.csv", server))
    raw = tmp_path / "raw"
    fetch(files, raw)
    (raw / "gone.gz").unlink()
    (raw / "flipped.gz").write_bytes(flipped(server.files["flipped.gz"]))
    (raw / "cut.gz").write_bytes(server.files["cut.gz"][:2_000_000])
    server.requests.clear()
    states = inspect(files, raw, 2)
    assert [s.state for s in states] == ["present", "missing", "damaged", "damaged"]
    assert "2,000,000 bytes instead of 3,000,000" in states[3].why and "md5 is" in states[2].why
    download(files, raw, (), 2, QUICK, mend=True)
    assert sorted(server.requests) == [("cut.gz", 2_000_000), ("flipped.gz", 0), ("gone.gz", 0)]
    assert {name: (raw / name).read_bytes() for name in names} == server.files


def waited(process: subprocess.Popen) -> None:
    """Look again a moment later; the process must still be at work."""
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.02)


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "cxrbench", "data", *map(str, words)]


def started(*words: object) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(
        command(*words), cwd=ROOT, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.fault("a download is killed", "the same command continues to the same bytes")
def test_a_killed_download_goes_on_and_ends_with_the_same_bytes(server, files, data, tmp_path) -> None:
    words = ["download", "d", "--folder", tmp_path / "raw", "--registry", tmp_path / "registry.csv"]
    server.faults[NAME] = [stall(1_500_000)]
    process = started(*words)
    part = part_of(tmp_path / "raw", NAME)
    assert server.stalled.wait(60)
    while not part.exists() or part.stat().st_size < 1_000_000:
        waited(process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "raw" / NAME).exists()
    kept = part.stat().st_size
    done = cxrbench("data", *words)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    assert starts(server) == [0, kept] and f"continuing after {kept:,} bytes" in done.stderr
    assert [p.name for p in (tmp_path / "raw").iterdir()] == [NAME]


def test_two_processes_do_not_fetch_a_file_twice(server, files, data, tmp_path) -> None:
    words = ["download", "d", "--folder", tmp_path / "raw", "--registry", tmp_path / "registry.csv"]
    server.faults[NAME] = [stall(1_500_000)]
    first = started(*words, "--wait", "0.01", "--timeout", "20")
    assert server.stalled.wait(60)
    second = started(*words)
    assert second.stderr is not None and "another process is fetching it" in second.stderr.readline()
    server.released.set()  # the stalled answer ends short; the first process goes on
    for process in (first, second):
        _, messages = process.communicate()
        assert process.returncode == 0, messages
    assert (tmp_path / "raw" / NAME).read_bytes() == data
    assert len(server.requests) == 2 and server.sent == SIZE
    assert [p.name for p in (tmp_path / "raw").iterdir()] == [NAME]


@pytest.mark.fault("the disk fills up during a download", "a message; what came is kept")
def test_a_disk_that_fills_up_keeps_what_came_and_says_so(server, files, data, tmp_path) -> None:
    """A limit on file size stands in for a quota: the kernel refuses the write all the same."""
    words = command("download", "d", "--folder", tmp_path / "raw", "--registry", tmp_path / "registry.csv")
    limited = ["prlimit", "--fsize=1000000", *words]
    if shutil.which("prlimit") is None:
        pytest.skip("prlimit (util-linux) is not installed")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(limited, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "the disk is full; the 1,000,000 bytes fetched are kept" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "raw" / NAME).exists()
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and (tmp_path / "raw" / NAME).read_bytes() == data


def test_a_small_disk_is_refused_or_survived(server, files, tmp_path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk]).returncode:
        pytest.skip("mounting a small disk takes root")
    try:
        with pytest.raises(UserError, match="1 files need 3,000,000 bytes more and the disk has 2,097,152"):
            fetch(files, disk / "raw")
        assert list((disk / "raw").iterdir()) == []
    finally:
        subprocess.run(["umount", disk], check=True)


def test_commands_say_it_in_lines_and_in_json(server, files, data, tmp_path) -> None:
    place = ["--folder", tmp_path / "raw", "--registry", tmp_path / "registry.csv"]
    missing = cxrbench("data", "verify", "d", *place)
    assert missing.returncode == 1 and missing.stdout == f"{NAME}  missing\n"
    assert "--mend" in missing.stderr
    mended = cxrbench("data", "verify", "d", *place, "--mend", "--json")
    assert mended.returncode == 0 and '"state": "present"' in mended.stdout, mended.stderr
    unknown = cxrbench("data", "download", "dd", *place)
    assert unknown.returncode == 1 and "did you mean 'd'" in unknown.stderr
    links = cxrbench("data", "check-links", *place[2:])
    assert links.returncode == 0 and f"d  {NAME}  ok  3,000,000 bytes" in links.stdout
    server.faults[NAME] = [status(404)]
    links = cxrbench("data", "check-links", *place[2:], "--strict")
    assert links.returncode == 1 and "dead  the server answers 404" in links.stdout


def test_a_terminal_shows_one_bar_with_speed_and_time_left(server, files, tmp_path) -> None:
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    words = command("download", "d", "--folder", tmp_path / "raw", "--registry", tmp_path / "registry.csv")
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    done = subprocess.run(words, cwd=ROOT, env=environment, stderr=writer, stdout=subprocess.DEVNULL)
    os.close(writer)
    shown = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert done.returncode == 0
    assert "fetching: 100%" in shown and "3.00M/3.00M" in shown and "B/s]" in shown and "<00:00" in shown


def test_a_real_tarball_arrives_whole_through_twenty_breaks(server, nih128, tmp_path) -> None:
    server.files["images_002.tar.gz"] = (nih128 / "images_002.tar.gz").read_bytes()
    registry = write_registry(
        tmp_path / "r.csv", server, bytes="84259245", hash="md5:43625a5eb2b21590f8d9edda8766fcf5"
    )
    server.faults["images_002.tar.gz"] = [cut(4_000_000)] * 20
    fetch(read_files(registry), tmp_path / "raw")
    assert len(server.requests) == 21 and server.sent == 84_259_245
