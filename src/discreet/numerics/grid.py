"""The grid on which sums and noise live: multiples of a power of two.

So every step from sum to release is exact:

    sums -> integers of the grid (exact records, or rounded once)
         -> + integer noise -> * spacing -> release

For a spacing g that is a power of two, x/g and k*g are exact in float64, and integers below 2^53
add exactly. So the release g*(S + round(s*Z)) is a function of S*g + (s*g)*Z alone: post-processing
of the ideal Gaussian mechanism (docs/proofs/noise.md, sections 1 and 7).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError

__all__ = ["Grid"]

# Bits of the noise's standard deviation that the grid resolves; and of the clip norm at least,
# where the noise is far larger.
_FINENESS = 23
_CLIP_BITS = 12

# Largest clip norm in grid units: its square is at most 2^52, exact in float64.
_MOST_CLIP = 2.0**26

# Largest standard deviation of the noise in grid units: that of `GaussianNoise`.
_MOST_SCALE = 2.0**32

# Sums stay below it, in grid units, and so does noise: together they are below 2^53 and exact.
_HEADROOM = 2.0**52


@dataclass(frozen=True, slots=True)
class Grid:
    """The multiples of `spacing`, a power of two between 2^-901 and 2^899.

    | case | what happens |
    |---|---|
    | spacing 0, negative, infinite, NaN, or no power of two | `ParameterError` |
    | `for_noise` with a noise_std or clip_norm of 0, infinity or NaN | `ParameterError` |
    | `scale` of more than 2^32 spacings | `NumericsError` |
    | `radius` below 1 or above 2^26 spacings | `NumericsError` |
    | `integers` of NaN, infinity, or 2^52 spacings and more | `NumericsError` |
    | `integers` of a value between two multiples | the nearest, the even one of two |
    | `integers` of an empty array | an empty array |

    >>> grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    >>> grid.spacing == 2.0**-23, grid.scale(1.1) == 1.1 * 2.0**23
    (True, True)
    """

    spacing: float

    def __post_init__(self) -> None:
        spacing = check.positive("Grid", "spacing", self.spacing)

        # In this range x/g and k*g neither over- nor underflow where it matters.
        mantissa, exponent = math.frexp(spacing)
        if mantissa != 0.5 or not -900 <= exponent <= 900:
            raise ParameterError(
                owner="Grid", name="spacing", expected="a power of two in 2^±900", got=repr(spacing)
            )

        object.__setattr__(self, "spacing", spacing)

    @classmethod
    def for_noise(cls, *, noise_std: float, clip_norm: float) -> Grid:
        """Choose a grid far finer than the noise, and coarse enough that everything is exact.

        The spacing is about noise_std * 2^-23; clip_norm * 2^-26 where the noise is far smaller
        than the clip norm; clip_norm * 2^-12 where it is thousands of times larger, as for a
        private metric, down to noise_std * 2^-32.
        """
        deviation = check.positive("Grid.for_noise", "noise_std", noise_std)
        clip = check.positive("Grid.for_noise", "clip_norm", clip_norm)

        # 2^bits is above the number, by at most a factor of 2.
        noise_bits, clip_bits = math.frexp(deviation)[1], math.frexp(clip)[1]
        fine = min(noise_bits - 1 - _FINENESS, clip_bits - 1 - _CLIP_BITS)
        scale_bits, radius_bits = round(math.log2(_MOST_SCALE)), round(math.log2(_MOST_CLIP))
        exact = max(noise_bits - scale_bits, clip_bits - radius_bits)

        # Exactness wins over fineness.
        exponent = max(fine, exact)
        if not -900 < exponent < 900:
            raise ParameterError(
                owner="Grid.for_noise",
                name="noise_std",
                expected="within a factor of 2^800 of 1",
                got=f"noise_std {deviation!r}, clip_norm {clip!r}",
            )

        return cls(math.ldexp(1.0, exponent))

    def scale(self, noise_std: float) -> float:
        """Give the noise's standard deviation in grid units, exactly."""
        scale = check.positive("Grid.scale", "noise_std", noise_std) / self.spacing
        if not scale <= _MOST_SCALE or scale * self.spacing != noise_std:
            raise NumericsError(
                expected=(
                    f"a noise_std of at most {_MOST_SCALE:g} times the spacing {self.spacing!r}"
                ),
                got=repr(noise_std),
                do="Use a coarser grid: Grid.for_noise(...) chooses one.",
            )

        return scale

    def radius(self, clip_norm: float) -> int:
        """Give the clip norm in grid units, rounded down.

        It bounds the norm of a record's integers in exact sums; rounded up, it would allow more
        than the clip norm.

        >>> Grid(0.25).radius(1.1)
        4
        """
        units = check.positive("Grid.radius", "clip_norm", clip_norm) / self.spacing
        if not 1.0 <= units <= _MOST_CLIP:
            raise NumericsError(
                expected=(
                    f"a clip_norm between {self.spacing!r} and {_MOST_CLIP:g} times that spacing"
                ),
                got=repr(clip_norm),
                do="Use another grid: Grid.for_noise(...) chooses one.",
            )

        return math.floor(units)

    def integers(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Round values to the nearest integers of the grid, as float64.

        Exact where a value is on the grid, which is where no rounding takes place.

        Raises:
            NumericsError: a value is not finite or too large to stay exact when noise is added.
        """
        # What overflows here is refused below.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            units = np.rint(np.asarray(values, np.float64) / self.spacing)

        # The comparison is false for NaN.
        if not np.all(np.abs(units) < _HEADROOM):
            raise NumericsError(
                expected=f"finite values below {_HEADROOM * self.spacing:g}",
                got="a value that is not finite, or larger",
                do="Clip every record and drop those that are not finite before summing.",
            )

        return np.asarray(units)

    def checked_integers(
        self, values: NDArray[np.floating], out: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Round values into `out`, for values between two that `integers` took.

        Rounding is monotone, so these fit too.
        """
        np.copyto(out, values)

        # A power of two, as is its inverse: the product is the quotient, to the last bit.
        out *= 1.0 / self.spacing
        return np.rint(out, out=out)
