"""What the records of one pass contribute: for each leaf, disjoint pieces of per-record gradients.

Several uses of one parameter are one gradient: their factors are merged before anything is measured
    (P03, P08).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import is_, mul
from typing import Any

import torch
from torch import Tensor

from discreet.errors import ModelError
from discreet.training.factors.factors import (
    Dense,
    Factor,
    Lookups,
    Measures,
    Outer,
    Tied,
    measured_alike,
)
from discreet.training.factors.lengths import squares_together
from discreet.training.rules.call import Use
from discreet.training.rules.weights import Region, ViewOf, sources_of, whole_region

__all__ = [
    "Contributions",
    "Piece",
    "Taped",
    "alone",
    "gathered",
    "losses_and_statistics",
    "plain_result",
    "uses_by_leaf",
]


@dataclass(frozen=True, slots=True, eq=False)
class Taped:
    """What a pass over all records left: uses of weights with their factors, losses and statistics
    of each row. Sensitive.

    Args:
        uses: of weights, in the order of the forward pass.
        losses: one for each row.
        statistics: one row for each row of the batch.
        calls: functions that the forward pass called.
    """

    uses: list[Use]
    losses: Tensor
    statistics: dict[str, Tensor]
    calls: int


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A factor and the place of its value in the leaf."""

    region: Region
    factor: Factor

    def place_in(self, total: Tensor) -> Tensor:
        """The piece's part of a flat total."""
        # A flat total may itself be a part of a larger one.
        size, strides, offset = self.region
        return total.as_strided(size, strides, total.storage_offset() + offset)


@dataclass(frozen=True, slots=True, eq=False)
class Contributions:
    """By leaf; a leaf without pieces contributes zeros. Sensitive.

    Args:
        pieces: of every leaf that the pass used, disjoint places.
        records: m, padding included.
        present: which rows are records, the others being padding: how many of the first, or one
            bool for each.
    """

    pieces: Mapping[str, tuple[Piece, ...]]
    records: int
    present: int | Tensor

    def measured(self, leaves: Iterable[str]) -> tuple[Tensor, Tensor]:
        """Squared norms and squared spreads, (m, leaves) each, float64, at or above the truth; the
        same tensor if equal.
        """
        names = list(leaves)
        pieces = [self.pieces.get(leaf, ()) for leaf in names]

        # Small factors are measured all at once, if each of them is all of its leaf.
        if all(len(leaf_pieces) == 1 for leaf_pieces in pieces):
            together = squares_together([leaf_pieces[0].factor for leaf_pieces in pieces])
            if together is not None:
                return together, together

        known = _measured_alike(pieces)
        squares, spreads = zip(*[self._measured(leaf, known) for leaf in names], strict=True)
        square_norms = torch.stack(squares, 1)

        # One tensor for both tells clipping that there is no spread to hold back.
        if all(map(is_, squares, spreads)):
            return square_norms, square_norms

        return square_norms, torch.stack(spreads, 1)

    def _measured(self, leaf: str, known: Mapping[int, Measures]) -> Measures:
        factors = [piece.factor for piece in self.pieces.get(leaf, ())]
        parts = [known.get(id(factor)) or factor.measured() for factor in factors]
        if not parts:
            zeros = torch.zeros(self.records, dtype=torch.float64)
            return zeros, zeros

        # Pieces are disjoint, so their squares add up.
        squares, spreads = parts[0]
        for square, spread in parts[1:]:
            squares, spreads = squares + square, spreads + spread

        on_cpu = squares.cpu()
        return on_cpu, on_cpu if spreads is squares else spreads.cpu()

    def positions(self, leaves: Iterable[str]) -> frozenset[int]:
        """Numbers of positions that occur; public."""
        # The margin for rounding goes by them (docs/proofs/sums.md, section 6).
        return frozenset(
            [piece.factor.positions for leaf in leaves for piece in self.pieces.get(leaf, ())]
        )

    @property
    def mask(self) -> Tensor:
        """Which rows are records, one bool for each."""
        return (
            self.present
            if isinstance(self.present, Tensor)
            else torch.arange(self.records) < self.present
        )

    def joined_by(self, pieces: Mapping[str, tuple[Piece, ...]]) -> Contributions:
        """With these leaves as well."""
        if not pieces:
            return self

        return Contributions({**self.pieces, **pieces}, self.records, self.present)

    def keep(self, mask: Tensor) -> Contributions:
        """Zeros for the other records."""
        # In the place of their numbers: a weight of zero times infinity is no zero (P13).
        pieces = {
            leaf: tuple(Piece(piece.region, piece.factor.keep(mask)) for piece in leaf_pieces)
            for leaf, leaf_pieces in self.pieces.items()
        }

        return Contributions(pieces, self.records, self.present)


