"""Everything a report is about, gathered once: what the ledger holds, what follows from it, what
was planned and measured.
"""

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
from discreet.errors import LedgerCorrupt, ParameterError
from discreet.ledger import Ledger, Rule, Snapshot, Terms
from discreet.plan import Declaration, Plan, Programme, Target
from discreet.report.facts.curves import detail, spending, tradeoff, unamplified
from discreet.report.facts.own_plans import known_delta, own_plans
from discreet.report.facts.runs import epsilon_of_each
from discreet.report.facts.subject import Subject
from discreet.tuning import Tuning, TuningKind
from discreet.units import Guarantee

__all__ = ["AuditedHead", "Ceiling", "Facts", "gather"]

_OWNER = "Report.of"
# Other deltas at which the claim is stated, as multiples of its own.
_DELTAS = (100.0, 10.0, 0.1, 0.01)


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
        snapshot: what the ledger holds.
        guarantee: the claim. Infinite epsilon where there is no guarantee.
        second: the same steps by the RDP accountant; None under a filter or an odometer, which has
            one analysis only.
        unamplified: the same steps if an attacker knew every sample; None where the claim does not
            count on samples anyway, and under a filter or an odometer.
        at_deltas: the claim at other deltas.
        ceilings: target and budget.
        limit: the target's epsilon near which the claim was computed more closely; None for none.
        alone: epsilon of each run by itself, by the number of the run.
        plan, audit, tuning, subject: as given.
        audited: which ledger the audit was made for.
        audited_claim: upper bound on epsilon at the audit's delta; None where the two cannot be
            compared.
        spending: (steps, upper bound on epsilon), in the order of the ledger.
        tradeoff: what an attacker can do at most; None where there is no guarantee.
        made: date and time in UTC.
        software: version of this library.
    """

    snapshot: Snapshot
    guarantee: Guarantee
    second: Guarantee | None
    unamplified: Guarantee | None
    at_deltas: tuple[Guarantee, ...]
    ceilings: tuple[Ceiling, ...]
    limit: float | None
    alone: Mapping[int, float]
    plan: Declaration[Plan] | None
    audit: Audit | None
    tuning: tuple[Tuning, ...]
    audited: AuditedHead | None
    audited_claim: float | None
    spending: tuple[tuple[int, float], ...]
    tradeoff: TradeOff | None
    subject: Subject
    made: str
    software: str

    @property
    def void(self) -> bool:
        """Whether there is no guarantee at all."""
        return bool(self.guarantee.voided_by) or math.isinf(self.guarantee.upper)

    @property
    def by_fixed_analysis(self) -> bool:
        """Whether a filter or an odometer states the claim: one analysis and one delta, fixed
        before the first release.
        """
        return self.snapshot.rule not in (None, Rule.LIST)

    @property
    def plans(self) -> Mapping[str, Plan]:
        """What was declared, by name; one plan that was given alone has none."""
        # Whoever goes through the plans need not ask first whether there are any.
        return {} if self.plan is None else self.plan.plans

    @property
    def records(self) -> int | None:
        """Number of records, where plan or ledger say it."""
        plans = (*self.plans.values(), *own_plans(self.snapshot))
        planned = [getattr(plan.sampler, "records", None) for plan in plans]

        # Most ways of sampling need no number of records: then only a plan can know it.
        stated = [
            getattr(charge.step.sampling, "records", None) for charge in self.snapshot.charges
        ]

        # All speak of one data set, so that the first number that somebody names is taken.
        known = (int(records) for records in (*planned, *stated) if records is not None)
        return next(known, None)


def gather(
    ledger: Ledger,
    *,
    delta: float | None,
    plan: Declaration[Plan] | None,
    audit: Audit | None,
    tuning: Tuning | Sequence[Tuning] = (),
    subject: Subject | None = None,
) -> Facts:
    """Read the ledger from its first row, check it, and compute everything that the report says."""
    _check_evidence(ledger, plan, audit)
    names = Subject() if subject is None else check.instance(_OWNER, "subject", subject, Subject)

    # All that follows is computed from one snapshot: rows that are written meanwhile are not in it.
    snapshot = ledger.verify().snapshot()
    tuning_records = _tuning(ledger, snapshot, tuning)
    claim_delta = _delta(snapshot, delta, plan)
    limit = _limit_at(claim_delta, plan)
    guarantee = account(snapshot, delta=claim_delta, limit=limit)

    # Filters and odometers have one analysis at one delta, fixed before the first release: a second
    # opinion, other deltas or a curve over steps would claim what nobody proved.
    tight = snapshot.rule in (None, Rule.LIST) and not guarantee.voided_by
    finite = tight and math.isfinite(guarantee.upper)

    # What an audit measured is laid against the claim at the audit's delta, not at this one.
    audited = audited_claim = None
    if audit is not None:
        audited = _audited(ledger, snapshot, audit)
        audited_claim = _claim_at(snapshot, audit.delta, guarantee)

    return Facts(
        snapshot=snapshot,
        guarantee=guarantee,
        second=account(snapshot, delta=claim_delta, accountant="rdp") if tight else None,
        unamplified=unamplified(snapshot, claim_delta, guarantee) if tight else None,
        at_deltas=_at_deltas(snapshot, guarantee) if tight else (guarantee,),
        ceilings=_ceilings(snapshot, guarantee, plan),
        limit=limit,
        alone=epsilon_of_each(snapshot, claim_delta),
        plan=plan,
        audit=audit,
        tuning=tuning_records,
        audited=audited,
        audited_claim=audited_claim,
        spending=spending(snapshot, guarantee) if finite else (),
        tradeoff=None if guarantee.voided_by else tradeoff(snapshot if tight else None, guarantee),
        subject=names,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        software=_version(),
    )


def _check_evidence(ledger: Ledger, plan: Declaration[Plan] | None, audit: Audit | None) -> None:
    check.instance(_OWNER, "ledger", ledger, Ledger)
    if audit is not None:
        check.instance(_OWNER, "audit", audit, Audit)

    if plan is None:
        return

    check.member(_OWNER, "plan", plan, (Plan, Programme))

    # Without its leaves a plan cannot say which queries it asks, so nothing could be compared.
    try:
        for part in plan.plans.values():
            part.queries()
    except ParameterError as wrong:
        raise ParameterError(
            owner=_OWNER,
            name="plan",
            expected="one that knows its leaves, as the plan of a run does",
            got=wrong.got,
            do="Pass run.plan, or plan.for_leaves({...}).",
        ) from None


def _delta(snapshot: Snapshot, delta: float | None, plan: Declaration[Plan] | None) -> float:
    # In the order of authority: the ledger's own rule, the caller, the plan, the ledger's rows.
    terms = snapshot.terms
    if terms is not None and terms.rule is not Rule.LIST and terms.delta is not None:
        if delta not in (None, terms.delta):
            raise ParameterError(
                owner=_OWNER,
                name="delta",
                expected=f"the ledger's own {terms.delta!r}: nothing is proved at a delta that is "
                "chosen afterwards",
                got=repr(delta),
            )

        return terms.delta

    if delta is not None:
        return check.fraction(_OWNER, "delta", delta)

    target = _target(plan)
    if target is not None:
        return target.delta

    ledger_delta = known_delta(snapshot)
    if ledger_delta is not None:
        return ledger_delta

    raise ParameterError(
        owner=_OWNER,
        name="delta",
        expected="given, where neither the ledger's budget nor a plan with a target names it",
        got="None",
        do="A claim needs a delta.",
    )


def _target(plan: Declaration[Plan] | None) -> Target | None:
    return None if plan is None else plan.target


def _limit_at(delta: float, plan: Declaration[Plan] | None) -> float | None:
    """The target's epsilon at this delta; that of a budget is known to the accountant."""
    target = _target(plan)

    # At another delta the target says nothing about how near to it this claim must be computed.
    return target.epsilon if target is not None and target.delta == delta else None


