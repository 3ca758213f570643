"""Windows: what they leave outside is small, by the conditions that define them."""

import math

import pytest

from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.lattice.pair import SMALL, Composition
from discreet.accounting.tight.lattice.tilt import tilt_for_epsilon
from discreet.accounting.tight.lattice.window import period, planned


@pytest.mark.parametrize("probability", [1.0, 0.1, 1e-3])
def test_what_lies_outside_or_wraps_around_is_far_below_delta(probability: float) -> None:
    law = Composition(((PoissonRemove(probability, 1.0), 100),)).law(1e-6)
    tilt = tilt_for_epsilon(law, 3.0)
    window = planned(law, tilt, 1e-3)
    goal = SMALL * math.exp(tilt.log_delta) * 1.05

    def cumulant(theta: float) -> float:
        import numpy as np

        return float(law.cumulant(np.array([theta]))[0])

    width, theta = window.width, window.theta
    above = cumulant(window.tail) - window.tail * window.high
    from_below = cumulant(-window.wrap_down) + window.wrap_down * window.low - theta * width
    from_above = cumulant(window.wrap_up) - window.wrap_up * (window.floor + width) + theta * width
    assert max(math.exp(above), math.exp(from_below), math.exp(from_above)) <= goal
    assert window.low < window.floor < window.high


def test_the_number_of_points_is_the_width_over_the_spacing() -> None:
    law = Composition(((PoissonRemove(0.1, 1.0), 100),)).law(1e-6)
    window = planned(law, tilt_for_epsilon(law, 3.0), 1e-3)
    assert window.points(1e-3) == pytest.approx((window.high - window.low) / 1e-3)


def test_the_period_of_the_estimate_is_longer_than_the_window() -> None:
    law = Composition(((PoissonRemove(0.1, 1.0), 100),)).law(1e-6)
    tilt = tilt_for_epsilon(law, 3.0)
    assert period(law, tilt, math.exp(tilt.log_delta)) > planned(law, tilt, 1e-3).width
