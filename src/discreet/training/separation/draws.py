"""The random numbers that torch draws in one pass: they must be new, and are either the records'
own or the same in all passes of a step.

    draw ──> looks at a record, or has an axis for records ──> drawn on from where the pass stands
         └─> serves all records ────────────────────────────> by its number in the pass, from the
                                                             seed of the step

What serves all records is the same in all passes of a step, because how records are divided into
passes depends on how many there are. Numbers that could be the records' own, and turn out to serve
all of them, are drawn again (`SharedDraws`). Section 4 of docs/proofs/separation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, final

import torch
from torch import Tensor

from discreet.training.separation.books import Books
from discreet.training.separation.exits import arguments_of, written_by
from discreet.training.separation.marks import PLAIN_TENSORS, no_functions, out_of_sight
from discreet.training.separation.operation import Operation
from discreet.training.separation.states import FILLED, NOISE, PUBLIC, is_public
from discreet.training.separation.table.operands import tensors_among

__all__ = ["Draws", "generators_among"]

_SET_BACK = "the loss seeds torch's generator, or sets it back"


def _generator_state() -> bytes:
    """Tells which random numbers of torch come next."""
    with no_functions(), out_of_sight():
        return torch.default_generator.get_state().numpy().tobytes()


def generators_among(args: Any, kwargs: dict[str, Any]) -> list[torch.Generator]:
    """Generators of the user's own that an operation is given to draw from."""
    arguments = (*args, *kwargs.values())
    return [argument for argument in arguments if isinstance(argument, torch.Generator)]


def _sizes(args: Any, kwargs: dict[str, Any]) -> list[int]:
    """Sizes of axes among the arguments of a draw."""
    things = [*args, *kwargs.values()]
    shapes = [tensor.shape for tensor in tensors_among(things)]
    return [*_numbers_in(things), *_numbers_in(shapes)]


def _numbers_in(things: Iterable[Any]) -> list[int]:
    """Whole numbers in the lists among these, in which an operation is given sizes."""
    lists = [thing for thing in things if isinstance(thing, (list, tuple))]
    return [number for number in chain(*lists) if isinstance(number, int)]


@final
class Draws:
    """Runs the operations of a pass that draw random numbers.

    Args:
        books: of the pass.
        fail: is told why the pass is not proved; raises, but where Python may see numbers.
        shared_draw: for the time of a draw, by its number in the pass: random numbers that are the
            same in all passes of a step.
        all_shared: whether all random numbers serve all records that are drawn without looking at
            one; otherwise those may be the records' own that have an axis for them.

    Attributes:
        all_shared: as it was given.
    """

    __slots__ = (
        "_after_forward",
        "_books",
        "_drawn",
        "_fail",
        "_next",
        "_numbers",
        "_shared_draw",
        "all_shared",
    )

    def __init__(
        self,
        books: Books,
        fail: Callable[[str], None],
        shared_draw: Callable[[int], AbstractContextManager[None]],
        *,
        all_shared: bool,
    ) -> None:
        self._books = books
        self._fail = fail
        self._shared_draw = shared_draw
        self.all_shared = all_shared
        self._next: bytes | None = None  # where the generator must stand at the next draw
        # States of the generator from which this pass has drawn; each has a number.
        self._numbers: dict[bytes, int] = {}
        self._drawn: set[tuple[object, ...]] = set()  # states, and what was drawn there
        self._after_forward: bytes | None = None  # where the generator stood

    def begin(self) -> None:
        """Note where torch's generator stands when the pass is entered for the first time."""
        if self._next is None:
            self._next = _generator_state()

    def run(
        self,
        call: Callable[[], Any],
        operation: Operation,
        args: Any,
        kwargs: dict[str, Any],
        *,
        going_back: bool,
    ) -> Any:
        """Run an operation that draws random numbers, which must be new: neither those of a seed of
        the user's, nor some that were drawn before, with which they could be compared.

        Args:
            call: runs the operation, and notes the states of its results.
            operation: that draws.
            args: of the operation, by place.
            kwargs: of the operation, by name.
            going_back: whether the backward pass has begun.
        """
        state = _generator_state()

        # A backward pass may draw again what the forward pass drew: checkpoints of activations do.
        # With other sizes, numbers of one record would go to another.
        drawn = (state, operation.full_name, *_sizes(args, kwargs))
        if going_back and self._after_forward is None:
            self._after_forward = self._next

        if state != self._next and not (going_back and drawn in self._drawn):
            self._fail(_SET_BACK)

        self._drawn.add(drawn)

        # A draw that is repeated has its number again, and so the same numbers.
        number = self._numbers.setdefault(state, len(self._numbers))

        try:
            if generators_among(args, kwargs):  # which are put back after the pass (`kept.py`)
                return call()

            if self._serves_all(args, kwargs):
                with self._shared_draw(number):
                    out = call()

                # Every draw has a state of its own, by which a checkpoint finds it again, also
                # where the generator itself has not drawn.
                torch.rand(())
                self._publish(operation, args, kwargs, out)
                return out

            out = call()
            self._refuse_public(tensors_among(out))
            return out
        finally:
            self._next = _generator_state()

    def end(self) -> None:
        """Fail the pass unless the generator stands where the pass has left it, or where the
        forward pass had, to which checkpoints of activations return.
        """
        if _generator_state() not in (self._next, self._after_forward):
            self._fail(_SET_BACK)

    def _serves_all(self, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether a draw looks at no record, and has no axis for records (or none that counts)."""
        things = [*args, *kwargs.values()]
        tensors = tensors_among(things)
        # Dropout of records, say, draws for each of them.
        if not all(map(self._is_plain_and_public, tensors)):
            return False

        # An axis that is a multiple of the records may be theirs.
        return self.all_shared or all(size % self._books.count for size in _sizes(args, kwargs))

    def _is_plain_and_public(self, tensor: Tensor) -> bool:
        return type(tensor) in PLAIN_TENSORS and is_public(self._books.state(tensor))

    def _publish(self, operation: Operation, args: Any, kwargs: dict[str, Any], out: Any) -> None:
        """Mark what a draw for all records has given or written."""
        written = written_by(operation, arguments_of(operation, args, kwargs))

        for tensor in [*tensors_among(out), *written]:
            if self._books.state(tensor) is NOISE:
                self._books.publish(tensor)

    def _refuse_public(self, results: Iterable[Tensor]) -> None:
        """Have the pass drawn again if numbers that could be the records' own are public: then they
        serve all records, and must be the same in all passes.
        """
        if any(self._books.state(result) in (PUBLIC, FILLED) for result in results):
            self._books.on_shared()
