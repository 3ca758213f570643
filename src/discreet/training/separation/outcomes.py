"""What an operation made of the states of its arguments: asked after it has run, by its rule in the
table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import compress
from typing import Any, final

from torch import Tensor

from discreet.training.separation.books import Books
from discreet.training.separation.exits import (
    arguments_of,
    targets_of,
    undeclared_by,
    written_by,
)
from discreet.training.separation.marks import (
    Content,
    fill_grown,
    marked_part,
    note_writes,
    out_of_sight,
    sizes_of,
    storage_of,
)
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
_RESIZES = frozenset({"resize", "resize_as", "resize_", "resize_as_"})


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

    def run_public(
        self,
        func: Any,
        operation: Operation,
        args: Any,
        kwargs: dict[str, Any],
        content: Content,
    ) -> Any:
        """Run an operation on public tensors alone, of which comes this content."""
        # It may be written in Python, and read what it likes while no mode looks.
        if operation.custom and operation.rule is None:
            self._fail(f"{operation.full_name} has no rule")

        # State from before the pass is put back after it: public state moves once a step.
        targets: list[Tensor] = []
        if operation.written or operation.undeclared:
            targets = targets_of(operation, arguments_of(operation, args, kwargs))
            # What is put back after a pass are the bytes of a memory, not who lies where in it.
            if operation.is_geometry and not all(map(self._books.holds, targets)):
                self._fail(f"{operation.full_name} changes a tensor from before the pass")

            self._books.save(targets)

        sizes = sizes_of(targets) if operation.is_geometry else []
        out = func._op(*args, **kwargs)  # noqa: SLF001
        fill_grown(targets, sizes)

        for result in (out,) if type(out) is Tensor else tensors_among(out):
            self._books.fresh(result, content, operation)

        for target in targets:
            self._books.overwrite(target, content)

        note_writes(map(marked_part, targets))
        return out

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

        # They are held until the end, so that no new storage gets the `id` of one of them.
        storages = list(map(storage_of, inputs))
        met = {id(storage) for storage in storages if storage is not None}

        results = tensors_among(out)
        are_new = [id(storage_of(result)) not in met for result in results]

        if operation.only_shapes:
            self._reshaped(operation, inputs, list(compress(results, are_new)))
            return out

        if not any(are_new) and not operation.written:
            return out  # views: their memory tells

        outcome = self._results(operation, arguments, states, results, constants)
        for result, state in compress(zip(results, outcome, strict=False), are_new):
            if not self._books.set_new(result, state):
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
        """Note what the operation wrote: results in their order, and running statistics."""
        for place, target in enumerate(written_by(operation, arguments)):
            # An operation may write more than it returns: then the last state stands for these.
            state = outcome[min(place, len(outcome) - 1)]
            self._books.write(target, state, operation.full_name, constants.get(id(target)))

        # No rule says anything of these: they are taken for sums over all records.
        for target in undeclared_by(operation, arguments):
            joined = self._of_all(f"{operation.full_name} joins records")
            self._books.write(target, joined, operation.full_name)

    def _of_all(self, why: str) -> State:
        """The state of what depends on all records of the pass, perhaps on one alone."""
        return self._books.mixed(why) if self._count > 1 else OWN

    def _reshaped(self, operation: Operation, inputs: list[Tensor], new: list[Tensor]) -> None:
        """Only shapes mattered. Memory that grew holds what nobody has written."""
        content = PUBLIC
        if operation.is_random:
            content = NOISE
        elif operation.fills:
            content = FILLED

        for result in new:
            self._books.fresh(result, content, operation)

        if not inputs:
            return

        target = inputs[0]
        # What of it was there before, and what is new, is not told apart.
        if operation.name in _RESIZES:
            unwritten = _NOT_WRITTEN if self._count > 1 else OWN
            self._books.set(target.untyped_storage(), unwritten)

        # Random numbers written over a part of the records, or over other places of each, are not
        # the records' any more.
        draws_into = operation.is_random and operation.written
        if draws_into and isinstance(self._books.state(target), Mixed):
            joined = self._books.mixed(f"{operation.full_name} writes over some records")
            self._books.set(target.untyped_storage(), joined)

    def _results(
        self,
        operation: Operation,
        arguments: Mapping[str, Any],
        states: dict[int, State],
        results: list[Tensor],
        constants: Mapping[int, Tensor],
    ) -> list[State]:
        """The states of the results, by the rule."""
        known = _without_ignored(operation, arguments, states)
        worst = worst_of(known.values())
        rule = operation.rule

        if isinstance(worst, Rows) and rule is not None:
            return self._by_rule(operation, rule, arguments, known, results, constants)

        # Not even the shapes of its results are known to be public.
        if rule is None and not is_public(worst) and not operation.ignored:
            self._fail(f"{operation.full_name} has no rule")

        # Without rows there is nothing to ask: of what was joined comes what is joined, and of the
        # only record what is its own.
        return [self._books.named(worst, operation.full_name)] * _results_claimed(results)

    def _by_rule(
        self,
        operation: Operation,
        rule: Rule,
        arguments: Mapping[str, Any],
        states: Mapping[int, State],
        results: list[Tensor],
        constants: Mapping[int, Tensor],
    ) -> list[State]:
        """Ask the rule; what it does not know, or says wrongly, is `Mixed` with the reason."""
        name = operation.full_name
        shown = dict(arguments) if operation.custom else _without_floats(arguments)
        operands = Operands(
            operation.name, operation.overload, shown, states, results, self._count, constants
        )

        try:
            # What a rule computes to find an answer is no operation of the pass.
            with out_of_sight():
                outcome: Any = rule(operands)

            self._assign(operands, states)
        except Unknown as reason:
            outcome = self._books.mixed(f"{name}: {reason}")
        except OneByOne:
            raise
        # Also a user's rule: what it does not know is not proved.
        except Exception as error:  # noqa: BLE001
            outcome = self._books.mixed(f"{name}: its rule stumbled ({type(error).__name__})")

        if operands.looked:
            self._books.looked = True

        # One state stands for all results; otherwise there must be one for each.
        expected = _results_claimed(results)
        claims = list(outcome) if isinstance(outcome, (list, tuple)) else [outcome] * expected
        if len(claims) != expected or not all(isinstance(claim, State) for claim in claims):
            return [self._books.mixed(f"{name}: a rule that does not fit its results")] * expected

        return [self._books.named(claim, name) for claim in claims]

    def _assign(self, operands: Operands, states: Mapping[int, State]) -> None:
        """Count random numbers to the records that they met. Those that all records share are no
        longer drawn for each.
        """
        for tensor, rows in operands.assigned:
            self._books.assign(tensor, rows)

        counted = {id(tensor) for tensor, _ in operands.assigned}
        for tensor in operands.tensors():
            if states.get(id(tensor)) is NOISE and id(tensor) not in counted:
                self._books.share(tensor)

        # Two views of the same numbers, which go to other records, or to a record and to all.
        for tensor, rows in operands.assigned:
            if self._books.state(tensor) != rows:
                operands.looked = True
                raise Unknown("random numbers that several records share")


def _results_claimed(results: list[Tensor]) -> int:
    """How many states are asked for: one also of an operation that writes and returns nothing."""
    return max(1, len(results))


def _without_floats(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as rules of torch's own operations see them: effects are remembered whatever floats
    there were, so that no rule may go by one.
    """
    return {name: _HIDDEN if type(value) is float else value for name, value in arguments.items()}


def _without_ignored(
    operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
) -> dict[int, State]:
    """States as the rule sees them: what a kernel kept for itself, and takes back here, is not
    counted.
    """
    known = dict(states)
    ignored = [arguments.get(name) for name in operation.ignored]

    # Anything else in such an argument, which somebody may have put there, counts.
    for tensor in tensors_among(ignored):
        if _is_kept_inside(states.get(id(tensor), PUBLIC)):
            known[id(tensor)] = PUBLIC

    return known


def _is_kept_inside(state: State) -> bool:
    """Whether a tensor is what a kernel has kept for itself, perhaps with the name of the operation
    before the reason.
    """
    return isinstance(state, Mixed) and not state.kept and state.why.endswith(INSIDE.why)


def constants_before(written: list[Tensor], states: Mapping[int, State]) -> dict[int, Tensor]:
    """Copies of public tensors that an operation on records is about to overwrite: its rule may
    have to read them.
    """
    constants = [tensor for tensor in written if states.get(id(tensor), PUBLIC) is PUBLIC]
    with out_of_sight():
        return {id(tensor): tensor.detach().clone() for tensor in constants}
