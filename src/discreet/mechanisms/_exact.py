"""Roots and folding in exact rational arithmetic, rounded once, on the safe side.

Folding, Eq. 1 of [McMahan2018]: groups with sensitivities S_g and noise sigma_g over one sample are one Gaussian query with

    noise multiplier z = ( sum_g (S_g / sigma_g)^2 )^(-1/2).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from discreet.errors import NumericsError
from discreet.ledger.events import GaussianSum

__all__ = ["folded_noise_multiplier", "root_above", "root_below"]

_BITS = 128  # of a root, before it is rounded to float64
_EXACT = 32  # terms that are added up exactly; more are rounded up, as denominators grow with every term


def folded_noise_multiplier(queries: Iterable[GaussianSum]) -> float:
    """Eq. 1, rounded down.

    >>> folded_noise_multiplier([GaussianSum("a", 3.0, 15.0), GaussianSum("b", 4.0, 15.0)])
    3.0
    """
    terms = [(Fraction(query.sensitivity) / Fraction(query.noise_std)) ** 2 for query in queries]
    if len(terms) > _EXACT:
        terms = [_short_above(term) for term in terms]
    return root_below(1 / sum(terms, Fraction(0)))


def root_below(square: Fraction) -> float:
    """The largest float64 whose square is at most `square`."""
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
    bits = max(0, _BITS + (square.denominator.bit_length() - square.numerator.bit_length()) // 2)
    root = Fraction(math.isqrt((square.numerator << (2 * bits)) // square.denominator), 1 << bits)
    if not Fraction(2) ** -900 < root < Fraction(2) ** 900:
        raise NumericsError(
            expected="clip norms, noise and their ratios between 2^-900 and 2^900",
            got=f"a square with about {square.numerator.bit_length() - square.denominator.bit_length()} bits before the point",
            do="Check the units of clip_norm, noise_multiplier and scales.",
        )
    return root.numerator / root.denominator


def _short_above(term: Fraction) -> Fraction:
    """A term rounded up to 256 significant bits, with a power of two as denominator."""
    bits = 256 + term.denominator.bit_length() - term.numerator.bit_length()
    scaled = term * Fraction(2) ** bits
    return math.ceil(scaled) / Fraction(2) ** bits
