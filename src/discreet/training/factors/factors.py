"""Per-record gradients of one value, in whatever form is cheapest: what norms and clipped sums are
computed from.

    Dense     G_i as it is, (m, *shape): biases, scales, convolutions
    Outer     G_i = sum_t b_t a_t^T, from a (m, T, p) and b (m, T, q): linear maps
    Lookups   G_i = b_t added up in row ids_t, from ids (m, T) and b (m, T, E): embeddings
    Tied      an Outer and Lookups of the same table: their sum

The norm and the clipped sum come from the same numbers. Norms are float64 and rounded up; sums are
float64, of float32 chunks whose rounding is in the sensitivity (docs/proofs/sums.md, section 6).

Legend: m records, T and S positions, p inputs, q outputs, E width of a table, P numbers of a value.
    All of it is sensitive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any, Protocol, TypeAlias, final

import torch
from torch import Tensor

from discreet.training.rounding.norms import last_squares, row_squares
from discreet.training.rounding.precision import UP, Chunk, chunk_for
from discreet.training.rounding.products import add_outer, add_rows, one_sum

__all__ = [
    "FACTORS",
    "Dense",
    "Factor",
    "Forms",
    "Lookups",
    "Measures",
    "Outer",
    "Tied",
    "measured_alike",
    "present_only",
    "tensors_of",
    "wide",
]

_SHORT = 64  # positions below which half a Gram matrix is no faster than all of it
_LONG = 256  # positions up to which repeated rows are found by comparing all pairs


class Factor(Protocol):
    """What every form of per-record gradients can do."""

    @property
    def records(self) -> int:
        """How many records there are, m."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the value that this is the gradient of."""

    @property
    def positions(self) -> int:
        """Products that one record adds to one number of a sum in the tensors' own precision."""

    def measured(self) -> Measures:
        """|G_i|^2 and (sum_t |a_t||b_t|)^2 of each record; not finite where a record is not.

        What rounding adds is relative to the second.
        """

    def single(self, spread: float) -> bool:
        """Whether all records make one float32 sum, which a float32 total holds as it is."""

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        """total += sum_i w_i G_i, in chunks for this spread (see `chunk_for`).

        Args:
            total: of the value's shape, float64; or float32 and zero, if `single`.
            weights: (m,), float64, from `sum_weights`; float32 will do if `single`.
            spread: most that w_i sum_t |a_t||b_t| may be, in units of the clip norm.
        """

    def dense(self) -> Dense:
        """One gradient for each record, formed."""

    def keep(self, mask: Tensor) -> Factor:
        """Zeros for the records for which `mask` (m,) is false."""

    def joined(self, copies: int) -> Factor:
        """The factor of m / copies records: so many rows in succession are one record.

        Their gradients add up.
        """

    def forms(self) -> Forms:
        """Other forms of the same gradients, by name; the first is this one."""


Forms: TypeAlias = Mapping[str, Callable[[], Factor]]

Measures: TypeAlias = tuple[Tensor, Tensor]
"""Squared norms and squared spreads, float64 (m,) each, at or above the truth."""


