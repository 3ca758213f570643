"""What the records of one pass contribute: for each leaf, disjoint pieces of per-record gradients.

Several uses of one parameter are one gradient: their factors are merged before anything is measured
    (P03, P08).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.errors import ModelError
from discreet.training.factors.factors import Dense, Factor, Lookups, Measures, Outer, Tied
from discreet.training.factors.lengths import squares_together
from discreet.training.rules.call import Use
from discreet.training.rules.weights import Region, whole_region

__all__ = [
    "Contributions",
    "Piece",
    "alone",
    "gathered",
    "losses_and_statistics",
    "plain_result",
]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A factor and the place of its value in the leaf."""

    region: Region
    factor: Factor

    def place_in(self, total: Tensor) -> Tensor:
        """The piece's part of a flat total."""
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
        single = [
            self.pieces[leaf][0].factor for leaf in names if len(self.pieces.get(leaf, ())) == 1
        ]
        together = squares_together(single) if len(single) == len(names) else None
        if together is not None:
            return together, together
        measured = [self._measured(leaf) for leaf in names]
        squares = torch.stack([square for square, _ in measured], 1)
        if all(square is spread for square, spread in measured):
            return squares, squares
        return squares, torch.stack([spread for _, spread in measured], 1)

    def _measured(self, leaf: str) -> Measures:
        parts = [piece.factor.measured() for piece in self.pieces.get(leaf, ())]
        if not parts:
            zeros = torch.zeros(self.records, dtype=torch.float64)
            return zeros, zeros
        squares, spreads = parts[0]
        for square, spread in parts[1:]:
            squares, spreads = squares + square, spreads + spread
        on_cpu = squares.cpu()
        return on_cpu, on_cpu if spreads is squares else spreads.cpu()

    def positions(self, leaves: Iterable[str]) -> frozenset[int]:
        """Numbers of positions that occur; public."""
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
        return (
            Contributions({**self.pieces, **pieces}, self.records, self.present) if pieces else self
        )

    def keep(self, mask: Tensor) -> Contributions:
        """Zeros for the other records."""
        pieces = {
            leaf: tuple(Piece(piece.region, piece.factor.keep(mask)) for piece in leaf_pieces)
            for leaf, leaf_pieces in self.pieces.items()
        }
        return Contributions(pieces, self.records, self.present)


def plain_result(result: Any) -> tuple[Any, dict[str, Any]]:
    """Take the result of a loss apart, in the pass: a mapping of the user's own may look at
    numbers.

    Raises:
        ModelError: a name of a statistic is no text.
    """
    losses, statistics = result if isinstance(result, tuple) and len(result) == 2 else (result, {})
    named = dict(statistics)
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
    if not isinstance(losses, Tensor) or losses.shape != (rows,):
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
        if (
            not isinstance(values, Tensor)
            or values.ndim < 1
            or values.shape[0] != rows
            or name in moments
        ):
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
        for leaf, region, factor in use.lifted:  # none if the loss does not depend on it
            factors_by_leaf.setdefault(leaf, {}).setdefault(region, []).append(factor)
    out = {}
    for leaf, regions in factors_by_leaf.items():
        if len(regions) == 1 or _apart(regions):
            merged = [(region, _merged(factors)) for region, factors in regions.items()]
        else:
            merged = [(whole_region(parameters[leaf]), _together(regions, parameters[leaf]))]
        out[leaf] = tuple([Piece(region, finish(leaf, factor)) for region, factor in merged])
    return out


def _apart(regions: Iterable[Region]) -> bool:
    """Whether stretches of memory do not overlap."""
    end = 0
    for start, stop in sorted(map(_stretch, regions)):
        if start < end:
            return False
        end = stop
    return True


def _stretch(region: Region) -> tuple[int, int]:
    sizes, strides, offset = region
    return offset, offset + 1 + sum(
        (size - 1) * stride for size, stride in zip(sizes, strides, strict=True)
    )


def _merged(factors: list[Factor]) -> Factor:
    """One factor for the sum of all."""
    if len(factors) == 1:
        return factors[0]
    outers = [factor for factor in factors if isinstance(factor, Outer)]
    lookups = [factor for factor in factors if isinstance(factor, Lookups)]
    if len(outers) + len(lookups) < len(factors):
        return _sum_of([factor.dense() for factor in factors])
    if not lookups:
        return _joined_outers(outers)
    if not outers:
        return _joined_lookups(lookups)
    return Tied(_joined_outers(outers), _joined_lookups(lookups))


def _joined_outers(outers: list[Outer]) -> Outer:
    """The positions of all, one after the other."""
    inputs = torch.cat([factor.a for factor in outers], 1)
    gradients = torch.cat([factor.b for factor in outers], 1)
    return Outer(inputs, gradients, outers[0].shape)


def _joined_lookups(lookups: list[Lookups]) -> Lookups:
    """The positions of all, one after the other."""
    ids = torch.cat([factor.ids for factor in lookups], 1)
    gradients = torch.cat([factor.b for factor in lookups], 1)
    return Lookups(ids, gradients, lookups[0].shape)


def _sum_of(factors: list[Dense]) -> Dense:
    total = factors[0].values
    for factor in factors[1:]:
        total = total + factor.values
    return Dense(total)


def _together(regions: Mapping[Region, list[Factor]], parameter: Tensor) -> Dense:
    """Overlapping pieces, added up in copies of the whole parameter."""
    first = next(iter(regions.values()))[0].dense().values
    out = first.new_zeros(first.shape[0], parameter.numel())
    for (sizes, strides, offset), factors in regions.items():
        for factor in factors:
            place = out.as_strided((first.shape[0], *sizes), (parameter.numel(), *strides), offset)
            place.add_(factor.dense().values.reshape(place.shape))
    return Dense(out.reshape(first.shape[0], *parameter.shape))
