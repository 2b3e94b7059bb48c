"""What a cell cost: phases, cores, proxies, failures, and a new instance by one row of data."""

import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrbench.config import Pricing
from cxrbench.cost.cells import (
    COST_COLUMNS,
    amortised,
    amortised_compile,
    cost_table,
    hours_of,
)
from cxrbench.cost.prices import read_prices
from cxrbench.cost.regimes import Regime, regimes
from cxrbench.errors import UserError
from cxrbench.evidence import Timing


def cost_of_cell(record, prices, pricing, target_auroc=None):
    """The cost rows of one record."""
    return cost_table([record], prices, pricing, target_auroc).to_dict("records")


NEURON = Pricing(instances={"neuron": "trn1.2xlarge", "cuda": "g5.xlarge", "cpu": "c7a.large"})


def test_hours_times_price_by_phase(prices, make_record):
    (row,) = cost_of_cell(make_record(), prices, Pricing())
    assert [row[f"hours_{p}"] for p in ("setup", "compile", "train", "evaluate")] == [0.1, 0.2, 2.0, 0.5]
    assert row["usd_train"] == pytest.approx(2.0 * 1.006)
    assert row["usd_total"] == pytest.approx(2.8 * 1.006)
    assert row["usd_per_epoch"] == pytest.approx(2.5 * 1.006 / 2)
    assert row["usd_per_million_images"] == pytest.approx(2 * 1.006 / 14000 * 1e6)
    assert (row["region"], row["basis"], row["as_of"]) == ("us-east-1", "on_demand", "2026-07-20")
    assert row["source"] and list(row) == list(COST_COLUMNS)


def test_a_single_process_leaves_half_a_trn1_idle(prices, make_record):
    record = make_record("nih128-64px/resnet18/neuron/seed0", devices=(1, 2))
    (row,) = cost_of_cell(record, prices, NEURON)
    assert (row["cores_used"], row["cores_paid"]) == (1, 2)
    assert row["usd_used_cores"] == pytest.approx(row["usd_total"] / 2)


def test_cores_of_a_cpu_cell_are_vcpus(prices, make_record):
    record = make_record("nih128-64px/resnet18/cpu/seed0", cores=(1, 16))
    (row,) = cost_of_cell(record, prices, Pricing())
    assert (row["instance"], row["cores_used"], row["cores_paid"]) == ("c7a.large", 1, 2)
    assert "EPYC" in row["note"]


def test_measured_on_its_own_instance_else_a_proxy(prices, make_record):
    kinds = {
        instance: cost_of_cell(make_record(instance=instance), prices, Pricing())[0]
        for instance in ("g5.2xlarge", None, "x9.huge")
    }
    assert (kinds["g5.2xlarge"]["kind"], kinds["g5.2xlarge"]["instance"]) == ("measured", "g5.2xlarge")
    assert kinds["g5.2xlarge"]["note"] == ""
    for unknown in (None, "x9.huge"):
        assert (kinds[unknown]["kind"], kinds[unknown]["instance"]) == ("proxy", "g5.xlarge")
        assert kinds[unknown]["note"] == "run on NVIDIA A10G, priced as g5.xlarge"


def test_a_platform_without_an_instance_says_what_to_add(prices, make_record):
    with pytest.raises(UserError, match=r"prices\.instances names no instance for platform 'neuron'"):
        cost_of_cell(make_record("nih128-64px/resnet18/neuron/seed0"), prices, Pricing())


