"""Claim against measurement: when it is FAIL, when PASS, when neither; and that all bounds share
one probability of error.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import discreet as dp
from discreet import verdict as module
from discreet.accounting import account
from discreet.auditing import Audit, Estimate
from discreet.canaries import Scores
from discreet.verdict import Verdict, audit
from support.reports import DELTA, INFO, STEP, executed, ledger_of, planned, step_of

SCORES = Scores([2.0, -1.0, 0.5, 0.0] * 4, [True, False, True, False] * 4, attack="a test")
APART = Scores(SCORES.values, SCORES.inside, trials=range(16))
ASSUMED = "pigs fly"


class Asked:
    """Estimators that say what they are told to say, and remember what they were asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **lower: float) -> None:
        self.calls: dict[str, dict[str, Any]] = {}
        for name in ("one_run", "threshold", "scaled"):
            monkeypatch.setattr(module, name, self._estimator(name, lower.get(name, 0.0)))

    def _estimator(self, name: str, lower: float) -> Callable[..., Estimate]:
        def estimate(scores: Scores, *, confidence: float, **options: Any) -> Estimate:
            self.calls[name] = {"scores": scores, "confidence": confidence} | options
            assumes = ASSUMED if name == "scaled" else ""
            return Estimate(
                method=name, lower=lower, delta=DELTA, confidence=confidence, assumes=assumes
            )

        return estimate


def ledger() -> dp.Ledger:
    return ledger_of((STEP, 20))


def claim(source: dp.Ledger | dp.Plan) -> dp.Guarantee:
    return account(source, delta=DELTA)


def test_fail_is_said_above_the_claim_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    upper = claim(ledger()).upper
    for lower, outcome in ((0.0, "PASS"), (upper, "PASS"), (np.nextafter(upper, 9.0), "FAIL")):
        for name in ("one_run", "scaled"):
            Asked(monkeypatch, **{name: float(lower)})
            verdict = audit(ledger(), SCORES, delta=DELTA, assume_scaled=True)
            assert (verdict.outcome, verdict.passed) == (outcome, outcome == "PASS")
            assert verdict.reached == lower / upper
            assert str(verdict).startswith(outcome)


def test_p43_all_bounds_share_the_probability_of_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for scores, assume, used in (
        (SCORES, False, ["one_run"]),
        (SCORES, True, ["one_run", "scaled"]),
        (APART, False, ["one_run", "threshold"]),
        (APART, True, ["one_run", "threshold", "scaled"]),
    ):
        asked = Asked(monkeypatch)
        assert (
            audit(ledger(), scores, delta=DELTA, confidence=0.9, assume_scaled=assume).confidence
            == 0.9
        )
        assert sorted(asked.calls) == sorted(used)
        total = sum(1.0 - call["confidence"] for call in asked.calls.values())
        assert total == pytest.approx(0.1, rel=1e-12)


def test_p43_bounds_are_at_the_delta_of_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    verdict = audit(ledger(), APART, delta=1e-7)
    assert verdict.claim.delta == 1e-7
    assert {call["delta"] for call in asked.calls.values()} == {1e-7}
    assert verdict.claim == account(ledger(), delta=1e-7)


def test_the_delta_is_that_of_target_or_budget() -> None:
    plan = planned(epsilon=1.0)
    assert audit(plan, SCORES).claim.delta == DELTA
    with pytest.raises(dp.errors.ParameterError, match="delta"):
        audit(ledger(), SCORES)
    held = ledger_of((STEP, 20), budget=dp.Budget(epsilon=9.0, delta=1e-7))
    assert audit(held, SCORES).claim.delta == 1e-7
    assert audit(held, SCORES, delta=DELTA).claim.delta == DELTA


def test_what_is_scaled_is_the_noise_of_the_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    verdict = audit(ledger(), SCORES, delta=DELTA, assume_scaled=True)
    epsilon, profile = asked.calls["scaled"]["epsilon"], asked.calls["scaled"]["profile"]
    assert epsilon(1.0) == verdict.claim.lower
    twice = ledger_of((step_of(STEP.sampling, noise_std=10.0), 20))
    assert epsilon(2.0) == claim(twice).lower
    assert profile(2.0)(0.1) < profile(1.0)(0.1) < profile(0.5)(0.1)
    assert profile(1.0)(verdict.claim.upper) <= DELTA * 1.02
    assert (
        epsilon(2.0**-9) > epsilon(2.0**-3) > epsilon(1.0)
    )  # also where the accountant knows no lower bound


