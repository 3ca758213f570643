"""Every kind of holder is noted, compared and put back as it was."""

from __future__ import annotations

import enum
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from discreet.errors import ModelError
from discreet.training.state import holders
from discreet.training.state.holders import CLASS, NAMES, SLOTS, Names, kind_of, slot_names

VALUE = [1.5]  # whose identity tells it from others that are equal


def _cell() -> Any:
    variable = VALUE

    def inner() -> Any:
        return variable

    return (inner.__closure__ or ())[0]


def _set_cell(cell: Any) -> None:
    cell.cell_contents = 7


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "list": (lambda: [VALUE, 2], lambda held: held.append(3)),
    "list, in place": (lambda: [VALUE, 2], lambda held: held.__setitem__(0, [1.5])),
    "dict": (lambda: {"a": VALUE}, lambda held: held.update(a=[1.5])),
    "dict, another key": (lambda: {"a": VALUE}, lambda held: held.update(b=held.pop("a"))),
    "Counter": (lambda: Counter("aab"), lambda held: held.update("a")),
    "defaultdict": (lambda: defaultdict(int), lambda held: held["new"]),
    "OrderedDict": (lambda: OrderedDict(a=1, b=2), lambda held: held.move_to_end("a")),
    "set": (lambda: {1, 2}, lambda held: held.add(3)),
    "set, exchanged": (lambda: {1, 2}, lambda held: (held.discard(1), held.add(3))),
    "deque": (lambda: deque([1, 2], maxlen=2), lambda held: held.append(3)),
    "bytearray": (lambda: bytearray(2), lambda held: held.__setitem__(0, 1)),
    "array": (lambda: np.array([np.nan, 1.0]), lambda held: held.__iadd__(1.0)),
    "cell": (_cell, _set_cell),
    "random": (lambda: random.Random(1), lambda held: held.random()),
    "NumPy's generator": (lambda: np.random.default_rng(1), lambda held: held.random()),
    "Mersenne twister": (
        lambda: np.random.Generator(np.random.MT19937(1)),
        lambda held: held.random(),
    ),
    "older generator": (lambda: np.random.RandomState(1), lambda held: held.rand()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_noticed_and_put_back(name: str) -> None:
    make, change = CHANGES[name]
    holder = make()
    kind = kind_of(type(holder))
    assert kind is not None
    before = kind.read(holder)
    assert kind.same(before, kind.read(holder))

    change(holder)
    changed = kind.read(holder)
    assert not kind.same(before, changed)

    kind.write(holder, before)
    assert kind.same(before, kind.read(holder))

    kind.write(holder, changed)
    assert kind.same(changed, kind.read(holder))


def test_order_of_an_ordered_dict_comes_back() -> None:
    holder = OrderedDict(a=1, b=2)
    kind = kind_of(OrderedDict)
    assert kind is not None
    before = kind.read(holder)
    holder.move_to_end("a")
    kind.write(holder, before)
    assert list(holder) == ["a", "b"]
    holder.popitem(last=False)  # its own list of keys is whole
    assert list(holder) == ["b"]


class Made(OrderedDict[str, Any]):
    """Computes its entries when it is asked, as tables of activations do."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)()


def test_a_class_that_computes_its_entries_is_not_asked() -> None:
    holder = Made(zeros=list, ones=dict)
    kind = kind_of(Made)
    assert kind is not None
    before = kind.read(holder)
    assert before == {"zeros": list, "ones": dict}
    assert kind.same(before, kind.read(holder))
    holder["new"] = set
    kind.write(holder, before)
    assert holder["zeros"] == []
    assert list(holder) == ["zeros", "ones"]


class Slotted:
    __slots__ = ("one", "two")
    one: int
    two: int


@dataclass(frozen=True, slots=True)
class Frozen(Slotted):
    three: int = 3


def test_slots_of_bases_count_and_may_be_empty() -> None:
    holder = Frozen()
    assert set(slot_names(Frozen)) == {"one", "two", "three"}
    object.__setattr__(holder, "one", 1)
    before = SLOTS.read(holder)
    assert before == {"one": 1, "three": 3}

    object.__delattr__(holder, "one")
    object.__setattr__(holder, "two", 2)
    assert not SLOTS.same(before, SLOTS.read(holder))
    SLOTS.write(holder, before)
    assert SLOTS.read(holder) == before


class Owner:
    count = 0


def test_names_of_globals() -> None:
    space: dict[str, Any] = {"count": VALUE, "other": 1}
    names = Names(space, frozenset({"count", "new"}))
    before = NAMES.read(names)
    assert set(before) == {"count"}
    space.update(count=5, new=1, other=2)
    assert not NAMES.same(before, NAMES.read(names))
    NAMES.write(names, before)
    assert NAMES.same(before, NAMES.read(names))
    assert space == {"count": VALUE, "other": 2}  # names that nobody asked for are left alone
    NAMES.write(Names(space, frozenset({"gone"})), {"gone": 3})
    assert space["gone"] == 3


class Color(enum.Enum):
    RED = 1


@pytest.mark.parametrize("owner", [Owner, Color])
def test_attributes_of_a_class(owner: Any) -> None:
    before = CLASS.read(owner)
    owner.new = 1
    owner.__doc__ = "Another text."
    assert not CLASS.same(before, CLASS.read(owner))
    CLASS.write(owner, before)
    assert CLASS.same(before, CLASS.read(owner))
    assert not hasattr(owner, "new")


def test_a_private_slot_has_the_name_that_python_gives_it() -> None:
    class _Private:
        __slots__ = ("__count", "__dict__", "__weakref__", "plain")

    assert slot_names(_Private) == ["_Private__count", "plain"]


def test_an_empty_variable_stays_empty() -> None:
    def outer() -> Any:
        def inner() -> Any:
            return later

        cell = (inner.__closure__ or ())[0]
        kind = kind_of(type(cell))
        assert kind is not None
        before = kind.read(cell)
        later = 1
        kind.write(cell, before)
        with pytest.raises(ValueError, match="empty"):
            _ = cell.cell_contents

    outer()


def test_what_has_no_state_is_no_holder() -> None:
    assert kind_of(random.SystemRandom) is None
    assert kind_of(int) is None


def test_arrays_that_cannot_be_noted_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "LARGE", 8)
    kind = kind_of(np.ndarray)
    assert kind is not None
    frozen = np.zeros(1)
    frozen.flags.writeable = False
    for array in (np.zeros(2), np.array([None]), frozen):
        assert kind.same(kind.read(array), kind.read(array))


@pytest.mark.parametrize(
    "holder", [[0] * 9, dict.fromkeys(range(9)), set(range(9)), deque(range(9)), bytearray(9)]
)
def test_a_large_container_that_changes_is_refused(
    monkeypatch: pytest.MonkeyPatch, holder: Any
) -> None:
    monkeypatch.setattr(holders, "LARGE", 8)
    kind = kind_of(type(holder))
    assert kind is not None
    before = kind.read(holder)
    assert kind.same(before, kind.read(holder))
    holder.pop() if not isinstance(holder, dict) else holder.popitem()
    assert not kind.same(before, kind.read(holder))
    with pytest.raises(ModelError, match="at most 8 entries"):
        kind.write(holder, before)
