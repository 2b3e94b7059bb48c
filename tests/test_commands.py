"""Commands that no other file of tests calls."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import ROOT, cxrbench


def test_costs_and_claims_are_tables_and_json() -> None:
    done = cxrbench("cost", "table", ROOT / "data/recorded")
    assert "proxy" in done.stdout and "c7a.large" in done.stdout, done.stderr
    rows = json.loads(cxrbench("cost", "table", ROOT / "data/recorded", "--json").stdout)
    assert {"usd_total", "region", "basis", "as_of", "kind"} <= set(rows[0])
    rows = json.loads(cxrbench("claims", "--json").stdout)
    assert len(rows) > 70 and all(row["verdict"] for row in rows)


def test_a_folder_without_measurements_is_named(tmp_path: Path) -> None:
    done = cxrbench("bench", "record", "--source", tmp_path, "--recorded", tmp_path / "recorded")
    assert done.returncode == 1 and f"{tmp_path}: nothing was measured there" in done.stderr
    assert not (tmp_path / "recorded").exists()
