"""A recorded pass as a list of calls of kernels, one after the other.

    places    slots and constants, in one list
    calls     a kernel, the places of its arguments, the place of its result
    dead      places that nobody needs after a call: no more memory than the pass takes

Executed below autograd and without modes: what runs are the overloads that the proof has seen, in
their order, with the same static arguments, in memory that is shared in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, TypeAlias, final
from weakref import ref

import torch
from torch import Tensor

from discreet.training.replay.recorder import Recorder
from discreet.training.replay.steps import (
    Built,
    Compared,
    Operated,
    Recorded,
    Slot,
    SlotOrigin,
    ValuesRead,
    slots_in,
)
from discreet.training.separation.exits import arguments_of, require_bounds
from discreet.training.separation.marks import no_functions, out_of_sight
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import Rows
from discreet.training.separation.table.operands import uniform

__all__ = ["Program", "Remains", "Stale", "same_bits"]

_ERASED = 0xFF
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd  # noqa: SLF001
_switch_gradients: Any = torch._C._set_grad_enabled  # noqa: SLF001

_Places: TypeAlias = list[Any]
_Call: TypeAlias = Callable[[_Places], None]


class Stale(Exception):
    """Public values that decided when the pass was proved are other ones now. Public."""


@final
class Program:
    """A pass that was recorded, to be executed with other records.

    Args:
        recorder: of the pass.
        result: of the pass, with slots in the place of tensors.

    Attributes:
        kind: of the shares of losses, the last entry.
        names: of its operations, in their order, to look at. Public.
    """

    __slots__ = (
        "_before",
        "_calls",
        "_of_records",
        "_result",
        "_results",
        "_sizes",
        "kind",
        "names",
    )

    def __init__(self, recorder: Recorder, result: Any) -> None:
        writer = _Writer(recorder, result)
        self._before = tuple(writer.before)
        self._calls = writer.calls
        self._result, self._results = writer.result, writer.results
        self._of_records = writer.of_records

        self._sizes = recorder.sizes
        self.kind = recorder.kind
        self.names = tuple(writer.names)

    def fits(self, entries: Sequence[Tensor]) -> bool:
        """Whether entries have the sizes of those of the recorded pass. Public."""
        return [entry.shape for entry in entries] == self._sizes

    def run(self, entries: list[Tensor]) -> tuple[Any, Remains]:
        """Execute it: the result, and what it holds of records, to be erased.

        Args:
            entries: what a pass is given of its records, in memory of its own, that nobody else
                holds; sensitive. They are taken out of the list.

        Raises:
            Stale: public values that decided are other ones now.
        """
        gradients = torch.is_grad_enabled()
        remains = Remains(entries)
        # Entries come first, then what was there before.
        places = [*entries, *self._before]
        entries.clear()

        try:
            with no_functions(), out_of_sight(), _below_autograd():
                for call, dead in self._calls:
                    call(places)
                    for place in dead:
                        places[place] = None
        except BaseException:
            # An error of a kernel is shown with its frames.
            remains.add(filter(_is_tensor, map(places.__getitem__, self._of_records)))
            remains.erase()
            places.clear()
            raise
        finally:
            _switch_gradients(gradients)

        remains.add(map(places.__getitem__, self._results))
        return places[self._result], remains


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


@final
class Remains:
    """Memory that a program has made of records, as long as somebody holds it.

    Args:
        tensors: in such memory.
    """

    __slots__ = ("_storages",)

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._storages: list[ref[Any]] = []
        self.add(tensors)

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Further ones."""
        self._storages += [ref(tensor.untyped_storage()) for tensor in tensors]

    def erase(self) -> None:
        """Overwrite it; floats become NaN."""
        for reference in self._storages:
            storage = reference()
            # An empty storage counts as false.
            if storage is not None and storage.nbytes():
                storage.fill_(_ERASED)

        self._storages.clear()


