"""Groups of k units under Poisson sampling, without detour over one unit.

Of k units a Poisson sample with probability q holds i with probability Bin(k, q)(i), and i units
move the sum by at most i. So

    sum_i Bin(k, q)(i) N(i, s^2)   against   N(0, s^2),   in both directions,

is a pair that dominates one step for data sets that differ in k units, all added, all removed or
all zeroed out (docs/proofs/group_mixture.md; [Ganesh2024]). It is far better than k steps from one
data set to the other.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from discreet import _validate as check
from discreet.accounting._binomial import at_least
from discreet.accounting.costs import Gaussian, PoissonGaussian
from discreet.accounting.meaning.group_privacy import group_gaussian
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.analyses.shifts import ShiftsAdd, ShiftsRemove
from discreet.accounting.tight.lattice.bracket import Bracket, epsilon_bracket
from discreet.accounting.tight.lattice.pair import Problem
from discreet.errors import AccountingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from discreet.accounting.costs import Cost
    from discreet.accounting.tight.interface import Direction

__all__ = ["group_directions", "group_epsilon"]

_BEYOND = 1e-32  # probability of more units in one sample than this is put at an infinite loss
_OUTWARD = 1.0 + 1e-12
_MOST_UNITS = 1000


def group_directions(cost: Cost, *, size: int) -> tuple[Direction, Direction]:
    """Both directions of one step for a group of `size` units.

    Raises:
        AccountingError: for costs other than Poisson sampling and no sampling, and for
            replace-one.
    """
    k = check.whole("group_directions", "size", size, least=1)
    if isinstance(cost, Gaussian):
        alone = PoissonRemove(1.0, group_gaussian(cost, size=k).noise_multiplier)
        return alone, alone
    if not isinstance(cost, PoissonGaussian) or cost.replace or k > _MOST_UNITS:
        raise AccountingError(
            expected=(
                "a Gaussian or Poisson-sampled Gaussian cost, not replace-one, and at most "
                f"{_MOST_UNITS} units"
            ),
            got=f"{cost!r} with {k} units",
            do="Use group_privacy.group_guarantee, which holds for every mechanism.",
        )
    weights, beyond = _weights(k, cost.probability)
    pair = ShiftsRemove(weights, cost.noise_multiplier, beyond)
    return pair, ShiftsAdd(pair)


def group_epsilon(
    counted: Sequence[tuple[Cost, int]], *, size: int, delta: float, tolerance: float = 1e-3
) -> Bracket:
    """Bracket of epsilon at delta for any group of `size` units over a composition of (cost, count)
    pairs.

    >>> found = group_epsilon([(PoissonGaussian(0.005, 1.0), 200)], size=20, delta=1e-6)
    >>> found.lower <= 13.5717 <= found.upper * 1.001
    True
    """
    delta = check.fraction("group_epsilon", "delta", delta)
    both = [(group_directions(cost, size=size), count) for cost, count in counted if count]
    if not both:
        return Bracket(0.0, 0.0)
    one = epsilon_bracket(
        Problem(tuple((pair[0], count) for pair, count in both)), delta, tolerance
    )
    other = epsilon_bracket(
        Problem(tuple((pair[1], count) for pair, count in both)), delta, tolerance, one
    )
    attained = all(cost.attained for cost, _ in counted)
    return Bracket(max(one.lower, other.lower) if attained else 0.0, max(one.upper, other.upper))


def _weights(k: int, q: float) -> tuple[tuple[float, ...], float]:
    """Weights of 1, 2, ... units whose tails are not below the binomial ones, and the mass beyond
    the last.

    Larger tails are a stochastically larger number of units, which dominates.
    """
    tails: list[float] = []
    for i in range(1, k + 1):
        tail = min(at_least(i, k, q)[1] * _OUTWARD, tails[-1] if tails else 1.0)
        if tail < _BEYOND:
            break
        tails.append(tail)
    beyond = (
        min(at_least(len(tails) + 1, k, q)[1] * _OUTWARD, tails[-1] if tails else 1.0)
        if len(tails) < k
        else 0.0
    )
    ends = [*tails[1:], 0.0]
    weights = tuple(
        max(math.nextafter(tail - after, 1.0), 0.0) for tail, after in zip(tails, ends, strict=True)
    )
    total = math.fsum(weights)
    if total <= 1.0:
        return weights, beyond
    # Hardly any sample without a unit: what rounding takes from the weights goes to an infinite
    # loss.
    return tuple(weight / (total * (1.0 + 1e-15)) for weight in weights), beyond + 1e-14
