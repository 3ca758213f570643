"""Exposure by rank and by fit, and what differential privacy says of it."""

import math
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from discreet.auditing import (
    Exposure,
    exposure_by_fit,
    exposure_by_rank,
    exposure_chance,
    exposure_limit,
)
from discreet.errors import NumericsError, ParameterError


def test_rank_by_hand() -> None:
    others = [5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0]
    assert exposure_by_rank(0.0, others).bits == 3.0
    assert exposure_by_rank(1.5, others).bits == 2.0
    assert exposure_by_rank(9.0, others).bits == 0.0
    assert exposure_by_rank(0.0, others).candidates == 8


def test_a_model_that_tells_nothing_apart_exposes_nothing() -> None:
    """Ties counted for the attack, the named wrong implementation,
    would say log2 1024 = 10 bits.
    """
    assert exposure_by_rank(1.0, np.ones(1023)).bits == 0.0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_without_the_secret_at_most_r_of_n_have_rank_r(losses: list[int]) -> None:
    """The lemma of the proof, for every multiset of losses and every r, ties included."""
    count = len(losses)
    if count < 2:
        return
    ranks = [
        count / 2.0 ** exposure_by_rank(float(one), losses[:place] + losses[place + 1 :]).bits
        for place, one in enumerate(losses)
    ]
    for rank in range(1, count + 1):
        assert sum(found <= rank + 1e-9 for found in ranks) <= rank


def randomised_response(epsilon: float, candidates: int, runs: int) -> np.ndarray[Any, Any]:
    """Exposures of secrets in an epsilon-private release: the secret itself with odds e^epsilon
    against each other one.

    Its neighbour (no secret) releases a uniform candidate, whose probability 1/N is within a factor
    e^epsilon of both.
    """
    rng = np.random.default_rng(5)
    secrets = rng.integers(candidates, size=runs)
    kept = rng.random(runs) < math.exp(epsilon) / candidates
    others = (secrets + rng.integers(1, candidates, size=runs)) % candidates
    told = np.where(kept, secrets, others)
    # The loss is 0 for what was released and 1 for all others.
    return np.where(told == secrets, math.log2(candidates), 0.0)


def test_the_limit_is_kept_and_reached() -> None:
    """P[exposure >= 8 bits] is exactly e^2 / 256 = 0.0289; 100 000 runs: standard deviation
    0.00053.

    Named wrong limits fail: 2^-k without e^epsilon (0.0039), and 2 epsilon in its place (0.21, far
        from reached).
    """
    exposures = randomised_response(2.0, 256, 100_000)
    share = float((exposures >= 8.0).mean())
    limit = exposure_chance(8.0, epsilon=2.0)
    assert share <= limit + 6 * 0.00053
    assert share >= limit - 6 * 0.00053


def test_chance_and_limit_are_inverse_and_rounded_up() -> None:
    for epsilon, delta, probability in ((0.0, 0.0, 0.5), (2.0, 1e-5, 0.05), (8.0, 1e-6, 1e-3)):
        bits = exposure_limit(epsilon=epsilon, delta=delta, probability=probability)
        true = (epsilon - math.log(probability - delta)) / math.log(2.0)
        assert true < bits < true + 1e-9
        assert exposure_chance(true, epsilon=epsilon, delta=delta) >= probability
        assert exposure_chance(bits, epsilon=epsilon, delta=delta) == pytest.approx(
            probability, rel=1e-9
        )
    assert exposure_chance(0.0, epsilon=0.0) == 1.0
    assert exposure_chance(5.0, epsilon=4.0) == 1.0
    assert exposure_chance(5.0, epsilon=1e9) == 1.0
    assert (
        exposure_chance(1e6, epsilon=1e6 * math.log(2.0)) == 1.0
    )  # where the difference is nothing but rounding
    assert exposure_chance(2000.0, epsilon=0.0, delta=0.25) >= 0.25
    assert exposure_chance(2000.0, epsilon=0.0) > 0.0  # 2^-2000 is not nothing


def test_a_fit_finds_the_tail_of_a_normal() -> None:
    losses = np.random.default_rng(1).normal(100.0, 5.0, 20_000)
    for bits in (5.0, 20.0):
        loss = 100.0 + 5.0 * scipy.stats.norm.ppf(2.0**-bits)
        found = exposure_by_fit(loss, losses)
        assert found.bits == pytest.approx(bits, rel=0.2)
        assert found.fit is not None
        assert found.fit > 1e-3
    assert exposure_by_fit(200.0, losses).bits == pytest.approx(0.0, abs=1e-6)
    assert (
        exposure_by_fit(-400.0, losses).bits > 1000.0
    )  # where the cumulative curve is zero in float64


def test_a_fit_to_something_else_is_seen() -> None:
    losses = np.random.default_rng(2).choice([0.0, 10.0], 1000) + np.random.default_rng(3).normal(
        size=1000
    )
    found = exposure_by_fit(-5.0, losses)
    assert found.fit is not None
    assert found.fit < 1e-6
    assert "does not fit" in str(found)


def test_what_it_says() -> None:
    assert "proves nothing" in str(exposure_by_rank(0.0, [1.0, 2.0]))
    assert "extrapolated" in str(Exposure(bits=40.0, candidates=101, fit=0.5))


@pytest.mark.parametrize(
    ("loss", "candidates"),
    [
        (math.nan, [1.0]),
        (1.0, [math.nan]),
        (1.0, []),
        (1.0, [[1.0]]),
        (1.0, ["a"]),
        (True, [1.0]),
        (1.0, [math.inf]),
    ],
)
def test_wrong_losses_are_refused(loss: Any, candidates: Any) -> None:
    with pytest.raises(ParameterError):
        exposure_by_rank(loss, candidates)


def test_too_few_or_equal_losses_are_not_fitted() -> None:
    with pytest.raises(ParameterError, match="at least 100"):
        exposure_by_fit(0.0, np.arange(99.0))
    with pytest.raises(NumericsError, match="same loss"):
        exposure_by_fit(0.0, np.ones(200))


def test_wrong_limits_are_refused() -> None:
    with pytest.raises(ParameterError, match="above delta"):
        exposure_limit(epsilon=1.0, delta=0.1, probability=0.1)
    with pytest.raises(ParameterError):
        exposure_limit(epsilon=-1.0)
    with pytest.raises(ParameterError):
        exposure_chance(-1.0, epsilon=1.0)
    with pytest.raises(ParameterError):
        exposure_chance(1.0, epsilon=1.0, delta=-0.1)
