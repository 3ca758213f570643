"""Moments of the likelihood ratio of a sampled Gaussian, each with a proven error bound.

Legend:
    s       noise multiplier: noise standard deviation over sensitivity
    q       probability that the record is in the sample
    t       the output in units of the noise, standard normal when the record is absent
    a(t)    (1 - q) + q exp(+t/s - 1/(2 s^2)), the density ratio of (1-q) N(0, s^2) + q N(+1, s^2)
            to N(0, s^2)
    b(t)    a(-t), the same for N(-1, s^2)
    p, n    powers, both >= 0

The moment is A = E[a^p b^-n]. Because E[a] = E[b] = 1,

    A - 1 = E[g],   g = a^p b^-n - 1 - p (a - 1) + n (b - 1),

and g >= 0 whenever (p, n) is (order, 0), (0, order - 1) or (order, order - 1): a^p b^-n is then
convex and g is its distance from the tangent at (1, 1). The mean is a trapezoidal sum on the whole
line; the integrand is analytic in a strip, so the sum converges geometrically, with the explicit
error bound of docs/proofs/rdp.md, section 2. Truncation and rounding are bounded there too (section
3), and everything is added: what is returned is at least ln A.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy

from discreet.accounting.rdp._excess import RELATIVE_ERROR, FloatArray, exp_excess, log_deficit

__all__ = ["log_moment", "rough_log_moment"]

# Spacing of float64 at 1.
_UNIT = 2.0**-52

# The normal law has so little mass beyond so many standard deviations.
_TAIL = 12.0
_TAIL_MASS = 2e-33

# The discretisation error is e^-75 of the moment, or e^-30 where no claim is made.
_DIGITS = 75.0
_ROUGH_DIGITS = 30.0

# Nodes are multiples of this, hence exact in float64.
_FINEST = 2.0**-16
_LARGEST_GRID = 2**17
_ROOT = math.sqrt(2.0 * math.pi)

# Strips that are tried, of the widest allowed.
_FRACTIONS = np.geomspace(0.02, 1.0, 40)

# Above e^30 the moment is summed as a logarithm.
_LINEAR = 30.0

# Above this, exp(t/s) is kept as a logarithm.
_FURTHEST = 300.0


@dataclass(frozen=True, slots=True)
class _Grid:
    """Nodes k*spacing, and kappa: the trapezoidal sum misses at most kappa * E|integrand on the
    strip|.
    """

    nodes: FloatArray
    spacing: float
    strip: float  # a: half the width of the strip, in t
    kappa: float  # 2 e^{a^2/2} / (e^{2 pi a / spacing} - 1)
    widening: float  # cos(a/(2s))^-n, by how much |b^-n| grows on the strip


def log_moment(p: float, n: float, *, probability: float, noise_multiplier: float) -> float:
    """An upper bound on ln A, infinity where the grid would be too large to be worth it.

    Args:
        p: power of a, at least 0.
        n: power of 1/b, at least 0.
        probability: q, in (0, 1].
        noise_multiplier: s.
    """
    grid = _grid(p, n, noise_multiplier, _DIGITS)
    if grid is None:
        return math.inf

    # `height` is the logarithm of a^p b^-n with the weight e^(-t^2/2) of the normal density.
    shift = grid.nodes / noise_multiplier
    half = 0.5 / noise_multiplier / noise_multiplier
    up, down = shift - half, -shift - half
    log_up, log_down = _log_mixture(up, probability), _log_mixture(down, probability)
    exponent = p * log_up - n * log_down
    height = exponent - 0.5 * grid.nodes**2
    steepness = np.abs(shift) + half - math.log(probability) + 2.0
    rounding = _UNIT * (8.0 * (p + n) * steepness + grid.nodes**2 + 8.0)

    # Large moments are summed as logarithms: there nothing cancels against 1.
    if height.max() > _LINEAR or (p and up.max() > _FURTHEST) or (n and down.max() > _FURTHEST):
        return _log_sum(height + rounding, grid)

    safe = height + rounding
    tail = float(np.exp(safe[-1]) + np.exp(safe[0])) / _TAIL / _ROOT

    # Beyond `near`, b <= 1 and g <= a^p b^-n, which is e^safe with its weight.
    near = exponent <= _LINEAR
    terms = _tangent_distance(p, n, (up[near], down[near]), probability, steepness[near])
    total = float(
        np.sum(terms * np.exp(-0.5 * grid.nodes[near] ** 2)) + np.sum(np.exp(safe[~near]))
    )

    # The weight e^(-t^2/2) is off by up to t^2 units in the last place, t < 39.
    total *= grid.spacing / _ROOT * (1.0 + 2.0**-41)

    # What the trapezoidal sum misses: of the subtracted terms, of their tails, and of A itself.
    missed = grid.kappa * (1.0 + 2.0 * probability * (p + n)) + (p + n) * probability * _TAIL_MASS
    kappa = grid.kappa * grid.widening
    return math.log1p((total + tail + missed + kappa) / (1.0 - kappa) * (1.0 + 2.0**-50)) * (
        1.0 + 2.0**-50
    )


def rough_log_moment(p: float, n: float, *, probability: float, noise_multiplier: float) -> float:
    """About ln A, several times as fast and without any claim: for choosing an order."""
    grid = _grid(p, n, noise_multiplier, _ROUGH_DIGITS)
    if grid is None:
        return math.inf

    shift, half = grid.nodes / noise_multiplier, 0.5 / noise_multiplier / noise_multiplier
    height = -0.5 * grid.nodes**2
    if p:
        height += p * _log_mixture(shift - half, probability)

    if n:
        height -= n * _log_mixture(-shift - half, probability)

    top = float(height.max())
    log = top + math.log(float(np.exp(height - top).sum()) * grid.spacing / _ROOT)

    # Where A - 1 is below the rounding of a sum near 1, its leading term in q.
    spread = math.expm1(min(2.0 * half, 700.0))
    leading = 0.5 * (p * abs(p - 1.0) + n * (n + 1.0)) * probability**2 * spread
    return max(log, 0.0) if log > 1e-9 else min(leading, 1e-9)


def _grid(p: float, n: float, s: float, digits: float) -> _Grid | None:
    """The widest spacing that the strip of analyticity allows; None if it needs too many nodes."""
    # For n > 0 the strip ends before |b| can vanish; for n = 0 at the branch point of a, at height
    # pi*s.
    widest = min(math.sqrt(2.0 * digits), (math.pi / 2.0 if n else 0.98 * math.pi) * s)
    strips = widest * (_FRACTIONS if n else _FRACTIONS[-1:])

    # A wider strip allows a wider spacing, but the integrand grows on it: the best of many.
    widening = -n * np.log(np.cos(0.5 * strips / s))
    spacings = 2.0 * math.pi * strips / (digits + 0.5 * strips**2 + widening)
    best = int(np.argmax(spacings))
    spacing = math.floor(float(spacings[best]) / _FINEST) * _FINEST

    # The sum ends _TAIL beyond where its terms may be largest (docs/proofs/rdp.md, section 2).
    first, last = _TAIL + (1.0 / s if n else 0.0), _TAIL + (p + n) / s
    if not spacing or first + last > spacing * _LARGEST_GRID:
        return None

    nodes = spacing * np.arange(
        -math.ceil(first / spacing), math.ceil(last / spacing) + 1, dtype=np.float64
    )
    strip = float(strips[best])
    kappa = 2.001 * math.exp(0.5 * strip**2 - 2.0 * math.pi * strip / spacing)
    return _Grid(nodes, spacing, strip, kappa, float(np.exp(widening[best])) * 1.001)


def _log_mixture(log_ratio: FloatArray, q: float) -> FloatArray:
    """The logarithm of 1 - q + q e^y."""
    if q == 1.0:
        return log_ratio

    result: FloatArray = np.logaddexp(math.log1p(-q), math.log(q) + log_ratio)
    return result


def _log_sum(heights: FloatArray, grid: _Grid) -> float:
    """Logarithm of the trapezoidal sum of e^height, tails and discretisation included."""
    edges = scipy.special.logsumexp([heights[0], heights[-1]]) - math.log(_TAIL)
    total = float(
        np.logaddexp(scipy.special.logsumexp(heights) + math.log(grid.spacing), edges)
    ) - math.log(_ROOT)
    return total - math.log1p(-grid.kappa * grid.widening) + 2.0**-40 + abs(total) * 2.0**-48


def _tangent_distance(
    p: float, n: float, logs: tuple[FloatArray, FloatArray], q: float, steepness: FloatArray
) -> FloatArray:
    """The distance g plus a bound on the error of its evaluation.

    With u = a - 1, w = b - 1 and v = p ln(1+u) - n ln(1+w):  g = (e^v - 1 - v) - p (u - ln(1+u)) +
    n (w - ln(1+w)).
    """
    v = np.zeros_like(steepness)
    size = np.zeros_like(steepness)
    distance = np.zeros_like(steepness)
    error = np.zeros_like(steepness)
    parts = [
        (sign * power, q * np.expm1(log))
        for sign, power, log in ((1.0, p, logs[0]), (-1.0, n, logs[1]))
        if power
    ]

    for power, offset in parts:
        log = np.log1p(offset)
        v += power * log
        size += abs(power) * np.abs(log)
        deficit = power * log_deficit(offset)
        distance -= deficit
        error += RELATIVE_ERROR * np.abs(deficit)

    # The three terms carry a relative error each; e^v also that of the logarithms in v.
    excess = exp_excess(v)
    distance += excess
    error += RELATIVE_ERROR * excess + 16.0 * _UNIT * size * np.abs(np.expm1(v))

    for power, offset in parts:
        # The offset itself is known to `slack`; the slope of g in it is power * (e^v / (1 + offset)
        # - 1).
        slack = 4.0 * _UNIT * ((offset + q) * steepness + np.abs(offset))
        slope = np.abs(np.expm1(v - np.log1p(offset))) + 2.0 * (p + n + 1.0) * slack
        error += 2.0 * abs(power) * slope * slack

    result: FloatArray = np.maximum(distance, 0.0) + error
    return result
