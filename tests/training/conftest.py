"""Jobs of a network that misbehaves."""

import fcntl

import pytest

from .trainers import custom_network


@pytest.fixture
def broken_job(request, make_job, tmp_path, tmp_path_factory, monkeypatch):
    """A function that makes a job whose network's forward is the given code; keywords change the job.

    Linux counts the kills for want of memory of the whole machine, so a test that provokes one is marked
    ``alone``: none of the others runs in another worker meanwhile.
    """

    def make(forward: str, name: str = "a", **changes: object):
        monkeypatch.setenv("PYTHONPATH", custom_network(tmp_path / "site", forward))
        return make_job(name, architecture="resnet10t", **changes)

    how = fcntl.LOCK_EX if request.node.get_closest_marker("alone") else fcntl.LOCK_SH
    with (tmp_path_factory.getbasetemp().parent / "broken_job.lock").open("w") as lock:
        fcntl.flock(lock, how)
        yield make
