from __future__ import annotations

import dataclasses

import pytest

from discreet.accounting.calibration.approximations import (
    Approximation,
    central_limit,
    gaussian_parameter,
)
from discreet.units import Guarantee


@pytest.mark.parametrize(
    ("q", "s", "steps", "delta", "stored", "truth"),
    [
        (0.001, 2.0, 1_000_000, 1.1e-10, 3.3093054032597147, 3.3123),
        (0.005, 1.0, 20_000, 1e-6, 4.48308444277483, 4.6070),
        (0.0001, 0.8, 100_000, 1e-9, 0.3221578869398935, 0.4010),
        (0.5, 5.0, 100, 1e-5, 4.428339202622746, 4.4843),
        (0.005, 1.0, 200, 1e-6, 0.36592239470767146, 0.58638),
    ],
)
def test_stored_values_all_below_the_certified_lower_bound(
    q: float, s: float, steps: int, delta: float, stored: float, truth: float
) -> None:
    found = central_limit(probability=q, noise_multiplier=s, steps=steps, delta=delta)
    assert found.about == pytest.approx(stored, rel=1e-6)
    assert found.about < truth  # which is why it may never be called a guarantee


def test_an_approximation_cannot_become_a_guarantee() -> None:
    """P37: a number that may lie below the truth has no name under which it could be reported."""
    fields = {field.name for field in dataclasses.fields(Approximation)}
    assert not fields & {"epsilon", "upper", "lower", "estimate"}
    found = central_limit(probability=0.01, noise_multiplier=1.0, steps=10, delta=1e-5)
    with pytest.raises(TypeError):
        Guarantee(**dataclasses.asdict(found))
    with pytest.raises(TypeError):
        float(found)  # type: ignore[arg-type]
    assert "not a guarantee" in str(found)


def test_gaussian_parameter_is_the_inverse() -> None:
    mu = gaussian_parameter(epsilon=1.0, delta=1e-5)
    assert 1 / mu == pytest.approx(3.730632, rel=1e-6)  # analytic Gaussian mechanism
    assert central_limit(
        probability=1.0, noise_multiplier=1 / mu, steps=1, delta=1e-5
    ).about == pytest.approx(1.0, rel=1e-6)
