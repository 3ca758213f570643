"""Rules of your own: for functions whose per-record gradients no rule covers, and for custom
operators.

    register_rule          the per-record gradient of a function
    register_separation    what a custom operator makes of records
    check_rule, check_separation    the oracles that test them, as the library tests its own

A wrong rule for a gradient costs accuracy, not privacy: norms and sums come from the same numbers,
and what it makes of a gradient is proved to have rows. A wrong rule for separation costs privacy.
So the first is compared with torch's own gradients in the first step of every run, and the second
should be tested with every shape and kind of input that the operator has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from discreet import _validate as check
from discreet.errors import ModelError, ParameterError
from discreet.training.data.copies import Augmented
from discreet.training.data.trees import check_rows, select, tensors_in
from discreet.training.engine import USER_ERRORS, Engine, Loss
from discreet.training.passes.contributions import Contributions, gathered
from discreet.training.passes.oracle import agree, tolerance_of
from discreet.training.passes.passes import Passes
from discreet.training.passes.precision_settings import full_precision
from discreet.training.passes.sandbox import seeded_pass
from discreet.training.passes.trials import TrialPass
from discreet.training.rules.call import Call
from discreet.training.separation.effects import Effects
from discreet.training.separation.operation import forget_operations
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Mixed, OneByOne, Rows, is_public
from discreet.training.separation.table import RULES as SEPARATION_RULES
from discreet.training.separation.table.operands import Operands

__all__ = ["check_rule", "check_separation", "register_rule", "register_separation"]

_FLOATS = (0.0, -1.0, 3.7, 1e30, float("nan"), float("inf"))
_WHOLE = (0, 1, -1, 7, 100, 10_000)

_Change: TypeAlias = Callable[[Tensor, int], Tensor]
"""From an argument and the axis of its records to other numbers in all of its places."""


def register_rule(
    rule: Callable[[Call], Any],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of tensors whose per-record gradients a rule of yours computes.

    The rule gets a `Call`: it computes the result from `call.plain(...)` values and taps it with
    what makes the factor of each weight from the result's gradient (`call.tap`);
    `discreet.training.rules.linear` is an example to read.

    Args:
        rule: from a `Call` to the result.

    >>> from discreet.training.factors.factors import Dense
    >>> def scaled_rule(call):
    ...     x, weight = call.args
    ...     y = x * call.plain(weight)
    ...     return call.tap(y, (call.value(weight), lambda gradient: Dense(gradient * x.detach())))
    >>> @register_rule(scaled_rule)
    ... def scaled(x, weight):
    ...     return x * weight
    >>> scaled(torch.ones(2, 3), torch.full((3,), 2.0)).sum()
    tensor(12.)
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def visible(*args: Any, **kwargs: Any) -> Any:
            tensors = tuple(tensors_in(args, kwargs))
            if has_torch_function(tensors):  # also where a mode is on, as in a pass
                return handle_torch_function(visible, tensors, *args, **kwargs)

            return function(*args, **kwargs)

        # Where `own_rule` looks.
        visible._discreet_rule = rule  # type: ignore[attr-defined]  # noqa: SLF001
        return visible

    return decorate


def register_separation(operator: str, rule: Callable[[Operands], Any]) -> None:
    """Say what a custom operator makes of records.

    Guarantee: that of a run rests on this rule: each entry of a result that it claims for a record
    must be a function of the entries of the arguments that belong to the record, and of public
    arguments. Test it with `check_separation`.

    Args:
        operator: its name, "library::operator", as registered with torch.library.
        rule: from `Operands` to the state of the results; raises `Unknown` where it does not know.

    Raises:
        ParameterError: an operator of torch's own, one that does not exist, or one that has a rule.
    """
    operator_name: object = operator
    is_custom = isinstance(operator_name, str) and not operator_name.startswith("aten::")
    if not is_custom or not _exists(operator) or operator in SEPARATION_RULES:
        raise ParameterError(
            owner="register_separation",
            name="operator",
            expected=(
                '"library::operator" of a library of your own, registered with torch.library, '
                "without a rule so far"
            ),
            got=repr(operator),
        )

    function: object = rule
    if not callable(function):
        raise ParameterError(
            owner="register_separation",
            name="rule",
            expected="a function of Operands",
            got=type(rule).__name__,
        )

    # What was remembered of the operator was judged without a rule.
    SEPARATION_RULES[operator] = rule
    forget_operations()
    Effects.forget()


def _exists(operator: str) -> bool:
    """Whether torch knows an operator of this name, or this overload of it."""
    library, _, name = operator.partition("::")
    base, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, library, None), base, None) if base else None
    return packet is not None and (not overload or overload in packet.overloads())


def check_rule(model: nn.Module, loss: Loss, batch: Any, records: int) -> None:
    """Compare what the rules make of a batch with torch's own gradients of its single records.

    Args:
        model: that uses the function; without random numbers, dropout aside, which keeps everything
            here.
        loss: one value for each record.
        batch: with `records` rows, of the numbers and kinds that the function will meet.
        records: at least 2.

    Raises:
        ModelError: no rule covers the pass, or the gradients are not torch's; or the pass draws
            random numbers, so that they cannot be compared.
        ParameterError: fewer records.
    """
    check.whole("check_rule", "records", records, least=2)
    check_rows(batch, records)
    engine = Engine(model)
    for _ in engine.passes(loss, batch, records, records):
        pass

    if engine.one_by_one is not None:
        raise _wrong_rule(f"one whose records are computed one by one: {engine.one_by_one}")

    # Augmentations draw at random; compared is the loss of plain rows.
    row_loss = loss.loss if isinstance(loss, Augmented) else loss
    passes = Passes(model, engine.parameters, engine.batch_norm)
    try:
        trial = passes.trial(row_loss, batch, records)
    except OneByOne as reason:
        raise _wrong_rule(f"one whose records would be computed one by one: {reason}") from None

    try:
        _compare(engine, passes, row_loss, batch, trial)
    finally:
        trial.release()


def _compare(engine: Engine, passes: Passes, loss: Loss, batch: Any, trial: TrialPass) -> None:
    """Refuse a pass in which a record has other gradients than by itself, with torch's own."""
    if trial.random:
        raise ModelError(
            expected=(
                "a pass without random numbers, so that a record can be compared with itself in "
                "another pass"
            ),
            got="one that draws some: nothing was compared",
            do="Put layers that add noise in eval mode for the check.",
        )

    taped, count = trial.taped, len(trial.taped.losses)
    contributions = Contributions(
        gathered(taped.uses, engine.parameters, lambda _, factor: factor), count, count
    )
    kinds = [torch.empty(0, dtype=use.dtype) for use in taped.uses]
    tolerance = tolerance_of([*engine.parameters.values(), *kinds])

    # Each record in a pass of its own, by torch's own gradients; a parameter without one has zeros.
    for row in range(count):
        alone, _ = passes.alone(loss, select(batch, torch.tensor([row])), 1, trial=True)
        truth = {leaf: torch.zeros_like(parameter) for leaf, parameter in engine.parameters.items()}
        truth |= alone
        with full_precision(engine.device):
            if not agree(contributions, row, truth, tolerance):
                raise _wrong_rule("other gradients than torch's own for a record of the batch")


