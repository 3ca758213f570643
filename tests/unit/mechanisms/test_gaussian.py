"""Gaussian, Joint, Normalised, NotPrivate: numbers, edge cases, refusals."""

import math
from typing import Any

import numpy as np
import pytest

from discreet.errors import NumericsError, ParameterError
from discreet.ledger import GaussianSum
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


def test_a_baseline_makes_the_whole_not_private() -> None:
    bound = Groups({"grad/*": ONE, "*": NotPrivate()}).bind(LEAVES)
    assert not bound.private
    assert bound.noise_multiplier == 0.0
    assert [query.group for query in bound.queries] == ["grad/*"]
    assert {row.group: row.share for row in bound.explain()} == {"grad/*": 0.0, "*": 1.0}


WEIGHTS: dict[float, float] = {0.0: 1.0, 0.5: 1.0, 2.0: 0.25, math.inf: 0.0, math.nan: 0.0}


@pytest.mark.parametrize(("norm", "weight"), WEIGHTS.items())
def test_the_table_of_edge_cases_of_flat_clipping(norm: float, weight: float) -> None:
    """Clip norm 1/2: as the docstring says, record by record;
    at the bound the margin is taken off.
    """
    (group,) = Gaussian(0.5, 1.0).bind({"v": 1}).start
    (found,) = group.weights(np.array([[norm**2]]))
    assert found <= weight
    assert found == pytest.approx(weight, rel=1e-12)


def test_the_table_of_edge_cases_of_normalising() -> None:
    (group,) = Normalised(2.0, 1.0, stability=0.5).bind({"v": 1}).start
    zero, small, large, nan = group.weights(np.array([[0.0], [1e-20], [1e20], [math.nan]]))
    assert (zero, nan) == (4.0, 0.0)
    assert small == pytest.approx(4.0)
    assert large * 1e10 == pytest.approx(2.0)


def test_scaling_changes_what_it_names_and_nothing_else() -> None:
    assert Gaussian(0.5, 2.0).with_noise_times(1.5) == Gaussian(0.5, 3.0)
    assert Gaussian(0.5, 2.0).with_clip_norm(4.0) == Gaussian(4.0, 2.0)
    assert Normalised(0.5, 2.0, 0.3).with_clip_norm(4.0) == Normalised(4.0, 2.0, 0.3)
    joint = Joint(0.5, 2.0, scales={"*": 3.0})
    assert joint.with_noise_times(2.0) == Joint(0.5, 4.0, scales={"*": 3.0})
    with pytest.raises(ParameterError, match="Joint"):  # its clip norm is in the unit of the scales
        joint.with_clip_norm(1.0)


def test_a_joint_plan_without_leaves_keeps_its_scales() -> None:
    joint = Joint(3.0, 2.0, scales={"grad/*": 10.0, "*": 1.0})
    (group,) = joint.bind_without_leaves("g").start
    assert group.scales == (10.0, 1.0)
    assert group.query == GaussianSum("g", 3.0, 6.0)