def test_a_cell_on_an_instance_without_such_a_price_does_not_keep_the_others_from_theirs(prices, make_record):
    """SageMaker's instance has a price of another basis, trn2's of another region."""
    cell = "nih128-64px/resnet18/{}/seed0"
    on_sagemaker = make_record(cell.format("neuron"), instance="ml.trn1.32xlarge")
    on_trn2 = make_record(cell.format("torchneuron"), instance="trn2.3xlarge")
    (row,) = cost_of_cell(on_sagemaker, prices, NEURON)
    assert (row["kind"], row["instance"]) == ("proxy", "trn1.32xlarge")
    with pytest.raises(
        UserError, match=r"no price of trn2\.3xlarge \(us-east-1, on_demand\), which it ran on"
    ):
        cost_of_cell(on_trn2, prices, NEURON)
    named = Pricing(instances=NEURON.instances | {"torchneuron": "trn1.2xlarge"})
    (row,) = cost_of_cell(on_trn2, prices, named)
    assert (row["kind"], row["instance"]) == ("proxy", "trn1.2xlarge")
    hours = pd.DataFrame([hours_of(record) for record in (on_sagemaker, on_trn2)])
    table = regimes(hours, prices, named.instances, [Regime("on_demand"), Regime("sagemaker")])
    found = list(table[["regime", "instance", "kind"]].itertuples(index=False, name=None))
    assert found == [
        ("on_demand", "trn1.32xlarge", "proxy"),
        ("on_demand", "trn1.2xlarge", "proxy"),
        ("sagemaker", "ml.trn1.32xlarge", "measured"),
    ]


def test_an_undated_price_is_called_undated(prices, make_record):
    (row,) = cost_of_cell(make_record(), prices, Pricing(basis="spot"))
    assert row["as_of"] == "undated"


def test_a_cost_as_of_a_date(prices, make_record):
    record = make_record(instance="p4d.24xlarge")
    then, now = (cost_of_cell(record, prices, Pricing(as_of=d))[0]["usd_total"] for d in ("2025-05-01", None))
    assert then / now == pytest.approx(32.7726 / 21.957642)


def test_cost_to_reach_a_validation_score(prices, make_record):
    def reach(target):
        return cost_of_cell(make_record(), prices, Pricing(), target)[0]["usd_to_auroc"]

    assert reach(0.70) == pytest.approx((0.3 + 1.25) * 1.006)
    assert reach(0.75) == pytest.approx((0.3 + 2.5) * 1.006)
    assert math.isnan(reach(0.76)) and math.isnan(reach(None))


def test_seeds_that_never_reach_the_target_are_charged_to_those_that_do(prices, make_record):
    records = [
        make_record("nih128-64px/resnet18/cuda/seed0", aurocs=(0.70, 0.80)),
        make_record("nih128-64px/resnet18/cuda/seed1", aurocs=(0.70, 0.71)),
        make_record("nih128-64px/resnet18/cuda/seed2", status="crashed", aurocs=(0.80,)),
    ]
    table = cost_table(records, prices, Pricing(), 0.75)
    spent = (0.3 + 2.5) + 2.8 + 2.8  # until it was reached, and two whole runs that bought nothing
    assert table["cost_to_auroc"].tolist() == pytest.approx([spent * 1.006] * 3)
    assert cost_table(records[1:], prices, Pricing(), 0.75)["cost_to_auroc"].isna().all()


def test_failed_attempts_are_charged_to_the_usable_models(prices, make_record):
    records = [
        make_record(),
        make_record("nih128-64px/resnet18/cuda/seed1", status="out_of_memory"),
        make_record("nih128-64px/convnext_tiny/cuda/seed0", status="compile_failed"),
    ]
    table = cost_table(records, prices, Pricing()).set_index("cell")
    both = table.loc["nih128-64px/resnet18/cuda/seed0", "cost_to_usable"]
    assert both == pytest.approx(2 * 2.8 * 1.006)
    failed = table.loc["nih128-64px/convnext_tiny/cuda/seed0"]
    assert math.isnan(failed["cost_to_usable"]) and failed["usd_total"] > 0
    assert "compile_failed: paid for, no usable model" in failed["note"]


