"""The transform of one tilted measure, at the frequencies that matter in a composition.

A measure with weights w_i (they sum to 1) on whole places p_i has F(o) = sum_i w_i e^(-i o p_i); a
composition is computed modulo n, from F at the n frequencies o = 2 pi k / n. In a composition of
many steps all but a few of them count for nothing, as |F|^T is next to 0. Which, is certified
without computing them (docs/proofs/tight.md, section 5, "Frequencies"): C(o) = |F(o)|^2 has a
second derivative of at most 2V in size, V the variance of the places, so between two points of a
coarser grid with the distance d

    C(o) <= max of C at the two points + V d^2 / 4.

The rest is a sum over the nodes for each frequency that matters, of which there are some twenty.
Where most of them matter (few steps, sparse samples), one long FFT computes all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from discreet.accounting.tight.rounding import FloatArray, block_sum, fft_error, sum_error

__all__ = ["LEAST", "Rest", "Step", "all_frequencies", "frequencies", "phases"]

# Sizes of a spectrum below this are bounded by it.
LEAST = 1e-3

# A transform this short is computed in full: nothing is saved.
_SHORT = 4096

# How much coarser the grid of the certificate is, and on how many of its intervals frequencies are
# computed one by one.
_COARSER = 8
_FEW = 64

# Frequencies of single sums that share their phases; a power of two.
_BLOCK = 16

# A phase takes as long as so many terms of a sum, and a point of a long transform as so many.
_PHASE = 10
_POINTS = 5

# The sum of the squares of an FFT's errors, and of rounding in V: far above both.
_MARGIN = 1e-11


@dataclass(frozen=True, slots=True)
class Step:
    """One tilted measure: an atom at place 0, the rest, and how often it is composed.

    Attributes:
        weight: masses that sum to 1.
        place: whole indices, 0 at the atom.
        count: how often the measure is composed.
    """

    weight: FloatArray
    place: NDArray[np.int64]
    count: int

    @property
    def atom(self) -> float:
        """The weight at place 0."""
        return float(self.weight[self.place == 0][0])

    def rest(self, frequency: NDArray[np.int64], length: int, kind: Any) -> Rest:
        """The transform of what is not the atom, at some of the frequencies modulo the length."""
        loose = np.where(self.place == 0, 0.0, self.weight)
        size = float(np.sum(self.weight)) - self.atom
        unit = float(np.finfo(kind).eps) / 2.0

        # Whichever takes fewer operations; each has an error bound of its own.
        terms = len(loose) * (len(frequency) + _PHASE * (len(frequency) // _BLOCK + 5))
        if terms > _POINTS * length:
            value = _folded(loose, self.place, length, kind)[frequency]
            return Rest(self.atom, size, value, self.count, fft_error(length, unit))

        value = _single_sums(loose, self.place, frequency, length, kind)
        error = 2.0 * sum_error(len(loose), unit) + 256.0 * unit
        return Rest(self.atom, size, value, self.count, error)


@dataclass(frozen=True, slots=True)
class Rest:
    """The transform of one tilted measure at some frequencies: an atom a, and R of the rest.

    Attributes:
        atom: a.
        loose: 1-norm of what is not the atom.
        value: R.
        count: how often the measure is composed.
        error: of R, relative to `loose`.
    """

    atom: float
    loose: float
    value: Any
    count: int
    error: float

    def at(self, chosen: NDArray[np.int64]) -> Rest:
        """The same at some of these frequencies, by their positions."""
        return replace(self, value=self.value[chosen])

    def log_size(self) -> FloatArray:
        """The ln of |a + R|, at least ln of the least size that counts; good to 16u besides the
        error of R.
        """
        re, im = self.value.real.astype(np.float64) + self.atom, self.value.imag.astype(np.float64)
        log: FloatArray = 0.5 * np.log(np.maximum(re * re + im * im, LEAST**2))
        return log


def all_frequencies(length: int) -> NDArray[np.int64]:
    """The frequencies of a real transform: 0 ... length / 2."""
    return np.arange(length // 2 + 1)


def frequencies(steps: list[Step], length: int, negligible: float) -> NDArray[np.int64]:
    """Frequencies of a real transform among which are all those where the product of |F|^count is
    above e^-negligible.
    """
    grid = 1 << (length // _COARSER).bit_length()
    if length <= _SHORT or grid >= length:
        return all_frequencies(length)

    log_bound = np.zeros(grid // 2)

    for step in steps:
        square = np.abs(_folded(step.weight, step.place, grid, np.float64)) ** 2
        highest = np.maximum(square[:-1], square[1:]) + _bulge(step, 2.0 * math.pi / grid)
        log_bound += 0.5 * step.count * np.log(np.maximum(highest, LEAST**2))

    counted = np.flatnonzero(log_bound > -negligible)
    if len(counted) > _FEW:
        return all_frequencies(length)

    # Interval j of the grid holds the frequencies from j length / grid to (j + 1) length / grid.
    ranges = [
        np.arange(-(-j * length // grid), (j + 1) * length // grid + 1) for j in counted.tolist()
    ]
    candidates: NDArray[np.int64] = np.unique(np.concatenate(ranges))
    return candidates


def _bulge(step: Step, distance: float) -> float:
    """By how much |F|^2 may exceed its value at the nearer of two points this far apart."""
    place = step.place.astype(np.float64)
    centred = place - float(np.sum(step.weight * place))

    # Around any centre the sum of squares is at least the variance.
    variance = float(np.sum(step.weight * centred * centred))
    return 0.25 * variance * distance * distance * (1.0 + 1e-9) + _MARGIN


def _folded(weight: FloatArray, place: NDArray[np.int64], length: int, kind: Any) -> Any:
    """The transform at all non-negative frequencies, of the weights modulo the length."""
    on_circle = np.zeros(length, dtype=kind)
    np.add.at(on_circle, np.mod(place, length), weight.astype(kind))
    return scipy.fft.rfft(on_circle)


def _single_sums(
    weight: FloatArray,
    place: NDArray[np.int64],
    frequency: NDArray[np.int64],
    length: int,
    kind: Any,
) -> Any:
    """The transform of the weights at some frequencies, each a sum over the nodes.

    The phase at frequency 16 b + j is that at 16 b times that at j; those at 0 ... 15 are products
    of at most four. So a term carries at most five phases and five products: 256 units of roundoff.
    """
    block, offset = np.divmod(frequency, _BLOCK)
    blocks = np.unique(block)
    powers = 1 << np.arange(_BLOCK.bit_length() - 1)

    # Whole numbers as long as they can be, so that no digits of an angle are lost.
    rows = np.concatenate([powers, _BLOCK * blocks])
    turned_RN = phases(np.mod(-np.multiply.outer(rows, place), length), length, kind)
    within_KN = np.ones((_BLOCK, len(place)), dtype=turned_RN.dtype)

    for power, turned_N in zip(powers.tolist(), turned_RN, strict=False):
        np.multiply(within_KN[:power], turned_N, out=within_KN[power : 2 * power])

    value = np.empty(len(frequency), dtype=turned_RN.dtype)

    for number, turned_N in zip(blocks.tolist(), turned_RN[len(powers) :], strict=True):
        chosen = block == number
        value[chosen] = block_sum(within_KN[offset[chosen]] * (turned_N * weight))

    return value


def phases(turn: NDArray[np.int64], length: int, kind: Any) -> Any:
    """e^(2 pi i turn / length), for whole numbers from 0 to below the length."""
    # Where many are asked for, they are asked for again: all of them are computed once.
    if 4 * turn.size > length:
        return _all_phases(length, kind)[turn]

    angle = turn.astype(kind) * (8.0 * np.arctan(kind(1.0)) / length)
    return np.cos(angle) + 1j * np.sin(angle)


@lru_cache(maxsize=4)
def _all_phases(length: int, kind: Any) -> Any:
    """The phases of all turns below the length."""
    angle = np.arange(length).astype(kind) * (8.0 * np.arctan(kind(1.0)) / length)
    return np.cos(angle) + 1j * np.sin(angle)
