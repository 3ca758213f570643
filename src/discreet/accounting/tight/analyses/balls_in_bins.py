"""Balls in bins: every record in one of T batches, at random, once per epoch.

The pair of one epoch (docs/proofs/balls_in_bins.md; [ChuaEtAl2025]): the mean over t of
N(e_t, s^2 I) against N(0, s^2 I). Its likelihood ratio is a mean of independent log-normal
variables with mean 1,

    dP/dQ = M = (Y_1 + ... + Y_T)/T,      Y_t = exp((2 x_t - 1)/(2 s^2)),  x_t ~ N(0, s^2) under Q,

and both curves are expectations of convex functions of it: H(P||Q) = E (M - e^eps)_+ and H(Q||P) =
E (1 - e^eps M)_+. So the law of one Y is spread onto a lattice 0, h, 2h, ... with its mean kept,
which can only add to both (sums keep the convex order), and the T-fold sum is computed by FFT.
Under P one of the Y is size-biased: its mass at y is y times as large.

What is left out goes to an infinite loss: Y above a cap (it keeps the mass at the cap, the excess
of the mean goes to infinity) and sums beyond the window of the transform, bounded by Chernoff.
Rounding errors of the transform are added to every outcome.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy

from discreet.accounting.costs import BallsInBinsGaussian
from discreet.accounting.tight.analyses.atoms import Atoms, spread_out
from discreet.accounting.tight.analyses.poisson import PoissonRemove
from discreet.accounting.tight.interface import Direction
from discreet.accounting.tight.rounding import FloatArray, U, fft_error, normal_mass

__all__ = ["balls_in_bins_directions"]

# Spacings of the lattice per standard deviation of Y: this adds 1/3456 to its variance.
_FINE = 24.0

# The fewest and the most points of a transform for P against Q.
_LONGEST = 1 << 21
_SHORTEST = 1 << 12

# Points of a transform for Q against P; the long one for up to so few batches.
_MEDIUM, _LONG, _FEW = 1 << 17, 1 << 20, 8

# The mass of Y that is cut off for Q against P.
_LOW_CAP = 1e-5

# Distance of the atoms that are handed on, as a loss.
_LOSS_SPACING = 5e-4

# So many spacings of the lattice are tried.
_ATTEMPTS = 4
# Mass per epoch at an infinite loss, with the fewest spacings per standard deviation that are
# accepted at that price.
_LADDER = ((1e-13, 2.5), (1e-11, 2.5), (1e-9, 2.0))


@lru_cache(maxsize=64)
def balls_in_bins_directions(cost: BallsInBinsGaussian) -> tuple[Direction, Direction]:
    """Both directions of one epoch; either may be that of the un-amplified Gaussian, which
    dominates as well.

    That is so where the lattice would be too long to gain anything (little noise), and for Q
    against P where the lowest lattice point would hold too much (few batches). From 1e-13 (little
    noise: up to 1e-9) of mass per epoch is put at an infinite loss, so that no bound is finite at a
    delta below that.
    """
    batches, noise = cost.batches, cost.noise_multiplier

    # The record is in one batch of the epoch: without amplification, one Gaussian step.
    alone = PoissonRemove(1.0, noise)

    for negligible, fewest in _LADDER:
        remove = _remove(batches, noise, negligible, fewest)
        if remove is not None:
            add = _add(batches, noise, negligible)
            return remove, (add if add is not None and add.infinite <= 10.0 * negligible else alone)

    return alone, alone


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """Y on the lattice: masses under Q and, size-biased, under P, rounded up; what P has beyond the
    cap.
    """

    spacing: float
    mass: FloatArray
    biased: FloatArray
    infinite: float

    @property
    def value(self) -> FloatArray:
        """The lattice points 0, h, 2h, ..."""
        return self.spacing * np.arange(len(self.mass), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class _Window:
    """Sums from `first` spacings, `length` of them; masses that may lie beyond either end."""

    first: int
    length: int
    above: float
    below: float


def _cap(noise: float, negligible: float) -> float:
    """A cap with E(Y - cap)_+ <= P[x_1 > x(cap)] small under N(1, s^2); any would be sound."""
    z = 1.0
    while scipy.special.ndtr(-z) > 0.1 * negligible:
        z += 0.05

    return math.exp(min((2.0 * (1.0 + z * noise) - 1.0) / (2.0 * noise**2), 600.0))


def _lattice_law(noise: float, spacing: float, cap: float) -> _Law:
    """Each cell [a, b] of the lattice: (N1 - a N0)/h to its upper end, (b N0 - N1)/h to its lower
    end, which keeps mass and mean.
    """
    edges = spacing * np.arange(math.ceil(cap / spacing) + 1)
    with np.errstate(divide="ignore"):
        x = noise**2 * np.log(edges) + 0.5

    n0, e0 = normal_mass(x[:-1] / noise, x[1:] / noise)
    n1, e1 = normal_mass((x[:-1] - 1.0) / noise, (x[1:] - 1.0) / noise)
    low, high = edges[:-1], edges[1:]

    # Rounding of ln, of x and of z moves an edge by a relative amount of this size; what it changes
    # is below b N0 times it.
    moved = 32.0 * U * (1.0 + np.abs(np.log(high)) + 1.0 / noise**2) * (high * n0 + n1)
    error = (high * e0 + e1 + moved) / spacing
    mass = np.zeros(len(edges))
    mass[1:] += np.maximum((n1 - low * n0) / spacing, 0.0) + error
    mass[:-1] += np.maximum((high * n0 - n1) / spacing, 0.0) + error

    # Beyond the cap: the mass under Q stays at the cap, that under P goes to an infinite loss.
    ends = np.array([x[-1] / noise, float((x[-1] - 1.0) / noise)])
    tail, tail_error = normal_mass(ends, np.array([np.inf, np.inf]))
    mass[-1] += float(tail[0] + tail_error[0])
    mass *= 1.0 + 16.0 * U
    biased = mass * edges * (1.0 + 4.0 * U)
    return _Law(spacing, mass, biased, float(tail[1] + tail_error[1]) * (1.0 + 4.0 * U))


def _window(law: _Law, batches: int, negligible: float) -> _Window:
    """The sums S that matter, by Chernoff at many exponents v > 0:

    P[S > c] <= e^(-v c) E_P e^(v Y) (E_Q e^(v Y))^(T-1)  and  Q[S < c] <= e^(v c) (E_Q e^(-v Y))^T.
    """
    goal = math.log(negligible)
    high, low = math.inf, 0.0
    scale = np.geomspace(0.1, 1e4, 60)

    for v in scale[scale < 300.0] / float(law.value[-1]):
        biased, plain = (_log_mean(mass, law.value, v) for mass in (law.biased, law.mass))
        high = min(high, (biased + (batches - 1) * plain - goal) / v)

    for v in np.geomspace(1e-3, 1e3, 60):
        low = max(low, (goal - batches * _log_mean(law.mass, law.value, -v)) / v)

    first = max(math.floor(low / law.spacing) - 1, 0)
    last = math.ceil(high / law.spacing) + 1
    beyond = negligible * (1.0 + 1e-9)
    return _Window(first, last - first + 1, beyond, beyond if first else 0.0)


def _log_mean(mass: FloatArray, value: FloatArray, v: float) -> float:
    """The logarithm of E e^(v Y), rounded up."""
    exponent = v * value
    top = float(exponent.max())
    total = float(np.dot(mass, np.exp(exponent - top)))
    return math.log(total) + top + 1e-12 * (1.0 + abs(top))


def _remove(batches: int, noise: float, negligible: float, fewest: float) -> Atoms | None:
    """P against Q: outcomes by increasing M, their mass under P. None if there are less than
    `fewest` points per deviation.
    """
    cap = _cap(noise, negligible)
    deviation = math.sqrt(math.expm1(min(1.0 / noise**2, 600.0)))
    spacing = max(deviation / _FINE, 2.2 * cap / _LONGEST)

    for _ in range(_ATTEMPTS):
        if spacing > deviation / fewest:
            return None

        law = _lattice_law(noise, spacing, cap)
        window = _window(law, batches, negligible)
        length = scipy.fft.next_fast_len(max(window.length, _SHORTEST), real=True)

        # Too long: a wider spacing, which costs tightness.
        if length <= _LONGEST:
            break

        spacing *= 1.05 * length / _LONGEST
    else:
        return None

    mass = _sum_law([(law.biased, 1), (law.mass, batches - 1)], window, length)
    index = window.first + np.arange(length)
    positive = index > 0  # M = 0 has no mass under P
    loss = np.log(index[positive] * (spacing / batches))
    atoms = spread_out(loss, mass[positive], _LOSS_SPACING)

    # Total masses of the other factors are 1 up to rounding; 1.001 covers it.
    return replace(atoms, infinite=law.infinite * 1.001 + window.above)


def _add(batches: int, noise: float, negligible: float) -> Atoms | None:
    """Q against P: outcomes by decreasing M, their mass under Q; M = 0 is an infinite loss.

    Here a smaller Y only raises the loss, so a low cap is sound, and leaves room for a lattice that
    is fine near 0.
    """
    cap = _cap(noise, _LOW_CAP)
    length = _LONG if batches <= _FEW else _MEDIUM
    spacing = 2.2 * (cap + batches) / length

    for _ in range(_ATTEMPTS):
        if cap / spacing < 8.0:
            return None

        law = _lattice_law(noise, spacing, cap)
        window = _window(law, batches, negligible)
        if window.length <= length:
            break

        spacing *= 1.05 * window.length / length
    else:
        return None

    mass = _sum_law([(law.mass, batches)], window, length)
    index = window.first + np.arange(length)
    positive = index > 0
    loss = -np.log(index[positive] * (spacing / batches))
    atoms = spread_out(loss[::-1], mass[positive][::-1], _LOSS_SPACING)
    return replace(atoms, infinite=window.below + (float(mass[0]) if window.first == 0 else 0.0))


def _sum_law(factors: list[tuple[FloatArray, int]], window: _Window, length: int) -> FloatArray:
    """Masses of the sum on the window, modulo its length, rounded up.

    In long double. With F_j the spectra, n_j the counts, d the error of an output of the FFT, u the
    unit roundoff, and A = prod_j (|F_j| + d)^(n_j), the error per outcome is at most the mean over
    frequencies of A - prod_j |F_j|^(n_j) + (20 u sum_j n_j + d) A.
    """
    unit = float(np.finfo(np.longdouble).eps) / 2.0
    shake = fft_error(length, unit) + 8.0 * unit
    power: Any = np.ones(length // 2 + 1, dtype=np.clongdouble)
    log_size, growth = np.zeros(length // 2 + 1), np.zeros(length // 2 + 1)

    for mass, count in factors:
        # Wrapping around only adds mass inside the window, which is on the safe side.
        wrapped = np.bincount(np.arange(len(mass)) % length, weights=mass, minlength=length)
        vector = wrapped * (1.0 + 16.0 * U)
        spectrum = scipy.fft.rfft(vector.astype(np.longdouble))
        size = np.maximum(np.abs(spectrum).astype(np.float64), 1e-30)
        log_size += count * np.log(size)
        growth += count * np.log1p(shake * float(np.sum(vector)) / size)
        power = power * _power(spectrum, count)

    mass = np.roll(scipy.fft.irfft(power, n=length), -(window.first % length)).astype(np.float64)

    above = np.exp(np.minimum(log_size + growth, 50.0)) * (1.0 + 1e-9)
    steps = 1 + sum(count for _, count in factors)
    share = -np.expm1(-growth) + 20.0 * steps * unit + shake

    # Every frequency of the real transform stands for two at most, hence the 2.
    error = 2.0 * float(np.sum(above * share)) / length
    total: FloatArray = (np.maximum(mass, 0.0) + error * (1.0 + 1e-6)) * (1.0 + 4.0 * U)
    return total


def _power(base: Any, count: int) -> Any:
    """base^count by squaring: count multiplications' worth of rounding, no logarithm."""
    result = np.ones_like(base)

    while count:
        if count & 1:
            result = result * base

        count >>= 1
        if count:
            base = base * base

    return result
