"""A mixture of shifted Gaussians against the Gaussian in the middle, in both directions.

Legend: N(i) = N(i, s^2) with s the noise multiplier, a_i for i = 1, 2, ... the weight of N(i) in P,
a_0 = 1 - a_1 - a_2 - ... that of N(0), Q = N(0), and r_i(x) = exp((2 i x - i^2)/(2 s^2)) the ratio
of N(i) to N(0). The loss of P against Q

    L(x) = ln(a_0 + a_1 r_1(x) + a_2 r_2(x) + ...)

increases. For a cell of x with masses N_i, and an edge x_g with L(x_g) = g,

    P - e^g Q = sum_(i > 0) a_i (N_i - r_i(x_g) N_0),

in which every term is positive if the edge is the cell's lower end, and negative if it is its upper
one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting.tight.interface import Bounds, Cells, Quadrature
from discreet.accounting.tight.rounding import FloatArray, U, normal_mass
from discreet.errors import AccountingError

__all__ = ["ShiftsAdd", "ShiftsRemove"]

_SPREAD = 38.0
_FARTHEST = 500.0  # e^500 times the absolute error 1e-298 of a normal mass is still nothing
_ROUNDS = 60
_ACCEPTED = 1e-11  # largest residual of the inverse of the loss; it goes into the slack


@dataclass(frozen=True, slots=True)
class ShiftsRemove:
    """P against Q of the header.

    Args:
        weights: a_1, a_2, ..., not negative, with a sum of at most 1.
        noise_multiplier: s.
        infinite: additional mass of P at an infinite loss.
    """

    weights: tuple[float, ...]
    noise_multiplier: float
    infinite: float = 0.0

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x, under P."""
        x = _nodes(self.noise_multiplier, len(self.weights))
        loss = _loss(self, x)
        return Quadrature(loss, _log_density(self.noise_multiplier, x) + loss)

    def cells(self, edges: FloatArray) -> Cells:
        """See the header."""
        found = _Masses.of(self, edges)
        mass, over = found.mass(), found.over()
        for bounds in (mass, over):
            bounds.lower[-1] += self.infinite * (1.0 - 4.0 * U)
            bounds.upper[-1] = (bounds.upper[-1] + self.infinite) * (1.0 + 4.0 * U)
        return Cells(mass, over, found.under(), found.slack)


@dataclass(frozen=True, slots=True)
class ShiftsAdd:
    """Q against P of the header; what P has at an infinite loss is left out, which only adds to the
    loss of the rest.
    """

    pair: ShiftsRemove

    def quadrature(self) -> Quadrature:
        """Trapezoidal rule in x, under Q, by increasing -L."""
        x = _nodes(self.pair.noise_multiplier, 0)
        return Quadrature(
            -_loss(self.pair, x)[::-1], _log_density(self.pair.noise_multiplier, x)[::-1]
        )

    def cells(self, edges: FloatArray) -> Cells:
        """With L' = -L: Q - e^(-g) P = e^(-g) (e^g Q - P), so over and under change places, times
        e^(edge).
        """
        found = _Masses.of(self.pair, -edges[::-1])
        over, under = found.over(), found.under()
        factor = np.exp(edges)
        below, above = np.concatenate([[0.0], factor]), np.concatenate([factor, [0.0]])
        low, high = 1.0 - 8.0 * U, 1.0 + 8.0 * U
        return Cells(
            Bounds(found.zero.lower[::-1], found.zero.upper[::-1]),
            Bounds(under.lower[::-1] * below * low, under.upper[::-1] * below * high),
            Bounds(over.lower[::-1] * above * low, over.upper[::-1] * above * high),
            found.slack,
        )


