"""The point value: eight digits of closed forms, and None where the transform does not fall off."""

import pytest

from discreet.accounting.gaussian import gaussian_delta, gaussian_epsilon
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.analyses.segment import Segment
from discreet.accounting.tight.lattice.estimate import Contour, contour
from discreet.accounting.tight.lattice.pair import Composition
from discreet.accounting.tight.lattice.tilt import tilt_for_epsilon
from discreet.accounting.tight.lattice.window import period


def _line(problem: Composition, epsilon: float, delta: float) -> Contour | None:
    law = problem.law(1e-8 * delta)
    tilt = tilt_for_epsilon(law, epsilon)
    return contour(law, tilt.theta, period(law, tilt, delta))


GAUSSIANS = Composition(((PoissonRemove(1.0, 6.0), 9),))


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_delta_of_a_gaussian_to_eight_digits(epsilon: float) -> None:
    exact = sum(gaussian_delta(2.0, epsilon)) / 2.0
    line = _line(GAUSSIANS, epsilon, exact)
    assert line is not None
    assert line.delta(epsilon) == pytest.approx(exact, rel=1e-8)


def test_epsilon_of_a_gaussian_to_nine_digits_and_only_inside_the_interval() -> None:
    exact = sum(gaussian_epsilon(2.0, 1e-6)) / 2.0
    line = _line(GAUSSIANS, exact, 1e-6)
    assert line is not None
    assert line.epsilon(1e-6, 0.9 * exact, 1.1 * exact) == pytest.approx(exact, rel=1e-9)
    assert line.epsilon(1e-6, 1.2 * exact, 1.4 * exact) is None


def test_a_loss_with_three_values_has_no_estimate() -> None:
    response = Composition(((Segment(1.0, 0.0, (0.1, 0.6, 0.3)), 3),))
    assert _line(response, 1.0, 1e-3) is None