def _measured_alike(pieces: Iterable[tuple[Piece, ...]]) -> dict[int, Measures]:
    """Measures of linear maps whose values have the same gradient, by `id` of the factor: what they
    share is looked at once.
    """
    by_gradient: dict[int, list[Outer]] = {}
    for leaf_pieces in pieces:
        for piece in leaf_pieces:
            if isinstance(piece.factor, Outer):
                by_gradient.setdefault(id(piece.factor.b), []).append(piece.factor)

    known: dict[int, Measures] = {}
    for outers in by_gradient.values():
        if len(outers) > 1:
            known |= zip(map(id, outers), measured_alike(outers), strict=True)

    return known


def plain_result(result: Any) -> tuple[Any, dict[str, Any]]:
    """Take the result of a loss apart, in the pass: a mapping of the user's own may look at
    numbers.

    Raises:
        ModelError: the statistics are no mapping, or a name is no text.
    """
    is_pair = isinstance(result, tuple) and len(result) == 2
    losses, statistics = result if is_pair else (result, {})

    # Such as losses and outputs, as trainers return them.
    if not isinstance(statistics, Mapping):
        raise ModelError(
            expected="one loss for each record, or (losses, statistics by name)",
            got=f"losses and a {type(statistics).__name__}",
            do="Return the losses alone, or (losses, {name: values}), with the names of the plan.",
        )

    # A copy: whatever the mapping does when it is read, it does once, and in sight of the proof.
    named = dict(statistics)

    # A name of another class could carry code and numbers of a record out of the pass.
    if not all(type(name) is str for name in named):
        raise ModelError(
            expected="statistics whose names are texts",
            got="something else as a name",
            do="Return (losses, {name: values}), with the names of the plan.",
        )

    return losses, named


