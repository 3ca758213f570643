"""What a ledger holds at one moment, or a plan would put there: the one thing that others read.

Accountants, budgets, reports and audits see a `Snapshot` and nothing else of a ledger, so that all
of them speak of the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from discreet.errors import BudgetExceeded
from discreet.ledger.events import Step
from discreet.ledger.storage.rows import Charge, Held, RunInfo
from discreet.ledger.terms import Planned, Rule, Terms
from discreet.units import Parameters

__all__ = ["RunRecord", "Snapshot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run of a ledger.

    Args:
        number: of the run in its ledger; 0 for one that is only proposed or planned.
        info: what it declared.
        planned: its commitment; empty in files of schema 1.
        charged: what it was charged, by kind of step.
        unsettled: of that, reserved and not known to have been taken.
        over: whether it takes no more steps: it ended, or another run took its place.
        reason: the public reason that was declared for ending early; empty if none was.
        freed: what the run had planned and not been charged when it declared that reason: it does
            not count.
        continues: number of the run whose place it took.
        plan: text of its plan; empty where there is none.
        software: versions of what executed it.
        began: date and time in UTC.
    """

    number: int = 0
    info: RunInfo
    planned: Planned = ()
    charged: Planned = ()
    unsettled: Planned = ()
    over: bool = False
    reason: str = ""
    freed: Planned = ()
    continues: int | None = None
    plan: str = ""
    software: tuple[tuple[str, str], ...] = ()
    began: str = ""

    def left(self) -> dict[Step, int]:
        """What it planned and was not charged, by kind of step; also if it is over."""
        # Counters drop what is not above 0: a run under a filter may be charged more than planned.
        return dict(Counter(dict(self.planned)) - Counter(dict(self.charged)))

    @property
    def steps(self) -> int:
        """Number of steps that the run was charged."""
        return sum(count for _, count in self.charged)

    @property
    def planned_steps(self) -> int:
        """Number of steps that the run committed to."""
        return sum(count for _, count in self.planned)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a ledger holds at one moment; of a plan, what it would hold if the plan were executed.

    Args:
        runs: in the order in which they began.
        marks: names of what voids the guarantee, once each.
        history: the terms that the ledger was held to, first to last.
        head: digest of the last row; empty for a plan.
        ledger: identity of the ledger, which its copies share; empty for a plan.
        schema: version of the file's vocabulary; None for a plan.
    """

    runs: tuple[RunRecord, ...]
    marks: tuple[str, ...] = ()
    history: tuple[Held, ...] = ()
    head: str = ""
    ledger: str = ""
    schema: int | None = None

    def snapshot(self) -> Snapshot:
        """Itself: what reads ledgers and plans reads a snapshot too."""
        return self

    # --- the terms ---

    @property
    def terms(self) -> Terms | None:
        """What the ledger is held to; None for a plan, for a file of schema 1, and before the first
        run.
        """
        return self.history[-1].terms if self.history else None

    @property
    def rule(self) -> Rule | None:
        """The rule of the terms."""
        return None if self.terms is None else self.terms.rule

    @property
    def planned(self) -> Planned:
        """What the terms plan, by kind of step; empty where there are no terms."""
        return () if self.terms is None else self.terms.planned

    @property
    def chosen_from_outputs(self) -> bool:
        """Whether a run declares that what was released had a part in choosing its steps."""
        return any(run.info.parameters is Parameters.CHOSEN_FROM_OUTPUTS for run in self.runs)

    # --- what was charged, and what counts ---

    @property
    def charges(self) -> tuple[Charge, ...]:
        """What was charged, one entry for each kind of step of each run.

        A step of which nothing was taken stays, with count 0.
        """
        return tuple(
            Charge(run.info, step, count, dict(run.unsettled).get(step, 0), run.number)
            for run in self.runs
            for step, count in run.charged
        )

    @property
    def steps(self) -> int:
        """Number of steps charged, by all runs."""
        return sum(run.steps for run in self.runs)

    @property
    def unsettled(self) -> int:
        """Number of charged steps that are reserved and not known to have been taken."""
        return sum(count for run in self.runs for _, count in run.unsettled)

    def charged(self) -> dict[Step, int]:
        """How often each kind of step was charged, by all runs together."""
        return _added(pair for run in self.runs for pair in run.charged)

    def counted(self) -> Planned:
        """What the claim counts, by kind of step.

        Of a list that was fixed in advance all counts, whether it was taken or not: when a run ends
        may depend on what it showed. What a run left for a public reason, which it declared, does
        not. Under a filter or an odometer, and in files without terms, it is what was charged.
        """
        charged = self.charged()
        if self.rule is not Rule.LIST:
            return tuple(charged.items())

        # By kind: the whole list, the list less what was freed, and what runs committed to.
        whole, listed, promised = _added(self.planned), self._listed(), self._promised()
        counts: dict[Step, int] = {}

        for step in {**whole, **charged}:
            # A reason frees what its own run left, not what another promised and left by looking.
            still_promised = min(whole.get(step, 0), promised.get(step, 0))
            counts[step] = max(charged.get(step, 0), listed.get(step, 0), still_promised)

        return tuple(counts.items())

    def committed(self) -> Planned:
        """What is charged or may be charged without asking again; what a budget must admit."""
        # What a run may take without asking is as good as taken: nobody would refuse it later.
        if self.rule is Rule.LIST:
            return self.counted()

        return tuple(self._taken_or_left().items())

    def _listed(self) -> dict[Step, int]:
        """The list, less what runs freed by naming a public reason."""
        listed = _added(self.planned)

        for run in self.runs:
            # As counted when the reason was declared; later charges do not change it.
            for step, count in run.freed:
                listed[step] = listed.get(step, 0) - count

        return listed

    def _promised(self) -> dict[Step, int]:
        """What runs committed to and did not free, or were charged if that is more.

        Of a run whose place another took, what its successor planned is the successor's promise.
        """
        # By the number of the run that was continued: what its successor planned in its place.
        taken_over = {
            run.continues: dict(run.planned) for run in self.runs if run.continues is not None
        }
        promises: list[tuple[Step, int]] = []

        for run in self.runs:
            planned, charged, freed = dict(run.planned), dict(run.charged), dict(run.freed)
            passed_on = taken_over.get(run.number, {})

            for step in {**planned, **charged}:
                done = charged.get(step, 0)
                elsewhere = freed.get(step, 0) + passed_on.get(step, 0)

                # A run may be charged more than it planned, so the difference can be negative.
                promises.append((step, done + max(0, planned.get(step, 0) - done - elsewhere)))

        return _added(promises)

    def _taken_or_left(self) -> dict[Step, int]:
        """What is charged, and what the runs that are not over may still be charged within their
        commitments.
        """
        # A run that is over takes no more steps; one that goes on need not ask for what it planned.
        outstanding = (pair for run in self.runs if not run.over for pair in run.left().items())
        return _added((*self.charged().items(), *outstanding))

    # --- what would be ---

    def proposing(self, run: RunRecord) -> Snapshot:
        """This snapshot with one run more; if that run continues another, the other is over."""
        # As when the row is read: a run that another continues takes no more steps.
        before = tuple(
            replace(record, over=True) if record.number == run.continues else record
            for record in self.runs
        )
        return replace(self, runs=(*before, run))

    def check_list(self) -> None:
        """Refuse what a list does not hold; nothing happens under another rule.

        Raises:
            BudgetExceeded: runs were charged, or may be charged, with more than the list has.
        """
        if self.rule is not Rule.LIST:
            return

        # What may still be charged counts too: two runs must not be promised the same steps.
        listed = self._listed()

        for step, count in self._taken_or_left().items():
            if count > listed.get(step, 0):
                raise self._not_listed(step, count - listed.get(step, 0))

    def _not_listed(self, step: Step, surplus: int) -> BudgetExceeded:
        listed = _added(self.planned)
        wanted = f"{surplus} of another kind"

        # Of a step that is listed it helps to know how much of it is gone.
        if step in listed:
            wanted = (
                f"{surplus} more; {self.charged().get(step, 0)} of {listed[step]} are charged "
                "already"
            )

        return BudgetExceeded(
            expected=(
                "steps of the list that was fixed before the first release: "
                f"{sum(listed.values())} in all"
            ),
            got=wanted,
            do=(
                "A further run is chosen by looking at what the earlier ones showed. To allow "
                "that, hold the ledger to a Filter or an Odometer before its first run: "
                "Ledger.open(path, budget=dp.Odometer(delta=...)). To take what is left of the "
                "list, train until_budget=True. Nothing was charged."
            ),
        )


def _added(pairs: Iterable[tuple[Step, int]]) -> dict[Step, int]:
    # In the order of the first mention, which rows and reports keep.
    totals: dict[Step, int] = {}

    for step, count in pairs:
        totals[step] = totals.get(step, 0) + count

    return totals
