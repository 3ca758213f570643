"""Everything a report is about, gathered once: what the ledger holds, what follows from it, what was planned and measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version

from discreet import _validate as check
from discreet.accounting import TradeOff, account
from discreet.auditing import Audit
from discreet.budget import Budget
from discreet.errors import AccountingError, BudgetExceeded, LedgerCorrupt, LedgerUnavailable, ParameterError
from discreet.ledger import Charge, Ledger
from discreet.ledger.rows import Began
from discreet.plan import Plan, Programme
from discreet.report.curves import detail, spending, tradeoff, unamplified
from discreet.tuning import Kind, Tuning
from discreet.units import Guarantee, Numerics, Parameters

__all__ = ["AuditedHead", "Ceiling", "Facts", "Held", "gather"]

_OWNER = "Report.of"
_DELTAS = (100.0, 10.0, 0.1, 0.01)  # times the delta of the claim
_ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Held:
    """What a ledger held at one moment; an accountant reads it as it reads a ledger."""

    held: tuple[Charge, ...]
    named: tuple[str, ...]
    runs: tuple[Began, ...]
    head: str

    def charges(self) -> tuple[Charge, ...]:
        """Every step with its run and count."""
        return self.held

    def marks(self) -> tuple[str, ...]:
        """Names of what voids the guarantee."""
        return self.named

    @property
    def adaptive(self) -> bool:
        """Whether only a privacy filter gives a valid bound."""
        return any(charge.run.parameters is Parameters.CHOSEN_FROM_OUTPUTS for charge in self.held)

    @property
    def steps(self) -> int:
        """Charged, by all runs."""
        return sum(charge.count for charge in self.held)

    @property
    def unsettled(self) -> int:
        """Of these steps: reserved, and not known to have been taken."""
        return sum(charge.unsettled for charge in self.held)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A limit that somebody set, and what was spent at its delta.

    Args:
        name: "target" of the plan, or "budget".
        epsilon, delta: the limit.
        spent: upper bound on epsilon at that delta; None where nothing can be said at that delta.
    """

    name: str
    epsilon: float
    delta: float
    spent: float | None


