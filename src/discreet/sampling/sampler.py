"""The sampler: a sampling policy of the ledger, on so many records, for so many steps."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, field

from discreet import _validate as check
from discreet._process import Misuse, SingleUse
from discreet.errors import ParameterError, RandomnessMisuse, SampleMisuse
from discreet.ledger.events import SAMPLINGS, Sampling
from discreet.randomness.source import Purpose, Source, Stream
from discreet.sampling._own import OwnDraw, own_positions
from discreet.sampling._policies import Positions, drawn_positions
from discreet.sampling.owners import Owners
from discreet.sampling.sample import Sample
from discreet.units import Randomness, Unit

__all__ = ["Draw", "Sampler"]

_OWNER = "Sampler"
# Writes the normalised fields of a frozen value during its construction.
_set = object.__setattr__


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws the samples of a run. The policy is the ledger's own event, so what is drawn is what is
    charged.

    A step is a step of the ledger: one draw. Where the policy draws a whole epoch at once
    (`Shuffled`, `BallsInBins`), a step has `batches_per_step` batches; every other policy has one.
    The number of steps is fixed, and every step yields its batches, also empty ones.

    Guarantee: given ideal random words, samples of different steps are independent and each has
    exactly the law that its event states (docs/proofs/sampling.md).

    ==================================  ============================================
    case                                what happens
    ==================================  ============================================
    nobody is drawn                     a sample of size 0, charged and released
    probability 1, size = records       every record, in every step
    more batches than records           some batches are empty, and are yielded
    `start` = `steps`                   no sample: the run was over
    the process forks, an error breaks  no further sample; a resumed run goes on
    the draw off                        with `start` and a source of its own
    a second use, a copy of a sample    `SampleMisuse`
    several ranks without one secret    `RandomnessMisuse`, before anything is drawn
    ==================================  ============================================

    Args:
        policy: how samples are drawn, one of the ledger's sampling policies.
        records: number of records; positions run from 0 to records-1. With owners: the number of
            units.
        steps: how many steps, fixed in advance.
        owners: which rows each unit owns, if units own several; the draw is then over units.
            Sensitive.
        rows_per_unit: with owners: a unit with more rows gives a random subset of this many, anew
            in each draw. None: all rows.
        unsafe_drawn_by: your own code, which draws in the place of the library. Every batch is
            checked against what the policy allows (size, range, no repeats, whole epochs), but its
            law is your word alone: a plan with it is marked `unsafe_own_draw`. To have a guarantee,
            add the policy to the library (docs/extending.md).

    >>> from discreet.ledger.events import Poisson
    >>> sampler = Sampler(Poisson(0.01), records=60_000, steps=100)
    >>> sampler.expected_batch_size, sampler.batches
    (600.0, 100)
    >>> for sample in sampler.draw(Source.system()):
    ...     sample.spend()
    """

    policy: Sampling
    _: KW_ONLY
    records: int
    steps: int
    owners: Owners | None = None
    rows_per_unit: int | None = None
    unsafe_drawn_by: OwnDraw | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        check.member(_OWNER, "policy", self.policy, SAMPLINGS)
        _set(self, "records", check.whole(_OWNER, "records", self.records, least=1))
        _set(self, "steps", check.whole(_OWNER, "steps", self.steps, least=1))

        # A policy that states the number is charged by it: another one would be drawn otherwise
        # than charged.
        stated = self.policy.stated_records
        if stated is not None and stated != self.records:
            raise _refused("records", f"the policy's {stated}", str(self.records))

        self._check_owners()

        draw: object = self.unsafe_drawn_by
        if draw is not None and not callable(draw):
            expected = "a function of the number of records and a stream"
            raise _refused("unsafe_drawn_by", expected, type(draw).__name__)

    def _check_owners(self) -> None:
        """Units are the records, and only units have rows to choose from."""
        if self.owners is not None:
            units = check.instance(_OWNER, "owners", self.owners, Owners).units
            if units != self.records:
                expected = f"the number of units that own rows, {units}: units are the records"
                raise _refused("records", expected, str(self.records))

        if self.rows_per_unit is None:
            return

        # Who passes it believes that rows are joined by owner, which nobody told us.
        if self.owners is None:
            expected = "left out where every record is one row"
            raise _refused("rows_per_unit", expected, repr(self.rows_per_unit))

        rows = check.whole(_OWNER, "rows_per_unit", self.rows_per_unit, least=1)
        _set(self, "rows_per_unit", rows)

    @property
    def event(self) -> Sampling:
        """What the ledger is told: the policy itself."""
        return self.policy

    @property
    def unit(self) -> Unit:
        """What one record of a sample is, so that a plan for another unit can be refused."""
        return Unit.EXAMPLE if self.owners is None else self.owners.unit

    @property
    def expected_batch_size(self) -> float:
        """Public divisor of sums, in records per batch; never the realised size, and before any
        truncation.
        """
        return self.policy.expected_batch_size(self.records)

    @property
    def batches_per_step(self) -> int:
        """Number of batches in one step of the ledger."""
        return self.policy.batches_per_step

    @property
    def batches(self) -> int:
        """Number of batches in all steps together."""
        return self.steps * self.batches_per_step

    def draw(self, source: Source, *, start: int = 0, rank: int = 0, ranks: int = 1) -> Draw:
        """The samples of all steps from `start` on, one after the other, each drawn when it is
        asked for.

        Args:
            source: of a run that is resumed: a new one, so that no randomness repeats.
            start: first step, in 0 ... steps.
            rank: which part of each sample to yield: records from records*rank//ranks to
                records*(rank+1)//ranks.
            ranks: number of parts. All ranks hold the same secret, see `Source.shared`, and have
                equally many batches; their parts together are the sample that one rank alone would
                draw.

        Raises:
            RandomnessMisuse: several ranks with sources of their own, which would draw different
                samples.
        """
        owner = "Sampler.draw"
        check.instance(owner, "source", source, Source)
        start = check.whole(owner, "start", start, least=0)
        ranks = check.whole(owner, "ranks", ranks, least=1)
        rank = check.whole(owner, "rank", rank, least=0)

        # At its end a run is over, and resuming it draws nothing.
        if start > self.steps:
            raise ParameterError(
                owner=owner, name="start", expected=f"at most steps={self.steps}", got=str(start)
            )

        if rank >= ranks:
            raise ParameterError(
                owner=owner, name="rank", expected=f"below ranks={ranks}", got=str(rank)
            )

        # Parts of different samples do not join to one: their law would be nobody's (P22).
        if ranks > 1 and not _in_all_ranks(source):
            raise RandomnessMisuse(
                expected="one secret in all ranks",
                got="a source of this rank alone: ranks would draw parts of different samples",
                do="Use Source.shared(secret, context=...) with the same secret in every rank.",
            )

        # Public, and the same in every step: who is where does not depend on the draw.
        part = range(self.records * rank // ranks, self.records * (rank + 1) // ranks)
        return Draw(self, source, start, part)


_COPIED = Misuse(
    SampleMisuse,
    expected="one draw for one run",
    do="A copy would give out the same samples again: draw in one place.",
)
_FORKED = Misuse(
    SampleMisuse,
    expected="the process that began the draw",
    got="a fork of it, which would draw the same samples again",
    do="Draw in one process and hand the arrays of positions to workers.",
)


class Draw(SingleUse, copied=_COPIED, forked=_FORKED):
    """The samples of one run, in order. Got from `Sampler.draw`; a sample knows the draw that
    issued it.
    """

    __slots__ = ("_left", "_lock", "_part", "_samples", "_source", "sampler")

    def __init__(self, sampler: Sampler, source: Source, start: int, part: range) -> None:
        super().__init__()
        self.sampler = sampler
        self._source = source
        self._part = part

        # A thread may draw ahead while another trains.
        self._lock = threading.Lock()
        self._samples = self._issue(start)
        self._left = (sampler.steps - start) * sampler.batches_per_step

    def _issue(self, start: int) -> Iterator[Sample]:
        sampler = self.sampler
        for step in range(start, sampler.steps):
            # A stream for each step, by its number: a run that goes on later reads none of those
            # that were read.
            stream = self._source.stream(Purpose.SAMPLE, step=step)
            for batch, units in enumerate(self._positions(stream)):
                grouped = None
                if sampler.owners is not None:
                    # A unit is in one batch of a step, so no row's bits are read twice.
                    rows = stream.child("rows")
                    grouped = sampler.owners.grouped(units, sampler.rows_per_unit, rows)

                yield Sample(
                    issuer=self,
                    event=sampler.policy,
                    place=(step, batch),
                    units=units,
                    grouped=grouped,
                )

    def _positions(self, stream: Stream) -> Iterator[Positions]:
        """The batches of one step, drawn by the library or by the user's own code."""
        sampler = self.sampler
        if sampler.unsafe_drawn_by is None:
            return drawn_positions(sampler.policy, sampler.records, stream, self._part)

        # With bits of its own, so that a user's code cannot foresee who gives which rows.
        return own_positions(
            sampler.unsafe_drawn_by,
            sampler.policy,
            sampler.records,
            stream.child("own"),
            self._part,
        )

    def __iter__(self) -> Draw:
        return self

    def __next__(self) -> Sample:
        self._refuse_fork()
        with self._lock:
            sample = next(self._samples, None)

            # A generator that raised is over, and looks as if it had come to its end: the count
            # tells the two apart.
            if sample is None and self._left:
                raise SampleMisuse(
                    expected="a draw that goes on to its last step",
                    got="one that was broken off by an error, so that its other samples are lost",
                    do="Go on with the same source: sampler.draw(source, start=...).",
                )

            if sample is None:
                raise StopIteration

            self._left -= 1
            return sample


def _refused(name: str, expected: str, got: str) -> ParameterError:
    return ParameterError(owner=_OWNER, name=name, expected=expected, got=got)


def _in_all_ranks(source: Source) -> bool:
    """Whether other ranks can hold the same key."""
    return source.shared_by_ranks or source.randomness is Randomness.UNSAFE_TEST_KEY
