from benchmarks.statistics import DRAWS, bench_compare, bench_metrics


def test_bench_measures_what_it_names():
    figures = bench_metrics(images=300, patients=60, replicates=20)
    assert (figures["images"], figures["patients"], figures["replicates"]) == (300, 60, 20)
    assert figures["ratio"] == figures["sklearn_seconds"] / figures["evaluate_seconds"]
    assert all(figures[name] > 0 for name in ("delong_seconds", "peak_mib"))


def test_a_comparison_is_timed_beside_what_others_do_for_a_pair_of_runs() -> None:
    row = bench_compare(images=300, patients=60)
    assert (row["images"], row["findings"], row["replicates"]) == (300, 14, DRAWS)
    by_run = row["compare_seconds"] / row["runs"]
    assert row["ratio_to_sklearn_bootstrap"] == row["sklearn_bootstrap_seconds"] / by_run > 0
    assert (row["ratio_to_mlstatkit"] is None) == (row["mlstatkit_seconds"] is None)
