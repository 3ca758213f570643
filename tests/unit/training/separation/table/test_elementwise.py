"""Entry by entry: records stay in their place, and constants are the same for all of them."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: x.exp() * 2.0, numbers(B, 3), Rows(0)),
        (lambda x: x + numbers(3), numbers(B, 3), Rows(0)),
        (lambda x: x.mT * x.mT, numbers(B, 3), Rows(1)),
        (lambda x: functional.mse_loss(x, x, reduction="none"), numbers(B, 3), Rows(0)),
        (lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0])), numbers(B, 3), Rows(0)),
        (lambda x: torch.where(x > 0, x, 0.0), numbers(B, 3), Rows(0)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: x + numbers(B, 1), numbers(B, 3), ""),
        (lambda x: x + x.mT, numbers(B, B), ""),
        (lambda x: functional.mse_loss(x, x), numbers(B, 3), "a loss over all records"),
        (lambda x: torch.isin(x, x[:1]), numbers(B, 3), ""),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
