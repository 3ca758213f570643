"""The two functions that vanish to second order, against their series."""

import math

import numpy as np
import pytest

from discreet.accounting.rdp._excess import RELATIVE_ERROR, exp_excess, log_deficit


@pytest.mark.parametrize(
    "v", [1e-300, 1e-12, 1e-3, 0.49999, 0.50001, 5.0, -1e-12, -0.3, -0.7, -40.0]
)
def test_excess_and_deficit_do_not_cancel(v: float) -> None:
    series = (
        sum(v**k / math.factorial(k) for k in range(2, 40)) if abs(v) < 3 else math.expm1(v) - v
    )
    assert math.isclose(float(exp_excess(np.array([v]))[0]), series, rel_tol=1e-13)
    if abs(v) < 0.5:
        series = sum((-1) ** k * v**k / k for k in range(2, 120))
        assert math.isclose(float(log_deficit(np.array([v]))[0]), series, rel_tol=1e-13)


def test_the_two_branches_meet_within_the_proven_error() -> None:
    # A series cut too early, or a difference used too near to 0, shows at the seam.
    edge = np.nextafter(0.5, [0.0, 1.0])
    below, above = exp_excess(edge)
    assert abs(above - below) <= 2.0 * RELATIVE_ERROR * above
    edge = np.nextafter(0.25, [0.0, 1.0])
    below, above = log_deficit(edge)
    assert abs(above - below) <= 2.0 * RELATIVE_ERROR * above
