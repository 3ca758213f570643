"""The grid: exact where it says so, an error where not."""

import math

import numpy as np
import pytest

from discreet.errors import NumericsError, ParameterError
from discreet.numerics import Grid


@pytest.mark.parametrize("bad", [0.3, 0.0, -1.0, math.inf, math.nan, 2.0**950])
def test_only_powers_of_two(bad: float) -> None:
    with pytest.raises(ParameterError, match="spacing"):
        Grid(bad)


@pytest.mark.parametrize("clip_norm", [1e-6, 0.3, 1.0, 7.7, 1e9])
@pytest.mark.parametrize("multiplier", [1e-9, 0.1, 1.0, 100.0])
def test_the_chosen_grid_serves_clip_norm_and_noise(clip_norm: float, multiplier: float) -> None:
    grid = Grid.for_noise(noise_std=multiplier * clip_norm, clip_norm=clip_norm)
    assert 1 <= grid.radius(clip_norm) <= 2**26
    assert grid.scale(multiplier * clip_norm) * grid.spacing == multiplier * clip_norm


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300, 2.0**52])
def test_values_that_would_not_stay_exact_are_refused(bad: float) -> None:
    with pytest.raises(NumericsError, match="finite"):
        Grid(1.0).integers(np.array([1.0, bad]))


def test_integers_are_the_nearest() -> None:
    assert Grid(0.5).integers(np.array([0.6, -0.6, 1.0, 1e-300])).tolist() == [1.0, -1.0, 2.0, 0.0]


@pytest.mark.parametrize("multiplier", [1e-3, 0.5, 1.0, 40.0, 2000.0, 1e4, 1e5, 1e6])
@pytest.mark.parametrize("clip_norm", [1e-3, 1.0, 100.0])
def test_a_record_is_resolved_whatever_the_noise(multiplier: float, clip_norm: float) -> None:
    """With 2^4 units per clip norm, as a multiplier of 10^6 once had, truncation would erase
    records of many coordinates.
    """
    grid = Grid.for_noise(noise_std=multiplier * clip_norm, clip_norm=clip_norm)
    assert 2**11 <= grid.radius(clip_norm) <= 2**26
    assert grid.scale(multiplier * clip_norm) <= 2.0**32


def test_numbers_out_of_range_are_refused_by_name() -> None:
    for noise_std, clip_norm in ((5e-324, 5e-324), (1e300, 1e300)):
        with pytest.raises(ParameterError, match="noise_std"):
            Grid.for_noise(noise_std=noise_std, clip_norm=clip_norm)
