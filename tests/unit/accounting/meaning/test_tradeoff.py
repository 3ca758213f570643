from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from discreet.accounting.meaning.tradeoff import (
    Profile,
    TradeOff,
    hit_rate,
    membership_advantage,
    posterior,
)
from discreet.errors import ParameterError


def gaussian(mu: float) -> Profile:
    def delta(epsilon: float) -> float:
        value = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        return min(1.0, max(0.0, float(value)) * (1 + 1e-12))

    return delta


mus = st.floats(0.05, 4.0)
rates = st.floats(1e-5, 0.999)


@given(mu=mus, x=rates)
def test_curve_is_below_the_true_gaussian_trade_off_and_close(mu: float, x: float) -> None:
    truth = norm.cdf(norm.isf(x) - mu)
    curve = TradeOff.of(gaussian(mu), np.linspace(0.0, 3 * mu**2 + 6 * mu, 400).tolist())
    found = float(curve.miss_rate(x))
    assert truth - 0.01 <= found <= truth + 1e-12


@given(mu=mus, x=rates)
def test_hit_rate_is_above_the_best_attack_and_close(mu: float, x: float) -> None:
    truth = norm.cdf(mu - norm.isf(x))
    assert truth - 1e-12 <= hit_rate(gaussian(mu), false_positive_rate=x) <= truth * 1.02 + 1e-3


@given(mu=mus)
def test_advantage_of_a_gaussian(mu: float) -> None:
    assert math.isclose(membership_advantage(gaussian(mu)), 2 * norm.cdf(mu / 2) - 1, rel_tol=1e-9)


@given(mu=mus, prior=st.floats(0.01, 0.99), x=rates)
def test_posterior_is_between_prior_and_one(mu: float, prior: float, x: float) -> None:
    assert prior - 1e-12 <= posterior(gaussian(mu), prior=prior, false_positive_rate=x) <= 1.0


def test_pure_privacy_bounds_the_odds() -> None:
    def pure(epsilon: float) -> float:
        return 0.0 if epsilon >= 1.0 else 1.0

    found = posterior(pure, prior=0.5, false_positive_rate=1e-3)
    assert found >= math.e / (1 + math.e) - 1e-12
    # Rates small enough, the odds grow by e and hardly more (the scan brackets epsilon = 1 from
    # above).
    assert found <= 0.80


def test_more_points_never_loosen_the_curve() -> None:
    few = TradeOff.of(gaussian(1.0), [0.0, 1.0])
    more = TradeOff.of(gaussian(1.0), [0.0, 0.5, 1.0, 2.0])
    x = np.linspace(0, 1, 50)
    assert np.all(more.miss_rate(x) >= few.miss_rate(x))
    assert np.all(np.diff(more.miss_rate(x)) <= 0)


def test_refusals() -> None:
    with pytest.raises(ParameterError):
        TradeOff((), ())
    with pytest.raises(ParameterError):
        TradeOff((1.0,), (0.1, 0.2))
    with pytest.raises(ParameterError):
        TradeOff((-1.0,), (0.1,))
    with pytest.raises(ParameterError):
        membership_advantage(lambda _: 1.5)
    with pytest.raises(ParameterError):
        hit_rate(gaussian(1.0), false_positive_rate=1.5)