class AuditedHead(Enum):
    """Which ledger an audit was made for."""

    THIS = "this ledger as it is"
    EARLIER = "an earlier state of this ledger"
    OTHER = "another ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The one source of all formats of a report.

    Args:
        held: what the ledger holds.
        guarantee: the claim. Infinite epsilon where nothing was charged and something was released all the same.
        second: the same steps by the RDP accountant; None under a filter, which has one analysis only.
        unamplified: the same steps if an attacker knew every sample; None where the claim does not count on samples anyway,
            and under a filter.
        at_deltas: the claim at other deltas.
        ceilings: target and budget.
        plan, budget, audit, tuning: as given.
        audited: which ledger the audit was made for.
        audited_claim: upper bound on epsilon at the audit's delta; None where the two cannot be compared.
        spending: (steps, upper bound on epsilon), in the order of the ledger.
        tradeoff: what an attacker can do at most; None where there is no guarantee.
        made: date and time in UTC.
        software: version of this library.
    """

    held: Held
    guarantee: Guarantee
    second: Guarantee | None
    unamplified: Guarantee | None
    at_deltas: tuple[Guarantee, ...]
    ceilings: tuple[Ceiling, ...]
    plan: Plan | Programme | None
    budget: Budget | None
    audit: Audit | None
    tuning: tuple[Tuning, ...]
    audited: AuditedHead | None
    audited_claim: float | None
    spending: tuple[tuple[int, float], ...]
    tradeoff: TradeOff | None
    made: str
    software: str

    @property
    def void(self) -> bool:
        """Whether there is no guarantee at all."""
        return bool(self.guarantee.voided_by) or math.isinf(self.guarantee.upper)

    @property
    def plans(self) -> Mapping[str, Plan]:
        """What was declared, by name; one plan that was given alone has none."""
        match self.plan:
            case None:
                return {}
            case Plan():
                return {"": self.plan}
            case Programme():
                return self.plan.plans

    @property
    def records(self) -> int | None:
        """Number of records, where plan or ledger say it."""
        planned = [getattr(plan.sampler, "records", None) for plan in self.plans.values()]
        stated = [getattr(charge.step.sampling, "records", None) for charge in self.held.held]
        known = [int(records) for records in (*planned, *stated) if records is not None]
        return known[0] if known else None


def gather(
    ledger: Ledger,
    *,
    delta: float | None,
    plan: Plan | Programme | None,
    audit: Audit | None,
    budget: Budget | None,
    tuning: Tuning | Sequence[Tuning] = (),
) -> Facts:
    """Read the ledger from its first row, check it, and compute everything that the report says."""
    check.instance(_OWNER, "ledger", ledger, Ledger)
    if plan is not None:
        check.member(_OWNER, "plan", plan, (Plan, Programme))
        _check_leaves(plan)
    for name, value, kind in (("audit", audit, Audit), ("budget", budget, Budget)):
        if value is not None:
            check.instance(_OWNER, name, value, kind)
    held = _held(ledger)
    records = _tuning(ledger, held, tuning)
    level = _delta(held, delta, plan, budget)
    guarantee = _claim(held, level, plan, budget)
    fixed = bool(held.held) and not held.adaptive
    valid = fixed and not guarantee.voided_by
    head = None if audit is None else _audited(ledger, held, audit)
    return Facts(
        held=held,
        guarantee=guarantee,
        second=account(held, delta=level, accountant="rdp") if fixed else None,
        unamplified=unamplified(held, level, guarantee) if fixed else None,
        at_deltas=_at_deltas(held, guarantee) if fixed else (guarantee,),
        ceilings=_ceilings(held, guarantee, plan, budget),
        plan=plan,
        budget=budget,
        audit=audit,
        tuning=records,
        audited=head,
        audited_claim=None if audit is None else _claim_at(held, audit.delta, guarantee),
        spending=spending(held.held, guarantee) if valid and math.isfinite(guarantee.upper) else (),
        tradeoff=tradeoff(held if fixed else None, guarantee) if held.held and not guarantee.voided_by else None,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        software=_version(),
    )


def _check_leaves(plan: Plan | Programme) -> None:
    try:
        for part in (plan,) if isinstance(plan, Plan) else plan.plans.values():
            part.queries()
    except ParameterError as wrong:
        expected = "one that knows its leaves, as the plan of a run does"
        raise ParameterError(
            owner=_OWNER, name="plan", expected=expected, got=wrong.got, do="Pass run.plan, or plan.for_leaves({...})."
        ) from None


def _held(ledger: Ledger) -> Held:
    """One moment of the ledger: other processes may append meanwhile."""
    ledger.verify()
    for _ in range(_ATTEMPTS):
        head = ledger.head()
        found = Held(ledger.charges(), ledger.marks(), ledger.runs(), head)
        if ledger.head() == head:
            return found
    raise LedgerUnavailable(expected="a moment without new rows", got="a ledger that grows all the time", do="Try again.")


def _delta(held: Held, delta: float | None, plan: Plan | Programme | None, budget: Budget | None) -> float:
    if held.adaptive and budget is not None:
        if delta is not None and delta != budget.delta:
            expected = f"the budget's {budget.delta!r}: a filter proves nothing at another delta"
            raise ParameterError(owner=_OWNER, name="delta", expected=expected, got=repr(delta))
        return budget.delta
    if delta is not None:
        return check.fraction(_OWNER, "delta", delta)
    if plan is not None and plan.target is not None:
        return plan.target.delta
    if budget is not None:
        return budget.delta
    expected = "given, where neither a plan with a target nor a budget names it"
    raise ParameterError(owner=_OWNER, name="delta", expected=expected, got="None", do="A claim needs a delta.")


def _claim(held: Held, delta: float, plan: Plan | Programme | None, budget: Budget | None) -> Guarantee:
    if not held.held and held.named:
        return _nothing(held, delta)
    if held.adaptive:
        if budget is None:
            raise AccountingError(
                expected="the budget that guarded this ledger: its steps were chosen from outputs",
                got="no budget",
                do="Pass budget=Budget(...), the one of Ledger.open(..., guard=...), unchanged.",
            )
        try:
            return budget.guarantee(held.held, marks=held.named)
        except BudgetExceeded as wrong:
            raise AccountingError(
                expected="the budget that admitted every charge of this ledger",
                got=f"one that does not: {wrong.got}",
                do="Pass the budget that guarded the ledger. Without it there is no guarantee.",
            ) from None
    limits = [limit for limit in (budget, None if plan is None else plan.target) if limit is not None and limit.delta == delta]
    if not limits:
        return account(held, delta=delta)
    # As a guard does: the bracket is narrowed while a limit lies inside, so that what fitted is not said to exceed.
    found = [Budget(epsilon=limit.epsilon, delta=delta).guarantee(held.held, marks=held.named) for limit in limits]
    return min(found, key=lambda guarantee: guarantee.upper)


def _nothing(held: Held, delta: float) -> Guarantee:
    """Nothing was charged, but something was released."""
    infos = [run.info for run in held.runs]
    for name in ("unit", "adjacency"):
        if len({getattr(info, name) for info in infos}) != 1:
            raise AccountingError(
                expected=f"one {name} in all runs",
                got="several",
                do="Report on these runs apart: one statement protects one thing against one change of the data.",
            )
    return Guarantee(
        lower=0.0,
        upper=math.inf,
        delta=delta,
        unit=infos[0].unit,
        adjacency=infos[0].adjacency,
        accountant="none",
        sampling=("nothing was charged",),
        numerics=max((info.numerics for info in infos), key=list(Numerics).index),
        assumptions=(),
        voided_by=tuple(sorted(set(held.named))),
    )


def _at_deltas(held: Held, claim: Guarantee) -> tuple[Guarantee, ...]:
    """The claim, between what holds at larger and at smaller deltas."""
    if detail(held.held) < 1.0:
        return (claim,)
    levels = [float(f"{claim.delta * factor:.12g}") for factor in _DELTAS]
    larger = [account(held, delta=level) for level in levels if claim.delta < level <= 0.5]
    return (*larger, claim, *(account(held, delta=level) for level in levels if 1e-300 < level < claim.delta))


def _ceilings(held: Held, guarantee: Guarantee, plan: Plan | Programme | None, budget: Budget | None) -> tuple[Ceiling, ...]:
    limits = [("target", None if plan is None else plan.target), ("budget", budget)]
    return tuple(
        Ceiling(name, limit.epsilon, limit.delta, _claim_at(held, limit.delta, guarantee, limit.epsilon))
        for name, limit in limits
        if limit is not None
    )


def _claim_at(held: Held, delta: float, guarantee: Guarantee, limit: float | None = None) -> float | None:
    """The upper bound on epsilon at another delta, if one can be stated; finer where a limit lies inside the bracket."""
    if delta == guarantee.delta:
        return guarantee.upper
    if not held.held or held.adaptive:
        # What holds at a delta holds at every larger one.
        return guarantee.upper if delta > guarantee.delta else None
    if delta == 0.0:
        return None
    if limit is None:
        return account(held, delta=delta).upper
    return Budget(epsilon=limit, delta=delta).guarantee(held.held, marks=held.named).upper


def _audited(ledger: Ledger, held: Held, audit: Audit) -> AuditedHead:
    if audit.ledger_head == held.head:
        return AuditedHead.THIS
    return AuditedHead.EARLIER if _has_head(ledger, held, audit.ledger_head) else AuditedHead.OTHER


def _tuning(ledger: Ledger, held: Held, given: object) -> tuple[Tuning, ...]:
    """The records of tuning; those of private data must be of this ledger, and of runs that it was charged with."""
    records = given if isinstance(given, tuple | list) else (given,)
    charged = {charge.run.label for charge in held.held if charge.count}
    for record in records:
        check.member(_OWNER, "tuning", record, (Tuning,))
        if record.kind is not Kind.PRIVATE:
            continue
        missing = sorted(set(record.runs) - charged)
        if missing or not _has_head(ledger, held, record.ledger_head):
            raise ParameterError(
                owner=_OWNER,
                name="tuning",
                expected="of this ledger, where it says that trials on private data were charged",
                got=f"a record whose run {missing[0]!r} charged nothing here" if missing else "the record of another ledger",
                do="Pass the record that was made with this ledger. Without the charges, tuning is not covered.",
            )
    return tuple(records)


def _has_head(ledger: Ledger, held: Held, head: str | None) -> bool:
    try:
        return head == held.head or (head is not None and ledger.verify(head) is ledger)
    except LedgerCorrupt:
        return False


def _version() -> str:
    try:
        return version("discreet")
    except PackageNotFoundError:  # run from its source
        return "unknown"
