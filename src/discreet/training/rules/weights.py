"""What a parameter becomes on its way to the records: itself, a view of it, rows of it, or anything
computed from parameters.

A value holds no records. A factor of a value (its per-record gradients) is lifted to factors of the
parameters behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, final

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Rows, wide

__all__ = ["Computed", "Looked", "Part", "Region", "Value", "sources_of", "view_of", "whole"]

Region: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Of a parameter's flat memory: sizes, strides, offset."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A parameter, or a view of it without overlaps: its gradients are numbers of the parameter's
    own.
    """

    tensor: Tensor
    leaf: str
    region: Region

    def lift(self, factor: Factor) -> Iterator[tuple[str, Region, Factor]]:
        yield self.leaf, self.region, factor

    def without_graph(self) -> Part:
        return self


@final
@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """Rows of a table, at places that are the same for all records, such as positions."""

    tensor: Tensor
    leaf: str
    region: Region
    ids: Tensor

    def lift(self, factor: Factor) -> Iterator[tuple[str, Region, Factor]]:
        values = factor.dense().values
        m, width = factor.records, self.region[0][-1]
        ids = self.ids.reshape(1, -1).expand(m, -1)
        yield (
            self.leaf,
            self.region,
            Rows(ids, values.reshape(m, ids.shape[1], width), self.region[0]),
        )

    def without_graph(self) -> Looked:
        return Looked(self.tensor.detach(), self.leaf, self.region, self.ids)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Computed from parameters and constants: gradients go back through autograd, record by record."""

    tensor: Tensor
    sources: tuple[tuple[str, Tensor], ...]

    def lift(self, factor: Factor) -> Iterator[tuple[str, Region, Factor]]:
        values = (
            factor.dense().values.reshape(factor.records, *self.tensor.shape).to(self.tensor.dtype)
        )
        parameters = [parameter for _, parameter in self.sources]
        if not factor.records:
            return
        found: tuple[Tensor | None, ...]
        try:
            found = torch.autograd.grad(
                self.tensor,
                parameters,
                values,
                is_grads_batched=True,
                retain_graph=True,
                allow_unused=True,
            )
        except RuntimeError:  # a function whose backward cannot take several gradients at once
            rows = [
                torch.autograd.grad(
                    self.tensor, parameters, row, retain_graph=True, allow_unused=True
                )
                for row in values
            ]
            found = tuple(_stacked(parts) for parts in zip(*rows, strict=True))
        for (leaf, parameter), gradient in zip(self.sources, found, strict=True):
            if gradient is not None:
                yield leaf, whole(parameter), Dense(wide(gradient.detach()))

    def without_graph(self) -> Computed:
        return Computed(self.tensor.detach(), self.sources)


def _stacked(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    rows = [part for part in parts if part is not None]
    return torch.stack(rows) if rows else None


Value: TypeAlias = Part | Looked | Computed


def sources_of(value: Value, parameters: Mapping[str, Tensor]) -> tuple[tuple[str, Tensor], ...]:
    """The parameters behind a value."""
    return value.sources if isinstance(value, Computed) else ((value.leaf, parameters[value.leaf]),)


def whole(parameter: Tensor) -> Region:
    """All of it, in the order of its axes."""
    return _whole(tuple(parameter.shape))


@lru_cache(1024)
def _whole(shape: tuple[int, ...]) -> Region:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return shape, tuple(reversed(strides)), 0


def view_of(tensor: Tensor, parameter: Tensor) -> Region | None:
    """The place of a tensor in a parameter's memory; None if it is not there, or if entries
    overlap.
    """
    alike = tensor.dtype == parameter.dtype and tensor.device == parameter.device
    if not alike or not parameter.is_contiguous() or not tensor.numel() or tensor.is_neg():
        return None
    reach = _reach(tensor)
    if (
        reach is None
        or tensor.untyped_storage().data_ptr() != parameter.untyped_storage().data_ptr()
    ):
        return None
    offset = int(tensor.storage_offset() - parameter.storage_offset())
    if (
        offset < 0 or offset + reach > parameter.numel()
    ):  # beside it, in memory that several parameters share
        return None
    return tuple(tensor.shape), tuple(tensor.stride()), offset


def _reach(tensor: Tensor) -> int | None:
    """How many numbers lie between the first and the last entry; None if entries overlap."""
    reach = 1
    axes = sorted(zip(tensor.stride(), tensor.shape, strict=True))
    for stride, size in axes:
        if size == 1:
            continue
        if stride < reach:
            return None
        reach += stride * (size - 1)
    return reach
