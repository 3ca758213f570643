"""Scaled noise with the real accountant: most of the claim, never more, and noise that is too small
is found.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

import discreet as dp
from discreet.accounting import account
from discreet.accounting.gaussian import gaussian_epsilon
from discreet.accounting.meaning.tradeoff import Profile, profile_of
from discreet.auditing import Estimate, gaussian, scaled
from discreet.auditing.estimators.scaled import _epsilon
from discreet.canaries import Scores
from discreet.errors import ParameterError

DELTA = 1e-5


def steps(
    probability: float, noise: float, count: int, scale: float
) -> list[tuple[dp.ledger.Step, int]]:
    policy = dp.Everything() if probability == 1.0 else dp.Poisson(probability)
    return [(dp.ledger.Step(policy, [dp.ledger.GaussianSum("sum", 1.0, noise * scale)]), count)]


def run(probability: float, noise: float, count: int, canaries: int, seed: int) -> Scores:
    """Log-likelihood ratios of canaries, each alone on its coordinate."""
    rng = np.random.default_rng(seed)
    inside = rng.random(canaries) < 0.5
    total: NDArray[np.float64] = np.zeros(canaries)
    for _ in range(count):
        seen = noise * rng.normal(size=canaries) + (inside & (rng.random(canaries) < probability))
        ratio = (seen - 0.5) / noise**2
        total += (
            ratio
            if probability == 1.0
            else np.logaddexp(math.log1p(-probability), math.log(probability) + ratio)
        )
    return Scores(total, inside)


def audited(scores: Scores, probability: float, noise: float, count: int) -> tuple[Estimate, int]:
    asked: list[float] = []

    def profile(scale: float) -> Profile:
        asked.append(scale)
        return profile_of(
            steps(probability, noise, count, scale), adjacency=dp.Adjacency.ADD_OR_REMOVE
        )

    def epsilon(scale: float) -> float:
        return account(
            steps(probability, noise, count, scale),
            delta=DELTA,
            adjacency=dp.Adjacency.ADD_OR_REMOVE,
        ).lower

    return scaled(scores, epsilon=epsilon, profile=profile, delta=DELTA), len(asked)


CASES = [  # probability, noise, steps, claimed epsilon at delta 1e-5 (rounded down)
    (1.0, 3.73, 1, 1.0),
    (1.0, 0.6, 1, 8.0),
    (0.1, 3.95, 100, 1.0),
    (0.1, 0.938, 100, 7.99),
]


@pytest.mark.parametrize(("probability", "noise", "count", "claim"), CASES)
def test_most_of_the_claim_is_reached_and_never_more(
    probability: float, noise: float, count: int, claim: float
) -> None:
    found, asked = audited(
        run(probability, noise, count, 50_000, seed=5), probability, noise, count
    )
    assert 0.8 * claim < found.lower < claim * 1.001
    assert asked <= 13
    assert "ledger's kind" in found.assumes


@pytest.mark.parametrize(("probability", "noise", "count", "claim"), CASES[1::2])
def test_p23_half_the_noise_is_found(
    probability: float, noise: float, count: int, claim: float
) -> None:
    found, _ = audited(
        run(probability, noise / 2.0, count, 10_000, seed=6), probability, noise, count
    )
    assert found.lower > 1.5 * claim


def test_no_noise_at_all_is_found() -> None:
    """The accountant is asked about a 64th of the noise, and answers."""
    inside = np.random.default_rng(7).random(20_000) < 0.5
    assert audited(Scores(inside.astype(float), inside), 0.1, 0.938, 100)[0].lower > 100.0


@pytest.mark.parametrize("noise", [4.0, 1.0, 0.5])
def test_the_closed_form_agrees_with_the_accountant(noise: float) -> None:
    scores = run(1.0, noise, 1, 20_000, seed=8)
    low, high = gaussian(scores, delta=DELTA).lower, audited(scores, 1.0, noise, 1)[0].lower
    assert low == pytest.approx(
        high, rel=2e-2
    )  # scales are looked at in steps of 0.2 %, profiles are 1 % too high


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [0.1, 1e-5, 1e-12])
def test_epsilon_of_a_gaussian_is_rounded_down_and_close(mu: float, delta: float) -> None:
    low, high = gaussian_epsilon(1.0 / mu, delta)
    assert _epsilon(mu, delta) <= high
    assert _epsilon(mu, delta) == pytest.approx(low, rel=1e-6, abs=1e-9)


def test_scores_without_information_bound_nothing() -> None:
    inside = np.random.default_rng(3).random(1000) < 0.5
    scores = Scores(np.random.default_rng(4).normal(size=1000), inside)
    assert gaussian(scores, delta=DELTA, confidence=0.999).lower == 0.0
    assert audited(scores, 1.0, 1.0, 1)[0].lower < 0.5


def test_parameters_are_checked() -> None:
    inside = np.random.default_rng(6).random(40) < 0.5
    scores = Scores(np.arange(40), inside)
    for wrong in ({"delta": 0.0}, {"delta": 0.1, "confidence": 1.5}):
        with pytest.raises(ParameterError):
            gaussian(scores, **wrong)
    with pytest.raises(ParameterError, match="profile"):
        scaled(scores, epsilon=lambda _: 1.0, profile=lambda _: lambda _: 1.5, delta=DELTA)
    with pytest.raises(ParameterError, match="fair coins"):
        gaussian(Scores(np.arange(40), np.arange(40) < 20), delta=DELTA)
