"""Where searches start: about the cost of steps, and never a number that overflows."""

import math

import pytest

from discreet.accounting.calibration.starts import (
    amplification,
    inverse_square,
    log_expm1,
    noise_slope,
    square_parameter,
)
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    GaussianSum,
    LaplaceSum,
    Poisson,
    Sampling,
    Shuffled,
    Step,
)


def test_a_full_batch_costs_what_its_gaussian_costs() -> None:
    step = Step(Everything(), [GaussianSum("grad", 2.0, 6.0)])
    assert square_parameter(step, 9, 1.0) == pytest.approx(9 / 3.0**2)
    assert square_parameter(step, 9, 2.0) == pytest.approx(9 / 6.0**2)


def test_a_rare_sample_costs_less_by_the_square_of_its_probability() -> None:
    """At large noise e^(1/s^2) - 1 is 1/s^2, and sampling multiplies mu by its probability."""
    sampled, full = (
        square_parameter(Step(policy, [GaussianSum("grad", 1.0, 100.0)]), 10, 1.0)
        for policy in (Poisson(0.01), Everything())
    )
    assert sampled == pytest.approx(1e-4 * full, rel=1e-3)


def test_what_is_no_gaussian_has_no_part_in_the_limit() -> None:
    assert square_parameter(Step(Everything(), [LaplaceSum("count", 1.0, 2.0)]), 5, 1.0) == 0.0


def test_an_epoch_is_as_many_draws_as_it_has_batches() -> None:
    assert amplification(BallsInBins(8))[:2] == (1 / 8, 8.0)


@pytest.mark.parametrize("policy", [Everything(), Shuffled(8)], ids=repr)
def test_p26_what_does_not_amplify_is_one_draw_of_everything(policy: Sampling) -> None:
    assert amplification(policy)[:2] == (1.0, 1.0)


@pytest.mark.parametrize("noise", [0.3, 1.0, 3.0])
def test_the_slope_is_the_derivative_in_logarithms(noise: float) -> None:
    def log_cost(log_noise: float) -> float:
        return 0.5 * math.log(math.expm1(math.exp(-2.0 * log_noise)))

    middle, step = math.log(noise), 1e-6
    slope = (log_cost(middle + step) - log_cost(middle - step)) / (2.0 * step)
    assert noise_slope(noise) == pytest.approx(slope, rel=1e-5)


def test_the_slope_ends_in_minus_one() -> None:
    assert noise_slope(1e9) == -1.0


def test_extreme_values_stay_finite() -> None:
    assert inverse_square(1e-200) == 700.0
    assert inverse_square(1e200) == 1e-300
    assert math.isfinite(math.exp(inverse_square(1e-200)))
    assert log_expm1(1e6) == 1e6
    assert log_expm1(1e-9) == pytest.approx(math.log(1e-9))
