"""Tables that are looked up by the indices of records."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from discreet.training.separation.states import Rows
from support.states import B, assert_follows, assert_joins, numbers

Function = Callable[[Tensor], Tensor]

IDS = torch.arange(2 * B).reshape(B, 2) % 7


@pytest.mark.parametrize(
    ("function", "batch", "expected"),
    [
        (lambda x: functional.embedding(x, numbers(7, 3)), IDS, Rows(0)),
        (lambda x: functional.embedding(x.mT, numbers(7, 3)), IDS, Rows(1)),
        (lambda x: functional.embedding_bag(x, numbers(7, 3)), IDS, Rows(0)),
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
            lambda x: functional.embedding(x, numbers(7, 3), scale_grad_by_freq=True),
            IDS,
            "how often all records have an entry",
        ),
        (
            lambda x: functional.embedding_bag(x.flatten(), numbers(7, 3), torch.tensor([0, 3])),
            IDS,
            "bags that do not fit the records",
        ),
        (
            lambda x: functional.embedding_bag(
                x.flatten(), numbers(7, 3), torch.tensor([0, 1, 4, 6])
            ),
            IDS,
            "a bag of several records",
        ),
    ],
)
def test_what_would_join_records_or_depend_on_their_place_is_not_claimed(
    function: Function, batch: Tensor, words: str
) -> None:
    assert_joins(function, batch, words)
