"""Sums over the other folds are those of the other folds, however many there are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from workflow.ops._folds import of_other_folds


@pytest.mark.parametrize(("rows", "folds"), [(1, 1), (4, 1), (3, 2), (5, 3), (2, 1000)])
def test_a_cell_is_the_sum_of_the_other_folds(rows: int, folds: int):
    rng = np.random.default_rng(folds)
    cells = np.exp(rng.normal(0, 10, (rows, folds)))  # of very different sizes
    row, fold = np.indices(cells.shape).reshape(2, -1)
    order = rng.permutation(cells.size)
    made = of_other_folds(cells.reshape(-1)[order], row[order], fold[order], cells.shape)
    for own in range(folds):
        wanted = [math.fsum([*each[:own], *each[own + 1 :]]) for each in cells.tolist()]
        assert_allclose(made[:, own], wanted, rtol=1e-12)


def test_a_fold_without_the_category_adds_nothing():
    made = of_other_folds(np.array([5.0]), np.array([1]), np.array([2]), (2, 3))
    assert made.tolist() == [[0, 0, 0], [5, 5, 0]]
