"""Rows that keep to themselves: what becomes of one does not depend on the others."""

from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet.features import rowwise, unit_ball


def orthonormal(dimension: int, columns: int) -> Any:
    return np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, columns)))[0]


def test_norms_are_at_most_one_and_directions_stay() -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 6)) * np.logspace(-3, 3, 50)[:, np.newaxis]
    found = unit_ball(vectors)
    norms, before = np.linalg.norm(found, axis=1), np.linalg.norm(vectors, axis=1)
    assert np.allclose(norms, np.minimum(before, 1.0))
    assert norms.max() <= 1.0
    assert np.allclose(found * before[:, np.newaxis], vectors * norms[:, np.newaxis])


def test_the_radius_becomes_one() -> None:
    found = unit_ball(np.array([[3.0, 0.0], [30.0, 0.0]]), radius=6.0)
    assert np.allclose(found, [[0.5, 0.0], [1.0, 0.0]])


def test_without_a_radius_all_rows_have_norm_one() -> None:
    found = unit_ball(np.array([[1e-3, 0.0], [5.0, 0.0], [0.0, 0.0]], np.float32), radius=0)
    assert found.dtype == np.float32
    assert np.allclose(found, [[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]])


def test_rows_that_are_not_finite_stay_so_and_touch_nobody() -> None:
    found = unit_ball(np.array([[np.nan, 1.0], [np.inf, 1.0], [0.6, 0.8]]))
    assert np.isnan(found[:2]).any(axis=1).all()
    assert np.allclose(found[2], [0.6, 0.8])


@pytest.mark.parametrize("radius", [-1.0, np.nan, np.inf, "1"])
def test_another_radius_is_refused(radius: Any) -> None:
    with pytest.raises(dp.errors.ParameterError):
        unit_ball(np.ones((2, 2)), radius=radius)


@pytest.mark.parametrize(
    "vectors", [np.ones(3), np.array(["a"]), np.ones((3, 0)), 4.0, np.ones((2, 2)) * 1j]
)
def test_what_is_not_rows_of_numbers_is_refused(vectors: Any) -> None:
    with pytest.raises(dp.errors.ParameterError):
        unit_ball(vectors)


def test_rows_of_any_shape_become_flat() -> None:
    assert unit_ball(np.ones((4, 3, 2, 2), np.float16)).shape == (4, 12)


def test_the_product_is_near_the_true_one() -> None:
    vectors = (
        np.random.default_rng(1).normal(size=(20, 300)).astype(np.float32)
        * np.logspace(-20, 20, 20)[:, np.newaxis]
    )
    matrix = orthonormal(300, 7)
    error = np.abs(rowwise.own_product(vectors, matrix) - vectors @ matrix).max(axis=1)
    assert np.all(error <= 2.0**-24 * 300**0.5 * np.linalg.norm(vectors, axis=1))


def test_p15_the_product_of_a_row_does_not_depend_on_the_others() -> None:
    vectors = np.random.default_rng(1).normal(size=(67, 301))
    matrix = orthonormal(301, 9)
    together = rowwise.own_product(vectors, matrix)
    for start in (1, 2, 5, 66):
        assert np.array_equal(rowwise.own_product(vectors[start:], matrix), together[start:])


@pytest.mark.parametrize("row", [[np.nan, 0.0], [np.inf, 1.0], [1.7e308, 1.7e308]])
def test_a_row_without_a_norm_has_no_product(row: Any) -> None:
    found = rowwise.own_product(np.array([row, [0.5, 0.25]]), np.eye(2))
    assert np.isnan(found[0]).all()
    assert np.array_equal(found[1], [0.5, 0.25])


@pytest.mark.parametrize("scale", [0.0, 5e-324, 1e-300, 1e300])
def test_products_of_extreme_rows(scale: float) -> None:
    found = rowwise.own_product(np.array([[3.0 * scale, 4.0 * scale]]), np.eye(2))
    assert np.allclose(found, [[3.0 * scale, 4.0 * scale]], rtol=1e-6, atol=1e-270)


@pytest.mark.parametrize("matrix", [2.0 * np.eye(2), np.full((2, 2), np.nan)])
def test_long_columns_are_refused(matrix: Any) -> None:
    with pytest.raises(dp.errors.NumericsError):
        rowwise.own_product(np.ones((1, 2)), matrix)
