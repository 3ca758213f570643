"""Groups: claims, names, order, and which mechanisms may be parts."""

from typing import Any

import pytest

from discreet.errors import ParameterError
from discreet.ledger import Poisson, Step
from discreet.mechanisms import (
    Gaussian,
    Groups,
    Joint,
    Microbatches,
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