def _wrong_rule(got: str) -> ModelError:
    return ModelError(
        expected="a pass that the rules cover, with torch's own gradients",
        got=got,
        do=(
            "Look at the operation that is named; compare the rule with one of "
            "discreet.training.rules."
        ),
    )


# --- separation ---


def check_separation(
    function: Callable[..., Any], arguments: Sequence[Any], axes: Mapping[int, int], records: int
) -> bool:
    """Test a separation rule: what it claims for a record must keep every bit while all other
    records change, or change places.

    Results are compared, and arguments, which the operator may have written. In the place of other
    records there are those of others, zeros, large numbers, the smallest and the largest, NaN,
    infinity, and other truth values. Where the operator raises an error for such numbers, that
    trial is left out. An operator that draws random numbers finds the same ones each time, and is
    not tried with records in other places.

    Args:
        function: of the arguments, to a tensor or several; such as `torch.ops.library.operator`.
        arguments: of which some hold records.
        axes: place of an argument to the axis that tells the record, for those that do; negative
            axes count from the last.
        records: how many there are along these axes, at least 2; each may have several rows, one
            after the other.

    Returns:
        Whether rows are claimed for a result; False if everything is `Mixed`, which is never wrong.

    Raises:
        ModelError: a claim is false, or nothing could be tried.
        ParameterError: records or axes that the arguments do not have.
    """
    claim = _Claim(function, arguments, _normalised(arguments, axes, records), records)
    states = claim.states()
    if states is None:
        return False

    truth, draws = claim.outcome(claim.arguments)
    if not truth:
        raise _nothing_tried()

    for record in range(records):
        for trial in claim.outcomes_around(record):
            claim.compare(states, (truth, record), (trial, record), "when other records do")

    # In other places a record would find other random numbers.
    for order in () if draws else claim.orders():
        moved, _ = claim.outcome(claim.reordered(order))
        for place, record in enumerate(order.tolist() if moved else ()):
            claim.compare(
                states, (truth, record), (moved, place), "when records are put in other places"
            )

    return any(isinstance(state, Rows) for state in states[: claim.results])


