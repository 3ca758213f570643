"""Claim against measurement: does what an attack found contradict what the ledger says?

ledger -> accountant -> claim (an upper bound on epsilon)
scores -> estimators -> lower bounds on epsilon, all of them right with the stated confidence
a lower bound above the claim: FAIL. Something is wrong, and it is not bad luck but with probability
    1 - confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from discreet import _validate as check
from discreet._digits import counted, downward, upward
from discreet.accounting import account, profile_of
from discreet.accounting.meaning.tradeoff import Profile
from discreet.auditing import Audit, Estimate, one_run, scaled, threshold
from discreet.canaries import Scores
from discreet.errors import LedgerCorrupt, ParameterError
from discreet.ledger import Ledger, Rule, Snapshot
from discreet.ledger.events import Query, Step
from discreet.plan import Plan
from discreet.units import Adjacency, Guarantee

__all__ = ["Verdict", "audit", "claim_of"]

_OWNER = "audit"
# The factor between two amounts of noise, when a lower bound is looked for at more noise.
_FINE = 2.0**0.25
_Counted: TypeAlias = list[tuple[Step, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an audit says of a claim.

    Guarantee: of a claim that is true, FAIL is said with probability at most 1 - confidence, over
    the coins of the canaries and everything that was drawn at random, if what the estimates assume
    is true (`Estimate.assumes`; docs/proofs/verdict.md).
    PASS proves nothing: a weak attack finds nothing.

    Args:
        claim: of the accountant.
        estimates: lower bounds on epsilon at the claim's delta.
        confidence: with which all of them hold.
        attack: how the scores came about; public.
        canaries, trials: how many of them, in how many runs.
        audit: for a file, see `Audit.save`; None where a plan was audited, and no ledger.
    """

    claim: Guarantee
    estimates: tuple[Estimate, ...]
    confidence: float
    attack: str
    canaries: int
    trials: int
    audit: Audit | None

    @property
    def outcome(self) -> Literal["PASS", "FAIL", "NO CLAIM"]:
        """FAIL if a bound is above the claim. Where nothing is claimed, nothing can be refuted, nor
        pass.
        """
        if self.claim.voided_by or math.isinf(self.claim.upper):
            return "NO CLAIM"

        # Also by a bound that rests on an assumption: then one of the two is wrong, and both are
        # named.
        return "FAIL" if self.best.lower > self.claim.upper else "PASS"

    @property
    def passed(self) -> bool:
        """Whether there is a claim, and nothing that was measured contradicts it."""
        return self.outcome == "PASS"

    @property
    def best(self) -> Estimate:
        """The largest of the bounds."""
        return max(self.estimates, key=lambda estimate: estimate.lower)

    @property
    def lower(self) -> float:
        """The largest of the bounds that assume nothing."""
        return max(estimate.lower for estimate in self.estimates if not estimate.assumes)

    @property
    def reached(self) -> float:
        """The largest bound as a share of the claim; 0 where nothing is claimed."""
        if self.outcome == "NO CLAIM" or not self.best.lower:
            return 0.0

        # A claim of 0 is contradicted infinitely by whatever is above it.
        return self.best.lower / self.claim.upper if self.claim.upper else math.inf

    def __str__(self) -> str:
        claim = self.claim
        stated = f"epsilon at most {upward(claim.upper)} at delta {claim.delta!r}"
        protected = f"for one {claim.unit} under {claim.adjacency.value} adjacency"
        claimed = "nothing" if claim.voided_by else f"{stated}, {protected}"
        bounds = "; ".join(map(_measured, self.estimates))
        runs = f"{self.canaries:,} canaries in {counted(self.trials, 'run')}"

        # Rounded down: the share of a claim that was reached is a lower bound, too.
        share = (
            f" The best of it is {math.floor(100.0 * min(self.reached, 1e6)):,} % of the claim."
            if self.reached
            else ""
        )

        return "\n".join(
            [
                self._words(),
                f"Claimed: {claimed}.",
                (
                    f"Measured: {bounds}. Confidence {self.confidence!r} for all of it "
                    f"together.{share}"
                ),
                f"How: {self.attack}; {runs}.",
                *self._hurdle(),
                (
                    "An audit can refute a claim, never prove one: a low value may be a weak "
                    "attack, or too few canaries."
                ),
            ]
        )

    def _hurdle(self) -> list[str]:
        """Why the bound that assumes nothing may be 0 whatever was released: canaries may leak with
        probability delta each.
        """
        # With n canaries, one of them may have leaked with probability n delta: where that alone
        # exceeds the probability of an error, the guesses prove nothing.
        if self.lower or self.canaries * self.claim.delta <= 1.0 - self.confidence:
            return []

        asked = f"delta {self.claim.delta!r} and confidence {self.confidence!r}"
        unable = (
            f"{self.canaries:,} canaries may be unable to show anything without an assumption, "
            "however much is leaked"
        )

        return [f"At {asked}, {unable}: compare at a smaller delta, or be less sure."]

    def _words(self) -> str:
        match self.outcome:
            case "PASS":
                return "PASS: nothing that was measured contradicts the claim."

            case "NO CLAIM":
                why = (
                    f"voided by {', '.join(self.claim.voided_by)}"
                    if self.claim.voided_by
                    else "epsilon is infinite"
                )

                return f"NO CLAIM: there is no guarantee that could be refuted ({why})."

            case "FAIL":
                doubt = ", or the assumption does not hold" if self.best.assumes else ""
                return (
                    "FAIL: the measurement contradicts the claim. Either the program does not do "
                    "what is charged, or the scores are not what they should be (an attack that "
                    f"saw the coins, coins that were not fair){doubt}. Do not rely on the claim."
                )


