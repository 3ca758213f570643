"""A recorded pass as one straight function of Python that calls kernels.

    x1 = ...             what the pass is given of its records
    v3 = addmm(e2, x1, e4)
    del x1               every tensor goes at its last use: no more memory than the pass takes
    ...
    return {leaf: factors}, statistics

Executed below autograd and without modes: what runs are the overloads that the proof has seen, in
their order, with the same static arguments, in memory that is shared in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final
from weakref import ref

import torch
from torch import Tensor

from discreet.training.replay.recorder import Recorder
from discreet.training.replay.steps import (
    Built,
    Compared,
    Operated,
    Origin,
    Recorded,
    Slot,
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
_LETTERS = {Origin.BEFORE: "e", Origin.BATCH: "x", Origin.PASS: "v"}
_SIMPLE = (bool, int, str, type(None))
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd  # noqa: SLF001
_switch_gradients: Any = torch._C._set_grad_enabled  # noqa: SLF001


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
        source: the function, to look at. Public.
    """

    __slots__ = ("_run", "_sizes", "kind", "source")

    def __init__(self, recorder: Recorder, result: Any) -> None:
        writer = _Writer(recorder, result)
        self.source = writer.source
        space = writer.space
        exec(compile(self.source, "<a recorded pass>", "exec"), space)  # noqa: S102  (our own text)
        self._run: Callable[..., Any] = space["run"]
        self._sizes = recorder.sizes
        self.kind = recorder.kind

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
        try:
            with no_functions(), out_of_sight(), _below_autograd():
                result, holders = self._run(entries)
        except BaseException:
            # An error of a kernel is shown with its frames.
            remains.erase()
            raise
        finally:
            _switch_gradients(gradients)

        remains.add(holders)
        return result, remains


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
    """Writes the function."""

    def __init__(self, recorder: Recorder, result: Any) -> None:
        self.space: dict[str, Any] = {
            "erase": _erase,
            "bounds": _check_bounds,
            "expect": _expect,
            "expect_alike": _expect_alike,
            "zero": _zero,
            "gradients": _switch_gradients,
        }
        self._constants: dict[int, str] = {}
        self._gradients: bool | None = None

        for slot, tensor in recorder.before.items():
            with no_functions(), out_of_sight():
                self.space[_name(slot)] = tensor.detach()

        steps = [step for step in recorder.steps if not self._is_done_now(step)]
        last_uses = _last_uses(steps, result)
        self._lines: list[str] = []
        for place, step in enumerate(steps):
            self._write(step)
            dead = last_uses.get(place, ())
            if dead:
                self._lines.append(f"del {', '.join(map(_name, dead))}")

        # What is given to the caller is the caller's to erase; memory from before is not.
        of_records = [slot for slot in slots_in(result) if slot.origin is not Origin.BEFORE]
        body = [*self._lines, f"return {self._text(result)}, {self._text(of_records)}"]
        self.source = "\n".join(
            [
                "def run(entries):",
                f"    {self._text(recorder.entries)} = entries",
                "    entries.clear()",
                "    try:",
                *[f"        {line}" for line in body],
                "    except BaseException:",
                "        erase(locals())",
                "        raise",
                "",
            ]
        )

    def _is_done_now(self, step: Recorded) -> bool:
        """Make views of memory from before the pass once and for all: that memory stays where it
        is, or the program is not used.
        """
        if not isinstance(step, Operated) or step.expected is not None:
            return False

        used = slots_in([*step.args, step.kwargs])
        is_view = step.operation.is_view or step.operation.name == "as_strided"
        if not is_view or not used or any(_name(slot) not in self.space for slot in used):
            return False

        with no_functions(), out_of_sight(), _below_autograd():
            args = _with_tensors(step.args, self.space)
            out = step.call(*args, **_with_tensors(step.kwargs, self.space))
        results = [out] if step.single else list(out)
        for slot, tensor in zip(step.results, results, strict=True):
            if slot is not None:
                self.space[_name(slot)] = tensor
        return True

    def _write(self, step: Recorded) -> None:
        if isinstance(step, ValuesRead):
            self._lines.append(f"expect({_name(step.slot)}, {self._text(step.values)})")
            return
        if isinstance(step, Compared):
            about = (step.rows, step.count, step.alike)
            self._lines.append(f"expect_alike({_name(step.slot)}, {self._text(about)})")
            return

        if step.gradients is not self._gradients:
            self._gradients = step.gradients
            self._lines.append(f"gradients({step.gradients})")

        self._write_call(step)

    def _write_call(self, step: Operated) -> None:
        if step.operation.bounded is not None and step.judged:
            about = (self._text(step.operation), self._text(step.args), self._text(step.kwargs))
            self._lines.append(f"bounds({', '.join(about)})")

        arguments = [*map(self._text, step.args)]
        arguments += [f"{name}={self._text(value)}" for name, value in step.kwargs.items()]
        call = f"{self._constant(step.call)}({', '.join(arguments)})"

        if step.expected is not None:
            self._write_expected(step, call)
        elif any(step.results):
            self._write_results(step, call)
        else:
            self._lines.append(call)

    def _write_results(self, step: Operated, call: str) -> None:
        names = ["_" if slot is None else _name(slot) for slot in step.results]
        self._lines.append(f"{', '.join(names)}{'' if step.single else ','} = {call}")

        if "_" in names:
            self._lines.append("del _")
        if step.zeroed:
            self._lines += [f"zero({name})" for name in names if name != "_"]

    def _write_expected(self, step: Operated, call: str) -> None:
        self._lines.append(f"_ = {call}")
        self._lines.append(f"expect(_, {self._constant(step.expected)})")
        for number, slot in enumerate(step.results):
            if slot is not None:
                self._lines.append(f"{_name(slot)} = {'_' if step.single else f'_[{number}]'}")
        self._lines.append("del _")

    # --- text of arguments and results ---

    def _text(self, thing: Any) -> str:
        if isinstance(thing, Slot):
            return _name(thing)
        if isinstance(thing, Built):
            return f"{self._constant(thing.kind)}({self._texts(thing.parts)})"
        if type(thing) in _SIMPLE:
            return repr(thing)

        return self._text_of_container(thing)

    def _text_of_container(self, thing: Any) -> str:
        if type(thing) is list:
            return f"[{self._texts(thing)}]"
        if type(thing) is tuple:
            return f"({self._texts(thing)},)" if thing else "()"
        if type(thing) is dict:
            pairs = [f"{self._text(name)}: {self._text(part)}" for name, part in thing.items()]
            return f"{{{', '.join(pairs)}}}"

        return self._constant(thing)

    def _texts(self, things: Iterable[Any]) -> str:
        return ", ".join(map(self._text, things))

    def _constant(self, thing: Any) -> str:
        name = self._constants.get(id(thing))
        if name is None:
            name = self._constants[id(thing)] = f"c{len(self._constants)}"
            self.space[name] = thing  # which holds it, so that no other gets its `id`
        return name


