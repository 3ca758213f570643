"""What every engine shares: one plan executed once on one ledger, with samples that are charged
before they are drawn.

    plan -> ledger (charged, durable) -> sample -> [the engine: clipped sums] -> noise of its own
    stream -> spent -> next state

A session knows nothing of arrays or tensors: how clipped sums are computed is the business of the
    engine that holds it.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Generator, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.aggregation.sums import Place
from discreet.errors import BudgetExceeded, LedgerMisuse, ParameterError, SampleMisuse
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

_OWNER = "a run"  # in errors: users know the engine, not the session that it holds


class Session:
    """One run of a plan: its ledger, its source, its samples and its state. One pass, then it is
    over.

    Guarantee: every sample that `samples` yields was charged before it was drawn; no two samples,
    groups or purposes share random bits; the state is a function of released values. That the sums
    which are noised have the sensitivity of the plan, and that the numerics are those executed, is
    the engine's to ensure.

    An engine, for each sample: `check_issued`, clipped sums for `groups()`, then, as one, `spend`,
    noise from `noise_stream`, `update`. It holds a lock of its own where several threads may
    release.

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
    >>> plan = Plan(sampler=Sampler(Poisson(0.5), records=9, steps=2), mechanism=Gaussian(1.0, 2.0), leaves={"x": 3})
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
            expected = "a plan with a number of records, from which samples are drawn"
            raise ParameterError(
                owner=_OWNER, name="plan", expected=expected, got="a schedule", do="Give `records`."
            )
        self._bound = plan.bound
        self._sampler = plan.sampler
        self._ledger = check.instance(_OWNER, "ledger", ledger, Ledger)
        terms = ledger.terms
        if not plan.private and terms is not None and terms.epsilon is not None:
            raise BudgetExceeded(
                expected="a private plan on a ledger with a budget",
                got=f"groups without noise: {', '.join(plan.open_groups())}",
                do="No budget covers them. Run a baseline on another ledger, without a budget.",
            )
        self._source = (
            Source.system() if source is None else check.instance(_OWNER, "source", source, Source)
        )
        self._numerics = numerics
        self._label = (
            script_name() if label is None else check.label(_OWNER, "label", label, empty=True)
        )
        self._parameters = check.instance(_OWNER, "parameters", parameters, Parameters)
        if parameters is Parameters.CHOSEN_FROM_OUTPUTS and (
            terms is None or terms.rule is Rule.LIST
        ):
            raise LedgerMisuse(
                expected="a filter or an odometer, for a run that is chosen from outputs",
                got="a ledger for what its first run plans"
                if terms is None
                else "a ledger that is held to a list",
                do=(
                    "Open it with budget=dp.Filter(epsilon=..., delta=...) or "
                    "dp.Odometer(delta=...) before its first run."
                ),
            )
        self._state = self._bound.initial_state
        self._name = secrets.token_hex(16)
        self._draw: object = None
        self._run: Run | None = None
        self._planned = 0
        self._lock = threading.Lock()
        self._info()  # refuses what could not be accounted for, before anything is charged

    # --- what is executed ---

    @property
    def plan(self) -> Plan:
        """What is executed."""
        return self._plan

    @property
    def ledger(self) -> Ledger:
        """What is charged."""
        return self._ledger

    @property
    def sampler(self) -> Sampler:
        """Of the plan."""
        return self._sampler

    @property
    def bound(self) -> Bound:
        """The plan's mechanism, bound to its leaves."""
        return self._bound

    @property
    def state(self) -> State:
        """Thresholds of adaptive groups after the last release; public."""
        return self._state

    @property
    def planned(self) -> int:
        """Steps that the run committed to take, once it began; 0 where the ledger admits none."""
        return self._planned

    def groups(self) -> tuple[Group, ...]:
        """The groups of the present state. The number of a group is its lane."""
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
        """The plan's samples, each charged before it is drawn; release each before taking the next.
        Once for each run.

        The run commits to all of its steps before the first; under a list all of them count,
        whenever the loop ends.

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
        self._refuse_second_pass()  # before the ledger is asked, which would refuse it in other words
        before = self._state if state is None else self._checked(state)
        snapshot = self._ledger.snapshot()
        if until_budget and snapshot.terms is None:
            expected, got = "False on a ledger that nothing limits yet", "True"
            do = "Open the ledger with budget=Budget(...)."
            raise ParameterError(
                owner=_OWNER, name="until_budget", expected=expected, got=got, do=do
            )
        continues = self._interrupted(snapshot) if start or lost else None
        steps = self.plan.steps - start
        if self.plan.queries() and steps > 0:
            if until_budget and continues is None and self._fitting(steps, None) < steps:
                continues = self._interrupted(snapshot)  # only where there is no room beside it
            steps = self._admitted(steps, continues, until_budget=until_budget, lost=lost)
        with self._lock:
            self._refuse_second_pass()
            draw = self.sampler.draw(self._source, start=start)
            self._draw, self._state = draw, before
        self._planned = max(0, steps)
        if steps <= 0 and self.plan.steps > start:
            return self._charged(draw, None, 0)  # the budget admits not one
        return self._charged(draw, self._begin(steps, continues), steps)

    def _refuse_second_pass(self) -> None:
        if self._draw is not None:
            raise SampleMisuse(
                expected="one pass over the samples of a run",
                got="a second one",
                do="One loop over the samples covers all steps and all epochs of the plan. For further steps make another "
                "plan and another run: they are further releases, and are charged.",
            )

    def stop(self, reason: str) -> None:
        """Declare the public reason for which the run takes fewer steps than planned; see
        `Run.end`.

        Raises:
            SampleMisuse: the run did not begin.
        """
        if self._run is None:
            expected, got = "a run that began", "one that did not"
            raise SampleMisuse(
                expected=expected, got=got, do="Call it when the loop over samples has ended early."
            )
        self._run.end(check.label(_OWNER, "reason", reason))

    def close(self) -> None:
        """End the run: no more samples are taken; also of one whose samples were never asked for."""
        if self._run is not None:
            self._run.end()

    def _begin(self, steps: int, continues: int | None) -> Run:
        planned = [(self.plan.step, steps)] if self.plan.queries() and steps > 0 else []
        run = self._ledger.begin(
            self._info(), planned, continues=continues, plan=self.plan.as_row()
        )
        self._run = run
        for mark in self.plan.marks():
            run.mark(mark)
        return run

    def _interrupted(self, snapshot: Snapshot) -> int | None:
        """The latest run with this plan's step that nobody continued: the one to take the place of."""
        if not self.plan.queries():
            return None
        continued = {run.continues for run in snapshot.runs}
        candidates = [
            run.number
            for run in snapshot.runs
            if run.number not in continued
            and not run.reason
            and self.plan.step in dict(run.planned)
        ]
        return candidates[-1] if candidates else None

    def _admitted(self, steps: int, continues: int | None, *, until_budget: bool, lost: str) -> int:
        """How many of these steps the run may plan.

        Raises:
            BudgetExceeded: fewer than all, where all are wanted.
        """
        fitting = self._fitting(steps, continues)
        if fitting == steps or until_budget:
            return fitting
        if lost and continues is not None and self._ledger.snapshot().rule is Rule.LIST:
            self._ledger.extend_list([(self.plan.step, steps - fitting)], reason=lost)
            return steps
        raise BudgetExceeded(
            expected=f"a plan whose {steps} steps fit what the ledger is held to",
            got=f"one of which {fitting} fit; {self._others()}",
            do="Make a plan with fewer steps or more noise, or train until_budget=True. For further runs that are chosen by "
            "looking at earlier ones, hold a ledger to a Filter or an Odometer before its first run. Nothing was charged.",
        )

    def _fitting(self, steps: int, continues: int | None) -> int:
        return self._ledger.fitting(self._info(), self.plan.step, steps, continues=continues)

    def _others(self) -> str:
        """What else the ledger holds, for whoever is refused."""
        snapshot = self._ledger.snapshot()
        going = [run.number for run in snapshot.runs if not run.over]
        held = f"the ledger has {snapshot.steps} charged steps of {len(snapshot.runs)} run(s)"
        still = (
            (
                f"; run {going[-1]} is not over; if it failed or was killed, until_budget=True "
                "takes its place"
            )
            if going
            else ""
        )
        return held + still

    def _info(self) -> RunInfo:
        return self.plan.run_info(
            self._label,
            randomness=self._source.randomness,
            parameters=self._parameters,
            numerics=self._numerics,
        )

    def _charged(self, draw: Iterator[Sample], run: Run | None, steps: int) -> Generator[Sample]:
        if run is None:
            return
        charged = (
            run.steps(self.plan.step, steps, then_end=True)
            if self.plan.queries() and steps > 0
            else range(steps)
        )
        try:
            for _ in charged:
                for _ in range(self.sampler.batches_per_step):
                    yield next(draw)
        finally:
            if isinstance(charged, Generator):
                charged.close()  # settles what is reserved, and ends the run
            run.end()  # of a plan without noise, and of one that was never asked for a sample

    def _checked(self, state: State) -> State:
        """A copy that nobody can change."""
        self._bound.groups(state)  # refuses what does not fit
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
        """Of the sample among all of the run; public."""
        self.check_issued(sample)
        return sample.step * self.sampler.batches_per_step + sample.batch

    def place(self, sample: Sample) -> Place:
        """What no other sample of any run has; public."""
        self.check_issued(sample)
        return self._name, sample.step, sample.batch

    # --- random bits of a sample, each once ---

    def noise_stream(self, sample: Sample, lane: int) -> Stream:
        """For the noise of one group on one sample.

        Args:
            sample: of this run.
            lane: number of the group in `groups()`.

        Raises:
            RandomnessMisuse: it was given out before, or that of a later sample was.
        """
        return self._source.stream(Purpose.NOISE, step=self.number(sample), lane=lane)

    def slots_stream(self, sample: Sample, lane: int) -> Stream:
        """For the slots of the records of one group with slots, on one sample. Once, as
        `noise_stream`.
        """
        return self._source.stream(Purpose.SLOTS, step=self.number(sample), lane=lane)

    def order(self, sample: Sample) -> NDArray[np.int64]:
        """A uniformly random order of the sample's records. Sensitive; once, as `noise_stream`: a
        second is not independent.

        Record order[i] of the sample takes place i. An engine that cuts the places into
        microbatches by a rule that does not depend on the sample has at most two microbatches that
        differ between neighbours (docs/proofs/sums.md, section 3).
        """
        return permutation(
            self._source.stream(Purpose.ORDER, step=self.number(sample)), len(sample)
        )

    def places(self, sample: Sample, size: int, attempt: int = 0) -> tuple[NDArray[np.int64], int]:
        """Which record of the order stands where, in passes of `size` places, -1 where nobody does;
        and a seed. Once.

        Places are sensitive. The seed is secret: for what a model itself draws at random, such as
        dropout, so that it is independent of the data.

        All passes but the last are full; in the last, places are taken at random. So of two
        neighbouring samples with fewer than `size` records the smaller one leaves a place empty,
        and nobody else moves (docs/proofs/sums.md, section 3).

        Args:
            sample: of this run.
            size: places of one pass [public].
            attempt: number of this attempt at the sample; an earlier one failed before anything was
                released.
        """
        count = check.whole(_OWNER, "size", size, least=1)
        full = len(sample) // count * count
        found = np.full(-(-len(sample) // count) * count, -1, np.int64)
        found[:full] = np.arange(full)
        stream = self._source.stream(Purpose.ORDER, step=self.number(sample), lane=1 + attempt)
        free = permutation(stream, count)
        found[full + free[: len(sample) - full]] = np.arange(full, len(sample))
        return found, int(
            stream.words(1, count)[0]
        )  # the first word that the permutation did not read

    def entries_seed(self, sample: Sample) -> int:
        """A secret seed of 256 bits for what is drawn at random while the sample's entries are
        fetched. Once.
        """
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
        """Go on to the next state.

        Args:
            released: the noised sum of each leaf, in its own unit. Other than released values must
                never come here.
        """
        self._state = self._bound.update(
            self._state, released, expected_batch_size=self.plan.expected_batch_size
        )
