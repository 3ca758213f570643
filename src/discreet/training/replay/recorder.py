"""What ran in a proved pass: every operation of ATen that was executed, in its order, with its
arguments.

    Proof ──> executes an operation ──> Recorder: operation, arguments as slots, results as slots

`Recorder` is a dispatch mode below the proof: it sees exactly what the proof lets run, composites
taken apart, forward and backward, and what the rules of the library make of gradients. A slot is a
tensor by its memory and its place in it, so that autograd's own objects for the same memory are one
slot. What cannot be executed again as it ran is a reason not to (`reason`); it never stops the pass
that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, Self, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode,
    _pop_mode_temporarily,
)

from discreet.training.data.seeding import global_states
from discreet.training.replay.steps import (
    Compared,
    Operated,
    Recorded,
    Slot,
    SlotOrigin,
    ValuesRead,
    filled,
    slots_in,
)
from discreet.training.separation.exits import arguments_of, targets_of
from discreet.training.separation.marks import (
    PLAIN_TENSORS,
    is_constant,
    no_functions,
    out_of_sight,
)
from discreet.training.separation.operation import Operation, operation_of
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import PUBLIC, Rows, is_public
from discreet.training.separation.table.operands import tensors_among, witnessed

__all__ = ["Recorder", "recorded"]


@contextmanager
def recorded(recorder: Recorder | None) -> Iterator[None]:
    """For the time of what is made of a pass that has ended: recorded, if there is a recorder."""
    if recorder is None:
        yield
        return

    with recorder, recorder.unjudged():
        yield


class _NotAgain(Exception):
    """What runs cannot be executed again as it is: what an operation does, in words. Public."""


@final
class _Memory:
    """A storage that was met, and the slots that lie in it, by their place."""

    __slots__ = ("origin", "slots")

    def __init__(self, origin: SlotOrigin) -> None:
        self.origin = origin
        self.slots: dict[tuple[Any, ...], Slot] = {}


@final
class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records one pass.

    Attributes:
        reason: why the pass cannot be executed again; None if it can. Public.
        steps: what ran, in its order.
        before: tensors from before the pass that were met, by slot.
        entries: slots of what the pass was given of its records, in their order.
        sizes: of these.
        kind: of the last of them, the shares of losses.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._witnessing = ExitStack()
        self.reason: str | None = None
        self._clear()

    def _clear(self) -> None:
        self.steps: list[Recorded] = []
        self.before: dict[Slot, Tensor] = {}
        self.entries: list[Slot] = []
        self.sizes: list[torch.Size] = []
        self.kind = torch.float32

        self._token = object()  # tells the marks of this recording from those of others
        self._number = -1  # of the pass, as the proof marks it
        self._count = 0
        self._unjudged = 0
        self._is_operating = False  # whether an operation that the proof judges is about to run
        self._proof: Proof | None = None
        self._generator = b""
        self._random: tuple[Any, ...] = ()

    def begin(self, proof: Proof, entries: Sequence[Tensor]) -> None:
        """A pass begins, perhaps again: what was recorded before is dropped.

        Args:
            proof: of the pass.
            entries: what the pass is given of its records, begun by the proof.
        """
        self._clear()
        self._proof = proof
        self._generator, self._random = _generator_state(), global_states()
        for entry in entries:
            self.enter(entry)

    def enter(self, entry: Tensor) -> None:
        """One more tensor that the pass is given of its records."""
        storage: Any = entry.untyped_storage()
        self._number = storage._separation[0]  # noqa: SLF001  (the mark of the proof)
        self.kind = entry.dtype
        self.sizes.append(entry.shape)
        self.entries.append(self._made(entry, SlotOrigin.BATCH))

    def __enter__(self) -> Self:
        self._witnessing.enter_context(witnessed(self))
        return super().__enter__()  # type: ignore[no-any-return,no-untyped-call]

    def __exit__(self, *what: object) -> None:
        super().__exit__(*what)  # type: ignore[no-untyped-call]
        self._witnessing.close()

    @contextmanager
    def unjudged(self) -> Iterator[None]:
        """For the time of code of the library's own, which the proof does not judge: recorded."""
        self._unjudged += 1
        try:
            mode = _get_current_dispatch_mode()
            if isinstance(mode, Proof):
                with no_functions(), _pop_mode_temporarily():
                    yield
            elif mode is self:
                with no_functions():
                    yield
            else:
                self.refuse("something else than the pass looks at its operations")
                with no_functions(), out_of_sight():
                    yield
        finally:
            self._unjudged -= 1

    def not_shared(
        self, shared_draw: Callable[[int], AbstractContextManager[None]]
    ) -> Callable[[int], AbstractContextManager[None]]:
        """The same draws; that there is one is a reason: its seed is another one in each step."""

        def draw(number: int) -> AbstractContextManager[None]:
            self.refuse("it draws random numbers that serve all records")
            return shared_draw(number)

        return draw

    def refuse(self, reason: str) -> None:
        """Note why the pass cannot be executed again; the first reason counts."""
        self.reason = self.reason or reason

    def slots_of(self, thing: Any) -> Any:
        """A result of the pass, which has ended, with slots in the place of its tensors."""
        if global_states() != self._random:
            self.refuse("it draws random numbers of Python or NumPy")

        try:
            return filled(thing, self._slot)
        except _NotAgain as reason:
            self.refuse(f"what it gives {reason}")
            return None

    # --- what rules read ---

    def read(self, tensor: Tensor) -> None:
        """A rule reads the numbers of a public tensor."""
        self._witness(tensor, lambda slot: ValuesRead(slot, tensor.detach().clone()))

    def compared(self, tensor: Tensor, rows: Rows, count: int, *, alike: bool) -> None:
        """Somebody asks whether a public tensor is the same for all records."""
        # Geometry alone answers, which does not change.
        if rows.dim >= tensor.ndim or tensor.stride(rows.dim) == 0 or not tensor.numel():
            return

        if tensor.shape[rows.dim] != rows.fold * count:
            return

        self._witness(tensor, lambda slot: Compared(slot, rows, count, alike))

    def _witness(self, tensor: Tensor, step: Callable[[Slot], Recorded]) -> None:
        try:
            with no_functions(), out_of_sight():
                self.steps.append(step(self._slot(tensor)))
        except _NotAgain as reason:
            self.refuse(f"a rule that reads values {reason}")

    # --- the mode ---

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as of `Proof`

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        with no_functions():
            operation = operation_of(func)
            inputs = self._seen(operation, args, named) if self.reason is None else None

            out = func._op(*args, **named)  # noqa: SLF001

            if inputs is not None:
                try:
                    self._note(operation, func, inputs, out)
                except _NotAgain as reason:
                    self.refuse(f"{operation.full_name} {reason}")

            return out

    def _seen(
        self, operation: Operation, args: Any, kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """The arguments of an operation that is about to run, with slots; None if it cannot be
        executed again.
        """
        try:
            self._is_operating = not self._unjudged
            self._require_again(operation, args, kwargs)
            slots = filled((tuple(args), kwargs), self._slot)
        except _NotAgain as reason:
            self.refuse(f"{operation.full_name} {reason}")
            return None
        finally:
            self._is_operating = False

        return slots  # type: ignore[no-any-return]

    def _require_again(self, operation: Operation, args: Any, kwargs: dict[str, Any]) -> None:
        if operation.custom:
            raise _NotAgain("is no operation of torch's own")

        if operation.is_geometry:
            raise _NotAgain("changes how a tensor lies in memory")

        if torch.is_inference_mode_enabled():
            raise _NotAgain("runs in inference mode")

        if any(isinstance(thing, torch.Generator) for thing in (*args, *kwargs.values())):
            raise _NotAgain("draws from a generator of the user's own")

        # What follows from these numbers is what it was when they were read: so they must be the
        # same, and be nobody's.
        tensors = tensors_among((list(args), kwargs))
        if _shows_values(operation) and not self._are_public(tensors):
            raise _NotAgain("looks at numbers of records, to raise an error")

        for target in targets_of(operation, arguments_of(operation, args, kwargs)):
            if self._slot(target).origin is SlotOrigin.BEFORE:
                raise _NotAgain("writes into memory that was there before the pass")

        # Where the generator was set, a draw belongs to something that is not recorded.
        if operation.draws and _generator_state() != self._generator:
            raise _NotAgain("draws from a generator that was set in the pass")

    def _are_public(self, tensors: list[Tensor]) -> bool:
        proof = self._proof
        if not tensors:
            return True

        if proof is None or self._unjudged:
            return False

        return all(is_public(proof.state(tensor)) for tensor in tensors)

    def _note(
        self,
        operation: Operation,
        func: Any,
        inputs: tuple[tuple[Any, ...], dict[str, Any]],
        out: Any,
    ) -> None:
        """Note what ran."""
        if operation.draws:
            self._generator = _generator_state()

        single = not isinstance(out, (list, tuple))
        results = [out] if single else list(out)
        expected = None
        if _shows_values(operation):
            with out_of_sight():
                expected = filled(out, lambda tensor: tensor.detach().clone())

        # Of settings alone, as of two dtypes, comes what does not change.
        if expected is not None and not slots_in(inputs):
            return

        # A view that is there already, as every `detach` is, has nothing to do.
        if operation.is_view and all(map(self._is_known, results)):
            return

        is_new = [isinstance(result, Tensor) and not self._has_memory(result) for result in results]
        slots = tuple([self._result(result) for result in results])
        # As the proof fills it; also where a rule of the library makes it, so that no program ever
        # reads what others left in memory.
        zeroed = operation.uninitialised and any(is_new)

        args, kwargs = inputs
        self.steps.append(
            Operated(
                operation,
                func._op,  # noqa: SLF001
                args,
                kwargs,
                slots,
                single,
                torch.is_grad_enabled(),
                zeroed,
                not self._unjudged,
                expected,
            )
        )

    # --- slots ---

    def _is_known(self, thing: Any) -> bool:
        memory = self._memory(thing) if isinstance(thing, Tensor) else None
        return memory is not None and _place(thing) in memory.slots

    def _has_memory(self, tensor: Tensor) -> bool:
        return self._memory(tensor) is not None

    def _memory(self, tensor: Tensor) -> _Memory | None:
        _require_plain(tensor)
        mark: Any = getattr(tensor.untyped_storage(), "_discreet_memory", None)
        if mark is None or mark[0] is not self._token:
            return None

        memory: _Memory = mark[1]
        return memory

    def _result(self, result: Any) -> Slot | None:
        """The slot of a result; None if it is no tensor, or one that is there already."""
        if not isinstance(result, Tensor):
            return None

        if self._is_known(result):
            return None

        memory = self._memory(result)
        return self._made(result, SlotOrigin.PASS if memory is None else memory.origin)

    def _made(self, tensor: Tensor, origin: SlotOrigin) -> Slot:
        """A new slot."""
        memory = self._memory(tensor)
        if memory is None:
            memory = _Memory(origin)
            storage: Any = tensor.untyped_storage()
            storage._discreet_memory = (self._token, memory)  # noqa: SLF001  (our own mark)

        self._count += 1
        slot = memory.slots[_place(tensor)] = Slot(self._count, memory.origin)
        return slot

    def _slot(self, tensor: Tensor) -> Slot:
        """The slot of a tensor that is used."""
        memory = self._memory(tensor)
        if memory is None or memory.origin is SlotOrigin.BEFORE:
            return self._from_before(tensor)

        place = _place(tensor)
        if place in memory.slots:
            return memory.slots[place]

        return self._seen_otherwise(tensor, memory)

    def _from_before(self, tensor: Tensor) -> Slot:
        """The slot of a tensor that the pass has not made: only the proof's word says so."""
        memory = self._memory(tensor)
        place = _place(tensor)
        if memory is not None and place in memory.slots:
            return memory.slots[place]

        if not self._is_from_before(tensor):
            raise _NotAgain("uses memory that was made where nobody looks")

        slot = self._made(tensor, SlotOrigin.BEFORE)
        self.before[slot] = tensor
        return slot

    def _is_from_before(self, tensor: Tensor) -> bool:
        """Whether the proof, or the library itself, says that memory is public, and was there
        before the pass.
        """
        storage: Any = tensor.untyped_storage()
        proof = self._proof
        if is_constant(storage):
            return True

        if proof is None:
            return False

        # What an operation of the pass meets for the first time is so by the rules of the proof;
        # elsewhere the proof must have met it already.
        mark = getattr(storage, "_separation", None)
        is_met = mark is not None and mark[0] == self._number
        if not is_met and not self._is_operating:
            return False

        return proof.state(tensor) is PUBLIC and not proof.is_made_here(tensor)

    def _seen_otherwise(self, tensor: Tensor, memory: _Memory) -> Slot:
        """The slot of a view that was made out of sight, of memory that is known."""
        sources = [slot for place, slot in memory.slots.items() if place[-1] is tensor.dtype]
        if not sources:
            raise _NotAgain("sees memory as numbers of another kind, where nobody looks")

        slot = self._made(tensor, memory.origin)
        func = torch.ops.aten.as_strided.default
        args = (sources[0], list(tensor.shape), list(tensor.stride()), tensor.storage_offset())
        self.steps.append(
            Operated(
                operation_of(func),
                func._op,  # noqa: SLF001
                args,
                {},
                (slot,),
                single=True,
                gradients=torch.is_grad_enabled(),
                zeroed=False,
                judged=False,
            )
        )
        return slot


def _require_plain(tensor: Tensor) -> None:
    is_plain = type(tensor) in PLAIN_TENSORS and tensor.layout is torch.strided
    if not is_plain or tensor.is_conj() or tensor.is_neg() or tensor.is_nested:
        raise _NotAgain(f"has a tensor of another kind, {type(tensor).__name__}")


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """Where a tensor lies in its memory, and of what its numbers are."""
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


def _shows_values(operation: Operation) -> bool:
    """Whether numbers, or shapes that follow from them, get to Python."""
    return not operation.gives_tensors or bool(operation.dynamic_shape)


def _generator_state() -> bytes:
    with no_functions(), out_of_sight():
        return torch.default_generator.get_state().numpy().tobytes()