def _name(slot: Slot) -> str:
    return f"{_LETTERS[slot.origin]}{slot.number}"


def _with_tensors(thing: Any, space: Mapping[str, Any]) -> Any:
    if isinstance(thing, Slot):
        return space[_name(thing)]
    if type(thing) in (list, tuple):
        return type(thing)([_with_tensors(part, space) for part in thing])
    if type(thing) is dict:
        return {name: _with_tensors(part, space) for name, part in thing.items()}

    return thing


def _used_by(step: Recorded) -> list[Slot]:
    if isinstance(step, Operated):
        return slots_in([step.args, step.kwargs])

    return [step.slot]


def _last_uses(steps: Sequence[Recorded], result: Any) -> dict[int, list[Slot]]:
    """Slots that nobody needs after a step, by its place."""
    last: dict[Slot, int] = {}
    for place, step in enumerate(steps):
        results = [slot for slot in getattr(step, "results", ()) if slot is not None]
        for slot in (*_used_by(step), *results):
            if slot.origin is not Origin.BEFORE:
                last[slot] = place
    for slot in slots_in(result):
        last.pop(slot, None)

    dead: dict[int, list[Slot]] = {}
    for slot, place in last.items():
        dead.setdefault(place, []).append(slot)
    return dead


# --- called by programs ---


def _erase(names: Mapping[str, Any]) -> None:
    """Overwrite what a program has made: an error of a kernel is shown with its frame."""
    # Memory from before the pass has other names.
    of_records = (_LETTERS[Origin.BATCH], _LETTERS[Origin.PASS])
    values = [value for name, value in names.items() if name.startswith(of_records)]
    Remains(value for value in values if isinstance(value, Tensor)).erase()


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


def _expect_alike(tensor: Tensor, about: tuple[Rows, int, bool]) -> None:
    rows, count, alike = about
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
