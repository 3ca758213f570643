"""What a parameter becomes on its way to the records: itself, a view of it, rows of it, or anything
computed from parameters.

A value holds no records. A factor of a value (its per-record gradients) is lifted to factors of the
parameters behind it: dP = (dv/dP)^T dv by the chain rule, where dv/dP is the same for all records.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, final

import torch
from torch import Tensor

from discreet.training.factors.factors import Dense, Factor, Lookups, wide
from discreet.training.separation.states import OneByOne

__all__ = [
    "Derived",
    "Region",
    "TableRows",
    "Value",
    "ViewOf",
    "sources_of",
    "view_of",
    "whole_region",
]

Region: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], int]
"""Of a parameter's flat memory: sizes, strides, offset."""

# Name of a parameter, the part of it that the factor is of, and the factor.
_Lifted: TypeAlias = list[tuple[str, Region, Factor]]


@final
@dataclass(frozen=True, slots=True, eq=False)
class ViewOf:
    """A parameter, or a view of it without overlaps: its gradients are entries of the parameter's.

    Args:
        tensor: the value.
        leaf: name of the parameter.
        region: where the value lies in it.
    """

    tensor: Tensor
    leaf: str
    region: Region

    def lift(self, factor: Factor) -> _Lifted:
        return [(self.leaf, self.region, factor)]

    def without_graph(self) -> ViewOf:
        return self


@final
@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """Rows of a table, at places that are the same for all records, such as positions.

    Args:
        tensor: the rows.
        leaf: name of the parameter.
        region: where the table lies in it.
        ids: which rows.
    """

    tensor: Tensor
    leaf: str
    region: Region
    ids: Tensor

    def lift(self, factor: Factor) -> _Lifted:
        # Each record looks up the same places: gradients stay as small as the rows that are used.
        shape, m = self.region[0], factor.records
        ids_mT = self.ids.reshape(1, -1).expand(m, -1)
        b_mTE = factor.dense().values.reshape(*ids_mT.shape, shape[-1])
        return [(self.leaf, self.region, Lookups(ids_mT, b_mTE, shape))]

    def without_graph(self) -> TableRows:
        return TableRows(self.tensor.detach(), self.leaf, self.region, self.ids)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """Computed from parameters and constants: gradients go back through autograd, record by record.

    Args:
        tensor: the value.
        sources: the parameters behind it, by name.
    """

    tensor: Tensor
    sources: tuple[tuple[str, Tensor], ...]

    def lift(self, factor: Factor) -> _Lifted:
        if not factor.records:
            return []

        # Nobody looks while gradients go back here: code of the user's must not run.
        if _runs_python(self.tensor):
            raise OneByOne("a weight is computed by a function with a backward pass in Python")

        # Going back is linear in the gradient, with coefficients that no record has met: so each
        # row of the result is its own record's (docs/proofs/separation.md, section 2).
        rows = factor.dense().values.reshape(factor.records, *self.tensor.shape)
        rows = rows.to(self.tensor.dtype)

        try:
            gradients = self._gradients(rows, batched=True)

        # A function whose backward cannot take several gradients at once.
        except RuntimeError:
            by_row = [self._gradients(row, batched=False) for row in rows]
            gradients = tuple(map(_stacked, zip(*by_row, strict=True)))

        return [
            (leaf, whole_region(parameter), Dense(wide(gradient.detach())))
            for (leaf, parameter), gradient in zip(self.sources, gradients, strict=True)
            if gradient is not None
        ]

    def _gradients(self, rows: Tensor, *, batched: bool) -> tuple[Tensor | None, ...]:
        return torch.autograd.grad(
            self.tensor,
            [parameter for _, parameter in self.sources],
            rows,
            retain_graph=True,  # other uses of the value come later
            allow_unused=True,
            is_grads_batched=batched,
        )

    def without_graph(self) -> Derived:
        return Derived(self.tensor.detach(), self.sources)


def _stacked(parts: tuple[Tensor | None, ...]) -> Tensor | None:
    # A parameter that a value does not depend on has no gradient, in no row.
    rows = [part for part in parts if part is not None]
    return torch.stack(rows) if rows else None


Value: TypeAlias = ViewOf | TableRows | Derived


def sources_of(value: Value, parameters: Mapping[str, Tensor]) -> tuple[tuple[str, Tensor], ...]:
    """The parameters behind a value, by name."""
    return value.sources if isinstance(value, Derived) else ((value.leaf, parameters[value.leaf]),)


def whole_region(parameter: Tensor) -> Region:
    """The region of all of a parameter, in the order of its axes."""
    return _whole(tuple(parameter.shape))


@lru_cache(1024)
def _whole(shape: tuple[int, ...]) -> Region:
    # The stride of an axis is the product of the sizes of all axes after it.
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return shape, tuple(strides), 0


def view_of(tensor: Tensor, parameter: Tensor) -> Region | None:
    """The place of a tensor in a parameter's memory.

    Returns:
        None if it is not there, or if its entries overlap.
    """
    cannot_be = (
        tensor.dtype != parameter.dtype,
        tensor.device != parameter.device,
        not parameter.is_contiguous(),
        not tensor.numel(),
        tensor.is_neg(),  # negated lazily: the memory of the parameter, and other numbers
    )
    if any(cannot_be):
        return None

    memory = parameter.untyped_storage().data_ptr()
    reach = _reach(tensor)
    if reach is None or tensor.untyped_storage().data_ptr() != memory:
        return None

    offset = int(tensor.storage_offset() - parameter.storage_offset())
    # Several parameters may share memory: the tensor may lie beside this one.
    if offset < 0 or offset + reach > parameter.numel():
        return None

    return tuple(tensor.shape), tuple(tensor.stride()), offset


def _reach(tensor: Tensor) -> int | None:
    # How many numbers lie from the first to the last entry; None if entries overlap. They do not if
    # each stride, in rising order, is beyond all that the axes with smaller strides reach.
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        # An axis of one entry reaches nowhere, whatever its stride.
        if size == 1:
            continue

        if stride < reach:
            return None

        reach += stride * (size - 1)

    return reach


def _runs_python(tensor: Tensor) -> bool:
    """Whether the graph of a tensor has a node whose backward pass is written in Python."""
    nodes: list[Any] = [tensor.grad_fn]
    met: set[Any] = {None}

    for node in nodes:  # grows meanwhile
        if node not in met:
            met.add(node)
            if isinstance(node, torch._C._FunctionBase):  # noqa: SLF001  (of autograd.Function)
                return True

            nodes += [source for source, _ in node.next_functions]

    return False
