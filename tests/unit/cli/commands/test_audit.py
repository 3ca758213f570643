"""`discreet audit`: what is attacked, and that no option is ignored."""

from pathlib import Path

import pytest

import discreet as dp
from discreet.cli.commands.audit import _check_inputs, _check_options, _check_same, _delta
from discreet.errors import DiscreetError
from support.command import PLAN, execute

SCORES, FILE = Path("scores.json"), Path("plan.toml")


@pytest.mark.parametrize(
    ("scores", "plan", "words"), [(None, None, "neither"), (SCORES, FILE, "both")]
)
def test_either_scores_or_a_plan_is_attacked(
    scores: Path | None, plan: Path | None, words: str
) -> None:
    with pytest.raises(DiscreetError, match=words):
        _check_inputs(Path("a.ledger"), scores, plan, None)


def test_scores_and_a_record_are_about_a_ledger() -> None:
    with pytest.raises(DiscreetError, match="a LEDGER with --scores"):
        _check_inputs(None, SCORES, None, None)
    with pytest.raises(DiscreetError, match="a LEDGER with --output"):
        _check_inputs(None, None, FILE, Path("audit.json"))
    _check_inputs(None, None, FILE, None)


def test_options_of_the_other_attack_are_refused() -> None:
    with pytest.raises(DiscreetError, match="--trials with --plan"):
        _check_options({"--canaries": None, "--trials": 9}, by_plan=False, assume_scaled=False)
    with pytest.raises(DiscreetError, match="--assume-scaled with --scores"):
        _check_options({}, by_plan=True, assume_scaled=True)
    _check_options({"--trials": 9}, by_plan=True, assume_scaled=False)


def test_p43_an_attack_on_one_mechanism_is_not_laid_against_the_claim_of_another() -> None:
    ledger = dp.Ledger.in_memory()
    execute(ledger, PLAN, steps=PLAN.steps - 1)
    with pytest.raises(DiscreetError, match="another number of them"):
        _check_same(PLAN, ledger)
    whole = dp.Ledger.in_memory()
    execute(whole, PLAN)
    _check_same(PLAN, whole)
    _check_same(PLAN, None)


def test_delta_is_the_plans_before_the_ledgers() -> None:
    calibrated = dp.Plan.dpsgd(records=100, sampling_probability=0.1, steps=2, epsilon=9.0)
    assert calibrated.target is not None
    ledger = dp.Ledger.in_memory(budget=dp.Budget(epsilon=3.0, delta=1e-4))
    assert _delta(calibrated, ledger) == calibrated.target.delta
    assert _delta(PLAN, ledger) == 1e-4
    assert _delta(PLAN, None) is None
