"""How often audits of mechanisms whose epsilon is known state too much: at most as often as they
admit.

`AUDITS` audits at confidence 0.9 state a bound above the truth with probability at most 0.1 each,
independently. Of 200, more than 43 do with probability at most 4.7e-7, so that `assert_covered`
fails for right code with probability below alpha = 1e-6; seeds are fixed besides. A wrong estimator
that errs with probability 0.4 is caught with probability 1 - 2.2e-8.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from discreet.auditing import Estimate
from discreet.canaries import Scores

AUDITS = 200
MOST_MISSES = 43
CONFIDENCE = 0.9
LEAKED = 0.1

Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]
Mechanism = Callable[[np.random.Generator, Coins], Floats]


def randomised_response(rng: np.random.Generator, coins: Coins, epsilon: float = 1.0) -> Floats:
    """Each coin, true with probability e^eps / (1 + e^eps), and a number that says nothing: exactly
    (epsilon, 0)-private.
    """
    true = rng.random(coins.size) < 1.0 / (1.0 + np.exp(-epsilon))
    return np.where(coins == true, 1.0, -1.0) + 0.5 * rng.random(coins.size)


def leaky(rng: np.random.Generator, coins: Coins) -> Floats:
    """Each coin for all to see with probability 0.1, else nothing: exactly (0, 0.1)-private."""
    noise = rng.random(coins.size) - 0.5
    return np.where(
        rng.random(coins.size) < LEAKED, np.where(coins, 2.0, -2.0) + 0.1 * noise, noise
    )


def all_or_nothing(rng: np.random.Generator, coins: Coins) -> Floats:
    """All coins with probability 0.5, else nothing: exactly (0, 0.5)-private, and canaries far from
    independent.
    """
    noise = rng.random(coins.size) - 0.5
    return noise + (4.0 * coins if rng.random() < 0.5 else 0.0)


def unit_gaussian(rng: np.random.Generator, coins: Coins) -> Floats:
    """The coin plus N(0, 1): epsilon is 4.37717 at delta 1e-5 (noise multiplier 1)."""
    return coins + rng.normal(size=coins.size)


def stated(
    audit: Callable[[Scores], Estimate], mechanism: Mechanism, *, canaries: int, alone: bool = False
) -> list[float]:
    """The bounds of many audits; `alone`: each canary in a run of its own."""
    rng = np.random.default_rng(20261116)
    bounds = []
    for _ in range(AUDITS):
        coins = rng.random(canaries) < 0.5
        trials = np.arange(canaries) if alone else None
        bounds.append(audit(Scores(mechanism(rng, coins), coins, trials=trials)).lower)
    return bounds


def assert_covered(bounds: list[float], truth: float) -> None:
    misses = sum(bound > truth for bound in bounds)
    assert misses <= MOST_MISSES, f"{misses} of {len(bounds)} bounds are above the truth"
