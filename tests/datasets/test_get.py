"""From nothing to packed radiographs by one command, over a network that breaks; or one message."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from bad_server import BadServer, cut, flipped, server, status, write_registry
from tarballs import IMAGE, member, names, tar, write_tar

from conftest import ROOT, TINY, cxrbench, must_fail, must_work, ran
from test_terminal import on_a_terminal

__all__ = ["server"]
ARCHIVE = "images_002.tar.gz"
RECORDED = ROOT / "data/recorded"
PARTS = {"train": 1, "val": 1, "test": 1}


class Place:
    """A folder with nothing but a study of a few originals and a registry that names their archive."""

    def __init__(self, folder: Path, server: BadServer, originals: list[Path]) -> None:
        self.folder, self.server = folder, server
        self.raw, self.packed = folder / "raw", folder / "packed"
        members = [member(f"images/{path.name}", path.read_bytes()) for path in originals]
        server.files = {ARCHIVE: write_tar(folder / "made" / ARCHIVE, tar(members)).read_bytes()}
        write_registry(folder / "registry.csv", server, dataset="nih")
        self.study(expect_images=PARTS)

    def study(self, **changes: Any) -> None:
        """Write the study, with ``changes`` in its dataset."""
        split = self.folder / "split.csv"
        dataset = {"source": "nih", "pixels": 64, "recipe": "r", "folder": str(self.raw), "split": str(split)}
        dataset |= {"archives": ARCHIVE, "reduced": "opencv-bilinear-256-128"} | changes
        cells = {"dataset": "d", "architectures": [TINY], "platforms": ["cpu", "neuron"], "seeds": [0]}
        study = {"datasets": {"d": dataset}, "recipes": {"r": {"epochs": 1, "batch": 4}}, "cells": [cells]}
        (self.folder / "study.yaml").write_text(yaml.safe_dump(study))

    def words(self, *more: object, of: tuple[object, ...] = ("data", "get", "d")) -> list[str]:
        """The command, after ``cxrbench``."""
        where = {"study": "study.yaml", "registry": "registry.csv", "packed": "packed"}
        options = [f"--{name}={self.folder / path}" for name, path in where.items()]
        return [*map(str, of), *options, f"--recorded={RECORDED}", *map(str, more)]

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.packed / "d/manifest.json").read_text())


@pytest.fixture
def place(tmp_path: Path, server: BadServer, originals: list[Path]) -> Place:
    some = originals[:3]
    rows = "".join(f"{path.name},{part}\n" for path, part in zip(some, PARTS, strict=True))
    (tmp_path / "split.csv").write_text(f"image,split\n{rows}")
    return Place(tmp_path, server, some)


@pytest.mark.slow
@pytest.mark.fault("a connection breaks during `data get`", "continued where it broke; the recorded pixels")
def test_what_is_not_here_is_fetched_over_breaks_packed_and_discarded(place: Place) -> None:
    size = len(place.server.files[ARCHIVE])
    place.server.faults[ARCHIVE] = [cut(size // 3), cut(size // 4)]
    done = must_work(*place.words("--fetch", "--discard"))
    assert f"to be downloaded: {ARCHIVE} (0.0 GB from 127.0.0.1) into {place.raw}" in done.stderr
    assert "left at this speed" in done.stderr and "terms: CC0" in done.stderr
    assert f"removed {place.raw / ARCHIVE}" in done.stderr and list(place.raw.iterdir()) == []
    assert place.server.sent == size
    assert place.manifest()["unlike_recorded"] == [] and place.manifest()["source_sizes"] == {"1024x1024": 3}
    place.server.requests.clear()
    again = must_work(*place.words())  # what is packed is not fetched again
    assert again.stderr == f"d: already packed in {place.packed / 'd'}\n"
    assert place.server.requests == []


def test_without_a_terminal_nothing_is_fetched_unasked_and_the_command_is_printed(place: Place) -> None:
    message = must_fail(*place.words(), code=3)
    assert "only when asked for: cxrbench data get d --fetch" in message and place.server.requests == []
    cell = f"d/{TINY}/cpu/seed0"
    message = must_fail(*place.words(of=("cell", "get", cell)), code=3)
    assert f"make cell CELL={cell} FETCH=1" in message and place.server.requests == []
    shown = on_a_terminal(*place.words(of=("cell", "get", cell)))
    assert "Ctrl-C stops it" in shown and place.manifest()["images"] == PARTS


def test_images_are_fetched_without_loading_torch(place: Place) -> None:
    words = place.words("--fetch", of=("data", "get", "d"))
    done = ran(sys.executable, "-X", "importtime", "-m", "cxrbench", *words, check=True)
    assert place.manifest()["images"] == PARTS and "cxrbench.datasets.nih" in done.stderr
    assert [line for line in done.stderr.splitlines() if line.endswith(("| torch", " torch"))] == []


def test_nothing_is_fetched_for_a_platform_that_is_not_here(place: Place) -> None:
    must_work(*place.words("--fetch", of=("cell", "get", f"d/{TINY}/neuron/seed0")))
    assert place.server.requests == [] and not place.packed.exists()


@pytest.mark.slow
@pytest.mark.fault("`data get` is sent wrong bytes or a short file", "a message; nothing is packed")
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        pytest.param(cut(change=flipped), "twice sent bytes with another hash", id="wrong bytes"),
        pytest.param(cut(change=lambda data: data[:-9]), "it is another file", id="short"),
        pytest.param(status(404), "the server answers 404", id="gone"),
    ],
)
def test_wrong_bytes_and_short_files_are_one_message(fault, message, place: Place) -> None:
    place.server.faults[ARCHIVE] = [fault, fault]
    assert message in must_fail(*place.words("--fetch", "--discard"))
    assert not place.packed.exists() and not (place.raw / ARCHIVE).exists()
    place.server.faults.clear()
    must_work(*place.words("--fetch"))


@pytest.mark.slow
@pytest.mark.fault("the disk fills up in `data get`", "a message; what came is kept and not fetched again")
def test_a_full_disk_loses_nothing(place: Place) -> None:
    """Limits on file size stand in for quotas: of the archive first, then of the packed images."""
    size = len(place.server.files[ARCHIVE])
    for limit, message in ((size // 2, "bytes fetched are kept"), (size, None)):
        command = ["prlimit", f"--fsize={limit}", sys.executable, "-m", "cxrbench", *place.words("--fetch")]
        done = ran(*command, cwd=ROOT)
        assert (message is None) == (done.returncode == 0) and (message or "") in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
    assert place.server.requests == [(ARCHIVE, 0), (ARCHIVE, size // 2)]
    place.study(pixels=128)
    command = ["prlimit", "--fsize=20000", sys.executable, "-m", "cxrbench", *place.words("--discard")]
    done = ran(*command, cwd=ROOT)
    assert done.returncode == 1 and "d: the disk is full; free some space" in done.stderr
    assert (place.raw / ARCHIVE).exists(), "an archive that is not packed stays"
    must_work(*place.words("--discard"))
    assert len(place.server.requests) == 2 and place.manifest()["pixels"] == 128


@pytest.mark.fault("an archive lacks an image", "the message names it; the archive stays, nothing is packed")
def test_a_missing_image_is_named(place: Place) -> None:
    place.study(expect_images=PARTS | {"train": 2})
    message = must_fail(*place.words("--fetch", "--discard"))
    assert "but the config expects" in message and "of the recorded ones are missing" in message
    assert (place.raw / ARCHIVE).exists() and not (place.packed / "d").exists()


def test_images_of_another_origin_are_packed_and_not_fetched_or_removed(place: Place) -> None:
    place.raw.mkdir()
    own = place.raw / ARCHIVE
    write_tar(own, tar([member(f"images/{name}", IMAGE) for name in names(3)]))
    place.study(pixels=16, split="seeded-0", reduced=None)
    before = own.read_bytes()
    done = must_work(*place.words("--discard"))
    assert place.server.requests == [] and own.read_bytes() == before and "removed" not in done.stderr


def test_a_table_of_your_own_is_not_fetched(tmp_path: Path) -> None:
    own = {"source": "table", "pixels": 64, "recipe": "r", "table": "none.csv", "folder": "none"}
    study = {"datasets": {"d": own}, "recipes": {"r": {"epochs": 1, "batch": 4}}, "cells": []}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    done = cxrbench("data", "get", "d", "--study", tmp_path / "study.yaml", "--packed", tmp_path)
    assert done.returncode == 1 and "the images of d are your own" in done.stderr
