"""Numbers for people: bounds are rounded outward, whatever their size."""

import math
from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import discreet as dp
from discreet._digits import counted, downward, nearest, upward


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 17))
@example(5e-5, 4)
@example(0.1, 1)
@example(9.9999, 4)
@example(5e-324, 4)
def test_no_bound_is_rounded_to_its_flattering_side(number: float, digits: int) -> None:
    """As decimals, not as floats: reading the text must not round back what writing rounded."""
    exact = Decimal(number)
    low, high = Decimal(downward(number, digits)), Decimal(upward(number, digits))
    assert low <= exact <= high
    assert high - low <= abs(exact) * Decimal(10) ** (1 - digits)


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e12))
def test_a_larger_number_is_not_written_as_a_smaller_one(one: float, two: float) -> None:
    low, high = sorted((one, two))
    assert Decimal(upward(low)) <= Decimal(upward(high))
    assert Decimal(downward(low)) <= Decimal(downward(high))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2.99931, "3"),
        (1e-4, "0.0001001"),
        (5e-5, "5.001e-5"),
        (123456.7, "123500"),
        (1e9, "1e+9"),
        (0.0, "0"),
        (-2.99931, "-2.999"),
        (math.inf, "infinity"),
        (-math.inf, "-infinity"),
    ],
)
def test_small_and_large_numbers_have_an_exponent(number: float, text: str) -> None:
    assert upward(number) == text


def test_a_guarantee_a_report_and_a_command_write_the_same_number() -> None:
    guarantee = dp.Guarantee(
        lower=0.0,
        upper=5e-5,
        delta=1e-6,
        unit=dp.Unit.EXAMPLE,
        adjacency=dp.Adjacency.ADD_OR_REMOVE,
        accountant="tight",
        sampling=("Poisson",),
        numerics=dp.Numerics.EXACT,
        assumptions=(),
    )
    assert f"({upward(5e-5)}, 1e-06)" in str(guarantee)


def test_parameters_are_written_to_the_nearest() -> None:
    assert (nearest(1.1), nearest(60_000.0), nearest(1 / 3)) == ("1.1", "60000", "0.333333")


def test_counts_agree_with_their_nouns() -> None:
    assert [counted(number, "query") for number in (0, 1, 2)] == [
        "0 queries",
        "1 query",
        "2 queries",
    ]
    assert counted(1_000_000, "batch") == "1,000,000 batches"
