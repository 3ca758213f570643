"""Per-record gradients of one value, in whatever form is cheapest: what norms and clipped sums are
computed from.

    Dense   G_i given as it is, (m, *shape)                                  biases, scales, convolutions
    Outer   G_i = sum_t b_t a_t^T, from a (m, T, p) and b (m, T, q)          linear maps
    Rows    G_i = b_t added up in row ids_t, from ids (m, T) and b (m, T, E)  embeddings
    Tied    an Outer and a Rows of the same table: their sum

The norm and the clipped sum come from the same numbers. Norms are float64 and rounded up; sums are
float64, of float32 chunks whose rounding is in the sensitivity (docs/proofs/sums.md, section 6).

Legend: m records, T positions, p inputs, q outputs, E width of a table, P numbers of a value. All
    of it is sensitive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

import torch
from torch import Tensor

from discreet.training.rounding.norms import last_squares, row_squares
from discreet.training.rounding.precision import Chunk, chunk_for
from discreet.training.rounding.products import add_outer, add_rows, one_sum

__all__ = ["FACTORS", "Dense", "Factor", "Forms", "Measures", "Outer", "Rows", "Tied", "wide"]

_MORE = 1.0 + 2.0**-48
_SHORT = 64  # positions below which half a Gram matrix is no faster than all of it
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

    def measured(self) -> Measures:
        """Of each record |G_i|^2 and (sum_t |a_t||b_t|)^2, which rounding is relative to; not
        finite where a record is not.
        """

    def single(self, spread: float) -> bool:
        """Whether all records together make one float32 sum, which a float32 total holds as it is."""

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        """total += sum_i w_i G_i, in chunks for this spread (see `chunk_for`).

        Args:
            total: of the value's shape, float64; or float32 and zero, if `single`.
            weights: (m,), float64, from `sum_weights`; float32 will do if `single`.
            spread: most that w_i sum_t |a_t||b_t| may be, in units of the clip norm.
        """

    def dense(self) -> Dense:
        """The gradients themselves."""

    def keep(self, kept: Tensor) -> Factor:
        """Zeros where `kept` (m,) is false."""

    def joined(self, copies: int) -> Factor:
        """Of m / copies records: each so many rows that follow each other are one, and their
        gradients add up.
        """

    def forms(self) -> Forms:
        """Other forms of the same gradients, by name, the first as it is."""


Forms: TypeAlias = Mapping[str, Callable[[], Factor]]

Measures: TypeAlias = tuple[Tensor, Tensor]
"""Squared norms and squared spreads, float64 (m,) each, at or above the truth."""


def wide(values: Tensor) -> Tensor:
    """In at least float32."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def _up(values: Tensor) -> Tensor:
    """Above all roundings of a few float64 operations; zero stays zero."""
    return values * _MORE


def _unit(dtype: torch.dtype) -> float:
    return 2.0**-24 if dtype == torch.float32 else 2.0**-53


def _share(terms: int, dtype: torch.dtype) -> float:
    """At or above gamma(terms)."""
    unit = _unit(dtype)
    return terms * unit / (1.0 - terms * unit) * (1.0 + 2.0**-40)


def _lost(dtype: torch.dtype) -> float:
    """At or above what one product may lose to underflow, also where small numbers are flushed to
    zero.
    """
    return 16.0 * torch.finfo(dtype).tiny


def _least(found: Tensor, spreads: Tensor) -> Tensor:
    """Two upper bounds; an overflow in the first says nothing, and the second still holds."""
    return torch.where(found.isfinite(), torch.minimum(found, spreads), spreads)


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

    def measured(self) -> Measures:
        squares = row_squares(self.values)
        return squares, squares

    def single(self, _spread: float) -> bool:
        return one_sum(self.records, self.values.dtype, chunk_for(1, 1.0))

    def add_to(self, total: Tensor, weights: Tensor, _spread: float) -> None:
        out = total if total.is_contiguous() else weights.new_zeros(total.shape)
        add_rows(
            out.view(-1),
            self.values.reshape(self.records, total.numel()),
            weights,
            chunk_for(1, 1.0),
        )
        if out is not total:
            total.add_(out)

    def dense(self) -> Dense:
        return self

    def keep(self, kept: Tensor) -> Dense:
        return Dense(_kept(self.values, kept))

    def joined(self, copies: int) -> Dense:
        # One after the other, number by number: the bits of a record do not depend on where it is,
        # as in a library's reduction.
        first, *others = self.values.reshape(
            len(self.values) // copies, copies, *self.shape
        ).unbind(1)
        total = first.clone()
        for one in others:
            total.add_(one)
        return Dense(total)

    def forms(self) -> Forms:
        return {"direct": lambda: self}