def _nothing_tried() -> ModelError:
    return ModelError(
        expected="an operator that computes something of other records",
        got="errors for all that were tried",
        do=(
            "Pass arguments of several records that the operator can bear in the place of each "
            "other."
        ),
    )


def _normalised(arguments: Sequence[Any], axes: Mapping[int, int], records: int) -> dict[int, int]:
    """The axes, counted from the first, of arguments that have so many records."""
    owner = "check_separation"
    check.whole(owner, "records", records, least=2)
    counted = {}
    for place, axis in axes.items():
        # A negative place would name an argument, but not be found among the axes again.
        argument = arguments[place] if 0 <= place < len(arguments) else None
        if not isinstance(argument, Tensor) or not -argument.ndim <= axis < argument.ndim:
            raise ParameterError(
                owner=owner,
                name="axes",
                expected="from places of tensors to axes that they have",
                got=f"{{{place}: {axis}}}",
            )

        rows = argument.shape[axis]
        if not rows or rows % records:
            raise ParameterError(
                owner=owner,
                name="axes",
                expected=f"axes with so many rows for each of {records} records",
                got=f"{rows} rows along {{{place}: {axis}}}",
            )

        counted[place] = axis % argument.ndim

    if not counted:
        raise ParameterError(
            owner=owner, name="axes", expected="at least one argument with records", got="none"
        )

    return counted


