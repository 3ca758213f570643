"""Monte Carlo against the analyses of sampling policies: no sample may contradict a bound, and
wrong analyses are caught.

delta(eps) = E_P (1 - e^(eps - L))_+ is a mean of numbers in [0, 1]. By Hoeffding the mean of n
samples is off by more than r = sqrt(ln(2/alpha) / (2n)) with probability at most alpha = 1e-6. With
n = 1 000 000, r = 0.0027; the wrong analyses that are named below are further off than 2r, so a
right sample catches them with probability at least 1 - 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pytest

from discreet.accounting.costs import (
    BallsInBinsGaussian,
    FixedSizeGaussian,
    PoissonGaussian,
    TruncatedPoissonGaussian,
)
from discreet.accounting.tight.analyses.balls_in_bins import balls_in_bins_directions
from discreet.accounting.tight.analyses.fixed_size import fixed_size_directions
from discreet.accounting.tight.analyses.groups import group_directions
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.analyses.truncated import truncated_directions
from discreet.accounting.tight.lattice.bracket import delta_bracket
from discreet.accounting.tight.lattice.pair import Composition

if TYPE_CHECKING:
    from discreet.accounting.tight.interface import Direction
    from discreet.accounting.tight.rounding import FloatArray

Law: TypeAlias = Sequence[
    tuple[float, tuple[float, ...]]
]  # weight and mean of each spherical Gaussian

ALPHA = 1e-6
SAMPLES = 1_000_000
RADIUS = math.sqrt(math.log(2.0 / ALPHA) / (2.0 * SAMPLES))


def _delta(loss: FloatArray, epsilon: float) -> float:
    return float(np.mean(np.maximum(-np.expm1(epsilon - loss), 0.0)))


def _bounds(direction: Direction, steps: int, epsilon: float) -> tuple[float, float]:
    found = delta_bracket(Composition(((direction, steps),)), epsilon, 1e-3)
    return found.lower, found.upper


def _log_mixture(x: FloatArray, law: Law, noise: float) -> FloatArray:
    """The logarithm of a mixture's density, up to a constant; x has shape (samples, dimensions)."""
    terms = [
        math.log(weight) - np.sum((x - np.array(mean)) ** 2, axis=1) / (2 * noise**2)
        for weight, mean in law
    ]
    total: FloatArray = np.logaddexp.reduce(terms, axis=0)
    return total


def _loss_samples(p: Law, q: Law, noise: float, steps: int, seed: int) -> FloatArray:
    generator = np.random.default_rng(seed)
    total = np.zeros(SAMPLES)
    means = np.array([mean for _, mean in p])
    for _ in range(steps):
        part = generator.choice(len(p), size=SAMPLES, p=[weight for weight, _ in p])
        x = means[part] + noise * generator.standard_normal((SAMPLES, means.shape[1]))
        total += _log_mixture(x, p, noise) - _log_mixture(x, q, noise)
    return total


def test_fixed_size_and_the_curve_above_zero_alone() -> None:
    """Three records with equal pairwise distances: 0.3 of them sampled, the others all equal, one
    exchanged.

    Contributions of norm 1: the others (-1, 0); the record (1/2, sqrt(3)/2) or (1/2, -sqrt(3)/2).
    Noise multiplier 1/2, 8 steps. The right bound holds. The pair of `PoissonRemove`, right for one
    step at every eps >= 0, is too small for eight.
    """
    g, noise, steps = 0.3, 0.5, 8
    same, one, two = (0.0, 0.0), (1.5, math.sqrt(3) / 2), (1.5, -math.sqrt(3) / 2)
    p, q = [(1 - g, same), (g, one)], [(1 - g, same), (g, two)]
    sampled = _delta(_loss_samples(p, q, noise, steps, 1), 0.0)
    right = _bounds(fixed_size_directions(FixedSizeGaussian(3, 10, noise))[0], steps, 0.0)[1]
    wrong = _bounds(PoissonRemove(g, noise / 2), steps, 0.0)[1]
    assert sampled - RADIUS <= right
    assert sampled - 2 * RADIUS > wrong
    single = _delta(_loss_samples(p, q, noise, 1, 2), 0.0)
    assert single - RADIUS <= _bounds(PoissonRemove(g, noise / 2), 1, 0.0)[1]


def test_poisson_accounting_of_a_fixed_size_is_caught() -> None:
    # One record +1 or -1, all others -1: the sum moves by 2 if the record is drawn.
    g, noise, steps, epsilon = 0.2, 1.0, 5, 1.0
    p, q = [(1 - g, (0.0,)), (g, (2.0,))], [(1.0, (0.0,))]
    sampled = _delta(_loss_samples(p, q, noise, steps, 3), epsilon)
    assert (
        sampled - RADIUS
        <= _bounds(fixed_size_directions(FixedSizeGaussian(2, 10, noise))[0], steps, epsilon)[1]
    )
    low, high = _bounds(
        PoissonRemove(g, noise / 2), steps, epsilon
    )  # this data set has just this pair
    assert low - RADIUS <= sampled <= high + RADIUS
    assert (
        sampled - 2 * RADIUS > _bounds(PoissonRemove(g, noise), steps, epsilon)[1]
    )  # P26, fixed size


