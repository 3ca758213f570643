"""What an accountant must know of a source besides its costs: what is protected, how it ran, what
would void it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

from discreet import _validate as check
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import Step
from discreet.ledger.snapshot import Snapshot
from discreet.ledger.storage.rows import Held, RunInfo
from discreet.ledger.terms import Planned, Rule, Terms
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

__all__ = ["HasSnapshot", "Read", "Source", "read_source"]

_T = TypeVar("_T")

# The schema of ledgers that hold neither budgets nor commitments.
_WITHOUT_TERMS = 1

# The assumptions of a guarantee, as reports print them.
_COMPUTATIONAL = (
    "the generator that keyed noise and samples is cryptographically secure (privacy is "
    "computational in that respect)"
)
_OWN = (
    "what a record contributes was computed from that record and from public or released values "
    "alone"
)
_ARITHMETIC = {
    Numerics.CERTIFIED: (
        "floating-point sums were rounded as IEEE 754 says, and a record's place in a batch "
        "changed what it contributes by no more than the engine allows for (numerics: certified)"
    ),
    Numerics.IDEALISED: (
        "floating-point sums and noise behave as real numbers (numerics: idealised)"
    ),
}
# A guarantee over runs of several levels states the weakest of them.
_WEAKEST_FIRST = (Numerics.IDEALISED, Numerics.CERTIFIED, Numerics.EXACT)
# One run that was chosen by looking makes the whole list one that was not fixed in advance.
_LEAST_FIXED_FIRST = (Parameters.CHOSEN_FROM_OUTPUTS, Parameters.FIXED_IN_ADVANCE)
_FIXED = (
    "the steps and their number were fixed before the first release or depend on public values "
    "only, as every run declares"
)
_FILES = "the runs of all ledgers named were fixed before the first release from any of them"
_RUNNING = "reserved steps that are not settled count as taken"


@runtime_checkable
class HasSnapshot(Protocol):
    """A ledger, a plan, a programme, or a snapshot of one."""

    def snapshot(self) -> Snapshot:
        """What it holds, or would hold."""


Source: TypeAlias = HasSnapshot | Sequence[HasSnapshot] | Iterable[tuple[Step, int]]


@dataclass(frozen=True, slots=True)
class Read:
    """A source, read: what counts, and the terms of the guarantee.

    Args:
        steps: what the claim counts, by kind of step.
        adjacency, unit, numerics, parameters, assumptions, voided_by: as in a guarantee.
        terms: of the one ledger that was read; None for anything else.
        largest_epsilon: the largest budget that this ledger ever had.
        basis: what counts and why, of a list that was fixed in advance or a file of schema 1.
    """

    steps: Planned
    adjacency: Adjacency
    unit: Unit
    numerics: Numerics
    parameters: Parameters
    assumptions: tuple[str, ...]
    voided_by: tuple[str, ...]
    terms: Terms | None = None
    largest_epsilon: float | None = None
    basis: str = ""

    @property
    def sampling(self) -> tuple[str, ...]:
        """One phrase per sampling policy, in alphabetical order."""
        phrases = {step.sampling.phrase for step, count in self.steps if count}
        return tuple(sorted(phrases or {"nothing was released"}))


def read_source(source: Source, adjacency: Adjacency | None, unit: Unit | None) -> Read:
    """Read a ledger, a plan, several of them, or (step, count) pairs with an explicit adjacency.

    Raises:
        AccountingError: if runs protect different things, or the caller names something else than
            they do.
    """
    if adjacency is not None:
        check.instance("account", "adjacency", adjacency, Adjacency)

    if unit is not None:
        check.instance("account", "unit", unit, Unit)

    if isinstance(source, HasSnapshot):
        return _read_snapshots((source.snapshot(),), adjacency, unit)

    # A generator can be read once only, hence the list.
    entries = list(_iterable(source))
    sources = [entry for entry in entries if isinstance(entry, HasSnapshot)]
    if not sources:
        return _read_pairs(entries, adjacency, unit)

    # Pairs say nothing of how they ran, so no guarantee could speak of them and of ledgers.
    if len(sources) < len(entries):
        raise ParameterError(
            owner="account",
            name="source",
            expected="ledgers and plans, or (step, count) pairs, but not both",
            got="both",
        )

    return _read_snapshots(tuple(entry.snapshot() for entry in sources), adjacency, unit)


def _read_pairs(entries: Sequence[object], adjacency: Adjacency | None, unit: Unit | None) -> Read:
    # Steps alone do not say which change of the data they were meant to hide.
    if adjacency is None:
        raise ParameterError(
            owner="account",
            name="adjacency",
            expected="given, when the source is (step, count) pairs",
            got="None",
            do="Pass adjacency=Adjacency....",
        )

    pairs = []

    for pair in entries:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ParameterError(
                owner="account", name="source", expected="(step, count) pairs", got=repr(pair)[:80]
            )

        step = check.instance("account", "step", pair[0], Step)
        count = check.whole("account", "count", pair[1], least=0)
        pairs.append((step, count))

    # Pairs are what somebody intends: there is no run whose arithmetic could be named.
    return Read(
        steps=tuple(pairs),
        adjacency=adjacency,
        unit=unit or Unit.EXAMPLE,
        numerics=Numerics.EXACT,
        parameters=Parameters.FIXED_IN_ADVANCE,
        assumptions=(
            "the steps are executed as described, with exact noise, from a secure generator",
        ),
        voided_by=(),
    )


def _read_snapshots(
    snapshots: tuple[Snapshot, ...], adjacency: Adjacency | None, unit: Unit | None
) -> Read:
    _refuse_copies(snapshots)
    marks = _marks(snapshots)

    # What is void gets no number, so no rule is needed by which its charges would add up.
    if not marks:
        _refuse_chosen(snapshots)

    # A void ledger without charges is still stated as void, so that nobody takes it for a free one.
    infos = [run.info for snapshot in snapshots for run in snapshot.runs]
    steps = tuple(chain.from_iterable(snapshot.counted() for snapshot in snapshots))
    if not infos or not (steps or marks):
        raise _nothing_charged(marks)

    levels = {info.numerics for info in infos}
    facts = Read(
        steps=steps,
        adjacency=_common("adjacency", infos, adjacency),
        unit=_common("unit", infos, unit),
        numerics=min(levels, key=_WEAKEST_FIRST.index),
        parameters=min((info.parameters for info in infos), key=_LEAST_FIXED_FIRST.index),
        assumptions=_assumptions(snapshots, levels),
        voided_by=marks,
    )

    # Several ledgers have no terms in common: what each was held to says nothing of their sum.
    return facts if len(snapshots) > 1 else _with_terms(facts, snapshots[0])


def _marks(snapshots: tuple[Snapshot, ...]) -> tuple[str, ...]:
    """Names of what voids the guarantee: marks, and generators that are for tests only."""
    names = set(chain.from_iterable(snapshot.marks for snapshot in snapshots))

    # A plan has no rows, hence no marks; what its run declares must void it all the same.
    generators = {run.info.randomness for snapshot in snapshots for run in snapshot.runs}
    test_keys = generators & {Randomness.UNSAFE_TEST_KEY}
    return tuple(sorted(names.union(generator.value for generator in test_keys)))


def _nothing_charged(marks: tuple[str, ...]) -> AccountingError:
    # Where something voided the ledger, it cannot be said that nothing was spent.
    return AccountingError(
        expected="at least one run with a charge",
        got=f"an empty source, void by {', '.join(marks)}" if marks else "an empty source",
        do="There is no guarantee." if marks else "Nothing was spent: account for a run.",
    )


def _assumptions(snapshots: tuple[Snapshot, ...], levels: set[Numerics]) -> tuple[str, ...]:
    """What a guarantee rests on and the ledgers cannot show, in the order of the report."""
    # A ledger with terms shows itself what was fixed; for several together nothing does.
    choice = [_FILES] if len(snapshots) > 1 else _fixed_in_advance(snapshots[0])

    # Exact arithmetic assumes nothing; runs of different levels each bring their own sentence.
    arithmetic = [text for level, text in _ARITHMETIC.items() if level in levels]

    # A run that is still going on, or that crashed, may have taken fewer steps than it reserved.
    running = [_RUNNING] if any(snapshot.unsettled for snapshot in snapshots) else []
    return (
        _OWN,
        _COMPUTATIONAL,
        *choice,
        *chain.from_iterable(map(_declared, snapshots)),
        *arithmetic,
        *running,
    )


def _with_terms(facts: Read, snapshot: Snapshot) -> Read:
    """Add what can be said of one ledger by itself: its terms, its largest budget, its basis."""
    # A filter claims the largest budget that it ever had: a lower one came after releases.
    budgets = [row.terms.epsilon for row in snapshot.history if row.terms.epsilon is not None]
    return replace(
        facts,
        terms=snapshot.terms,
        largest_epsilon=max(budgets, default=None),
        basis=_basis(snapshot),
    )


def _refuse_copies(snapshots: tuple[Snapshot, ...]) -> None:
    """Refuse the same ledger twice: which of two copies tells the whole story cannot be seen from
    either.
    """
    # A plan has no identity yet, and the same plan twice is two runs.
    identities = [snapshot.ledger for snapshot in snapshots if snapshot.ledger]
    if len(set(identities)) < len(identities):
        raise AccountingError(
            expected="different ledgers of one data set",
            got="two copies of the same one",
            do="Name each ledger once, in its latest state.",
        )


def _refuse_chosen(snapshots: tuple[Snapshot, ...]) -> None:
    """Refuse to add up several ledgers of which one was chosen from outputs.

    No rule was fixed for them together, and the rule of one covers only its own charges.
    """
    # Of a single ledger its own rule decides what may be claimed.
    chosen = any(
        snapshot.chosen_from_outputs or snapshot.rule not in (None, Rule.LIST)
        for snapshot in snapshots
    )
    if chosen and len(snapshots) > 1:
        raise AccountingError(
            expected="several ledgers whose steps were fixed in advance",
            got="one whose runs may have been chosen by looking at what was released",
            do=(
                "State each claim by itself. If the ledgers were fixed in advance, they hold "
                "together at the sum of their epsilons and the sum of their deltas."
            ),
        )


def _fixed_in_advance(snapshot: Snapshot) -> list[str]:
    """The word of every run that its steps were fixed in advance, where nothing better is known: in
    files of schema 1.
    """
    is_declared = snapshot.terms is None and not snapshot.chosen_from_outputs
    return [_FIXED] if is_declared else []


def _basis(snapshot: Snapshot) -> str:
    """What counts of a list, or of a file of schema 1, in words."""
    # Such a file holds no list: what it charged is all that can be counted.
    if snapshot.schema == _WITHOUT_TERMS:
        file = f"a file of schema {_WITHOUT_TERMS}, which holds no budget and no plan"
        return f"the {snapshot.steps} steps that were charged; {file}"

    # Filters and odometers state their basis with the claim, in `account`.
    if snapshot.rule is not Rule.LIST:
        return ""

    counted = sum(count for _, count in snapshot.counted())
    listed = sum(count for _, count in snapshot.planned)

    # Fewer than the list: only a public reason frees steps (`Snapshot.counted`).
    if counted < listed:
        return (
            f"{_steps(counted)} of {listed} that were planned: runs ended early for a public "
            "reason, as was declared"
        )

    # What was not taken counts as well: when a run ends may depend on what it showed.
    were = "1 was" if snapshot.steps == 1 else f"{snapshot.steps} were"
    taken = "all were charged" if snapshot.steps >= counted else f"{were} charged, and all count"

    basis = f"{_steps(counted)}, a list that was fixed before the first release"
    if any(_growths(snapshot)):
        basis += " and grew since, for a public reason, as was declared"

    return f"{basis}; {taken}"


def _growths(snapshot: Snapshot) -> Iterator[Held]:
    """The rows by which a list grew."""
    for before, after in pairwise(snapshot.history):
        # The row that completes the terms writes the list for the first time; that is no growth.
        if before.terms.complete and after.terms.planned != before.terms.planned:
            yield after


def _steps(count: int) -> str:
    return "1 step" if count == 1 else f"{count} steps"


def _declared(snapshot: Snapshot) -> Iterator[str]:
    """Public reasons that runs and lists name, each on the word of whoever declared it."""
    # Filters and odometers hold whatever decided on runs: no reason needs to be believed.
    if snapshot.rule is not Rule.LIST:
        return

    for run in snapshot.runs:
        if run.reason:
            name = f"run {run.info.label!r}" if run.info.label else f"run {run.number}"
            taken = f"{run.steps} of {run.planned_steps} planned steps"

            yield f"{name} ended after {taken} for a public reason, as was declared: {run.reason!r}"

    for growth in _growths(snapshot):
        yield f"the list of steps grew for a public reason, as was declared: {growth.reason!r}"


def _common(name: str, infos: Sequence[RunInfo], asked: _T | None) -> _T:
    """The one value of this field that all runs share, which must be the one asked for."""
    values: set[_T] = {getattr(info, name) for info in infos}

    # An accountant composes steps for one unit and one adjacency: there is no sum across them.
    # A caller who names another than the runs declared would read a claim that was never made.
    if len(values) > 1 or (asked is not None and asked not in values):
        wanted = "" if asked is None else f" {_name(asked)}"
        raise AccountingError(
            expected=f"one {name}{wanted} in all runs",
            got=", ".join(sorted(map(_name, values))),
            do=(
                "Account for these runs apart: one statement protects one thing against one "
                "change of the data."
            ),
        )

    return next(iter(values))


def _iterable(source: object) -> Iterable[object]:
    if not isinstance(source, Iterable):
        raise ParameterError(
            owner="account",
            name="source",
            expected="a ledger, a plan, a list of them, or (step, count) pairs",
            got=type(source).__name__,
        )

    return source


def _name(value: object) -> str:
    return value.value if isinstance(value, Adjacency) else str(value)
