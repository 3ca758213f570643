"""Rates on the half that did not choose the limit."""

import math

import numpy as np
import pytest

from discreet.auditing import threshold
from discreet.auditing.estimators.guesses import highest_rate, lowest_rate
from discreet.canaries import Scores
from discreet.errors import ParameterError


def separate(values: np.ndarray, inside: np.ndarray) -> Scores:
    return Scores(values, inside, trials=np.arange(values.size))


def test_a_perfect_attack_by_hand() -> None:
    """20 in, 20 out, all told apart: the measured half has 10 of 10 hits and 0 of 10 false
    positives.
    """
    inside = np.arange(40) % 4 < 2
    found = threshold(separate(np.where(inside, 1.0, 0.0), inside), delta=1e-3, confidence=0.9)
    by_hand = math.log((lowest_rate(10, 10, error=0.05) - 1e-3) / highest_rate(0, 10, error=0.05))
    assert found.lower == pytest.approx(by_hand, rel=1e-9)
    assert found.lower <= by_hand


def test_both_directions_are_tried() -> None:
    """Nobody who is out is ever below 0, so that low scores betray; high ones say little, or the
    reverse.
    """
    rng = np.random.default_rng(1)
    inside = rng.random(4000) < 0.5
    rare = rng.random(4000) < 0.3
    high = np.where(inside & rare, 9.0, rng.random(4000))
    low = np.where(~inside & rare, -9.0, rng.random(4000))
    assert threshold(separate(high, inside), delta=0.0).lower > 3.5
    assert threshold(separate(low, inside), delta=0.0).lower > 3.5


def test_p43_canaries_that_share_a_run_are_refused() -> None:
    with pytest.raises(ParameterError, match="use one_run"):
        threshold(Scores(np.arange(10), np.arange(10) % 2 == 0), delta=0.0)


def test_chance_may_leave_nothing_to_compare() -> None:
    assert threshold(separate(np.arange(10), np.ones(10, bool)), delta=0.0).lower == 0.0
    assert threshold(separate(np.arange(10), np.arange(10) == 3), delta=0.0).lower == 0.0
    with pytest.raises(ParameterError, match="at least 8"):
        threshold(separate(np.arange(4), np.arange(4) % 2 == 0), delta=0.0)


def test_no_hit_beyond_delta_says_nothing() -> None:
    inside = np.arange(40) % 4 < 2
    assert threshold(separate(np.where(inside, 1.0, 0.0), inside), delta=0.99).lower == 0.0
