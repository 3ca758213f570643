"""Weights that are combined with records number by number, or repeated for each record."""

import torch
from hypothesis import given
from torch import Tensor

from support.written import KINDS, SIZES, Written, check, draw, few


@few
@given(SIZES, SIZES, SIZES, KINDS)
def test_a_weight_that_stands_in_two_places(m: int, t: int, e: int, kind: torch.dtype) -> None:
    """Wrong: two copies of one weight, of which only one gets a gradient."""
    check(
        lambda s, x: torch.addcmul(x, s.w, s.w) + s.w,
        draw(m, t, e, kind=kind),
        values={"w": draw(e, kind=kind)},
    )


@few
@given(SIZES, SIZES, SIZES, KINDS)
def test_records_that_are_folded_with_positions(m: int, t: int, e: int, kind: torch.dtype) -> None:
    """Wrong: copies in the order of the records, where the rows go position by position."""

    def folded(s: Written, x: Tensor) -> Tensor:
        inner = (x.reshape(-1, e) * s.get_parameter("w")).view(x.shape)
        outer = x.transpose(0, 1).reshape(-1, e) + s.get_parameter("w")
        return inner * outer.view(t, -1, e).transpose(0, 1)

    check(folded, draw(m, t, e, kind=kind), values={"w": draw(e, kind=kind)})


@few
@given(SIZES, SIZES, SIZES, KINDS)
def test_repetitions_within_a_record_add_up(m: int, t: int, e: int, kind: torch.dtype) -> None:
    """Wrong: the gradient of one of the repetitions."""

    def repeated(s: Written, x: Tensor) -> Tensor:
        token = s.get_parameter("w").expand(len(x), t, e)
        tiles = s.get_parameter("v").repeat(len(x), t, 1)
        return x * token + tiles * x.square()

    values = {"w": draw(1, 1, e, kind=kind), "v": draw(1, 1, e, kind=kind)}
    check(repeated, draw(m, t, e, kind=kind), values=values)


def test_a_weight_in_the_places_of_a_mask() -> None:
    """Wrong: the gradient of all places, also of those that keep their number."""
    check(lambda s, x: x.masked_fill(x > 0.0, s.w), draw(5, 4), values={"w": draw()})
