"""What a cell cost: phases, cores, proxies, failures, and a new instance by one row of data."""

import math

import pandas as pd
import pytest

from conftest import ROOT
from cxrbench.cli.cost_columns import costs_and_notes
from cxrbench.common.errors import UserError
from cxrbench.cost.costs import COST_COLUMNS, cost_table
from cxrbench.evidence.record import RECORD, Timing
from cxrbench.paper.cost_tables import OF_ITS_BATCH, mark
from cxrbench.study.config import Pricing

CELL = "nih128-64px/resnet18/{}/seed{}"
NEURON = Pricing(instances={"neuron": "trn1.2xlarge", "cuda": "g5.xlarge", "cpu": "c7a.large"})


@pytest.fixture
def cost(priced):
    """The cost row of one record."""
    return lambda record, pricing=NEURON, target=None: priced([record], pricing, target).iloc[0]


def test_hours_times_price_by_phase(cost, make_record):
    row = cost(make_record())
    assert [row[f"hours_{p}"] for p in ("setup", "compile", "train", "evaluate")] == [0.1, 0.2, 2.0, 0.5]
    usd = {"train": 2.0, "total": 2.8, "per_million_images": 2 / 14000 * 1e6}
    for name, hours in usd.items():
        assert row[f"usd_{name}"] == pytest.approx(hours * 1.006), name
    assert (row["region"], row["basis"], row["as_of"]) == ("us-east-1", "on_demand", "2026-07-20")
    assert row["source"] and list(row.index) == list(COST_COLUMNS)


@pytest.mark.parametrize(
    ("platform", "instances", "cores"),
    [
        ("neuron", {"neuron": "trn1.2xlarge"}, (1, 2)),
        ("cpu", {"cpu": "c7a.large"}, (1, 2)),
        ("xla_tpu", {"xla_tpu": "c7a.large"}, (math.nan, 2)),
    ],
)
def test_cores_used_of_cores_paid(cost, make_record, platform, instances, cores):
    """NeuronCores on Trainium and vCPUs on a CPU; a TPU run occupies no vCPU that can be counted."""
    record = make_record(CELL.format(platform, 0), devices=(1, 2), cores=(1, 16))
    row = cost(record, Pricing(instances=instances))
    assert (row["cores_used"], row["cores_paid"]) == pytest.approx(cores, nan_ok=True)
    assert row["usd_used_cores"] == pytest.approx(row["usd_total"] * cores[0] / 2, nan_ok=True)


def test_measured_on_its_own_instance_else_a_proxy(cost, make_record):
    own = cost(make_record(instance="g5.2xlarge"))
    assert (own["kind"], own["instance"], own["note"]) == ("measured", "g5.2xlarge", "")
    for unknown in (None, "x9.huge"):
        row = cost(make_record(instance=unknown))
        assert (row["kind"], row["instance"]) == ("proxy", "g5.xlarge")
        assert row["note"] == "run on NVIDIA A10G, priced as g5.xlarge"


@pytest.mark.parametrize(
    ("device", "used", "instance"),
    [
        ("NVIDIA H100 80GB HBM3", 1, "p5.4xlarge"),  # and not an eighth of a p5.48xlarge
        ("NVIDIA H100 80GB HBM3", 8, "p5.48xlarge"),
        ("NVIDIA L4", 1, "g6.xlarge"),
        ("NVIDIA GeForce RTX 3090", 1, "g5.xlarge"),  # no instance has one: the study's
    ],
)
def test_a_gpu_elsewhere_is_priced_as_the_cheapest_instance_with_such_a_gpu(
    cost, make_record, device, used, instance
):
    record = make_record(devices=(used, used))
    row = cost(record.model_copy(update={"host": record.host.model_copy(update={"device": device})}))
    assert (row["kind"], row["instance"]) == ("proxy", instance)
    assert row["note"] == f"run on {device}, priced as {instance}"


def test_the_cost_of_an_accelerator_is_said_to_be_of_its_batch(priced, make_record):
    assert OF_ITS_BATCH in " ".join(costs_and_notes(priced([make_record()], NEURON)).split())


def test_a_cell_on_an_instance_without_such_a_price_does_not_keep_the_others_from_theirs(cost, make_record):
    """SageMaker's instance has a price of another basis, trn2's of another region."""
    on_sagemaker = make_record(CELL.format("neuron", 0), instance="ml.trn1.32xlarge")
    on_trn2 = make_record(CELL.format("torchneuron", 0), instance="trn2.3xlarge")
    with pytest.raises(UserError, match=r"no price of trn2\.3xlarge \(us-east-1, on_demand\), which it ran"):
        cost(on_trn2)
    with pytest.raises(UserError, match=r"prices\.instances names no instance for platform 'neuron'"):
        cost(make_record(CELL.format("neuron", 0)), Pricing())
    named = Pricing(instances=NEURON.instances | {"torchneuron": "trn1.2xlarge"})
    for record, instance in ((on_sagemaker, "trn1.32xlarge"), (on_trn2, "trn1.2xlarge")):
        row = cost(record, named)
        assert (row["kind"], row["instance"]) == ("proxy", instance)
    row = cost(on_sagemaker, named.model_copy(update={"basis": "sagemaker"}))
    assert (row["kind"], row["instance"]) == ("measured", "ml.trn1.32xlarge")
    assert row["region"] == "us-east-1 (assumed)"


