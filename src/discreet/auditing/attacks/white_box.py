"""The strongest audit of a plan: its own sampler and mechanism, executed on canaries that nothing
else touches.

    plan -> the NumPy engine, on a ledger in memory -> what it releases -> likelihood ratio of each
    canary -> Scores

No data and no model: a canary is a vector far longer than the clip norm on a coordinate of its own,
in every group. So the scores tell whether sampling, clipping, noise and scaling together do what
the ledger is told; what a model makes of a record is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation import Aggregator, PartialSums
from discreet.canaries import Canaries, Likelihood, Scores
from discreet.errors import ParameterError
from discreet.ledger import Ledger
from discreet.mechanisms import Bound, Mechanism
from discreet.mechanisms._frozen import Frozen
from discreet.plan import Plan
from discreet.randomness import Purpose, Source
from discreet.sampling import Sample, Sampler
from discreet.units import Adjacency

__all__ = ["ATTACK", "independent", "white_box"]

ATTACK = (
    "the plan's mechanism on canaries alone, not the run itself: no data, no model; likelihood "
    "ratios"
)
"""What the scores of `white_box` are called."""

_OWNER = "white_box"

# Times the clip norm: a record that is not clipped cannot be overlooked.
_FAR = 1000.0

# Numbers that are in memory at a time, for one leaf.
_PIECE = 2**21


def white_box(
    plan: Plan,
    *,
    canaries: int = 1000,
    trials: int = 10,
    source: Source | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Scores:
    """Execute a plan on canaries, and score what it releases.

    The first `canaries` of the plan's records are canaries, each in by a fair coin. One that is out
    contributes nothing (under replace-one: the opposite), and so do all other records. Queries,
    policy and number of steps are the plan's, checked; leaves get one coordinate for each canary.
    Units that own several rows are one row each here.

    Args:
        plan: private, and with leaves where its noise depends on them.
        canaries: in one run; all records of the plan, if it has fewer. What is in memory grows with
            their square.
        trials: independent runs.
        source: for tests; left out, each trial has a fresh one from the operating system.
        processes: that share the trials. More than 1 starts new ones: a script then needs `if
            __name__ == "__main__":`.
        progress: called with the number of trials that are over, and of all.

    Returns:
        One score for each canary of each trial; the best that these releases admit, but for the
        bits of adaptive clipping, and for slots of microbatches that hold several canaries
        (docs/proofs/verdict.md).

    >>> from discreet.ledger.events import Poisson
    >>> from discreet.mechanisms import Gaussian
    >>> sampler = Sampler(Poisson(0.5), records=100, steps=3)
    >>> plan = Plan(sampler=sampler, mechanism=Gaussian(1.0, noise_multiplier=2.0))
    >>> scores = white_box(plan, canaries=50, trials=2)
    >>> len(scores), scores.runs
    (100, 2)
    """
    count = check.whole(_OWNER, "canaries", canaries, least=1)
    total = check.whole(_OWNER, "trials", trials, least=1)
    workers = check.whole(_OWNER, "processes", processes, least=1)
    audited = _for_canaries(check.instance(_OWNER, "plan", plan, Plan), count)

    # Keys in the place of sources: a source stays in its process, and trials may have others.
    keys = _keys(source, total)
    parts = []
    for part in _each(partial(_trial, audited), keys, workers):
        parts.append(part)
        if progress is not None:
            progress(len(parts), total)

    return Scores.pooled(parts)


def independent(plan: Plan) -> bool:
    """Whether the scores of `white_box` are proven to be independent of each other, as
    `auditing.scaled` assumes.

    That takes samples in which every record is drawn for itself, and no microbatches: canaries that
    fall into one slot are averaged and clipped together (docs/proofs/verdict.md, section 3).

    >>> from discreet.ledger.events import FixedSize, Poisson
    >>> from discreet.mechanisms import Gaussian
    >>> for policy in (Poisson(0.1), FixedSize(10, 100)):
    ...     sampler = Sampler(policy, records=100, steps=3)
    ...     independent(Plan(sampler=sampler, mechanism=Gaussian(1.0, noise_multiplier=2.0)))
    True
    False
    """
    # Of a user's mechanism, what it says of itself counts only until its groups are known.
    slotted = plan.mechanism.has_slots
    if plan.leaves is not None:
        slotted = any(group.slots is not None for group in plan.bound.start)

    return not slotted and plan.sampler.event.records_are_independent


def _keys(source: Source | None, trials: int) -> list[bytes | None]:
    """For each trial None, for a source of its own; or the key of a test."""
    if source is None:
        return [None] * trials

    check.instance(_OWNER, "source", source, Source)
    return [source.stream(Purpose.CANARY, step=trial).words(4).tobytes() for trial in range(trials)]


def _each(
    work: Callable[[bytes | None], Scores], keys: list[bytes | None], workers: int
) -> Iterator[Scores]:
    if workers == 1:
        yield from map(work, keys)
        return

    # New processes, not forks: nothing random is carried over.
    with ProcessPoolExecutor(min(workers, len(keys)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, keys)


def _trial(plan: Plan, key: bytes | None) -> Scores:
    """Run the plan once, and score what it releases."""
    # Nothing that is released here is anybody's data, so a key that is derived, not drawn, voids
    # nothing.
    source = Source.system() if key is None else Source.unsafe_test_key(key)
    planted = Canaries(np.arange(max(plan.bound.dimensions.values())), source=source)

    # What a canary that is out leaves behind: nothing, or its opposite where it was exchanged.
    outside = -1.0 if plan.adjacency is Adjacency.REPLACE_ONE else 0.0
    signs = np.where(planted.inside, 1.0, outside)

    likelihood = Likelihood(plan.sampler.event, canaries=len(planted), adjacency=plan.adjacency)
    run = Aggregator(plan, ledger=Ledger.in_memory(), source=source)
    for sample in run.samples():
        # Thresholds may have moved: in the scales of this step, and not of the first. A canary
        # stands in the first leaf of each group; unit is the longest that it can be there.
        units, lengths = {}, {}
        for group in plan.bound.groups(run.state):
            leaf, scale = group.leaves[0], group.scales[0]
            if leaf not in plan.bound.observed:
                units[leaf] = group.clip_norm * scale
                lengths[leaf] = _FAR * (units[leaf] + group.stability * scale)

        released = run.release(sample, _sums(run, sample, signs, lengths))
        likelihood.observe(
            [
                (released[leaf] / unit, released.noise_std[leaf] / unit)
                for leaf, unit in units.items()
            ]
        )

    return Scores(likelihood.scores(), planted.inside, attack=ATTACK)


def _sums(
    run: Aggregator, sample: Sample, signs: NDArray[np.float64], lengths: Mapping[str, float]
) -> PartialSums:
    """The clipped sums of a sample: rows for those that contribute, none for all others."""
    # Canaries are the first records, and positions are sorted.
    drawn = sample.units[: np.searchsorted(sample.units, signs.size)]
    present = drawn[signs[drawn] != 0.0]
    bound = run.plan.bound
    sizes = {leaf: size for leaf, size in bound.dimensions.items() if leaf not in bound.observed}

    # A slot's average is over all of its records, so that they have to come in one piece.
    has_slots = any(group.slots for group in bound.start)
    sums = run.partial(sample)
    for piece in [present] if has_slots else _pieces(present, signs.size):
        rows = {leaf: np.zeros((piece.size, size)) for leaf, size in sizes.items()}
        for leaf, length in lengths.items():
            rows[leaf][np.arange(piece.size), piece] = signs[piece] * length

        sums.add(rows)

    # All others were drawn as well, and the engine counts them.
    sums.add_nothing(len(sample) - present.size)
    return sums


def _pieces(drawn: NDArray[np.int64], width: int) -> Iterator[NDArray[np.int64]]:
    height = max(1, _PIECE // width)
    for start in range(0, drawn.size, height):
        yield drawn[start : start + height]


# --- the same plan, with one coordinate for each canary ---


def _for_canaries(plan: Plan, canaries: int) -> Plan:
    """A plan with the same step, whose groups have one coordinate for each canary."""
    if not plan.private:
        raise ParameterError(
            owner=_OWNER,
            name="plan",
            expected="with noise on every group",
            got=f"{', '.join(plan.open_groups())} is released without noise",
            do="There is no claim to be audited.",
        )

    # A schedule is a policy for any number of records: here all of them are canaries.
    sampler = plan.sampler
    if isinstance(sampler, Sampler):
        sampler = replace(sampler, owners=None, rows_per_unit=None)
    else:
        sampler = Sampler(sampler.policy, records=canaries, steps=sampler.steps)

    try:
        bound = plan.mechanism.bind_without_leaves() if plan.leaves is None else plan.bound
    except ParameterError as wrong:
        raise _unbound(wrong.got) from None

    # One leaf of each group has a coordinate for every canary; the others have to exist, no more.
    leaves = dict.fromkeys(bound.dimensions, 1)
    for group in bound.start:
        leaves[group.leaves[0]] = min(canaries, sampler.records)

    for leaf in bound.observed:
        del leaves[leaf]

    # What is executed below must be what the plan is charged for.
    audited = replace(plan, sampler=sampler, mechanism=_AsBound(bound), leaves=leaves)
    if audited.step != plan.step:
        raise _unbound("a plan whose queries depend on the sizes of its leaves")

    return audited


@dataclass(frozen=True, slots=True)
class _AsBound(Mechanism):
    """The groups of a plan as they are, numbers and all, on leaves of other sizes."""

    bound: Bound

    def bind(self, leaves: Mapping[str, int], name: str = "all") -> Bound:
        """Give out the groups as they are; their names are in them already."""
        del name
        sizes = dict(self.bound.dimensions) | dict(leaves)
        return replace(self.bound, dimensions=Frozen(tuple(sizes.items())))


def _unbound(got: str) -> ParameterError:
    return ParameterError(
        owner=_OWNER,
        name="plan",
        expected="a plan that knows its leaves",
        got=got,
        do="Pass run.plan, or plan.for_leaves({...}).",
    )
