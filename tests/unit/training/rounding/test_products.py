"""Sums of products, cut into chunks: the order that docs/proofs/sums.md counts."""

from __future__ import annotations

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer
from discreet.training.rounding import products
from discreet.training.rounding.precision import chunk_for, most_spread

KINDS = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=25, deadline=None)


def numbers(seed: int, *shape: int, kind: torch.dtype) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(kind)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return numbers(seed, *shape, kind=torch.float32)


@pytest.mark.parametrize("records", [1, 8, 127, 128, 129, 200, 256, 288, 289, 560, 1000, 1024])
def test_sums_of_equal_pieces_are_sums_of_chunks(records: int) -> None:
    """All leaves of a chunk's size are cut alike, never through the 8 records of a convolution.
    Wrong: a piece left out.
    """
    chunk = chunk_for(1, 1.0)
    size = products._cut(records, chunk)
    assert 1 <= size <= chunk.records
    assert size == chunk.records or (size % 8 == 0 and records % size == 0)
    assert -(-records // size) == -(
        -records // chunk.records
    )  # as many float32 sums as the proof counts
    weights = torch.rand(records, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    factors: list[Factor] = [
        Outer(tensor(records, 1, 9), tensor(records, 1, 5, seed=1), (5, 9)),
        Dense(tensor(records, 45)),
    ]
    for factor in factors:
        dense = factor.dense().values.reshape(records, 45).double()
        exact = weights.float().double() @ dense
        for kind in (torch.float32, torch.float64):
            total = torch.zeros(factor.shape, dtype=kind)
            factor.add_to(total, weights if kind == torch.float64 else weights.float(), 1.0)
            assert torch.allclose(
                total.double().view(-1),
                exact,
                rtol=0.0,
                atol=1e-5 * float(dense.abs().sum(0).max()),
            )


def test_places_change_by_a_percent_at_most() -> None:
    for places in (*range(1, 700), 3000, 10_001, 65_536):
        assert abs(products.even_places(places) - places) <= places / 100


@pytest.mark.parametrize(("m", "t"), [(1, 1), (5, 3), (300, 1), (9, 700)])
def test_outer_products_are_summed_with_their_weights(m: int, t: int) -> None:
    """Wrong: weights of one piece for the records of another, or the last,
    ragged piece left out.
    """
    a, b = tensor(m, t, 4), tensor(m, t, 3, seed=1)
    weights = numbers(2, m, kind=torch.float64).abs()
    total = torch.ones(3, 4, dtype=torch.float64)
    products.add_outer(total, a, b, weights, chunk_for(t, most_spread(t)))
    truth = torch.einsum("m,mtq,mtp->qp", weights, b.double(), a.double())
    assert torch.allclose(total - 1.0, truth, atol=1e-3 * float(truth.abs().max()))


def test_a_float32_total_is_for_one_sum_only() -> None:
    """Wrong: float64 numbers, or more records than are joined, in a float32 total."""
    chunk = chunk_for(1, 1.0)
    most = chunk.records * chunk.joined
    assert products.one_sum(most, torch.float32, chunk)
    assert not products.one_sum(most + 1, torch.float32, chunk)
    assert not products.one_sum(1, torch.float64, chunk)
