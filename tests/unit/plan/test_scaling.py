"""Noise and clip norms of a plan, multiplied and replaced."""

from typing import Any

import pytest

import discreet as dp
from discreet.errors import ParameterError
from discreet.plan.scaling import with_clip_norm, with_noise_times


@pytest.mark.parametrize(
    "mechanism",
    [
        dp.Groups({"grad/a*": dp.Gaussian(1.0, 1.0), "grad/*": dp.Gaussian(1.0, 1.0)}),
        dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=10.0),
        dp.NotPrivate(),
    ],
)
def test_a_clip_norm_that_belongs_to_no_one_group_is_refused(mechanism: object) -> None:
    with pytest.raises(ParameterError, match="Make a plan for each phase"):
        with_clip_norm(mechanism, 0.5)


def test_noise_of_every_kind_is_scaled_and_what_has_none_is_refused() -> None:
    kinds: list[Any] = [
        dp.Gaussian(1.0, 1.0),
        dp.Normalised(1.0, 1.0),
        dp.Split(1.0, 1.0),
        dp.AdaptiveClip(dp.Gaussian(1.0, 1.0), quantile=0.5, count_noise_std=10.0),
        dp.Groups({"a": dp.Gaussian(1.0, 1.0), "b": dp.Gaussian(1.0, 3.0)}),
    ]
    for kind in kinds:
        plain, scaled = (
            mechanism.bind({"a": 2, "b": 2}).noise_multiplier
            for mechanism in (kind, with_noise_times(kind, 1.5))
        )
        assert scaled == pytest.approx(1.5 * plain)
    with pytest.raises(ParameterError, match="noise to scale"):
        with_noise_times(dp.NotPrivate(), 2.0)
