"""Norms of gradients that are never formed: at or above the truth, and near it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from discreet.errors import NumericsError, ParameterError
from discreet.training.rules.convolution import norms as convolution_norms
from discreet.training.rules.convolution.geometry import Convolution
from discreet.training.rules.convolution.norms import ghost_squares
from support.convolutions import Case, cases

ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def squares(gradients: Tensor) -> Tensor:
    return gradients.double().flatten(1).square().sum(1)


def squared_spread(how: Convolution, x: Tensor, g: Tensor) -> Tensor:
    """(sum_t |a_t||n_t|)^2, summed over groups."""
    wide, narrow = how.sides(x.double(), g.double())
    lengths = how.patches(wide).norm(dim=3)
    channels = how.weight_shape[0] // how.groups
    vectors = narrow.reshape(len(wide), how.groups, channels, lengths.shape[2])
    square: Tensor = (lengths * vectors.norm(dim=2)).sum(2).square().sum(1)
    return square


def check_bounds(how: Convolution, x: Tensor, g: Tensor) -> None:
    """At or above the truth and the computed gradients, near the truth, for both ways to the Gram
    matrix of windows.
    """
    truth = squares(
        how.unfolded(x.double(), g.double())
    )  # exact enough for float32; for float64 the slack covers it
    exact = 1.0 if x.dtype == torch.float32 else 1.0 - 1e-13
    positions = math.prod(how.sides(x, g)[1].shape[2:])
    terms = how.window + how.weight_shape[0] + positions + 8
    true_spread, slack = squared_spread(how, x, g), 8 * terms * ROUNDOFF[x.dtype] + 1e-11
    most = truth + slack * true_spread + 1e-30
    for shifts in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                convolution_norms, "_shifts_pay", lambda how, sizes, shifts=shifts: shifts
            )
            bound, spread = ghost_squares(how, x, g)
        assert bool((spread >= true_spread * (1.0 - 1e-13)).all()), (spread, true_spread)
        assert bool(
            (spread <= true_spread * (1.0 + slack) + 1e-15 * (true_spread.sqrt() + 1.0)).all()
        )
        assert bound.dtype == torch.float64
        assert bool((bound >= truth * exact).all()), (bound, truth)
        assert bool((bound >= squares(how.unfolded(x, g)) * (1.0 - 1e-15)).all())
        assert bool((bound <= most).all()), (bound, most)


@given(cases())
@settings(max_examples=100, deadline=None)
def test_bounds_hold_and_are_near_the_truth(case: Case) -> None:
    check_bounds(case.how, case.x, case.g)


def test_p07_bounds_hold_for_a_strided_dilated_padded_grouped_convolution() -> None:
    torch.manual_seed(5)
    how = Convolution.of((4, 3, 3, 2), stride=(2, 1), padding=(1, 2), dilation=(1, 2), groups=2)
    x = torch.randn(6, 6, 9, 8)
    check_bounds(how, x, torch.randn(6, 4, *how.positions((9, 8))))


def cancelling() -> tuple[Convolution, Tensor, Tensor]:
    """Windows that are all but equal, with output gradients that all but cancel."""
    torch.manual_seed(0)
    x = 1000.0 + torch.randn(64, 8, 6, 6)
    g = torch.randn(64, 4, 6, 6)
    return Convolution.of((4, 8, 3, 3)), x, (g - g.mean((2, 3), keepdim=True))[..., :4, :4]


def test_p14_a_float32_ghost_norm_is_below_the_truth_and_the_bound_is_not() -> None:
    how, x, g = cancelling()
    g = g - g.mean((2, 3), keepdim=True)
    a, b = how.patches(x).squeeze(1), g.flatten(2).transpose(1, 2)
    naive = ((a @ a.transpose(1, 2)) * (b @ b.transpose(1, 2))).sum((1, 2))
    truth = squares(how.unfolded(x.double(), g.double()))
    assert bool(
        (naive < 0.999 * truth).any()
    )  # the named wrong implementation is caught by what follows
    check_bounds(how, x, g)


@pytest.mark.parametrize("scale", [1e-19, 1e-22, 1e-30])
def test_numbers_whose_squares_underflow_keep_a_bound_above_the_truth(scale: float) -> None:
    torch.manual_seed(1)
    check_bounds(
        Convolution.of((3, 2, 3), padding=1), scale * torch.randn(4, 2, 7), torch.randn(4, 3, 7)
    )
    check_bounds(
        Convolution.of((3, 2, 3), padding=1), torch.randn(4, 2, 7), scale * torch.randn(4, 3, 7)
    )


@pytest.mark.parametrize("side", ["x", "g"])
@pytest.mark.parametrize("worst", [float("nan"), float("inf"), 1e30])
def test_p13_a_record_that_is_not_finite_has_an_infinite_norm_and_others_keep_theirs(
    worst: float, side: str
) -> None:
    torch.manual_seed(2)
    how, x, g = (
        Convolution.of((4, 1, 3, 3), padding=1, groups=2),
        torch.randn(5, 2, 4, 4),
        torch.randn(5, 4, 4, 4),
    )
    clean = ghost_squares(how, x, g)[0]
    (x if side == "x" else g)[2, 0, 1, 1] = worst
    found = ghost_squares(how, x, g)[0]
    others = [0, 1, 3, 4]
    assert float(found[2]) == float("inf")
    assert torch.equal(found[others], clean[others])


def test_zeros_have_almost_no_norm() -> None:
    how = Convolution.of((3, 2, 3))
    assert float(ghost_squares(how, torch.zeros(1, 2, 9), torch.zeros(1, 3, 7))[0]) < 1e-30
    assert ghost_squares(how, torch.zeros(0, 2, 9), torch.zeros(0, 3, 7))[0].shape == (0,)


def test_windows_are_copied_out_where_they_do_not_overlap() -> None:
    assert convolution_norms._shifts_pay(Convolution.of((128, 128, 3, 3), padding=1), (8, 8))
    assert not convolution_norms._shifts_pay(
        Convolution.of((768, 3, 16, 16), stride=16), (224, 224)
    )


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("channels", [1, 6, 32])
def test_a_records_bits_do_not_depend_on_the_number_of_others(channels: int, kernel: int) -> None:
    """Assumption A of docs/proofs/sums.md, for the library at hand: measured here, not proven."""
    torch.manual_seed(3)
    how = Convolution.of((8, channels, kernel, kernel), padding=1)
    x = torch.randn(33, channels, 6, 6)
    g = torch.randn(33, 8, *how.positions((6, 6)))
    for run in (how.folded, how.unfolded, lambda x, g: ghost_squares(how, x, g)[0]):
        everything = run(x, g)
        for some in (slice(0, 1), slice(4, 5), slice(7, 9), slice(1, 17), slice(2, 33)):
            assert torch.equal(run(x[some].clone(), g[some].clone()), everything[some])


def test_several_pieces_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(4)
    how, x, g = (
        Convolution.of((8, 16, 3, 3), padding=1),
        torch.randn(23, 16, 6, 6),
        torch.randn(23, 8, 6, 6),
    )
    whole = ghost_squares(how, x, g)[0]
    monkeypatch.setattr(convolution_norms, "_CACHE", 5 * 36 * 36 * 4)
    assert torch.equal(ghost_squares(how, x, g)[0], whole)


def test_p21_half_precision_is_refused_and_autocast_changes_nothing() -> None:
    how, x, g = Convolution.of((3, 2, 3)), torch.randn(2, 2, 9), torch.randn(2, 3, 7)
    with pytest.raises(ParameterError, match="float32 or float64"):
        ghost_squares(how, x.bfloat16(), g.bfloat16())
    plain = ghost_squares(how, x, g)[0]
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ghost_squares(how, x, g)[0], plain)


def test_a_setting_for_short_factors_is_refused() -> None:
    how, x, g = Convolution.of((3, 2, 3)), torch.randn(2, 2, 9), torch.randn(2, 3, 7)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(NumericsError, match="full precision"):
            ghost_squares(how, x, g)[0]
    finally:
        torch.set_float32_matmul_precision(before)