def audit(
    source: Ledger | Plan,
    scores: Scores,
    *,
    delta: float | None = None,
    confidence: float = 0.95,
    assume_scaled: bool = False,
) -> Verdict:
    """Compare what an attack found with what a ledger, or a plan, claims.

    `one_run` bounds epsilon whatever the mechanism is; `threshold` too, where every canary had a
    run of its own. All that are asked share the probability of an error.

    Args:
        source: the ledger that the attacked runs charged; or a plan, for the scores of
            `auditing.white_box`. Truncated Poisson samples under add-or-remove are held to their
            claim under zero-out, which is what canaries test.
        scores: of the attack.
        delta: at which to compare; left out: that of the plan's target, or of the ledger's budget.
        confidence: with which all bounds hold, in (0, 1).
        assume_scaled: also ask `scaled`, which reaches most of the claim, and assumes that the
            noise is that of the ledger,
            times some factor, and that canaries do not disturb each other: so it is for
            `auditing.white_box` where `undisturbed` says so.

    Raises:
        AccountingError: nothing can be stated: nothing was charged, runs protect different things,
            a budget is missing.
        ParameterError: no delta is known, a parameter is out of its range, `scaled` cannot be
            asked, or scores are of another ledger.

    >>> from discreet.auditing import white_box
    >>> plan = Plan.dpsgd(records=1_000, sampling_probability=0.1, steps=10, noise_multiplier=1.0)
    >>> scores = white_box(plan, canaries=200, trials=2)
    >>> verdict = audit(plan, scores, delta=1e-5, confidence=0.999999)
    >>> verdict.outcome, verdict.lower <= verdict.claim.upper
    ('PASS', True)
    """
    check.instance(_OWNER, "scores", scores, Scores)
    level = check.fraction(_OWNER, "confidence", confidence)
    snapshot, claim = _claimed(source, delta)
    _refuse_another(source, scores)

    # `one_run` is asked always, so that there is a bound without assumption. Each estimate waits
    # for its share of the confidence, which depends on how many are asked.
    asked: list[Callable[[float], Estimate]] = [
        lambda each: one_run(scores, delta=claim.delta, confidence=each)
    ]

    if scores.independent:
        asked.append(lambda each: threshold(scores, delta=claim.delta, confidence=each))

    if assume_scaled:
        epsilon, profile = _scaled_claim(snapshot, claim)
        asked.append(
            lambda each: scaled(
                scores, epsilon=epsilon, profile=profile, delta=claim.delta, confidence=each
            )
        )

    # A union bound over the estimates: each gets an equal part of the probability of an error.
    shared = _shared(level, len(asked))
    verdict = Verdict(
        claim=claim,
        estimates=tuple(ask(shared) for ask in asked),
        confidence=level,
        attack=scores.attack,
        canaries=len(scores),
        trials=scores.runs,
        audit=None,
    )

    return replace(verdict, audit=_record(verdict, snapshot.head)) if snapshot.head else verdict


def claim_of(source: Ledger | Plan, *, delta: float | None = None) -> Guarantee:
    """What `audit` would compare scores with."""
    return _claimed(source, delta)[1]


def _shared(confidence: float, bounds: int) -> float:
    """The confidence of each of several bounds, such that all hold together with the one that was
    asked for.
    """
    return 1.0 - (1.0 - confidence) / bounds


def _measured(estimate: Estimate) -> str:
    under = f" if {estimate.assumes}" if estimate.assumes else " whatever the mechanism is"
    return f"epsilon at least {downward(estimate.lower)} ({estimate.method}){under}"


def _record(verdict: Verdict, head: str) -> Audit:
    # A bound that assumes nothing is always among them: `one_run` is always asked.
    by_bound = sorted(verdict.estimates, key=lambda estimate: -estimate.lower)
    free = next(estimate for estimate in by_bound if not estimate.assumes)
    under = next((estimate for estimate in by_bound if estimate.assumes), None)

    return Audit(
        method=f"{free.method}; {verdict.attack}"[:200],
        lower=free.lower,
        delta=verdict.claim.delta,
        confidence=verdict.confidence,
        canaries=verdict.canaries,
        trials=verdict.trials,
        unit=verdict.claim.unit,
        adjacency=verdict.claim.adjacency,
        ledger_head=head,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        assumed_lower=None if under is None else under.lower,
        assumes="" if under is None else under.assumes,
    )


