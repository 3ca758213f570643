"""A function in which weights met records, as rules see it, and what the backward pass makes of it.

    forward     weights enter detached; every output gets an identity node (`nodes`)
    backward    each node's gradient makes a factor: the per-record gradients of one value

Legend: m records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from discreet.training.factors.factors import FACTORS, Dense, Factor, tensors_of, wide
from discreet.training.rules.nodes import Receiver, new_anchor, spread_to_records, tap
from discreet.training.rules.weights import Region, Value, ViewOf
from discreet.training.separation.marks import no_functions, out_of_sight, writes_of
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import OneByOne, Rows
from discreet.training.tables.tables import RunTables

__all__ = ["Call", "Make", "Rule", "Use", "Uses", "WrongGuess", "own_rule"]


Make: TypeAlias = Callable[[Tensor], Factor]
"""From the gradient of an output to the factor of a value."""

_NO_TABLES = RunTables()


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
    """One value met records once, in one call.

    Args:
        value: that met records.
        number: of the call.
        factor: per-record gradients of the value; None until the backward pass has come by.
        dtype: precision in which the gradient arrived, as autocast may have it.
        lifted: the factor by leaf and region of the parameters behind the value, when the pass has
            ended.
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
        finish: turns the factor of a use into the form that is stored.
        hold: is told what a call keeps until the backward pass, and the number of the call.
        tables: whose rows are computed where they are looked up.
        unjudged: context for what the library computes itself, which the proof does not judge.

    Attributes:
        unjudged: as it was given.
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
        tables: RunTables = _NO_TABLES,
        unjudged: Callable[[], AbstractContextManager[object]] = out_of_sight,
    ) -> None:
        self.proof = proof
        self.tables = tables
        self.unjudged = unjudged
        self.uses: list[Use] = []
        self.anchor = new_anchor(device)
        self.forward = True

        self._finish = finish
        self._hold = hold
        self._parts: list[Tensor] = []  # of factors
        self._watched: list[Tensor] = []
        self._writes: list[int] = []  # how often each of them was written to

    def receiver(
        self,
        call: Call,
        pairs: Iterable[tuple[Value, Make]],
        rows: Rows,
        watched: Sequence[Tensor] = (),
    ) -> Receiver:
        """What turns the gradient of an output into factors; each `Make` is dropped after its use.

        Args:
            call: in which values met records.
            pairs: the values, and what makes a factor of each from the gradient.
            rows: where the records must be in the gradient, or it is not one for each record.
            watched: arguments that a `Make` holds, which must not change in place; autograd watches
                over its own.
        """
        # The closure below outlives the call: it takes what it needs, and not the call itself,
        # whose arguments would stay in memory until the backward pass.
        number, name, guessed = call.number, call.name, call.guess is not None
        is_users_rule = own_rule(call.func) is not None

        waiting: list[tuple[Use, Make]] = []
        used = list(watched)
        for value, make in pairs:
            use = Use(value, number)
            waiting.append((use, make))
            used.append(value.tensor)
            self.uses.append(use)

        # Plain training keeps the inputs of layers as well: a trial counts them as autograd's own.
        if self._hold is not None:
            for tensor in watched:
                self._hold(tensor, number)

        versions = self._versions(used)

        def receive(gradient: Tensor) -> None:
            # The order matters: first whether this gradient may be looked at at all, then whether
            # what the rule holds is still what the function met, then whose records are in it.
            if not waiting or self.forward:
                raise OneByOne(
                    "the model is differentiated within its own forward pass, or more than once"
                )

            with no_functions(), out_of_sight():  # none of this is an operation of the user's
                if self._versions(used) != versions:
                    raise OneByOne(f"an argument of {name} was changed in place after it was used")

                used.clear()
                self._require_gradient_rows(gradient, rows, name, number if guessed else None)
                plain = gradient.detach()

            # Taken out one by one: a `make` holds activations, which can go when it was called.
            while waiting:
                use, make = waiting.pop(0)
                use.dtype = gradient.dtype

                # A user's rule is not believed: it runs in sight of the proof, which must find one
                # row for each record in its factor. The rules of the library run out of sight.
                factor = make(plain) if is_users_rule else None

                with no_functions(), self.unjudged():
                    if factor is not None:
                        self._require_factor_rows(factor, name)

                    use.factor = self._finish(use, make(plain) if factor is None else factor)
                    self._hold_factor(use.factor)

        return receive

    def _require_gradient_rows(
        self, gradient: Tensor, rows: Rows, name: str, guess: int | None
    ) -> None:
        """Fail the pass unless a gradient has its records where the rule says.

        Args:
            gradient: of an output of the function.
            rows: where its records must be.
            name: of the function.
            guess: number of the call, if `rows` was only guessed.
        """
        try:
            self.proof.require_rows(gradient, rows, f"the gradient of {name}")
        except OneByOne:
            # Dropped and tried again: the guess was ours, and says nothing about the loss.
            if guess is not None:
                raise WrongGuess(guess) from None

            raise

    def _require_factor_rows(self, factor: Any, name: str) -> None:
        """Fail the pass unless every record's part of a factor depends on that record alone.

        Only the factors of the library are believed to say what they hold.
        """
        if type(factor) not in FACTORS:
            self.proof.fail(
                f"the rule of {name} gives a factor of another class than the library's"
            )

        for tensor in tensors_of(factor):
            self.proof.require_rows(tensor, Rows(0), f"what the rule of {name} makes of a gradient")

    def watch(self, tensors: Sequence[Tensor]) -> None:
        """Note tensors that nobody may write into until the pass ends."""
        self._watched += tensors
        self._writes += writes_of(tensors)

    def watch_on(self, tensor: Tensor, writes: int) -> None:
        """Go on watching the memory of a tensor after a write that autograd has seen.

        Args:
            tensor: a weight computed in the pass, that a function of weights and constants has
                changed in place.
            writes: how often its memory had been written to before that.
        """
        (now,) = writes_of([tensor])
        memory = tensor.untyped_storage().data_ptr()

        # What was written there before, by whoever else, still counts as a change.
        for place, watched in enumerate(self._watched):
            here = watched.untyped_storage().data_ptr() == memory
            if here and self._writes[place] == writes:
                self._writes[place] = now

    def _hold_factor(self, factor: Factor) -> None:
        """Note the tensors of a factor: of these norms and sums are made when the pass is over."""
        parts = tensors_of(factor)
        self._parts += parts
        self.watch(parts)

    def end(self) -> None:
        """The backward pass is over: what was caught becomes factors of parameters, and is nobody's
        to change from now on.

        It is to be called within the pass. What held the graph of the pass lets go of it: whatever
        runs because of that is seen.

        Raises:
            OneByOne: something that a factor or a weight was made of was written to after it was
                used.
        """
        # Before gradients go back to parameters: they do so by what the values were made of (T08).
        self.require_untouched()

        with no_functions(), self.unjudged():  # torch's own functions, on what is as it was
            for use in self.uses:
                # No gradient came back where the loss does not depend on a result.
                if use.factor is not None:
                    use.lifted = use.value.lift(use.factor)
                    for *_, factor in use.lifted:
                        if factor is not use.factor:
                            self._hold_factor(factor)

                use.value = use.value.without_graph()

            self.proof.require_unmoved(self._parts)

    def require_untouched(self) -> None:
        """Fail the pass if something that must stay as it was has been written to."""
        with no_functions():
            writes = writes_of(self._watched)

        if writes != self._writes:
            raise OneByOne("what a gradient or a weight was made of was changed after it was used")

    def _versions(self, tensors: Sequence[Tensor]) -> list[object]:
        """What shows whether a tensor was written to.

        A write through `.data` counts no version of torch's.
        """
        with no_functions():
            # The version is what autograd itself goes by.
            versions = [tensor._version for tensor in tensors]  # noqa: SLF001
            return [*versions, *writes_of(tensors), *map(self.proof.state, tensors)]


