"""The layers of the Ziggurat [MarsagliaTsang2000]: rectangles of one area that cover the bell.

The bell is f(x) = exp(-x^2/2) for x >= 0. Layer i is [0, W_i] x [Y_i, Y_i + H_i], and the layers
lie on top of each other: Y_0 = 0, Y_(i+1) = Y_i + H_i. Layer 0 is [0, r] x [0, Y_1] and a tail
beyond r, under Y_1 exp(-r (x - r)), whose area is Y_1/r: it is as large as a rectangle of width
r + 1/r.

    r, H_i    dyadic: integers times 2^-32 and 2^-64
    area      H_0 (r + 1/r), a fraction; W_i = area / H_i, so that all areas are equal *exactly*
    cover     f(r) <= Y_1, f(W_i) <= Y_i, Y_4096 >= 1: what is under the bell is in some layer
    inside    f(L_i) >= Y_(i+1): a point of layer i with x <= L_i is under the bell at any height

The heights follow from r by integer arithmetic, so that every machine has the same; a test verifies
the four lines by a program of its own (docs/proofs/noise.md, section 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from discreet.randomness._enclosures import minus_log

__all__ = [
    "COUNT",
    "HEIGHT_BITS",
    "LIMIT_BITS",
    "POSITION_BITS",
    "R_BITS",
    "Layers",
    "R",
    "Tables",
    "layers",
    "tables",
]

# Layers; a power of two, so that bits choose one.
COUNT = 4096

# r = R / 2^R_BITS: the largest for which the layers reach up to 1. Heights count 2^-HEIGHT_BITS.
R = 18_839_799_855
R_BITS = 32
HEIGHT_BITS = 64

# The first bits of a position: f = t / 2^52 - 1/2. Bounds of |f| count 2^-LIMIT_BITS: as float32
# they are exact, and take little of the cache.
POSITION_BITS = 52
LIMIT_BITS = 25

# f(r), rounded up: the height of layer 0.
_LOWEST = 1_223_882_038_616_104

# Bits of the fixed point in which the heights are found.
_BITS = 128


@dataclass(frozen=True, slots=True)
class Layers:
    """The exact numbers of all layers.

    heights: H_i, in units of 2^-64.
    edges: Y_i, in units of 2^-64; one more than there are layers.
    widths: W_i, as numerator and denominator.
    limits: a bound on |f|, in units of 2^-25, under which all of the interval is inside of layer i:
        for a position F in [f, f + 2^-52], 2 |F| W_i <= L_i. It is -1 where no f is.
    """

    heights: tuple[int, ...]
    edges: tuple[int, ...]
    widths: tuple[tuple[int, int], ...]
    limits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The same in float64, each number rounded once; limits are exact, also in float32."""

    heights: NDArray[np.float64]
    edges: NDArray[np.float64]
    twice_widths: NDArray[np.float64]
    limits: NDArray[np.float64]


@cache
def layers() -> Layers:
    """Stack the layers: some thirty milliseconds of integer arithmetic, once in a process."""
    # The area in units of 2^-64, H_0 (r^2 + 1) / r, is area / parts.
    area, parts = _LOWEST * (R**2 + (1 << 2 * R_BITS)), R << R_BITS
    heights, edges, insides = [_LOWEST], [0, _LOWEST], []

    for _ in range(1, COUNT):
        lower, upper = _inverse(edges[-1])
        insides.append(lower)

        # Rounded down: the width is then at least the point where the bell has this height.
        heights.append((area << _BITS) // (parts * upper))
        edges.append(edges[-1] + heights[-1])

    # Nothing is inside of the topmost layer.
    insides.append(0)
    widths = [(area, parts * height) for height in heights]
    return Layers(
        heights=tuple(heights),
        edges=tuple(edges),
        widths=tuple(widths),
        limits=tuple(_limit(*pair) for pair in zip(insides, widths, strict=True)),
    )


@cache
def tables() -> Tables:
    """Give the tables of the fast paths. Divisions of integers round to nearest, on any machine."""
    exact = layers()
    unit = 2.0**-HEIGHT_BITS
    twice = [2 * numerator / denominator for numerator, denominator in exact.widths]
    return Tables(
        heights=_fixed([height * unit for height in exact.heights]),
        edges=_fixed([edge * unit for edge in exact.edges]),
        twice_widths=_fixed(twice),
        limits=_fixed([limit * 2.0**-LIMIT_BITS for limit in exact.limits]),
    )


def _inverse(edge: int) -> tuple[int, int]:
    """Enclose the x with f(x) = edge, which is sqrt(-2 ln edge), in units of 2^-128."""
    lo, hi = minus_log(edge, HEIGHT_BITS, _BITS)
    return isqrt(lo << _BITS + 1), isqrt(hi << _BITS + 1) + 1


def _limit(inside: int, width: tuple[int, int]) -> int:
    """Find a bound on |f| with 2 (|f| + 2^-52) W <= L, for L = inside * 2^-128."""
    numerator, denominator = width
    most = (inside * denominator << POSITION_BITS) // (numerator << _BITS + 1)
    return most - 1 >> POSITION_BITS - LIMIT_BITS


def _fixed(numbers: list[float]) -> NDArray[np.float64]:
    array = np.array(numbers)
    array.flags.writeable = False
    return array
