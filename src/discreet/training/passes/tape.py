"""Tapes an ordinary forward pass: every function in which a parameter meets records.

Nothing about the model is touched: a mode of torch sees the functions that the model calls, and the
proof of the pass says where the records are in each tensor. A function that has a rule is taped by
it; any other with one copy of the value for each record, through vmap: exact for whatever it
computes. What no rule covers raises `OneByOne`, and the records of the pass are computed one by one
instead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from discreet.training.data.trees import tensors_in
from discreet.training.passes.batch_norm import Noting
from discreet.training.passes.trials import without_dropout
from discreet.training.rules.call import Call, Rule, Uses, own_rule
from discreet.training.rules.copies import changes_in_place
from discreet.training.rules.guess import passed_on, repeated_axes
from discreet.training.rules.weights import (
    Derived,
    TableRows,
    Value,
    ViewOf,
    sources_of,
    view_of,
    whole_region,
)
from discreet.training.separation.doors import Doors
from discreet.training.separation.marks import no_functions, out_of_sight, writes_of
from discreet.training.separation.states import Mixed, OneByOne, Rows, Stumbled
from discreet.training.tables.rows import other_use

__all__ = ["Tape"]

_DIFFERENTIATE = frozenset({"backward", "grad"})
# One argument gives values, the other only its dtype and device.
_BY_KIND = frozenset(
    {"new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "to", "type_as"}
)
# What these say of a weight is not in its numbers.
_OF_SHAPE = frozenset(
    {"device", "dim", "dtype", "is_leaf", "layout", "ndim", "numel", "requires_grad"}
    | {"shape", "size", "stride"}
)
_is_wrapped: Any = torch._C._functorch.is_functorch_wrapped_tensor  # noqa: SLF001


class Tape(Doors):
    """A function mode that tapes one forward pass: where parameters meet records.

    Args:
        parameters: what is trained, by leaf.
        uses: of the pass, with its proof.
        rules: by name of the function; "*" for all others.
        noting: what batch normalisation does.
        no_guess: numbers of calls in which a weight is not repeated for each record, although it
            seems so.
        steady: whether dropout keeps everything.
    """

    def __init__(
        self,
        parameters: Mapping[str, Tensor],
        uses: Uses,
        rules: Mapping[str, Rule],
        noting: Noting,
        no_guess: Collection[int] = (),
        *,
        steady: bool = False,
    ) -> None:
        super().__init__(uses.proof)
        self.uses = uses
        self.noting = noting
        self.calls = 0

        self._rules = rules
        self._no_guess = no_guess
        self._steady = steady

        self._parameters = dict(parameters)

        # By `id`: each value holds its tensor, so that no other gets the number meanwhile.
        self._values: dict[int, Value] = {
            id(p): ViewOf(p, leaf, whole_region(p)) for leaf, p in parameters.items()
        }
        self._entered = 0

    def __enter__(self) -> Self:
        self._entered += 1
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *what: object) -> None:
        # Entered again for functions that are written in Python: the outermost ends the pass.
        self._entered -= 1
        self.uses.forward = self._entered > 0
        super().__exit__(*what)  # type: ignore[no-untyped-call]

    def _refuse_hooks(self, tensor: Any) -> None:
        """A hook on a weight would run where its gradients are taken back to parameters."""
        if id(tensor) in self._values:
            self.proof.fail("a hook is put on a weight, or its graph is looked at")

    def _replaced(
        self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Sequence[Any], dict[str, Any]]:
        # The taps' gradients would arrive in the middle of the forward pass.
        if func.__name__ in _DIFFERENTIATE:
            raise OneByOne("the model is differentiated within its own forward pass")

        return self.noting.released_only(func, args, kwargs)

    def _called(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        number = self.calls
        self.calls += 1
        if self._steady:
            args, kwargs = without_dropout(func.__name__, args, kwargs)

        # Again, after `_replaced`: torch.batch_norm may be called past torch.nn.functional (P09).
        if func.__name__ == "batch_norm":
            args, kwargs = self.noting.released_only(func, args, kwargs)
            self._note(func, args, kwargs)

        if self.uses.tables and self._meets(args, kwargs):
            self._refuse_other_use(func, args, kwargs)

        # Most functions have no weight among their arguments: autograd goes through them by itself.
        if not torch.is_grad_enabled() or not self._meets(args, kwargs):
            return func(*args, **kwargs)

        try:
            return self._meeting(number, func, args, kwargs)
        except Stumbled:
            raise  # on made-up records, of which the engine takes care
        except OneByOne as reason:
            self.proof.fail(str(reason))  # remembered, whoever catches it
            raise

    def _meets(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether a value is among the arguments."""
        # Asked for every function that a pass calls: a tensor by itself comes first.
        for thing in args:
            if id(thing) in self._values:
                return True

            # Several tensors in one argument, as of torch.cat.
            if isinstance(thing, (list, tuple)) and self._has_value_in(thing):
                return True

        return bool(kwargs) and self._has_value_in(kwargs)

    def _has_value_in(self, things: Any) -> bool:
        """Whether a value is anywhere in a structure."""
        return not self._values.keys().isdisjoint(map(id, tensors_in(things)))

    def end(self) -> None:
        """Let go of all weights that were computed in the pass, and of their graphs."""
        self._values.clear()

    def _note(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Every record's moments, for private statistics."""
        leaf = self.noting.leaf_of(args, kwargs)
        if leaf is None:
            return

        call = self._call(-1, func, args, kwargs)
        x = call.get(0, "input")
        place = call.axes[id(x)]
        rows = call.rows(x)

        # The axis of channels is the second of x. Records that come first leave it there, behind
        # what was folded into their axis; records that come from behind it push it on by one.
        channel = 2 if place is not None and place.dim > 1 else rows.ndim - x.ndim + 1

        with no_functions(), out_of_sight():
            self.noting.note(leaf, rows, channel)

    def _call(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Call:
        tensors = tensors_in(args, kwargs)
        return Call(
            self.uses, self._values, number, func, args, kwargs, self._axes(func, tensors), tensors
        )

    def _axes(self, func: Any, tensors: list[Tensor]) -> dict[int, Rows | None]:
        """Where the records are in each tensor."""
        axes: dict[int, Rows | None] = {}
        for tensor in tensors:
            # Of tensors that torch.func wraps, the proof knows nothing.
            if _is_wrapped(tensor):
                raise OneByOne(f"{func.__name__} is called with a weight inside of torch.func")

            state = self.proof.state(tensor)
            if isinstance(state, Mixed):
                self.proof.refuse_kept(state)  # one by one it would be kept, too
                raise OneByOne(
                    f"{func.__name__} joins a weight with several records: {self.proof.told(state)}"
                )

            axes[id(tensor)] = state if isinstance(state, Rows) else self._repeats(tensor)

        return axes

    def _repeats(self, tensor: Tensor) -> Rows | None:
        """The record axis of a public tensor that hangs on a weight that was repeated for each
        record; None for others.
        """
        if not tensor.requires_grad or id(tensor) in self._values:
            return None

        # A size decides here, as in `rules/guess.py`: the gradient must show that it was right.
        sizes, count = tensor.shape[:2], self.proof.count
        return Rows(sizes.index(count)) if count in sizes else None

    def _meeting(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        call = self._call(number, func, args, kwargs)
        if any(rows is not None for rows in call.axes.values()):
            call.guess = None if number in self._no_guess else passed_on(call)
            return self._taped(call)

        # A class token that is expanded to one row for each record meets none of them yet (P12).
        if number not in self._no_guess and (guess := repeated_axes(call)) is not None:
            call.guess, call.axes = guess
            return self._taped(call)

        return self._derived(call)

    def _taped(self, call: Call) -> Any:
        """A value meets records, or is repeated for each of them."""
        # Of such functions the weight gives the result no number, so it gets no gradient.
        if call.name in _BY_KIND and call.guess is None:
            return call.func(
                *map(call.plain, call.args),
                **{name: call.plain(thing) for name, thing in call.kwargs.items()},
            )

        # The rules' formulas are for real numbers; autograd knows the others.
        name = "*" if any(map(torch.is_complex, call.tensors)) else call.name
        rule = own_rule(call.func) or self._rules.get(name, self._rules["*"])

        try:
            return rule(call)
        except torch.OutOfMemoryError:
            raise  # of the machine, not of the call
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            if self._steady:  # on made-up records, which may decide
                why = f"{call.name} is called in a way that its rule does not know"
                raise Stumbled(why) from error

            # A record may have caused it: a loss that catches it and goes on is refused (T07).
            self.proof.note_error(call.name)
            raise

    def _refuse_other_use(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Refuse a table anywhere but where records look up its rows, to be trained.

        Raises:
            ModelError: it would be read as a whole, or past its noise.
        """
        call = self._call(-1, func, args, kwargs)
        leaves = {
            leaf for value in call.values() for leaf, _ in sources_of(value, self._parameters)
        }
        tables = sorted(leaf for leaf in leaves if leaf in self.uses.tables)
        is_look_up = (
            call.name == "embedding"
            and torch.is_grad_enabled()
            and call.axes.get(id(call.get(1, "indices"))) is not None
        )

        # The name of a property stands in its descriptor. A shape reads no row.
        name = getattr(getattr(func, "__self__", None), "__name__", call.name)
        if tables and not is_look_up and name not in _OF_SHAPE:
            raise other_use(tables[0], f"{name}()")

    def _derived(self, call: Call) -> Any:
        """A value meets constants: what comes out is a value too."""
        # Behind such a tensor there may be parameters whose gradients nobody would take back.
        if any(tensor.requires_grad for tensor in call.others()):
            raise OneByOne(
                f"{call.name} joins a parameter with something that was computed before the pass"
            )

        out = self._computed(call)

        # Results without a gradient, as of comparisons, have nothing to give back.
        results = [tensor for tensor in tensors_in(out) if tensor.requires_grad]
        for tensor in results:
            self._values[id(tensor)] = self._value(call, tensor)

        # Autograd goes back through them when the pass ends.
        self.uses.watch([*call.tensors, *results])
        return out

    def _computed(self, call: Call) -> Any:
        """The result of a function of values and constants, which may change its first argument."""
        changed = call.args[0] if call.args and changes_in_place(call.name) else None
        if not isinstance(changed, Tensor):
            return call.func(*call.args, **call.kwargs)

        # Autograd has seen this write, and refuses to go back where it needs what was there before.
        (writes,) = writes_of([changed])
        out = call.func(*call.args, **call.kwargs)
        self.uses.watch_on(changed, writes)

        return out

    def _value(self, call: Call, tensor: Tensor) -> Value:
        """What a result is to the parameters behind it, in the cheapest form that fits."""
        values = call.values()
        sources = dict(pair for value in values for pair in sources_of(value, self._parameters))

        if len(sources) == 1:
            ((leaf, parameter),) = sources.items()
            region = view_of(tensor, parameter)
            # A view of what was computed is none of the parameter, wherever it lies.
            if region is not None and set(map(type, values)) == {ViewOf}:
                return ViewOf(tensor, leaf, region)

        return _looked_up(call, tensor) or Derived(tensor, tuple(sources.items()))


def _looked_up(call: Call, tensor: Tensor) -> TableRows | None:
    """Rows of a table at fixed places, each place once."""
    table = call.value(call.get(0, "weight")) if call.name == "embedding" else None
    ids, padding = call.get(1, "indices"), call.get(2, "padding_idx", -1)

    # The row of the padding has no gradient, wherever it is looked up: autograd knows that.
    if not isinstance(table, ViewOf) or not isinstance(ids, Tensor) or padding >= 0:
        return None

    if len(torch.unique(ids)) < ids.numel():
        return None

    return TableRows(tensor, table.leaf, table.region, ids)
