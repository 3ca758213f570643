"""A mapping that cannot be changed: order counts, nothing is shared,
everything compares by value.
"""

import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from discreet.errors import ParameterError
from discreet.mechanisms._frozen import Frozen, frozen


def test_it_reads_like_a_dictionary() -> None:
    mapping = Frozen((("a", 1), ("b", 2)))
    assert dict(mapping) == {"a": 1, "b": 2}
    assert (mapping["b"], len(mapping), list(mapping), repr(mapping)) == (
        2,
        2,
        ["a", "b"],
        "{'a': 1, 'b': 2}",
    )
    with pytest.raises(KeyError):
        mapping["c"]


def test_order_is_part_of_the_value() -> None:
    assert Frozen((("a", 1), ("b", 2))) != Frozen((("b", 2), ("a", 1)))
    assert hash(Frozen((("a", 1),))) == hash(Frozen((("a", 1),)))
    assert pickle.loads(pickle.dumps(Frozen((("a", 1),)))) == Frozen((("a", 1),))


def test_nothing_can_be_set_and_nothing_is_shared() -> None:
    source = {"a": 1}
    mapping = frozen("Groups", "mechanisms", source)
    source["a"] = 2
    assert mapping["a"] == 1
    with pytest.raises(FrozenInstanceError):
        mapping.pairs = ()  # type: ignore[misc]


@pytest.mark.parametrize("wrong", [{}, None, [("a", 1)], {"": 1}, {1: 1}])
def test_no_entry_and_no_name_are_refused(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="mechanisms"):
        frozen("Groups", "mechanisms", wrong)