@dataclass(frozen=True, slots=True)
class _Masses:
    """Masses of the cells under N(0) and under every shift, and the ratios r_i at the edges, each
    with bounds.
    """

    pair: ShiftsRemove
    edges: FloatArray
    zero: Bounds
    shifted: tuple[Bounds, ...]
    ratio: tuple[Bounds, ...]
    slack: float

    @classmethod
    def of(cls, pair: ShiftsRemove, edges: FloatArray) -> _Masses:
        if not np.all(np.abs(edges) < _FARTHEST):
            raise AccountingError(
                expected="a privacy loss of one step within the range of float64",
                got=(
                    f"noise multiplier {pair.noise_multiplier:.3g} at loss "
                    f"{float(np.max(np.abs(edges))):.4g}"
                ),
                do="Use more noise, or group_privacy.group_guarantee.",
            )
        x, slack = _inverse(pair, edges)
        shifts = range(1, len(pair.weights) + 1)
        return cls(
            pair,
            edges,
            _mass(pair, x, 0),
            tuple(_mass(pair, x, i) for i in shifts),
            tuple(_ratio(pair, x, i) for i in shifts),
            slack,
        )

    def mass(self) -> Bounds:
        """P of every cell."""
        rest = _rest(self.pair)
        lower, upper = (
            max(rest - 2.0 * U, 0.0) * self.zero.lower,
            (rest + 2.0 * U) * self.zero.upper,
        )
        for weight, one in zip(self.pair.weights, self.shifted, strict=True):
            lower = lower + weight * one.lower
            upper = upper + weight * one.upper
        error = 4.0 * U * (len(self.shifted) + 3)
        return Bounds(lower * (1.0 - error), upper * (1.0 + error))

    def over(self) -> Bounds:
        """P - e^g Q at the lower edge of every cell but the first; an edge below every loss has r =
        0 and a rest of N(0).
        """
        lower, upper = np.zeros_like(self.edges), np.zeros_like(self.edges)
        for weight, one, ratio in zip(self.pair.weights, self.shifted, self.ratio, strict=True):
            lower = lower + weight * np.maximum(
                one.lower[1:] - ratio.upper * self.zero.upper[1:] * (1.0 + 4.0 * U), 0.0
            )
            upper = upper + weight * np.maximum(
                one.upper[1:] - ratio.lower * self.zero.lower[1:] * (1.0 - 4.0 * U), 0.0
            )
        outside = self.ratio[0].upper == 0.0
        rest = np.where(outside, np.maximum(_rest(self.pair) - np.exp(self.edges), 0.0), 0.0)
        lower = lower + np.maximum(rest - 16.0 * U, 0.0) * self.zero.lower[1:]
        upper = upper + np.where(outside, rest + 16.0 * U, 0.0) * self.zero.upper[1:]
        return self._outward(np.concatenate([[0.0], lower]), np.concatenate([[0.0], upper]))

    def under(self) -> Bounds:
        """e^g Q - P at the upper edge of every cell but the last."""
        lower, upper = np.zeros_like(self.edges), np.zeros_like(self.edges)
        for weight, one, ratio in zip(self.pair.weights, self.shifted, self.ratio, strict=True):
            lower = lower + weight * np.maximum(
                ratio.lower * self.zero.lower[:-1] * (1.0 - 4.0 * U) - one.upper[:-1], 0.0
            )
            upper = upper + weight * np.maximum(
                ratio.upper * self.zero.upper[:-1] * (1.0 + 4.0 * U) - one.lower[:-1], 0.0
            )
        return self._outward(np.concatenate([lower, [0.0]]), np.concatenate([upper, [0.0]]))

    def _outward(self, lower: FloatArray, upper: FloatArray) -> Bounds:
        error = 4.0 * U * (len(self.shifted) + 8)
        return Bounds(lower * (1.0 - error), upper * (1.0 + error))


def _rest(pair: ShiftsRemove) -> float:
    """a_0, to within 2u."""
    return max(1.0 - math.fsum(pair.weights), 0.0)


def _mass(pair: ShiftsRemove, x: FloatArray, shift: int) -> Bounds:
    z = (x - shift) / pair.noise_multiplier
    ends = np.concatenate([[-np.inf], z, [np.inf]])
    mass, error = normal_mass(ends[:-1], ends[1:])
    return Bounds(np.maximum(mass - error, 0.0), mass + error)


def _ratio(pair: ShiftsRemove, x: FloatArray, shift: int) -> Bounds:
    """r_shift at the edges; 0 at x = -inf."""
    square = 2.0 * pair.noise_multiplier**2
    finite = np.where(np.isfinite(x), x, 0.0)
    exponent = (2.0 * shift * finite - shift * shift) / square
    size = (2.0 * shift * np.abs(finite) + shift * shift) / square
    value = np.where(np.isfinite(x), np.exp(np.minimum(exponent, 709.0)), 0.0)
    error = 8.0 * U * (1.0 + size)
    return Bounds(value * (1.0 - error), value * (1.0 + error))


