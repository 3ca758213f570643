"""Losses that are one operation: one for each row, and never reduced over records."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]

# Lengths may be numbers, although its types say tensors.
ctc_loss: Any = functional.ctc_loss
LABELS = torch.ones(B, dtype=torch.long)


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: functional.nll_loss(x, LABELS, reduction="none"), numbers(B, 3), Rows(0)),
        (lambda x: functional.cross_entropy(x, LABELS, reduction="none"), numbers(B, 3), Rows(0)),
        (
            lambda x: functional.multi_margin_loss(x, LABELS, reduction="none"),
            numbers(B, 3),
            Rows(0),
        ),
        (
            lambda x: ctc_loss(
                x.transpose(0, 1), torch.ones(B, 2).long(), (5,) * B, (2,) * B, reduction="none"
            ),
            numbers(B, 5, 3),
            Rows(0),
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
        (lambda x: functional.nll_loss(x, LABELS), numbers(B, 3), "a loss over all records"),
        (
            lambda x: functional.nll_loss(x, torch.arange(B) % 3, reduction="none"),
            numbers(B, 3),
            "",
        ),
        (
            lambda x: ctc_loss(
                x.transpose(0, 1), torch.ones(B, 2).long(), (5, 4, 5, 5), (2,) * B, reduction="none"
            ),
            numbers(B, 5, 3),
            "other lengths for other places",
        ),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
