"""Records put in the place of others, and numbers compared."""

from __future__ import annotations

import torch
from torch import Tensor

from discreet.training.separation.states import Rows

CHANGES = ("exchange", "noise", "nan", "inf", "huge", "zero")
"""What may become of all other records."""


def owners(rows: Rows, size: int, count: int) -> Tensor:
    """The record of each index along the axis."""
    return torch.arange(size) // rows.inner % count


def changed(tensor: Tensor, rows: Rows, count: int, record: int, kind: str) -> Tensor:
    """A copy in which all records but one are others."""
    size = tensor.shape[rows.dim]
    shape = [size if dim == rows.dim else 1 for dim in range(tensor.ndim)]
    own = (owners(rows, size, count) == record).view(shape)
    return torch.where(own, tensor, _other(tensor, rows, count, kind))


def _other(tensor: Tensor, rows: Rows, count: int, kind: str) -> Tensor:
    if kind == "exchange" or not (tensor.is_floating_point() or tensor.is_complex()):
        flips = kind == "noise" and tensor.dtype != torch.bool
        return tensor.flip(rows.dim) if flips else moved(tensor, rows, count)
    if kind == "noise":
        ramp = torch.linspace(-3.7, 3.7, tensor.numel(), dtype=torch.float64)
        return ramp.view(tensor.shape).to(tensor.dtype)
    number = {"nan": float("nan"), "inf": float("inf"), "huge": 1e30, "zero": 0.0}[kind]
    return torch.full_like(tensor, number)


def moved(tensor: Tensor, rows: Rows, count: int) -> Tensor:
    """A copy in which each record has the place of the one before it."""
    before, after = tensor.shape[: rows.dim], tensor.shape[rows.dim + 1 :]
    apart = tensor.reshape(*before, rows.outer, count, rows.inner, *after)
    return apart.roll(1, rows.dim + 1).reshape(tensor.shape).contiguous()


def rows_of(tensor: Tensor, rows: Rows, count: int, record: int) -> Tensor:
    """What is claimed to belong to a record."""
    places = torch.nonzero(owners(rows, tensor.shape[rows.dim], count) == record).flatten()
    return tensor.index_select(rows.dim, places)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether every number is the same; NaN is the same as NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_complex():
        one, other = (torch.view_as_real(number.resolve_conj()) for number in (one, other))
    return bool(((one == other) | (one.isnan() & other.isnan())).all())


def close(one: Tensor, other: Tensor) -> bool:
    """Whether numbers differ by no more than rounding; whole numbers not at all."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not (one.is_floating_point() or one.is_complex()):
        return same(one, other)
    coarse = one.dtype in (torch.bfloat16, torch.float16)
    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = one.to(wide), other.to(wide)
    size = float(one.abs().nan_to_num(0.0, 0.0, 0.0).max()) if one.numel() else 0.0
    tolerance = 0.05 if coarse else 2e-3
    return torch.allclose(one, other, rtol=tolerance, atol=tolerance * size, equal_nan=True)