@final
class _Writer:
    """Turns a recording into calls.

    Attributes:
        before: what places hold before the first call, entries aside.
        calls: each with the places that are dead after it.
        names: of the steps.
        of_records: places of what is made of records.
        result: the place of the result.
        results: places of its tensors that are made of records.
    """

    def __init__(self, recorder: Recorder, result: Any) -> None:
        self.before: list[Any] = []
        self.calls: list[tuple[_Call, tuple[int, ...]]] = []
        self.names: list[str] = []

        self._first = len(recorder.entries)  # place after the entries
        self._places: dict[Slot, int] = {slot: at for at, slot in enumerate(recorder.entries)}
        self._constants: dict[int, int] = {}
        self._gradients: bool | None = None
        self._unused = self._new(None)
        self._temporary: list[int] = []  # places of lists of arguments

        for slot, tensor in recorder.before.items():
            with no_functions(), out_of_sight():
                self._places[slot] = self._new(tensor.detach())

        steps = [step for step in recorder.steps if not self._is_done_now(step)]
        last_uses = _last_uses(steps, recorder.entries, result)
        for number, step in enumerate(steps):
            self._write(step)
            self.names.append(
                step.operation.full_name if isinstance(step, Operated) else type(step).__name__
            )
            self._bury(last_uses.get(number, ()))

        self.result = self._place(result)

        of_records = [slot for slot in self._places if slot.origin is not SlotOrigin.BEFORE]
        self.of_records = tuple(map(self._places.__getitem__, of_records))
        # What is given to the caller is the caller's to erase; memory from before is not.
        given_out = [slot for slot in slots_in(result) if slot.origin is not SlotOrigin.BEFORE]
        self.results = tuple(map(self._places.__getitem__, given_out))

    def _is_done_now(self, step: Recorded) -> bool:
        """Make views of memory from before the pass once and for all: that memory stays where it
        is, or the program is not used.
        """
        if not isinstance(step, Operated) or step.expected is not None:
            return False

        used = slots_in([*step.args, step.kwargs])
        is_view = step.operation.is_view or step.operation.name == "as_strided"
        is_from_before = all(slot.origin is SlotOrigin.BEFORE for slot in used)
        if not is_view or not used or not is_from_before or not self._places.keys() >= set(used):
            return False

        with no_functions(), out_of_sight(), _below_autograd():
            out = step.call(*self._now(step.args), **self._now(step.kwargs))

        results = [out] if step.single else list(out)
        for slot, tensor in zip(step.results, results, strict=True):
            if slot is not None:
                self._places[slot] = self._new(tensor)

        return True

    def _now(self, thing: Any) -> Any:
        """Arguments with tensors from before the pass."""
        if isinstance(thing, Slot):
            return self.before[self._places[thing] - self._first]

        if type(thing) in (list, tuple):
            return type(thing)([self._now(part) for part in thing])

        if type(thing) is dict:
            return {name: self._now(part) for name, part in thing.items()}

        return thing

    # --- places ---

    def _new(self, value: Any) -> int:
        self.before.append(value)
        return self._first + len(self.before) - 1

    def _place(self, thing: Any) -> int:
        """The place of an argument; what holds slots is put together by a call of its own."""
        if isinstance(thing, Slot):
            if thing not in self._places:
                self._places[thing] = self._new(None)

            return self._places[thing]

        if not slots_in(thing):
            return self._constant(thing)

        place = self._new(None)
        self._temporary.append(place)
        join, parts = _joining(thing)
        self._call(join, parts, place)
        return place

    def _constant(self, thing: Any) -> int:
        place = self._constants.get(id(thing))
        if place is None:
            # The list holds it, so that no other gets its `id`.
            place = self._constants[id(thing)] = self._new(thing)

        return place

    # --- calls ---

    def _call(self, function: Any, args: Iterable[Any], out: int | None = None) -> None:
        """One call, with its result in a place, or nowhere."""
        arguments = _taken([self._place(argument) for argument in args])
        place = self._unused if out is None else out
        self.calls.append((_single(function, arguments, place), ()))
        if out is None:
            self._bury((), self._unused)

    def _bury(self, slots: Iterable[Slot], *places: int) -> None:
        """After the last call, these places are dead, and those of lists of arguments."""
        dead = [*map(self._place, slots), *places, *self._temporary]
        self._temporary.clear()
        if dead:
            call, earlier = self.calls[-1]
            self.calls[-1] = (call, (*earlier, *dead))

    def _write(self, step: Recorded) -> None:
        if isinstance(step, ValuesRead):
            self._call(_expect, [step.slot, step.values])
        elif isinstance(step, Compared):
            self._call(_expect_alike, [step.slot, step.rows, step.count, step.alike])
        else:
            self._write_operation(step)

    def _write_operation(self, step: Operated) -> None:
        if step.gradients is not self._gradients:
            self._gradients = step.gradients
            self._call(_switch_gradients, [step.gradients])

        if step.operation.bounded is not None and step.judged:
            self._call(_check_bounds, [step.operation, step.args, step.kwargs])

        function, args = step.call, list(step.args)
        if step.kwargs:
            function = _named(step.call, len(args), tuple(step.kwargs))
            args += step.kwargs.values()

        if step.expected is not None:
            function = _expecting(function, step.expected)

        self._write_results(step, function, args)
        if step.zeroed:
            for slot in filter(None, step.results):
                self._call(_zero, [slot])

    def _write_results(self, step: Operated, function: Any, args: list[Any]) -> None:
        outs = [self._unused if slot is None else self._place(slot) for slot in step.results]
        if step.single:
            self._call(function, args, outs[0])
        else:
            arguments = _taken([self._place(argument) for argument in args])
            self.calls.append((_several(function, arguments, tuple(outs)), ()))

        if self._unused in outs:
            self._bury((), self._unused)


