"""What the certificate assumes of floating-point arithmetic, in one place.

Assumption R (docs/proofs/tight.md, section 4, and every proof that uses it), with u = 2^-53 the
unit roundoff of float64:

* +, -, *, /, sqrt are correctly rounded (IEEE 754);
* exp, expm1, log, log1p, sin, cos and arctan2 have a relative error of at most 4u (measured
  against 60 digits: below 1u);
* the normal distribution function `ndtr(x)`, x in [-37, 37], of an argument that itself carries a
  relative error of 4u, has a relative error of at most 16 (1 + x^2) u (measured without argument
  error: below 4 (1 + x^2) u);
* an FFT of length n has an error of at most 16 u log2(n) times the 1-norm of its input in every
  single output (each output is the root of a tree of butterflies of that depth; a butterfly of size
  at most 11 costs less than 16u per factor two).

Where long double is a wider binary format (64 or 113 bits of mantissa), the same holds for it with
its own u; elsewhere it is not used.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from discreet.errors import AccountingError

__all__ = [
    "WIDE",
    "FloatArray",
    "OutOfRangeError",
    "U",
    "block_sum",
    "fft_error",
    "normal_mass",
    "sum_error",
]

FloatArray: TypeAlias = NDArray[np.float64]

# The unit roundoff of float64.
U = 2.0**-53

# Whether long double has more digits than float64, and rounds as IEEE 754 says.
WIDE = bool(np.finfo(np.longdouble).nmant in {63, 112})

# Beyond this many standard deviations the mass is below 1e-298, and any value in [0, 1e-298] is
# near enough.
_FAR = 37.0


class OutOfRangeError(AccountingError):
    """A privacy loss, or a lattice for it, does not fit into float64 or into memory; other costs
    may still be fine.
    """


def normal_mass(below: FloatArray, above: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Standard normal mass of the intervals (below, above], and a bound on its absolute error.

    The difference is taken in the tail where both terms are small, so the error is relative to the
    tail. Infinite ends are allowed.
    """
    # Phi(above) - Phi(below) = Phi(-below) - Phi(-above): reflect intervals of the upper half.
    reflect = below > 0.0
    low = np.where(reflect, -above, below)
    high = np.where(reflect, -below, above)

    tail_low, tail_high = scipy.special.ndtr(low), scipy.special.ndtr(high)
    mass = np.maximum(tail_high - tail_low, 0.0)
    error = tail_low * _relative(low) + tail_high * _relative(high) + U * mass + 1e-298
    return mass, error


def _relative(x: FloatArray) -> FloatArray:
    """The relative error of ndtr at x under assumption R."""
    # Infinite ends have no mass of their own, so their error may be cut off.
    near = np.clip(x, -_FAR - 2.0, _FAR + 2.0)
    return 16.0 * U * (1.0 + near * near)


def fft_error(length: int, unit: float = U) -> float:
    """Bound on the error of one output of an FFT, relative to the 1-norm of its input."""
    return 16.0 * unit * float(np.log2(length) + 1.0)


def block_sum(values: Any) -> Any:
    """The sum over the last axis, in blocks, so that no term is rounded more often than
    `sum_error` says, whatever the order of additions within a block.
    """
    block = math.isqrt(values.shape[-1]) + 1
    return np.add.reduceat(values, range(0, values.shape[-1], block), axis=-1).sum(axis=-1)


def sum_error(count: int, unit: float = U) -> float:
    """Bound on the error of a `block_sum` of so many terms, relative to the sum of their sizes."""
    return (2.0 * math.sqrt(count) + 4.0) * unit
