"""Microbatches: twice the sensitivity, twice the noise, and what does not fit into slots."""

import pytest

from discreet.errors import ParameterError
from discreet.ledger import GaussianSum
from discreet.mechanisms import AdaptiveClip, Gaussian, Groups, Microbatches, NotPrivate, Split

INNER = Gaussian(1.0, 1.5)


def test_p15_a_slot_can_be_turned_around() -> None:
    bound = Microbatches(INNER, 64).bind({"w": 3}, "grad")
    assert bound.queries == (GaussianSum("grad", 2.0, 3.0),)
    assert bound.noise_multiplier == INNER.bind({"w": 3}).noise_multiplier
    (group,) = bound.start
    assert (group.slots, group.clip_norm, group.divisor(1000.0)) == (64, 1.0, 64.0)


def test_every_group_of_the_inner_mechanism_has_slots() -> None:
    adaptive = AdaptiveClip(INNER, quantile=0.5, count_noise_std=9.0)
    for inner in (adaptive, Split(1.0, 1.0)):
        bound = Microbatches(inner, 8).bind({"w": 3, "b": 1})
        assert {group.slots for group in bound.start} == {8}


def test_a_stand_in_has_slots_too() -> None:
    slots = Microbatches(INNER, 8)
    assert slots.bind_without_leaves("g").queries == slots.bind({"w": 9}, "g").queries
    assert slots.has_slots
    assert Groups({"*": slots}).has_slots
    assert not Groups({"*": INNER}).has_slots


def test_noise_scales_and_a_clip_norm_does_not() -> None:
    assert Microbatches(INNER, 8).with_noise_times(2.0) == Microbatches(Gaussian(1.0, 3.0), 8)
    with pytest.raises(ParameterError, match="Microbatches"):
        Microbatches(INNER, 8).with_clip_norm(1.0)


@pytest.mark.parametrize("inner", [NotPrivate(), Microbatches(INNER, 2), Groups({"*": INNER})])
def test_what_does_not_fit_is_refused(inner: Gaussian) -> None:
    with pytest.raises(ParameterError, match="without slots of its own"):
        Microbatches(inner, 4)


@pytest.mark.parametrize("slots", [0, -1, 1.5, True, None])
def test_a_number_of_slots_is_a_whole_number(slots: int) -> None:
    with pytest.raises(ParameterError, match="slots"):
        Microbatches(INNER, slots)
