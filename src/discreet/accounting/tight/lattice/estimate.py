"""A point value with about nine digits, without a certificate: inversion of the Laplace transform
along the saddle contour (docs/proofs/tight.md, section 8).

With K the cumulant function of the composed loss (from quadratures) and any theta > 0,

    delta(eps) = 1/pi int_0^inf Re[ e^(K(z) - z eps) / (z (1 + z)) ] dv,   z = theta + iv,

because 1/(z (1 + z)) is the Laplace transform of 1 - e^-y, y > 0, and delta(eps) the mean of
(1 - e^-(S - eps))_+. The integrand is analytic, so the trapezoidal rule is exact up to wrapping
around a period 2 pi / step [TrefethenWeideman2014], chosen as the window of the certified
computation is. Where |e^K| does not fall off within a
few thousand points (rare large losses, lattice-valued losses) there is no estimate from here, and
the caller takes the middle of the bracket.

Axes of arrays: V heights v on the contour, N nodes of a quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.tight.interface import Quadrature
from discreet.accounting.tight.lattice.tilt import Law
from discreet.accounting.tight.rounding import FloatArray

__all__ = ["Contour", "contour"]

# Heights that are computed at a time; a power of two.
_BLOCK = 64

# Points after which a transform counts as not falling off.
_HIGHEST = 2048

# Below this part of its value at height 0 it has fallen off.
_FALLEN = 1e-15

# Takes the place of a transform that vanishes, whose logarithm is not finite.
_NOTHING = 1e-300

# So many Newton steps are taken at most.
_ROUNDS = 30


class Contour:
    """The transform of delta on a vertical line in the complex plane; final."""

    def __init__(
        self, theta: float, height: FloatArray, log_transform: NDArray[np.complex128]
    ) -> None:
        self._z = theta + 1j * height
        self._log = log_transform

        # The trapezoidal rule: the first node counts half.
        self._weight = np.full(len(height), (height[1] - height[0]) / math.pi)
        self._weight[0] *= 0.5

    def delta(self, epsilon: float) -> float:
        """Estimate delta at an epsilon."""
        return float(np.sum(self._weight * np.exp(self._log - self._z * epsilon).real))

    def epsilon(self, delta: float, low: float, high: float) -> float | None:
        """Estimate epsilon at a delta, by Newton's method on ln delta; None if it leaves the
        interval from low to high.
        """
        epsilon = 0.5 * (low + high)

        for _ in range(_ROUNDS):
            grown = np.exp(self._log - self._z * epsilon)
            value = float(np.sum(self._weight * grown.real))
            slope = -float(np.sum(self._weight * (grown * self._z).real))
            if value <= 0.0 or slope >= 0.0:
                return None

            step = (math.log(delta) - math.log(value)) * value / slope
            epsilon += step
            if not low <= epsilon <= high:
                return None

            if abs(step) <= 1e-13 * max(epsilon, 1e-300):
                return epsilon

        return epsilon


def contour(law: Law, theta: float, width: float) -> Contour | None:
    """The transform at `theta`, with period `width` in the loss; None if it does not fall off."""
    step = 2.0 * math.pi / width
    heights: list[FloatArray] = []
    logs: list[NDArray[np.complex128]] = []
    parts = [_Turning.of(_near(nodes, theta), theta, step, count) for nodes, count in law.parts]

    for begin in range(0, _HIGHEST, _BLOCK):
        height = step * np.arange(begin, begin + _BLOCK, dtype=np.float64)
        z = theta + 1j * height
        total = -np.log(z) - np.log1p(z)
        for part in parts:
            total += part.log_transform(step * begin)

        heights.append(height)
        logs.append(total)
        top = float(logs[0][0].real)
        if float(np.max(total[-8:].real)) < top + math.log(_FALLEN):
            return Contour(theta, np.concatenate(heights), np.concatenate(logs))

    return None


@dataclass(frozen=True, slots=True)
class _Turning:
    """The transform of one law at heights v, v + step, ..., v + (_BLOCK - 1) step.

    At height v + k step it is the sum over nodes of weight e^(iv loss) turn_VN[k], times e^scale.
    """

    loss: FloatArray
    weight: FloatArray
    scale: float
    count: float
    turn_VN: NDArray[np.complex128]

    @classmethod
    def of(cls, nodes: Quadrature, theta: float, step: float, count: float) -> _Turning:
        """Compute the turns e^(i k step l) by doubling: products instead of exponentials."""
        exponent = nodes.log_weight + theta * nodes.loss
        scale = float(exponent.max())
        turn_VN = np.ones((_BLOCK, len(nodes.loss)), dtype=np.complex128)
        done = 1

        while done < _BLOCK:
            by_done = np.exp(1j * step * done * nodes.loss)
            np.multiply(turn_VN[:done], by_done, out=turn_VN[done : 2 * done])
            done *= 2

        return cls(nodes.loss, np.exp(exponent - scale), scale, count, turn_VN)

    def log_transform(self, height: float) -> NDArray[np.complex128]:
        """The ln of E e^(zL), times the count, at a block of heights from this one."""
        weight_N = self.weight * np.exp(1j * height * self.loss)

        # Not a matrix product: threads of a linear algebra library cost more than they save here.
        total: NDArray[np.complex128] = np.einsum("vn,n->v", self.turn_VN, weight_N)
        total[total == 0.0] = _NOTHING
        log: NDArray[np.complex128] = np.log(total)
        log *= self.count
        log += self.count * self.scale
        return log


def _near(nodes: Quadrature, theta: float) -> Quadrature:
    """The nodes that matter after tilting, with weights that sum to 1 as nearly as they can."""
    total = float(np.log(np.exp(nodes.log_weight).sum()))
    exponent = nodes.log_weight + theta * nodes.loss
    matters = exponent > exponent.max() - 50.0
    return Quadrature(nodes.loss[matters], nodes.log_weight[matters] - total)
