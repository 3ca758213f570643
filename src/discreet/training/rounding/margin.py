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
from discreet.training.rounding.precision import (
    Chunk,
    chunk_for,
    clipped_within,
    lookup_chunk,
    most_spread,
)
from discreet.training.rounding.products import even_places
from discreet.units import Numerics

__all__ = ["ClipMargin"]

# Inner groups that are remembered, as an adaptive threshold makes a new one in every step.
_REMEMBERED = 32


class ClipMargin:
    """The clip norm that the records of each group of a run are clipped to. Public.

    It counts all numbers of positions that occurred so far: one record that sends a pass to the
    loop, where none occur, must not change what the others are clipped to.

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
        self._inner: dict[tuple[Group, frozenset[int]], Group] = {}
        self._positions: dict[str, frozenset[int]] = {}

    def __call__(self, group: Group, positions: frozenset[int]) -> tuple[Group, float]:
        """What to clip this group by in a pass in which records have these numbers of positions.

        Returns:
            The group with its inner clip norm, and the most spread of a record in units of it.
        """
        # What occurred once counts for the rest of the run.
        positions |= self._positions.get(group.name, frozenset())
        self._positions[group.name] = positions
        spread = most_spread(max(positions, default=1))

        # Without the claim of certified sums, or without a bound at all, there is no margin.
        if self._numerics is Numerics.IDEALISED or not group.private:
            return group, spread

        inner = self._inner.get((group, positions))

        if inner is None:
            inner = clipped_within(
                group,
                dimension=sum(self._bound.dimensions[leaf] for leaf in group.leaves),
                chunks=self._chunks(positions, spread),
                spread=spread,
                records=self.most_records,
                grid=grid_of(group),
            )

            # An adaptive group has another clip norm in every step: only the last ones are needed.
            earlier = dict(list(self._inner.items())[:_REMEMBERED])
            self._inner = {(group, positions): inner, **earlier}

        return inner, spread

    def check(self, groups: tuple[Group, ...]) -> None:
        """Refuse numbers out of range, before anything is charged."""
        # With one position, the least that every pass has.
        for group in groups:
            if group.private:
                self(group, frozenset({1}))
                grid_of(group).scale(group.noise_std)

    def _chunks(self, positions: frozenset[int], spread: float) -> list[Chunk]:
        # Leaves of one position occur in every model, biases and statistics; lookups are added in
        # float64, in a way of their own, wherever records have several positions.
        chunks = [chunk_for(count, spread) for count in positions | {1}]

        longest = max(positions, default=1)
        if longest > 1:
            size = self._microbatch or self.places
            chunks.append(lookup_chunk(longest, size, self.most_records))

        return chunks

    @property
    def places(self) -> int:
        """Rows of one pass if memory allows: enough for nearly every sample."""
        # Two standard deviations of a Poisson sample above its mean.
        expected = self._sampler.expected_batch_size
        places = even_places(int(expected + 2.0 * expected**0.5 + 1.0))
        return max(1, min(self.most_records, places))

    @property
    def most_records(self) -> int:
        """The most records that a sample can have."""
        return self._sampler.event.largest_batch(self._sampler.records)