def _joining(thing: Any) -> tuple[Callable[..., Any], list[Any]]:
    """What puts a structure together again, and its parts."""
    if isinstance(thing, Built):
        return thing.kind, list(thing.parts)

    if type(thing) is dict:
        names = tuple(thing)
        return (lambda *parts: dict(zip(names, parts, strict=True))), list(thing.values())

    kind = type(thing)
    return (lambda *parts: kind(parts)), list(thing)


def _taken(places: list[int]) -> Callable[[_Places], tuple[Any, ...]]:
    """What takes arguments from their places."""
    if len(places) > 1:
        return itemgetter(*places)

    return lambda values: tuple([values[place] for place in places])


def _single(function: Any, arguments: Callable[[_Places], tuple[Any, ...]], out: int) -> _Call:
    def call(places: _Places) -> None:
        places[out] = function(*arguments(places))

    return call


def _several(
    function: Any, arguments: Callable[[_Places], tuple[Any, ...]], outs: tuple[int, ...]
) -> _Call:
    def call(places: _Places) -> None:
        for out, value in zip(outs, function(*arguments(places)), strict=True):
            places[out] = value

    return call


def _named(function: Any, count: int, names: tuple[str, ...]) -> Callable[..., Any]:
    """A function whose arguments after so many are given by these names."""

    def call(*args: Any) -> Any:
        return function(*args[:count], **dict(zip(names, args[count:], strict=True)))

    return call


def _expecting(function: Any, expected: Any) -> Callable[..., Any]:
    """A function whose results must be these."""

    def call(*args: Any) -> Any:
        out = function(*args)
        _expect(out, expected)
        return out

    return call


def _used_by(step: Recorded) -> list[Slot]:
    if isinstance(step, Operated):
        return slots_in([step.args, step.kwargs])

    return [step.slot]


def _last_uses(
    steps: Sequence[Recorded], entries: Iterable[Slot], result: Any
) -> Mapping[int, list[Slot]]:
    """Slots that nobody needs after a step, by its number."""
    last = dict.fromkeys(entries, 0)
    for number, step in enumerate(steps):
        results = [slot for slot in getattr(step, "results", ()) if slot is not None]
        for slot in (*_used_by(step), *results):
            if slot.origin is not SlotOrigin.BEFORE:
                last[slot] = number

    for slot in slots_in(result):
        last.pop(slot, None)

    dead: dict[int, list[Slot]] = {}
    for slot, number in last.items():
        dead.setdefault(number, []).append(slot)

    return dead


# --- called by programs ---


def _zero(tensor: Tensor) -> None:
    """Fill memory that nobody has written, gaps between the strides included."""
    storage: Any = tensor.untyped_storage()
    if storage.nbytes():
        storage.fill_(0)


def _check_bounds(operation: Operation, args: Any, kwargs: dict[str, Any]) -> None:
    require_bounds(operation, arguments_of(operation, args, kwargs))


def _expect(values: Any, before: Any) -> None:
    if not same_bits(values, before):
        raise Stale("public values that were read when the pass was proved are other ones now")


def _expect_alike(tensor: Tensor, rows: Rows, count: int, alike: object) -> None:
    if uniform(tensor, rows, count) is not alike:
        raise Stale("a public tensor that was the same for all records is not so now")


def same_bits(first: Any, second: Any) -> bool:
    """Whether two structures of tensors and numbers are the same, bit by bit."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return _same_tensor(first, second)

    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same_bits, first, second))

    # A NaN does not equal itself.
    return repr(first) == repr(second)


def _same_tensor(first: Tensor, second: Tensor) -> bool:
    if first.shape != second.shape or first.dtype is not second.dtype:
        return False

    with no_functions(), out_of_sight(), torch.no_grad():
        pair: Iterable[Tensor] = (first.detach(), second.detach())
        return torch.equal(*[values.contiguous().reshape(-1).view(torch.uint8) for values in pair])
