"""Certified norms: never below the truth, and infinite where a record must be left out."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.training.rounding.norms import BLOCK, last_squares, row_squares

KINDS = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=25, deadline=None)


def numbers(seed: int, *shape: int, kind: torch.dtype) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(kind)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return numbers(seed, *shape, kind=torch.float32)


@few
@given(st.integers(0, 99), st.sampled_from([1, 511, 512, 513, 1500]), KINDS)
def test_squares_of_rows_are_rounded_up(seed: int, width: int, kind: torch.dtype) -> None:
    rows = numbers(seed, 3, width, kind=kind)
    exact = [math.fsum(x * x for x in row) for row in rows.double().tolist()]
    assert all(a >= b * (1 - 1e-15) for a, b in zip(row_squares(rows).tolist(), exact, strict=True))
    assert torch.allclose(row_squares(rows), torch.tensor(exact, dtype=torch.float64), rtol=1e-4)


def test_a_norm_above_the_largest_input_is_infinite_and_one_below_is_not() -> None:
    """Wrong: a record whose products leave the range of float32 is kept."""
    rows = torch.tensor([[2.0**59, 2.0**59], [2.0**60, 2.0**60], [0.0, 0.0]])
    assert row_squares(rows).isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("columns", [1, BLOCK, BLOCK + 1, 3 * BLOCK])
def test_blocks_and_what_is_left_of_them_add_up(columns: int) -> None:
    """Wrong: the last, shorter block is left out."""
    values = torch.ones(2, 3, columns)
    truth = torch.full((2, 3), float(columns), dtype=torch.float64)
    assert torch.allclose(last_squares(values), truth, rtol=2e-4)
