"""Linear maps: F.linear, x @ W, addmm. Legend: m records, T positions, p inputs, q outputs."""

from __future__ import annotations

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Outer, wide
from discreet.training.rules.call import Call
from discreet.training.rules.copies import one_copy_each
from discreet.training.separation.marks import out_of_sight
from discreet.training.separation.states import OneByOne

__all__ = ["addmm", "bias_factor", "bilinear", "linear", "matmul", "positions"]


def positions(rows: Tensor) -> Tensor:
    """(m, ..., p) as (m, T, p), in at least float32."""
    middle = rows.shape[1:-1].numel()
    return wide(rows).reshape(rows.shape[0], middle, rows.shape[-1])


def bias_factor(rows: Tensor) -> Factor:
    """The gradient of a bias: what comes back, added up over positions."""
    if rows.ndim == 2:
        return Dense(wide(rows))
    b_mTq = positions(rows)
    return Dense(b_mTq[:, 0] if b_mTq.shape[1] == 1 else b_mTq.sum(1))


def linear(call: Call) -> Tensor:
    """y = x W^T + c, with any axes between the records and the inputs."""
    x, weight, bias = call.get(0, "input"), call.get(1, "weight"), call.get(2, "bias")
    _check_axis(call, x)
    y = torch.nn.functional.linear(x, call.plain(weight), call.plain(bias))
    a_mTp = _met(call, x)

    def of_weight(gradient: Tensor) -> Factor:
        return Outer(*_alike(a_mTp, positions(call.rows(gradient, like=x))), tuple(weight.shape))

    return call.tap(
        y,
        (call.value(weight), of_weight),
        (call.value(bias), lambda g: bias_factor(call.rows(g, like=x))),
    )


def bilinear(call: Call) -> Tensor:
    """y_k = x1^T W_k x2 + c_k, with any axes between the records and the inputs."""
    x1, x2, weight, bias = (
        call.get(i, name) for i, name in enumerate(("input1", "input2", "weight", "bias"))
    )
    axis = call.axes[id(x1)]
    if (
        call.value(x1) is not None
        or call.value(x2) is not None
        or axis is None
        or axis != call.axes[id(x2)]
    ):
        return _other(call)
    if axis.dim == x1.ndim - 1 or call.axes[id(weight)] is not None:
        raise OneByOne("a bilinear map without a clear record axis")
    y = torch.bilinear(x1, x2, call.plain(weight), call.plain(bias))
    a_mTp, b_mTr = _met(call, x1), _met(call, x2)

    def of_weight(gradient: Tensor) -> Factor:
        g_mTq = positions(call.rows(gradient, like=x1))
        return Dense(
            torch.einsum("mtq,mtp,mtr->mqpr", g_mTq, a_mTp.to(g_mTq.dtype), b_mTr.to(g_mTq.dtype))
        )

    return call.tap(
        y,
        (call.value(weight), of_weight),
        (call.value(bias), lambda g: bias_factor(call.rows(g, like=x1))),
    )


def matmul(call: Call) -> Tensor:
    """y = x W, for a matrix W."""
    x, weight = call.get(0, "input"), call.get(1, "mat2" if call.func.__name__ == "mm" else "other")
    if call.value(weight) is None or weight.ndim != 2 or x.ndim < 2 or call.value(x) is not None:
        return _other(call)
    _check_axis(call, x)
    return _product(call, x, weight, None)


def addmm(call: Call) -> Tensor:
    """y = c + x W, as in the Conv1D of language models, where rows of all records stand one after
    the other.
    """
    bias, x, weight = call.get(0, "input"), call.get(1, "mat1"), call.get(2, "mat2")
    factors = (call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1))
    if (
        factors != (1, 1)
        or call.value(x) is not None
        or call.axes[id(weight)] is not None
        or bias.ndim != 1
    ):
        return _other(call)
    _check_axis(call, x)
    return _product(call, x, weight, bias)


def _product(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = (
        x @ call.plain(weight)
        if bias is None
        else torch.addmm(call.plain(bias), x, call.plain(weight))
    )
    a_mTp = _met(call, x)

    def of_weight(gradient: Tensor) -> Factor:
        a, b = _alike(a_mTp, positions(call.rows(gradient, like=x)))
        return Outer(b, a, tuple(weight.shape))

    return call.tap(
        y,
        (call.value(weight), of_weight),
        (call.value(bias), lambda g: bias_factor(call.rows(g, like=x))),
    )


def _met(call: Call, x: Tensor) -> Tensor:
    """What a weight met, (m, T, p), kept for the backward pass; the proof need not follow it."""
    with out_of_sight():
        return positions(call.rows(x.detach(), like=x))


def _alike(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    if a.dtype == b.dtype:
        return a, b
    kind = torch.promote_types(a.dtype, b.dtype)
    return a.to(kind), b.to(kind)


def _check_axis(call: Call, x: Tensor) -> None:
    axis = call.axes[id(x)]
    if axis is None or axis.dim == x.ndim - 1:
        raise OneByOne(f"the input of {call.func.__name__} has no clear record axis")
    for tensor, _ in call.rows_in():
        if tensor is not x:
            raise OneByOne(f"{call.func.__name__} has weights that depend on the records")


def _other(call: Call) -> Tensor:
    out: Tensor = one_copy_each(call)
    return out
