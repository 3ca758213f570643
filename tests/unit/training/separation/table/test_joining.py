"""Side by side, copies, and views that are put back."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: torch.cat([x, x], 1), numbers(B, 3), Rows(0)),
        (lambda x: torch.cat([x, x], 0), numbers(B, 3), Rows(0, 1, 2)),
        (lambda x: torch.stack([x, x]), numbers(B, 3), Rows(1)),
        (lambda x: x.repeat(2, 1), numbers(B, 3), Rows(0, 1, 2)),
        (lambda x: x.repeat_interleave(2, 0), numbers(B, 3), Rows(0, 2)),
        (lambda x: torch.cat([x, torch.zeros(B, 2)], 1), numbers(B, 3), Rows(0)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: torch.cat([x, x[:1]], 0), numbers(B, 3), ""),
        (lambda x: torch.cat([x, numbers(B, 1)], 1), numbers(B, 3), ""),
        (lambda x: torch.stack([x[0], x[1]]), numbers(B, 3), ""),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
