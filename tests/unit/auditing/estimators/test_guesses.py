"""Clopper-Pearson bounds against exact rational sums: never on the flattering side, and close.
Halves, coins, and limits that no canary has a part in.
"""

import math
from fractions import Fraction
from math import comb

import mpmath
import numpy as np
import pytest

from discreet.auditing.estimators.guesses import (
    checked_coins,
    halves,
    highest_rate,
    lowest_count,
    lowest_rate,
    wrong_guesses,
)
from discreet.canaries import Scores
from discreet.errors import ParameterError

COUNTS = [(0, 1), (1, 1), (0, 20), (1, 20), (7, 20), (19, 20), (20, 20), (9, 100), (99, 100)]


def exact_tail(count: int, trials: int, probability: float) -> Fraction:
    p = Fraction(probability)
    return sum(
        (comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(count, trials + 1)),
        Fraction(0),
    )


@pytest.mark.parametrize(("count", "trials"), COUNTS)
@pytest.mark.parametrize("error", [0.25, 0.05, 1e-6])
def test_bounds_satisfy_their_inequality_exactly_and_hardly_more(
    count: int, trials: int, error: float
) -> None:
    low, high = lowest_rate(count, trials, error=error), highest_rate(count, trials, error=error)
    assert 0.0 <= low <= count / trials <= high <= 1.0
    if count:
        assert exact_tail(count, trials, low) <= Fraction(error)
        assert exact_tail(count, trials, low * (1.0 + 1e-6)) > Fraction(error)
    if count < trials:
        assert 1 - exact_tail(count + 1, trials, high) <= Fraction(error)
        assert 1 - exact_tail(count + 1, trials, high - (1.0 - high) * 1e-6) > Fraction(error)


@pytest.mark.parametrize(("count", "trials"), COUNTS)
@pytest.mark.parametrize("probability", [0.001, 0.3, 0.5, 0.99])
def test_tails_are_rounded_up(count: int, trials: int, probability: float) -> None:
    exact = exact_tail(count, trials, probability)
    close = exact * (1 + Fraction(1, 10**8)) + Fraction(1, 10**290)
    assert exact <= Fraction(lowest_count(count, trials, probability)) <= min(Fraction(1), close)


def test_impossible_and_certain_counts() -> None:
    assert lowest_count(0, 5, 0.1) == 1.0
    assert lowest_count(6, 5, 0.1) == 0.0
    assert (lowest_rate(0, 0, error=0.1), highest_rate(0, 0, error=0.1)) == (0.0, 1.0)


def test_wrong_counts_are_refused() -> None:
    for bound, successes in ((lowest_rate, 3), (highest_rate, 3), (lowest_rate, -1)):
        with pytest.raises(ParameterError, match="successes"):
            bound(successes, 2, error=0.1)
    with pytest.raises(ParameterError, match="error"):
        lowest_rate(1, 2, error=0.0)


@pytest.mark.parametrize("probability", [0.001, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("deviations", [0.5, 2.0, 5.0])
def test_tails_of_a_million_trials_against_fifty_digits(
    probability: float, deviations: float
) -> None:
    """Assumption B: masses by their ratios from the first one, whose logarithm is that of 50
    digits.
    """
    n = 1_000_000
    count = round(n * probability + deviations * math.sqrt(n * probability * (1.0 - probability)))
    with mpmath.workdps(50):
        p = mpmath.mpf(probability)
        term = mpmath.exp(
            mpmath.log(mpmath.binomial(n, count))
            + count * mpmath.log(p)
            + (n - count) * mpmath.log(1 - p)
        )
        total = term
        for k in range(count, n):
            term *= (n - k) * p / ((k + 1) * (1 - p))
            total += term
            if term < total * mpmath.mpf(10) ** -30:
                break
        error = float(lowest_count(count, n, probability) / (1.0 + 2.0**-30) / total - 1)
    assert abs(error) < 2.0**-40


def test_halves_do_not_follow_the_scores() -> None:
    """Every second canary, in their own order: a split by score would choose what it measures."""
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 0.0, 9.0, 8.0])
    first, second = halves("owner", Scores(values, np.arange(8) < 5))
    assert (first.ins.tolist(), second.ins.tolist()) == ([3.0, 4.0, 5.0], [1.0, 2.0])
    assert (first.outs.tolist(), second.outs.tolist()) == ([0.0, 8.0], [9.0])
    assert (first.false(0.0), first.missed(4.0), first.missed(3.9)) == (1, 2, 1)


def test_coins_that_may_be_fair_pass_and_others_do_not() -> None:
    fair = np.random.default_rng(1).random(1000) < 0.5
    assert checked_coins("owner", Scores(np.zeros(1000), fair)).inside.tolist() == fair.tolist()
    for wrong in (np.arange(1000) < 500, np.arange(1000) % 2 == 0, np.arange(1000) < 300):
        with pytest.raises(ParameterError, match="fair coins"):
            checked_coins("owner", Scores(np.zeros(1000), wrong))
    with pytest.raises(ParameterError, match="at least 8"):
        checked_coins("owner", Scores([1.0], [True]))


def test_few_canaries_may_have_the_same_coins_by_chance() -> None:
    coins = np.random.default_rng(2).random(63) < 0.5
    run = Scores(np.zeros(63), coins)
    assert checked_coins("owner", Scores.pooled([run, run])).runs == 2


def test_no_canary_has_a_part_in_its_own_limit() -> None:
    """Each but the first 32 is guessed by a limit that does not change with it; moving the last
    canary moves one guess.
    """
    inside = np.random.default_rng(5).random(200) < 0.5
    values = np.where(inside, 1.0, 0.0)
    wrong, guesses = wrong_guesses(Scores(values, inside))
    assert (wrong, guesses) == (0, 168)
    values[-1] = 1e6 if not inside[-1] else -1e6
    assert wrong_guesses(Scores(values, inside)) == (1, 168)
    values[:32] = np.where(
        inside[:32], -1.0, 2.0
    )  # learned wrongly at first, and better with every block
    assert 20 < wrong_guesses(Scores(values, inside))[0] < 80
