"""Assumption R where it can be measured: normal masses and transforms against many digits."""

import numpy as np
import pytest
from mpmath import mp, ncdf

from discreet.accounting.tight.rounding import block_sum, fft_error, normal_mass, sum_error

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


@pytest.mark.parametrize("count", [1, 5, 1000, 12345])
def test_a_sum_in_blocks_is_within_its_error(count: int) -> None:
    values = np.random.default_rng(2).standard_normal((3, count))
    exact = [float(sum(map(mp.mpf, row))) for row in values]
    sizes = np.abs(values).sum(axis=1)
    assert np.all(np.abs(block_sum(values) - exact) <= sum_error(count) * sizes)
    # Blocks of one size each, and all of them: a sum of ones is exact.
    assert block_sum(np.ones(count)) == count


@pytest.mark.parametrize("function", ["sin", "cos", "exp", "expm1", "log1p"])
def test_elementary_functions_are_right_to_four_units(function: str) -> None:
    arguments = np.random.default_rng(3).uniform(-0.9, 7.0, 500)
    values = getattr(np, function)(arguments)
    for argument, value in zip(arguments.tolist(), values.tolist(), strict=True):
        exact = getattr(mp, function)(mp.mpf(argument))
        assert abs(mp.mpf(value) - exact) <= 4.0 * 2.0**-53 * abs(exact)
