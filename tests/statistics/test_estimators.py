"""Estimators keep their confidence: 200 audits each of mechanisms whose epsilon is known; derivation in `support.coverage`.

The named wrong estimators that fail the same checks are in tests/mutations/test_auditing_mutations.py.
"""

import numpy as np
import pytest

from discreet.accounting.gaussian import gaussian_epsilon
from discreet.auditing import gaussian, hits
from discreet.canaries import Scores
from support import coverage


@pytest.mark.parametrize("canaries", [40, 300])
def test_gaussian_noise_keeps_its_confidence(canaries: int) -> None:
    bounds = coverage.stated(
        lambda scores: gaussian(scores, delta=1e-5, confidence=coverage.CONFIDENCE), coverage.unit_gaussian, canaries=canaries
    )
    coverage.assert_covered(bounds, gaussian_epsilon(1.0, 1e-5)[0])
    assert max(bounds) > 1.0


def test_one_run_keeps_its_confidence() -> None:
    coverage.one_run_covers_randomised_response()
    coverage.one_run_covers_a_leak_beside_noise()


def test_threshold_keeps_its_confidence() -> None:
    coverage.threshold_covers_randomised_response()
    coverage.threshold_covers_a_leak()


def test_hit_rates_are_within_their_intervals() -> None:
    """Members' scores are 1 higher: with limit t the rates are 1 - Phi(t - 1) and 1 - Phi(t)."""
    from scipy.special import ndtr

    rng = np.random.default_rng(11)
    misses = 0
    for _ in range(coverage.AUDITS):
        inside = rng.random(200) < 0.5
        found = hits(
            Scores(coverage.unit_gaussian(rng, inside), inside), false_positive_rate=0.1, confidence=coverage.CONFIDENCE
        )
        within = found.lower <= ndtr(1.0 - found.limit) <= found.upper
        misses += not (within and found.false_lower <= ndtr(-found.limit) <= found.false_upper)
    assert misses <= coverage.MOST_MISSES
