"""Ghost norms: the cancellation that fools float32."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from discreet.errors import ParameterError
from discreet.numerics import ghost_squared_norms, outer_spread

F32 = NDArray[np.float32]


def cancelling(positions: int = 64) -> tuple[F32, F32]:
    """Large terms that cancel in pairs and leave little: sum_t a_t b_t^T is about 1000 times
    smaller than its terms.
    """
    generator = np.random.default_rng(5)
    a = np.repeat(generator.standard_normal((1, positions // 2, 16)), 2, axis=1) * 10
    b = np.repeat(generator.standard_normal((1, positions // 2, 16)), 2, axis=1) * 10
    b[:, 1::2] *= -1
    b += generator.standard_normal(b.shape) * 1e-3
    return a.astype(np.float32), b.astype(np.float32)


def truth(a: F32, b: F32) -> float:
    """In float64 of float32 numbers: relative error below 1e-9 here, which is checked by the
    tolerance of the tests.
    """
    return float(np.sum(np.square(a[0].astype(np.float64).T @ b[0].astype(np.float64))))


def test_p14_a_cancelling_ghost_norm_is_above_the_truth_where_plain_float32_is_not() -> None:
    a, b = cancelling()
    plain = np.sum((a @ a.swapaxes(1, 2)) * (b @ b.swapaxes(1, 2)))
    exact = truth(a, b)
    assert (
        abs(float(plain) - exact) > 0.05 * exact
    )  # what the other libraries compute is off by more than 5 %
    assert ghost_squared_norms(a, b)[0] >= exact
    below = 0
    for seed in range(40):
        sign = np.where(np.random.default_rng(seed).random((1, 64, 1)) < 0.5, -1.0, 1.0).astype(
            np.float32
        )
        a1, b1 = (a * sign)[:, ::-1] * np.float32(1 + seed / 97), b[:, ::-1] * sign
        below += float(np.sum((a1 @ a1.swapaxes(1, 2)) * (b1 @ b1.swapaxes(1, 2)))) < truth(a1, b1)
        assert ghost_squared_norms(a1, b1)[0] >= truth(a1, b1) * (1 - 1e-9)
    assert below > 5  # plain float32 would clip too little


def test_without_cancellation_it_is_nearly_exact() -> None:
    generator = np.random.default_rng(6)
    a, b = generator.random((3, 8, 20), np.float32), generator.random((3, 8, 30), np.float32)
    exact = np.array([truth(a[i : i + 1], b[i : i + 1]) for i in range(3)])
    assert np.all(ghost_squared_norms(a, b) >= exact)
    assert np.all(ghost_squared_norms(a, b) <= exact * 1.0001)


def test_p13_what_is_not_finite_or_overflows_is_never_small() -> None:
    a, b = cancelling(4)
    a[0, 0, 0] = np.nan
    assert ghost_squared_norms(a, b).tolist() == [math.inf]
    a[0, 0, 0] = np.inf
    assert ghost_squared_norms(a, np.zeros_like(b)).tolist() == [math.inf]
    large = np.full(
        (1, 2, 1), 1e25, np.float32
    )  # the Gram matrices overflow in float32, the spread does not
    small = np.array([[[1e-20], [-1e-20]]], np.float32)
    assert 0.0 < ghost_squared_norms(large, small)[0] < 1e13


def test_underflow_is_counted() -> None:
    a = np.full((1, 3, 5), 1e-30, np.float32)
    b = np.full((1, 3, 5), 1e10, np.float32)
    exact = (3 * Fraction(float(a[0, 0, 0])) * Fraction(float(b[0, 0, 0]))) ** 2 * 25
    assert Fraction(float(ghost_squared_norms(a, b)[0])) >= exact
    tiny = np.full((1, 2, 2), 1e-300)
    assert ghost_squared_norms(tiny, tiny)[0] > 0.0
    assert outer_spread(tiny, tiny)[0] > 0.0


def test_shapes_and_dtypes_are_checked() -> None:
    a = np.ones((1, 2, 3), np.float32)
    with pytest.raises(ParameterError, match=r"\(B, T, q\)"):
        ghost_squared_norms(a, np.ones((1, 3, 3), np.float32))
    with pytest.raises(ParameterError, match="float32"):
        ghost_squared_norms(a, np.ones((1, 2, 3)))
    with pytest.raises(ParameterError, match="half precision"):
        ghost_squared_norms(a.astype(np.float16), a.astype(np.float16))
