"""Products of matrices: records are rows, and never meet each other."""

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
        (lambda x: x @ numbers(3, 5), numbers(B, 3), Rows(0)),
        (lambda x: numbers(5, 3) @ x.mT, numbers(B, 3), Rows(1)),
        (lambda x: functional.linear(x, numbers(5, 3), numbers(5)), numbers(B, 2, 3), Rows(0)),
        (lambda x: x @ x.mT, numbers(B, 3, 2), Rows(0)),
        (lambda x: torch.cdist(x, numbers(5, 3)), numbers(B, 3), Rows(0)),
        (lambda x: torch.einsum("bi,bi->b", x, x), numbers(B, 3), Rows(0)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: x @ x.mT, numbers(B, 3), ""),
        (lambda x: x.mT @ numbers(B, 5), numbers(B, 3), ""),
        (lambda x: torch.cdist(x, x), numbers(B, 3), ""),
        (lambda x: torch.addmm(numbers(B, 5), x, numbers(3, 5)), numbers(B, 3), ""),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