def _at_deltas(snapshot: Snapshot, claim: Guarantee) -> tuple[Guarantee, ...]:
    """The claim, between what holds at larger and at smaller deltas."""
    # Each row costs as much as the claim itself: with many kinds of steps there is only the claim.
    if detail(snapshot.counted()) < 1.0:
        return (claim,)

    # Twelve digits, so that ten times 1e-6 reads 1e-05.
    levels = [float(f"{claim.delta * factor:.12g}") for factor in _DELTAS]

    # A delta above 1/2 claims next to nothing, and one that underflows to 0 is no delta.
    larger = [account(snapshot, delta=level) for level in levels if claim.delta < level <= 0.5]
    smaller = [account(snapshot, delta=level) for level in levels if 1e-300 < level < claim.delta]

    return (*larger, claim, *smaller)


def _ceilings(
    snapshot: Snapshot, guarantee: Guarantee, plan: Declaration[Plan] | None
) -> tuple[Ceiling, ...]:
    # What is void has no epsilon that could be compared with a limit.
    if guarantee.voided_by:
        return ()

    # A list may name no budget at all, and an odometer a delta without an epsilon.
    limits: dict[str, Target | Terms | None] = {"target": _target(plan), "budget": snapshot.terms}
    return tuple(
        Ceiling(
            name,
            limit.epsilon,
            limit.delta,
            _claim_at(snapshot, limit.delta, guarantee, limit.epsilon),
        )
        for name, limit in limits.items()
        if limit is not None and limit.epsilon is not None and limit.delta is not None
    )