def _kept(values: Tensor, kept: Tensor) -> Tensor:
    return torch.where(kept.to(values.device).reshape(-1, *[1] * (values.ndim - 1)), values, 0)


def _rows_joined(values: Tensor, copies: int) -> Tensor:
    """(m, T, ...) as (m / copies, copies * T, ...)."""
    return values.reshape(len(values) // copies, copies * values.shape[1], *values.shape[2:])


def _halves(positions: int) -> list[slice]:
    """All positions, as two slices where there are enough of them."""
    middle = positions // 2 if positions >= _SHORT else positions
    return [
        slice(start, stop) for start, stop in ((0, middle), (middle, positions)) if start < stop
    ]


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

    def measured(self) -> Measures:
        length_a, length_b = last_squares(self.a), last_squares(self.b)
        products = length_a * length_b
        if self.positions == 1:
            squares = products[:, 0].mul_(_MORE)
            return squares, squares
        spreads = _up(products.sqrt().sum(-1).square() * (1.0 + self.positions * 2.0**-50))
        found = self._ghost(spreads) + self._underflow(
            length_a.sqrt().sum(-1), length_b.sqrt().sum(-1)
        )
        return _least(found, spreads), spreads

    def _underflow(self, sum_a: Tensor, sum_b: Tensor) -> Tensor:
        """What products too small for the precision may be missing in Gram matrices, times what
        each entry is multiplied by.
        """
        return (
            1.01
            * _lost(self.a.dtype)
            * (self.a.shape[2] * sum_b.square() + self.b.shape[2] * sum_a.square())
        )

    def _ghost(self, spreads: Tensor) -> Tensor:
        """sum_(t,s) <a_t, a_s> <b_t, b_s>, and what its rounding may have lost."""
        found = spreads.new_zeros(self.records)
        for half in _halves(
            self.positions
        ):  # a Gram matrix is symmetric: what is off its diagonal counts twice
            rows = slice(half.start, None)
            products = torch.bmm(self.a[:, half], self.a[:, rows].mT).mul_(
                torch.bmm(self.b[:, half], self.b[:, rows].mT)
            )
            products[:, :, half.stop - half.start :] *= 2.0
            found += products.sum(-1).double().sum(-1)
        # Each Gram entry, their product and the sum over one axis are rounded in the tensors'
        # precision, the rest in float64.
        terms = self.a.shape[2] + self.b.shape[2] + self.positions + 8
        missing = spreads * _share(terms, self.a.dtype) * 1.01 + self.positions**2 * 2.0**-100
        return _up(found + missing)

    def single(self, spread: float) -> bool:
        return one_sum(self.records, self.a.dtype, chunk_for(self.positions, spread))

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        self.add_cut(total, weights, chunk_for(self.positions, spread))

    def add_cut(self, total: Tensor, weights: Tensor, chunk: Chunk) -> None:
        """As `add_to`, cut in this way."""
        sides = (self.b.shape[2], self.a.shape[2])
        direct = total.shape == sides or total.is_contiguous()
        out = total.view(sides) if direct else weights.new_zeros(sides)
        add_outer(out, self.a, self.b, weights, chunk)
        if not direct:
            total.add_(out.view(total.shape))

    def dense(self) -> Dense:
        return Dense(torch.bmm(self.b.mT, self.a).reshape(self.records, *self.shape))

    def keep(self, kept: Tensor) -> Outer:
        return Outer(_kept(self.a, kept), _kept(self.b, kept), self.shape)

    def joined(self, copies: int) -> Outer:
        return Outer(_rows_joined(self.a, copies), _rows_joined(self.b, copies), self.shape)

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

    def measured(self) -> Measures:
        b_mTE = self._present()
        spreads = _up(
            last_squares(b_mTE).sqrt().sum(-1).square() * (1.0 + self.positions * 2.0**-50)
        )
        merged = self._all_pairs(b_mTE) if self.positions <= _LONG else self._sorted(b_mTE)
        # A row that was added up errs by gamma(T), its square by twice that; all pairs err by
        # gamma(T + E).
        terms = 2 * self.positions + b_mTE.shape[2] + 8
        missing = spreads * _share(terms, b_mTE.dtype) * 1.01 + self.positions**2 * 2.0**-100
        return _least(_up(merged + missing), spreads), spreads

    def _all_pairs(self, b_mTE: Tensor) -> Tensor:
        same = self.ids.unsqueeze(2) == self.ids.unsqueeze(1)
        return (torch.bmm(b_mTE, b_mTE.mT) * same).sum(-1).double().sum(-1)

    def _sorted(self, b_mTE: Tensor) -> Tensor:
        offset = torch.arange(self.records, device=self.ids.device).unsqueeze(1) * (
            self.shape[0] + 1
        )
        places, inverse = torch.unique(self.ids + 1 + offset, return_inverse=True)
        merged = b_mTE.new_zeros(len(places), b_mTE.shape[2])
        merged.index_add_(0, inverse.reshape(-1), b_mTE.reshape(-1, b_mTE.shape[2]))
        squares = row_squares(merged)
        return squares.new_zeros(self.records).index_add_(0, places // (self.shape[0] + 1), squares)

    def _present(self) -> Tensor:
        here = self.ids >= 0
        return self.b if bool(here.all()) else torch.where(here.unsqueeze(2), self.b, 0)

    def single(self, _spread: float) -> bool:
        return False  # rows are added in float64

    def add_to(self, total: Tensor, weights: Tensor, _spread: float) -> None:
        values = self.b.double() * weights.reshape(-1, 1, 1)
        here = self.ids.reshape(-1) >= 0
        one_pass = total.new_zeros(self.shape, dtype=torch.float64)  # see `lookups`
        total.view(self.shape).add_(
            one_pass.index_add_(
                0, self.ids.reshape(-1)[here], values.reshape(-1, self.shape[1])[here]
            )
        )

    def dense(self) -> Dense:
        b_mTE = self._present()
        out = b_mTE.new_zeros(self.records, *self.shape)
        index = self.ids.clamp(min=0).unsqueeze(2).expand_as(b_mTE)
        return Dense(out.scatter_add_(1, index, b_mTE))

    def keep(self, kept: Tensor) -> Rows:
        return Rows(self.ids, _kept(self.b, kept), self.shape)

    def joined(self, copies: int) -> Rows:
        return Rows(_rows_joined(self.ids, copies), _rows_joined(self.b, copies), self.shape)

    def forms(self) -> Forms:
        return {"merged rows": lambda: self}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tied:
    """The sum of an Outer and a Rows of the same table, as when a language model's head is its
    embedding.
    """

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

    def measured(self) -> Measures:
        (of_outer, spread_outer), (of_rows, spread_rows) = (
            self.outer.measured(),
            self.rows.measured(),
        )
        spreads = _up((spread_outer.sqrt() + spread_rows.sqrt()).square())
        missing = (spread_outer * spread_rows).sqrt() * _share(
            self.outer.a.shape[2] + self.positions + 8, self.outer.a.dtype
        )
        small = (
            _lost(self.outer.a.dtype)
            * self.outer.a.shape[2]
            * self.rows.positions
            * self.outer.positions
        )
        lost = small * (1.0 + row_squares(self.outer.b).sqrt())  # of <a_s, b'_t>, times at most |b|
        found = of_outer + of_rows + 2.0 * self._cross() + 2.02 * (missing + lost)
        return _least(_up(found), spreads), spreads

    def _cross(self) -> Tensor:
        """<Outer_i, Rows_i> = sum_(t,s) b_s[ids_t] <a_s, b'_t>."""
        ids = self.rows.ids.clamp(min=0).unsqueeze(1).expand(-1, self.outer.positions, -1)
        picked_mST = torch.gather(self.outer.b, 2, ids)
        inner_mST = torch.bmm(self.outer.a, self.rows._present().mT)  # noqa: SLF001  (two halves of one formula)
        return picked_mST.mul_(inner_mST).sum(-1).double().sum(-1)

    def single(self, _spread: float) -> bool:
        return False

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        # Cut as the positions of both say: from these the inner clip norm was computed.
        self.outer.add_cut(total, weights, chunk_for(self.positions, spread))
        self.rows.add_to(total, weights, spread)

    def dense(self) -> Dense:
        return Dense(self.outer.dense().values + self.rows.dense().values)

    def keep(self, kept: Tensor) -> Tied:
        return Tied(self.outer.keep(kept), self.rows.keep(kept))

    def joined(self, copies: int) -> Tied:
        return Tied(self.outer.joined(copies), self.rows.joined(copies))

    def forms(self) -> Forms:
        return {"ghost": lambda: self, "direct": self.dense}


FACTORS = frozenset({Dense, Outer, Rows, Tied})
"""The forms of factors that a rule may give."""
