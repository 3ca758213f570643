"""The one-run bound against the worst mechanisms there are, and what it does with ties, coins and
small numbers.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from discreet.auditing import Estimate, gaussian, one_run
from discreet.auditing.estimators.one_run import p_value
from discreet.canaries import Scores
from discreet.errors import ParameterError
from support.worst_mechanism import most_right_guesses


def bound(canaries: int, guesses: int, right: int, *, epsilon: float, delta: float) -> float:
    chance, leak = p_value(
        np.array([guesses]),
        np.array([right]),
        canaries=canaries,
        epsilon=np.array([epsilon]),
        delta=delta,
    )
    return float(chance[0] + leak[0])


@pytest.mark.parametrize(("canaries", "guesses"), [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("delta", [0.0, 0.01, 0.2])
def test_p43_no_mechanism_betrays_more_than_the_bound(
    canaries: int, guesses: int, epsilon: float, delta: float
) -> None:
    for right in range(1, guesses + 1):
        worst = most_right_guesses(canaries, guesses, right, epsilon=epsilon, delta=delta)
        proven = bound(canaries, guesses, right, epsilon=epsilon, delta=delta)
        assert worst <= proven + 1e-7
        if right == guesses and proven < 1.0:  # the proof loses nothing here
            assert worst == pytest.approx(proven, rel=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("right", [2, 3, 4])
def test_four_canaries(right: int) -> None:
    for guesses in range(right, 5):
        worst = most_right_guesses(4, guesses, right, epsilon=0.5, delta=0.05)
        assert worst <= bound(4, guesses, right, epsilon=0.5, delta=0.05) + 1e-7


def test_the_published_term_for_delta_is_too_small_for_one_right_guess() -> None:
    """Why the bound has a proof of its own: 2 m delta max_i P[v > Bin >= v-i] / i is below what a
    mechanism attains.

    It guesses uniformly with probability 1 - 7 delta, else uniformly among the seven answers that
    are not wholly wrong.
    """
    worst = most_right_guesses(3, 3, 1, epsilon=0.0, delta=0.01)
    published = 7 / 8 + 2 * 3 * 0.01 * (1 / 8)
    assert worst == pytest.approx(7 / 8 + 7 * 0.01 / 8, abs=1e-8)
    assert published + 1e-3 < worst <= bound(3, 3, 1, epsilon=0.0, delta=0.01)


@pytest.mark.parametrize(("guesses", "right"), [(50, 40), (50, 50), (1000, 600), (1000, 995)])
def test_cells_bound_the_sum_from_above_and_closely(guesses: int, right: int) -> None:
    epsilon, delta, canaries = 0.7, 1e-3, 4000
    rest = 1.0 / (1.0 + math.exp(epsilon))
    g = [
        stats.binom.pmf(np.arange(min(n, guesses - right) + 1), n, rest).max()
        for n in range(guesses)
    ]
    exact = canaries * delta * rest * float(np.mean(g))
    _, leak = p_value(
        np.array([guesses]),
        np.array([right]),
        canaries=canaries,
        epsilon=np.array([epsilon]),
        delta=delta,
    )
    assert exact <= leak[0] <= 1.25 * exact


def coins(canaries: int, seed: int = 7) -> np.ndarray:
    return np.random.default_rng(seed).random(canaries) < 0.5


def test_an_attack_that_knows_everything_is_limited_by_the_number_of_canaries_only() -> None:
    inside = coins(2000)
    found = one_run(Scores(np.where(inside, 1.0, 0.0), inside), delta=0.0)
    assert 5.0 < found.lower < -math.log(1.0 / 0.05 ** (1.0 / 1000) - 1.0)  # q^1000 = 0.05 at most
    assert (found.method, found.delta, found.confidence, found.assumes) == (
        "one run",
        0.0,
        0.95,
        "",
    )


def test_an_attack_that_knows_nothing_finds_nothing() -> None:
    inside = coins(1000)
    assert one_run(Scores(np.zeros(1000), inside), delta=0.0).lower == 0.0
    assert one_run(Scores(np.where(inside, -1.0, 1.0), inside), delta=0.0).lower == 0.0


def test_equal_scores_do_not_follow_the_order_of_the_canaries() -> None:
    """Positions tell nothing here, and a rule that broke ties by them would only be right by
    luck.
    """
    inside = coins(200)
    for values in (np.zeros(200), np.arange(200) // 100):
        assert one_run(Scores(values, inside), delta=0.0).lower <= 0.5


def test_delta_costs_and_a_million_canaries_need_many_guesses() -> None:
    inside = coins(4000)
    scores = Scores(inside + np.random.default_rng(1).normal(size=4000), inside)
    bounds = [one_run(scores, delta=delta).lower for delta in (0.0, 1e-5, 1e-2, 0.5)]
    assert bounds[0] >= bounds[1] > 1.0 > bounds[2] >= bounds[3] == 0.0


@pytest.mark.parametrize(
    "inside",
    [np.arange(60) < 30, np.arange(60) % 2 == 0, np.ones(60, bool), np.arange(1000) % 10 == 0],
    ids=["listed first", "in turn", "all in", "another share"],
)
def test_what_is_no_coin_is_refused(inside: np.ndarray) -> None:
    with pytest.raises(ParameterError, match="fair coins"):
        one_run(Scores(np.arange(inside.size), inside), delta=0.0)


@pytest.mark.parametrize("estimator", [one_run, gaussian])
def test_p43_coins_that_served_in_two_runs_are_refused(estimator: Callable[..., Estimate]) -> None:
    """A ranking by something public is right in both runs or in neither: honest code would be
    refuted far too often.
    """
    run, other = (
        Scores(np.arange(100), coins(200)[part]) for part in (slice(100), slice(100, 200))
    )
    in_turn = Scores(np.repeat(run.values, 2), np.repeat(run.inside, 2), trials=np.arange(200) % 2)
    for twice in (Scores.pooled([run, run]), Scores.pooled([run, other, run])):
        with pytest.raises(ParameterError, match="new coins in each run"):
            estimator(twice, delta=1e-5)
    with pytest.raises(ParameterError):
        estimator(in_turn, delta=1e-5)
    assert estimator(Scores.pooled([run, other]), delta=1e-5).lower == 0.0


def test_all_in_is_possible_by_chance_and_says_nothing() -> None:
    assert (
        one_run(Scores(np.arange(10), np.ones(10, bool)), delta=0.0, confidence=0.999).lower == 0.0
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": 1.0},
        {"delta": -0.1},
        {"delta": 0.0, "confidence": 1.0},
        {"delta": 0.0, "confidence": 0},
    ],
)
def test_parameters_are_checked(wrong: dict[str, float]) -> None:
    with pytest.raises(ParameterError):
        one_run(Scores(np.arange(10), coins(10)), **wrong)


def test_too_few_canaries_are_refused() -> None:
    with pytest.raises(ParameterError, match="at least 8"):
        one_run(Scores([1.0, 2.0], [True, False]), delta=0.0)
