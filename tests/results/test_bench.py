from benchmarks.statistics import bench_metrics


def test_bench_measures_what_it_names():
    figures = bench_metrics(images=300, patients=60, replicates=20)
    assert (figures["images"], figures["patients"], figures["replicates"]) == (300, 60, 20)
    assert figures["ratio"] == figures["sklearn_seconds"] / figures["evaluate_seconds"]
    assert all(figures[name] > 0 for name in ("delong_seconds", "peak_mib"))
