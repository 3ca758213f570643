"""Per-record gradients of one value, in whatever form is cheapest: what norms and clipped sums are computed from.

    Dense   G_i given as it is, (m, *shape)                                  biases, scales, convolutions
    Outer   G_i = sum_t b_t a_t^T, from a (m, T, p) and b (m, T, q)          linear maps
    Rows    G_i = b_t added up in row ids_t, from ids (m, T) and b (m, T, E)  embeddings
    Tied    an Outer and a Rows of the same table: their sum

The norm and the clipped sum come from the same numbers. Norms are float64 and rounded up; sums are float64, of float32 chunks
whose rounding is in the sensitivity (docs/proofs/sums.md, section 6).

Legend: m records, T positions, p inputs, q outputs, E width of a table, P numbers of a value. All of it is sensitive.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol, TypeAlias, final

import numpy as np
import torch
from torch import Tensor

from discreet.numerics import norm_error
from discreet.training.precision import chunk_for, most_spread

__all__ = ["Dense", "Factor", "Forms", "Outer", "Rows", "Tied", "row_squares", "wide"]

_BLOCK = 512  # numbers of one sum of squares in the tensor's own precision
_LONG = 256  # positions up to which repeated rows are found by comparing all pairs


class Factor(Protocol):
    """What every form can do."""

    @property
    def records(self) -> int:
        """m."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the value."""

    @property
    def positions(self) -> int:
        """Products that one record adds to one number of a sum in the tensors' own precision."""

    def squared_norms(self) -> Tensor:
        """|G_i|^2, float64 (m,), at or above the truth; not finite where a record is not."""

    def squared_spreads(self) -> Tensor:
        """(sum_t |a_t||b_t|)^2, float64 (m,), at or above the truth: what rounding of a sum is relative to."""

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """total += sum_i w_i G_i, for a float64 total of the value's shape and float64 weights (m,)."""

    def dense(self) -> Dense:
        """The gradients themselves."""

    def keep(self, kept: Tensor) -> Factor:
        """Zeros where `kept` (m,) is false."""

    def forms(self) -> Forms:
        """Other forms of the same gradients, by name, the first as it is."""


Forms: TypeAlias = Mapping[str, Callable[[], Factor]]


