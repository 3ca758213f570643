"""From masses on a lattice to delta at an epsilon and back, against a plain sum."""

import math

import numpy as np
import pytest

from discreet.accounting.costs import PoissonGaussian
from discreet.accounting.tight.analyses.registry import directions
from discreet.accounting.tight.lattice.compose import Tilted, tilted
from discreet.accounting.tight.lattice.curve import PrivacyCurve, composed_curve, unknown
from discreet.accounting.tight.rounding import FloatArray
from support.lattices import measures_of


def _of_one_step(outward: int) -> tuple[PrivacyCurve, FloatArray, FloatArray]:
    upper, _ = measures_of(directions(PoissonGaussian(0.2, 1.0))[0], 1.0, 0.05)
    part: Tilted = tilted(((upper, 1),), 1.0, outward=outward)
    place = part.places[0] - part.places[0].min()
    mass = np.zeros(int(place.max()) + 1)
    mass[place] = part.weights[0]
    node = part.origin + part.spacing * (
        np.arange(len(mass), dtype=np.float64) + float(part.places[0].min())
    )
    return composed_curve(node, mass, part, 0.5, outward=outward), upper.loss, upper.mass


@pytest.mark.parametrize("epsilon", [-0.1, 0.0, 0.123, 0.5, 1.7])
def test_the_value_is_the_plain_sum_rounded_outward(epsilon: float) -> None:
    for outward in (1, -1):
        found, loss, mass = _of_one_step(outward)
        exact = float(np.sum(mass * np.maximum(-np.expm1(epsilon - loss), 0.0)))
        assert found.delta(epsilon) == pytest.approx(exact, rel=1e-9)
        assert outward * (found.delta(epsilon) - exact) >= 0.0


@pytest.mark.parametrize("delta", [1e-8, 1e-3, 0.05])
def test_epsilon_is_the_inverse_of_delta(delta: float) -> None:
    found, _, _ = _of_one_step(1)
    epsilon = found.epsilon(delta)
    assert found.delta(epsilon) == pytest.approx(delta, rel=1e-9)
    assert found.reaches(delta)


def test_a_constant_above_delta_allows_no_epsilon() -> None:
    found, _, _ = _of_one_step(1)
    heavy = PrivacyCurve(found.node, found.slope, found.value, found.log_scale, 1e-3)
    assert heavy.epsilon(1e-4) == math.inf
    assert heavy.epsilon(2e-3) > found.epsilon(2e-3)


def test_a_curve_that_says_nothing_claims_nothing() -> None:
    assert unknown(math.inf).epsilon(0.5) == math.inf
    assert not unknown(-1.0).reaches(1e-300)
