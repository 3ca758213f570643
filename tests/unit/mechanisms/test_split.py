"""Split: shares of a total, by names, by dimension, and what it refuses."""

import math
from typing import Any

import pytest

from discreet.errors import ParameterError
from discreet.mechanisms import (
    Gaussian,
    Groups,
    Microbatches,
    NotPrivate,
    Split,
)
from support.mechanisms import LEAVES

ONE = Gaussian(1.0, 2.0)


def test_split_per_layer_and_by_dimension() -> None:
    leaves = {"w": 96, "b": 4}
    equal = Split(2.0, 1.5).bind(leaves, "grad")
    assert [group.name for group in equal.start] == ["grad/w", "grad/b"]
    assert [group.clip_norm for group in equal.start] == pytest.approx([math.sqrt(2.0)] * 2)
    assert [group.noise_std for group in equal.start] == pytest.approx(
        [1.5 * math.sqrt(2) * math.sqrt(2)] * 2
    )
    sized = Split(2.0, 1.5, clip="by dimension", noise="by dimension").bind(leaves)
    assert [group.clip_norm for group in sized.start] == pytest.approx([2.0 * math.sqrt(0.96), 0.4])
    assert [group.noise_std for group in sized.start] == pytest.approx(
        [3.0, 3.0]
    )  # spherical: flat noise again


def test_split_by_named_parts_and_shares() -> None:
    split = Split(1.0, 2.0, parts={"body": "grad/a.*", "rest": "*"}, noise={"body": 3, "rest": 1})
    bound = split.bind(LEAVES, "g")
    assert {row.group: round(row.share, 12) for row in bound.explain()} == {
        "g/body": 0.75,
        "g/rest": 0.25,
    }
    assert split.bind_without_leaves("g").queries == bound.queries


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": "layers"},
        {"parts": {}},
        {"parts": {"a": "*", "b": "*"}},
        {"clip": "proportional"},
        {"noise": "equal"},
        {"noise": {"a": 0.0}},
        {"parts": {"a": "*"}, "clip": {"b": 1.0}},
        {"noise": {}},
        {"clip_norm": -1.0},
    ],
)
def test_a_split_that_makes_no_sense_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Split(**{"clip_norm": 1.0, "noise_multiplier": 1.0} | fields)


def test_shares_must_name_the_leaves() -> None:
    with pytest.raises(ParameterError, match="a share for each part"):
        Split(1.0, 1.0, noise={"a": 1.0}).bind({"a": 1, "b": 1})


@pytest.mark.parametrize(
    "split",
    [
        Split(1.0, 1.0),
        Split(1.0, 1.0, parts={"a": "*"}, clip="by dimension"),
        Microbatches(Split(1.0, 1.0), 4),
    ],
)
def test_queries_that_depend_on_leaves_ask_for_binding(split: Any) -> None:
    with pytest.raises(ParameterError, match="Bind the mechanism first"):
        split.bind_without_leaves()


def test_scaling_keeps_the_shares() -> None:
    split = Split(2.0, 1.5, clip="by dimension")
    assert split.with_noise_times(2.0) == Split(2.0, 3.0, clip="by dimension")
    assert split.with_clip_norm(1.0) == Split(1.0, 1.5, clip="by dimension")


def test_a_split_is_private_before_it_knows_its_leaves() -> None:
    assert Split(1.0, 1.0).open_groups() == ()
    assert Groups({"a/*": Split(1.0, 1.0), "*": NotPrivate()}).open_groups() == ("*",)


def test_one_part_is_flat_clipping_by_another_name() -> None:
    (part,) = Split(0.5, 2.0, parts={"whole": "*"}).bind({"w": 3, "b": 1}, "g").start
    (flat,) = Gaussian(0.5, 2.0).bind({"w": 3, "b": 1}, "g/whole").start
    assert part == flat
