"""Rényi divergence of each mechanism at one order, rounded up.

`order` is a real number above 1, or infinity (the largest log-ratio, infinite where it is
unbounded). The divergence is D = ln(A) / (order - 1) with the moment A = E_Q[(P/Q)^order]; all are
the largest over both directions of their adjacency. Proofs: docs/proofs/rdp.md.

| case                                              | result                           |
|---------------------------------------------------|----------------------------------|
| a divergence that underflows (noise without end)  | the smallest positive number     |
| a divergence that overflows (hardly any noise)    | infinity                         |
| order infinity, a Gaussian                        | infinity                         |
| order infinity, bounded losses                    | the largest loss                 |
| probability or fraction 1                         | that of the whole data set       |
| a moment that is too costly to sum up             | that of the whole data set       |
"""

from __future__ import annotations

import math

import numpy as np

from discreet.accounting._binomial import at_least
from discreet.accounting.costs import Response
from discreet.accounting.rdp import sampled_gaussian
from discreet.accounting.rdp._excess import exp_excess

__all__ = [
    "bounded_range",
    "fixed_size_gaussian",
    "gaussian_divergence",
    "laplace",
    "poisson_gaussian",
    "poisson_gaussian_replace",
    "randomized_response",
    "rough_poisson_gaussian",
    "truncated_poisson_gaussian",
    "truncation_probability",
]

# A factor that covers the rounding of every closed form here.
_OUTWARD = 1.0 + 2.0**-44

# A divergence that underflows is not nothing (P37).
_SMALLEST = math.ulp(0.0)

# Above e^30 a moment is summed as a logarithm.
_LINEAR = 30.0

# A bounded range beyond this gives nothing over its own spread.
_FAR = 500.0


def gaussian_divergence(order: float, *, noise_multiplier: float) -> float:
    """The Gaussian mechanism: order / (2 s^2) [Mironov2017, Proposition 7]."""
    # Products, not powers: they overflow to infinity without an exception.
    inverse = 1.0 / noise_multiplier
    return max(_SMALLEST, 0.5 * order * inverse * inverse * _OUTWARD)


def poisson_gaussian(order: float, *, probability: float, noise_multiplier: float) -> float:
    """Poisson sample, one record added, removed or zeroed out: A = E[a^order] [Mironov2019].

    The removal dominates the addition at every order (docs/proofs/rdp.md, theorem 2), so one moment
    serves both.
    """
    whole = gaussian_divergence(order, noise_multiplier=noise_multiplier)
    if probability == 1.0 or math.isinf(order):
        return whole

    # Sampling never costs more than no sampling; where the sum is too costly, `log` is infinite.
    log = sampled_gaussian.log_moment(
        order, 0.0, probability=probability, noise_multiplier=noise_multiplier
    )
    return min(whole, _per_order(log, order))


def poisson_gaussian_replace(order: float, *, probability: float, noise_multiplier: float) -> float:
    """Poisson sample, one record exchanged: A = E[a^order b^(1-order)] (docs/proofs/rdp.md, theorem
    3).
    """
    # Always drawn, the exchanged record moves the sum by up to twice the sensitivity.
    whole = gaussian_divergence(order, noise_multiplier=noise_multiplier / 2.0)
    if probability == 1.0 or math.isinf(order):
        return whole

    log = sampled_gaussian.log_moment(
        order, order - 1.0, probability=probability, noise_multiplier=noise_multiplier
    )
    return min(whole, _per_order(log, order))


def rough_poisson_gaussian(
    probability: float, noise_multiplier: float, order: float, *, replace: bool
) -> float:
    """About `poisson_gaussian` or `poisson_gaussian_replace`, for choosing an order; no bound."""
    down, unsampled = (order - 1.0, noise_multiplier / 2.0) if replace else (0.0, noise_multiplier)
    log = sampled_gaussian.rough_log_moment(
        order, down, probability=probability, noise_multiplier=noise_multiplier
    )
    return min(gaussian_divergence(order, noise_multiplier=unsampled), log / (order - 1.0))


def fixed_size_gaussian(order: float, *, fraction: float, noise_multiplier: float) -> float:
    """A sample of fixed size without replacement, one record exchanged (docs/proofs/rdp.md, theorem
    4).

    A <= E[a^order] + E[a^(1-order)] - 1, with `fraction` = size / records for the probability and
    half the noise multiplier, because the exchanged record may be as far as twice the sensitivity
    from the one that takes its place. At least twice as tight at small fractions as [Wang2019,
    Theorem 27].
    """
    half = noise_multiplier / 2.0
    whole = gaussian_divergence(order, noise_multiplier=half)
    if fraction == 1.0 or math.isinf(order):
        return whole

    up = sampled_gaussian.log_moment(order, 0.0, probability=fraction, noise_multiplier=half)
    down = sampled_gaussian.log_moment(
        0.0, order - 1.0, probability=fraction, noise_multiplier=half
    )

    # An infinite moment only says that its grid would be too large.
    if math.isinf(up) or math.isinf(down):
        return whole

    log = _log_sum_minus_one(max(up, down), min(up, down))
    return min(whole, _per_order(log * _OUTWARD, order))


