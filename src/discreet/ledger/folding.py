"""Several Gaussian queries on one sample are one: the paper's Eq. 1, in exact rational arithmetic,
rounded once and down.

Groups with sensitivities S_g and noise sigma_g over one sample are one Gaussian query with

    noise multiplier z = ( sum_g (S_g / sigma_g)^2 )^(-1/2).                 [McMahan2018, Eq. 1]
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from discreet.errors import NumericsError, ParameterError
from discreet.ledger.events import Query

__all__ = ["folded_noise_multiplier", "root_above", "root_below", "sum_above"]

# Terms that are added up exactly.
_EXACT = 32

# Bits of a root, before it is rounded to float64.
_BITS = 128


def folded_noise_multiplier(queries: Sequence[Query]) -> float:
    """Eq. 1, rounded down: the largest float64 z with z^2 * sum_g (S_g/sigma_g)^2 <= 1.

    Args:
        queries: at least one, all with Gaussian noise; any other noise does not fold.

    >>> from discreet.ledger.events import GaussianSum
    >>> folded_noise_multiplier([GaussianSum("a", 3.0, 15.0), GaussianSum("b", 4.0, 15.0)])
    3.0
    """
    return root_below(1 / sum_above([_cost(query) for query in queries]))


def _cost(query: Query) -> Fraction:
    cost = query.gaussian_cost
    if cost is None:
        raise ParameterError(
            owner="folded_noise_multiplier",
            name="queries",
            expected="sums with Gaussian noise",
            got=type(query).__name__,
            do="Other queries compose; they do not fold.",
        )

    return cost


def sum_above(terms: Sequence[Fraction]) -> Fraction:
    """The sum of positive terms: exactly for a few, else rounded up at 256 bits, as denominators
    grow with every term.
    """
    if len(terms) <= _EXACT:
        return sum(terms, Fraction(0))

    # So many bits after the point that the largest term has 256 of its own. Each term is rounded
    # up: a larger sum means less noise, which is the safe side.
    largest = max(terms)
    bits = 256 + largest.denominator.bit_length() - largest.numerator.bit_length()
    scaled = (
        -((-term.numerator << bits) // term.denominator) if bits >= 0 else term for term in terms
    )
    return Fraction(sum(scaled)) / (Fraction(2) ** max(bits, 0))


def root_below(square: Fraction) -> float:
    """The largest float64 whose square is at most `square`."""
    # From one step above, so that the first number that fits is the largest.
    near = math.nextafter(_near(square), math.inf)

    while Fraction(near) ** 2 > square:
        near = math.nextafter(near, 0.0)

    return near


def root_above(square: Fraction) -> float:
    """The smallest float64 whose square is at least `square`."""
    near = math.nextafter(_near(square), 0.0)

    while Fraction(near) ** 2 < square:
        near = math.nextafter(near, math.inf)

    return near


def _near(square: Fraction) -> float:
    """The root to within a step of float64."""
    # The square is shifted by an even number of bits, so that its root is one by half as many.
    bits = max(0, _BITS + (square.denominator.bit_length() - square.numerator.bit_length()) // 2)
    root = Fraction(math.isqrt((square.numerator << (2 * bits)) // square.denominator), 1 << bits)

    # Far inside the range of float64: no neighbour of such a root is subnormal or infinite.
    if not Fraction(2) ** -900 < root < Fraction(2) ** 900:
        raise NumericsError(
            expected="sensitivities, noise and their ratios between 2^-900 and 2^900",
            got=(
                "a square with about "
                f"{square.numerator.bit_length() - square.denominator.bit_length()} bits before "
                "the point"
            ),
            do="Check the units of sensitivity (or clip_norm), noise and scales.",
        )

    return root.numerator / root.denominator
