"""Which entries may be stacked at once, and how one is copied."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from discreet.training.data.entries import NotPlain, are_alike, is_in_fixed_memory, plain_copy


class Pair(NamedTuple):
    x: Any
    y: Any


class Own(list[Any]):
    """A class of the user's, which could say itself how it is copied."""


ENTRY: dict[str, Any] = {
    "x": torch.zeros(2),
    "pair": Pair(np.ones(2), [1, 2.5]),
    "word": "a",
    "none": None,
}


def test_a_copy_is_equal_and_in_memory_of_its_own() -> None:
    copied = plain_copy(ENTRY)
    assert list(copied) == list(ENTRY)
    assert type(copied["pair"]) is Pair
    ENTRY["x"].add_(1.0)
    assert float(copied["x"].sum()) == 0.0
    ENTRY["x"].zero_()
    assert plain_copy(np.float32(2.0)) == 2.0


@pytest.mark.parametrize("kind", [np.ndarray, np.recarray])
def test_t11_an_entry_of_a_structured_array_is_a_view_and_copied(kind: type) -> None:
    buffer: Any = np.zeros(2, [("x", "f4", (2,)), ("y", "i8")]).view(kind)
    copied = plain_copy({"row": buffer[0]})
    buffer["x"][0] = 1.0
    assert copied["row"]["x"].tolist() == [0.0, 0.0]
    assert are_alike([buffer[0], buffer[1]])
    assert not are_alike([buffer[0], np.zeros(1, [("x", "f4", (2,))]).view(kind)[0]])


@pytest.mark.parametrize(
    "part",
    [
        np.array([(None,)], [("x", object)])[0],
        Own([1]),
        object(),
        torch.eye(2).to_sparse(),
        np.array([None]),
    ],
)
def test_what_has_code_of_its_own_is_not_copied(part: Any) -> None:
    with pytest.raises(NotPlain):
        plain_copy([part])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (1, 1.0),
        (True, 1),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2), torch.zeros(3)),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: 0}, {True: 0}),
        ([1, 2], [1]),
        ((1, 2), [1, 2]),
        ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2.0}]}),
    ],
)
def test_entries_of_other_forms_are_not_alike(first: Any, second: Any) -> None:
    assert are_alike([first, first, first])
    assert not are_alike([first, first, second])


def test_rows_of_plain_tensors_are_in_fixed_memory() -> None:
    tensors = TensorDataset(torch.zeros(4, 2))
    assert is_in_fixed_memory(tensors)
    assert is_in_fixed_memory(Subset(ConcatDataset([tensors, tensors]), [1, 2]))
    assert not is_in_fixed_memory([1, 2])
    assert not is_in_fixed_memory(ConcatDataset([tensors, Derived(torch.zeros(4, 2))]))


class Derived(TensorDataset):
    """May do anything when an entry is fetched."""
