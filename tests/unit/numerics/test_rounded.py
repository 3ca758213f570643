"""What is refused, published figures, and the limits of samples."""

import math
from fractions import Fraction

import numpy as np
import pytest

from discreet.errors import NumericsError, ParameterError
from discreet.numerics import (
    FloatSum,
    Grid,
    float_sum_sensitivity,
    overflow_probability,
)


def inflation(records: int, microbatch: int, *, changed: int | None = None) -> float:
    how = FloatSum(
        records=records,
        microbatch=microbatch,
        dtype=np.float32,
        dimension=10**6,
        changed_microbatches=changed,
    )
    return float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(2.0**-26)) - 1.0


def test_p14_half_precision_is_refused_with_the_reason() -> None:
    for dtype in (np.float16, "bfloat16"):
        with pytest.raises(ParameterError, match="half precision"):
            FloatSum(records=10, microbatch=1, dtype=dtype, dimension=1)


def test_inflation_by_batch_size() -> None:
    """Microbatches of 32: 0.4 % at 1024 records, 1.7 % at 4096; at any size 0.01 % in fixed places,
    0.03 % in random order.
    """
    assert inflation(1024, 32) == pytest.approx(0.0042, abs=2e-4)
    assert inflation(4096, 32) == pytest.approx(0.0167, abs=3e-4)
    assert inflation(100_000, 32, changed=1) < 0.00015
    assert inflation(100_000, 32, changed=2) < 0.0003
    assert inflation(1024, 1024) > 0.1


@pytest.mark.parametrize(
    "bad",
    [
        {"records": 0},
        {"microbatch": 0},
        {"microbatch": 11},
        {"terms": 0},
        {"spread": 0.5},
        {"spread": math.inf},
        {"drift": -0.1},
        {"drift": math.nan},
        {"pieces": 0},
        {"changed_microbatches": 0},
        {"changed_microbatches": True},
    ],
)
def test_parameters_outside_their_range_are_refused(bad: dict[str, float]) -> None:
    good = {"records": 10, "microbatch": 5, "dtype": np.float32, "dimension": 3}
    with pytest.raises(ParameterError, match=next(iter(bad))):
        FloatSum(**(good | bad))  # type: ignore[arg-type]


def test_what_would_overflow_is_refused() -> None:
    how = FloatSum(records=10, microbatch=10, dtype=np.float32, dimension=3)
    with pytest.raises(NumericsError, match="fits into float32"):
        float_sum_sensitivity(how, clip_norm=1e38, grid=Grid(1.0))
    with pytest.raises(ParameterError, match="norm_error"):
        float_sum_sensitivity(how, clip_norm=1.0, grid=Grid(1.0), norm_error=-1e-9)
    with pytest.raises(ParameterError, match="few enough roundings"):
        float_sum_sensitivity(
            FloatSum(records=2**24, microbatch=2**24, dtype="f4", dimension=1),
            clip_norm=1.0,
            grid=Grid(1.0),
        )


def test_drift_and_tiny_clip_norms_are_paid_for() -> None:
    """A contribution that moves by 1e-6 with the batch costs 1e-6 per record; underflow is counted
    where it matters.
    """
    grid = Grid(2.0**-200)
    still = FloatSum(records=1000, microbatch=1, dtype=np.float32, dimension=1)
    drifting = FloatSum(records=1000, microbatch=1, dtype=np.float32, dimension=1, drift=1e-6)
    low, high = (float_sum_sensitivity(how, clip_norm=1.0, grid=grid) for how in (still, drifting))
    assert high - low == pytest.approx(1e-3, rel=1e-6)
    assert float_sum_sensitivity(still, clip_norm=2.0**-126, grid=grid) > 1000 * 2.0**-126


@pytest.mark.parametrize(("n", "q"), [(1, 0.5), (10, 0.3), (40, 0.9), (25, 0.0), (25, 1.0)])
def test_overflow_is_never_below_the_exact_tail(n: int, q: float) -> None:
    for k in range(1, n + 2):
        chance = Fraction(q)
        tail = sum(
            (math.comb(n, j) * chance**j * (1 - chance) ** (n - j) for j in range(k, n + 1)),
            Fraction(0),
        )
        assert Fraction(overflow_probability(k, records=n, probability=q)) >= tail


@pytest.mark.parametrize("changed", [None, 1, 2])
def test_the_number_is_the_formula_of_the_proof_rounded_up(changed: int | None) -> None:
    """Written down a second time: both neighbours (2L - 1, or 2mk - 1), gamma, spread, drift,
    underflow, the grid.
    """
    records, m, t, pieces, kappa, rho, d = 100, 8, 4, 3, 3, Fraction(1, 2**20), 9
    u, u64, c = Fraction(1, 2**24), Fraction(1, 2**53), Fraction(3, 2) * (1 + Fraction(1, 2**10))
    within = (m * t + 2) * u / (1 - (m * t + 2) * u)
    across = pieces * records * u64 / (1 - pieces * records * u64) * (1 + within)
    both = {None: 2 * records - 1, 1: 2 * m - 1, 2: 4 * m - 1}[changed]
    rounding = (within * both + across * (2 * records - 1)) * kappa * c
    exact = (
        c
        + rounding
        + records * rho * c
        + 12 * records * t * pieces * Fraction(1, 2**126) * 3
        + Fraction(1, 2**10) * 3
    )
    how = FloatSum(
        records=records,
        microbatch=m,
        dtype="f4",
        dimension=d,
        terms=t,
        pieces=pieces,
        spread=kappa,
        drift=2.0**-20,
        changed_microbatches=changed,
    )
    stated = float_sum_sensitivity(how, clip_norm=1.5, grid=Grid(2.0**-10), norm_error=2.0**-10)
    assert Fraction(math.nextafter(stated, 0.0)) < exact <= Fraction(stated)


def test_no_more_records_differ_than_there_are() -> None:
    assert inflation(10, 10, changed=2) == inflation(10, 10)
    assert inflation(10, 4, changed=2) < inflation(10, 4)


def test_parts_of_a_group_are_added_at_right_angles() -> None:
    """Two parts with other microbatches: 3 % and 4 % make 5 %. The worst alone, 4 %, is too little
    (see test_sums).
    """
    grid = Grid(2.0**-60)
    parts = [
        FloatSum(records=10, microbatch=1, dtype="f4", dimension=8, drift=drift)
        for drift in (0.003, 0.004)
    ]
    alone = [
        float_sum_sensitivity(part, clip_norm=1.0, grid=grid, norm_error=0.0) - 1.0
        for part in parts
    ]
    both = float_sum_sensitivity(*parts, clip_norm=1.0, grid=grid, norm_error=0.0) - 1.0
    assert both == pytest.approx(0.05, abs=1e-5)
    assert both >= math.hypot(*alone) * (1 - 1e-9)


def test_parts_of_a_group_are_parts_of_one_sample() -> None:
    how, other = (
        FloatSum(records=records, microbatch=1, dtype="f4", dimension=8) for records in (10, 11)
    )
    with pytest.raises(ParameterError, match="same sample"):
        float_sum_sensitivity(how, other, clip_norm=1.0, grid=Grid(1.0))


def test_the_grid_counts_all_parts_once() -> None:
    """4 and 12 coordinates on a spacing of 1 move the sum by 4."""
    parts = [FloatSum(records=1, microbatch=1, dtype="f8", dimension=d) for d in (4, 12)]
    assert float_sum_sensitivity(
        *parts, clip_norm=1.0, grid=Grid(1.0), norm_error=0.0
    ) == pytest.approx(5.0)