@final
@dataclass(slots=True)
class _Claim:
    """What a rule says of one call, and ways to try it.

    Args:
        function: of the arguments.
        arguments: of the user, which stay as they are.
        axes: of the arguments with records.
        records: at least 2.
        results: tensors that the function returned; after `states`.
    """

    function: Callable[..., Any]
    arguments: Sequence[Any]
    axes: Mapping[int, int]
    records: int
    results: int = 0

    def states(self) -> list[Any] | None:
        """The states of the results, then of the arguments after the call; None if the call cannot
        be followed.
        """
        proof = Proof(self.records)
        with proof:
            placed = []
            for place, argument in enumerate(self.arguments):
                if place in self.axes:
                    inner = argument.shape[self.axes[place]] // self.records
                    placed.append(proof.begin(argument, Rows(self.axes[place], inner)))
                else:
                    placed.append(_copied(argument))

            try:
                results = tensors_in(self.function(*placed))
            except OneByOne:
                return None

        self.results = len(results)
        return [proof.state(tensor) for tensor in (*results, *tensors_in(placed))]

    def outcome(self, arguments: Sequence[Any]) -> tuple[list[Tensor], bool]:
        """Results, then arguments after the call, none if it raises; and whether it draws random
        numbers.
        """
        copies = [_copied(argument) for argument in arguments]
        with seeded_pass(0):
            before = torch.get_rng_state()
            try:
                results = tensors_in(self.function(*copies))
            except USER_ERRORS:
                return [], False

            draws = not torch.equal(before, torch.get_rng_state())

        return [*results, *tensors_in(copies)], draws

    def outcomes_around(self, record: int) -> list[list[Tensor]]:
        """What comes out with other numbers in the place of all records but one, where the operator
        bears them.

        Raises:
            ModelError: it bears none.
        """
        trials = [self.outcome(changed)[0] for changed in self.changed_around(record)]
        bearable = list(filter(None, trials))
        if not bearable:
            raise _nothing_tried()

        return bearable

    def changed_around(self, record: int) -> Iterator[list[Any]]:
        """The arguments with other numbers in the place of all records but one: in one argument, or
        in all at once.
        """
        by_place = {place: _changes(self.arguments[place], self.records) for place in self.axes}
        for place, changes in by_place.items():
            for change in changes:
                yield self._changed(record, {place: change})

        # All at once: each argument takes its changes in turn, as often as the longest list asks.
        for number in range(max(map(len, by_place.values()))):
            yield self._changed(
                record,
                {place: changes[number % len(changes)] for place, changes in by_place.items()},
            )

    def _changed(self, record: int, changes: Mapping[int, _Change]) -> list[Any]:
        changed = list(self.arguments)
        for place, change in changes.items():
            tensor, axis = self.arguments[place], self.axes[place]
            owners = torch.arange(tensor.shape[axis]) // (tensor.shape[axis] // self.records)

            # True where the record's own rows are, whatever the other axes.
            shape = [-1 if dim == axis else 1 for dim in range(tensor.ndim)]
            mine = (owners == record).view(shape).to(tensor.device)
            changed[place] = torch.where(mine, tensor, change(tensor, axis))

        return changed

    def orders(self) -> list[Tensor]:
        """Other orders of the records: which record is in each place."""
        numbers = torch.arange(self.records)
        return [numbers.roll(1), numbers.flip(0), torch.cat([numbers[1::2], numbers[::2]])]

    def reordered(self, order: Tensor) -> list[Any]:
        """The arguments with their records in another order."""
        moved = list(self.arguments)
        for place, axis in self.axes.items():
            # All rows of a record go along, in their own order.
            tensor = self.arguments[place]
            inner = tensor.shape[axis] // self.records
            rows = (order[:, None] * inner + torch.arange(inner)).flatten()
            moved[place] = tensor.index_select(axis, rows.to(tensor.device))

        return moved

    def compare(
        self,
        states: Sequence[Any],
        before: tuple[list[Tensor], int],
        after: tuple[list[Tensor], int],
        when: str,
    ) -> None:
        """Refuse outcomes that are different in what is claimed for a record, given with its place
        in each of them.
        """
        (first, place), (second, other_place) = before, after
        same_number = len(states) == len(first) == len(second)
        for state, result, counterpart in zip(states, first, second, strict=False):
            if isinstance(state, Mixed):
                continue

            same_shape = same_number and result.shape == counterpart.shape
            if not same_shape or not _same(
                self._rows(result, state, place), self._rows(counterpart, state, other_place)
            ):
                raise ModelError(
                    expected=f"a result or a written argument that is {state}, as the rule says",
                    got=f"one that changes {when}",
                    do=(
                        "Name every argument that may hold records, and refuse what the rule does "
                        "not know."
                    ),
                )

    def _rows(self, result: Tensor, state: Any, place: int) -> Tensor:
        """What a state claims for the record in a place; everything, where it is public."""
        if is_public(state):
            return result

        owners = torch.arange(result.shape[state.dim]) // state.inner % self.records
        return result.index_select(state.dim, (owners == place).nonzero()[:, 0].to(result.device))


def _copied(argument: Any) -> Any:
    return argument.clone() if isinstance(argument, Tensor) else argument


def _changes(tensor: Tensor, records: int) -> list[_Change]:
    """What is put in the place of other records, by the kind of numbers."""

    def filled(value: float) -> _Change:
        return lambda tensor, _: torch.full_like(tensor, value)

    moved: list[_Change] = [
        lambda tensor, axis: tensor.roll(tensor.shape[axis] // records, axis),
        lambda tensor, axis: tensor.flip(axis),
    ]
    if tensor.dtype == torch.bool:
        return [*moved, filled(0), filled(1), lambda tensor, _: ~tensor]

    if tensor.is_floating_point() or tensor.is_complex():
        return [*moved, *map(filled, _FLOATS)]

    # Whole numbers may be indices: also those that lie just outside of what is there.
    limits = torch.iinfo(tensor.dtype)
    numbers = tensor.flatten().tolist()
    least, largest = min(numbers, default=0), max(numbers, default=0)
    values = {*_WHOLE, limits.min, min(limits.max, 2**63 - 1), least, largest, largest + 1}
    allowed = [value for value in sorted(values) if limits.min <= value <= limits.max]
    return [*moved, *map(filled, allowed)]


def _same(x: Tensor, y: Tensor) -> bool:
    """Whether two tensors have the same bits; all that are no numbers are the same."""
    same = x == y
    if x.is_floating_point():
        # Zeros of both signs are equal, and have other bits.
        same &= x.signbit() == y.signbit()

    return bool((same | (x.isnan() & y.isnan())).all())
