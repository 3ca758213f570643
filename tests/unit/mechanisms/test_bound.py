"""Bound: names that differ, one state for each threshold, shares that add up, merging."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from discreet.errors import ParameterError
from discreet.mechanisms import AdaptiveClip, Bound, Gaussian, NotPrivate, Threshold
from discreet.mechanisms._frozen import Frozen
from discreet.mechanisms.bound import checked_bound

FLAT = Gaussian(1.0, 2.0).bind({"a": 3}, "flat")
OPEN = NotPrivate().bind({"b": 1}, "open")
MOVING = AdaptiveClip(Gaussian(2.0, 1.0), 0.5, 9.0).bind({"c": 2}, "moving")


def test_merging_keeps_groups_dimensions_and_thresholds() -> None:
    bound = Bound.merged([FLAT, MOVING])
    assert [group.name for group in bound.start] == ["flat", "moving", "moving/below"]
    assert dict(bound.dimensions) == {"a": 3, "c": 2, "moving/below": 1}
    assert bound.observed == ("moving/below",)
    assert dict(bound.initial_state) == {"moving": 2.0}
    assert [query.group for query in bound.queries] == ["flat", "moving", "moving/below"]


@pytest.mark.parametrize("other", [Gaussian(1.0, 1.0).bind({"a": 1}, "g"), replace(FLAT)])
def test_a_name_stands_for_one_thing(other: Bound) -> None:
    with pytest.raises(ParameterError, match="more than once"):
        Bound.merged([FLAT, other])


def test_dimensions_are_those_of_the_leaves() -> None:
    with pytest.raises(ParameterError, match="one for each leaf"):
        Bound(dimensions=Frozen((("b", 1),)), start=FLAT.start)


def test_one_open_group_opens_the_whole() -> None:
    bound = Bound.merged([FLAT, OPEN])
    assert (bound.private, bound.open_groups, bound.noise_multiplier) == (False, ("open",), 0.0)
    assert FLAT.open_groups == ()
    assert [row.share for row in bound.explain()] == [0.0, 1.0]


def test_only_the_group_of_a_threshold_moves() -> None:
    bound = Bound.merged([FLAT, MOVING])
    flat, moving, bits = bound.groups({"moving": 0.5})
    assert flat is FLAT.start[0]
    assert (moving.scales, bits) == ((0.5,), MOVING.start[1])
    assert moving.query == MOVING.start[0].query  # the event does not


@pytest.mark.parametrize("state", [{}, {"moving": 0.0}, {"flat": 1.0}, {"moving": 1.0, "x": 1.0}])
def test_a_state_has_one_positive_number_for_each_threshold(state: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match="state"):
        MOVING.groups(state)


def test_bits_need_the_norms_of_their_group() -> None:
    with pytest.raises(ParameterError, match="moving"):
        MOVING.observations(MOVING.initial_state, {"flat": np.ones((1, 1))})


def test_a_threshold_of_no_group_is_not_of_the_library() -> None:
    stray = Threshold(
        group="nobody", observed="moving/below", start=1.0, quantile=0.5, learning_rate=0.2
    )
    assert MOVING.is_of_the_library
    assert not replace(MOVING, thresholds=(stray,)).is_of_the_library


@pytest.mark.parametrize("leaves", [{"c": 2, "d": 1}, {"c": 3}, {}])
def test_every_leaf_is_taken_with_its_dimension(leaves: dict[str, int]) -> None:
    assert checked_bound("Plan", MOVING, {"c": 2}) is MOVING
    with pytest.raises(ParameterError, match="takes every leaf"):
        checked_bound("Plan", MOVING, leaves)


@pytest.mark.parametrize("released", [{}, {"moving/below": [1.0, 2.0]}, {"moving/below": np.nan}])
def test_an_update_reads_one_released_number(released: Any) -> None:
    with pytest.raises(ParameterError):
        MOVING.update(MOVING.initial_state, released, expected_batch_size=10.0)
