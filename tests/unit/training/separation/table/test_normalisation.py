"""Normalisation: over what one record has, or by statistics that no record made."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]

ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: functional.layer_norm(x, (3,)), numbers(B, 3), Rows(0)),
        (lambda x: functional.group_norm(x, 2), numbers(B, 6, 5), Rows(0)),
        (lambda x: functional.rms_norm(x, (3,)), numbers(B, 3), Rows(0)),
        (lambda x: functional.batch_norm(x, numbers(3), ONES), numbers(B, 3), Rows(0)),
    ],
)
def test_records_stay_apart_and_are_found_where_they_are(
    function: Function, batch: Tensor, expected: Rows
) -> None:
    assert_follows(function, batch, expected)


@pytest.mark.parametrize(
    ("function", "batch", "words"),
    [
        (lambda x: functional.layer_norm(x, (B, 3)), numbers(B, 3), ""),
        (lambda x: functional.layer_norm(x.mT, (B,)), numbers(B, 3), ""),
        (lambda x: functional.batch_norm(x, None, None, training=True), numbers(B, 3), ""),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