def wide(values: Tensor) -> Tensor:
    """In at least float32."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def row_squares(rows: Tensor) -> Tensor:
    """Upper bounds of the squared norm of each entry of the first axis, float64: blocks in their precision, then float64."""
    flat = rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))
    whole = flat.shape[1] // _BLOCK * _BLOCK
    sums = flat.new_zeros(flat.shape[0], dtype=torch.float64)
    if whole:
        blocks = flat[:, :whole].reshape(flat.shape[0], whole // _BLOCK, _BLOCK)
        sums += _block_squares(blocks).double().sum(1)
    if whole < flat.shape[1]:
        sums += _block_squares(flat[:, whole:].unsqueeze(1)).double().sum(1)
    factor, absolute = _norm_error(str(flat.dtype).removeprefix("torch."), flat.shape[1])
    return _up((sums + absolute) * factor)


def _block_squares(blocks: Tensor) -> Tensor:
    return blocks.square().sum(-1)


@lru_cache(1024)
def _norm_error(dtype: str, columns: int) -> tuple[float, float]:
    error = norm_error(np.dtype(dtype), columns, _BLOCK)
    return error.factor * (1.0 + 2.0**-50), error.absolute


def _up(values: Tensor) -> Tensor:
    """Above all roundings of a few float64 operations; zero stays zero."""
    return values * (1.0 + 2.0**-48)


def _unit(dtype: torch.dtype) -> float:
    return 2.0**-24 if dtype == torch.float32 else 2.0**-53


def _share(terms: int, dtype: torch.dtype) -> float:
    """At or above gamma(terms)."""
    unit = _unit(dtype)
    return terms * unit / (1.0 - terms * unit) * (1.0 + 2.0**-40)


def _weighted(values: Tensor, weights: Tensor) -> Tensor:
    """w_i v_i, rounded once."""
    return values * weights.to(values.dtype).reshape(-1, *[1] * (values.ndim - 1))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """The gradients themselves.

    Args:
        values: (m, *shape).
    """

    values: Tensor

    @property
    def records(self) -> int:
        return self.values.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape[1:])

    @property
    def positions(self) -> int:
        return 1

    def squared_norms(self) -> Tensor:
        return row_squares(self.values)

    def squared_spreads(self) -> Tensor:
        return self.squared_norms()

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        flat_mP = self.values.reshape(self.records, total.numel())
        narrow = weights.to(flat_mP.dtype)
        step = chunk_for(1, 1.0).records
        out = total if total.is_contiguous() else torch.zeros_like(total, memory_format=torch.contiguous_format)
        for start in range(0, self.records, step):
            piece = slice(start, start + step)
            out.view(-1).add_(torch.mv(flat_mP[piece].T, narrow[piece]))
        if out is not total:
            total.add_(out)

    def dense(self) -> Dense:
        return self

    def keep(self, kept: Tensor) -> Dense:
        return Dense(_kept(self.values, kept))

    def forms(self) -> Forms:
        return {"direct": lambda: self}


def _through(factor: Factor, weights: Tensor) -> Tensor:
    """A sum of its own, for totals whose numbers are not side by side."""
    out = weights.new_zeros(factor.shape)
    factor.add_to(out, weights)
    return out


def _kept(values: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept.reshape(-1, *[1] * (values.ndim - 1)), values, 0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """G_i = sum_t b_t a_t^T: the gradient of a linear map b = W a.

    Args:
        a: (m, T, p).
        b: (m, T, q), of the same dtype.
        shape: of the value, q * p numbers in the order of (q, p).
    """

    a: Tensor
    b: Tensor
    shape: tuple[int, ...]

    @property
    def records(self) -> int:
        return self.a.shape[0]

    @property
    def positions(self) -> int:
        return self.a.shape[1]

    def squared_norms(self) -> Tensor:
        spread = self.squared_spreads()
        if self.positions == 1:
            return spread
        a_mTp, b_mTq = self.a, self.b
        gram_a = torch.bmm(a_mTp, a_mTp.mT)
        gram_b = torch.bmm(b_mTq, b_mTq.mT)
        found = (gram_a.mul_(gram_b)).sum(-1).double().sum(-1)
        # Each Gram entry, their product and the sum over one axis are rounded in the tensors' precision, the rest in float64.
        terms = a_mTp.shape[2] + b_mTq.shape[2] + self.positions + 8
        missing = spread * _share(terms, a_mTp.dtype) * 1.01 + self.positions**2 * 2.0**-100
        return torch.minimum(_up(found + missing), spread)

    def squared_spreads(self) -> Tensor:
        length_a = row_squares(self.a.reshape(-1, self.a.shape[2])).reshape(self.a.shape[:2])
        length_b = row_squares(self.b.reshape(-1, self.b.shape[2])).reshape(self.b.shape[:2])
        products = length_a * length_b
        if self.positions == 1:
            return _up(products.sum(-1))
        return _up(products.sqrt().sum(-1).square() * (1.0 + self.positions * 2.0**-50))

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        chunk = chunk_for(self.positions, most_spread(self.positions))
        sides = (self.b.shape[2], self.a.shape[2])
        if total.shape != sides and not total.is_contiguous():
            total.add_(_through(self, weights))
            return
        total_qp = total.view(sides)
        b_mTq = _weighted(self.b, weights)
        for start in range(0, self.records, chunk.records):
            for first in range(0, self.positions, chunk.positions):
                piece = (slice(start, start + chunk.records), slice(first, first + chunk.positions))
                total_qp.add_(b_mTq[piece].reshape(-1, b_mTq.shape[2]).T @ self.a[piece].reshape(-1, self.a.shape[2]))

    def dense(self) -> Dense:
        return Dense(torch.bmm(self.b.mT, self.a).reshape(self.records, *self.shape))

    def keep(self, kept: Tensor) -> Outer:
        return Outer(_kept(self.a, kept), _kept(self.b, kept), self.shape)

    def forms(self) -> Forms:
        if self.positions == 1:
            return {"ghost": lambda: self}
        return {"ghost": lambda: self, "direct": self.dense}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """G_i has b_t added up in row ids_t: the gradient of a table that was looked up.

    Args:
        ids: (m, T), int64; entries below 0 are looked up nowhere.
        b: (m, T, E).
        shape: of the table, (rows, E).
    """

    ids: Tensor
    b: Tensor
    shape: tuple[int, ...]

    @property
    def records(self) -> int:
        return self.b.shape[0]

    @property
    def positions(self) -> int:
        return self.b.shape[1]

    def squared_norms(self) -> Tensor:
        spread = self.squared_spreads()
        b_mTE = self._present()
        missing = spread * _share(self.positions + b_mTE.shape[2] + 8, b_mTE.dtype) * 1.01
        if self.positions <= _LONG:
            same = self.ids.unsqueeze(2) == self.ids.unsqueeze(1)
            found = (torch.bmm(b_mTE, b_mTE.mT) * same).sum(-1).double().sum(-1)
            return torch.minimum(_up(found + missing + self.positions**2 * 2.0**-100), spread)
        offset = torch.arange(self.records, device=self.ids.device).unsqueeze(1) * (self.shape[0] + 1)
        places, inverse = torch.unique(self.ids + 1 + offset, return_inverse=True)
        merged = b_mTE.new_zeros(len(places), b_mTE.shape[2])
        merged.index_add_(0, inverse.reshape(-1), b_mTE.reshape(-1, b_mTE.shape[2]))
        found = spread.new_zeros(self.records).index_add_(0, places // (self.shape[0] + 1), row_squares(merged))
        return torch.minimum(_up(found + missing), spread)

    def squared_spreads(self) -> Tensor:
        b_mTE = self._present()
        lengths = row_squares(b_mTE.reshape(-1, b_mTE.shape[2])).reshape(b_mTE.shape[:2])
        return _up(lengths.sqrt().sum(-1).square() * (1.0 + self.positions * 2.0**-50))

    def _present(self) -> Tensor:
        return torch.where((self.ids >= 0).unsqueeze(2), self.b, 0)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        values = self.b.double() * weights.reshape(-1, 1, 1)
        here = self.ids.reshape(-1) >= 0
        total.view(self.shape).index_add_(0, self.ids.reshape(-1)[here], values.reshape(-1, self.shape[1])[here])

    def dense(self) -> Dense:
        b_mTE = self._present()
        out = b_mTE.new_zeros(self.records, *self.shape)
        index = self.ids.clamp(min=0).unsqueeze(2).expand_as(b_mTE)
        return Dense(out.scatter_add_(1, index, b_mTE))

    def keep(self, kept: Tensor) -> Rows:
        return Rows(self.ids, _kept(self.b, kept), self.shape)

    def forms(self) -> Forms:
        return {"merged rows": lambda: self}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tied:
    """The sum of an Outer and a Rows of the same table, as when a language model's head is its embedding."""

    outer: Outer
    rows: Rows

    @property
    def records(self) -> int:
        return self.outer.records

    @property
    def shape(self) -> tuple[int, ...]:
        return self.outer.shape

    @property
    def positions(self) -> int:
        return self.outer.positions + self.rows.positions

    def squared_norms(self) -> Tensor:
        spread_outer, spread_rows = self.outer.squared_spreads(), self.rows.squared_spreads()
        both = (spread_outer * spread_rows).sqrt()
        missing = 2.0 * both * _share(self.outer.a.shape[2] + self.positions + 8, self.outer.a.dtype) * 1.01
        found = self.outer.squared_norms() + self.rows.squared_norms() + 2.0 * self._cross() + missing
        return _up(torch.minimum(_up(found), self.squared_spreads()))

    def _cross(self) -> Tensor:
        """<Outer_i, Rows_i> = sum_(t,s) b_s[ids_t] <a_s, b'_t>."""
        ids = self.rows.ids.clamp(min=0).unsqueeze(1).expand(-1, self.outer.positions, -1)
        picked_mST = torch.gather(self.outer.b, 2, ids)
        inner_mST = torch.bmm(self.outer.a, self.rows._present().mT)  # noqa: SLF001  (two halves of one formula)
        return picked_mST.mul_(inner_mST).sum(-1).double().sum(-1)

    def squared_spreads(self) -> Tensor:
        return _up((self.outer.squared_spreads().sqrt() + self.rows.squared_spreads().sqrt()).square())

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        self.outer.add_to(total, weights)
        self.rows.add_to(total, weights)

    def dense(self) -> Dense:
        return Dense(self.outer.dense().values + self.rows.dense().values)

    def keep(self, kept: Tensor) -> Tied:
        return Tied(self.outer.keep(kept), self.rows.keep(kept))

    def forms(self) -> Forms:
        return {"ghost": lambda: self, "direct": self.dense}
