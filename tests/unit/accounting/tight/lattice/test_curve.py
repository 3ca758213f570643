"""From the transform of a composition to delta at an epsilon and back, against a plain sum."""

import math
from dataclasses import replace

import numpy as np
import pytest

from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.compose import compose, tilted
from discreet.accounting.tight.lattice.curve import PrivacyCurve, Unknown, composed_curve
from discreet.accounting.tight.rounding import WIDE, FloatArray
from support.lattices import masses_of, measures_of

LENGTH = 6000


def _of(
    count: int, outward: int, *, extended: bool = False
) -> tuple[PrivacyCurve, FloatArray, FloatArray]:
    """A curve, and the losses and untilted masses that it stands for."""
    upper, _ = measures_of(directions(PoissonGaussian(0.2, 1.0))[0], 1.0, 0.05)
    part = tilted(((upper, count),), 1.0, outward=outward)
    composed = compose(part, LENGTH, extended=extended)
    first = int(part.lowest)
    loss: FloatArray = part.origin + part.spacing * np.arange(first, first + LENGTH, dtype=float)
    mass = masses_of(composed, first, LENGTH) * np.exp(part.log_total - part.theta * loss)
    last = first + LENGTH - 1
    return composed_curve(part, composed, (last, float(loss[0])), outward=outward), loss, mass


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("epsilon", [-0.1, 0.0, 0.123, 0.5, 1.7])
def test_the_value_is_the_plain_sum_rounded_outward(count: int, epsilon: float) -> None:
    for outward in (1, -1):
        found, loss, mass = _of(count, outward)
        exact = float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0.0)))
        assert found.delta(epsilon) == pytest.approx(exact, rel=1e-9)
        assert outward * (found.delta(epsilon) - exact) >= 0.0


@pytest.mark.parametrize("delta", [1e-8, 1e-3, 0.05])
@pytest.mark.parametrize("near", [-5.0, 0.5, 30.0])
def test_an_end_is_next_to_the_crossing_and_proven(delta: float, near: float) -> None:
    for outward in (1, -1):
        found, _, _ = _of(40, outward)
        epsilon = found.epsilon(delta, near)
        assert found.delta(epsilon) == pytest.approx(delta, rel=1e-7)
        assert outward * (found.delta(epsilon) - delta) <= 0.0


@pytest.mark.skipif(not WIDE, reason="long double is no wider than float64 here")
def test_long_double_gives_the_same_curve_with_less_rounding() -> None:
    usual, _, _ = _of(40, 1)
    wide, _, _ = _of(40, 1, extended=True)
    assert wide.delta(3.0) == pytest.approx(usual.delta(3.0), rel=1e-9)
    assert wide.rounding(3.0) < 0.01 * usual.rounding(3.0)


def test_a_curve_without_its_error_terms_would_be_no_bound() -> None:
    # So far out that delta is below the rounding of the sums: only the errors keep it a bound.
    found, loss, mass = _of(1, 1)
    bare = replace(found, errors=(0.0, 0.0))
    epsilon = float(loss[mass > 0.0][-1]) - 0.02
    far = [epsilon - 0.05 * k for k in range(400)]
    assert all(found.delta(at) > 0.0 for at in far)
    assert any(bare.delta(at) < found.delta(at) * 0.5 for at in far)


def test_a_constant_above_delta_allows_no_epsilon() -> None:
    found, _, _ = _of(1, 1)
    heavy = replace(found, constant=1e-3)
    assert heavy.epsilon(1e-4, 0.5) == math.inf
    assert heavy.epsilon(2e-3, 0.5) > found.epsilon(2e-3, 0.5)


def test_a_lower_curve_that_does_not_reach_delta_says_nothing() -> None:
    found, _, _ = _of(1, -1)
    assert replace(found, constant=-1.0).epsilon(1e-4, 0.5) == 0.0


def test_an_upper_curve_that_is_below_delta_everywhere_says_its_least_epsilon() -> None:
    found, _, _ = _of(1, 1)
    high = replace(found, least=0.5)
    assert high.epsilon(0.9, 1.0) == pytest.approx(0.5)


def test_a_curve_that_says_nothing_claims_nothing() -> None:
    assert Unknown(math.inf).epsilon(0.5, 1.0) == math.inf
    assert Unknown(0.0).delta(0.5) == 0.0
    assert Unknown(0.0).rounding(0.5) == 0.0
