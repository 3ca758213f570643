"""How each policy of the ledger becomes positions of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

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

__all__ = ["positions"]


def positions(
    policy: Sampling, records: int, stream: Stream, part: range
) -> Iterator[NDArray[np.int64]]:
    """The batches of one step, each as sorted positions in 0 ... records-1 that lie in `part`.

    The step is drawn for all records, whatever the part, so that the parts of several ranks join to
    one sample.
    """
    match policy:
        case Everything():
            yield np.arange(part.start, part.stop, dtype=np.int64)
        case Poisson(probability):
            yield bernoulli(stream, probability, part.start, part.stop)
        case TruncatedPoisson(probability, limit):
            drawn = bernoulli(stream, probability, 0, records)
            if drawn.size > limit:
                drawn = drawn[subset(stream.child("truncate"), limit, drawn.size)]
            yield _within(drawn, part)
        case FixedSize(size):
            yield _within(subset(stream, size, records), part)
        case Shuffled(batches):
            edges = np.array([records * batch // batches for batch in range(batches + 1)])
            yield from _cut(permutation(stream, records), edges, part)
        case BallsInBins(batches):
            chosen = below(stream, batches, records).astype(
                np.min_scalar_type(batches)
            )  # a small type sorts faster
            edges = np.concatenate([[0], np.cumsum(np.bincount(chosen, minlength=batches))])
            yield from _cut(np.argsort(chosen, kind="stable"), edges, part)
        case _:
            assert_never(policy)


def _cut(
    order: NDArray[np.int64], edges: NDArray[np.int64], part: range
) -> Iterator[NDArray[np.int64]]:
    for batch in range(edges.size - 1):
        yield _within(np.sort(order[edges[batch] : edges[batch + 1]]), part)


def _within(positions: NDArray[np.int64], part: range) -> NDArray[np.int64]:
    first, last = np.searchsorted(positions, (part.start, part.stop))
    return positions[first:last]
