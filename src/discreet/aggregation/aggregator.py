"""The NumPy engine: one charge, one sample, one noised release, step after step.

    plan -> ledger (charged, durable) -> sample -> records
         -> clipped sums -> noise -> release -> next state

It serves any iterative procedure whose records are arrays (k-means, logistic regression, federated
averaging), and is the reference for engines that compute their clipped sums elsewhere.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from discreet.aggregation.release import Release
from discreet.aggregation.session import Session
from discreet.aggregation.sums import PartialSums, Records, bare, grid_of
from discreet.errors import ParameterError
from discreet.ledger import Ledger
from discreet.mechanisms import Bound, Group, State
from discreet.plan import Plan
from discreet.randomness import GaussianNoise, Source
from discreet.randomness.draws import below
from discreet.sampling import Sample, Sampler
from discreet.units import Numerics, Parameters

__all__ = ["Aggregator", "aggregate"]


class Aggregator:
    """Executes a plan on records that the caller computes.

    Guarantee: what `release` returns is post-processing of the Gaussian queries that the ledger was
    charged with before the sample was drawn: integer sums whose sensitivity is checked record by
    record, exact noise, numerics `exact`. This holds if a record's arrays are computed from that
    record and from released values alone, bit for bit (docs/proofs/sums.md, assumption A: a matrix
    product may round a record otherwise in a batch of another size).

    | case | what happens |
    |---|---|
    | an empty sample | noise alone is released, and charged; pass empty arrays |
    | NaN, an infinity or a masked number in a record | zeros, in each group that holds one |
    | a record above the clip norm | it is clipped |
    | not as many rows as were drawn | `SampleMisuse`; the sample can still be released |
    | a second release, or another run's sample | `SampleMisuse` |
    | noise_multiplier 0, infinite or NaN | refused by the mechanism: `ParameterError` |

    Args:
        plan: with leaves (see `Plan.for_leaves`).
        ledger: of the data set, open to append.
        source: of noise and samples; a fresh one from the operating system by default.
        label: what this run is, for the ledger; public. Left out, the name of the script or
            notebook.
        parameters: `CHOSEN_FROM_OUTPUTS` declares that what was released from these data had a part
            in choosing this plan: refused on a ledger that is held to a list, covered by a `Filter`
            or an `Odometer`.

    >>> from discreet.ledger.events import Everything
    >>> from discreet.mechanisms import Gaussian
    >>> from discreet.sampling import Sampler
    >>> sampler = Sampler(Everything(), records=1_000, steps=1)
    >>> plan = Plan(sampler=sampler, mechanism=Gaussian(1.0, 2.0), leaves={"x": 3})
    >>> run = Aggregator(plan, ledger=Ledger.in_memory())
    >>> for sample in run.samples():
    ...     released = run.release(sample, {"x": np.full((len(sample), 3), 0.1)})
    >>> released["x"].shape, bool(np.all(np.abs(released.mean("x") - 0.1) < 0.02))
    ((3,), True)
    """

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger,
        source: Source | None = None,
        label: str | None = None,
        parameters: Parameters = Parameters.FIXED_IN_ADVANCE,
    ) -> None:
        self._session = Session(
            plan,
            ledger=ledger,
            numerics=Numerics.EXACT,
            source=source,
            label=label,
            parameters=parameters,
        )
        _rehearse(self._session.bound)

        # Numbers of partial sums, so that a copy of them does not merge a second time.
        self._pieces = itertools.count()
        self._lock = threading.Lock()

    @property
    def plan(self) -> Plan:
        """The plan that is executed."""
        return self._session.plan

    @property
    def sampler(self) -> Sampler:
        """The sampler of the plan."""
        return self._session.sampler

    @property
    def state(self) -> State:
        """The thresholds of adaptive groups after the last release; public."""
        return self._session.state

    def samples(
        self,
        start: int = 0,
        state: State | None = None,
        *,
        until_budget: bool = False,
        lost: str = "",
    ) -> Iterator[Sample]:
        """Draw the plan's samples, each charged before it is drawn. Once for each run.

        Release each before taking the next.

        Args:
            start: first step, for a run that is resumed. Steps that ran before are in the ledger
                already.
            state: of the resumed run.
            until_budget: end with the last step that the ledger admits, instead of refusing a plan
                that does not fit.
            lost: a public reason for which steps that were charged and lost may be taken again,
                such as "power failure".

        Raises:
            BudgetExceeded: not all steps fit; nothing was charged.
        """
        return self._session.samples(start, state, until_budget=until_budget, lost=lost)

    def stop(self, reason: str) -> None:
        """Declare that the loop ends early for a public reason.

        Then what was taken counts, not all that was planned.

        Args:
            reason: one that owes nothing to what was released; it stands in the guarantee, in your
                words.
        """
        self._session.stop(reason)

    def partial(self, sample: Sample) -> PartialSums:
        """Make empty sums for records of this sample; several can be filled apart and merged."""
        session = self._session

        def slots(group: int, records: int, slots: int) -> NDArray[np.int64]:
            return below(session.slots_stream(sample, group), slots, records)

        # Only plans with slots draw them: a stream is given out once.
        in_slots = any(group.slots for group in session.bound.start)
        return PartialSums(
            session.bound,
            session.state,
            sample_id=session.sample_id(sample),
            piece=next(self._pieces),
            slots=slots if in_slots else None,
        )

    def release(self, sample: Sample, records: Records | PartialSums) -> Release:
        """Clip, sum, add noise, once for each sample.

        Args:
            sample: from `samples()` of this run.
            records: one row for each record of the sample, in any order; or sums of them from
                `partial`. Sensitive.

        Raises:
            SampleMisuse: another run's sample, a second release, sums of another sample, or not as
                many records as were drawn.
        """
        self._session.check_issued(sample)
        if isinstance(records, PartialSums):
            sums = records
        else:
            sums = self.partial(sample)
            sums.add(records)

        # One release at a time: the next state follows from what this one releases.
        with self._lock:
            return self._released(sample, sums)

    def _released(self, sample: Sample, sums: PartialSums) -> Release:
        session = self._session
        groups = session.groups()
        terms = session.bound, session.state, session.sample_id(sample), len(sample)
        sums.check_complete(*terms)
        totals = [_copied(sums, group) for group in groups]

        # Again: what another thread added meanwhile may be in the copies.
        sums.check_complete(*terms)

        # Used up before its noise is drawn: if this fails half-way, nobody noises the same sums
        # a second time, of which the difference of two releases would tell more than was charged.
        session.spend(sample)
        noised = []

        for lane, group in enumerate(groups):
            total = self._noised(totals[lane], group, sample, lane)
            ends = np.cumsum([session.bound.dimensions[leaf] for leaf in group.leaves])
            parts = np.split(total, ends[:-1])
            noised.append((group, dict(zip(group.leaves, parts, strict=True))))

        # The next state is computed from noised sums alone, so adapting costs nothing more.
        release = Release.of(sample, noised, self.plan.expected_batch_size)
        session.update(release.sums)
        return release

    def _noised(
        self, integers: NDArray[np.float64], group: Group, sample: Sample, lane: int
    ) -> NDArray[np.float64]:
        """The noised sum of a group, in its scaled unit; in the place of its integers."""
        if not group.private:
            return integers

        # Integers and noise are added on the grid, exactly; only then come units.
        grid = grid_of(group)
        stream = self._session.noise_stream(sample, lane)
        GaussianNoise(stream, scale=grid.scale(group.noise_std), size=integers.size).add_to(
            integers
        )
        integers *= grid.spacing
        return integers


def _copied(sums: PartialSums, group: Group) -> NDArray[np.float64]:
    """A copy of the sum of a group: in grid units, or plain where it is not private."""
    if group.private:
        return sums.integers(group)

    return np.concatenate([sums.unprotected(leaf) for leaf in group.leaves])


def _rehearse(bound: Bound) -> None:
    """Add up no records: whatever is out of range is refused here, before anything is charged."""
    PartialSums(
        bound, bound.initial_state, sample_id=("", 0, 0), slots=lambda *_: np.empty(0, np.int64)
    ).add([])

    # Noise that the grid cannot hold.
    for group in bound.start:
        if group.private:
            grid_of(group).scale(group.noise_std)


def aggregate(
    records: Records,
    plan: Plan,
    *,
    ledger: Ledger,
    source: Source | None = None,
    label: str | None = None,
) -> Release:
    """Make one release from a whole data set: for plans of one step.

    Edge cases are those of `Aggregator`. Another number of rows than the plan's records is a
    `ParameterError`, before anything is charged.

    Args:
        records: one row for each record of the data set; the sample is drawn from them. Sensitive.
        plan: of one step and one batch.
        ledger: of the data set, open to append.
        source: of noise and samples; a fresh one from the operating system by default.
        label: what this run is, for the ledger; public. Left out, the name of the script or
            notebook.
    """
    run = Aggregator(plan, ledger=ledger, source=source, label=label)
    sampler = run.sampler
    if sampler.batches != 1 or sampler.owners is not None:
        raise ParameterError(
            owner="aggregate",
            name="plan",
            expected="of one step and one batch, over records that are rows",
            got=f"{sampler.batches} batches",
        )

    # Before anything is charged: the sample is drawn by numbers of rows.
    columns = records.values() if isinstance(records, Mapping) else [records]
    if {len(rows) for rows in columns} != {sampler.records}:
        raise ParameterError(
            owner="aggregate",
            name="records",
            expected=f"one row for each of the {sampler.records} records that the plan names",
            got="another number of rows",
        )

    # Taking the only sample charges its step.
    (sample,) = run.samples()
    if isinstance(records, Mapping):
        drawn = {leaf: bare(rows)[sample.indices] for leaf, rows in records.items()}
        return run.release(sample, drawn)

    return run.release(sample, [records[index] for index in sample.indices])
