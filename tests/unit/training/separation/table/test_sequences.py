"""Attention and recurrent layers: records are in the batch, and attend to themselves."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]

HEADS = numbers(B, 2, 5, 8)
BATCH_FIRST, TIME_FIRST = torch.nn.LSTM(3, 5, batch_first=True), torch.nn.LSTM(3, 5)


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: functional.scaled_dot_product_attention(x, x, x), HEADS, Rows(0)),
        (
            lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
            HEADS,
            Rows(0),
        ),
        (lambda x: BATCH_FIRST(x)[0], numbers(B, 6, 3), Rows(0)),
        (lambda x: TIME_FIRST(x.transpose(0, 1))[0], numbers(B, 6, 3), Rows(1)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (
            lambda x: functional.scaled_dot_product_attention(
                x.transpose(0, 2), x.transpose(0, 2), x.transpose(0, 2)
            ),
            HEADS,
            "",
        ),
        (lambda x: TIME_FIRST(x)[0], numbers(B, 6, 3), ""),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
