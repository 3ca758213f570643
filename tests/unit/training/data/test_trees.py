"""Structures of leaves: the same structure comes out, with the right rows of every leaf."""

from collections import OrderedDict, UserDict, defaultdict
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BatchEncoding

from discreet.errors import ModelError
from discreet.training.data.trees import (
    Portion,
    begun,
    check_rows,
    count_rows,
    joined,
    leaves,
    mapped,
    refilled,
    select,
    tensors_in,
)
from discreet.training.separation.states import OneByOne


class Pair(NamedTuple):
    """A batch as users name it."""

    x: Any
    y: Any


class Encoding(UserDict[str, Any]):
    """As that of tokenizers: a mapping with attributes, and with something beside its entries."""

    def __init__(self, data: Any = None) -> None:
        super().__init__(data)
        self.texts: list[str] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("data", {}):
            return self.data[name]
        raise AttributeError(name)


def nested(rows: int = 4) -> dict[str, Any]:
    x = torch.arange(2.0 * rows).reshape(rows, 2)
    return {
        "x": x,
        "pair": Pair(x[:, 0].long(), None),
        "list": [x + 1.0, (x + 2.0,)],
        "texts": [f"text {row}" for row in range(rows)],
        "numbers": tuple(range(rows)),
        "array": np.arange(rows),
        "scale": 3,
        "constant": torch.tensor(2.0),
        "empty": (),
    }


def test_rows_are_those_of_every_leaf() -> None:
    chosen = select(nested(), torch.tensor([2, 0, 2]))
    assert chosen["x"].tolist() == [[4.0, 5.0], [0.0, 1.0], [4.0, 5.0]]
    assert isinstance(chosen["pair"], Pair)
    assert chosen["pair"].x.tolist() == [4, 0, 4]
    assert chosen["pair"].y is None
    assert chosen["list"][1][0].tolist() == [[6.0, 7.0], [2.0, 3.0], [6.0, 7.0]]
    assert chosen["texts"] == ["text 2", "text 0", "text 2"]
    assert chosen["numbers"] == (2, 0, 2)
    assert chosen["array"].tolist() == [2, 0, 2]
    assert chosen["scale"] == 3
    assert float(chosen["constant"]) == 2.0
    assert chosen["empty"] == ()


def test_a_portion_has_the_rows_of_its_places() -> None:
    whole = Portion.of([torch.arange(10, 16), torch.arange(6.0)])
    assert Portion.of(whole) is whole
    part = whole.at(torch.tensor([5, 1, 1]))
    assert whole.at(None) is whole
    assert part.batch is whole.batch

    # Places of places: nothing is fetched before it is taken.
    for portion in (part, whole.at(torch.tensor([1, 5, 0])).at(torch.tensor([1, 0, 0]))):
        assert portion.take(torch.tensor([0, 2]))[0].tolist() == [15, 11]
        portion.check_rows(3)
        with pytest.raises(ModelError, match="other numbers of rows"):
            portion.check_rows(6)


def test_one_row_holds_nothing_of_another() -> None:
    """What has rows and is not cut would show all records to each that is computed alone."""
    batch = [torch.zeros(3, 2), ("a", "b", "c"), np.array([[1, 2], [3, 4], [5, 6]])]
    only = select(batch, torch.tensor([1]))
    assert only[1] == ("b",)
    assert only[2].tolist() == [[3, 4]]


def test_selected_tensors_are_in_new_memory() -> None:
    x = torch.zeros(3, 2)
    assert select((x,), torch.arange(3))[0].data_ptr() != x.data_ptr()


@pytest.mark.parametrize("kind", [dict, OrderedDict, UserDict, BatchEncoding])
def test_mappings_of_libraries_keep_their_class_and_their_attributes(kind: Any) -> None:
    chosen = select(kind({"ids": torch.arange(3)}), torch.tensor([1]))
    assert type(chosen) is kind
    assert chosen["ids"].tolist() == [1]
    if kind is BatchEncoding:
        assert chosen.ids.tolist() == [1]


def test_what_a_mapping_of_the_user_has_beside_its_entries_is_left_behind() -> None:
    encoding = Encoding({"ids": torch.arange(3)})
    encoding.texts = ["a", "b", "c"]
    assert select(encoding, torch.tensor([1])) == {"ids": torch.tensor([1])}


def test_a_mapping_with_a_default_becomes_a_plain_one() -> None:
    batch: Any = defaultdict(list)
    batch["ids"] = torch.arange(3)
    assert select(batch, torch.tensor([2])) == {"ids": torch.tensor([2])}


