"""An analyst who chooses every next noise from what was released, against the Gaussian filter.

alpha = 1e-6: each of the two rates is estimated from N = 400,000 paths, so by Hoeffding it is
within sqrt(ln(4/alpha)/(2N)) = 0.0044 of its mean, and the advantage within 0.0088, except with
probability 1e-6. A filter that let through twice the limit would be found out with probability 1 -
1e-6: its advantage is larger by more than 0.1.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import norm

from discreet.accounting.filters import GaussianFilter

PATHS = 400_000
WITHIN = 2 * math.sqrt(math.log(4 / 1e-6) / (2 * PATHS))


def advantage(limit: float, seed: int) -> float:
    """Best guess by likelihood after adaptive steps: noise 3 while the evidence is weak, 1.5 as
    soon as it is strong.
    """
    generator = np.random.default_rng(seed)
    rates = []
    for member in (1.0, 0.0):
        evidence = np.zeros(PATHS)
        spent = np.zeros(PATHS)
        for _ in range(200):
            noise = np.where(np.abs(evidence) < 0.3, 3.0, 1.5)
            cost = noise**-2
            fits = spent + cost <= limit  # what GaussianFilter.admits decides
            if not fits.any():
                break
            output = member + noise * generator.standard_normal(PATHS)
            evidence += np.where(fits, (output - 0.5) * cost, 0.0)
            spent += np.where(fits, cost, 0.0)
        rates.append(float(np.mean(evidence > 0.0)))
    return rates[0] - rates[1]


def test_adaptive_choices_stay_within_the_gaussian_filter() -> None:
    limit = GaussianFilter(2.0, 0.05).limit
    allowed = 2 * norm.cdf(math.sqrt(limit) / 2) - 1
    assert advantage(limit, seed=1) <= allowed + WITHIN
    assert advantage(2 * limit, seed=2) > allowed + WITHIN  # the test can fail