def test_a_run_that_never_began_an_epoch_has_no_cost_per_epoch(prices, make_record):
    record = make_record(status="compile_failed", timing=Timing(compile_seconds=3600), aurocs=())
    (row,) = cost_of_cell(record, prices, Pricing())
    assert row["usd_total"] == pytest.approx(1.006)
    assert math.isnan(row["usd_per_epoch"]) and math.isnan(row["usd_per_million_images"])


def test_no_cells_no_rows(prices):
    table = cost_table([], prices, Pricing())
    assert list(table.columns) == list(COST_COLUMNS) and table.empty


def test_the_order_of_records_does_not_matter(prices, make_record):
    records = [make_record(f"nih128-64px/resnet18/cuda/seed{seed}") for seed in (2, 10, 1)]
    there, back = cost_table(records, prices, Pricing()), cost_table(records[::-1], prices, Pricing())
    pd.testing.assert_frame_equal(there, back)
    assert there["seed"].tolist() == [1, 2, 10]


def test_a_new_instance_is_one_row_of_data(tmp_path, shipped, make_record):
    path = tmp_path / "prices.csv"
    row = "g7.xlarge,us-east-1,on_demand,0.5,B40,1,48,1,4,32,a test,2026-11-01,\n"
    path.write_text(shipped.read_text() + row)
    table = read_prices(path)
    (own,) = cost_of_cell(make_record(instance="g7.xlarge"), table, Pricing())
    assert own["kind"] == "measured" and own["usd_total"] == pytest.approx(2.8 * 0.5)
    as_declared = cost_of_cell(make_record(), table, Pricing(instances={"cuda": "g7.xlarge"}))
    assert as_declared[0]["usd_total"] == pytest.approx(2.8 * 0.5) and as_declared[0]["kind"] == "proxy"


def test_a_gpu_run_occupies_no_vcpu_that_can_be_counted(prices, make_record):
    (row,) = cost_of_cell(make_record(), prices, Pricing(instances={"cuda": "c7a.large"}))
    assert row["usd_total"] == pytest.approx(2.8 * 0.10264)
    assert math.isnan(row["cores_used"]) and math.isnan(row["usd_used_cores"])


def test_a_cell_is_the_same_instance_in_the_cost_table_and_in_every_regime(prices, make_record):
    """Measured on g5.2xlarge it stays measured there, also on a platform that the config does not name."""
    records = [
        make_record(instance="g5.2xlarge"),
        make_record("nih128-64px/resnet18/torchneuron/seed0", instance="trn1.2xlarge"),
        make_record("nih128-64px/resnet18/neuron/seed0"),
    ]
    costs = cost_table(records, prices, NEURON)
    hours = pd.DataFrame([hours_of(record) for record in records])
    table = regimes(hours, prices, NEURON.instances, [Regime("on_demand"), Regime("spot")])
    for regime, some in table.groupby("regime"):
        found = some.set_index("cell")[["instance", "kind"]]
        pd.testing.assert_frame_equal(found, costs.set_index("cell").loc[found.index, ["instance", "kind"]])
        assert len(found) == 3, regime
    assert costs["instance"].tolist() == ["g5.2xlarge", "trn1.2xlarge", "trn1.2xlarge"]
    assert costs["kind"].tolist() == ["measured", "proxy", "measured"]


hours = st.floats(0, 1e5, allow_subnormal=False)


@settings(deadline=None)
@given(hours, hours, st.integers(1, 10_000))
def test_amortising_approaches_the_cost_of_a_run(once, each, runs):
    shared = amortised(once, each, runs)
    assert each <= shared <= each + once
    assert shared * runs == pytest.approx(once + each * runs)


def test_compilation_shared_by_runs(prices, make_record):
    table = cost_table([make_record()], prices, Pricing())
    assert amortised_compile(table, 1).iloc[0] == pytest.approx(2.8 * 1.006)
    assert amortised_compile(table, 4).iloc[0] == pytest.approx((2.6 + 0.05) * 1.006)
    with pytest.raises(UserError, match="one run or more"):
        amortised(1, 1, 0)
