"""Records and prices that the cost tests share."""

import pytest

from conftest import ROOT
from cxrbench.cost.costs import cost_of, hours_of
from cxrbench.cost.prices import read_prices
from cxrbench.evidence.record import DatasetIdentity, EpochStats, Host, Record, Timing

SHIPPED = ROOT / "data/prices.csv"


@pytest.fixture(scope="session")
def prices():
    """The shipped price table; treat as read-only."""
    return read_prices(SHIPPED)


@pytest.fixture
def priced(prices):
    """The cost rows of some records under a pricing."""

    def price(records, pricing, target_auroc=None):
        return cost_of(hours_of([(record, "recorded") for record in records], target_auroc), prices, pricing)

    return price


@pytest.fixture
def make_record():
    """A record of two epochs of an hour each; keywords override what a test is about."""

    def make(
        cell="nih128-64px/resnet18/cuda/seed0", *, instance=None, status="ok", devices=(1, 1), cores=(2, 2),
        timing=None, aurocs=(0.70, 0.75), images=7000,
    ) -> Record:  # fmt: skip
        timing = timing or Timing(
            setup_seconds=360, compile_seconds=720, train_seconds=7200, evaluate_seconds=1800
        )
        return Record(
            cell=cell, status=status, phase="done" if status == "ok" else "compile",
            commit="0" * 40, dirty=False, started="2026-10-01T00:00:00Z", ended="2026-10-01T03:00:00Z",
            host=Host(
                device="NVIDIA A10G", device_count=devices[1], devices_used=devices[0], cpu="EPYC",
                cores=cores[1], cores_used=cores[0], memory_gib=16, os="Debian", instance=instance,
            ),
            versions={}, recipe={}, recipe_hash="0" * 16,
            dataset=DatasetIdentity.model_construct(images={"train": images, "val": 900}),
            timing=timing,
            history=[
                EpochStats(
                    epoch=number, train_loss=0.2, val_loss=0.2, val_auroc=auroc, train_seconds=3600,
                    eval_seconds=900,
                )
                for number, auroc in enumerate(aurocs)
            ],
        )  # fmt: skip

    return make
