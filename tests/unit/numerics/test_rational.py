"""Bounds as fractions: rounded in the safe direction, once."""

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.numerics._rational import UNIT, binary, gamma, root_up, tiny, up

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
@pytest.mark.parametrize("roundings", [0, 1, 2, 7, 1_000])
def test_gamma_covers_roundings_up_and_down(dtype: np.dtype[np.floating], roundings: int) -> None:
    """n*u alone, the first order, does not cover (1 + u)^n."""
    unit = UNIT[dtype]
    assert gamma(roundings, dtype) >= (1 + unit) ** roundings - 1
    assert gamma(roundings, dtype) >= 1 - (1 - unit) ** roundings
    assert gamma(roundings, dtype) >= 1 / (1 - unit) ** roundings - 1


@pytest.mark.parametrize(("dtype", "roundings"), [(SINGLE, 2**23), (DOUBLE, 2**52)])
def test_gamma_is_refused_where_it_bounds_nothing(
    dtype: np.dtype[np.floating], roundings: int
) -> None:
    assert gamma(roundings - 1, dtype) < 1
    with pytest.raises(ParameterError, match="smaller blocks"):
        gamma(roundings, dtype)


@pytest.mark.parametrize(
    "value", [Fraction(1, 10), Fraction(-1, 10), Fraction(1, 3), Fraction(10**300, 7)]
)
def test_up_is_the_next_number_and_not_the_nearest(value: Fraction) -> None:
    assert Fraction(up(value)) >= value
    assert Fraction(math.nextafter(up(value), -math.inf)) < value


def test_up_at_the_ends_of_the_range() -> None:
    assert up(Fraction(0)) == 0.0
    assert up(Fraction(1, 10**400)) == 5e-324  # rounded to nearest it would vanish
    assert (up(Fraction(10**400)), up(Fraction(-(10**400)))) == (math.inf, -math.inf)


@pytest.mark.parametrize("value", [0, 1, 2, 3, 4, 10**6, 2**200 + 1])
def test_a_root_is_rounded_up_by_little(value: int) -> None:
    root = root_up(value)
    assert root * root >= value
    assert max(root - Fraction(1, 2**32), Fraction(0)) ** 2 <= value


def test_underflow_loses_at_most_the_smallest_normal_number() -> None:
    """The smallest subnormal number would not cover processors that flush to zero."""
    assert float(tiny(SINGLE)) == float(np.finfo(np.float32).tiny)
    assert float(tiny(DOUBLE)) == float(np.finfo(np.float64).tiny)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32", "longdouble"])
def test_other_formats_are_refused_with_the_reason(dtype: str) -> None:
    with pytest.raises(ParameterError, match="half precision"):
        binary("a sum", dtype)