def _refuse_another(source: Ledger | Plan, scores: Scores) -> None:
    """Refuse scores that name ledgers, none of which is this one.

    Some may be of runs with the same steps elsewhere.
    """
    if (
        isinstance(source, Plan)
        or not scores.heads
        or any(_contains(source, head) for head in scores.heads)
    ):
        return

    raise ParameterError(
        owner=_OWNER,
        name="scores",
        expected="scores of a run that this ledger was charged with",
        got=f"those of a run on another ledger, whose head was {scores.heads[0][:12]}...",
        do="Give the ledger of that run, or the scores of this one.",
    )


def _contains(ledger: Ledger, head: str) -> bool:
    # The head of a ledger that has grown since is the digest of one of its rows.
    try:
        ledger.verify(head)
    except LedgerCorrupt:
        return False

    return True


# --- the claim ---


def _snapshot(source: Ledger | Plan) -> Snapshot:
    if isinstance(source, Plan):
        return source.snapshot()

    # Verified first: an audit of a ledger that was edited would compare with anybody's claim.
    return check.instance(_OWNER, "source", source, Ledger).verify().snapshot()


def _as_attacked(snapshot: Snapshot) -> Snapshot:
    """The charges between the data sets that canaries tell apart.

    One that is out keeps its place in a sample that is cut. It is zeroed out, not absent, which may
    cost more (docs/proofs/verdict.md, section 1).
    """
    cut = any(step.sampling.displaces(Adjacency.ADD_OR_REMOVE) for step, _ in snapshot.counted())
    if not cut or any(run.info.adjacency is not Adjacency.ADD_OR_REMOVE for run in snapshot.runs):
        return snapshot

    zeroed = (
        replace(run, info=replace(run.info, adjacency=Adjacency.ZERO_OUT)) for run in snapshot.runs
    )

    return replace(snapshot, runs=tuple(zeroed))


def _claimed(source: Ledger | Plan, delta: float | None) -> tuple[Snapshot, Guarantee]:
    # Delta is that of the source as it stands, the claim that of what canaries tell apart.
    snapshot = _snapshot(source)
    attacked = _as_attacked(snapshot)
    return attacked, account(attacked, delta=_delta(source, snapshot, delta))


def _delta(source: Ledger | Plan, snapshot: Snapshot, delta: float | None) -> float:
    # A plan has no terms and a ledger no target: each has one place where a delta may stand.
    limit = source.target if isinstance(source, Plan) else snapshot.terms
    if delta is None and limit is not None:
        delta = limit.delta

    if delta is None:
        raise ParameterError(
            owner=_OWNER,
            name="delta",
            expected="given, where neither a plan with a target nor the ledger's budget names it",
            got="None",
            do="A claim needs a delta.",
        )

    return check.fraction(_OWNER, "delta", delta)


def _chosen(snapshot: Snapshot) -> bool:
    """Whether what was released may have had a part in choosing the steps."""
    return snapshot.chosen_from_outputs or snapshot.rule not in (None, Rule.LIST)


# --- the same steps with other noise ---


def _scaled_claim(
    snapshot: Snapshot, claim: Guarantee
) -> tuple[Callable[[float], float], Callable[[float], Profile]]:
    """Lower epsilon at the claim's delta, and certified profile, of the same steps with all noise
    times a factor.
    """
    if _chosen(snapshot):
        raise ParameterError(
            owner=_OWNER,
            name="assume_scaled",
            expected="False where steps were chosen from outputs: noise that is scaled would have "
            "led to other steps",
            got="True",
        )

    steps = list(snapshot.counted())
    _times(steps, 1.0)  # refuses what has no noise to scale

    def epsilon(factor: float) -> float:
        # Where epsilon is in the hundreds no lower bound may be known. Less noise never costs less:
        # that of more noise serves.
        lower = account(_times(steps, factor), delta=claim.delta, adjacency=claim.adjacency).lower
        return lower if lower or factor >= 1.0 else epsilon(factor * _FINE)

    def profile(factor: float) -> Profile:
        return profile_of(_times(steps, factor), adjacency=claim.adjacency)

    return epsilon, profile


def _times(steps: _Counted, factor: float) -> _Counted:
    return [
        (Step(step.sampling, [_noisier(query, factor) for query in step.queries]), count)
        for step, count in steps
    ]


def _noisier(query: Query, factor: float) -> Query:
    if query.sensitivity_and_noise is None:
        raise ParameterError(
            owner=_OWNER,
            name="assume_scaled",
            expected="False where a query has no noise that could be scaled",
            got=type(query).__name__,
        )

    return query.with_noise_times(factor)
