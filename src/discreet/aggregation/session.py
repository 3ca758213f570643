"""What every engine shares: one plan executed once on one ledger.

    plan -> ledger (charged, durable) -> sample -> [the engine: clipped sums]
         -> spent -> noise of its own stream -> next state

Samples are charged before they are drawn. A session knows nothing of arrays or tensors: how clipped
sums are computed is the business of the engine that holds it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation.ledgers import check_terms
from discreet.aggregation.sums import SampleId
from discreet.errors import BudgetExceeded, ParameterError, SampleMisuse
from discreet.ledger import Ledger, Rule, Run, RunInfo, Snapshot
from discreet.ledger._provenance import script_name
from discreet.mechanisms import Array, Bound, Group, State
from discreet.mechanisms._frozen import Frozen
from discreet.plan import Plan
from discreet.randomness import Purpose, Source, Stream
from discreet.randomness.draws import permutation
from discreet.sampling import Sample, Sampler
from discreet.units import Numerics, Parameters

__all__ = ["Session"]

# In errors: users know the engine, not the session that it holds.
_OWNER = "a run"


class Session:
    """One run of a plan: its ledger, its source, its samples and its state.

    Guarantee: every sample that `samples` yields was charged before it was drawn; no two samples,
    groups or purposes share random bits; the state is a function of released values. That the sums
    which are noised have the sensitivity of the plan, and that the numerics are those executed, is
    the engine's to ensure.

    An engine, for each sample: `check_issued`, clipped sums for `groups()`, then, as one, `spend`,
    noise from `noise_stream`, `update`. It holds a lock of its own where several threads may
    release.

    | case | what happens |
    |---|---|
    | a second pass over `samples` | `SampleMisuse` |
    | a step that does not fit a budget | `BudgetExceeded`; nothing is charged |
    | the same, with `until_budget` | as many steps as fit, possibly none |
    | a plan with groups without noise, on a ledger with a budget | `BudgetExceeded` |
    | a sample of another run, or one that was spent | `SampleMisuse` |

    Args:
        plan: with leaves (see `Plan.for_leaves`).
        ledger: of the data set, open to append.
        numerics: level that the engine executes; at least the plan's.
        source: of noise and samples; a fresh one from the operating system by default.
        label: what this run is, for the ledger; public. Left out, the name of the script or
            notebook.
        parameters: `CHOSEN_FROM_OUTPUTS` declares that what was released from these data had a part
            in choosing this plan: refused on a ledger that is held to a list, covered by a `Filter`
            or an `Odometer`.

    >>> from discreet.ledger.events import Poisson
    >>> from discreet.mechanisms import Gaussian
    >>> sampler = Sampler(Poisson(0.5), records=9, steps=2)
    >>> plan = Plan(sampler=sampler, mechanism=Gaussian(1.0, 2.0), leaves={"x": 3})
    >>> session = Session(plan, ledger=Ledger.in_memory(), numerics=Numerics.EXACT)
    >>> for sample in session.samples():
    ...     session.spend(sample)
    >>> [charge.count for charge in session.ledger.charges()]
    [2]
    """

    __slots__ = (
        "_bound",
        "_draw",
        "_label",
        "_ledger",
        "_lock",
        "_name",
        "_numerics",
        "_parameters",
        "_plan",
        "_planned",
        "_run",
        "_sampler",
        "_source",
        "_state",
    )

    def __init__(
        self,
        plan: Plan,
        *,
        ledger: Ledger,
        numerics: Numerics,
        source: Source | None = None,
        label: str | None = None,
        parameters: Parameters = Parameters.FIXED_IN_ADVANCE,
    ) -> None:
        self._plan = check.instance(_OWNER, "plan", plan, Plan)
        if not isinstance(plan.sampler, Sampler):
            raise ParameterError(
                owner=_OWNER,
                name="plan",
                expected="a plan with a number of records, from which samples are drawn",
                got="a schedule",
                do="Give `records`.",
            )

        self._bound = plan.bound
        self._sampler = plan.sampler
        self._ledger = check.instance(_OWNER, "ledger", ledger, Ledger)
        self._source = (
            Source.system() if source is None else check.instance(_OWNER, "source", source, Source)
        )
        self._numerics = numerics
        self._label = (
            script_name() if label is None else check.label(_OWNER, "label", label, empty=True)
        )
        self._parameters = check.instance(_OWNER, "parameters", parameters, Parameters)
        check_terms(plan, ledger, parameters)
        self._state = self._bound.initial_state

        # Public, and like no other run's: it tells the samples of runs apart.
        self._name = secrets.token_hex(16)
        self._draw: object = None
        self._run: Run | None = None
        self._planned = 0
        self._lock = threading.Lock()

        # Refuses what could not be accounted for, before anything is charged.
        self._info()

    # --- what is executed ---

    @property
    def plan(self) -> Plan:
        """The plan that is executed."""
        return self._plan

    @property
    def ledger(self) -> Ledger:
        """The ledger that is charged."""
        return self._ledger

    @property
    def sampler(self) -> Sampler:
        """The sampler of the plan."""
        return self._sampler

    @property
    def bound(self) -> Bound:
        """The plan's mechanism, bound to its leaves."""
        return self._bound

    @property
    def state(self) -> State:
        """The thresholds of adaptive groups after the last release; public."""
        return self._state

    @property
    def planned(self) -> int:
        """Steps that the run committed to take, once it began; 0 where the ledger admits none."""
        return self._planned

    def groups(self) -> tuple[Group, ...]:
        """Give the groups of the present state. The number of a group is its lane."""
        return self._bound.groups(self._state)

    # --- samples ---

    def samples(
        self,
        start: int = 0,
        state: State | None = None,
        *,
        until_budget: bool = False,
        lost: str = "",
    ) -> Generator[Sample]:
        """Draw the plan's samples, each charged before it is drawn. Once for each run.

        Release each before taking the next. The run commits to all of its steps before the first;
        under a list all of them count, whenever the loop ends.

        Args:
            start: first step, for a run that is resumed: it takes the place of the run before,
                whose steps are charged.
            state: of the resumed run.
            until_budget: end with the last step that the ledger admits, instead of refusing a plan
                that does not fit.
            lost: a public reason, such as "power failure", for which a list grows by steps that
                were charged and lost.

        Raises:
            BudgetExceeded: not all steps fit; nothing was charged.
            ParameterError: until_budget where nothing limits the ledger.
        """
        start = check.whole(_OWNER, "start", start, least=0)
        lost = check.label(_OWNER, "lost", lost, empty=True)

        # Before the ledger is asked, which would refuse a second pass in other words.
        self._refuse_second_pass()
        before = self._state if state is None else self._checked(state)
        if until_budget and self._ledger.terms is None:
            raise ParameterError(
                owner=_OWNER,
                name="until_budget",
                expected="False on a ledger that nothing limits yet",
                got="True",
                do="Open the ledger with budget=Budget(...).",
            )

        # Asked before anything is written: a run that does not fit is refused, and not begun.
        steps, continues = self._admitted(
            self.plan.steps - start,
            until_budget=until_budget,
            lost=lost,
            resumed=bool(start or lost),
        )

        # Once more, under the lock: of two threads that came so far, one draws.
        with self._lock:
            self._refuse_second_pass()
            draw = self.sampler.draw(self._source, start=start)
            self._draw, self._state = draw, before

        self._planned = max(0, steps)

        # Where the budget admits not one step, no run begins.
        if steps <= 0 and self.plan.steps > start:
            return self._charged(draw, None, 0)

        return self._charged(draw, self._begin(steps, continues), steps)

    def _refuse_second_pass(self) -> None:
        if self._draw is not None:
            raise SampleMisuse(
                expected="one pass over the samples of a run",
                got="a second one",
                do=(
                    "One loop over the samples covers all steps and all epochs of the plan. For "
                    "further steps make another plan and another run: they are further releases, "
                    "and are charged."
                ),
            )

    def stop(self, reason: str) -> None:
        """Declare the public reason for which the run takes fewer steps than planned.

        What it means for the ledger is said in `Run.end`.

        Raises:
            SampleMisuse: the run did not begin.
        """
        if self._run is None:
            raise SampleMisuse(
                expected="a run that began",
                got="one that did not",
                do="Call it when the loop over samples has ended early.",
            )

        self._run.end(check.label(_OWNER, "reason", reason))

    def close(self) -> None:
        """End the run: no more samples are taken; also where none was ever asked for."""
        if self._run is not None:
            self._run.end()

    def _begin(self, steps: int, continues: int | None) -> Run:
        planned = [(self.plan.step, steps)] if self.plan.queries() and steps > 0 else []
        run = self._ledger.begin(
            self._info(), planned, continues=continues, plan=self.plan.as_row()
        )
        self._run = run

        # What is unsafe about the plan is in the ledger before the first sample is drawn.
        for mark in self.plan.marks():
            run.mark(mark)

        return run

    def _interrupted(self, snapshot: Snapshot) -> int | None:
        """Find the run to take the place of: the latest with this plan's step, not continued."""
        if not self.plan.queries():
            return None

        continued = {run.continues for run in snapshot.runs}

        # A run with a public reason ended on purpose: nobody takes its place.
        open_runs = [run for run in snapshot.runs if run.number not in continued and not run.reason]
        numbers = [run.number for run in open_runs if self.plan.step in dict(run.planned)]
        return numbers[-1] if numbers else None

    def _admitted(
        self, steps: int, *, until_budget: bool, lost: str, resumed: bool
    ) -> tuple[int, int | None]:
        """Decide how many of these steps the run may plan, and the place of which run it takes.

        Raises:
            BudgetExceeded: fewer than all, where all are wanted.
        """
        snapshot = self._ledger.snapshot()
        continues = self._interrupted(snapshot) if resumed else None
        if not self.plan.queries() or steps <= 0:
            return steps, continues

        # An interrupted run is replaced only where there is no room beside it.
        fitting = self._fitting(steps, continues)
        if until_budget and continues is None and fitting < steps:
            continues = self._interrupted(snapshot)
            fitting = self._fitting(steps, continues)

        if fitting == steps or until_budget:
            return fitting, continues

        # A list grows only by what was lost for a public reason, and only for the same run.
        if lost and continues is not None and self._ledger.snapshot().rule is Rule.LIST:
            self._ledger.extend_list([(self.plan.step, steps - fitting)], reason=lost)
            return steps, continues

        raise BudgetExceeded(
            expected=f"a plan whose {steps} steps fit what the ledger is held to",
            got=f"one of which {fitting} fit; {self._present_runs()}",
            do=(
                "A ledger that is held to a list has room for the steps of its first plan, the "
                "same steps, and for no others: train until_budget=True to take those that are "
                "left. To try things out, use dp.Ledger.in_memory(). For further runs that are "
                "chosen by looking at earlier ones, hold a new ledger to a Filter or an Odometer "
                "before its first run. Nothing was charged."
            ),
        )

    def _fitting(self, steps: int, continues: int | None) -> int:
        return self._ledger.fitting(self._info(), self.plan.step, steps, continues=continues)

    def _present_runs(self) -> str:
        """Say what else the ledger holds, to the caller that is refused."""
        snapshot = self._ledger.snapshot()
        charged = f"the ledger has {snapshot.steps} charged steps of {len(snapshot.runs)} run(s)"
        going = [
            f"; run {run.number} is not over; if it failed or was killed, until_budget=True takes "
            "its place"
            for run in snapshot.runs
            if not run.over
        ]
        return charged + (going[-1] if going else "")

    def _info(self) -> RunInfo:
        return self.plan.run_info(
            self._label,
            randomness=self._source.randomness,
            parameters=self._parameters,
            numerics=self._numerics,
        )

    def _charged(self, draw: Iterator[Sample], run: Run | None, steps: int) -> Generator[Sample]:
        """Yield samples whose step is charged; end the run, however the loop ends."""
        if run is None:
            return

        private = self.plan.queries() and steps > 0
        charged = run.steps(self.plan.step, steps, then_end=True) if private else range(steps)

        try:
            for _ in charged:
                for _ in range(self.sampler.batches_per_step):
                    yield next(draw)
        finally:
            # Settles what is reserved, and ends the run.
            if isinstance(charged, Generator):
                charged.close()

            # The run of a plan without noise, and one that was never asked for a sample.
            run.end()

    def _checked(self, state: State) -> State:
        """Copy a state that fits the plan, so that nobody can change it."""
        # Refuses thresholds that do not fit.
        self._bound.groups(state)
        return Frozen(tuple((name, float(state[name])) for name in self._bound.initial_state))

    def check_issued(self, sample: Sample) -> None:
        """Refuse a sample that this run did not draw.

        Raises:
            SampleMisuse: another run's sample, or this is a fork.
        """
        check.instance(_OWNER, "sample", sample, Sample)
        if self._draw is None or not sample.issued_by(self._draw):
            raise SampleMisuse(
                expected="a sample from samples() of this run",
                got="a sample of another run, or one that was never charged",
                do="Iterate over run.samples() and release those samples.",
            )

    def number(self, sample: Sample) -> int:
        """Number the sample among all samples of the run; public."""
        self.check_issued(sample)
        return sample.step * self.sampler.batches_per_step + sample.batch

    def sample_id(self, sample: Sample) -> SampleId:
        """Tell the sample from all samples of all runs; public."""
        self.check_issued(sample)
        return self._name, sample.step, sample.batch

    # --- random bits of a sample, each once ---

    def noise_stream(self, sample: Sample, lane: int) -> Stream:
        """Give out the stream for the noise of one group on one sample.

        Args:
            sample: of this run.
            lane: number of the group in `groups()`.

        Raises:
            RandomnessMisuse: it was given out before, or that of a later sample was.
        """
        return self._source.stream(Purpose.NOISE, step=self.number(sample), lane=lane)

    def table_stream(self, number: int, lane: int) -> Stream:
        """Give out the stream for the noise of a table from the sample of this number on. Once.

        Raises:
            RandomnessMisuse: it was given out before, or that of a later sample was.
        """
        return self._source.stream(Purpose.TABLE, step=number, lane=lane)

    def slots_stream(self, sample: Sample, lane: int) -> Stream:
        """Give out the stream for the slots of one group's records. Once, as `noise_stream`."""
        return self._source.stream(Purpose.SLOTS, step=self.number(sample), lane=lane)

    def order(self, sample: Sample) -> NDArray[np.int64]:
        """Draw a uniformly random order of the sample's records. Sensitive.

        Once, as `noise_stream`: a second is not independent. Record order[i] of the sample takes
        place i. An engine that cuts the places into microbatches by a rule that does not depend on
        the sample has at most two microbatches that differ between neighbours (docs/proofs/sums.md,
        theorem 3).
        """
        return permutation(
            self._source.stream(Purpose.ORDER, step=self.number(sample)), len(sample)
        )

    def places(self, sample: Sample, size: int, attempt: int = 0) -> tuple[NDArray[np.int64], int]:
        """Draw which record of the order stands where, in passes of `size` places; and a seed.

        Once. -1 stands where there is no record. Places are sensitive. The seed is secret: for what
        a model itself draws at random, such as dropout, so that it is independent of the data.

        All passes but the last are full; in the last, places are taken at random. So of two
        neighbouring samples with fewer than `size` records the smaller one leaves a place empty,
        and nobody else moves (docs/proofs/sums.md, section 3).

        Args:
            sample: of this run.
            size: places of one pass [public].
            attempt: number of this attempt at the sample; an earlier one failed before anything was
                released.
        """
        # All passes but the last are full, with the records in the order that they have.
        count = check.whole(_OWNER, "size", size, least=1)
        full = len(sample) // count * count
        records = np.full(-(-len(sample) // count) * count, -1, np.int64)
        records[:full] = np.arange(full)

        # Lane 0 is the order itself; every attempt has a lane of its own, so that no bits come
        # twice.
        stream = self._source.stream(Purpose.ORDER, step=self.number(sample), lane=1 + attempt)
        if full < len(sample):
            free = permutation(stream, count)
            records[full + free[: len(sample) - full]] = np.arange(full, len(sample))

        # The seed is the first word that a permutation would not read.
        return records, int(stream.words(1, count)[0])

    def entries_seed(self, sample: Sample) -> int:
        """Draw a secret seed of 256 bits for what fetching the sample's entries draws. Once."""
        stream = self._source.stream(Purpose.ENTRIES, step=self.number(sample))
        return int.from_bytes(stream.words(4).tobytes(), "little")

    # --- release ---

    def spend(self, sample: Sample) -> None:
        """Use the sample up. Call it before its noise is added.

        Raises:
            SampleMisuse: another run's sample, or one that was used before.
        """
        self.check_issued(sample)
        sample.spend()

    def update(self, released: Mapping[str, Array]) -> None:
        """Go on to the next state, a function of what was released.

        Args:
            released: the noised sum of each leaf, in its own unit. Other than released values must
                never come here.
        """
        self._state = self._bound.update(
            self._state, released, expected_batch_size=self.plan.expected_batch_size
        )
