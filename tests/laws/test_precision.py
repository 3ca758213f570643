"""Sums in float32 chunks never move by more than the clip norm that the ledger was charged with."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from discreet.mechanisms import Group
from discreet.numerics import Grid
from discreet.training.rounding import precision
from discreet.training.rounding.precision import Chunk, most_spread
from laws.test_sums import X, squared_distance, with_record
from support.float_engine import Leaf, released, weights_of

ANY32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
NEAR = st.floats(-4.0, 4.0, width=32)
POSITIONS = 4


def change(leaves: list[Leaf], order: list[int], j: int, group: Group, grid: Grid) -> Fraction:
    """The squared change of the sums, exactly, when the last record is added at place j; its
    chunks' bound is applied.
    """
    spread = most_spread(max(leaf.a.shape[1] for leaf in leaves))
    chunks = [leaf.chunk for leaf in leaves]
    dimension = sum(leaf.dimension for leaf in leaves)
    inner = precision.clipped_within(
        group, dimension=dimension, chunks=chunks, spread=spread, records=len(order) + 1, grid=grid
    )
    weights = weights_of(leaves, inner, spread)
    larger = [len(order) if i == X else i for i in with_record(order, j)]
    both = [released(leaves, weights, some, group, grid) for some in (order, larger)]
    return squared_distance(*both) * Fraction(grid.spacing) ** 2


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    numbers=st.sampled_from([ANY32, NEAR]),
    bits=st.integers(7, 23),
    clip_norm=st.sampled_from([1.0, 0.3]),
)
def test_p14_the_charged_clip_norm_holds_for_any_numbers(
    data: st.DataObject, numbers: Any, bits: int, clip_norm: float
) -> None:
    """A sequence in chunks and pieces beside a leaf of one position, scales of their own, any order
    and place.
    """
    records = data.draw(st.integers(1, 5))

    def factor(positions: int, width: int) -> Any:
        return data.draw(arrays.arrays(np.float32, (records, positions, width), elements=numbers))

    leaves = [
        Leaf(
            factor(POSITIONS, 2),
            factor(POSITIONS, 1),
            data.draw(st.sampled_from([Chunk(1, 2, 2), Chunk(2, 4), Chunk(4, 1, 4)])),
        ),
        Leaf(factor(1, 1), factor(1, 2), Chunk(4, 1)),
    ]
    group = Group(
        name="g", leaves=("s", "d"), scales=(1.0, 8.0), clip_norm=clip_norm, noise_std=1.0
    )
    order = data.draw(st.permutations(range(records - 1)))
    j = data.draw(st.integers(0, records - 1))
    assert change(leaves, order, j, group, Grid(2.0**-bits)) <= Fraction(clip_norm) ** 2


def test_p14_records_clipped_to_the_charged_norm_itself_would_exceed_it() -> None:
    """65 coordinates that the grid rounds apart: a record of norm 0.997 moves the sum by 1.002
    unless the inner norm is used.

    The other record has 0.49 spacings everywhere; with 0.02 more, or 127.52, the next integer is
    nearer.
    """
    grid = Grid(2.0**-7)
    others, record = np.full(65, 0.49), np.full(65, 0.02)
    record[0] = 127.52
    b = (np.stack([others, record])[:, np.newaxis] * grid.spacing).astype(np.float32)
    leaf = Leaf(np.ones((2, 1, 1), np.float32), b, Chunk(2, 1))
    group = Group(name="g", leaves=("x",), scales=(1.0,), clip_norm=1.0, noise_std=1.0)
    assert change([leaf], [0], 1, group, grid) <= 1


def test_p15_the_record_that_moves_to_another_row_is_paid_for() -> None:
    """Odd rows round a contribution down by 2^-10 of the clip norm. The record that moves from row
    1 to row 2 grows by that.

    Without X: (-, y) in rows 0 and 1, with X: (-, X), (y, -). An engine that takes all rows for
        alike exceeds the clip norm.
    """
    group = Group(name="g", leaves=("x",), scales=(1.0,), clip_norm=1.0, noise_std=1.0)
    grid = Grid(2.0**-40)
    moved = {}
    for allowed in (0.0, precision.ROW_DRIFT):
        inner = precision.clipped_within(
            group,
            dimension=1,
            chunks=[Chunk(2, 1)],
            spread=1.0,
            records=3,
            grid=grid,
            row_drift=allowed,
        )
        even, odd = inner.clip_norm, inner.clip_norm * (1.0 - 2.0**-10)
        moved[allowed] = (
            Fraction(even) + Fraction(even) - Fraction(odd)
        )  # X in the place of y, and y in an even row
    assert moved[precision.ROW_DRIFT] <= 1 < moved[0.0]
