"""Which exponential tilt, spacing and window to use: choices, without effect on soundness.

K(theta) = sum_j T_j ln E e^(theta L_j) is the cumulant function of the composed loss S = sum of all
losses, computed from quadratures. For every theta > 0 (Chernoff; [Canonne2020, Proposition 12]):

    delta(eps) <= e^(K(theta) - theta eps) c(theta),    c(theta) = theta^theta / (1 + theta)^(1 + theta) = max_s e^(-theta
    s) (1 - e^-s).

The theta at which this bound is best makes eps the mean of the tilted law e^(theta S - K), so that
the composed measure is computed with small *relative* error just where it is needed, at any delta.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from discreet.accounting.tight.interface import Quadrature

if TYPE_CHECKING:
    from discreet.accounting.tight.rounding import FloatArray

__all__ = ["Law", "Tilt", "log_peak", "sharpened", "tilt_for_delta", "tilt_for_epsilon"]

_WIDEST = np.linspace(np.log(1e-4), np.log(1e8), 48)


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
        """K at real exponents."""
        total = np.zeros_like(theta)
        for nodes, count in self.parts:
            exponent = nodes.log_weight[None, :] + theta[:, None] * nodes.loss[None, :]
            top = exponent.max(axis=1)
            total += count * (top + np.log(np.exp(exponent - top[:, None]).sum(axis=1)))
        return total

    def loose(self, theta: FloatArray, width: float) -> FloatArray:
        """The ln of (e^K - A): the tilted mass outside the atom A that remains if losses within
        `width` count as one.
        """
        log_atom = np.zeros_like(theta)
        for nodes, count in self.parts:
            weight = np.exp(np.minimum(nodes.log_weight, 0.0))
            left = np.cumsum(weight)
            after = np.searchsorted(nodes.loss, nodes.loss + width, side="right") - 1
            begin = int(np.argmax(left[after] - left + weight))
            window = slice(begin, int(after[begin]) + 1)
            place = float(np.average(nodes.loss[window], weights=weight[window]))
            mass = min(float(weight[window].sum()), 1.0)
            log_atom += count * (np.log(mass) + theta * place)
        total = self.cumulant(theta)
        share = np.minimum(log_atom - total, -1e-12)
        return total + np.log(-np.expm1(share))

    @property
    def least(self) -> float:
        """The least composed loss of the quadratures."""
        return float(sum(count * nodes.loss[0] for nodes, count in self.parts))

    def below(self, cut: float) -> Law:
        """The same without losses above the cut."""
        parts = []
        for nodes, count in self.parts:
            keep = nodes.loss <= cut
            keep[:1] = True
            parts.append((Quadrature(nodes.loss[keep], nodes.log_weight[keep]), count))
        return Law(tuple(parts))

    def capped(self, beyond: float) -> Law:
        """The same without losses, at either end, that come up with less than `beyond` in
        probability over all steps.
        """
        parts = []
        for nodes, count in self.parts:
            weight = np.exp(nodes.log_weight) * count
            first = min(int(np.searchsorted(np.cumsum(weight), beyond)), len(weight) - 2)
            last = len(weight) - int(np.searchsorted(np.cumsum(weight[::-1]), beyond))
            keep = slice(max(first, 0), max(last, first + 2))
            parts.append((Quadrature(nodes.loss[keep], nodes.log_weight[keep]), count))
        return Law(tuple(parts))


def log_peak(theta: FloatArray) -> FloatArray:
    """The ln of c(theta), see the header."""
    return -theta * np.log1p(1.0 / theta) - np.log1p(theta)


def tilt_for_delta(law: Law, log_delta: float) -> Tilt:
    """The theta with the least epsilon at this delta; epsilon may come out negative, which means 0."""

    def bound(theta: FloatArray) -> FloatArray:
        return (law.cumulant(theta) + log_peak(theta) - log_delta) / theta

    theta, epsilon = _least(bound)
    return Tilt(theta, epsilon, log_delta)


def sharpened(law: Law, tilt: Tilt) -> Tilt:
    """The same exponent with the epsilon that the saddle-point approximation gives instead of
    Chernoff's bound.

    With K'' the variance of the tilted law, delta(eps) is about e^(K - theta eps) / (theta (1 +
    theta) sqrt(2 pi K'')).
    """
    gap = 0.05
    below, at, above = law.cumulant(tilt.theta * np.array([1.0 - gap, 1.0, 1.0 + gap]))
    spread = max(float(above - 2.0 * at + below), 1e-300) / gap**2  # theta^2 K''
    theta = np.array([tilt.theta])
    gain = 0.5 * np.log(2.0 * np.pi * spread) + np.log1p(tilt.theta) + float(log_peak(theta)[0])
    return replace(
        tilt, epsilon=max(tilt.epsilon - max(float(gain), 0.0) / tilt.theta, 0.5 * tilt.epsilon)
    )


def tilt_for_epsilon(law: Law, epsilon: float) -> Tilt:
    """The theta with the least delta at this epsilon."""

    def bound(theta: FloatArray) -> FloatArray:
        return law.cumulant(theta) + log_peak(theta) - theta * epsilon

    theta, log_delta = _least(bound)
    return Tilt(theta, epsilon, log_delta)


def _least(bound: object) -> tuple[float, float]:
    """Minimum over ln theta by three nested grids; the bound has one minimum, and near it any theta
    will do.
    """
    grid = _WIDEST
    for _ in range(2):
        value = bound(np.exp(grid))  # type: ignore[operator]
        value = np.where(np.isfinite(value), value, np.inf)
        best = int(np.argmin(value))
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
        grid = np.linspace(low, high, 12)
    value = bound(np.exp(grid))  # type: ignore[operator]
    best = int(np.argmin(value))
    return float(np.exp(grid[best])), float(value[best])