@pytest.mark.parametrize(
    "query",
    [dp.ledger.LaplaceSum("grad", 1.0, 3.0), dp.ledger.ExponentialChoice("grad", 1.0, 3.0)],
    ids=lambda query: type(query).__name__,
)
def test_other_noise_is_scaled_too(query: dp.ledger.Query, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    audit(
        ledger_of((dp.ledger.Step(dp.Everything(), [query]), 2)),
        SCORES,
        delta=DELTA,
        assume_scaled=True,
    )
    profile = asked.calls["scaled"]["profile"]
    assert profile(2.0)(0.1) < profile(1.0)(0.1) < profile(0.5)(0.1)


def test_what_has_no_noise_to_scale_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch)
    step = dp.ledger.Step(dp.Everything(), [dp.ledger.RandomizedResponse("grad", 2, 0.7)])
    answers = ledger_of((step, 1), info=replace(INFO, adjacency=dp.Adjacency.REPLACE_ONE))
    assert audit(answers, SCORES, delta=DELTA).passed
    with pytest.raises(dp.errors.ParameterError, match="assume_scaled"):
        audit(answers, SCORES, delta=DELTA, assume_scaled=True)
    assert "scaled" not in asked.calls


@pytest.mark.parametrize("lower", [0.0, 50.0])
def test_a_ledger_that_is_void_never_passes(lower: float, monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(monkeypatch, one_run=lower)
    marked = ledger()
    marked.mark(marked.runs()[0].number, "unsafe_test_key")
    verdict = audit(marked, SCORES, delta=DELTA)
    assert (verdict.outcome, verdict.passed, verdict.reached) == ("NO CLAIM", False, 0.0)
    assert "voided by unsafe_test_key" in str(verdict)
    assert "Claimed: nothing." in str(verdict)


def test_steps_chosen_from_outputs_are_held_to_the_budget_of_their_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Asked(monkeypatch, one_run=1.5)
    info = replace(INFO, parameters=dp.units.Parameters.CHOSEN_FROM_OUTPUTS)
    chosen = ledger_of((STEP, 5), info=info, budget=dp.Filter(epsilon=2.0, delta=DELTA))
    with pytest.raises(dp.errors.AccountingError, match="fixed before the first release"):
        audit(chosen, SCORES, delta=1e-7)
    verdict = audit(chosen, SCORES)
    assert (verdict.claim.upper, verdict.outcome) == (2.0, "PASS")
    with pytest.raises(dp.errors.ParameterError, match="assume_scaled"):
        audit(chosen, SCORES, assume_scaled=True)


def test_t04_what_is_audited_of_a_list_is_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that took 5 of 20 steps claims 20; a public reason makes it 5."""
    Asked(monkeypatch)
    whole, part = claim(ledger_of((STEP, 20))).upper, claim(ledger_of((STEP, 5))).upper
    early = dp.Ledger.in_memory()
    run = early.begin(INFO, [(STEP, 20)])
    assert len(list(run.steps(STEP, 5))) == 5
    run.end()
    assert audit(early, SCORES, delta=DELTA).claim.upper == whole
    run.end("power failure")
    assert audit(early, SCORES, delta=DELTA).claim.upper == part < whole


def test_the_record_keeps_the_bounds_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    Asked(monkeypatch, one_run=0.1, threshold=0.2, scaled=0.3)
    held = ledger()
    record = audit(held, APART, delta=DELTA, assume_scaled=True).audit
    assert record is not None
    assert (record.lower, record.assumed_lower, record.assumes) == (0.2, 0.3, ASSUMED)
    assert (record.ledger_head, record.canaries, record.trials) == (held.head(), 16, 16)
    assert record.method == "threshold; scores"
    assert Audit.from_json(record.to_json()) == record
    plain = audit(held, SCORES, delta=DELTA).audit
    assert plain is not None
    assert (plain.assumed_lower, plain.assumes) == (None, "")
    assert audit(planned(), SCORES, delta=DELTA).audit is None  # no ledger, no head


def test_a_report_shows_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planned()
    held = executed(plan)
    for lower, status in ((0.1, "holds"), (9.0, "contradicted")):
        Asked(monkeypatch, scaled=lower)
        verdict = audit(held, SCORES, delta=DELTA, assume_scaled=True)
        report = dp.Report.of(held, delta=DELTA, plan=plan, audit=verdict.audit)
        assert f'"key": "{status}"' in report.json()
        assert f"at least {lower:g}, if {ASSUMED}" in report.markdown()


def test_the_words_say_what_was_claimed_measured_and_cannot_be_concluded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Asked(monkeypatch, one_run=0.012345, scaled=0.02)
    words = str(audit(ledger(), SCORES, delta=DELTA, assume_scaled=True))
    for part in (
        "PASS: ",
        "Claimed: epsilon at most ",
        "delta 1e-05, for one example under add-or-remove adjacency",
        "epsilon at least 0.01234 (one_run) whatever the mechanism is",
        f"epsilon at least 0.02 (scaled) if {ASSUMED}",
        "Confidence 0.95 for all of it together",
        "a test; 16 canaries in 1 run",
        "never prove one",
    ):
        assert part in words
    Asked(monkeypatch, scaled=20.0)
    refuted = str(audit(ledger(), SCORES, delta=DELTA, assume_scaled=True))
    assert "or the assumption does not hold" in refuted
    assert "Do not rely on the claim" in refuted


@pytest.mark.parametrize(
    "wrong",
    [{"delta": 0.0}, {"confidence": 1.0}, {"confidence": 0.0}, {"confidence": "high"}],
    ids=str,
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(dp.errors.ParameterError, match=next(iter(wrong))):
        audit(ledger(), SCORES, **{"delta": DELTA} | wrong)
    for bad in ("train.ledger", None, [(STEP, 1)]):
        with pytest.raises(dp.errors.ParameterError, match="source"):
            audit(bad, SCORES, delta=DELTA)  # type: ignore[arg-type]
    with pytest.raises(dp.errors.ParameterError, match="scores"):
        audit(ledger(), [1.0], delta=DELTA)  # type: ignore[arg-type]


def test_nothing_charged_is_nothing_claimed() -> None:
    with pytest.raises(dp.errors.AccountingError):
        audit(dp.Ledger.in_memory(), SCORES, delta=DELTA)


def test_a_bound_of_zero_says_where_delta_may_be_the_reason() -> None:
    inside = np.random.default_rng(5).random(2000) < 0.5
    weak = Scores(np.random.default_rng(6).normal(size=2000), inside)
    hint = "compare at a smaller delta, or be less sure"
    for delta, confidence, said in (
        (1e-5, 0.9999, True),
        (1e-5, 0.95, False),
        (1e-9, 0.9999, False),
    ):
        assert (hint in str(audit(ledger(), weak, delta=delta, confidence=confidence))) is said
    assert hint not in str(
        audit(ledger(), Scores(inside * 1.0, inside), delta=1e-5, confidence=0.9999)
    )  # it did show something


def test_a_verdict_is_a_value() -> None:
    verdict = audit(planned(), SCORES, delta=DELTA)
    assert isinstance(verdict, Verdict)
    assert verdict.lower <= verdict.best.lower


def test_samples_that_are_cut_are_audited_under_zero_out_where_a_canary_that_is_out_keeps_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Compared with add-or-remove, honest code could be said to FAIL: what canaries tell apart may
    cost more.
    """
    cut = dp.ledger.Step(
        dp.ledger.TruncatedPoisson(0.5, 400, 1000), [dp.ledger.GaussianSum("g", 1.0, 2.0)]
    )
    removed, zeroed = (
        account([(cut, 10)], delta=DELTA, adjacency=kind)
        for kind in (INFO.adjacency, dp.Adjacency.ZERO_OUT)
    )
    assert removed.adjacency is dp.Adjacency.ADD_OR_REMOVE
    assert removed.upper < zeroed.upper
    Asked(monkeypatch, one_run=0.5 * (removed.upper + zeroed.upper))
    verdict = audit(ledger_of((cut, 10)), SCORES, delta=DELTA)
    assert (verdict.outcome, verdict.claim.upper) == ("PASS", zeroed.upper)
    assert verdict.claim.adjacency is dp.Adjacency.ZERO_OUT
    assert verdict.audit is not None
    assert verdict.audit.adjacency is dp.Adjacency.ZERO_OUT
