"""What an operation made of the states of its arguments: asked after it has run, by its rule in the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from torch import Tensor

from discreet.training.separation.books import Books, storage_of
from discreet.training.separation.exits import undeclared_by, written_by
from discreet.training.separation.marks import out_of_sight
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import (
    FILLED,
    NOISE,
    OWN,
    PUBLIC,
    Mixed,
    OneByOne,
    Rows,
    State,
    is_public,
    worst_of,
)
from discreet.training.separation.table.operands import (
    INSIDE,
    Operands,
    Rule,
    Unknown,
    tensors_among,
)

__all__ = ["Outcomes", "constants_before"]

_HIDDEN = float("nan")  # in the place of a float
_NOT_WRITTEN = Mixed.of("memory that was never written")
_NOTHING: Mapping[int, Tensor] = {}


def _storages(tensors: Iterable[Tensor]) -> list[Any]:
    """The storages of all tensors that have one."""
    return [storage for storage in map(storage_of, tensors) if storage is not None]


@final
class Outcomes:
    """Notes in the books of a pass what operations made and wrote.

    Args:
        books: of the pass.
        count: records of the pass.
        fail: is told why the pass is not proved; raises, but with one record.
    """

    __slots__ = ("_books", "_count", "_fail")

    def __init__(self, books: Books, count: int, fail: Callable[[str], None]) -> None:
        self._books = books
        self._count = count
        self._fail = fail

    def settle(
        self,
        operation: Operation,
        arguments: Mapping[str, Any],
        out: Any,
        states: dict[int, State] | None = None,
        constants: Mapping[int, Tensor] = _NOTHING,
    ) -> Any:
        """An operation has run: the states of what it made and of what it wrote."""
        inputs = tensors_among(dict(arguments))
        if states is None:
            states = {id(tensor): self._books.state(tensor) for tensor in inputs}
        storages = _storages(inputs)  # alive, so that no new one gets the number of one of them
        met = set(map(id, storages))
        results = tensors_among(out)
        new = [result for result in results if id(storage_of(result)) not in met]
        if operation.is_geometry or operation.shape_only:
            self._reshaped(operation, inputs, new)
            return out
        if not new and not operation.written:
            return out  # views: their memory tells
        outcome = self._results(operation, arguments, states, results, constants)
        for result, state in zip(results, outcome, strict=False):
            if id(storage_of(result)) not in met and not self._books.set_new(result, state):
                self._fail("a sparse or nested tensor is made of records")
        self._note_writes(operation, arguments, outcome, constants)
        return out

    def _note_writes(
        self,
        operation: Operation,
        arguments: Mapping[str, Any],
        outcome: list[State],
        constants: Mapping[int, Tensor],
    ) -> None:
        for place, target in enumerate(written_by(operation, arguments)):
            state = outcome[min(place, len(outcome) - 1)]
            self._books.write(target, state, operation.full_name, constants.get(id(target)))
        for target in undeclared_by(operation, arguments):
            joined = (
                self._books.mixed(f"{operation.full_name} joins records")
                if self._count > 1
                else OWN
            )
            self._books.write(target, joined, operation.full_name)

    def _reshaped(self, operation: Operation, inputs: list[Tensor], new: list[Tensor]) -> None:
        """Only shapes mattered. Memory that grew holds what nobody has written."""
        content = NOISE if operation.is_random else FILLED if operation.fills else PUBLIC
        for result in new:
            self._books.fresh(result, content, operation)
        if operation.name in ("resize", "resize_as", "resize_", "resize_as_") and inputs:
            self._books.set(inputs[0].untyped_storage(), _NOT_WRITTEN if self._count > 1 else OWN)
        # Random numbers written over a part of the records, or over other places of each, are not
        # the records' any more.
        for target in inputs[:1] if operation.is_random and operation.written else ():
            if isinstance(self._books.state(target), Mixed):
                self._books.set(
                    target.untyped_storage(),
                    self._books.mixed(f"{operation.full_name} writes over some records"),
                )

    def _results(
        self,
        operation: Operation,
        arguments: Mapping[str, Any],
        states: dict[int, State],
        results: list[Tensor],
        constants: Mapping[int, Tensor],
    ) -> list[State]:
        """The states of the results, by the rule."""
        ignored = {
            id(tensor)
            for name in operation.ignored
            for tensor in tensors_among(arguments.get(name))
        }
        known = {
            number: PUBLIC if number in ignored and _is_kept_inside(state) else state
            for number, state in states.items()
        }
        worst = worst_of(known.values())
        if isinstance(worst, Rows) and operation.rule is not None:
            return self._by_rule(operation, operation.rule, arguments, known, results, constants)
        if operation.rule is None and not is_public(worst) and not operation.ignored:
            # Not even the shapes of its results are known to be public.
            self._fail(f"{operation.full_name} has no rule")
        if isinstance(worst, Mixed):
            worst = self._books.named(worst, operation.full_name)
        return [worst] * max(1, len(results))

    def _by_rule(
        self,
        operation: Operation,
        rule: Rule,
        arguments: Mapping[str, Any],
        states: Mapping[int, State],
        results: list[Tensor],
        constants: Mapping[int, Tensor],
    ) -> list[State]:
        # Effects are remembered whatever floats there were: no rule of torch's own operations goes
        # by one.
        shown = {
            name: _HIDDEN if type(value) is float and not operation.custom else value
            for name, value in arguments.items()
        }
        operands = Operands(
            operation.name, operation.overload, shown, states, results, self._count, constants
        )
        try:
            outcome: Any = rule(operands)
            self._assign(operands, states)
        except Unknown as reason:
            outcome = self._books.mixed(f"{operation.full_name}: {reason}")
        except OneByOne:
            raise
        # Also a user's rule: what it does not know is not proved.
        except Exception as error:  # noqa: BLE001
            outcome = self._books.mixed(
                f"{operation.full_name}: its rule stumbled ({type(error).__name__})"
            )
        if operands.looked:
            self._books.looked = True
        several: list[Any] = (
            list(outcome)
            if isinstance(outcome, (list, tuple))
            else [outcome] * max(1, len(results))
        )
        if len(several) != max(1, len(results)) or not all(
            isinstance(state, State) for state in several
        ):
            return [
                self._books.mixed(f"{operation.full_name}: a rule that does not fit its results")
            ] * max(1, len(results))
        return [self._books.named(state, operation.full_name) for state in several]

    def _assign(self, operands: Operands, states: Mapping[int, State]) -> None:
        """Count random numbers to the records that they met. Those that all records share are no
        longer drawn for each.
        """
        counted = {id(tensor) for tensor, _ in operands.assigned}
        for tensor, rows in operands.assigned:
            self._books.assign(tensor, rows)
        noise = [tensor for tensor in operands.tensors() if states.get(id(tensor)) is NOISE]
        for tensor in noise:
            if id(tensor) not in counted:
                self._books.share(tensor)
        # Two views of the same numbers, which go to other records, or to a record and to all.
        for tensor, rows in operands.assigned:
            if self._books.state(tensor) != rows:
                operands.looked = True
                raise Unknown("random numbers that several records share")


def _is_kept_inside(state: State) -> bool:
    """Whether a tensor is what a kernel has kept for itself, perhaps with the name of the operation
    before the reason.
    """
    return isinstance(state, Mixed) and not state.kept and state.why.endswith(INSIDE.why)


def constants_before(written: list[Tensor], states: Mapping[int, State]) -> dict[int, Tensor]:
    """Copies of public tensors that an operation on records is about to overwrite: its rule may
    have to read them.
    """
    with out_of_sight():
        return {
            id(tensor): tensor.detach().clone()
            for tensor in written
            if states.get(id(tensor), PUBLIC) is PUBLIC
        }