def test_what_only_google_sells_is_priced_in_its_region(cost, make_record):
    row = cost(make_record(CELL.format("xla_tpu", 0)), Pricing(instances={"xla_tpu": "ct5lp-hightpu-1t"}))
    assert (row["instance"], row["region"], row["kind"]) == ("ct5lp-hightpu-1t", "us-east1", "proxy")
    assert row["usd_total"] == pytest.approx(2.8 * 1.2)


def test_a_cost_at_a_date_and_at_an_undated_price(cost, make_record):
    record = make_record(instance="p4d.24xlarge")
    then, now = (cost(record, Pricing(as_of=date))["usd_total"] for date in ("2025-05-01", None))
    assert then / now == pytest.approx(32.7726 / 21.957642)
    assert cost(make_record(), Pricing(basis="spot"))["as_of"] == "undated"


@pytest.mark.parametrize(("target", "hours"), [(0.70, 0.3 + 1.25), (0.75, 0.3 + 2.5), (0.76, math.nan)])
def test_cost_to_reach_a_validation_score(cost, make_record, target, hours):
    assert cost(make_record(), target=target)["usd_to_auroc"] == pytest.approx(hours * 1.006, nan_ok=True)
    assert math.isnan(cost(make_record())["usd_to_auroc"])


def test_seeds_that_never_reach_the_target_are_charged_to_those_that_do(priced, make_record):
    records = [
        make_record(CELL.format("cuda", 0), aurocs=(0.70, 0.80)),
        make_record(CELL.format("cuda", 1), aurocs=(0.70, 0.71)),
        make_record(CELL.format("cuda", 2), status="crashed", aurocs=(0.80,)),
    ]
    spent = (0.3 + 2.5) + 2.8 + 2.8  # until it was reached, and two whole runs that bought nothing
    assert priced(records, NEURON, 0.75)["cost_to_auroc"].tolist() == pytest.approx([spent * 1.006] * 3)
    assert priced(records[1:], NEURON, 0.75)["cost_to_auroc"].isna().all()


def test_failed_attempts_are_charged_to_the_usable_models(priced, make_record):
    failed = "nih128-64px/convnext_tiny/cuda/seed0"
    records = [
        make_record(),
        make_record(CELL.format("cuda", 1), status="out_of_memory"),
        make_record(failed, status="compile_failed", timing=Timing(compile_seconds=3600), aurocs=()),
    ]
    table = priced(records, NEURON).set_index("cell")
    assert table.loc[CELL.format("cuda", 0), "cost_to_usable"] == pytest.approx(2 * 2.8 * 1.006)
    row = table.loc[failed]
    assert math.isnan(row["cost_to_usable"]) and row["usd_total"] == pytest.approx(1.006)
    assert math.isnan(row["usd_per_million_images"]), "no epoch began"
    assert "compile_failed: paid for, no usable model" in row["note"]


def test_the_order_of_records_does_not_matter(priced, make_record):
    records = [make_record(CELL.format("cuda", seed)) for seed in (2, 10, 1)]
    there, back = priced(records, NEURON), priced(records[::-1], NEURON)
    pd.testing.assert_frame_equal(there, back)
    assert there["seed"].tolist() == [1, 2, 10]


def test_a_cell_keeps_the_instance_that_it_ran_on(priced, make_record):
    """Measured on g5.2xlarge it stays measured there, also on a platform that the config does not name."""
    records = [
        make_record(instance="g5.2xlarge"),
        make_record(CELL.format("torchneuron", 0), instance="trn1.2xlarge"),
        make_record(CELL.format("neuron", 0)),
    ]
    columns = ["cell", "instance", "kind"]
    costs = priced(records, NEURON)[columns]
    assert costs["instance"].tolist() == ["g5.2xlarge", "trn1.2xlarge", "trn1.2xlarge"]
    assert costs["kind"].tolist() == ["measured", "proxy", "measured"]


def test_compilation_shared_by_runs(tmp_path, make_record):
    record = make_record().model_copy(update={"dataset": None})
    (tmp_path / RECORD).write_text(record.to_json())
    for runs, usd in ((1, 2.8 * 1.006), (4, (2.6 + 0.05) * 1.006)):
        table = cost_table([tmp_path], ROOT / "data/prices.csv", NEURON, runs=runs)
        assert table["usd_amortised"].iloc[0] == pytest.approx(usd)


@pytest.mark.fault("somebody else's process on the GPU", "the cell's speed and cost are marked busy")
def test_a_gpu_that_others_use_is_a_busy_machine(make_record) -> None:
    timing = Timing(others_share=0.01)
    alone, shared, unknown = (
        make_record(timing=timing).model_copy(update={"platform": {"other_processes": number}})
        for number in (0, 2, None)
    )
    assert [record.busy for record in (alone, shared, unknown)] == [False, True, False]
    assert mark("recorded", True, 0.01) == ["busy (others on the device)"]
    assert mark("recorded", True, 0.25) == ["busy (25 % used by others)"]
