"""The Rényi accountant: add the divergences of all costs at one order, convert at the best order.

Rényi divergences of one order add under adaptive composition [Mironov2017, Proposition 1], so the
sum over costs, each times its count, converted at *any* order, is a valid bound; the order is
searched for, without an end to the list. Divergences and conversion: docs/proofs/rdp.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from discreet import _validate as check
from discreet.accounting.costs import (
    BallsInBinsGaussian,
    BoundedRange,
    Cost,
    FixedSizeGaussian,
    Gaussian,
    Laplace,
    PoissonGaussian,
    Response,
    TruncatedPoissonGaussian,
)
from discreet.accounting.rdp import divergences
from discreet.accounting.rdp._excess import FloatArray
from discreet.accounting.rdp._orders import best_order
from discreet.accounting.rdp.conversion import delta_from, epsilon_from, log_delta_from
from discreet.errors import AccountingError, ParameterError

__all__ = ["RenyiBound", "composed", "delta", "divergence", "divergence_curve", "epsilon"]

# So many costs are looked at while the order is searched for.
_ENOUGH = 16


@dataclass(frozen=True, slots=True)
class RenyiBound:
    """An upper bound on epsilon (or delta) and the order at which it was found."""

    value: float
    order: float


def epsilon(counted: Sequence[tuple[Cost, int]], *, delta: float) -> RenyiBound:
    """The smallest epsilon found at this delta; infinity where no order gives one.

    | case                                             | value      | order    |
    |--------------------------------------------------|------------|----------|
    | no costs, any delta                              | 0.0        | infinity |
    | delta 0, losses without bound (Gaussian)         | infinity   | infinity |
    | delta 0, bounded losses (Laplace, ...)           | their sum  | infinity |
    | counts of 0, or delta so large that 0 is enough  | 0.0        | finite   |
    | so little noise that every divergence overflows  | infinity   | infinity |
    | so much noise that every divergence underflows   | 0.0        | finite   |
    | delta 1, a negative count                        | ParameterError        |

    >>> round(epsilon([(PoissonGaussian(0.005, 1.0), 200)], delta=1e-6).value, 4)
    1.2172
    """
    delta = check.fraction("rdp.epsilon", "delta", delta, zero=True)

    # The divergence of order infinity is the largest loss: an epsilon at delta 0.
    pure = composed(counted, math.inf)
    if not counted or delta == 0.0:
        return RenyiBound(pure, math.inf)

    # The order is chosen from rough values; the bound is computed from all costs, rounded up.
    rough = _representatives(counted)
    order = best_order(lambda order: epsilon_from(_rough(rough, order), order, delta))
    value = epsilon_from(composed(counted, order), order, delta)
    return RenyiBound(pure, math.inf) if pure <= value else RenyiBound(value, order)


def delta(counted: Sequence[tuple[Cost, int]], *, epsilon: float) -> RenyiBound:
    """The smallest delta found at this epsilon.

    | case                                             | value                        | order    |
    |--------------------------------------------------|------------------------------|----------|
    | no costs, or bounded losses with a sum of at     | 0.0                          | infinity |
    | most epsilon                                     |                              |          |
    | counts of 0                                      | a number below 1e-13         | finite   |
    | a delta that underflows                          | the smallest positive number | finite   |
    | so little noise that every divergence overflows  | 1.0                          | finite   |
    | an infinite or a negative epsilon                | ParameterError                          |

    >>> delta([(Gaussian(1.0), 1)], epsilon=5.3).value < 1e-6
    True
    """
    epsilon = check.real("rdp.delta", "epsilon", epsilon)
    if epsilon < 0.0:
        raise ParameterError(
            owner="rdp.delta", name="epsilon", expected="at least 0", got=repr(epsilon)
        )

    # No loss is larger than epsilon, so nothing is left for delta to cover.
    if composed(counted, math.inf) <= epsilon:
        return RenyiBound(0.0, math.inf)

    rough = _representatives(counted)
    order = best_order(lambda order: log_delta_from(_rough(rough, order), order, epsilon))
    return RenyiBound(delta_from(composed(counted, order), order, epsilon), order)


def _representatives(counted: Sequence[tuple[Cost, int]]) -> Sequence[tuple[Cost, int]]:
    """A few costs that stand for their neighbours: enough to choose an order, which cannot make a
    bound wrong.
    """
    # Costs are in canonical order, so those of a block are alike; the middle one stands for all.
    block = -(-len(counted) // _ENOUGH)  # rounded up
    blocks = (counted[first : first + block] for first in range(0, len(counted), block or 1))
    return [(part[len(part) // 2][0], sum(count for _, count in part)) for part in blocks]


def _rough(counted: Sequence[tuple[Cost, int]], order: float) -> float:
    """About the value of `composed`, faster and without any claim."""
    total = 0.0

    for cost, count in counted:
        # A coarse grid chooses as good an order, and is several times as fast.
        if isinstance(cost, PoissonGaussian):
            total += count * divergences.rough_poisson_gaussian(
                cost.probability, cost.noise_multiplier, order, replace=cost.replace
            )
        else:
            total += count * divergence(cost, order)

    return total


def divergence_curve(
    counted: Sequence[tuple[Cost, int]], orders: Sequence[float] | FloatArray
) -> FloatArray:
    """The composed divergence at each of many orders, all above 1."""
    return np.array([composed(counted, float(order)) for order in orders], dtype=np.float64)


def composed(counted: Sequence[tuple[Cost, int]], order: float) -> float:
    """The sum over costs of count times divergence, rounded up.

    | case                                             | result                       |
    |--------------------------------------------------|------------------------------|
    | no costs                                         | 0.0                          |
    | order infinity, losses without bound (Gaussian)  | infinity                     |
    | the same with a count of 0                       | NaN, never read as a bound   |
    | an order of 1 or less                            | ParameterError               |

    >>> 3.0 < composed([(Gaussian(2.0), 8)], 3.0) < 3.000001  # 8 * 3/(2*2^2), a little more
    True
    """
    if not order > 1.0:
        raise ParameterError(
            owner="rdp", name="order", expected="a number above 1", got=repr(order)
        )

    # Rounded once, whatever the number of costs; each product was rounded before.
    total = math.fsum(
        check.whole("rdp", "count", count, least=0) * divergence(cost, order)
        for cost, count in counted
    )
    return total * (1.0 + 2.0**-50)


@lru_cache(maxsize=1 << 14)
def divergence(cost: Cost, order: float) -> float:
    """Rényi divergence of one cost at one order above 1, the larger of its two directions, rounded
    up.
    """
    match cost:
        case Gaussian(noise_multiplier=noise) | BallsInBinsGaussian(noise_multiplier=noise):
            # Balls in bins: a mixture is no further from N(0) than its furthest part; no
            # amplification is claimed here.
            value = divergences.gaussian_divergence(order, noise_multiplier=noise)

        case PoissonGaussian(probability=probability, noise_multiplier=noise, replace=replace):
            sampled = (
                divergences.poisson_gaussian_replace if replace else divergences.poisson_gaussian
            )
            value = sampled(order, probability=probability, noise_multiplier=noise)

        case TruncatedPoissonGaussian():
            value = _truncated(cost, order)

        case FixedSizeGaussian(size=size, records=records, noise_multiplier=noise):
            # Rounded up: the divergence grows with the fraction (data processing).
            fraction = min(1.0, math.nextafter(size / records, 1.0))
            value = divergences.fixed_size_gaussian(
                order, fraction=fraction, noise_multiplier=noise
            )

        case Laplace(noise_multiplier=noise):
            value = divergences.laplace(order, scale=noise)

        case BoundedRange(epsilon=spread):
            value = divergences.bounded_range(order, spread=spread)

        case Response(categories=categories, truth_probability=truth):
            value = divergences.randomized_response(
                order, categories=categories, truth_probability=truth
            )

        case _:
            raise AccountingError(
                expected="a cost of the vocabulary",
                got=type(cost).__name__,
                do="Add its Rényi divergence, with a proof, first.",
            )

    return value


def _truncated(cost: TruncatedPoissonGaussian, order: float) -> float:
    """The divergence of a truncated Poisson sample, for every adjacency."""
    return divergences.truncated_poisson_gaussian(
        order,
        probability=cost.probability,
        overflow=divergences.truncation_probability(cost.records, cost.probability, cost.limit),
        noise_multiplier=cost.noise_multiplier,
        replace=cost.replace,
    )