def _claim_at(
    snapshot: Snapshot, delta: float, guarantee: Guarantee, limit: float | None = None
) -> float | None:
    """The upper bound on epsilon at another delta, if one can be stated; finer where a limit lies
    inside the bracket.
    """
    if guarantee.voided_by:
        return None

    if delta == guarantee.delta:
        return guarantee.upper

    # A filter or an odometer proves its claim at one delta; what holds there holds at every larger
    # one.
    if snapshot.rule not in (None, Rule.LIST):
        return guarantee.upper if delta > guarantee.delta else None

    # At delta 0 a Gaussian has no finite epsilon; an audit may still be made there.
    return None if delta == 0.0 else account(snapshot, delta=delta, limit=limit).upper


def _audited(ledger: Ledger, snapshot: Snapshot, audit: Audit) -> AuditedHead:
    if audit.ledger_head == snapshot.head:
        return AuditedHead.THIS

    # Rows are only ever appended: a head that is still in the chain is an earlier state.
    earlier = _has_head(ledger, snapshot, audit.ledger_head)
    return AuditedHead.EARLIER if earlier else AuditedHead.OTHER


def _tuning(ledger: Ledger, snapshot: Snapshot, tuning: object) -> tuple[Tuning, ...]:
    """The records of tuning; those of private data must be of this ledger, and of runs that it was
    charged with.
    """
    # One record may be given without a list around it.
    records = tuning if isinstance(tuning, tuple | list) else (tuning,)
    charged = {charge.run.label for charge in snapshot.charges if charge.count}

    for record in records:
        check.member(_OWNER, "tuning", record, (Tuning,))
        if record.kind is not TuningKind.PRIVATE:
            continue

        # "Covered" is said of private tuning only if the ledger itself shows the charges.
        missing = sorted(set(record.runs) - charged)
        if missing or not _has_head(ledger, snapshot, record.ledger_head):
            raise ParameterError(
                owner=_OWNER,
                name="tuning",
                expected="of this ledger, where it says that trials on private data were charged",
                got=f"a record whose run {missing[0]!r} charged nothing here"
                if missing
                else "the record of another ledger",
                do=(
                    "Pass the record that was made with this ledger. Without the charges, tuning "
                    "is not covered."
                ),
            )

    return tuple(records)


def _has_head(ledger: Ledger, snapshot: Snapshot, head: str | None) -> bool:
    """Whether this was the ledger's head once; None never was."""
    # `verify` answers by an error, and the whole chain was checked before: a head that is not in it
    # is all that can be wrong now.
    try:
        return head == snapshot.head or (head is not None and ledger.verify(head) is ledger)
    except LedgerCorrupt:
        return False


def _version() -> str:
    try:
        return version("discreet")
    except PackageNotFoundError:  # run from its source
        return "unknown"
