"""Estimators keep their confidence: 200 audits each of mechanisms whose epsilon is known;
derivation in `support.coverage`.

The named wrong estimators that fail the same checks are in
tests/mutations/test_auditing_mutations.py.
"""

import numpy as np
import pytest

from discreet.accounting.gaussian import gaussian_epsilon
from discreet.auditing import Estimate, gaussian, hits, one_run, threshold
from discreet.canaries import Scores
from discreet.errors import ParameterError
from support import coverage


@pytest.mark.parametrize("canaries", [40, 300])
def test_gaussian_noise_keeps_its_confidence(canaries: int) -> None:
    bounds = coverage.stated(
        lambda scores: gaussian(scores, delta=1e-5, confidence=coverage.CONFIDENCE),
        coverage.unit_gaussian,
        canaries=canaries,
    )
    coverage.assert_covered(bounds, gaussian_epsilon(1.0, 1e-5)[0])
    assert max(bounds) > 1.0


def test_p43_one_run_covers_randomised_response() -> None:
    coverage.assert_covered(
        coverage.stated(
            lambda scores: one_run(scores, delta=0.0, confidence=coverage.CONFIDENCE),
            coverage.randomised_response,
            canaries=100,
        ),
        1.0,
    )


def test_p43_one_run_covers_a_leak() -> None:
    coverage.assert_covered(
        coverage.stated(
            lambda scores: one_run(scores, delta=coverage.LEAKED, confidence=coverage.CONFIDENCE),
            coverage.leaky,
            canaries=200,
        ),
        0.0,
    )


@pytest.mark.full
def test_one_run_covers_a_leak_beside_noise() -> None:
    """Randomised response, and each coin with probability 1e-3: epsilon is 1 at delta 1e-3, with
    enough canaries to see it.
    """

    def mechanism(rng: np.random.Generator, coins: coverage.Coins) -> coverage.Floats:
        seen = rng.random(coins.size) < 1e-3
        return np.where(seen, np.where(coins, 2.0, -2.0), coverage.randomised_response(rng, coins))

    found = coverage.stated(
        lambda scores: one_run(scores, delta=1e-3, confidence=coverage.CONFIDENCE),
        mechanism,
        canaries=600,
    )
    coverage.assert_covered(found, 1.0)
    assert sum(bound > 0.3 for bound in found) > coverage.AUDITS / 2


def test_p43_threshold_covers_randomised_response() -> None:
    found = coverage.stated(
        lambda scores: threshold(scores, delta=0.0, confidence=coverage.CONFIDENCE),
        coverage.randomised_response,
        canaries=400,
        alone=True,
    )
    coverage.assert_covered(found, 1.0)


def test_p43_threshold_covers_a_leak() -> None:
    found = coverage.stated(
        lambda scores: threshold(scores, delta=coverage.LEAKED, confidence=coverage.CONFIDENCE),
        coverage.leaky,
        canaries=400,
        alone=True,
    )
    coverage.assert_covered(found, 0.0)


def test_p43_canaries_of_one_run_are_not_taken_for_independent() -> None:
    def audit(scores: Scores) -> Estimate:
        try:
            return threshold(scores, delta=0.5, confidence=coverage.CONFIDENCE)
        except ParameterError:
            return one_run(scores, delta=0.5, confidence=coverage.CONFIDENCE)

    coverage.assert_covered(coverage.stated(audit, coverage.all_or_nothing, canaries=100), 0.0)


def test_p43_scores_that_say_nothing_bound_nothing() -> None:
    """Mu is 0."""
    bounds = coverage.stated(
        lambda scores: gaussian(scores, delta=1e-5, confidence=coverage.CONFIDENCE),
        lambda rng, coins: rng.normal(size=coins.size),
        canaries=60,
    )
    coverage.assert_covered(bounds, 0.0)


def test_hit_rates_are_within_their_intervals() -> None:
    """Members' scores are 1 higher: with limit t the rates are 1 - Phi(t - 1) and 1 - Phi(t)."""
    from scipy.special import ndtr

    rng = np.random.default_rng(11)
    misses = 0
    for _ in range(coverage.AUDITS):
        inside = rng.random(200) < 0.5
        found = hits(
            Scores(coverage.unit_gaussian(rng, inside), inside),
            false_positive_rate=0.1,
            confidence=coverage.CONFIDENCE,
        )
        within = found.lower <= ndtr(1.0 - found.limit) <= found.upper
        misses += not (within and found.false_lower <= ndtr(-found.limit) <= found.false_upper)
    assert misses <= coverage.MOST_MISSES
