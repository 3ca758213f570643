"""Certified norms against exact rational arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.numerics import l2_norms, norm_error, squared_norms
from discreet.numerics.norms import Records


def truth(row: Records) -> Fraction:
    return sum((Fraction(float(x)) ** 2 for x in row.ravel()), Fraction(0))


def awkward(dtype: type[np.floating]) -> list[Records]:
    """Rows whose sums round the wrong way: one large entry before many small ones, denormals, both
    ends of the range.
    """
    info = np.finfo(dtype)
    generator = np.random.default_rng(1)
    small = np.full((1, 3001), float(info.eps) * 0.7, dtype)
    small[0, 0] = 1.0
    rows = [
        small,
        small[:, ::-1],
        generator.standard_normal((1, 501)).astype(dtype),
        np.full((1, 7), info.smallest_subnormal, dtype),
        np.full((1, 3), info.tiny, dtype),
        np.array([[info.smallest_subnormal, info.tiny, 1.0]], dtype),
        np.array([[info.max]], dtype),
        np.array([[info.max, info.smallest_subnormal, -1.0]], dtype),
        np.zeros((1, 5), dtype),
    ]
    return [np.ascontiguousarray(row) for row in rows]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_bound_is_at_or_above_the_truth_and_near_it(dtype: type[np.floating]) -> None:
    for row in awkward(dtype):
        exact = truth(row)
        high = l2_norms(row)[0]
        square = squared_norms(row)[0]
        assert high == math.inf or Fraction(float(high)) ** 2 >= exact
        assert square == math.inf or Fraction(float(square)) >= exact
        assert (high == 0.0) == (exact == 0)
        assert (square == 0.0) == (exact == 0)
        if 1e-300 < exact < 1e300:
            assert Fraction(float(high)) ** 2 <= exact * (1 + Fraction(1, 10**12))
            assert Fraction(float(square)) <= exact * (1 + Fraction(1, 10**12))


def test_a_plain_float_norm_is_below_the_truth_on_the_same_row() -> None:
    row = awkward(np.float32)[0]
    plain = np.float32(0.0)
    for x in row[0]:
        plain += x * x
    assert Fraction(float(plain)) < truth(row) <= Fraction(float(squared_norms(row)[0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_p13_a_record_that_is_not_finite_has_an_infinite_norm(
    bad: float, dtype: type[np.floating]
) -> None:
    rows = np.ones((3, 4), dtype)
    rows[1, 2] = bad
    assert np.isinf(l2_norms(rows)).tolist() == [False, True, False]
    assert np.isinf(squared_norms(rows)).tolist() == [False, True, False]


def test_the_whole_range_of_float64_has_a_norm() -> None:
    rows = np.array([[1e200, 1e200], [1e-200, 1e-200], [5e-324, 0.0]])
    assert np.allclose(
        l2_norms(rows),
        [math.sqrt(2) * 1e200, math.sqrt(2) * 1e-200, 5e-324],
        rtol=1e-9,
        atol=1e-323,
    )
    assert l2_norms(rows)[2] > 0.0


def test_nothing_has_norm_zero() -> None:
    assert l2_norms(np.zeros((3, 0), np.float32)).tolist() == [0.0, 0.0, 0.0]
    assert l2_norms(np.zeros((0, 3), np.float32)).tolist() == []
    assert l2_norms(np.zeros((2, 3, 4))).tolist() == [0.0, 0.0]


def test_p15_every_bit_of_a_norm_is_the_records_own() -> None:
    """Neither the place in the batch, nor its size, nor the memory layout changes a norm."""
    generator = np.random.default_rng(2)
    for columns in (3, 1000, 2**14 + 5):
        rows = generator.standard_normal((40, columns)).astype(np.float32)
        alone = np.concatenate([l2_norms(row[np.newaxis]) for row in rows])
        assert np.array_equal(l2_norms(rows), alone)
        assert np.array_equal(l2_norms(rows[7:]), alone[7:])
        assert np.array_equal(l2_norms(np.asfortranarray(rows)), alone)
        assert np.array_equal(l2_norms(rows[::-1]), alone[::-1])


@pytest.mark.parametrize(
    "bad", [np.ones((2, 2), np.int64), np.ones((2, 2), complex), [[1.0]], np.float64(1.0)]
)
def test_what_is_no_array_of_floats_is_refused(bad: Records) -> None:
    with pytest.raises(ParameterError, match="float16, float32 or float64"):
        l2_norms(bad)


@pytest.mark.parametrize("block", [1, 32, 1024])
def test_the_stated_error_covers_float32_sums_in_the_worst_order(block: int) -> None:
    for row in awkward(np.float32):
        row[np.abs(row) > 1e18] = 1.0
        total = 0.0
        for start in range(0, row.shape[1], block):
            part = np.float32(0.0)
            for x in row[0, start : start + block]:
                part += x * x
            total += float(part)
        error = norm_error(np.float32, row.shape[1], block)
        assert Fraction(float(error.bound(np.array([total]))[0])) >= truth(row)
    assert (
        norm_error(np.float32, 3001, 1).factor < norm_error(np.float32, 3001, 1024).factor < 1.0001
    )
    assert (
        norm_error(np.float32, 3001, 32).bound(np.array([np.nan, np.inf, -1.0])).tolist()
        == [math.inf] * 3
    )


def test_p14_half_precision_is_refused_with_the_reason() -> None:
    for dtype in (np.float16, "bfloat16"):
        with pytest.raises(ParameterError, match="half precision"):
            norm_error(dtype, 10, 10)
    with pytest.raises(ParameterError, match="few enough roundings"):
        norm_error(np.float32, 2**25, 2**24)


def test_a_mask_hides_nothing_from_the_norm() -> None:
    rows = np.ma.masked_greater(np.array([[3.0, 4.0]]), 3.5)
    assert l2_norms(rows)[0] >= 5.0
