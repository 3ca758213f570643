"""What the records of a pass contribute: uses of one parameter are one gradient."""

import torch

from discreet.training.factors.factors import Dense, Outer
from discreet.training.passes.contributions import Contributions, Piece, alone

WHOLE = ((2, 3), (3, 1), 0)


def dense(*values: float) -> Piece:
    """One value in all places, for each record."""
    return Piece(WHOLE, Dense(torch.stack([torch.full((2, 3), value) for value in values])))


def test_norms_are_those_of_all_pieces_of_a_leaf_and_zero_where_there_is_none() -> None:
    upper, lower = (Piece(((1, 3), (3, 1), 3 * row), Dense(torch.ones(2, 1, 3))) for row in (0, 1))
    contributions = Contributions({"w": (upper, lower)}, 2, 2)
    squares, spreads = contributions.measured(["w", "unused"])
    assert squares.dtype == torch.float64
    assert (squares[:, 0] >= 6.0).all()  # at or above the truth
    expected = torch.tensor([[6.0, 0.0]] * 2, dtype=torch.float64)
    torch.testing.assert_close(squares, expected, rtol=1e-5, atol=0.0)
    assert (spreads >= squares).all()


def test_who_is_left_out_contributes_zeros_whatever_it_held() -> None:
    """P13: infinity times zero would not be zero."""
    contributions = Contributions({"w": (dense(1.0, torch.inf),)}, 2, 2)
    (piece,) = contributions.keep(torch.tensor([True, False])).pieces["w"]
    assert isinstance(piece.factor, Dense)
    assert piece.factor.values.flatten(1).sum(1).tolist() == [6.0, 0.0]


def test_padding_is_counted_or_named_row_by_row() -> None:
    assert Contributions({}, 3, 2).mask.tolist() == [True, True, False]
    mask = torch.tensor([False, True, True])
    assert Contributions({}, 3, mask).mask is mask


def test_leaves_are_joined_and_nothing_is_lost() -> None:
    first = Contributions({"w": (dense(1.0, 2.0),)}, 2, 2)
    both = first.joined_by({"metric": (dense(3.0, 4.0),)})
    assert both.pieces.keys() == {"w", "metric"}
    assert first.joined_by({}) is first


def test_a_piece_has_its_place_in_a_flat_total() -> None:
    total = torch.arange(6.0)
    piece = Piece(((2,), (3,), 1), Dense(torch.zeros(1, 2)))
    piece.place_in(total).zero_()
    assert total.tolist() == [0.0, 0.0, 2.0, 3.0, 0.0, 5.0]


def test_numbers_of_positions_are_told() -> None:
    outer = Piece(WHOLE, Outer(torch.ones(2, 7, 3), torch.ones(2, 7, 2), (2, 3)))
    contributions = Contributions({"w": (outer,), "v": (dense(1.0, 1.0),)}, 2, 2)
    assert 7 in contributions.positions(["w", "v"])
    assert 7 not in contributions.positions(["v"])


def test_one_record_by_itself() -> None:
    contributions = alone({"w": torch.full((2, 3), 2.0)})
    assert (contributions.records, contributions.mask.tolist()) == (1, [True])
    squares, _ = contributions.measured(["w"])
    assert 24.0 <= float(squares) < 24.001