def losses_and_statistics(
    result: tuple[Any, dict[str, Any]], rows: int, moments: Mapping[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """The losses, and the statistics with a row for each loss.

    Args:
        result: of `plain_result`; sensitive.
        rows: of the pass.
        moments: of private batch normalisation, which belong to the statistics.

    Raises:
        ModelError: there is not one loss for each row, or not one row of each statistic.
    """
    losses, statistics = result

    # One for each record, or nobody knows whose it is: of a mean nothing could be clipped (P01),
    # and tokens are no records (P10).
    if not isinstance(losses, Tensor) or losses.shape != (rows,):
        # No sizes here: a message has no number that a record may have chosen (T14).
        got = (
            f"a tensor of {losses.ndim} axes"
            if isinstance(losses, Tensor)
            else type(losses).__name__
        )
        raise ModelError(
            expected="one loss for each record, of shape (B,)",
            got=f"{got}, or another number of values",
            do='Use reduction="none"; average over positions of each record, not over records.',
        )

    values_by_name = dict(moments)
    for name, values in statistics.items():
        has_rows = isinstance(values, Tensor) and values.shape[:1] == (rows,)

        # Moments are computed here: a loss must not put something else in their place.
        if name in moments or not has_rows:
            raise ModelError(
                expected=f"one row of {name!r} for each record",
                got="a name of private batch-norm statistics"
                if name in moments
                else "something else",
                do="Return statistics as tensors (B,) or (B, k).",
            )

        values_by_name[name] = values.detach()

    return losses, values_by_name


def alone(gradients: Mapping[str, Tensor]) -> Contributions:
    """The contribution of one record, from its gradients by leaf."""
    pieces = {
        leaf: (Piece(whole_region(gradient), Dense(gradient.unsqueeze(0))),)
        for leaf, gradient in gradients.items()
    }

    return Contributions(pieces, 1, 1)


def gathered(
    uses: Iterable[Use], parameters: Mapping[str, Tensor], finish: Callable[[str, Factor], Factor]
) -> dict[str, tuple[Piece, ...]]:
    """All uses of a pass, by leaf, merged where they concern the same numbers."""
    factors_by_leaf: dict[str, dict[Region, list[Factor]]] = {}
    for use in uses:
        # None if the loss does not depend on it.
        for leaf, region, factor in use.lifted:
            factors_by_leaf.setdefault(leaf, {}).setdefault(region, []).append(factor)

    pieces = {}
    for leaf, regions in factors_by_leaf.items():
        # Norms of pieces add up only if no number is in two of them. What overlaps is one gradient,
        # whose parts may cancel or double each other (P03).
        merged: list[tuple[Region, Factor]] = []
        if len(regions) == 1 or _are_disjoint(regions):
            for region, factors in regions.items():
                merged.append((region, factors[0] if len(factors) == 1 else _merged(factors)))
        else:
            whole = whole_region(parameters[leaf])
            merged.append((whole, _added_up(regions, parameters[leaf])))

        pieces[leaf] = tuple([Piece(region, finish(leaf, factor)) for region, factor in merged])

    return pieces


def _are_disjoint(regions: Iterable[Region]) -> bool:
    """Whether stretches of memory do not overlap.

    From the first to the last number: columns of one table count as overlapping, which is safe.
    """
    end = 0
    for start, stop in sorted(map(_stretch, regions)):
        if start < end:
            return False

        end = stop

    return True


def _stretch(region: Region) -> tuple[int, int]:
    """The first place of a region in its parameter, and the one after its last."""
    sizes, strides, offset = region
    return offset, offset + 1 + sum(map(mul, sizes, strides)) - sum(strides)


def _merged(factors: list[Factor]) -> Factor:
    """One factor for the sum of all."""
    outers = [factor for factor in factors if isinstance(factor, Outer)]
    lookups = [factor for factor in factors if isinstance(factor, Lookups)]

    # Other kinds have no common form but the gradients themselves.
    if len(outers) + len(lookups) < len(factors):
        return _sum_of(factors)

    if not lookups:
        return _joined_outers(outers)

    if not outers:
        return _joined_lookups(lookups)

    # A head tied to an embedding: the norm of the sum has a cross term (P03).
    return Tied(_joined_outers(outers), _joined_lookups(lookups))


def _joined_outers(outers: list[Outer]) -> Outer:
    """The positions of all, one after the other."""
    if len(outers) == 1:
        return outers[0]

    inputs = torch.cat([factor.a for factor in outers], 1)
    gradients = torch.cat([factor.b for factor in outers], 1)

    return Outer(inputs, gradients, outers[0].shape)


def _joined_lookups(lookups: list[Lookups]) -> Lookups:
    """The positions of all, one after the other."""
    if len(lookups) == 1:
        return lookups[0]

    ids = torch.cat([factor.ids for factor in lookups], 1)
    gradients = torch.cat([factor.b for factor in lookups], 1)

    return Lookups(ids, gradients, lookups[0].shape)


def _sum_of(factors: list[Factor]) -> Dense:
    """The gradients of all, number by number: no reduction of a library, whose order could go by
    place or shape.
    """
    total = factors[0].dense().values
    for factor in factors[1:]:
        total = total + factor.dense().values

    return Dense(total)


def _added_up(regions: Mapping[Region, list[Factor]], parameter: Tensor) -> Dense:
    """Overlapping pieces, added up in one copy of the whole parameter for each record."""
    first = next(iter(regions.values()))[0].dense().values
    records = first.shape[0]
    totals = first.new_zeros(records, parameter.numel())

    for (sizes, strides, offset), factors in regions.items():
        # The region, in every record's copy.
        place = totals.as_strided((records, *sizes), (parameter.numel(), *strides), offset)
        for factor in factors:
            place.add_(factor.dense().values.reshape(place.shape))

    return Dense(totals.reshape(records, *parameter.shape))


def uses_by_leaf(uses: Iterable[Use], parameters: Mapping[str, Tensor]) -> dict[str, int]:
    """How often each leaf was used; one that was used otherwise than as it is, or in part, counts
    as used several times.
    """
    count: dict[str, int] = {}
    for use in uses:
        # Once, and as it is: then its form can be chosen where its gradient arrives.
        weight = 1 if isinstance(use.value, ViewOf) else 2
        for leaf, _ in sources_of(use.value, parameters):
            count[leaf] = count.get(leaf, 0) + weight

    return count
