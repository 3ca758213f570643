"""A pass that proves itself: every operation of ATen, forward and backward, goes by the table of
rules.

    tensors of the batch begin as Rows ──> each operation: states in, rule, states out ──> losses
    and gradients at taps

`Proof` is a dispatch mode of torch. Unknown operations give `Mixed`; what leaves for Python, or a
shape or a number of random numbers that depends on records, fails the pass; a write of records into
memory that was there before the pass is refused before it happens. Theorem, assumptions and what is
not covered: docs/proofs/separation.md.

What an operation did is remembered under everything that its rule could read (`effects.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NoReturn, Self
from weakref import ref

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from discreet.errors import CoupledRecords
from discreet.training.separation.books import Books
from discreet.training.separation.draws import Draws, generators_among
from discreet.training.separation.effects import Effect, Effects, Lookup, can_be_repeated
from discreet.training.separation.exits import (
    arguments_of,
    caught_error,
    depends_on_kept,
    keeps_records,
    layer_of,
    leak_of,
    require_bounds,
    targets_of,
    targets_of_records,
    written_by,
)
from discreet.training.separation.marks import (
    PLAIN_TENSORS,
    fill_grown,
    marked_part,
    no_functions,
    note_writes,
    out_of_sight,
    sizes_of,
    storage_of,
)
from discreet.training.separation.operation import OPERATIONS, Operation, operation_of
from discreet.training.separation.outcomes import Outcomes, constants_before
from discreet.training.separation.states import (
    OWN,
    PUBLIC,
    Mixed,
    OneByOne,
    Rows,
    SharedDraws,
    State,
    is_public,
)
from discreet.training.separation.table.operands import tensors_among, uniform
from discreet.training.state.moved import Moved

__all__ = ["Proof"]

_IN = ", in the "


class Proof(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows the records of one pass.

    Args:
        count: records of the pass, each a row of the batch. With 1, everything belongs to the one
            record: only what is kept for later is watched, and what Python sees.
        names: the modules of the model, `id` to name, for messages.
        describe: names a tensor that was there before the pass, for messages.
        shown: whether Python may see numbers of the one record of the pass: it is made up, or the
            process is its own.
        shared_draw: for the time of a draw, by its number in the pass: random numbers that are the
            same in all passes of a step.
        shares_draws: whether all random numbers serve all records that are drawn without looking at
            one; otherwise those may be the records' own that have an axis for them.

    Attributes:
        failure: why the pass is not proved, as soon as that is certain; None until then. Public.
        state: tells what a tensor depends on.
        error: the operation that raised an error which a record may have caused; empty if there was
            none.
        going_back: whether the backward pass has begun.
        reads_allowed: whether numbers may leave for Python for now: torch looks at them to raise an
            error, and for nothing else.
    """

    def __init__(
        self,
        count: int,
        names: Mapping[int, str] | None = None,
        describe: Callable[[Tensor], str] = lambda _: "memory that was there before the pass",
        *,
        shown: bool = False,
        shared_draw: Callable[[int], AbstractContextManager[None]] = lambda _: nullcontext(),
        shares_draws: bool = False,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = count
        self.shown = shown
        self.failure: str | None = None
        self.reads_allowed = False
        self.going_back = False
        self.error = ""

        self._refusal: CoupledRecords | None = None
        self._kind: type[OneByOne] = OneByOne  # of failure
        self._names = names or {}
        self._describe = describe

        self._books = Books(count, self._where, self._find_shared_draws)
        self.state: Callable[[Tensor], State] = self._books.state
        self._draws = Draws(self._books, self.fail, shared_draw, all_shared=shares_draws)
        self._outcomes = Outcomes(self._books, count, self.fail)
        self._effects = Effects.of(count, shown=shown)

    def __enter__(self) -> Self:
        self._draws.begin()
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]

    # --- states ---

    def begin(self, tensor: Tensor, rows: Rows, places: Tensor | None = None) -> Tensor:
        """A tensor of the batch, in memory of its own, whose records are along an axis.

        Args:
            tensor: of the batch; sensitive.
            rows: where its records are.
            places: which rows are taken, in which order; None for all as they are.
        """
        with no_functions(), out_of_sight():
            entry = tensor.detach()
            if places is not None:
                entry = entry.index_select(0, places.to(entry.device))
            else:
                entry = entry.clone(memory_format=torch.contiguous_format)

        self._books.inner = rows.inner
        self._books.set_new(entry, rows if self.count > 1 else OWN)
        return entry

    @property
    def reasons(self) -> list[str]:
        """Where states became `Mixed`, in order. Public."""
        return self._books.reasons

    def told(self, state: Mixed) -> str:
        """Why records were joined, with the layer in which that came up first. Public."""
        return self._books.told(state)

    def is_made_here(self, tensor: Tensor) -> bool:
        """Whether a tensor lies in memory of this pass."""
        storage = storage_of(tensor)
        return storage is None or self._books.made_here(storage)

    def require_rows(self, tensor: Tensor, rows: Rows, what: str) -> None:
        """Fail the pass unless a tensor is public or has its records there.

        Raises:
            OneByOne: it has not.
            CoupledRecords: it depends on what an earlier pass kept.
        """
        with no_functions():
            state = self.state(tensor)

            # Public, and still a way to treat records by their place.
            if state is PUBLIC and not uniform(tensor, rows, self.count):
                self.fail(f"{what} has other values for other places of a batch")

            if is_public(state) or state == rows or state is OWN:
                return

            self.refuse_kept(state)
            self.fail(f"{what} depends on several records: {self._books.cause_of(state)}")

    def declare(self, tensor: Tensor, state: State) -> None:
        """Note what a result in new memory depends on, of an operation in which nobody looked."""
        with no_functions():
            self._books.set_new(tensor, state)

    def require_unmoved(self, tensors: Iterable[Tensor]) -> None:
        """Fail the pass if one of these lies in public memory that the pass has changed, and which
        is put back before the sums are made.

        Raises:
            OneByOne: one of them does.
        """
        with no_functions():
            if self._books.moves(tensors):
                self.fail("what a pass gives lies in state that it changes")

    def end_draws(self) -> None:
        """Fail the pass if torch's generator does not stand where the draws of the pass have left
        it: the next pass would begin with numbers that somebody has chosen.

        Raises:
            OneByOne: it stands elsewhere.
        """
        if self.count > 1:
            self._draws.end()

    def use_up_noise(self) -> None:
        """Random numbers of the pass were read: from now on those are told by their places."""
        self._books.use_up_noise()

    def refuse_kept(self, state: State) -> None:
        """Refuse what depends on an earlier pass or on the data set: one by one does not help."""
        if isinstance(state, Mixed) and state.kept:
            self._refuse(depends_on_kept(state.why))

    def fail(self, why: str) -> None:
        """Note that the pass is not proved, or would show Python its one record, and stop it.

        Raises:
            OneByOne: always, but where Python may see numbers.
        """
        if self.shown:
            return

        # The first failure counts, and the layer that is the cause: a reason may name it already.
        if self.failure is None:
            self.failure = why if _IN in why else why + self._where()

        raise self._kind(self.failure)

    def check(self) -> None:
        """Raise again what a user's code may have caught, or C++ code wrapped."""
        if self._refusal is not None:
            raise self._refusal

        if self.failure is not None:
            raise self._kind(self.failure)

    def note_error(self, operation: str) -> None:
        """Note an error of an operation on records: it tells of a record, whoever catches it."""
        self.error = self.error or f"{operation}{self._where()}"

        # The one record goes on in a process of its own, where an error may be caught.
        if self.count == 1:
            self.fail("an error")

    def refuse_caught_errors(self) -> None:
        """Refuse a loss that went on after an error of an operation on several records.

        Computing them one by one instead would tell everybody that there was such a record.
        """
        if self.error and self.count > 1:
            raise caught_error(self.error)

    def erase(self) -> None:
        """Overwrite what the pass made of records: whoever has kept a tensor finds nothing in it.

        It is to be called when the contributions of the pass were added to the sums.
        """
        self._books.erase()

    def put_back(self) -> Moved:
        """Put public state from before the pass back; return what the pass made of it."""
        return self._books.put_back()

    def _refuse(self, error: CoupledRecords) -> NoReturn:
        self._refusal = error
        raise error

    def _where(self) -> str:
        name = layer_of(self._names)
        return f"{_IN}{name}" if name else ""

    def _find_shared_draws(self) -> None:
        """Random numbers with an axis for records serve all of them: the pass is drawn again.

        Raises:
            SharedDraws: always, unless the pass has failed before.
        """
        if self.failure is None and not self._draws.all_shared:
            self._kind = SharedDraws

        self.fail("random numbers with an axis for records serve all of them")

    # --- the mode ---

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Nothing is compiled during a pass: this leaves out a wrapper around every call.
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        # This runs for every operation of every pass: it is written for speed.
        with no_functions():
            operation = OPERATIONS.get(func._op) or operation_of(func)  # noqa: SLF001

            if operation.is_view and type(args[0]) in PLAIN_TENSORS:
                return self._viewed(func, operation, args, kwargs)

            if operation.draws and self.count > 1:
                named = kwargs or {}
                call = partial(self._followed, func, operation, args, named)
                return self._draws.run(call, operation, args, named, going_back=self.going_back)

            return self._followed(func, operation, args, kwargs or {})

    def _followed(self, func: Any, operation: Operation, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation: as it ran before with arguments of these kinds, or by its rule."""
        lookup = Lookup(func._op)  # noqa: SLF001
        if not lookup.enter(args, kwargs, self._books):
            return self._judged(func, operation, args, kwargs)

        if not lookup.secret:
            return self._public(func, operation, args, kwargs, lookup)

        effect = self._effects.by_key.get(tuple(lookup.key))
        if effect is not None and (
            not effect.targets or effect.applies(lookup, self._books.made_here)
        ):
            return self._repeated(func, operation, args, kwargs, lookup, effect)

        return self._learned(func, operation, args, kwargs, lookup)

    def _viewed(
        self, func: Any, operation: Operation, args: Any, kwargs: dict[str, Any] | None
    ) -> Any:
        """One tensor goes in, and what comes out is in its memory, which tells everything."""
        source = args[0]
        try:
            # Without another look-up.
            out = func._op(*args, **kwargs) if kwargs else func._op(*args)  # noqa: SLF001
        except Exception:
            self._raised(operation, [source])
            raise

        views = (out,) if type(out) is Tensor else out
        try:
            storage = source.untyped_storage()
            for view in views:
                # A copy, whatever the schema says.
                if view.untyped_storage() is not storage:
                    break

                if view.dtype is not source.dtype:
                    self._books.retype(storage)
            else:
                return out
        except (NotImplementedError, RuntimeError):  # without a storage there are no marks
            pass

        return self._outcomes.settle(operation, arguments_of(operation, args, kwargs or {}), out)

    def _public(
        self, func: Any, operation: Operation, args: Any, kwargs: dict[str, Any], lookup: Lookup
    ) -> Any:
        """An operation on public tensors alone: its results are public too."""
        content = lookup.public_content(operation)

        # Random numbers that are read as a whole: they are the records' own from now on, where
        # there is an axis for records, or known to everybody.
        if content is PUBLIC and lookup.noise:
            if self._books.assign_noise(lookup.tensors):
                return self._judged(func, operation, args, kwargs)

            self._books.use_up_noise()

        return self._outcomes.run_public(func, operation, args, kwargs, content)

    # --- one call, judged by its rule ---

    def _judged(self, func: Any, operation: Operation, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation, and ask its rule what it made of the states of its arguments."""
        inputs = tensors_among((args, kwargs))
        self._refuse_kinds(operation, inputs)
        states = {id(tensor): self.state(tensor) for tensor in inputs}

        generators = generators_among(args, kwargs)
        for generator in generators:
            self._books.save_generator(generator)

        if all(map(is_public, states.values())):
            lookup = Lookup(func)
            lookup.secret_numbers = not generators
            return self._public(func, operation, args, kwargs, lookup)

        if generators and self.count > 1:
            self.fail(
                f"{operation.full_name} draws for records from a generator of the user's own, "
                "which others may know"
            )

        # torch takes it apart, and this mode sees the parts.
        if operation.composite:
            with self:
                out = func.decompose(*args, **kwargs)

            if out is not NotImplemented:
                return out

        # Before it runs: it may be written in Python.
        if operation.custom and operation.rule is None:
            self.fail(f"{operation.full_name} has no rule")

        return self._ruled(func, operation, args, kwargs, states)

    def _ruled(
        self,
        func: Any,
        operation: Operation,
        args: Any,
        kwargs: dict[str, Any],
        states: dict[int, State],
    ) -> Any:
        """Run an operation on records, between the checks before it and its rule after it."""
        arguments = arguments_of(operation, args, kwargs)
        self._check_exits(operation, arguments, states)

        written = written_by(operation, arguments)
        constants = constants_before(written, states)
        sizes = sizes_of(written) if operation.is_geometry else []

        out = self._executed(func, operation, args, kwargs)

        note_writes(map(marked_part, targets_of(operation, arguments)))
        fill_grown(written, sizes)
        return self._outcomes.settle(operation, arguments, out, states, constants)

    def _check_exits(
        self, operation: Operation, arguments: Mapping[str, Any], states: Mapping[int, State]
    ) -> None:
        """Before an operation on records runs: it lets nothing out, and writes nowhere from where
        it could be taken later.
        """
        leak = leak_of(operation, arguments, states)
        may_read = self.reads_allowed and not operation.gives_tensors
        if leak is not None and not may_read:
            # What was kept from before is refused for good, and not computed one by one.
            for state in states.values():
                self.refuse_kept(state)

            self.fail(f"{operation.full_name} {leak}")

        for target in targets_of_records(operation, arguments, states):
            if not self._books.made_here(target.untyped_storage()):
                what, place = f"{operation.full_name}, which writes", self._describe(target)
                self._refuse(keeps_records(what, place, self._where()))

    def _refuse_kinds(self, operation: Operation, inputs: list[Tensor]) -> None:
        """Fail the pass at tensors with code of their own, or without plain memory to mark."""
        for tensor in inputs:
            kind = type(tensor)
            if kind not in PLAIN_TENSORS or tensor.layout is not torch.strided:
                self.fail(f"{operation.full_name} meets a tensor of another kind, {kind.__name__}")

    def _raised(self, operation: Operation, inputs: list[Tensor]) -> None:
        """An error of an operation on records tells something about a record."""
        if not all(is_public(self.state(tensor)) for tensor in inputs):
            self.note_error(operation.full_name)

    # --- remembered ---

    def _learned(
        self, func: Any, operation: Operation, args: Any, kwargs: dict[str, Any], lookup: Lookup
    ) -> Any:
        """Judge by the rule; what that did to the marks is remembered, if it may be."""
        before = [storage._separation for storage in lookup.storages]  # noqa: SLF001
        self._books.looked = False
        self._books.news.clear()

        out = self._judged(func, operation, args, kwargs)

        # Values of public tensors are not in the key: what went by them is judged each time.
        if not self._books.looked and can_be_repeated(operation):
            written = written_by(operation, arguments_of(operation, args, kwargs))
            reasons = list(self._books.news)
            self._effects.learn(lookup, before, tensors_among(out), written, reasons)

        return out

    def _repeated(
        self,
        func: Any,
        operation: Operation,
        args: Any,
        kwargs: dict[str, Any],
        lookup: Lookup,
        effect: Effect,
    ) -> Any:
        """The operation is known: run it, and put the marks that it left the first time."""
        out = self._executed(func, operation, args, kwargs)
        if effect.targets:
            note_writes(lookup.storages[target.place] for target in effect.targets)

        # Nearly all operations: one new result. What `Books.set` does, without a call.
        simple = effect.simple
        if simple is not None and type(out) is Tensor and simple.fits(out):
            storage: Any = out.untyped_storage()
            storage._separation = (self._books.number, simple.content, True)  # noqa: SLF001
            self._books.secret.append(ref(storage))
            return out

        # Anything that is not as it was then is judged by the rule after all.
        results = (out,) if type(out) is Tensor else tensors_among(out)
        if not effect.fits(results, lookup.storages):
            return self._outcomes.settle(operation, arguments_of(operation, args, kwargs), out)

        effect.put(results, lookup, self._books)
        return out

    def _executed(self, func: Any, operation: Operation, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run an operation on records; note an error of it."""
        try:
            if operation.bounded is not None:
                require_bounds(operation, arguments_of(operation, args, kwargs))

            return func._op(*args, **kwargs) if kwargs else func._op(*args)  # noqa: SLF001
        except Exception:
            self._raised(operation, tensors_among((args, kwargs)))
            raise
