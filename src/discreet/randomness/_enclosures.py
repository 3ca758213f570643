"""Proven enclosures of the logarithm, in integers.

A number y is enclosed by two integers: lo <= y * 2^bits <= hi. Divisions and shifts round down;
what they lose is counted and added to hi: enclosures are rounded outward. The counts are derived at
each function; docs/proofs/noise.md, section 6, puts them together. A *unit* is 2^-bits.
"""

from __future__ import annotations

from functools import cache

__all__ = ["atanh", "minus_log"]

# ln is tabulated at 64 points per octave.
_TABLE_BITS = 6

_Enclosure = tuple[int, int]


def atanh(numerator: int, denominator: int, bits: int) -> _Enclosure:
    """Enclose the inverse hyperbolic tangent of a fraction z in [0, 1/3]: sum of z^(2k+1)/(2k+1).

    With y = floor(z 2^bits): z^2 and every odd power of z lose less than 2 units (2 -> 1 + 2/9 +
    2/3 < 2), every term less than 3, and the terms after the last one, whose power is below 2
    units, sum to less than 3.
    """
    power = (numerator << bits) // denominator
    square = power * power >> bits
    total, odd = 0, 1

    while power:
        total += power // odd
        power = power * square >> bits
        odd += 2

    # 3 for each of the odd // 2 terms, and 3 for those that follow.
    return total, total + 3 * (odd // 2) + 3


@cache
def _log_of_point(point: int, bits: int) -> _Enclosure:
    """Enclose ln(point / 64) for 64 <= point <= 128, as 2 atanh((point - 64) / (point + 64))."""
    lo, hi = atanh(point - 64, point + 64, bits)
    return 2 * lo, 2 * hi


def minus_log(numerator: int, exponent: int, bits: int) -> _Enclosure:
    """Enclose -ln(numerator / 2^exponent) for 0 < numerator <= 2^exponent.

    numerator = 2^k m with m in [1, 2); m = (point/64) (1 + d) with 0 <= d < 1/64; ln(1 + d) = 2
    atanh(d / (2 + d)).
    """
    k = numerator.bit_length() - 1
    point = numerator >> (k - _TABLE_BITS) if k >= _TABLE_BITS else numerator << (_TABLE_BITS - k)

    # d / (2 + d) = (scaled - nearest) / (scaled + nearest), both times 64: 64 * numerator, and
    # 64 * 2^k * (point/64).
    nearest = point << k
    scaled = numerator << _TABLE_BITS
    d_lo, d_hi = atanh(scaled - nearest, scaled + nearest, bits)
    p_lo, p_hi = _log_of_point(point, bits)
    two_lo, two_hi = _log_of_point(128, bits)

    # -ln = powers * ln 2 - ln(point/64) - 2 atanh(...): a lower end takes upper ends away.
    powers = exponent - k
    return max(powers * two_lo - p_hi - 2 * d_hi, 0), powers * two_hi - p_lo - 2 * d_lo
