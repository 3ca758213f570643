"""What the NumPy engine releases, for every mechanism, against the numbers that its plan states.

alpha = 1e-6 for each statistic. With d coordinates of a leaf, e = (release - true clipped
sum)/noise_std should be d independent standard normal numbers, so that, up to terms that do not
matter at d = 60,000:
    mean(e) has standard deviation d^-1/2, mean(e^2) has (2/d)^1/2, a correlation of two such
    vectors has d^-1/2.
Each must lie within 5.1 of them (probability outside: 3.4e-7). The named alternatives: noise 5 %
off moves mean(e^2) by at least 0.0975 = 16.9 standard deviations; noise used twice makes a
correlation 1, that is 245. Both are missed with probability below 1e-6.
"""

from __future__ import annotations

from typing import Any

import pytest

from discreet.aggregation import aggregator
from discreet.randomness import GaussianNoise, Purpose, Source
from support.noise_statistics import (
    KEY,
    MECHANISMS,
    WITHIN,
    clipped_mean_is_far_off,
    deviations,
    errors,
)


@pytest.mark.parametrize("name", MECHANISMS)
def test_p23_the_noise_of_every_mechanism_is_what_the_plan_states(name: str) -> None:
    assert max(deviations(errors(MECHANISMS[name]))) < WITHIN


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_noise_five_percent_off_is_caught(
    name: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(GaussianNoise):
        def __init__(self, stream: Any, *, scale: float, size: int) -> None:
            super().__init__(stream, scale=factor * scale, size=size)

    monkeypatch.setattr(aggregator, "GaussianNoise", Wrong)
    assert max(deviations(errors(MECHANISMS[name]))) > WITHIN


def test_p20_noise_used_twice_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Repeated(GaussianNoise):
        def __init__(self, stream: Any, *, scale: float, size: int) -> None:
            super().__init__(
                Source.unsafe_test_key(KEY).stream(Purpose.NOISE, step=0), scale=scale, size=size
            )

    monkeypatch.setattr(aggregator, "GaussianNoise", Repeated)
    assert max(deviations(errors(MECHANISMS["flat"]))) > WITHIN


def test_the_mean_of_the_release_is_the_clipped_sum() -> None:
    assert not clipped_mean_is_far_off()
