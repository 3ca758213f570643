"""One function in which weights met records, as rules see it; and what the backward pass makes of
it.

    forward: weights enter detached, every output gets an identity node ──> backward: each node's
        gradient makes a factor

Legend: m records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, wide
from discreet.training.rules.nodes import Receiver, new_anchor, spread_out, tap
from discreet.training.rules.weights import Region, Value
from discreet.training.separation.marks import no_functions, out_of_sight, writes_of
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows

__all__ = ["Call", "Make", "Rule", "Use", "Uses", "WrongGuess", "own_rule", "tensors_of"]


Make: TypeAlias = Callable[[Tensor], Factor]
"""From the gradient of an output to the factor of a value."""


class WrongGuess(OneByOne):
    """A weight was taken to be repeated for each record, and its gradient shows that it was not.

    Args:
        number: of the call.
    """

    def __init__(self, number: int) -> None:
        super().__init__(
            "a weight is repeated as often as there are records, but not for each of them"
        )
        self.number = number


@dataclass(slots=True, eq=False)
class Use:
    """One value met records once: the number of the call, and its gradients once the backward pass
    has come by.

    `dtype` is the precision in which the gradient arrived, as autocast may have it; `lifted` is the
    factor by leaf and region of the parameters behind the value, when the pass has ended.
    """

    value: Value
    number: int
    factor: Factor | None = None
    dtype: torch.dtype = torch.float32
    lifted: list[tuple[str, Region, Factor]] = field(default_factory=list)


class Uses:
    """All uses of one pass.

    Args:
        proof: of the pass.
        device: of the model.
        finish: turns what a use caught into the form that is kept.
        hold: is told what a call keeps until the backward pass, and the number of the call.

    Attributes:
        uses: in the order of the forward pass.
        anchor: what every identity node hangs on.
        forward: whether the forward pass is still going on.
    """

    def __init__(
        self,
        proof: Proof,
        device: torch.device,
        finish: Callable[[Use, Factor], Factor],
        hold: Callable[[Tensor, int], None] | None = None,
    ) -> None:
        self.proof = proof
        self.uses: list[Use] = []
        self.anchor = new_anchor(device)
        self.forward = True
        self._finish = finish
        self._hold = hold
        self._watched: list[tuple[Tensor, int]] = []  # with how often each was written to

    def receiver(
        self,
        call: Call,
        pairs: Iterable[tuple[Value, Make]],
        rows: Rows,
        watched: Sequence[Tensor] = (),
    ) -> Receiver:
        """What turns the gradient of an output into factors. Each `Make` is let go of once it was
        used.

        Args:
            call: in which values met records.
            pairs: the values, and what makes a factor of each from the gradient.
            rows: where the records must be in the gradient, or it is not one for each record.
            watched: arguments that a `Make` holds, which must not change in place; autograd watches
                over its own.
        """
        # Not the call, which holds its arguments.
        number, name, guessed, believed = (
            call.number,
            call.name,
            call.guess is not None,
            own_rule(call.func) is None,
        )
        waiting = [(Use(value, number), make) for value, make in pairs]
        self.uses += [use for use, _ in waiting]
        if self._hold is not None:
            for tensor in watched:
                self._hold(tensor, number)
        used = [use.value.tensor for use, _ in waiting] + list(watched)
        before = self._marks_of(used)

        def receive(gradient: Tensor) -> None:
            if not waiting or self.forward:
                raise OneByOne(
                    "the model is differentiated within its own forward pass, or more than once"
                )
            with no_functions(), out_of_sight():  # none of this is an operation of the user's
                if self._marks_of(used) != before:
                    raise OneByOne(f"an argument of {name} was changed in place after it was used")
                used.clear()
                try:
                    self.proof.require_rows(gradient, rows, f"the gradient of {name}")
                except OneByOne:
                    if guessed:
                        raise WrongGuess(number) from None
                    raise
                plain = gradient.detach()
            while waiting:
                use, make = waiting.pop(0)
                use.dtype = gradient.dtype
                # The rules of the library are believed; of a user's it is proved that its factors
                # have rows, too.
                factor = None if believed else make(plain)
                with no_functions(), out_of_sight():
                    if factor is not None:
                        self._require_rows(factor, name)
                    use.factor = self._finish(use, make(plain) if factor is None else factor)
                    self.watch(tensors_of(use.factor))

        return receive

    def _require_rows(self, factor: Any, name: str) -> None:
        """Fail the pass unless every record's part of a factor depends on that record alone."""
        if not type(factor).__module__.startswith("discreet."):
            raise OneByOne(f"the rule of {name} makes a factor of a class of its own")
        for tensor in tensors_of(factor):
            self.proof.require_rows(tensor, Rows(0), f"what the rule of {name} makes of a gradient")

    def watch(self, tensors: Iterable[Tensor]) -> None:
        """Note tensors that nobody may write into until the pass ends."""
        self._watched += [(tensor, writes_of(tensor)) for tensor in tensors]

    def end(self) -> None:
        """The backward pass is over: what was caught becomes factors of parameters, and is nobody's
        to change from now on.

        It is to be called within the pass. What held the graph of the pass lets go of it: whatever
        runs because of that is seen.

        Raises:
            OneByOne: something that a factor or a weight was made of was written to after it was
                used.
        """
        self.require_untouched()
        with no_functions(), out_of_sight():  # torch's own functions, on what is as it was
            for use in self.uses:
                if use.factor is not None:
                    use.lifted = list(use.value.lift(use.factor))
                    self.watch(tensor for *_, factor in use.lifted for tensor in tensors_of(factor))
                use.value = use.value.without_graph()

    def require_untouched(self) -> None:
        """Fail the pass if something that must stay as it was has been written to."""
        with no_functions():
            is_changed = any(writes_of(tensor) != writes for tensor, writes in self._watched)
        if is_changed:
            raise OneByOne("what a gradient or a weight was made of was changed after it was used")

    def _marks_of(self, tensors: Sequence[Tensor]) -> list[object]:
        """What shows whether a tensor was written to.

        A write through `.data` counts no version of torch's.
        """
        marks: list[object] = []
        with no_functions():
            for tensor in tensors:
                version = tensor._version  # noqa: SLF001  (what autograd itself goes by)
                marks += (version, writes_of(tensor), self.proof.state(tensor))
        return marks


