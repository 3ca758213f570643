"""Assumption R where it can be measured: normal masses and transforms against many digits."""

import numpy as np
import pytest
from mpmath import mp, ncdf

from discreet.accounting.tight.rounding import fft_error, normal_mass

mp.dps = 50


@pytest.mark.parametrize("below", [-36.0, -8.0, -0.3, 0.0, 2.0, 30.0])
@pytest.mark.parametrize("width", [1e-9, 0.1, 3.0])
def test_the_error_covers_the_distance_from_the_exact_mass(below: float, width: float) -> None:
    # Phi(b) - Phi(a) in the upper half, without reflection, would be 0 at 30.
    above = below + width
    mass, error = normal_mass(np.array([below]), np.array([above]))
    low, high = (-above, -below) if below > 0.0 else (below, above)
    exact = ncdf(high) - ncdf(low)
    assert abs(float(exact - float(mass[0]))) <= float(error[0])
    assert float(error[0]) <= 1e-10 * float(ncdf(high)) + 1e-297


def test_infinite_ends_hold_everything() -> None:
    mass, error = normal_mass(np.array([-np.inf, -np.inf]), np.array([0.0, np.inf]))
    assert mass == pytest.approx([0.5, 1.0])
    assert np.all(error < 1e-10)


@pytest.mark.parametrize("length", [64, 1000, 1 << 15])
def test_a_transform_and_back_is_within_its_error(length: int) -> None:
    values = np.random.default_rng(1).random(length)
    values /= values.sum()
    back = np.fft.irfft(np.fft.rfft(values), n=length)
    assert float(np.max(np.abs(back - values))) <= 2.0 * fft_error(length)
