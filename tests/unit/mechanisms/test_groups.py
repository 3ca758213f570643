"""Groups, Joint, Split, Microbatches, NotPrivate: claims, names, numbers, errors."""

import math
from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError, ParameterError
from discreet.ledger import GaussianSum, Poisson, Step
from discreet.mechanisms import (
    AdaptiveClip,
    Gaussian,
    Groups,
    Joint,
    Microbatches,
    Normalised,
    NotPrivate,
    Split,
)
from support.mechanisms import LEAVES

ONE = Gaussian(1.0, 2.0)


def test_the_first_pattern_that_matches_has_the_leaf() -> None:
    bound = Groups({"grad/a.*": ONE, "grad/*": Gaussian(3.0, 1.0), "metric/*": ONE}).bind(LEAVES)
    assert [(row.leaf, row.group) for row in bound.explain()] == [
        ("grad/a.weight", "grad/a.*"),
        ("grad/a.bias", "grad/a.*"),
        ("grad/b.weight", "grad/*"),
        ("metric/loss", "metric/*"),
    ]
    assert Step(Poisson(0.1), bound.queries).groups == ("grad/*", "grad/a.*", "metric/*")


def test_unclaimed_leaves_and_idle_patterns_are_both_listed() -> None:
    with pytest.raises(ParameterError) as caught:
        Groups({"grad/*": ONE, "bn/*": ONE}).bind(LEAVES)
    assert "nobody claims ['metric/loss']" in str(caught.value)
    assert "claim nothing ['bn/*']" in str(caught.value)
    with pytest.raises(ParameterError, match="claim nothing"):  # shadowed by an earlier one
        Groups({"*": ONE, "grad/*": ONE}).bind(LEAVES)
    with pytest.raises(ParameterError, match="nobody claims"):  # case counts on every platform
        Groups({"GRAD/*": ONE, "m*": ONE}).bind({"grad/a": 1, "m": 1})


def test_a_group_name_cannot_stand_for_two() -> None:
    with pytest.raises(ParameterError, match="more than once"):
        Groups({"a": Split(1.0, 1.0, parts={"b": "*"}), "a/b": ONE}).bind({"a": 1, "a/b": 1})


def test_the_order_of_patterns_is_part_of_the_value() -> None:
    one, other = (
        Groups({"a*": ONE, "*": Gaussian(3.0, 1.0)}),
        Groups({"*": Gaussian(3.0, 1.0), "a*": ONE}),
    )
    assert one != other


def test_what_was_passed_in_is_not_shared() -> None:
    mapping: dict[str, Any] = {"*": ONE}
    scales = {"*": 1.0}
    groups, joint = Groups(mapping), Joint(1.0, 1.0, scales)
    mapping["*"] = NotPrivate()
    scales["*"] = 1e9
    assert groups.mechanisms["*"] == ONE
    assert joint.scales["*"] == 1.0
    with pytest.raises(TypeError):
        groups.mechanisms["*"] = NotPrivate()  # type: ignore[index]


@pytest.mark.parametrize("value", [Groups({"*": ONE}), "Gaussian", None, 1.0])
def test_members_are_mechanisms_that_fit(value: Any) -> None:
    with pytest.raises(ParameterError, match="a mechanism"):
        Groups({"*": value})
    with pytest.raises(ParameterError, match="a mechanism of|one that clips"):
        Microbatches(value, 4)
    for refused in (NotPrivate(), Microbatches(ONE, 4)):
        with pytest.raises(ParameterError):
            Microbatches(refused, 4)


def test_joint_clipping_of_the_paper() -> None:
    """Norms 1 and 100, tolerable noise 0.01 and 1: scales (1, 100), S = 1, noise 0.01 in the scaled
    unit.
    """
    bound = Joint(1.0, 0.01, scales={"small": 1.0, "large": 100.0}).bind(
        {"large": 5, "small": 5}, "g"
    )
    assert bound.queries == (GaussianSum("g", 1.0, 0.01),)
    (group,) = bound.start
    assert dict(zip(group.leaves, group.scales, strict=True)) == {"large": 100.0, "small": 1.0}
    assert group.weights(np.array([[100.0**2 * 0.999, 0.0], [0.0, 0.999], [1e4, 1.0]])).tolist()[
        :2
    ] == [1.0, 1.0]


def test_joint_clip_norm_lies_below_the_root_of_the_number_of_leaves() -> None:
    leaves = {"a": 1, "b": 1}
    Joint(math.sqrt(2.0), 1.0, scales={"*": 1.0}).bind(leaves)
    with pytest.raises(ParameterError, match="root of the number of leaves"):
        Joint(1.5, 1.0, scales={"*": 1.0}).bind(leaves)
    with pytest.raises(ParameterError, match="claim nothing"):
        Joint(1.0, 1.0, scales={"*": 1.0, "c": 2.0}).bind(leaves)


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


def test_a_baseline_makes_the_whole_not_private() -> None:
    bound = Groups({"grad/*": ONE, "*": NotPrivate()}).bind(LEAVES)
    assert not bound.private
    assert bound.noise_multiplier == 0.0
    assert [query.group for query in bound.queries] == ["grad/*"]
    assert {row.group: row.share for row in bound.explain()} == {"grad/*": 0.0, "*": 1.0}


@pytest.mark.parametrize("leaves", [{}, {"a": 0}, {"a": 1.5}, {"": 1}, {3: 1}, None, ["a"]])
@pytest.mark.parametrize(
    "mechanism",
    [
        ONE,
        Joint(1.0, 1.0, {"*": 1.0}),
        Normalised(1.0, 1.0),
        Split(1.0, 1.0),
        AdaptiveClip(ONE, 0.5, 9.0),
        Microbatches(ONE, 2),
        Groups({"*": ONE}),
        NotPrivate(),
    ],
    ids=lambda mechanism: type(mechanism).__name__,
)
def test_bad_leaves_are_refused(mechanism: Any, leaves: Any) -> None:
    with pytest.raises(ParameterError):
        mechanism.bind(leaves)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", True, None])
@pytest.mark.parametrize(
    "kind", [Gaussian, Normalised, Split, lambda c, z: Joint(c, z, {"*": 1.0})]
)
def test_bad_numbers_are_refused(kind: Any, bad: Any) -> None:
    for numbers in ((bad, 1.0), (1.0, bad)):
        with pytest.raises(ParameterError):
            kind(*numbers)
    with pytest.raises(ParameterError):
        Joint(1.0, 1.0, {"*": bad})
    with pytest.raises(ParameterError):
        Microbatches(ONE, bad if bad != 1.0 else 0)


def test_numbers_without_a_float_are_refused() -> None:
    with pytest.raises(NumericsError, match="units"):
        Gaussian(1e-300, 1e-300)
    for clip_norm, stability in ((1.0, 1e-15), (1e-9, 1e-15), (1e6, 1e-9)):
        with pytest.raises(ParameterError, match="2\\^-40"):
            Normalised(clip_norm, 1.0, stability=stability)
