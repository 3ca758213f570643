"""The laws of features, against exact integers: no vector moves second moments by more than is
charged, and no row another.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from discreet.aggregation.second_moments import OuterSums
from discreet.features import Standardisation, Whitening, unit_ball
from discreet.features.standardisation import _encoded
from discreet.features.whitening import _projected
from discreet.mechanisms import Group
from support.second_moments import plan

ANYTHING = st.floats(allow_nan=True, allow_infinity=True)
NEAR_ONE = st.floats(-2.0, 2.0)
SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 4))
VECTORS = SHAPES.flatmap(
    lambda shape: arrays.arrays(np.float64, shape, elements=ANYTHING | NEAR_ONE)
)
TURN = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]


def integers(group: Group, vectors: NDArray[Any]) -> tuple[list[int], Fraction]:
    """The sum in whole numbers, and the spacing. As many records are announced for neighbours,
    since the number is public.
    """
    sums = OuterSums(group, dimension=vectors.shape[1], records=5, sample_id=("", 0, 0))
    sums.add(vectors)
    found = sums.integers()
    assert np.array_equal(found, np.trunc(found))
    return [int(number) for number in found], Fraction(sums.grid.spacing)


@settings(deadline=None, max_examples=60)
@given(VECTORS, st.floats(1e-6, 1e6), st.floats(1e-2, 1e3))
@example(
    np.array([[1.0, 1.0]]) / math.sqrt(2.0), 1.0, 1.0
)  # the triangle of its product is shorter than the whole
@example(np.array([[0.1, 0.2], [np.nan, 0.0]]), 1.0, 1.0)
@example(np.array([[5e-324, 1e308]]), 1.0, 1.0)
def test_p01_no_record_moves_the_sum_by_more_than_the_clip_norm(
    vectors: Any, clip_norm: float, noise: float
) -> None:
    (group,) = plan(vectors.shape[1], clip_norm=clip_norm, noise_multiplier=noise).bound.start
    everyone, spacing = integers(group, vectors)
    for absent in range(len(vectors)):
        others, _ = integers(group, np.delete(vectors, absent, axis=0))
        moved = sum((one - other) ** 2 for one, other in zip(everyone, others, strict=True))
        assert moved * spacing**2 <= Fraction(group.clip_norm) ** 2


@settings(deadline=None, max_examples=60)
@given(VECTORS, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(vectors: Any, random: Any) -> None:
    (group,) = plan(vectors.shape[1]).bound.start
    order = list(range(len(vectors)))
    random.shuffle(order)
    assert integers(group, vectors[order]) == integers(group, vectors)


@settings(deadline=None, max_examples=60)
@given(VECTORS)
def test_honest_vectors_are_kept(vectors: Any) -> None:
    (group,) = plan(vectors.shape[1]).bound.start
    inside = np.nan_to_num(unit_ball(vectors))
    for row in inside:
        if np.abs(row).max() > 0.01:
            assert any(integers(group, row[np.newaxis])[0])


@settings(deadline=None, max_examples=60)
@given(arrays.arrays(np.float64, (5, 4), elements=ANYTHING | NEAR_ONE), st.integers(0, 4))
def test_p15_no_row_of_a_transformation_depends_on_another(vectors: Any, absent: int) -> None:
    white = Whitening(TURN[:, :2], np.array([0.3, 0.6]), np.array([0.5, 0.2]), 1.0)
    scale = Standardisation(np.array([0.1, 2.0, -1.0, 0.0]), np.array([1.0, 0.5, 3.0, 1e-3]))
    centre, spread = np.full(4, 0.1), np.full(4, 1.7)
    others = np.delete(vectors, absent, axis=0)
    for change in (
        white,
        scale,
        unit_ball,
        lambda rows: _encoded(rows, centre, spread),
        lambda rows: _projected(rows, TURN[:, :3]),
        lambda rows: _projected(rows, np.array([2, 0])),
    ):
        assert np.array_equal(
            np.delete(change(vectors), absent, axis=0), change(others), equal_nan=True
        )


@settings(deadline=None, max_examples=40)
@given(arrays.arrays(np.float64, (3, 4), elements=NEAR_ONE))
def test_what_a_basis_sees_and_does_not_see_is_as_long_as_the_row(vectors: Any) -> None:
    assert np.allclose(
        (_projected(vectors, TURN[:, :2]) ** 2).sum(1), (vectors**2).sum(1), atol=1e-5
    )
