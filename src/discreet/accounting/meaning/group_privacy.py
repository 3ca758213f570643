"""A guarantee for one unit, read for k units at once.

Generic: k neighbouring steps lead from one data set to the other, each (epsilon, delta)-close, so

    (k epsilon, delta (1 + e^epsilon + ... + e^((k-1) epsilon))).

Gaussian: the sensitivity is k times as large and nothing is lost. Poisson-sampled Gaussians have a
tight form too (the number of the k units in a sample is binomial); it belongs to the tight
accountant.
"""

from __future__ import annotations

import math
from dataclasses import replace

from discreet import _validate as check
from discreet.accounting.costs import Gaussian
from discreet.errors import AccountingError
from discreet.units import Guarantee

__all__ = ["group_gaussian", "group_guarantee"]


def group_gaussian(cost: Gaussian, *, size: int) -> Gaussian:
    """The cost of k units in an un-sampled Gaussian sum: exact, rounded down.

    >>> group_gaussian(Gaussian(5.0), size=20).noise_multiplier
    0.25
    """
    k = check.whole("group_gaussian", "size", size, least=1)

    # The quotient may be rounded up, and more noise than there is would be a false claim.
    exact = cost.noise_multiplier / k
    safe = exact if exact * k <= cost.noise_multiplier else math.nextafter(exact, 0.0)
    return Gaussian(safe, attained=cost.attained)


def group_guarantee(guarantee: Guarantee, *, size: int) -> Guarantee:
    """What a guarantee for one unit implies for any `size` units, whatever the mechanism.

    Args:
        guarantee: for one unit; its upper bound is what is used.
        size: number of units.
    """
    check.instance("group_guarantee", "guarantee", guarantee, Guarantee)
    k = check.whole("group_guarantee", "size", size, least=1)

    # Nothing to add up; the estimate and the lower bound stay with the claim.
    if k == 1:
        return guarantee

    # The factors are above all that the roundings of these formulas can lose.
    epsilon = guarantee.upper
    total = k * epsilon * (1.0 + 2.0**-52)
    delta = (
        guarantee.delta * _geometric(k, epsilon) * (1.0 + 2.0**-40)
        if guarantee.delta > 0.0
        else 0.0
    )

    # Also where delta is not a number: an overflow must not become a claim.
    if not delta < 1.0 or math.isinf(total):
        raise AccountingError(
            expected=(
                "a guarantee small enough for the group: delta * (e^(k epsilon) - 1)/(e^epsilon - "
                "1) below 1"
            ),
            got=f"{delta:.3g} for {k} units at ({epsilon:.4g}, {guarantee.delta!r})",
            do="Account at a smaller delta first, or state the group as the unit of the run.",
        )

    remark = f"any {k} units together, by {k} steps from one data set to the other"
    return replace(
        guarantee,
        lower=0.0,
        upper=total,
        delta=delta,
        estimate=None,
        delta_lower=None,
        accountant=f"{guarantee.accountant}, group of {k}",
        assumptions=(*guarantee.assumptions, remark),
    )


def _geometric(k: int, epsilon: float) -> float:
    """1 + e^epsilon + ... + e^((k-1) epsilon); infinity where it overflows."""
    # Just below the end of float64; the infinite delta that follows is refused.
    if k * epsilon > 700.0:
        return math.inf

    return float(k) if epsilon == 0.0 else math.expm1(k * epsilon) / math.expm1(epsilon)
