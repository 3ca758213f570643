"""Samples that a user's own code draws: checked against everything that their event says, batch by
batch.

An event fixes how many batches a step has, how large each may be, that no record is in it twice,
and, for an epoch, that every record is in exactly one batch. That is checked here, in every step.
The law, that is how likely each sample is and whether steps are independent, cannot be seen in
samples; so a run with such a draw is marked `unsafe_own_draw`, and no guarantee is given for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from discreet.errors import SampleMisuse
from discreet.ledger.events import Sampling
from discreet.randomness.source import Stream
from discreet.sampling._policies import Positions, within_batch

__all__ = ["OwnDraw", "own_positions"]

OwnDraw: TypeAlias = Callable[[int, Stream], Iterable[ArrayLike]]
"""From the number of records and a stream of random words: the batches of one step, each as the
positions of its records in the data set, in any order.
"""


def own_positions(
    draw: OwnDraw, policy: Sampling, records: int, stream: Stream, part: range
) -> Iterator[Positions]:
    """The batches of one step as `draw` gives them, sorted, if the policy allows them.

    Args:
        draw: a user's code.
        policy: the event that the step is charged as.
        records: number of records.
        stream: handed to `draw`.
        part: positions that are yielded, as for `positions`.

    Raises:
        SampleMisuse: a batch that the event rules out. The message names no record and no size.
    """
    # All of the step before the first batch is given out: what is wrong with the last one must not
    # come to light after the first was released.
    batches = [_checked(batch, policy, records) for batch in draw(records, stream)]
    if len(batches) != policy.batches_per_step:
        raise _ruled_out(policy, "another number of batches than the step has")

    # A record that is in two batches of an epoch contributes twice to what is charged as once.
    if policy.batches_per_step > 1:
        together = np.sort(np.concatenate(batches))
        if not np.array_equal(together, np.arange(records)):
            raise _ruled_out(policy, "batches of an epoch that do not hold every record once")

    for batch in batches:
        yield within_batch(batch, part)


def _checked(batch: ArrayLike, policy: Sampling, records: int) -> Positions:
    """Sorted positions inside the data set, none twice, as many as the policy allows."""
    # An empty list has no kind of its own: NumPy takes it for floats.
    array = np.asarray(batch)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise _ruled_out(policy, "a batch that is not a list of whole numbers")

    # Negative positions would count from the end, and reach a record twice under two names.
    ordered = np.sort(array.astype(np.int64))
    if (ordered < 0).any() or (ordered >= records).any():
        raise _ruled_out(policy, "positions outside of the data set")

    if (np.diff(ordered) == 0).any():
        raise _ruled_out(policy, "a record that is twice in a batch")

    if not policy.smallest_batch(records) <= ordered.size <= policy.largest_batch(records):
        raise _ruled_out(policy, "a batch of a size that the policy never has")

    return ordered


def _ruled_out(policy: Sampling, got: str) -> SampleMisuse:
    return SampleMisuse(
        expected=f"samples that {policy.phrase} can draw, which is what is charged",
        got=got,
        do="Mend the function passed as unsafe_drawn_by, or charge the policy that it follows.",
    )
