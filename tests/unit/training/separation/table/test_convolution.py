"""Convolutions: a row of the batch by itself, and groups of channels that are records."""

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
        (lambda x: functional.conv2d(x, numbers(5, 3, 2, 2)), numbers(B, 3, 6, 6), Rows(0)),
        (lambda x: functional.conv1d(x, numbers(5, 3, 2), numbers(5)), numbers(B, 3, 6), Rows(0)),
        (
            lambda x: functional.conv_transpose1d(x, numbers(3, 5, 2)),
            numbers(B, 3, 6),
            Rows(0),
        ),
        (
            lambda x: functional.conv1d(x[None], numbers(1, 1, 2).repeat(B, 1, 1), groups=B),
            numbers(B, 6),
            Rows(1),
        ),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: functional.conv1d(x[None], numbers(5, B, 2)), numbers(B, 6), ""),
        (lambda x: functional.conv1d(x[None], numbers(B, 1, 2), groups=B), numbers(B, 6), ""),
        (lambda x: functional.conv1d(x.mT[None], numbers(5, 6, 2)), numbers(B, 6), ""),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
