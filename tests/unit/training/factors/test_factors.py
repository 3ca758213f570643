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

from discreet.training.factors.factors import Dense, Factor, Outer, Rows, Tied
from discreet.training.factors.lengths import squares_together
from discreet.training.passes.contributions import Contributions, Piece, gathered
from discreet.training.rounding import products
from discreet.training.rounding.norms import row_squares
from discreet.training.rounding.precision import chunk_for, most_spread
from discreet.training.rules.call import Use
from discreet.training.rules.weights import Computed, Looked, Part, view_of, whole
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
    assert_factor(Rows(ids, b, (5, width)), row_sum(ids, b, 5), 10 * TOLERANCE[kind])


@few
@given(st.integers(0, 99), st.sampled_from([1, 3]), SIZES, SIZES, SIZES, KINDS)
def test_tied(seed: int, m: int, s: int, t: int, width: int, kind: torch.dtype) -> None:
    a, b = numbers(seed, m, s, width, kind=kind), numbers(seed + 1, m, s, 5, kind=kind)
    ids = torch.randint(-1, 5, (m, t), generator=torch.Generator().manual_seed(seed))
    looked = numbers(seed + 2, m, t, width, kind=kind)
    factor = Tied(Outer(a, b, (5, width)), Rows(ids, looked, (5, width)))
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
    Outer(torch.tensor([[[1.0], [1.0]], [[math.nan], [1.0]], [[math.inf], [0.0]]]), torch.ones(3, 2, 1), (1, 1)),
    Rows(torch.zeros(3, 2, dtype=torch.long), torch.tensor([[[1.0], [1.0]], [[math.nan], [1.0]], [[math.inf], [1.0]]]), (2, 1)),
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
        Outer(a, b, (100, 100)), Rows(torch.zeros(1, 1, dtype=torch.long), small[:, :1], (100, 100))
    )
    assert tied.measured()[0][0] >= squares(tied.dense().values.double())[0] * (1 - 1e-6)


def test_an_overflow_is_not_taken_for_a_record_that_is_not_finite() -> None:
    a = b = torch.full((1, 2, 4), 2.0**40)
    norms, spreads = Outer(a, b, (4, 4)).measured()
    assert norms.isfinite().all()
    assert norms[0] >= squares(outer_sum(a, b))[0] * (1 - 1e-12)
    assert norms[0] <= spreads[0]


@few
@given(st.integers(0, 99), st.sampled_from([1, 511, 512, 513, 1500]), KINDS)
def test_squares_of_rows_are_rounded_up(seed: int, width: int, kind: torch.dtype) -> None:
    rows = numbers(seed, 3, width, kind=kind)
    exact = [math.fsum(x * x for x in row) for row in rows.double().tolist()]
    assert all(a >= b * (1 - 1e-15) for a, b in zip(row_squares(rows).tolist(), exact, strict=True))
    assert torch.allclose(row_squares(rows), torch.tensor(exact, dtype=torch.float64), rtol=1e-4)


# --- several uses of one parameter ---


def used(value: Part | Looked | Computed, factor: Factor) -> Use:
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
        used(Part(v, "w", r), f)
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
    part = Part(weight, "w", whole(weight))
    a, b = numbers(1, 4, 2, 3, kind=torch.float64), numbers(2, 4, 2, 5, kind=torch.float64)
    ids, looked = torch.randint(5, (4, 6)), numbers(3, 4, 6, 3, kind=torch.float64)
    forms: list[tuple[Factor, Tensor]] = [
        (Outer(a, b, (5, 3)), outer_sum(a, b)),
        (Rows(ids, looked, (5, 3)), row_sum(ids, looked, 5)),
        (Outer(a, b, (5, 3)).dense(), outer_sum(a, b)),
    ]
    for chosen in ((0, 0), (1, 1), (0, 1), (0, 2), (1, 2), (0, 1, 2), (0, 0, 1, 1)):
        (piece,) = gathered(
            [used(part, forms[n][0]) for n in chosen], {"w": weight}, lambda _, factor: factor
        )["w"]
        true = torch.stack([forms[n][1] for n in chosen]).sum(0)
        assert_factor(piece.factor, true, 1e-10)


def test_a_view_beside_the_parameter_is_not_a_part_of_it() -> None:
    memory = torch.zeros(10)
    parameter = torch.nn.Parameter(memory[2:8])
    assert view_of(parameter[1:3], parameter) == ((2,), (1,), 1)
    assert view_of(memory[0:4], parameter) is None
    assert view_of(memory[6:10], parameter) is None
    assert (
        view_of(parameter.detach().as_strided((4, 2), (1, 1)), parameter) is None
    )  # overlaps itself
    assert view_of(torch._neg_view(parameter.detach()), parameter) is None
    assert view_of(parameter * 1.0, parameter) is None


class OneByOne(torch.autograd.Function):
    """Its backward cannot take several gradients at once."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 3.0

    @staticmethod
    def backward(ctx: object, *gradients: Tensor) -> Tensor:
        return torch.tensor((gradients[0] * 3.0).tolist(), dtype=torch.float64)


@pytest.mark.parametrize("batched", [True, False])
def test_values_computed_from_parameters(*, batched: bool) -> None:
    one, two = (torch.nn.Parameter(numbers(n, 4, kind=torch.float64)) for n in (1, 2))
    tensor = one.exp() * two if batched else OneByOne.apply(one.exp()) * two  # type: ignore[no-untyped-call]
    values = numbers(3, 3, 4, kind=torch.float64)
    found = {
        leaf: f for leaf, _, f in Computed(tensor, (("one", one), ("two", two))).lift(Dense(values))
    }
    scale = 1.0 if batched else 3.0
    assert_factor(found["one"], scale * values * (one.exp() * two).detach(), 1e-10)
    assert_factor(found["two"], scale * values * one.exp().detach(), 1e-10)


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
    rows = Rows(torch.zeros(4, 1, dtype=torch.int64), tensor(4, 1, 3), (2, 3))
    for factor in (several, long, rows, Dense(tensor(4)), Dense(tensor(0, 3))):
        assert squares_together([Dense(tensor(4, 3)), factor]) is None
    assert squares_together([]) is None


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
