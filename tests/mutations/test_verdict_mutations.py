"""Deliberate bugs in what is executed, for which the verdict must be FAIL; and in the verdict, which a unit test notices.

Each attack here says FAIL of right code with probability at most 1e-6; with fixed keys, never.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import discreet as dp
from discreet import verdict as module
from discreet.aggregation import aggregator
from discreet.aggregation.session import Session
from discreet.auditing import white_box
from discreet.canaries import Canaries, Scores
from discreet.mechanisms import Group
from discreet.numerics import exact
from discreet.randomness import GaussianNoise, Purpose, Stream
from discreet.sampling import Sample, sampler
from discreet.sampling._policies import positions
from discreet.units import Guarantee
from discreet.verdict import Verdict
from support.mutations import Mutation, assert_caught, by_name, replaced
from support.white_box import source_of
from unit import test_verdict

CONFIDENCE = 1.0 - 1e-6
FULL = dp.Plan(sampler=dp.Sampler(dp.Everything(), records=1000, steps=1), mechanism=dp.Gaussian(1.0, 2.0))
RARE = dp.Plan(sampler=dp.Sampler(dp.Poisson(0.1), records=1000, steps=1), mechanism=dp.Gaussian(1.0, 0.5))
TWICE = dp.Plan(sampler=dp.Sampler(dp.Poisson(0.5), records=1000, steps=2), mechanism=dp.Gaussian(1.0, 2.0))


def passes(plan: dp.Plan, trials: int, attack: Callable[[dp.Plan, int], Scores]) -> None:
    """The verdict on the plan as it is executed now."""
    verdict = module.audit(plan, attack(plan, trials), delta=1e-5, confidence=CONFIDENCE, assume_scaled=True)
    assert verdict.outcome == "PASS", str(verdict)


def likelihoods(plan: dp.Plan, trials: int) -> Scores:
    return white_box(plan, trials=trials, source=source_of("mutation"))


def differences(plan: dp.Plan, trials: int) -> Scores:
    """Who compares two releases: if they share their noise, a canary that was drawn once is plain to see."""
    parts = []
    for trial in range(trials):
        source = source_of(f"differences {trial}")
        planted = Canaries(np.arange(1000), source=source)
        run = dp.Aggregator(plan.for_leaves({"x": 1000}), ledger=dp.Ledger.in_memory(), source=source)
        seen = []
        for sample in run.samples():
            rows = np.zeros((len(sample), 1000))
            rows[np.arange(len(sample)), sample.indices] = planted.inside[sample.indices]
            seen.append(run.release(sample, {"x": rows})["x"])
        parts.append(Scores(np.abs(seen[0] - seen[1]), planted.inside))
    return Scores.pooled(parts)


# --- in what is executed ---


class Halved(GaussianNoise):
    """Half the noise that is charged."""

    def __init__(self, stream: Stream, *, scale: float, size: int) -> None:
        super().__init__(stream, scale=scale / 2.0, size=size)


def unclipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither clipped, nor dropped by the check on the integers."""
    monkeypatch.setattr(Group, "weights", lambda _, norms: np.full(len(norms), 0.1))
    monkeypatch.setattr(exact, "_within", lambda squares, _: np.ones(len(squares[0]), bool))


def often(monkeypatch: pytest.MonkeyPatch) -> None:
    right = positions

    def wrong(policy: Any, *rest: Any) -> Iterator[NDArray[np.int64]]:
        return right(replace(policy, probability=4.0 * policy.probability), *rest)

    monkeypatch.setattr(sampler, "positions", wrong)


def reused(_: Session, __: Sample, lane: int) -> Stream:
    """Every step has the noise of the first."""
    return source_of("the same for ever").stream(Purpose.NOISE, step=0, lane=lane)


EXECUTED = [
    Mutation("noise halved", replaced(aggregator, "GaussianNoise", Halved), partial(passes, FULL, 5, likelihoods)),
    Mutation("P01 clipping ignored", unclipped, partial(passes, FULL, 1, likelihoods)),
    Mutation("P26 drawn four times as often as charged", often, partial(passes, RARE, 5, likelihoods)),
    Mutation("P20 noise reused", replaced(Session, "noise_stream", reused), partial(passes, TWICE, 2, differences)),
]


@by_name(EXECUTED)
def test_the_verdict_on_a_broken_engine_is_fail(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch, caught=(AssertionError,))


# --- in the verdict ---


def isolated(test: Callable[..., None], *arguments: Any) -> Callable[[], None]:
    """A unit test that patches, on its own."""

    def check() -> None:
        with pytest.MonkeyPatch.context() as inner:
            test(*arguments, inner)

    return check


def at_no_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores are compared at another delta than that of the claim."""
    right = module._claimed

    def wrong(source: Any, delta: float | None, budget: Any) -> tuple[Any, Guarantee]:
        held, claim = right(source, delta, budget)
        return held, replace(claim, delta=1e-3)

    monkeypatch.setattr(module, "_claimed", wrong)


def ignores_marks(self: Verdict) -> str:
    return "FAIL" if self.best.lower > self.claim.upper else "PASS"


def against_the_lower_bound(self: Verdict) -> str:
    return "NO CLAIM" if self.claim.voided_by else "FAIL" if self.best.lower > self.claim.lower else "PASS"


def free_bounds_only(self: Verdict) -> str:
    return "NO CLAIM" if self.claim.voided_by else "FAIL" if self.lower > self.claim.upper else "PASS"


def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bound has the whole probability of an error."""
    monkeypatch.setattr(module, "len", lambda asked: 1 if isinstance(asked, list) else len(asked), raising=False)


VERDICT = [
    Mutation("P43 delta mixed up", at_no_delta, isolated(test_verdict.test_p43_bounds_are_at_the_delta_of_the_claim)),
    Mutation("P43 not corrected", unshared, isolated(test_verdict.test_p43_all_bounds_share_the_probability_of_an_error)),
    Mutation(
        "void and PASS",
        replaced(Verdict, "outcome", property(ignores_marks)),
        isolated(test_verdict.test_a_ledger_that_is_void_never_passes, 0.0),
    ),
    Mutation(
        "P37 compared with the lower end of the bracket",
        replaced(Verdict, "outcome", property(against_the_lower_bound)),
        isolated(test_verdict.test_fail_is_said_above_the_claim_and_only_there),
    ),
    Mutation(
        "the bound under an assumption is ignored",
        replaced(Verdict, "outcome", property(free_bounds_only)),
        isolated(test_verdict.test_fail_is_said_above_the_claim_and_only_there),
    ),
    Mutation(
        "noise is not scaled",
        replaced(module, "_noisier", lambda query, _: query),
        isolated(test_verdict.test_what_is_scaled_is_the_noise_of_the_claim),
    ),
]


@by_name(VERDICT)
def test_a_broken_verdict_is_noticed(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_caught(mutation, monkeypatch)
