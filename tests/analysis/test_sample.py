from __future__ import annotations

import numpy as np
import pytest

from cxrbench.analysis.sample import sample_of
from cxrbench.study.errors import UserError


def test_rows_are_sorted_and_patients_numbered(predictions):
    mixed = predictions.sample(frac=1, random_state=3)
    first, second = sample_of(predictions, "test"), sample_of(mixed, "test")
    np.testing.assert_array_equal(first.images, second.images)
    np.testing.assert_array_equal(first.scores, second.scores)
    np.testing.assert_array_equal(first.clusters, second.clusters)
    assert first.n_clusters == 600 and first.clusters.max() == 599


def test_without_patients_each_image_is_a_cluster(predictions):
    sample = sample_of(predictions.drop(columns="patient"), "test")
    assert not sample.by_patient and sample.n_clusters == sample.n_images


def test_absent_split_names_those_there_are(predictions):
    with pytest.raises(UserError, match="no 'train' rows, only: test, val"):
        sample_of(predictions, "train")


def test_take_renumbers_patients(predictions):
    sample = sample_of(predictions, "test")
    rows = sample.labels[:, 0]
    part = sample.take(rows)
    assert part.n_images == rows.sum()
    assert part.n_clusters == len(np.unique(sample.clusters[rows])) == part.clusters.max() + 1
