"""Norms of several small factors at once are those of each."""

from __future__ import annotations

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Lookups, Outer
from discreet.training.factors.lengths import squares_together

KINDS = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=25, deadline=None)


def numbers(seed: int, *shape: int, kind: torch.dtype) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(kind)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return numbers(seed, *shape, kind=torch.float32)


def test_norms_of_several_factors_at_once_are_those_of_each() -> None:
    """Also of one that is too long, or not a number. Wrong: |a||b| of factors that have more than
    one position.
    """
    outer, dense = (
        Outer(tensor(6, 1, 40), tensor(6, 1, 3, seed=1), (3, 40)),
        Dense(tensor(6, 5, 7, seed=2)),
    )
    outer.a[1], outer.b[2], outer.b[3], dense.values[4, 0, 0] = (
        2.0**62,
        0.0,
        float("inf"),
        float("nan"),
    )
    outer.b[1] = 2.0**-40
    found = squares_together([outer, dense])
    assert found is not None
    for column, measured in enumerate((outer.measured(), dense.measured())):
        assert torch.allclose(found[:, column], measured[0], rtol=1e-9, atol=0.0, equal_nan=True)
        assert measured[1] is measured[0]
    assert found[1, 0] == torch.inf  # |a| is above 2^60, though |a||b| is not
    assert not found.isfinite().all(0).any()
    true = outer.dense().values[[0, 4, 5]].double().flatten(1).square().sum(1)
    assert bool((found[[0, 4, 5], 0] >= true * (1 - 1e-6)).all())


def test_sides_that_share_memory_are_measured_once_and_others_are_not_taken_for_them() -> None:
    """Wrong: the same place in memory, whatever lies there: rows of another width."""
    b = tensor(4, 6)
    factors: list[Factor] = [
        Outer(tensor(4, 1, 5, seed=1), b.view(4, 1, 6), (6, 5)),
        Dense(b),
        Dense(b[:, :3]),
    ]
    for some in (factors[:3], factors[2::-1]):
        found = squares_together(some)
        assert found is not None
        for column, factor in enumerate(some):
            assert torch.allclose(found[:, column], factor.measured()[0], rtol=1e-9)


def test_norms_of_other_factors_are_not_computed_at_once() -> None:
    several, long = Outer(tensor(4, 2, 3), tensor(4, 2, 5), (5, 3)), Dense(tensor(4, 2000))
    rows = Lookups(torch.zeros(4, 1, dtype=torch.int64), tensor(4, 1, 3), (2, 3))
    for factor in (several, long, rows, Dense(tensor(4)), Dense(tensor(0, 3))):
        assert squares_together([Dense(tensor(4, 3)), factor]) is None
    assert squares_together([]) is None