def _loss(pair: ShiftsRemove, x: FloatArray) -> FloatArray:
    """L(x) = ln1p(sum_i a_i (r_i - 1)) near 0, by the logarithm of a sum elsewhere."""
    square = 2.0 * pair.noise_multiplier**2
    rest = _rest(pair)
    total = np.full_like(x, math.log(rest) if rest > 0.0 else -math.inf)
    near = np.zeros_like(x)
    for i, weight in enumerate(pair.weights, start=1):
        if weight > 0.0:
            y = (2.0 * i * x - i * i) / square
            total = np.logaddexp(total, math.log(weight) + y)
            near = near + weight * np.expm1(np.minimum(y, 30.0))
    return np.where(np.abs(near) < 0.5, np.log1p(np.maximum(near, -0.9)), total)


def _log_density(s: float, x: FloatArray) -> FloatArray:
    return math.log(x[1] - x[0]) - math.log(s * math.sqrt(2.0 * math.pi)) - x * x / (2.0 * s * s)


def _nodes(s: float, upper: int) -> FloatArray:
    step = min(0.1 * s, 0.4 * s * s)
    return np.arange(-_SPREAD * s, upper + _SPREAD * s + step, step)


def _inverse(pair: ShiftsRemove, edges: FloatArray) -> tuple[FloatArray, float]:
    """Where L equals the edge, by safeguarded Newton steps (-inf for edges below every loss), and
    how far off it is at most.
    """
    s = pair.noise_multiplier
    rest = _rest(pair)
    inside = edges > (math.log(rest) + 16.0 * U if rest > 0.0 else -math.inf)
    x = np.full_like(edges, -np.inf)
    wanted = edges[inside]
    if len(wanted) == 0:
        return x, 64.0 * U
    left, right = _reach(pair, float(wanted.min()), float(wanted.max()))
    table = np.linspace(left, right, 4096)
    place = np.clip(np.searchsorted(_loss(pair, table), wanted), 1, len(table) - 1)
    low, high = table[place - 1].copy(), table[place].copy()
    guess = 0.5 * (low + high)
    for _ in range(_ROUNDS):
        gap = _loss(pair, guess) - wanted
        if bool(np.max(np.abs(gap)) < 1e-15):
            break
        low, high = np.where(gap < 0.0, guess, low), np.where(gap < 0.0, high, guess)
        width = 1e-6 * np.maximum(s, np.abs(guess))
        slope = (_loss(pair, guess + width) - _loss(pair, guess - width)) / (2.0 * width)
        newton = guess - np.divide(gap, slope, where=slope > 0.0, out=np.full_like(gap, np.inf))
        usable = np.isfinite(newton) & (newton > low) & (newton < high)
        moved = np.where(usable, newton, 0.5 * (low + high))
        settled = bool(np.max(np.abs(moved - guess) / np.maximum(s, np.abs(guess))) < 4.0 * U)
        guess = moved
        if settled:
            break
    residual = float(np.max(np.abs(_loss(pair, guess) - wanted)))
    if not residual < _ACCEPTED:
        raise AccountingError(
            expected=f"an inverse of the privacy loss to {_ACCEPTED}",
            got=(
                f"a residual of {residual:.3g} at noise multiplier {s:.3g} with "
                f"{len(pair.weights)} shifts"
            ),
            do="Use group_privacy.group_guarantee.",
        )
    x[inside] = guess
    units = len(pair.weights)
    exponent = units * (2.0 * float(np.max(np.abs(guess))) + units) / (2.0 * s * s)
    return x, residual + 16.0 * U * (4.0 + units + exponent + float(np.max(np.abs(edges))))


def _reach(pair: ShiftsRemove, least: float, most: float) -> tuple[float, float]:
    """An interval of x whose losses contain both; towards x = -inf as near to the least loss as
    float64 can tell.
    """
    low, high, width = -1.0, 1.0, max(pair.noise_multiplier**2, pair.noise_multiplier, 1.0)
    for _ in range(100):
        below, above = _loss(pair, np.array([low, high]))
        if below <= least and above >= most:
            break
        low, high = (
            (low - width if below > least else low),
            (high + width if above < most else high),
        )
        width *= 1.3
    return low, high
