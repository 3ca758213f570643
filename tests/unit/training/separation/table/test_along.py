"""Operations along axes: records stay where the operation does not run over them."""

from collections.abc import Callable

import pytest
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: x.sum(1), numbers(B, 3), Rows(0)),
        (lambda x: x.mean((1, 2), keepdim=True), numbers(B, 3, 2), Rows(0)),
        (lambda x: x.mT.amax(0), numbers(B, 3), Rows(0)),
        (lambda x: x.softmax(-1), numbers(B, 3), Rows(0)),
        (lambda x: x.cumsum(1), numbers(B, 3), Rows(0)),
        (lambda x: functional.pad(x, (1, 2)), numbers(B, 3), Rows(0)),
        (lambda x: functional.max_pool2d(x, 2), numbers(B, 3, 6, 6), Rows(0)),
        (lambda x: x.median(1).values, numbers(B, 3), Rows(0)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: x.sum(0), numbers(B, 3), "a sum over records"),
        (lambda x: x.mean(), numbers(B, 3), "runs over records"),
        (lambda x: x.amax(0), numbers(B, 3), "runs over records"),
        (lambda x: x.softmax(0), numbers(B, 3), "runs along records"),
        (lambda x: x.flip(0), numbers(B, 3), "runs along records"),
        (lambda x: functional.pad(x, (0, 0, 1, 0)), numbers(B, 3), "pads along records"),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
