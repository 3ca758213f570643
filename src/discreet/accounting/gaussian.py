"""Closed forms for Gaussians without sampling: mu-GDP, certified.

N(mu, 1) against N(0, 1) has [BalleWang2018, Theorem 8; DongRothSu2022, Corollary 1]

    delta(eps) = Phi(a) - e^eps Phi(b),    a = mu/2 - eps/mu,   b = -mu/2 - eps/mu,

and k of them with mu_1 ... mu_k compose to one with mu^2 = sum mu_i^2, exactly, also when chosen in
advance one by one. With a^2 = b^2 - 2 eps and the scaled function erfcx(t) = e^(t^2) erfc(t),
nothing over- or underflows:

    a < 0:   delta = e^(-a^2/2) (erfcx(-a/sqrt 2) - erfcx(-b/sqrt 2)) / 2
    a >= 0:  delta = Phi(a) - e^(-a^2/2) erfcx(-b/sqrt 2) / 2.

Rounding: assumption R of `tight.rounding`, and a relative error of erfcx on t >= 0 of at most 32u
(u = 2^-53; 10,000 arguments up to 1000 against 60 digits: below 9u). Each end of an interval is
proven by its own evaluation (docs/proofs/tight.md, section 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import scipy

from discreet.accounting.roots import crossing
from discreet.ledger.folding import root_below, sum_above

__all__ = ["fold", "gaussian_delta", "gaussian_epsilon", "invert"]

_U = 2.0**-53
_ROOT = math.sqrt(2.0)

# Standard deviations beyond which a tail is below 1e-300.
_FARTHEST = 38.0

# Relative distance from the root at which an end is tried first.
_CLOSEST = 1e-13


def fold(gaussians: Iterable[tuple[float, int]]) -> float:
    """One noise multiplier for (noise multiplier, count) pairs: (sum count / z^2)^(-1/2), rounded
    down.

    >>> fold([(2.0, 4)])
    1.0
    """
    return root_below(
        1 / sum_above([count / Fraction(multiplier) ** 2 for multiplier, count in gaussians])
    )


def gaussian_delta(noise_multiplier: float, epsilon: float) -> tuple[float, float]:
    """Certified (lower, upper) delta of one Gaussian at epsilon >= 0.

    | case                                         | result                                      |
    |----------------------------------------------|---------------------------------------------|
    | epsilon 0                                    | the total variation distance, 2 Phi(mu/2)-1 |
    | epsilon infinite, or so large that delta is  | 0, 1e-300                                   |
    | below the range of float64                   |                                             |
    | hardly any noise (a >= 38)                   | 1 - 1e-15, 1                                |
    | noise without end, epsilon 0                 | 0, and an upper end of about 1e-14          |

    Noise 0 and infinity do not occur: costs refuse them.
    """
    mu = 1.0 / noise_multiplier
    a = 0.5 * mu - epsilon / mu
    b = -0.5 * mu - epsilon / mu

    # So far out Phi(a) is within 1e-300 of 0 or of 1, and the other part is smaller still.
    if abs(a) >= _FARTHEST:
        return (0.0, 1e-300) if a < 0.0 else (1.0 - 1e-15, 1.0)

    # b is negative whatever epsilon is, so its part is always taken in the scaled form.
    size = math.exp(-0.5 * a * a)
    second = 0.5 * size * float(scipy.special.erfcx(-b / _ROOT))
    a_error = 4.0 * _U * (0.5 * mu + epsilon / mu)

    if a < 0.0:
        first = 0.5 * size * float(scipy.special.erfcx(-a / _ROOT))

        # The two parts share the error of e^(-a^2/2): only the difference carries it.
        apart = 64.0 * _U * (first + second) + 0.5 * size * a_error * 2.0
        shared = (first - second) * (4.0 * _U * (1.0 + a * a) + abs(a) * a_error) * 1.01
        error = apart + shared + 1e-300
    else:
        first = float(scipy.special.ndtr(a))

        # d Phi(a) = phi(a) da with phi <= size/2; relative errors of functions, of their arguments,
        # and of the exponential.
        relative = 64.0 * _U * (1.0 + a * a)
        error = (first + second) * (relative + (abs(a) + 1.0) * a_error) + 1e-300

    # Rounding may have made the difference negative; delta is not, nor is it above 1.
    value = first - second
    return max(value - error, 0.0), min(max(value, 0.0) + error, 1.0)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> tuple[float, float]:
    """Certified (lower, upper) epsilon of one Gaussian at delta in (0, 1).

    | case                                               | result                                |
    |----------------------------------------------------|---------------------------------------|
    | delta at least the total variation distance        | 0, 0                                  |
    | delta 0                                            | 0, infinity                           |
    | so little noise that epsilon is beyond 1e300       | 0, infinity                           |
    """
    mu = 1.0 / noise_multiplier
    return invert(
        lambda epsilon: gaussian_delta(noise_multiplier, epsilon), delta, 0.5 * mu * mu + 8.0 * mu
    )


def invert(
    curve: Callable[[float], tuple[float, float]],
    delta: float,
    start: float,
    rough: Callable[[float], float] | None = None,
) -> tuple[float, float]:
    """(lower, upper) epsilon from certified bounds on a decreasing delta(epsilon): each end is
    proven by its own evaluation.

    Args:
        curve: (lower, upper) delta at an epsilon.
        delta: in (0, 1).
        start: an epsilon to begin with.
        rough: about the delta at an epsilon, if that is known at less expense.
    """
    if curve(0.0)[1] <= delta:
        return 0.0, 0.0

    # `not <=`: a curve that is not a number proves nothing, and the search goes on.
    below, above = 0.0, max(start, 1e-300)

    while not curve(above)[1] <= delta:
        below, above = above, 2.0 * above
        if above > 1e300:
            return 0.0, math.inf

    # The middle of the two bounds is a guess at the truth; it need not be one of them.
    about = rough or (lambda epsilon: sum(curve(epsilon)) / 2.0)

    def off(epsilon: float) -> float:
        return math.log(max(about(epsilon), 1e-320)) - math.log(delta)

    ends = off(below), off(above)
    slope = min((ends[1] - ends[0]) / (above - below), -1e-300)
    root = crossing(off, (below, above), below - ends[0] / slope, slope, 0.1 * _CLOSEST)

    # Whatever the search did: each end moves away from the root until its own bound proves it.
    margin = _CLOSEST
    low, high = root * (1.0 - margin), root * (1.0 + margin)

    while high < above and not curve(high)[1] <= delta:
        margin *= 4.0
        high = root * (1.0 + margin)

    margin = _CLOSEST

    while low > 0.0 and not curve(low)[0] >= delta:
        margin *= 4.0
        low = max(root * (1.0 - margin), 0.0)

    # The start of the search was proven too: an end beyond it would only be weaker.
    return low, min(high, above)
