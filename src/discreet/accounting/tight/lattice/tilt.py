"""Which exponential tilt to use: a choice, without effect on soundness (docs/proofs/tight.md,
section 5).

K(theta) = sum_j T_j ln E e^(theta L_j) is the cumulant function of the composed loss S = sum of all
losses, computed from quadratures. For every theta > 0 (Chernoff; [Canonne2020, Proposition 12]):

    delta(eps) <= e^(K(theta) - theta eps) c(theta),
    c(theta) = theta^theta / (1 + theta)^(1 + theta) = max_s e^(-theta s) (1 - e^-s).

The theta at which this bound is best makes eps the mean of the tilted law e^(theta S - K), so that
the composed measure is computed with small *relative* error just where it is needed, at any delta.

Axes of arrays: T exponents theta, N nodes of a quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from discreet.accounting.tight.interface import Quadrature
from discreet.accounting.tight.rounding import FloatArray

__all__ = ["Law", "Tilt", "log_peak", "sharpened", "tilt_for_delta", "tilt_for_epsilon"]

# The grid of ln theta that a search begins with.
_WIDEST = np.linspace(np.log(1e-4), np.log(1e8), 48)

# Points of the finer grids, between the neighbours of the best point.
_FINE = 12


@dataclass(frozen=True, slots=True)
class Tilt:
    """An exponent with the Chernoff bound that it gives: delta(epsilon) <= e^log_delta."""

    theta: float
    epsilon: float
    log_delta: float


@dataclass(frozen=True, slots=True)
class Law:
    """The composed loss: quadratures with counts."""

    parts: tuple[tuple[Quadrature, float], ...]

    def cumulant(self, theta: FloatArray) -> FloatArray:
        """The cumulant K at real exponents."""
        total_T = np.zeros_like(theta)

        for nodes, count in self.parts:
            exponent_TN = nodes.log_weight[None, :] + theta[:, None] * nodes.loss[None, :]

            # The largest exponent is taken out, so that nothing overflows.
            top_T = exponent_TN.max(axis=1)
            total_T += count * (top_T + np.log(np.exp(exponent_TN - top_T[:, None]).sum(axis=1)))

        return total_T

    def loose(self, theta: FloatArray, width: float) -> FloatArray:
        """The ln of (e^K - A): the tilted mass outside the atom A that remains if losses within
        `width` count as one.
        """
        log_atom = np.zeros_like(theta)

        for nodes, count in self.parts:
            # The atom of one step: the fullest window of this width.
            weight = np.exp(np.minimum(nodes.log_weight, 0.0))
            mass_below = np.cumsum(weight)
            after = np.searchsorted(nodes.loss, nodes.loss + width, side="right") - 1
            begin = int(np.argmax(mass_below[after] - mass_below + weight))
            window = slice(begin, int(after[begin]) + 1)
            place = float(np.average(nodes.loss[window], weights=weight[window]))
            mass = min(float(weight[window].sum()), 1.0)
            log_atom += count * (np.log(mass) + theta * place)

        total = self.cumulant(theta)
        share = np.minimum(log_atom - total, -1e-12)
        return total + np.log(-np.expm1(share))

    def capped(self, beyond: float) -> Law:
        """The law without losses, at either end, that come up with less than `beyond` in
        probability over all steps; two nodes stay at least.
        """
        parts = []

        for nodes, count in self.parts:
            weight = np.exp(nodes.log_weight) * count
            first = min(int(np.searchsorted(np.cumsum(weight), beyond)), len(weight) - 2)
            last = len(weight) - int(np.searchsorted(np.cumsum(weight[::-1]), beyond))
            likely = slice(max(first, 0), max(last, first + 2))
            parts.append((Quadrature(nodes.loss[likely], nodes.log_weight[likely]), count))

        return Law(tuple(parts))


def log_peak(theta: FloatArray) -> FloatArray:
    """The ln of c(theta) of the header."""
    return -theta * np.log1p(1.0 / theta) - np.log1p(theta)


def tilt_for_delta(law: Law, log_delta: float) -> Tilt:
    """The theta with the least epsilon at this delta; a negative epsilon means 0."""

    def bound(theta: FloatArray) -> FloatArray:
        return (law.cumulant(theta) + log_peak(theta) - log_delta) / theta

    theta, epsilon = _least(bound)
    return Tilt(theta, epsilon, log_delta)


def sharpened(law: Law, tilt: Tilt) -> Tilt:
    """Exchange the epsilon of Chernoff's bound for that of the saddle-point approximation, at the
    same exponent.

    With K'' the variance of the tilted law, delta(eps) is about e^(K - theta eps) / (theta (1 +
    theta) sqrt(2 pi K'')).
    """
    gap = 0.05
    below, middle, above = law.cumulant(tilt.theta * np.array([1.0 - gap, 1.0, 1.0 + gap]))

    # The second difference of the cumulant is theta^2 K''.
    spread = max(float(above - 2.0 * middle + below), 1e-300) / gap**2
    peak = float(log_peak(np.array([tilt.theta]))[0])
    gain = 0.5 * np.log(2.0 * np.pi * spread) + np.log1p(tilt.theta) + peak
    epsilon = max(tilt.epsilon - max(float(gain), 0.0) / tilt.theta, 0.5 * tilt.epsilon)
    return replace(tilt, epsilon=epsilon)


def tilt_for_epsilon(law: Law, epsilon: float) -> Tilt:
    """The theta with the least delta at this epsilon."""

    def bound(theta: FloatArray) -> FloatArray:
        return law.cumulant(theta) + log_peak(theta) - theta * epsilon

    theta, log_delta = _least(bound)
    return Tilt(theta, epsilon, log_delta)


def _least(bound: Callable[[FloatArray], FloatArray]) -> tuple[float, float]:
    """Minimum over ln theta by three nested grids; the bound has one minimum, and near it any theta
    will do.
    """
    grid = _WIDEST

    for _ in range(2):
        value = bound(np.exp(grid))
        best = int(np.argmin(np.where(np.isfinite(value), value, np.inf)))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        grid = np.linspace(low, high, _FINE)

    value = bound(np.exp(grid))
    best = int(np.argmin(value))
    return float(np.exp(grid[best])), float(value[best])