def wide(values: Tensor) -> Tensor:
    """Values in at least float32: half precision is converted, everything else stays."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


def present_only(values: Tensor, mask: Tensor) -> Tensor:
    """Values (m, ...), with zeros in the rows for which `mask` (m,) is false.

    They replace what was there: NaN times zero would be no zero (P13).
    """
    return torch.where(mask.to(values.device).reshape(-1, *[1] * (values.ndim - 1)), values, 0)


def _share(terms: int, dtype: torch.dtype) -> float:
    # At or above gamma(n) = n u / (1 - n u), the relative error of n roundings.
    unit = 2.0**-24 if dtype == torch.float32 else 2.0**-53
    return terms * unit / (1.0 - terms * unit) * (1.0 + 2.0**-40)


def _lost(dtype: torch.dtype) -> float:
    # At or above what one product may lose to underflow, also where small numbers are flushed to
    # zero.
    return 16.0 * torch.finfo(dtype).tiny


def _squared_spreads(length_mT: Tensor) -> Tensor:
    # The spread itself, (sum_t |a_t||b_t|)^2, from the lengths |a_t||b_t| of its T terms; the
    # additions are rounded in float64.
    terms = length_mT.shape[1]
    return length_mT.sum(-1).square() * (1.0 + terms * 2.0**-50) * UP


def _with_rounding(computed: Tensor, spreads: Tensor, share: float, positions: int) -> Tensor:
    # A squared norm is at most what was computed and what rounding may have taken from it, relative
    # to the spread; the last term is above products that underflow in float64.
    return (computed + (spreads * share * 1.01 + positions**2 * 2.0**-100)) * UP


def _least(squares: Tensor, spreads: Tensor) -> Tensor:
    # The smaller of two upper bounds; an overflow in the first says nothing, the second still
    # holds.
    return torch.where(squares.isfinite(), torch.minimum(squares, spreads), spreads)


def _rows_joined(values: Tensor, copies: int) -> Tensor:
    # (m, T, ...) as (m / copies, copies * T, ...): the positions of all copies are those of one
    # record.
    return values.reshape(len(values) // copies, copies * values.shape[1], *values.shape[2:])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """One gradient for each record, formed.

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
        # A view of a parameter may have strides: it gets the sum afterwards.
        out = total if total.is_contiguous() else weights.new_zeros(total.shape)
        values_mP = self.values.reshape(self.records, total.numel())
        add_rows(out.view(-1), values_mP, weights, chunk_for(1, 1.0))
        if out is not total:
            total.add_(out)

    def dense(self) -> Dense:
        return self

    def keep(self, mask: Tensor) -> Dense:
        return Dense(present_only(self.values, mask))

    def joined(self, copies: int) -> Dense:
        # One after the other, number by number: the bits of a record do not depend on where it is,
        # as in a library's reduction.
        sizes = (len(self.values) // copies, copies)
        first, *more = self.values.reshape(*sizes, *self.shape).unbind(1)
        total = first.clone()

        for rows in more:
            total.add_(rows)

        return Dense(total)

    def forms(self) -> Forms:
        return {"direct": lambda: self}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """G_i = sum_t b_t a_t^T: the gradient of a linear map b = W a.

    Its norm needs no G_i: |G_i|^2 = sum_(t,s) <a_t, a_s> <b_t, b_s>, the ghost norm [Li2022]; for
    one position |G_i| = |a||b| [Goodfellow2015].

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
        return measured_alike([self])[0]

    def bounded(self, square_b_mT: Tensor, ghost: Tensor | None) -> Measures:
        """As `measured`, from |b_t|^2, and from the ghost norm as it is computed, if T > 1."""
        square_a_mT = last_squares(self.a)
        products_mT = square_a_mT * square_b_mT
        if ghost is None:
            squares = products_mT[:, 0].mul_(UP)
            return squares, squares

        spreads = _squared_spreads(products_mT.sqrt())

        # Each Gram entry, their product and the sum over one axis are rounded in the tensors'
        # precision, the rest in float64 (docs/proofs/sums.md, section 4).
        p, q = self.a.shape[2], self.b.shape[2]
        share = _share(p + q + self.positions + 8, self.a.dtype)
        squares = _with_rounding(ghost, spreads, share, self.positions)

        # Products too small for the precision may be missing in one Gram matrix: p of them, times
        # an entry of the other one, of which all together are (sum_t |b_t|)^2.
        sum_a, sum_b = square_a_mT.sqrt().sum(-1), square_b_mT.sqrt().sum(-1)
        underflow = 1.01 * _lost(self.a.dtype) * (p * sum_b.square() + q * sum_a.square())

        return _least(squares + underflow, spreads), spreads

    def single(self, spread: float) -> bool:
        return one_sum(self.records, self.a.dtype, chunk_for(self.positions, spread))

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        self.add_cut(total, weights, chunk_for(self.positions, spread))

    def add_cut(self, total: Tensor, weights: Tensor, chunk: Chunk) -> None:
        """total += sum_i w_i G_i, cut into these chunks; see `add_to`."""
        sides = (self.b.shape[2], self.a.shape[2])

        # A view of a parameter may have another shape, or strides.
        direct = total.shape == sides or total.is_contiguous()
        out = total.view(sides) if direct else weights.new_zeros(sides)
        add_outer(out, self.a, self.b, weights, chunk)

        if not direct:
            total.add_(out.view(total.shape))

    def dense(self) -> Dense:
        return Dense(torch.bmm(self.b.mT, self.a).reshape(self.records, *self.shape))

    def keep(self, mask: Tensor) -> Outer:
        return Outer(present_only(self.a, mask), present_only(self.b, mask), self.shape)

    def joined(self, copies: int) -> Outer:
        return Outer(_rows_joined(self.a, copies), _rows_joined(self.b, copies), self.shape)

    def forms(self) -> Forms:
        if self.positions == 1:
            return {"ghost": lambda: self}

        return {"ghost": lambda: self, "direct": self.dense}


def measured_alike(outers: Sequence[Outer]) -> list[Measures]:
    """What `Outer.measured` says of each of these, which all have the same b.

    It is looked at once for all of them, as for the two maps of a recurrent layer.
    """
    square_b_mT = last_squares(outers[0].b)
    ghosts = _ghosts(outers) if outers[0].positions > 1 else [None] * len(outers)
    pairs = zip(outers, ghosts, strict=True)
    return [outer.bounded(square_b_mT, ghost) for outer, ghost in pairs]


def _ghosts(outers: Sequence[Outer]) -> list[Tensor]:
    """sum_(t,s) <a_t, a_s> <b_t, b_s> of each, as it is computed."""
    b_mTq, positions = outers[0].b, outers[0].positions
    totals = [b_mTq.new_zeros(len(b_mTq), dtype=torch.float64) for _ in outers]
    middle = positions // 2 if positions >= _SHORT else positions

    for half in (slice(0, middle), slice(middle, positions)):
        if half.start == half.stop:
            continue

        # A Gram matrix is symmetric: of the first half of its rows, what is in the other half
        # of the columns counts twice, and the second half needs its own columns only.
        columns = slice(half.start, None)
        gram_b = torch.bmm(b_mTq[:, half], b_mTq[:, columns].mT)
        for outer, total in zip(outers, totals, strict=True):
            products = torch.bmm(outer.a[:, half], outer.a[:, columns].mT)
            products.mul_(gram_b)
            products[:, :, half.stop - half.start :] *= 2.0
            total.add_(products.sum(-1).double().sum(-1))

    return totals


@final
@dataclass(frozen=True, slots=True, eq=False)
class Lookups:
    """G_i has b_t added up in row ids_t: the gradient of a table that was looked up.

    |G_i|^2 is the sum of <b_t, b_s> over the pairs with ids_t = ids_s: a row that is looked up
    twice counts as the sum of both, not as two vectors.

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
        b_mTE = self.present()
        spreads = _squared_spreads(last_squares(b_mTE).sqrt())
        squares = self._all_pairs(b_mTE) if self.positions <= _LONG else self._merged(b_mTE)
        # A row that was added up errs by gamma(T), its square by twice that; all pairs err by
        # gamma(T + E).
        share = _share(2 * self.positions + b_mTE.shape[2] + 8, b_mTE.dtype)
        squares = _with_rounding(squares, spreads, share, self.positions)

        return _least(squares, spreads), spreads

    def _all_pairs(self, b_mTE: Tensor) -> Tensor:
        same_mTT = self.ids.unsqueeze(2) == self.ids.unsqueeze(1)
        return (torch.bmm(b_mTE, b_mTE.mT) * same_mTT).sum(-1).double().sum(-1)

    def _merged(self, b_mTE: Tensor) -> Tensor:
        # Every record has its own range of keys: equal ids of two records are different rows.
        keys = self.shape[0] + 1
        record_m1 = torch.arange(self.records, device=self.ids.device).unsqueeze(1)
        distinct, inverse = torch.unique(self.ids + 1 + record_m1 * keys, return_inverse=True)
        merged = b_mTE.new_zeros(len(distinct), b_mTE.shape[2])
        merged.index_add_(0, inverse.reshape(-1), b_mTE.reshape(-1, b_mTE.shape[2]))
        squares = row_squares(merged)

        return squares.new_zeros(self.records).index_add_(0, distinct // keys, squares)

    def present(self) -> Tensor:
        """b, with zeros where nothing was looked up."""
        here_mT = self.ids >= 0
        return self.b if bool(here_mT.all()) else torch.where(here_mT.unsqueeze(2), self.b, 0)

    def single(self, _spread: float) -> bool:
        return False  # rows are added in float64

    def add_to(self, total: Tensor, weights: Tensor, _spread: float) -> None:
        values = self.b.double() * weights.reshape(-1, 1, 1)
        here = self.ids.reshape(-1) >= 0
        # A sum of the pass's own, then added: `lookup_chunk` counts the additions in this way.
        of_pass = total.new_zeros(self.shape, dtype=torch.float64)
        rows = values.reshape(-1, self.shape[1])[here]
        total.view(self.shape).add_(of_pass.index_add_(0, self.ids.reshape(-1)[here], rows))

    def dense(self) -> Dense:
        # Whatever is there: a pass that is executed from a recording makes no choice by numbers.
        b_mTE = torch.where((self.ids >= 0).unsqueeze(2), self.b, 0)
        out = b_mTE.new_zeros(self.records, *self.shape)
        index = self.ids.clamp(min=0).unsqueeze(2).expand_as(b_mTE)

        return Dense(out.scatter_add_(1, index, b_mTE))

    def keep(self, mask: Tensor) -> Lookups:
        return Lookups(self.ids, present_only(self.b, mask), self.shape)

    def joined(self, copies: int) -> Lookups:
        return Lookups(_rows_joined(self.ids, copies), _rows_joined(self.b, copies), self.shape)

    def forms(self) -> Forms:
        return {"merged rows": lambda: self}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tied:
    """The sum of an Outer and Lookups of the same table, as when a language model's head is its
    embedding.

    |A_i + B_i|^2 = |A_i|^2 + |B_i|^2 + 2 <A_i, B_i>; the last term needs neither of them formed.

    Args:
        outer: of the head.
        rows: of the embedding.
    """

    outer: Outer
    rows: Lookups

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
        of_outer, spread_outer = self.outer.measured()
        of_rows, spread_rows = self.rows.measured()
        spreads = (spread_outer.sqrt() + spread_rows.sqrt()).square() * UP

        p, dtype = self.outer.a.shape[2], self.outer.a.dtype
        share = _share(p + self.positions + 8, dtype)
        missing = (spread_outer * spread_rows).sqrt() * share
        # Underflow of each <a_s, b'_t>, which is multiplied by at most |b|.
        small = _lost(dtype) * p * self.rows.positions * self.outer.positions
        lost = small * (1.0 + row_squares(self.outer.b).sqrt())
        squares = of_outer + of_rows + 2.0 * self._cross() + 2.02 * (missing + lost)

        return _least(squares * UP, spreads), spreads

    def _cross(self) -> Tensor:
        """<Outer_i, Lookups_i> = sum_(t,s) b_s[ids_t] <a_s, b'_t>."""
        ids = self.rows.ids.clamp(min=0).unsqueeze(1).expand(-1, self.outer.positions, -1)
        picked_mST = torch.gather(self.outer.b, 2, ids)
        inner_mST = torch.bmm(self.outer.a, self.rows.present().mT)

        return picked_mST.mul_(inner_mST).sum(-1).double().sum(-1)

    def single(self, _spread: float) -> bool:
        return False

    def add_to(self, total: Tensor, weights: Tensor, spread: float) -> None:
        # Cut as the positions of both say: from these the inner clip norm was computed.
        self.outer.add_cut(total, weights, chunk_for(self.positions, spread))
        self.rows.add_to(total, weights, spread)

    def dense(self) -> Dense:
        return Dense(self.outer.dense().values + self.rows.dense().values)

    def keep(self, mask: Tensor) -> Tied:
        return Tied(self.outer.keep(mask), self.rows.keep(mask))

    def joined(self, copies: int) -> Tied:
        return Tied(self.outer.joined(copies), self.rows.joined(copies))

    def forms(self) -> Forms:
        return {"ghost": lambda: self, "direct": self.dense}


FACTORS = frozenset({Dense, Outer, Lookups, Tied})
"""The forms of factors that a rule may give."""


def tensors_of(factor: Any) -> list[Tensor]:
    """All tensors of a factor, in whatever it holds."""
    tensors: list[Tensor] = []
    parts: list[Any] = [factor]

    # Factors hold factors, and forms of their own: whatever is not looked into is not watched.
    for part in parts:  # grows meanwhile
        if isinstance(part, Tensor):
            tensors.append(part)
        elif isinstance(part, int):  # of shapes
            continue
        elif isinstance(part, (list, tuple)):
            parts += part
        elif isinstance(part, Mapping):
            parts += part.values()
        else:
            kind: type = type(part)
            for name in _field_names(kind):
                parts.append(getattr(part, name))

    return tensors


@cache
def _field_names(kind: type) -> tuple[str, ...]:
    """Names of what a factor, or a part of it, holds; none for a plain value."""
    return tuple(entry.name for entry in fields(kind)) if is_dataclass(kind) else ()