def truncated_poisson_gaussian(
    order: float, *, probability: float, overflow: float, noise_multiplier: float, replace: bool
) -> float:
    """A Poisson sample cut to a limit (docs/proofs/rdp.md, theorem 5).

    With `overflow` >= P[the other records alone fill the sample], A <= (1 - overflow) A_plain +
    overflow A_cut: A_plain without any cut, A_cut as for a fixed size, since a cut may exchange one
    record for another. Every adjacency.
    """
    cut = fixed_size_gaussian(order, fraction=probability, noise_multiplier=noise_multiplier)
    sampled = poisson_gaussian_replace if replace else poisson_gaussian
    plain = sampled(order, probability=probability, noise_multiplier=noise_multiplier)
    if overflow >= 1.0 or plain >= cut or math.isinf(order):
        return max(plain, cut)

    # ln((1 - p) e^low + p e^high) with p the overflow: as 1 + excess where that does not overflow.
    low, high = (order - 1.0) * plain, (order - 1.0) * cut

    if high < _LINEAR:
        log = math.log1p(math.expm1(low) + overflow * math.exp(low) * math.expm1(high - low))
    else:
        log = float(np.logaddexp(low, math.log(overflow) + high)) if overflow else low

    rounding = 2.0**-46 * (low + (high if overflow else 0.0))
    return min(cut, _per_order(log + rounding, order))


def truncation_probability(records: int, probability: float, limit: int) -> float:
    """P[Binomial(records, probability) >= limit], rounded up."""
    return at_least(limit, records, probability)[1]


def laplace(order: float, *, scale: float) -> float:
    """Laplace noise of `scale` times the L1 sensitivity, any dimension [Mironov2017, Proposition
    6].

    With x = 1/scale: (2a-1) (A - 1) = a E((a-1) x) + (a-1) E(-a x),  E(v) = e^v - 1 - v.
    """
    # Rounded up first: every divergence below grows with x.
    x = 1.0 / scale * (1.0 + 2.0**-52)
    if math.isinf(order):
        return x * _OUTWARD

    rise = (order - 1.0) * x

    if rise > _LINEAR:
        # The same moment, its largest exponential taken out.
        log = (
            rise
            + math.log(order / (2.0 * order - 1.0))
            + math.log1p((order - 1.0) / order * math.exp(-(2.0 * order - 1.0) * x))
        )
        return min(x * _OUTWARD, _per_order(log + 2.0**-46 * (rise + 4.0), order))

    above, below = exp_excess(np.array([rise, -order * x]))
    log = math.log1p((order * above + (order - 1.0) * below) / (2.0 * order - 1.0))
    return min(x * _OUTWARD, _per_order(log, order))


def bounded_range(order: float, *, spread: float) -> float:
    """Log-ratios that spread over at most `spread`, as of the exponential mechanism
    [DongDurfeeRogers2020].

    A moment is convex in the ratio, so two values t and t - spread are worst; the best t is a
    stationary point in closed form (docs/proofs/rdp.md, theorem 6). order*spread^2/8
    [CesarRogers2021] takes over where that form would cancel.
    """
    if math.isinf(order):
        return spread * _OUTWARD

    concentrated = max(_SMALLEST, min(order * spread * spread / 8.0, spread) * _OUTWARD)
    if spread > _FAR or (order - 1.0) * spread < 1e-6:
        return concentrated

    # y = (order-1) c1/(order c2) and the value y^(order-1) c1/order of theorem 6, as logarithms.
    wide = math.log(-math.expm1(-order * spread))
    ratio = (
        math.log1p(-1.0 / order) + wide + spread - math.log(-math.expm1(-(order - 1.0) * spread))
    )
    mass = wide - math.log(-math.expm1(-spread)) - math.log(order)
    sizes = (
        abs(ratio)
        + spread
        + (abs(mass) + abs(wide) + math.log(order)) / (order - 1.0)
        + 8.0 * order / (order - 1.0)
    )
    return min(concentrated, max(0.0, ratio + mass / (order - 1.0) + 2.0**-48 * sizes))


def randomized_response(order: float, *, categories: int, truth_probability: float) -> float:
    """One record exchanged: ratio p/r with probability r, r/p with probability p, else 1; r =
    (1-p)/(categories-1).

    With gap = ln(p/r):  A - 1 = p e^-gap G(gap) + p G(-gap),  G(y) = E(order y) - order E(y), the
    distance of x^order from its tangent, E(v) = e^v - 1 - v.
    """
    truth = truth_probability
    gap = Response(categories, truth).gap
    neither = max(0.0, (categories - 2) * ((1.0 - truth) / (categories - 1)))
    if math.isinf(order):
        return gap * _OUTWARD

    if order * gap > _LINEAR:
        # The moment itself, its largest term taken out: no 1 is left to be subtracted.
        high = math.log(truth) + (order - 1.0) * gap
        low = truth * math.exp(-order * gap) + neither
        log = high + math.log1p(low * math.exp(-high))
        return min(gap * _OUTWARD, _per_order(log + 2.0**-46 * (abs(high) + 4.0), order))

    # G is a difference of two positive numbers; the slack covers what cancels.
    rise, fall, up, down = exp_excess(np.array([order * gap, -order * gap, gap, -gap]))
    rare = math.exp(-gap)
    moment = truth * (rare * (rise - order * up) + (fall - order * down))
    slack = 2.0**-44 * truth * (rare * (rise + order * up) + (fall + order * down))
    return min(gap * _OUTWARD, _per_order(math.log1p(max(0.0, moment) + slack), order))


def _log_sum_minus_one(larger: float, smaller: float) -> float:
    """ln(e^larger + e^smaller - 1), both >= 0."""
    if larger < _LINEAR:
        return math.log1p(math.expm1(larger) + math.expm1(smaller))

    return larger + math.log1p(math.exp(smaller - larger) - math.exp(-larger)) + 2.0**-40


def _per_order(log_moment: float, order: float) -> float:
    """The divergence ln(A) / (order - 1), rounded up."""
    return max(_SMALLEST, log_moment / (order - 1.0) * _OUTWARD)
