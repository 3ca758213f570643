"""Clipped sums of one sample, in float64: one record moves them by at most the clip norm of its
group, rounding included.

    contributions ──> squared norms ──> weights (inner clip norm) ──> weighted sums of float32
    chunks, added up in float64

Everything here is sensitive until noise is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.errors import ModelError, ParameterError
from discreet.mechanisms import Bound, Group, State
from discreet.training.factors.factors import Dense, wide
from discreet.training.passes.contributions import Contributions, Piece
from discreet.training.passes.precision_settings import full_precision
from discreet.training.rounding.precision import raised_squares, sum_weights
from discreet.training.tables.rows import RowSums

__all__ = ["Inner", "Sums", "refuse_slots", "statistics_of"]

Inner: TypeAlias = Callable[[Group, frozenset[int]], tuple[Group, float]]
"""For a group whose leaves have so many positions: the group with the clip norm to clip to, so that
rounding keeps the sensitivity within the group's own; and the most spread in units of it. If it is
the very same group, rounding is idealised, and no spread is held back. Public."""

_Measures: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
_UP = 1.0 + 2.0**-48  # above the rounding of a square root


class Sums:
    """The sums of one sample's records.

    Args:
        bound: the plan's mechanism, bound to its leaves.
        state: of this step.
        inner: what to clip by.
        device: where the sums are kept.
        tables: sums of tables, by leaf, over the rows that were looked up.
    """

    def __init__(
        self,
        bound: Bound,
        state: State,
        inner: Inner,
        device: torch.device,
        tables: Mapping[str, RowSums] = MappingProxyType({}),
    ) -> None:
        self.tables = tables
        self._bound = bound
        self._state = state
        self._inner = inner
        self._device = device
        self._groups = bound.groups(state)
        self._dimensions = dict(bound.dimensions.pairs)
        refuse_slots(self._groups)
        self._adds = 0
        self._totals: dict[str, Tensor] = {}

    def add(self, contributions: Contributions, statistics: Mapping[str, Tensor]) -> None:
        """Add the records of one pass, each clipped by itself; one that is not finite contributes
        zeros, in every group.
        """
        with full_precision(self._device):
            self._add(contributions, statistics)

    def _add(self, contributions: Contributions, statistics: Mapping[str, Tensor]) -> None:
        present = contributions.mask.cpu().numpy()
        self._check_statistics(statistics)

        # What was one float32 sum is one of several now.
        if self._adds == 1:
            self._totals = {leaf: total.double() for leaf, total in self._totals.items()}

        self._adds += 1

        records = contributions.joined_by(_as_pieces(statistics, self._bound))
        measures = {
            group.name: _measured(records, group) for group in self._groups if self._own(group)
        }
        bits = self._bound.observations(
            self._state, {name: squares for name, (squares, _) in measures.items()}
        )

        # A record that is not finite in one group contributes zeros in every group (P13): otherwise
        # the groups that stayed finite would tell which record failed.
        finite = np.logical_and.reduce([_all_finite(*pair) for pair in measures.values()])
        if not finite.all():
            records = records.keep(torch.from_numpy(finite))

        # What adaptive groups observe of the norms is part of the record, and is clipped as well.
        observed = {leaf: torch.from_numpy(rows * present) for leaf, rows in bits.items()}
        records = records.joined_by(_as_pieces(observed, self._bound))
        for group in self._groups:
            measured = measures.get(group.name) or _measured(records, group)
            weights, largest_spread = self._weights(group, records, measured)
            self._sum_up(group, records, weights * (finite & present), largest_spread)

    def _weights(
        self, group: Group, records: Contributions, measured: _Measures
    ) -> tuple[NDArray[np.float64], float]:
        """The weight of every record in a group, and the most spread that it may have."""
        squares, spreads = measured
        inner, largest_spread = self._inner(group, records.positions(group.leaves))

        # Otherwise rounding is idealised, and there is no bound to keep, or no spread.
        if inner is not group and spreads is not squares:
            squares = raised_squares(squares, np.sqrt(spreads) * _UP, limit=largest_spread)

        return inner.weights(squares), largest_spread

    def _sum_up(
        self,
        group: Group,
        records: Contributions,
        weights: NDArray[np.float64],
        largest_spread: float,
    ) -> None:
        scaled: dict[float, tuple[Tensor, Tensor]] = {}
        for leaf, scale in zip(group.leaves, group.scales, strict=True):
            if scale not in scaled:
                factors = torch.from_numpy(sum_weights(weights, scale=scale)).to(self._device)
                # The second is what float32 sums round them to, once for all of them.
                scaled[scale] = (factors, factors.float())

            pieces = records.pieces.get(leaf, ())
            if leaf in self.tables:
                for piece in pieces:
                    self.tables[leaf].add(piece.factor, scaled[scale][0])

                continue

            single = all(piece.factor.single(largest_spread) for piece in pieces)
            total = self._total(leaf, narrow=single)

            # `single` is False or True: the weights in float64, or as float32 sums have them.
            for piece in pieces:
                piece.factor.add_to(piece.place_in(total), scaled[scale][single], largest_spread)

    def _total(self, leaf: str, *, narrow: bool) -> Tensor:
        """The sum over all records so far. It may stay in float32, in half the memory, while it is
        one float32 sum.
        """
        if leaf not in self._totals:
            kind = torch.float32 if self._adds <= 1 and narrow else torch.float64
            self._totals[leaf] = torch.zeros(
                self._dimensions[leaf], dtype=kind, device=self._device
            )

        return self._totals[leaf]

    def _check_statistics(self, statistics: Mapping[str, Tensor]) -> None:
        expected = set(statistics_of(self._bound))
        if set(statistics) != expected:
            raise ModelError(
                expected=f"a loss that returns the statistics of the plan: {sorted(expected)}",
                got="others",  # not which: their names may have been chosen by a record
                do=(
                    "Return (losses, {name: values}) with one row for each record, or change the "
                    "plan."
                ),
            )

    def _own(self, group: Group) -> bool:
        """Whether records bring it, and not the norms of another group."""
        return group.leaves[0] not in self._bound.observed

    def sum(self, leaf: str) -> NDArray[np.floating]:
        """The sum of one leaf, in its scaled unit: float32 or float64, one axis."""
        values: NDArray[np.floating] = self._total(leaf, narrow=True).cpu().numpy()
        return values

    def flat(self, group: Group) -> NDArray[np.float64]:
        """The sum of a group, leaf after leaf, in its scaled unit: a copy, to look at."""
        return np.concatenate([self.sum(leaf) for leaf in group.leaves], dtype=np.float64)


def _measured(records: Contributions, group: Group) -> _Measures:
    """Squared norms and squared spreads of a group's leaves, as arrays of NumPy, which has less to
    do with small ones.
    """
    squares, spreads = records.measured(group.leaves)
    array = squares.numpy()
    return array, array if spreads is squares else spreads.numpy()


def _all_finite(squares: NDArray[np.float64], spreads: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether all leaves of each record have finite norms and spreads."""
    # Without a spread of their own, squares stand in its place.
    finite = np.isfinite(squares) & np.isfinite(spreads)
    return np.asarray(finite.all(1))


