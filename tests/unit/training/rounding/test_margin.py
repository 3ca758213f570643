"""What records are clipped to: less than what is charged, and never more later than sooner."""

from __future__ import annotations

import pytest

import discreet as dp
from discreet.mechanisms import Group
from discreet.training.rounding.margin import ClipMargin
from discreet.units import Numerics


def margin(
    policy: object, numerics: Numerics = Numerics.CERTIFIED, microbatch: int | None = None
) -> tuple[ClipMargin, Group]:
    bound = dp.Gaussian(1.0, 1.0).bind({"w": 1000})
    sampler = dp.Sampler(policy, records=5000, steps=3)  # type: ignore[arg-type]
    (group,) = bound.start
    return ClipMargin(bound, sampler, numerics, microbatch), group


def test_records_are_clipped_to_less_than_what_is_charged() -> None:
    clip, group = margin(dp.Poisson(0.1))
    inner, spread = clip(group, frozenset({1}))
    assert 0.98 < inner.clip_norm < group.clip_norm
    assert (inner.noise_std, spread) == (group.noise_std, 1.0)


def test_positions_that_occurred_once_count_for_the_rest_of_the_run() -> None:
    """Wrong: a record that sends a pass to the loop changes what the others are clipped to."""
    clip, group = margin(dp.Poisson(0.1))
    long = clip(group, frozenset({64}))
    assert clip(group, frozenset({1})) == long
    assert long[1] == 16.0
    assert long[0].clip_norm < margin(dp.Poisson(0.1))[0](group, frozenset({1}))[0].clip_norm


def test_idealised_numerics_clip_to_the_charged_norm() -> None:
    clip, group = margin(dp.Poisson(0.1), Numerics.IDEALISED)
    assert clip(group, frozenset({1}))[0] is group


@pytest.mark.parametrize(
    ("policy", "most"), [(dp.Poisson(0.1), 5000), (dp.FixedSize(40, 5000), 40)]
)
def test_the_most_records_of_a_sample(policy: object, most: int) -> None:
    """Wrong: the expected number, which half of all Poisson samples exceed."""
    clip, _ = margin(policy)
    assert clip.most_records == most
    assert 1 <= clip.places <= most
