"""What records are clipped to, so that the rounding of float32 sums stays within what the ledger
was charged with.

The ledger is charged with the plan's clip norm C. Sums are rounded, so one record can move them by
a little more than it was clipped to; records are therefore clipped to a little less than C, by a
proven margin (docs/proofs/sums.md, theorem 5).
"""

from __future__ import annotations

from discreet.aggregation.sums import grid_of
from discreet.mechanisms import Bound, Group
from discreet.sampling import Sampler
from discreet.training.rounding.precision import Chunk, chunk_for, inner_group, lookups, most_spread
from discreet.training.rounding.products import even_places
from discreet.units import Numerics

__all__ = ["Inner"]

_KEPT = 32  # inner groups that are remembered


class Inner:
    """For the groups of one run: the clip norm of a group, and the most spread of a record in units
    of it. Public.

    For all positions that occurred so far: one record that sends a pass to the loop, where none
    occur, must not change what the others are clipped to.

    Args:
        bound: the plan's mechanism, bound to its leaves.
        sampler: of the plan.
        numerics: executed; `IDEALISED` clips to the clip norm itself.
        microbatch: records of one pass; None where memory decides.
    """

    def __init__(
        self, bound: Bound, sampler: Sampler, numerics: Numerics, microbatch: int | None
    ) -> None:
        self._bound = bound
        self._sampler = sampler
        self._numerics = numerics
        self._microbatch = microbatch
        self._found: dict[tuple[Group, frozenset[int]], Group] = {}
        self._positions: dict[str, frozenset[int]] = {}

    def __call__(self, group: Group, positions: frozenset[int]) -> tuple[Group, float]:
        """What to clip this group by in a pass in which records have these numbers of positions."""
        positions |= self._positions.get(group.name, frozenset())
        self._positions[group.name] = positions
        most = most_spread(max(positions, default=1))
        if self._numerics is Numerics.IDEALISED or not group.private:
            return group, most
        found = self._found.get((group, positions))
        if found is None:
            found = inner_group(
                group,
                dimension=sum(self._bound.dimensions[leaf] for leaf in group.leaves),
                chunks=self._chunks(positions, most),
                spread=most,
                records=self.most_records,
                grid=grid_of(group),
            )
            self._found = {(group, positions): found, **dict(list(self._found.items())[:_KEPT])}
        return found, most

    def check(self, groups: tuple[Group, ...]) -> None:
        """Refuse numbers out of range, before anything is charged."""
        for group in groups:
            if group.private:
                self(group, frozenset({1}))
                grid_of(group).scale(group.noise_std)

    def _chunks(self, positions: frozenset[int], most: float) -> list[Chunk]:
        cut = [chunk_for(count, most) for count in positions | {1}]
        longest = max(positions, default=1)
        return (
            [*cut, lookups(longest, self._microbatch or self.places, self.most_records)]
            if longest > 1
            else cut
        )

    @property
    def places(self) -> int:
        """Rows of one pass if memory allows: enough for nearly every sample."""
        expected = self._sampler.expected_batch_size
        return max(
            1, min(self.most_records, even_places(int(expected + 2.0 * expected**0.5 + 1.0)))
        )

    @property
    def most_records(self) -> int:
        """Of any sample."""
        return self._sampler.event.largest_batch(self._sampler.records)
