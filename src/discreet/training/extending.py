"""Rules of your own: for functions whose per-record gradients no rule covers, and for custom operators.

    register_rule          the per-record gradient of a function
    register_separation    what a custom operator makes of records
    check_rule, check_separation    the oracles that test them, as the library tests its own

A wrong rule for a gradient costs accuracy, not privacy: norms and sums come from the same numbers. A wrong rule for separation
costs privacy. So the first is compared with torch's own gradients in the first step of every run, and the second should be
tested with every shape and kind of input that the operator has.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import handle_torch_function, has_torch_function

from discreet.errors import ModelError, ParameterError
from discreet.training.data.trees import tensors_in
from discreet.training.engine import Engine, Loss
from discreet.training.rules.call import Call
from discreet.training.separation.effects import Effects
from discreet.training.separation.operation import forget_operations
from discreet.training.separation.proof import Proof
from discreet.training.separation.states import Mixed, OneByOne, Rows, is_public
from discreet.training.separation.table import RULES as SEPARATION_RULES
from discreet.training.separation.table.operands import Operands

__all__ = ["check_rule", "check_separation", "register_rule", "register_separation"]

_ALTERATIONS = (0.0, -1.0, 3.7, 1e30, float("nan"), float("inf"))


def register_rule(rule: Callable[[Call], Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function of tensors whose per-record gradients a rule of yours computes.

    The rule gets a `Call`: it computes the result from `call.plain(...)` values and taps it with what makes the factor of
    each weight from the result's gradient (`call.tap`); `discreet.training.rules.linear` is an example to read.

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

        visible._discreet_rule = rule  # type: ignore[attr-defined]  # noqa: SLF001  (where `own_rule` looks)
        return visible

    return decorate


def register_separation(operator: str, rule: Callable[[Operands], Any]) -> None:
    """Say what a custom operator makes of records.

    Guarantee: that of a run rests on this rule: each entry of a result that it claims for a record must be a function of the
    entries of the arguments that belong to the record, and of public arguments. Test it with `check_separation`.

    Args:
        operator: its name, "library::operator", as registered with torch.library.
        rule: from `Operands` to the state of the results; raises `Unknown` where it does not know.

    Raises:
        ParameterError: an operator of torch's own, or one that has a rule.
    """
    if "::" not in operator or operator.startswith("aten::") or operator in SEPARATION_RULES:
        raise ParameterError(
            owner="register_separation",
            name="operator",
            expected='"library::operator" of a library of your own, without a rule so far',
            got=repr(operator),
        )
    SEPARATION_RULES[operator] = rule
    forget_operations()
    Effects.forget()


def check_rule(model: nn.Module, loss: Loss, batch: Any, records: int) -> None:
    """Compare what the rules make of a batch with torch's own gradients of single records.

    Args:
        model: that uses the function.
        loss: one value for each record.
        batch: with `records` rows.
        records: at least 2.

    Raises:
        ModelError: no rule covers the pass, or the gradients are not torch's.
    """
    engine = Engine(model)
    for _ in engine.passes(loss, batch, records, records):
        pass
    if engine.one_by_one is not None:
        raise ModelError(
            expected="a pass that the rules cover, with torch's own gradients",
            got=f"one whose records are computed one by one: {engine.one_by_one}",
            do="Look at the operation that is named; compare the rule with one of discreet.training.rules.",
        )


def check_separation(function: Callable[..., Any], arguments: Sequence[Any], axes: Mapping[int, int], records: int) -> bool:
    """Test a separation rule: what it claims for a record must keep every bit while all other records change.

    Args:
        function: of the arguments, to a tensor or several; such as `torch.ops.library.operator`.
        arguments: of which some hold records.
        axes: place of an argument to the axis that tells the record, for those that do.
        records: how many there are along these axes, at least 2.

    Returns:
        Whether rows are claimed for a result; False if everything is `Mixed`, which is never wrong.

    Raises:
        ModelError: a claim is false.
    """
    proof = Proof(records)
    placed = [
        proof.begin(argument, Rows(axes[place])) if place in axes else argument for place, argument in enumerate(arguments)
    ]
    with proof:
        try:
            results = tensors_in(function(*placed))
        except OneByOne:
            return False
    states = [proof.state(result) for result in results]
    truth = tensors_in(function(*arguments))
    for record in range(records):
        for value in _ALTERATIONS:
            others = tensors_in(function(*_altered(arguments, axes, records, record, value)))
            for state, before, after in zip(states, truth, others, strict=True):
                if isinstance(state, Mixed):
                    continue
                mine = [_rows(result, state, record, records) for result in (before, after)]
                if not _same(*mine):
                    raise ModelError(
                        expected=f"a result that is {state}, as the rule says",
                        got="one that changes when other records do",
                        do="Name every argument that may hold records, and refuse what the rule does not know.",
                    )
    return any(isinstance(state, Rows) for state in states)


def _altered(arguments: Sequence[Any], axes: Mapping[int, int], records: int, record: int, value: float) -> list[Any]:
    """The same arguments with another number in the place of all records but one."""
    altered = list(arguments)
    for place, dim in axes.items():
        tensor = arguments[place].clone()
        mine = torch.arange(tensor.shape[dim]) // (tensor.shape[dim] // records) == record
        shape = [-1 if axis == dim else 1 for axis in range(tensor.ndim)]
        other = torch.full_like(tensor, value) if tensor.is_floating_point() else tensor.flip(dim)
        altered[place] = torch.where(mine.view(shape), tensor, other)
    return altered


def _rows(result: Tensor, state: Any, record: int, records: int) -> Tensor:
    """What a state claims for a record; everything, where it is public."""
    if is_public(state):
        return result
    owners = torch.arange(result.shape[state.dim]) // state.inner % records
    return result.index_select(state.dim, (owners == record).nonzero()[:, 0])


def _same(x: Tensor, y: Tensor) -> bool:
    return x.shape == y.shape and bool(((x == y) | (x.isnan() & y.isnan())).all())