def test_poisson_accounting_of_shuffled_batches_is_caught() -> None:
    """Zero-out, others -1: P is a mean of N(2 e_t), Q a mean of N(e_t). P26, shuffled."""
    batches, noise, epsilon = 8, 0.7, 2.0
    unit = np.eye(batches)
    p = [(1.0 / batches, tuple(2.0 * unit[t])) for t in range(batches)]
    q = [(1.0 / batches, tuple(unit[t])) for t in range(batches)]
    sampled = _delta(_loss_samples(p, q, noise, 1, 4), epsilon)
    assert sampled - RADIUS <= _bounds(PoissonRemove(1.0, noise), 1, epsilon)[1]
    assert sampled - 2 * RADIUS > _bounds(PoissonRemove(1.0 / batches, noise), batches, epsilon)[1]


@pytest.mark.parametrize("reverse", [False, True])
def test_balls_in_bins(reverse: bool) -> None:
    batches, noise, epsilon = 6, 0.8, 0.5
    p = [(1.0 / batches, tuple(np.eye(batches)[t])) for t in range(batches)]
    q = [(1.0, (0.0,) * batches)]
    first, second = (q, p) if reverse else (p, q)
    upper = _bounds(
        balls_in_bins_directions(BallsInBinsGaussian(batches, noise))[int(reverse)], 1, epsilon
    )[1]
    sampled = _delta(_loss_samples(first, second, noise, 1, 5), epsilon)
    assert sampled - RADIUS <= upper <= sampled + 2 * RADIUS
    wrong = _bounds(PoissonRemove(1.0 / batches**2, noise), batches, epsilon)[
        1
    ]  # the probability of a batch divided twice
    assert reverse or sampled - 2 * RADIUS > wrong


def test_truncated_poisson_on_data_that_are_cut_half_of_the_time() -> None:
    """Others -1, the record +1, add-or-remove: sample sizes are hidden, so the true pair is below
    the dominating one.
    """
    records, limit, probability, noise, epsilon = 6, 2, 0.5, 0.6, 1.0
    p, q = (_cut_law(size, records - 1, limit, probability) for size in (1, 0))
    sampled = _delta(_loss_samples(p, q, noise, 1, 6), epsilon)
    upper = _bounds(
        truncated_directions(TruncatedPoissonGaussian(probability, limit, records, noise))[0],
        1,
        epsilon,
    )[1]
    assert sampled - RADIUS <= upper
    # The named wrong analysis: a limit that only lowers the probability of a draw, as if no other
    # record were moved.
    kept = probability * limit / (probability * records)
    assert sampled - 2 * RADIUS > _bounds(PoissonRemove(kept, noise), 1, epsilon)[1]


def _cut_law(extra: int, others: int, limit: int, probability: float) -> Law:
    """Sums of a cut Poisson sample: `others` records of -1, and `extra` of +1."""
    found: dict[float, float] = {}
    for drawn in range(others + 1):
        mass = math.comb(others, drawn) * probability**drawn * (1 - probability) ** (others - drawn)
        for one in range(extra + 1):
            weight = mass * (probability if one else 1 - probability) if extra else mass
            size = min(drawn + one, limit)
            stays = size / (drawn + one) if one else 0.0
            for mean, part in ((-float(size), 1.0 - stays), (2.0 - size, stays)):
                found[mean] = found.get(mean, 0.0) + weight * part
    return [(weight, (mean,)) for mean, weight in found.items() if weight > 0.0]


def test_groups() -> None:
    k, q, noise, steps, epsilon = 3, 0.1, 1.2, 3, 0.5
    p = [(math.comb(k, i) * q**i * (1 - q) ** (k - i), (float(i),)) for i in range(k + 1)]
    sampled = _delta(_loss_samples(p, [(1.0, (0.0,))], noise, steps, 7), epsilon)
    low, high = _bounds(group_directions(PoissonGaussian(q, noise), size=k)[0], steps, epsilon)
    assert low - RADIUS <= sampled <= high + RADIUS
    # Units whose vectors do not point the same way are below the bound (Kahane): here they are
    # orthogonal.
    orthogonal = [
        (
            math.prod(q if (subset >> i) & 1 else 1 - q for i in range(k)),
            tuple(float((subset >> i) & 1) for i in range(k)),
        )
        for subset in range(2**k)
    ]
    below = _delta(_loss_samples(orthogonal, [(1.0, (0.0,) * k)], noise, steps, 8), epsilon)
    assert below - RADIUS <= high
    assert (
        sampled - 2 * RADIUS > _bounds(PoissonRemove(q, noise), steps, epsilon)[1]
    )  # one unit's pair for three
