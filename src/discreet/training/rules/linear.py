"""Linear maps: F.linear, x @ W, addmm, bilinear.

For y_t = W a_t + c at the positions t of a record, with b_t the gradient of the loss by y_t, the
record's own gradients are

    dW = sum_t b_t a_t^T        dc = sum_t b_t

The first is held as an `Outer`, from which |dW| follows without forming dW: for one position
|dW| = |b||a| [Goodfellow2015], for several |dW|^2 = sum_(t,s) <a_t, a_s> <b_t, b_s> [Li2022].

Legend: m records, T positions, p inputs, r second inputs, q outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer, wide
from discreet.training.rules.call import Call, Rule
from discreet.training.rules.copies import one_copy_each
from discreet.training.separation.states import OneByOne

__all__ = ["RULES", "addmm", "bias_factor", "bilinear", "by_position", "linear", "matmul"]


def by_position(rows: Tensor) -> Tensor:
    """(m, ..., p) as (m, T, p), in at least float32."""
    middle = rows.shape[1:-1].numel()
    return wide(rows).reshape(rows.shape[0], middle, rows.shape[-1])


def bias_factor(rows: Tensor) -> Factor:
    """The gradient of a bias, dc = sum_t b_t, from the b_t of each record, (m, ..., q)."""
    if rows.ndim == 2:
        return Dense(wide(rows))

    b_mTq = by_position(rows)
    return Dense(b_mTq[:, 0] if b_mTq.shape[1] == 1 else b_mTq.sum(1))


def linear(call: Call) -> Tensor:
    """y = x W^T + c, with any axes between the records and the inputs.

    dW = sum_t b_t x_t^T, in the order (q, p) of the weight; dc = sum_t b_t.
    """
    x, weight, bias = call.get_all("input", "weight", "bias")
    _check_axis(call, x)
    y = torch.nn.functional.linear(x, call.plain(weight), call.plain(bias))
    a_mTp = _met(call, x)

    def of_weight(gradient: Tensor) -> Factor:
        b_mTq = by_position(call.rows(gradient, like=x))
        return Outer(*_alike(a_mTp, b_mTq), tuple(weight.shape))

    return call.tap(
        y,
        (call.value(weight), of_weight),
        (call.value(bias), lambda g: bias_factor(call.rows(g, like=x))),
    )


def bilinear(call: Call) -> Any:
    """y_k = x1^T W_k x2 + c_k, with any axes between the records and the inputs.

    dW_k = sum_t g_tk x1_t x2_t^T, with g_t the gradient by y_t; dc = sum_t g_t.
    """
    x1, x2, weight, bias = call.get_all("input1", "input2", "weight", "bias")
    axis = call.axes[id(x1)]
    meets_values = call.value(x1) is not None or call.value(x2) is not None
    if meets_values or axis is None or axis != call.axes[id(x2)]:
        return one_copy_each(call)

    if axis.dim == x1.ndim - 1 or call.axes[id(weight)] is not None:
        raise OneByOne("a bilinear map without a clear record axis")

    y = torch.bilinear(x1, x2, call.plain(weight), call.plain(bias))
    a_mTp, b_mTr = _met(call, x1), _met(call, x2)

    def of_weight(gradient: Tensor) -> Factor:
        g_mTq = by_position(call.rows(gradient, like=x1))
        sides = (g_mTq, a_mTp.to(g_mTq.dtype), b_mTr.to(g_mTq.dtype))
        return Dense(torch.einsum("mtq,mtp,mtr->mqpr", *sides))

    return call.tap(
        y,
        (call.value(weight), of_weight),
        (call.value(bias), lambda g: bias_factor(call.rows(g, like=x1))),
    )


def matmul(call: Call) -> Any:
    """y = x W, for a matrix W of shape (p, q): dW = sum_t x_t b_t^T."""
    x, weight = call.get_all("input", "mat2" if call.name == "mm" else "other")
    is_map = (
        call.value(weight) is not None,
        call.value(x) is None,
        weight.ndim == 2,
        x.ndim >= 2,
    )
    if not all(is_map):
        return one_copy_each(call)

    _check_axis(call, x)
    return _product(call, x @ call.plain(weight), x, weight, None)


def addmm(call: Call) -> Any:
    """y = c + x W: dW = sum_t x_t b_t^T, dc = sum_t b_t.

    So does the Conv1D of language models, where rows of all records stand one after the other.
    """
    bias, x, weight = call.get_all("input", "mat1", "mat2")
    is_map = (
        call.kwargs.get("beta", 1) == 1,
        call.kwargs.get("alpha", 1) == 1,
        call.value(x) is None,
        call.axes[id(weight)] is None,
        bias.ndim == 1,
    )
    if not all(is_map):
        return one_copy_each(call)

    _check_axis(call, x)
    y = torch.addmm(call.plain(bias), x, call.plain(weight))

    return _product(call, y, x, weight, bias)


def _product(call: Call, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    # The weight of x W lies in the order (p, q): the sides of `linear`, exchanged.
    a_mTp = _met(call, x)

    def of_weight(gradient: Tensor) -> Factor:
        a, b = _alike(a_mTp, by_position(call.rows(gradient, like=x)))
        return Outer(b, a, tuple(weight.shape))

    return call.tap(
        y,
        (call.value(weight), of_weight),
        (call.value(bias), lambda g: bias_factor(call.rows(g, like=x))),
    )


def _met(call: Call, x: Tensor) -> Tensor:
    # What a weight met, for the backward pass; the proof need not follow it.
    with call.uses.unjudged():
        return by_position(call.rows(x.detach(), like=x))


def _alike(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    # Under autocast the two sides may differ in precision: the wider one counts.
    kind = torch.promote_types(a.dtype, b.dtype)
    return a.to(kind), b.to(kind)


def _check_axis(call: Call, x: Tensor) -> None:
    # Neither may the records lie along the inputs that the map adds up, nor may weights have
    # records.
    axis = call.axes[id(x)]
    if axis is None or axis.dim == x.ndim - 1:
        raise OneByOne(f"the input of {call.name} has no clear record axis")

    if any(tensor is not x for tensor, _ in call.rows_in()):
        raise OneByOne(f"{call.name} has weights that depend on the records")


RULES: dict[str, Rule] = {
    "addmm": addmm,
    "bilinear": bilinear,
    "linear": linear,
    "matmul": matmul,
    "mm": matmul,
}