@dataclass(slots=True, eq=False)
class Call:
    """One function in which values met records.

    Args:
        uses: of the pass.
        values: what is known of weights, by `id` of the tensor.
        number: of the call.
        func: that was called.
        args: its arguments.
        kwargs: its keyword arguments.
        axes: where the records are in each tensor among them, by `id`; None for a public one.
        tensors: among the arguments, in a fixed order.
        guess: where the records would be in the result, if a weight meets constants alone that seem
            to have an entry for each record, as a class token that is repeated; the gradient shows
            whether that is so.
    """

    uses: Uses
    values_by_id: Mapping[int, Value]
    number: int
    func: Any
    args: Sequence[Any]
    kwargs: dict[str, Any]
    axes: dict[int, Rows | None]
    tensors: list[Tensor]
    guess: Rows | None = None

    @property
    def m(self) -> int:
        """Records."""
        return self.uses.proof.count

    @property
    def name(self) -> str:
        """Of the function."""
        name: str = self.func.__name__
        return name

    @property
    def anchor(self) -> Tensor:
        """What identity nodes hang on."""
        return self.uses.anchor

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by position or name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def value(self, thing: object) -> Value | None:
        """The value behind an argument, if it is one."""
        return self.values_by_id.get(id(thing))

    def values(self) -> Iterator[Value]:
        """All values among the arguments."""
        for tensor in self.tensors:
            value = self.value(tensor)
            if value is not None:
                yield value

    def others(self) -> list[Tensor]:
        """The tensors among the arguments that are no values."""
        return [tensor for tensor in self.tensors if id(tensor) not in self.values_by_id]

    def rows_in(self) -> list[tuple[Tensor, Rows]]:
        """The tensors among the arguments that hold records, and where."""
        return [
            (tensor, rows)
            for tensor in self.others()
            if (rows := self.axes[id(tensor)]) is not None
        ]

    def plain(self, thing: Any) -> Any:
        """An argument as the function may have it: a value without its gradient."""
        if self.value(thing) is None:
            return thing
        with out_of_sight():
            return thing.detach()

    def state_of(self, out: Tensor) -> Rows:
        """Where the records are in a result.

        Raises:
            OneByOne: it does not have one entry, or several, for each record along one axis.
        """
        if self.guess is not None:
            return self.guess
        state = self.uses.proof.state(out)
        if not isinstance(state, Rows):
            raise OneByOne(f"a result of {self.name} has no clear record axis")
        return state

    def rows(self, tensor: Tensor, *, like: Tensor | None = None) -> Tensor:
        """(m, ...): the record axis first, what was folded into it next. `like`: has the same axes."""
        place = self.axes[id(tensor if like is None else like)]
        if place is None:
            raise OneByOne(f"an argument of {self.name} has no clear record axis")
        if place.clear:
            return tensor.movedim(place.dim, 0) if place.dim else tensor
        split: Tensor = tensor.unflatten(place.dim, (place.outer, self.m, place.inner))  # type: ignore[no-untyped-call]
        return split.movedim(place.dim + 1, 0)

    def tap(
        self, out: Tensor, *pairs: tuple[Value | None, Make], rows: Rows | None = None
    ) -> Tensor:
        """The output, whose gradient makes the factor of each value. `rows`: its records, where it
        is public itself.
        """
        place = self.state_of(out) if rows is None else rows
        values = [(value, make) for value, make in pairs if value is not None]
        if not values:
            return out
        return tap(out, self.anchor, self.uses.receiver(self, values, place, self.others()))

    def copies(self, value: Value, dim: int, shape: tuple[int, ...]) -> Tensor:
        """The value viewed as `shape`, with one copy for each record along a new axis at `dim`."""

        def make(gradient: Tensor) -> Factor:
            return Dense(wide(gradient).movedim(dim, 0).reshape(self.m, *value.tensor.shape))

        receive = self.uses.receiver(self, [(value, make)], Rows(dim))
        single = value.tensor.detach().reshape(*shape[:dim], 1, *shape[dim:])
        return spread_out(single, (*shape[:dim], self.m, *shape[dim:]), self.anchor, receive)


def tensors_of(thing: Any) -> list[Tensor]:
    """All tensors of a factor, in whatever it holds."""
    if isinstance(thing, Tensor):
        return [thing]
    if isinstance(thing, Mapping):
        parts: Iterable[Any] = thing.values()
    elif isinstance(thing, (list, tuple)):
        parts = thing
    elif is_dataclass(thing):
        parts = [getattr(thing, entry.name) for entry in fields(thing)]
    else:
        return []
    return [tensor for part in parts for tensor in tensors_of(part)]


Rule: TypeAlias = Callable[[Call], Any]
"""From a call to its result, whose gradient is caught (`Call.tap`, `Call.copies`). Raises
`OneByOne` where it cannot.
"""


def own_rule(func: Any) -> Rule | None:
    """The rule that a user gave to a function of theirs (`discreet.training.register_rule`); None
    for all others.
    """
    rule: Rule | None = getattr(func, "_discreet_rule", None)
    return rule