@dataclass(slots=True, eq=False)
class Call:
    """One function in which values met records.

    Args:
        uses: of the pass.
        values_by_id: what is known of weights, by `id` of the tensor.
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
        """How many records the pass has."""
        return self.uses.proof.count

    @property
    def name(self) -> str:
        """The name of torch's function, by which rules are found."""
        return str(self.func.__name__)

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """The argument at a position or of a name, or the default."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def get_all(self, *names: str) -> list[Any]:
        """The first arguments, by their names in the order of the signature; None if missing."""
        return [self.get(position, name) for position, name in enumerate(names)]

    def value(self, thing: object) -> Value | None:
        """The value behind an argument, if it is one."""
        return self.values_by_id.get(id(thing))

    def values(self) -> list[Value]:
        """All values among the arguments."""
        known = self.values_by_id
        return [known[id(tensor)] for tensor in self.tensors if id(tensor) in known]

    def others(self) -> list[Tensor]:
        """The tensors among the arguments that are no values."""
        return [tensor for tensor in self.tensors if id(tensor) not in self.values_by_id]

    def rows_in(self) -> list[tuple[Tensor, Rows]]:
        """The tensors among the arguments that hold records, and where."""
        # Public tensors have no place.
        places = [(tensor, self.axes[id(tensor)]) for tensor in self.others()]

        return [(tensor, rows) for tensor, rows in places if rows is not None]

    def plain(self, thing: Any) -> Any:
        """An argument as the function may have it: a value without its gradient."""
        if self.value(thing) is None:
            return thing

        with out_of_sight():
            return thing.detach()

    def looked_up(self, weight: Tensor, ids: Tensor) -> Tensor:
        """Rows of a parameter, as `torch.embedding` gives them."""
        value = self.value(weight)
        table = self.uses.tables.concealed(value.leaf) if isinstance(value, ViewOf) else None
        if table is None:
            return torch.embedding(self.plain(weight), ids)

        # Which rows are brought up to date is the library's business; which are read, the proof's.
        with no_functions(), out_of_sight():
            rows, slots = table.look_up(ids)

        return torch.embedding(rows, slots[ids])

    def state_of(self, out: Tensor) -> Rows:
        """Where the records are in a result.

        Raises:
            OneByOne: it does not have one entry, or several, for each record along one axis.
        """
        # The result is public where a place was guessed: the proof says nothing about it.
        if self.guess is not None:
            return self.guess

        state = self.uses.proof.state(out)
        if not isinstance(state, Rows):
            raise OneByOne(f"a result of {self.name} has no clear record axis")

        return state

    def rows(self, tensor: Tensor, *, like: Tensor | None = None) -> Tensor:
        """A tensor as (m, ...): the record axis first, then what was folded into it.

        Args:
            tensor: an argument, or of the axes of one.
            like: the argument whose axes the tensor has; the tensor itself if None.
        """
        # A public tensor has no records, so no rows.
        place = self.axes[id(tensor if like is None else like)]
        if place is None:
            raise OneByOne(f"an argument of {self.name} has no clear record axis")

        return self.split(tensor, place)

    def split(self, tensor: Tensor, place: Rows) -> Tensor:
        """A tensor with its records at a place as (m, ...); see `rows`."""
        if place.clear:
            return tensor.movedim(place.dim, 0) if place.dim else tensor

        # The axis has outer * m * inner entries: its records are the middle one of three axes.
        split = torch.unflatten(tensor, place.dim, (place.outer, self.m, place.inner))

        return split.movedim(place.dim + 1, 0)

    def tap(
        self, out: Tensor, *pairs: tuple[Value | None, Make], rows: Rows | None = None
    ) -> Tensor:
        """The output, whose gradient makes the factor of each value.

        Args:
            out: result of the function, computed from plain values.
            pairs: values, and what makes the factor of each; None for an argument that is no value.
            rows: where the records are in an output that is public itself.
        """
        place = self.state_of(out) if rows is None else rows

        # Parameters that are frozen are no values, and need no gradient.
        values = [(value, make) for value, make in pairs if value is not None]
        if not values:
            return out

        # What is no value may be held by a `make`, and must not change until the backward pass.
        receive = self.uses.receiver(self, values, place, self.others())

        return tap(out, self.uses.anchor, receive)

    def copies(self, value: Value, dim: int, shape: tuple[int, ...]) -> Tensor:
        """The value viewed as `shape`, with one copy for each record along a new axis at `dim`.

        The gradient of record i's copy is G_i, the record's gradient of the value.
        """

        def make(gradient: Tensor) -> Factor:
            return Dense(wide(gradient).movedim(dim, 0).reshape(self.m, *value.tensor.shape))

        receive = self.uses.receiver(self, [(value, make)], Rows(dim))
        single = value.tensor.detach().reshape(*shape[:dim], 1, *shape[dim:])

        return spread_to_records(
            single, (*shape[:dim], self.m, *shape[dim:]), self.uses.anchor, receive
        )


Rule: TypeAlias = Callable[[Call], Any]
"""From a call to its result, whose gradient is caught (`Call.tap`, `Call.copies`). Raises
`OneByOne` where it cannot.
"""


def own_rule(func: Any) -> Rule | None:
    """The rule that a user gave to a function (`discreet.training.register_rule`), or None."""
    rule: Rule | None = getattr(func, "_discreet_rule", None)
    return rule
