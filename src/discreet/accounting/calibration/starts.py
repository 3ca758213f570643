"""About how much privacy steps cost, as the Gaussian they come to in the limit: where searches
start, never an answer.
"""

from __future__ import annotations

import math

from discreet.ledger.events import GaussianSum, Sampling, Step
from discreet.ledger.folding import folded_noise_multiplier
from discreet.units import Adjacency

__all__ = ["amplification", "inverse_square", "log_expm1", "noise_slope", "square_parameter"]


def square_parameter(step: Step, count: int, factor: float) -> float:
    """About mu^2 of the Gaussian that these steps come to."""
    gaussians = [query for query in step.queries if isinstance(query, GaussianSum)]

    # Other noise has no parameter of this kind; leaving it out only moves the start.
    if not gaussians:
        return 0.0

    # The central limit of `approximations`, for any policy.
    probability, draws, distance = amplification(step.sampling)
    inverse = inverse_square(factor * folded_noise_multiplier(gaussians) / distance)
    each = inverse if probability == 1.0 else probability**2 * math.expm1(inverse)
    return count * draws * each


def amplification(sampling: Sampling) -> tuple[float, float, float]:
    """About (probability, draws in a step, distance of the means)."""
    # A start needs no proof: what amplifies under any adjacency is taken to do so here.
    if not sampling.amplifies(Adjacency.ZERO_OUT):
        return 1.0, 1.0, sampling.worst_shift

    draws = float(sampling.batches_per_step)
    return sampling.inclusion_probability, draws, sampling.worst_shift


def noise_slope(noise_multiplier: float) -> float:
    """Slope d ln sqrt(e^(1/s^2) - 1) / d ln s."""
    # Without sampling, or at large noise, epsilon falls like 1/s.
    inverse = inverse_square(noise_multiplier)
    return -inverse / -math.expm1(-inverse) if inverse > 1e-12 else -1.0


def inverse_square(value: float) -> float:
    """1 / value^2, held between 1e-300 and 700 so that its exponential stays finite."""
    return max(1e-300, min(1.0 / value / value, 700.0))


def log_expm1(value: float) -> float:
    """Logarithm of exp(value) - 1, also where the exponential would overflow."""
    return value if value > 40.0 else math.log(math.expm1(value))