def statistics_of(bound: Bound) -> list[str]:
    """Leaves that a loss returns besides gradients: neither these nor observations of norms."""
    return [
        leaf
        for leaf in bound.dimensions
        if not leaf.startswith("grad/") and leaf not in bound.observed
    ]


def refuse_slots(groups: tuple[Group, ...]) -> None:
    """Averages of slots are clipped by the NumPy engine only."""
    for group in groups:
        if group.slots is not None:
            raise ParameterError(
                owner="PrivateRun",
                name="plan",
                expected="groups in which records are clipped one by one",
                got=f"slots in {group.name!r}",
                do=(
                    "Microbatches serve the Aggregator; here physical microbatches are the "
                    "engine's own business."
                ),
            )


def _as_pieces(rows: Mapping[str, Tensor], bound: Bound) -> dict[str, tuple[Piece, ...]]:
    """Statistics as leaves of their own."""
    pieces: dict[str, tuple[Piece, ...]] = {}
    for leaf, values in rows.items():
        if values.numel() != bound.dimensions[leaf] * len(values):
            raise ModelError(
                expected=f"{bound.dimensions[leaf]} numbers of {leaf!r} for each record",
                got="rows of another size",
                do="Make the plan's size of this statistic that of its rows.",
            )

        # One row of numbers for each record, in a type that measuring takes.
        numbers = values if values.is_floating_point() else values.double()
        flat = wide(numbers).reshape(len(values), -1)
        pieces[leaf] = (Piece(((flat.shape[1],), (1,), 0), Dense(flat)),)

    return pieces
