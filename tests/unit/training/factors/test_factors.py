"""Every form of per-record gradients has the norms and the sums of the gradients written out in
float64.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from discreet.training.factors.factors import (
    Dense,
    Factor,
    Lookups,
    Outer,
    Tied,
    measured_alike,
    tensors_of,
)
from discreet.training.passes.contributions import Contributions, Piece, gathered
from discreet.training.rounding.precision import most_spread
from discreet.training.rules.call import Use
from discreet.training.rules.weights import Derived, TableRows, ViewOf, view_of, whole_region
from support.per_record import TOLERANCE, assert_factor, squares

SIZES = st.sampled_from([1, 2, 3, 7])
KINDS = st.sampled_from([torch.float32, torch.float64])
few = settings(max_examples=25, deadline=None)


def numbers(seed: int, *shape: int, kind: torch.dtype) -> Tensor:
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(kind)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return numbers(seed, *shape, kind=torch.float32)


def outer_sum(a: Tensor, b: Tensor) -> Tensor:
    return torch.einsum("mtq,mtp->mqp", b.double(), a.double())


def row_sum(ids: Tensor, b: Tensor, rows: int) -> Tensor:
    out = torch.zeros(len(b), rows, b.shape[2], dtype=torch.float64)
    for record, position in torch.nonzero(ids >= 0).tolist():
        out[record, ids[record, position]] += b[record, position].double()
    return out


@pytest.mark.parametrize("positions", [1, 5, 64, 70])
def test_what_shares_a_gradient_is_measured_alike(positions: int) -> None:
    """Wrong: the second of them has the norm of the first."""
    b = tensor(3, positions, 4, seed=1)
    outers = [Outer(tensor(3, positions, p, seed=p), b, (4, p)) for p in (2, 5, 7)]
    for outer, measures in zip(outers, measured_alike(outers), strict=True):
        assert all(map(torch.equal, measures, outer.measured()))

    whole = {f"grad/{p}": outer for p, outer in enumerate(outers)}
    pieces = {
        leaf: (Piece(whole_region(torch.empty(outer.shape)), outer),)
        for leaf, outer in whole.items()
    }
    found = Contributions(pieces, 3, 3).measured(whole)
    for number, outer in enumerate(outers):
        assert torch.allclose(found[0][:, number], outer.measured()[0])
        assert_factor(outer, outer_sum(outer.a, b), TOLERANCE[torch.float32])


def assert_formed(factor: Factor, tolerance: float) -> None:
    """Written out, a gradient is rounded; its norm is that of the rounded numbers, and so is the
    sum.
    """
    formed = factor.dense()
    assert set(factor.forms()) <= {"ghost", "direct"}
    assert_factor(formed, formed.values.double(), 10 * tolerance)


@few
@given(st.integers(0, 99), st.sampled_from([0, 1, 3]), SIZES, SIZES, SIZES, KINDS)
def test_outer(seed: int, m: int, t: int, p: int, q: int, kind: torch.dtype) -> None:
    a, b = numbers(seed, m, t, p, kind=kind), numbers(seed + 1, m, t, q, kind=kind)
    factor = Outer(a, b, (q, p))
    assert_factor(factor, outer_sum(a, b), TOLERANCE[kind])
    assert_formed(factor, TOLERANCE[kind])


@few
@given(
    st.integers(0, 99), st.sampled_from([0, 1, 3]), st.sampled_from([1, 2, 7, 300]), SIZES, KINDS
)
def test_rows_with_repeats_and_holes(
    seed: int, m: int, t: int, width: int, kind: torch.dtype
) -> None:
    ids = torch.randint(-1, 5, (m, t), generator=torch.Generator().manual_seed(seed))
    b = numbers(seed, m, t, width, kind=kind)
    assert_factor(Lookups(ids, b, (5, width)), row_sum(ids, b, 5), 10 * TOLERANCE[kind])


@few
@given(st.integers(0, 99), st.sampled_from([1, 3]), SIZES, SIZES, SIZES, KINDS)
def test_tied(seed: int, m: int, s: int, t: int, width: int, kind: torch.dtype) -> None:
    a, b = numbers(seed, m, s, width, kind=kind), numbers(seed + 1, m, s, 5, kind=kind)
    ids = torch.randint(-1, 5, (m, t), generator=torch.Generator().manual_seed(seed))
    looked = numbers(seed + 2, m, t, width, kind=kind)
    factor = Tied(Outer(a, b, (5, width)), Lookups(ids, looked, (5, width)))
    assert_factor(factor, outer_sum(a, b) + row_sum(ids, looked, 5), TOLERANCE[kind])
    assert_formed(factor, TOLERANCE[kind])


@few
@given(
    st.integers(0, 99),
    st.sampled_from([0, 1, 200]),
    st.sampled_from([(1,), (3, 5), (2, 3, 4), (1100,)]),
    KINDS,
)
def test_dense(seed: int, m: int, shape: tuple[int, ...], kind: torch.dtype) -> None:
    values = numbers(seed, m, *shape, kind=kind)
    assert_factor(Dense(values), values.double(), 10 * TOLERANCE[kind])


def test_non_contiguous_totals_and_tensors() -> None:
    a, b = numbers(1, 4, 3, 5, kind=torch.float64), numbers(2, 4, 6, 3, kind=torch.float64).mT
    total, weights = torch.zeros(5, 6, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    for factor in (Outer(a, b, (6, 5)), Outer(a, b, (6, 5)).dense()):
        factor.add_to(total.T, weights, most_spread(3))
    assert torch.allclose(total.T, 2 * outer_sum(a, b).sum(0), atol=1e-12)


@pytest.mark.parametrize("factor", [
    Dense(torch.tensor([[1.0, 2.0], [math.nan, 1.0], [math.inf, 0.0]])),
    Outer(
        torch.tensor([[[1.0], [1.0]], [[math.nan], [1.0]], [[math.inf], [0.0]]]),
        torch.ones(3, 2, 1), (1, 1),
    ),
    Lookups(
        torch.zeros(3, 2, dtype=torch.long),
        torch.tensor([[[1.0], [1.0]], [[math.nan], [1.0]], [[math.inf], [1.0]]]),
        (2, 1),
    ),
])  # fmt: skip
def test_p13_records_that_are_not_finite_are_told_and_can_be_left_out(factor: Factor) -> None:
    norms, _ = factor.measured()
    assert norms.isfinite().tolist() == [True, False, False]
    kept = factor.keep(norms.isfinite())
    total = torch.zeros(factor.shape, dtype=torch.float64)
    kept.add_to(total, torch.ones(3, dtype=torch.float64), 1.0)
    assert torch.allclose(total, factor.dense().values[0].double())
    assert kept.measured()[0][1:].max() < 1e-30


def test_p14_ghost_norms_stay_above_the_truth_where_terms_cancel() -> None:
    """64 positions whose outer products cancel almost entirely: plain float32 Gram sums come out
    too small, or negative.
    """
    generator = torch.Generator().manual_seed(5)
    a = torch.randn(50, 1, 9, generator=generator).expand(50, 64, 9) + 1e-4 * torch.randn(
        50, 64, 9, generator=generator
    )
    signs = torch.tensor([1.0, -1.0]).repeat(32).view(1, 64, 1)
    b = torch.randn(50, 1, 5, generator=generator) * signs
    plain = ((a @ a.mT) * (b @ b.mT)).sum((1, 2)).double()
    true = squares(outer_sum(a, b))
    assert torch.any(plain < true * 0.99)  # the named wrong way
    assert torch.all(Outer(a, b, (5, 9)).measured()[0] >= true)


@pytest.mark.parametrize("swap", [False, True])
def test_p14_ghost_norms_know_what_underflows(*, swap: bool) -> None:
    """Inputs of 2^-75 have squares that float32 holds as zero; gradients of 2^59 make up for it."""
    small, large = torch.full((1, 2, 100), 2.0**-75), torch.full((1, 2, 100), 2.0**55)
    a, b = (large, small) if swap else (small, large)
    plain = ((a @ a.mT) * (b @ b.mT)).sum((1, 2)).double()
    true = squares(outer_sum(a, b))
    assert plain[0] < true[0] / 2  # the named wrong way
    assert Outer(a, b, (100, 100)).measured()[0][0] >= true[0]
    tied = Tied(
        Outer(a, b, (100, 100)),
        Lookups(torch.zeros(1, 1, dtype=torch.long), small[:, :1], (100, 100)),
    )
    assert tied.measured()[0][0] >= squares(tied.dense().values.double())[0] * (1 - 1e-6)


def test_an_overflow_is_not_taken_for_a_record_that_is_not_finite() -> None:
    a = b = torch.full((1, 2, 4), 2.0**40)
    norms, spreads = Outer(a, b, (4, 4)).measured()
    assert norms.isfinite().all()
    assert norms[0] >= squares(outer_sum(a, b))[0] * (1 - 1e-12)
    assert norms[0] <= spreads[0]


# --- several uses of one parameter ---


def used(value: ViewOf | TableRows | Derived, factor: Factor) -> Use:
    return Use(value, 0, factor, lifted=list(value.lift(factor)))


def total_of(pieces: tuple[Piece, ...], numel: int) -> Tensor:
    total = torch.zeros(numel, dtype=torch.float64)
    for piece in pieces:
        factor = piece.factor
        factor.add_to(
            piece.place_in(total),
            torch.ones(factor.records, dtype=torch.float64),
            most_spread(factor.positions),
        )
    return total


@pytest.mark.parametrize("overlap", [False, True])
def test_slices_of_one_parameter(*, overlap: bool) -> None:
    """Apart, their squared norms add up; where they overlap, they are added up first (P03)."""
    weight = torch.nn.Parameter(torch.zeros(6, 4, dtype=torch.float64))
    views = (weight[:3], weight[2:] if overlap else weight[3:])
    regions = [view_of(view, weight) for view in views]
    factors = [
        Dense(numbers(n, 5, *view.shape, kind=torch.float64)) for n, view in enumerate(views)
    ]
    uses = [
        used(ViewOf(v, "w", r), f)
        for v, r, f in zip(views, regions, factors, strict=True)
        if r is not None
    ]
    pieces = gathered(uses, {"w": weight}, lambda _, factor: factor)["w"]
    true = torch.zeros(5, 6, 4, dtype=torch.float64)
    true[:, :3] += factors[0].values
    true[:, 2 if overlap else 3 :] += factors[1].values
    assert len(pieces) == (1 if overlap else 2)
    norms, _ = Contributions({"w": pieces}, 5, 5).measured(["w"])
    assert torch.allclose(norms[:, 0], squares(true))
    assert torch.allclose(total_of(pieces, 24), true.sum(0).flatten())


def test_every_mixture_of_forms_is_one_gradient() -> None:
    weight = torch.nn.Parameter(torch.zeros(5, 3, dtype=torch.float64))
    part = ViewOf(weight, "w", whole_region(weight))
    a, b = numbers(1, 4, 2, 3, kind=torch.float64), numbers(2, 4, 2, 5, kind=torch.float64)
    ids, looked = torch.randint(5, (4, 6)), numbers(3, 4, 6, 3, kind=torch.float64)
    forms: list[tuple[Factor, Tensor]] = [
        (Outer(a, b, (5, 3)), outer_sum(a, b)),
        (Lookups(ids, looked, (5, 3)), row_sum(ids, looked, 5)),
        (Outer(a, b, (5, 3)).dense(), outer_sum(a, b)),
    ]
    for chosen in ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 0, 1, 1)):
        (piece,) = gathered(
            [used(part, forms[n][0]) for n in chosen], {"w": weight}, lambda _, factor: factor
        )["w"]
        true = torch.stack([forms[n][1] for n in chosen]).sum(0)
        assert_factor(piece.factor, true, 1e-10)


def test_all_tensors_of_a_factor_are_found() -> None:
    """What is not found is not watched, and could be written to before the sums are made."""
    outer = Outer(tensor(2, 3, 4), tensor(2, 3, 5), (5, 4))
    lookups = Lookups(torch.zeros(2, 3, dtype=torch.long), tensor(2, 3, 4), (5, 4))
    expected = [outer.a, outer.b, lookups.ids, lookups.b]

    found = tensors_of(Tied(outer, lookups))
    assert {id(part) for part in found} == {id(part) for part in expected}
    assert len(found) == len(expected)
    nested = tensors_of([{"a": (outer.a,)}, 3, None, "text", Dense(outer.b)])
    assert {id(part) for part in nested} == {id(outer.a), id(outer.b)}
