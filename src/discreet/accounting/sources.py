"""What an accountant must know of a source besides its leaves: what is protected, how it ran, what would void it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from discreet import _validate as check
from discreet.accounting.normalise import LedgerLike, PlanLike, Source
from discreet.errors import AccountingError, ParameterError
from discreet.ledger.events import (
    BallsInBins,
    Everything,
    FixedSize,
    Poisson,
    Sampling,
    Shuffled,
    Step,
    TruncatedPoisson,
)
from discreet.units import Adjacency, Numerics, Parameters, Randomness, Unit

if TYPE_CHECKING:
    from discreet.ledger.rows import Charge

__all__ = ["Read", "phrase", "read"]

_T = TypeVar("_T")

_COMPUTATIONAL = (
    "the generator that keyed noise and samples is cryptographically secure (privacy is computational in that respect)"
)
_OWN = "what a record contributes was computed from that record and from public or released values alone"
_CERTIFIED = (
    "floating-point sums were rounded as IEEE 754 says, and a record's place in a batch changed what it contributes by no more "
    "than the engine allows for (numerics: certified)"
)
_IDEALISED = "floating-point sums and noise behave as real numbers (numerics: idealised)"
_FIXED = "the steps and their number were fixed before the first release or depend on public values only, as every run declares"
_RUNNING = "reserved steps that are not settled count as taken"


@dataclass(frozen=True, slots=True)
class Read:
    """A source, read: steps with counts, and the terms of the guarantee."""

    steps: tuple[tuple[Step, int], ...]
    adjacency: Adjacency
    unit: Unit
    numerics: Numerics
    parameters: Parameters
    assumptions: tuple[str, ...]
    voided_by: tuple[str, ...]

    @property
    def sampling(self) -> tuple[str, ...]:
        """One phrase per sampling policy, in alphabetical order."""
        return tuple(sorted({phrase(step.sampling) for step, count in self.steps if count})) or ("nothing was released",)


def read(source: Source, adjacency: Adjacency | None, unit: Unit | None) -> Read:
    """Read a ledger, a plan, or (step, count) pairs with an explicit adjacency.

    Raises:
        AccountingError: if runs of one ledger protect different things, or the caller names something else than they do.
    """
    if isinstance(source, PlanLike):
        marks = source.marks() if isinstance(source, LedgerLike) else ()
        return _charges(tuple(source.charges()), tuple(marks), adjacency, unit)
    if adjacency is None:
        expected = "given, when the source is (step, count) pairs"
        raise ParameterError(
            owner="account", name="adjacency", expected=expected, got="None", do="Pass adjacency=Adjacency...."
        )
    check.instance("account", "adjacency", adjacency, Adjacency)
    pairs = []
    for pair in _iterable(source):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ParameterError(owner="account", name="source", expected="(step, count) pairs", got=repr(pair)[:80])
        step, count = pair
        pairs.append((check.instance("account", "step", step, Step), check.whole("account", "count", count, least=0)))
    about = Unit.EXAMPLE if unit is None else check.instance("account", "unit", unit, Unit)
    assumed = ("the steps are executed as described, with exact noise, from a secure generator",)
    return Read(tuple(pairs), adjacency, about, Numerics.EXACT, Parameters.FIXED_IN_ADVANCE, assumed, ())


def _charges(charges: tuple[Charge, ...], marks: tuple[str, ...], adjacency: Adjacency | None, unit: Unit | None) -> Read:
    if not charges:
        void = f", void by {', '.join(sorted(set(marks)))}" if marks else ""
        do = "There is no guarantee." if marks else "Nothing was spent: account for a run."
        raise AccountingError(expected="at least one run with a charge", got=f"an empty source{void}", do=do)
    runs = [charge.run for charge in charges]
    marked = set(marks) | {run.randomness.value for run in runs if run.randomness is Randomness.UNSAFE_TEST_KEY}
    levels = {run.numerics for run in runs}
    level = next(kind for kind in (Numerics.IDEALISED, Numerics.CERTIFIED, Numerics.EXACT) if kind in levels)
    chosen = any(run.parameters is Parameters.CHOSEN_FROM_OUTPUTS for run in runs)
    assumptions = [_OWN, _COMPUTATIONAL]
    assumptions += [] if chosen else [_FIXED]
    assumptions += [_CERTIFIED] if Numerics.CERTIFIED in levels else []
    assumptions += [_IDEALISED] if level is Numerics.IDEALISED else []
    assumptions += [_RUNNING] if any(charge.unsettled for charge in charges) else []
    return Read(
        tuple((charge.step, charge.count) for charge in charges),
        _common("adjacency", {run.adjacency for run in runs}, adjacency),
        _common("unit", {run.unit for run in runs}, unit),
        level,
        Parameters.CHOSEN_FROM_OUTPUTS if chosen else Parameters.FIXED_IN_ADVANCE,
        tuple(assumptions),
        tuple(sorted(marked)),
    )


def _common(name: str, found: set[_T], asked: _T | None) -> _T:
    """The one value that all runs share, which must be the one asked for."""
    if len(found) > 1 or (asked is not None and asked not in found):
        got = ", ".join(sorted(map(_name, found)))
        do = "Account for these runs apart: one statement protects one thing against one change of the data."
        wanted = "" if asked is None else f" {_name(asked)}"
        raise AccountingError(expected=f"one {name}{wanted} in all runs", got=got, do=do)
    return next(iter(found))


def _iterable(source: object) -> Iterable[tuple[Step, int]]:
    if not isinstance(source, Iterable):
        expected = "a ledger, a plan, or (step, count) pairs"
        raise ParameterError(owner="account", name="source", expected=expected, got=type(source).__name__)
    return source


def _name(value: object) -> str:
    return value.value if isinstance(value, Adjacency) else str(value)


def phrase(sampling: Sampling) -> str:
    """A sampling policy in words.

    >>> phrase(Poisson(0.01))
    'Poisson with probability 0.01'
    """
    match sampling:
        case Everything():
            words = "full batch"
        case Poisson(probability):
            words = f"Poisson with probability {probability!r}"
        case TruncatedPoisson(probability, limit, records):
            words = f"Poisson with probability {probability!r} cut at {limit} of {records} records"
        case FixedSize(size, records):
            words = f"{size} of {records} records without replacement"
        case Shuffled(batches):
            words = f"shuffled epochs of {batches} batches (no amplification)"
        case BallsInBins(batches):
            words = f"balls in bins, epochs of {batches} batches"
        case _:
            raise AccountingError(expected="a sampling policy", got=type(sampling).__name__, do="Add its phrase.")
    return words