def test_leaves_and_maps_have_one_order() -> None:
    numbers = iter(range(100))
    marked = mapped(nested(), lambda _: next(numbers))
    assert list(leaves(marked)) != []
    seen: list[Any] = []
    mapped(nested(), seen.append)
    assert [type(leaf) for leaf in seen] == [type(leaf) for leaf in leaves(nested())]
    assert marked["x"] == 0
    assert marked["pair"] == Pair(1, 2)


def test_tensors_are_found_in_every_container_in_the_order_of_maps() -> None:
    a, b, c, d = (torch.tensor(float(number)) for number in range(4))
    tensors = tensors_in(a, None, 1.0, [b, ("x", {"y": c})], OrderedDict(z=d), frozenset({1}))
    assert [float(tensor) for tensor in tensors] == [0.0, 1.0, 2.0, 3.0]
    assert tensors_in() == tensors_in(True, 2, "a", [], {}) == []
    in_maps = [leaf for leaf in leaves(nested()) if isinstance(leaf, Tensor)]
    assert all(map(torch.equal, tensors_in(nested()), in_maps))


def test_arguments_are_refilled_in_their_order() -> None:
    args = (torch.zeros(2), (3, 4), [torch.ones(1), None], {"dim": -1})
    others = [torch.full((1,), 7.0), torch.full((1,), 8.0)]
    refilled_args = refilled(args, others)
    assert others == []
    assert refilled_args == (torch.tensor([7.0]), (3, 4), [torch.tensor([8.0]), None], {"dim": -1})


def test_results_of_torch_are_refilled_too() -> None:
    result = torch.max(torch.eye(2), 1)
    again = refilled(result, [torch.ones(2), torch.zeros(2)])
    assert type(again) is type(result)
    assert again.values.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("batch", "counts"),
    [
        (torch.zeros(3, 2), {3}),
        (torch.tensor(1.0), set()),
        ((torch.zeros(3), torch.zeros(4, 1)), {3, 4}),
        ({"x": torch.zeros(2), "texts": ["a", "b"], "none": None, "empty": []}, {2}),
        ([torch.zeros(2), ("a", "b", "c")], {2, 3}),
        ([np.zeros(5), np.float64(2.0)], {5}),
        (Pair(1, 2), set()),
        (None, set()),
    ],
)
def test_rows_are_counted(batch: Any, counts: set[int]) -> None:
    assert count_rows(batch) == counts


def test_a_batch_needs_one_row_for_each_record() -> None:
    check_rows({"x": torch.zeros(3, 2), "y": ("a", "b", "c"), "scale": 2.0, "none": None}, 3)
    for wrong in (
        torch.zeros(2),
        (torch.zeros(3), torch.zeros(4)),
        [torch.zeros(3), (28, 28)],
        None,
    ):
        with pytest.raises(ModelError, match="one row for each record"):
            check_rows(wrong, 3)


def test_objects_whose_rows_nobody_knows_are_refused() -> None:
    """They would go whole to every record that is computed alone."""

    class Graph:
        """Of all records."""

    with pytest.raises(ModelError, match="Graph"):
        check_rows((torch.zeros(3), Graph()), 3)


def test_a_pass_begins_with_tensors_and_nothing_else() -> None:
    begin = begun({"x": torch.zeros(2), "y": (torch.ones(2), None)}, lambda tensor: tensor + 1.0)
    assert begin["x"].tolist() == [1.0, 1.0]
    assert begin["y"][0].tolist() == [2.0, 2.0]
    assert begin["y"][1] is None


@pytest.mark.parametrize("other", ["text", 3, ["a", "b"], (1, 2), np.zeros(2), torch.tensor(3.0)])
def test_what_python_sees_is_computed_one_by_one(other: Any) -> None:
    batch = {"x": torch.zeros(2), "other": other}
    with pytest.raises(OneByOne, match="which Python sees"):
        begun(batch, lambda tensor: tensor)
    alone = begun(batch, lambda tensor: tensor + 1.0, strict=False)
    assert alone["x"].tolist() == [1.0, 1.0]
    if not isinstance(other, Tensor):
        assert alone["other"] is other


def test_records_that_were_computed_one_by_one_are_joined() -> None:
    batch = nested()
    parts = [select(batch, torch.tensor([row])) for row in range(4)]
    again = joined(parts)
    for leaf, other in zip(leaves(batch), leaves(again), strict=True):
        assert type(leaf) is type(other)
        if isinstance(leaf, (Tensor, np.ndarray)):
            assert leaf.tolist() == other.tolist()
        else:
            assert leaf == other
