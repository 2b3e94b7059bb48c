"""Jobs of a network that misbehaves."""

from __future__ import annotations

import pytest

from .trainers import custom_network


@pytest.fixture
def broken_job(make_job, tmp_path, monkeypatch):
    """A function that makes a job whose network's forward is the given code; keywords change the job."""

    def make(forward: str, name: str = "a", **changes: object):
        monkeypatch.setenv("PYTHONPATH", custom_network(tmp_path / "site", forward))
        return make_job(name, architecture="broken_net", **changes)

    return make
