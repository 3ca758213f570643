"""T06 and T07 once more: code of users' objects, and random numbers that are known.

Each test names the wrong implementation that it catches.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from discreet.training.data.trees import select
from discreet.training.separation.doors import Doors
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows

RECORDS = 4


def followed(compute: Callable[[Tensor], Tensor]) -> None:
    """Prove what a function makes of four records, as the engine does."""
    proof = Proof(RECORDS)
    x = proof.begin(torch.ones(RECORDS, 3), Rows(0))
    with proof, Doors(proof):
        result = compute(x)
    proof.check()
    proof.require_rows(result, Rows(0), "the result")


class Index:
    """Reads a number where neither mode looks."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __index__(self) -> int:
        return int(self.x.numpy().min() > 5)


class Duck:
    def __init__(self, x: Tensor) -> None:
        self.x = x

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor:
        del func, types, kwargs
        return torch.tensor(float(args[0].x.numpy().min()))


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x * torch.tensor([1.0, -1.0])[Index(x)],
        lambda x: x * torch.ones(3)[: Index(x) or 3],
        lambda x: x * torch.add(Duck(x), 1.0),  # type: ignore[call-overload]
        lambda x: x * torch.ones(2, 3)[(Index(x), 0)],
    ],
    ids=["index", "slice", "operand", "in a tuple"],
)
def test_t07_torch_asks_no_object_of_the_user_for_numbers(
    compute: Callable[[Tensor], Tensor],
) -> None:
    """Wrong: objects are passed on, and torch calls their methods with the modes off."""
    with pytest.raises(OneByOne, match="whose code runs where nobody looks"):
        followed(compute)


def test_t07_numbers_in_lists_tuples_and_arrays_are_no_objects() -> None:
    followed(lambda x: x[:, [0, 1]] * torch.ones(2)[:2].expand(RECORDS, 2).sum((0,), keepdim=True))


class Looking(UserDict[str, Tensor]):
    built = 0

    def __init__(self, parts: Mapping[str, Tensor]) -> None:
        super().__init__(parts)
        type(self).built += 1


def test_t07_classes_of_users_are_not_built_again_with_rows_of_others() -> None:
    """Wrong: `type(batch)(parts)`, whose constructor sees all rows with no mode on."""
    batch = Looking({"x": torch.arange(8.0).view(4, 2)})
    Looking.built = 0
    rows = select(batch, torch.tensor([2]))
    assert type(rows) is dict
    assert rows["x"].tolist() == [[4.0, 5.0]]
    assert Looking.built == 0


def read(x: Tensor) -> Tensor:
    numbers = torch.rand(RECORDS)
    same: Tensor = numbers == numbers[0].item()
    return x * same.view(-1, 1)


def summed(x: Tensor) -> Tensor:
    numbers = torch.rand(RECORDS)
    return x * (numbers == numbers[:1].sum()).view(-1, 1)


def listed(x: Tensor) -> Tensor:
    numbers = torch.rand(RECORDS)
    same: Tensor = numbers == numbers[:1].tolist()[0]
    return x * same.view(-1, 1)


@pytest.mark.parametrize("compute", [read, summed, listed])
def test_t06_random_numbers_that_were_looked_at_tell_places_apart(
    compute: Callable[[Tensor], Tensor],
) -> None:
    """Wrong: numbers stay "drawn for each record by itself" after one of them was read."""
    with pytest.raises(OneByOne):
        followed(compute)


def forked(x: Tensor) -> Tensor:
    with torch.random.fork_rng():
        known = torch.rand(()).item()
    same: Tensor = torch.rand(RECORDS) == known
    return x * same.view(-1, 1)


def set_back(x: Tensor) -> Tensor:
    state = torch.get_rng_state()
    first = torch.rand(RECORDS)
    torch.set_rng_state(state)
    return x * (first == torch.rand(RECORDS, 2)[:, 0]).view(-1, 1)


@pytest.mark.parametrize("compute", [forked, set_back])
def test_t06_random_numbers_are_not_drawn_twice(compute: Callable[[Tensor], Tensor]) -> None:
    """Wrong: the seed is compared, and not where the generator stands."""
    with pytest.raises(OneByOne, match="sets it back"):
        followed(compute)


def test_random_numbers_after_a_choice_of_layers_are_still_drawn_for_each_record() -> None:
    """A layer that is left out at random, as transformers do it, must not cost the proof."""

    def layer_drop(x: Tensor) -> Tensor:
        if torch.rand([]) < 2.0:
            x = torch.nn.functional.dropout(x, 0.5)
        return x

    followed(layer_drop)
