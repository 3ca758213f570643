"""Proven enclosures of logarithm, sine and cosine, in integers.

A number y is enclosed by two integers: lo <= y * 2^bits <= hi. Divisions and shifts round down;
what they lose is counted and added to hi: enclosures are rounded outward. The counts are derived at
each function; docs/proofs/noise.md, section 4, puts them together. A *unit* is 2^-bits.
"""

from __future__ import annotations

from functools import cache
from math import isqrt

__all__ = ["atanh", "enclosed_sine_cosine", "half_pi", "minus_log"]

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


@cache
def half_pi(bits: int) -> _Enclosure:
    """Enclose pi/2 = 8 arctan(1/5) - 2 arctan(1/239), Machin's formula of 1706."""
    (a_lo, a_hi), (b_lo, b_hi) = (_arctan_of_inverse(n, bits) for n in (5, 239))
    return 8 * a_lo - 2 * b_hi, 8 * a_hi - 2 * b_lo


def _arctan_of_inverse(n: int, bits: int) -> _Enclosure:
    """Enclose arctan(1/n) by its alternating series: sum of (-1)^k / ((2k+1) n^(2k+1)).

    Each power and each term loses less than 2 units, up or down; what is left out is below 2.
    """
    power = (1 << bits) // n
    total, odd, sign = 0, 1, 1

    while power:
        total += sign * (power // odd)
        power //= n * n
        odd += 2
        sign = -sign

    slack = 2 * (odd // 2) + 2
    return total - slack, total + slack


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


def enclosed_sine_cosine(numerator: int, exponent: int, bits: int) -> tuple[_Enclosure, _Enclosure]:
    """Enclose sine and cosine of all angles from f*pi/2 to (f + 2^-exponent)*pi/2.

    Here f = numerator / 2^exponent is in [0, 1/2). Let y = floor(f * lower pi/2 * 2^bits) stand for
    the angle; its sine is at most that of the true angle, and less by at most the difference of the
    angles. In the series of y the square loses less than 1 unit, every term less than 2 since
    1 + (2 + 1)/6 < 2, and the terms after the last one less than 1 together. Over the interval the
    sine rises by less than pi/2 * 2^-exponent < 2^(1 - exponent). The cosine follows by
    sqrt(1 - sine^2).
    """
    pi_lo, pi_hi = half_pi(bits)
    angle = numerator * pi_lo >> exponent

    # What the angle lost; as much at most as the sine did, whose slope is at most 1.
    lost = (numerator * (pi_hi - pi_lo) >> exponent) + 2
    square = angle * angle >> bits
    term, total, k = angle, angle, 1

    while term:
        term = (term * square >> bits) // ((k + 1) * (k + 2))
        k += 2
        total += term if k % 4 == 1 else -term

    # 2 for each term and, with room to spare, 3 for the square and for what follows the last term;
    # upward also what the angle lost, and what the sine rises by over the interval.
    slack = 2 * (k // 2) + 3
    full = 1 << bits
    lo = max(total - slack, 0)
    hi = min(total + slack + lost + ((2 << bits) >> exponent) + 1, full)

    # The cosine falls where the sine rises: the ends change places.
    unit = full << bits
    return (lo, hi), (isqrt(unit - hi * hi), min(isqrt(unit - lo * lo) + 1, full))
