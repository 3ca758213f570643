"""From a Rényi divergence at one order to (epsilon, delta), and back [Canonne2020, Proposition 12;
Asoodeh2021].

If the Rényi divergence of order a is at most r, then for every real epsilon

    delta(epsilon) <= exp((a-1)(r - epsilon)) / (a-1) * (1 - 1/a)^a,

because delta = E_P[(1 - e^(epsilon - L))_+] and (1 - e^-y)_+ <= e^((a-1) y) (1 - 1/a)^a / (a-1) for
every y (docs/proofs/rdp.md, section 4). An epsilon below 0 is therefore as valid as any other, and
(0, delta) follows from it: only here is a result raised to 0.
"""

from __future__ import annotations

import math

__all__ = ["delta_from", "epsilon_from", "log_delta_from"]

# Rounding of a sum of a few terms, relative to their sizes.
_ULPS = 2.0**-48

# A delta that underflows is not 0.
_SMALLEST = math.ulp(0.0)


def epsilon_from(divergence: float, order: float, delta: float) -> float:
    """An epsilon that is met at this delta, rounded up.

    | case                    | result                                                 |
    |-------------------------|--------------------------------------------------------|
    | an infinite divergence  | infinity                                               |
    | order infinity          | the divergence: the largest log-ratio, at every delta  |
    | delta 0, a finite order | infinity                                               |
    | a negative solution     | 0                                                      |
    """
    if math.isinf(divergence) or math.isinf(order):
        return divergence

    if delta == 0.0:
        return math.inf

    # The bound of the header, solved for epsilon.
    tail = (math.log(delta) + math.log(order)) / (order - 1.0)
    shape = math.log1p(-1.0 / order)

    # The sizes of what is added up, for its rounding.
    sizes = divergence + abs(shape) + (abs(math.log(delta)) + math.log(order) + 1.0) / (order - 1.0)
    return max(0.0, divergence + shape - tail + _ULPS * sizes)


def delta_from(divergence: float, order: float, epsilon: float) -> float:
    """A delta that is met at this epsilon, rounded up; at most 1.

    | case                    | result                                                 |
    |-------------------------|--------------------------------------------------------|
    | an infinite divergence  | 1                                                      |
    | order infinity          | 0 if the divergence is at most epsilon, else 1         |
    | a delta that underflows | the smallest positive number                           |
    """
    if math.isinf(order):
        return 0.0 if divergence <= epsilon else 1.0

    # A logarithm above 0 is a delta above 1, which says nothing; its exponential might overflow.
    log = log_delta_from(divergence, order, epsilon)
    return min(1.0, max(_SMALLEST, math.exp(min(0.0, log)) * (1.0 + _ULPS)))


def log_delta_from(divergence: float, order: float, epsilon: float) -> float:
    """The logarithm of `delta_from` at a finite order, not cut at 1, so that a search sees where to
    go.
    """
    if math.isinf(divergence):
        return math.inf

    # The logarithm of (1 - 1/a)^a / (a - 1) is (a - 1) ln(1 - 1/a) - ln a.
    shape = math.log1p(-1.0 / order)
    log = (order - 1.0) * (divergence - epsilon + shape) - math.log(order)
    sizes = (order - 1.0) * (divergence + epsilon + abs(shape)) + math.log(order) + 1.0
    return log + _ULPS * sizes
