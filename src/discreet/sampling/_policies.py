"""How each policy of the ledger becomes positions of records: one entry of one table per policy.

Every entry draws the whole step, for all records, from a stream that serves nothing else. What it
yields has exactly the law that its event states (docs/proofs/sampling.md), given ideal random
words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.errors import ParameterError
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    TruncatedPoisson,
)
from discreet.randomness.draws import below, bernoulli, permutation, subset
from discreet.randomness.source import Stream

__all__ = ["Positions", "drawn_positions", "within_batch"]

Positions: TypeAlias = NDArray[np.int64]
"""Sorted positions of records in the data set. Sensitive."""


def drawn_positions(
    policy: Sampling, records: int, stream: Stream, part: range
) -> Iterator[NDArray[np.int64]]:
    """The batches of one step, each as sorted positions in 0 ... records-1 that lie in `part`.

    The step is drawn for all records, whatever the part, so that the parts of several ranks join to
    one sample.

    Raises:
        ParameterError: the policy has no entry in the table below.
    """
    draw = _DRAWS.get(type(policy))
    if draw is None:
        raise ParameterError(
            owner="Sampler",
            name="policy",
            expected="one that can be drawn: " + ", ".join(kind.__name__ for kind in _DRAWS),
            got=type(policy).__name__,
            do="Add how it is drawn to the table of discreet/sampling/_policies.py.",
        )

    return draw(policy, records, stream, part)


def within_batch(batch: Positions, part: range) -> Positions:
    """Those of the sorted positions that lie in `part`."""
    # One slice: positions are sorted, and the part is a range.
    first, last = np.searchsorted(batch, (part.start, part.stop))
    return batch[first:last]


def _everything(_: Everything, __: int, ___: Stream, part: range) -> Iterator[Positions]:
    yield np.arange(part.start, part.stop, dtype=np.int64)


def _poisson(policy: Poisson, _: int, stream: Stream, part: range) -> Iterator[Positions]:
    # Each record reads bits of its own, so a part can be drawn without the others.
    yield bernoulli(stream, policy.probability, part.start, part.stop)


def _truncated(
    policy: TruncatedPoisson, records: int, stream: Stream, part: range
) -> Iterator[Positions]:
    # Whether the sample is cut depends on all records, so that each rank draws all of it. Who stays
    # is drawn from bits of their own: those of the coins were read.
    drawn = bernoulli(stream, policy.probability, 0, records)
    if drawn.size > policy.limit:
        drawn = drawn[subset(stream.child("truncate"), policy.limit, drawn.size)]

    yield within_batch(drawn, part)


def _fixed_size(
    policy: FixedSize, records: int, stream: Stream, part: range
) -> Iterator[Positions]:
    yield within_batch(subset(stream, policy.size, records), part)


def _shuffled(policy: Shuffled, records: int, stream: Stream, part: range) -> Iterator[Positions]:
    # In whole numbers: sizes differ by at most one, and the last edge is the number of records.
    batches = policy.batches
    edges = np.array([records * batch // batches for batch in range(batches + 1)])
    yield from _cut(permutation(stream, records), edges, part)


def _balls_in_bins(
    policy: BallsInBins, records: int, stream: Stream, part: range
) -> Iterator[Positions]:
    # Every record chooses its batch for itself; a small type sorts faster.
    batches = policy.batches
    chosen = below(stream, batches, records).astype(np.min_scalar_type(batches))

    # Batches nobody chose are counted as well, and come out empty (P28).
    edges = np.concatenate([[0], np.cumsum(np.bincount(chosen, minlength=batches))])
    yield from _cut(np.argsort(chosen, kind="stable"), edges, part)


# A policy of the ledger that is not here can be accounted for, and not drawn.
_DRAWS: dict[type[Sampling], Callable[[Any, int, Stream, range], Iterator[Positions]]] = {
    Everything: _everything,
    Poisson: _poisson,
    TruncatedPoisson: _truncated,
    FixedSize: _fixed_size,
    Shuffled: _shuffled,
    BallsInBins: _balls_in_bins,
}


def _cut(order: NDArray[np.int64], edges: NDArray[np.int64], part: range) -> Iterator[Positions]:
    """An order of all records, cut into batches at the edges."""
    for batch in range(edges.size - 1):
        yield within_batch(np.sort(order[edges[batch] : edges[batch + 1]]), part)
