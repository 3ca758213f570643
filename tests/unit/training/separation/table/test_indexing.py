"""Indices: values of a record may choose within the record, and never among records."""

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
        (lambda x: x[:, torch.tensor([2, 0])], numbers(B, 3), Rows(0)),
        (lambda x: x.index_select(1, torch.tensor([2])), numbers(B, 3), Rows(0)),
        (lambda x: x.gather(1, (x > 0).long()), numbers(B, 3), Rows(0)),
        (lambda x: x.scatter(1, (x[:, :1] > 0).long(), 0.0), numbers(B, 3), Rows(0)),
        (lambda x: functional.one_hot((x > 0).long(), 2), numbers(B, 3), Rows(0)),
        (lambda x: numbers(7, 5)[(x > 0).long()], numbers(B, 3), Rows(0)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: x[torch.tensor([1, 0, 3, 2])], numbers(B, 3), ""),
        (lambda x: x[torch.tensor([0, 1])], numbers(B, 3), ""),
        (lambda x: x[(x[:, 0] > 0).long()], numbers(B, 3), ""),
        (lambda x: x.gather(0, (x > 0).long()), numbers(B, 3), ""),
        (lambda x: torch.zeros(2, 3).index_add(0, torch.zeros(B).long(), x), numbers(B, 3), ""),
        (lambda x: functional.one_hot((x > 0).long()), numbers(B, 3), "leave for Python"),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
