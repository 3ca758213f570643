"""A Gaussian walk for every number of a table, which can be read at any time, in any order.

    Clock     public weights of steps ──> the path to a step: which normals, with what coefficients
    Walk      sums A, numbers, path ──> the nearest integers of (A + s B_t) / 2^k

Guarantee: B_t = m_1 Z_1 + ... + m_t Z_t for independent standard normals Z of each number, exactly,
and the rounding is decided exactly. So a row that is read at step t holds a fixed function of the
ideal Gaussian mechanism's outputs up to t, whenever it was read before (docs/proofs/sparse.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import isqrt, log2
from typing import NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError
from discreet.randomness import ziggurat
from discreet.randomness.addresses import FURTHER, MOST_NUMBERS, PIECE_SIZE
from discreet.randomness.gaussian import fast_paths
from discreet.randomness.refine import refine
from discreet.randomness.source import Purpose, Stream

__all__ = ["Clock", "Path", "Walk"]

# Normals are first computed as integers times 2^-29, each within half of that. Finer ones are
# decided by float64 less often.
_BITS = 29
_SCALE = 2.0**_BITS
_LARGEST = 2.0**34

# Bits of normals where float64 has not decided; more in each round, up to a last one.
_EXACT_BITS = range(48, 512, 64)

# Bits of the unit that is rounded to, below the noise of a step with the largest weight.
_FINENESS = 4

# Blocks of the child "further" for one number: five words, and one that nobody reads.
_FURTHER_BLOCKS = (FURTHER + 1) // 2

_Integers: TypeAlias = NDArray[np.int64]
_Floats: TypeAlias = NDArray[np.float64]
_Words: TypeAlias = NDArray[np.uint64]


class _Node(NamedTuple):
    """A normal of the walk: its label, and the square of its coefficient in B_t."""

    label: str
    square: Fraction


Path: TypeAlias = tuple[_Node, ...]
"""The normals that B_t is made of; public."""


@final
class Clock:
    """The weights of steps, and the paths to them. Public.

    >>> [(node.label, str(node.square)) for node in Clock([1, 1, 1, 1]).path(3)]
    [('end', '9/4'), ('0/4', '1/4'), ('2/4', '1/2')]

    Args:
        weights: m_1, m_2, ..., whole numbers; the steps of a series.
    """

    __slots__ = ("_times", "weights")

    def __init__(self, weights: Sequence[int]) -> None:
        self.weights = tuple(weights)

        # V_0, V_1, ...: of V, not of steps, the walk is a Brownian motion.
        self._times = (0, *accumulate(weight * weight for weight in self.weights))

    def path(self, step: int) -> Path:
        """Give the normals of B_t, t = step (docs/proofs/sparse.md, section 2)."""
        times = self._times
        now, first, last = times[step], 0, len(times) - 1
        if not now:
            return ()

        nodes = [_Node("end", Fraction(now * now, times[last]))]
        while first < step < last:
            middle = (first + last) // 2
            before, after = times[middle] - times[first], times[last] - times[middle]
            label = f"{first}/{last}"

            # The first or the second side of a triangle whose top is at the middle.
            if step <= middle:
                rise, side, last = now - times[first], before, middle
            else:
                rise, side, first = times[last] - now, after, middle

            if rise:
                square = Fraction(rise * rise * before * after, side * side * (before + after))
                nodes.append(_Node(label, square))

        return tuple(node for node in nodes if node.square)

    def shortcut(self, step: int) -> Path:
        """Give the path of rows that were never read: one normal, for the end of a series."""
        now = self._times[step]
        return (_Node("settled", Fraction(now)),) if now else ()


@final
class Walk:
    """The walks of all numbers of a table, over one series of steps.

    Args:
        stream: of the purpose table; taken over [secret].
        clock: of the series [public].
        scale: standard deviation of the noise of a step of weight 1 [grid units, public].
        rows: of the table [public].
        width: numbers of a row [public].

    Attributes:
        clock: as it was given.
        shift: k: integers count 2^k grid units [public].
    """

    __slots__ = ("_nodes", "_scale", "_stream", "_stride", "_width", "clock", "shift")

    def __init__(
        self, stream: Stream, clock: Clock, *, scale: float, rows: int, width: int
    ) -> None:
        owner = "Walk"
        self._scale = Fraction(check.positive(owner, "scale", scale))
        self._width = check.whole(owner, "width", width, least=1)

        # Rows begin with a block of two words.
        self._stride = width + width % 2
        if check.whole(owner, "rows", rows, least=1) * self._stride > MOST_NUMBERS:
            raise ParameterError(
                owner=owner, name="rows", expected="at most 2^31 numbers", got=repr(rows * width)
            )

        largest = scale * max(clock.weights, default=1)
        self.shift = max(0, int(log2(largest)) - _FINENESS) if largest > 1 else 0
        ziggurat.check_rounding()
        self.clock = clock
        self._stream = stream.claim(Purpose.TABLE)
        self._nodes: dict[str, Stream] = {}

    def rounded(self, rows: _Integers, sums: _Integers, path: Path) -> _Integers:
        """Give the integers nearest to (sums + scale * B_t) / 2^shift, reduced to 64 - shift bits.

        Args:
            rows: which rows of the table, (N,) [sensitive].
            sums: of what was weighted and summed so far, modulo 2^64, (N, width) [sensitive].
            path: to t, of the clock [public].

        Raises:
            NumericsError: bits that no working generator gives, with a probability below 2^-400.
        """
        integers = np.empty(sums.shape, np.int64)
        coefficients = [self._coefficient(node) for node in path]
        piece = max(1, PIECE_SIZE // self._stride)

        # Nodes that are on no path any more are not read again until the end of the series.
        labels = {node.label for node in path}
        self._nodes = {label: node for label, node in self._nodes.items() if label in labels}

        for start in range(0, len(rows), piece):
            part = slice(start, start + piece)
            integers[part] = self._piece(rows[part], sums[part], path, coefficients)

        # Only now a function of the true sum modulo 2^64: what is above was cut off.
        integers <<= self.shift
        integers >>= self.shift
        return integers

    def _piece(
        self, rows: _Integers, sums: _Integers, path: Path, coefficients: list[float]
    ) -> _Integers:
        """Round a few rows, which fit into the cache."""
        first = rows * self._stride
        below = sums & ((1 << self.shift) - 1)
        total = np.zeros((len(rows), self._stride))
        np.multiply(below, 2.0**-self.shift, out=total[:, : self._width])

        # Rows begin with whole blocks: a node's words are those of the same blocks.
        blocks = (first[:, np.newaxis] // 2 + np.arange(self._stride // 2)).reshape(-1)
        flat = total.reshape(-1)
        for node, coefficient in zip(path, coefficients, strict=True):
            normals = self._normals(self._node(node.label), blocks)
            normals *= coefficient
            flat += normals

        total = total[:, : self._width]
        nearest = np.rint(total)
        total -= nearest

        # Comparisons are false for NaN.
        undecided = np.argwhere(~(np.abs(total) <= _threshold(coefficients)))
        nearest[tuple(undecided.T)] = 0.0
        integers = (sums >> self.shift) + nearest.astype(np.int64)

        for row, column in undecided.tolist():
            number = int(first[row]) + column
            integers[row, column] = self._exactly(number, int(sums[row, column]), path)

        return integers

    def _normals(self, stream: Stream, blocks: _Integers) -> _Floats:
        """Compute round(2^29 G) for the numbers of these blocks; NaN where it is far out."""
        words = stream.blocks(blocks).reshape(-1)
        backend = fast_paths(words.size)
        integers = np.zeros(words.size)
        backend.prepare(integers.dtype, integers.dtype)
        places, _ = backend.release(words, _SCALE, integers, 1.0, integers)
        if not places.size:
            return integers

        # One in a thousand. Those that are outside have further words (noise.md, section 3).
        numbers = 2 * blocks[places // 2] + places % 2
        known = words[places]
        outside = ziggurat.is_outside(known)
        further = _further(stream, numbers[outside])
        noise, _ = backend.decide(known, further, _SCALE)

        # The k-th number that is outside has row k of the further words.
        rows = np.cumsum(outside) - 1
        for j in np.flatnonzero(np.isnan(noise)).tolist():
            own_words = np.append(known[j], further[rows[j]]) if outside[j] else known[j : j + 1]
            integer = refine(stream, int(numbers[j]), own_words, _SCALE)
            noise[j] = integer if abs(integer) <= _LARGEST else np.nan

        integers[places] = noise
        return integers

    def _exactly(self, number: int, total: int, path: Path) -> int:
        """Round one number, with as many bits as it takes."""
        terms = []
        for node in path:
            stream = self._node(node.label)
            word = stream.blocks(np.array([number // 2]))[0, number % 2 : number % 2 + 1]
            if ziggurat.is_outside(word)[0]:
                word = np.append(word, _further(stream, np.array([number])))

            terms.append((stream, word, self._square(node)))

        for bits in _EXACT_BITS:
            # Both ends in units of 2^-(2 bits + 1).
            unit = 2 * bits + 1
            lower = upper = total << unit - self.shift
            for stream, word, square in terms:
                normal = refine(stream, number, word, 2.0**bits, 1 << bits + 64)
                root = isqrt((square.numerator << 2 * bits) // square.denominator)
                ends = [(root + a) * (2 * normal + b) for a in (0, 1) for b in (-1, 1)]
                lower, upper = lower + min(ends), upper + max(ends)

            half = 1 << unit - 1
            nearest = lower + half >> unit
            if nearest == upper + half >> unit:
                return _wrapped(nearest)

        raise NumericsError(
            expected=f"a rounding that is decided within {_EXACT_BITS.stop} bits",
            got="a sequence of bits that no working generator gives",
            do="Do not use this machine: its cipher or its memory is broken.",
        )

    def _node(self, label: str) -> Stream:
        if label not in self._nodes:
            self._nodes[label] = self._stream.child(f"node/{label}")

        return self._nodes[label]

    def _square(self, node: _Node) -> Fraction:
        """Square the coefficient c, with the scale, in the unit that is rounded to."""
        return node.square * self._scale * self._scale / (1 << 2 * self.shift)

    def _coefficient(self, node: _Node) -> float:
        """Give c 2^-29, rounded once; exact to 2^-120 before that."""
        square = self._square(node)
        return isqrt((square.numerator << 240) // square.denominator) / (1 << 120 + _BITS)


def _further(stream: Stream, numbers: _Integers) -> _Words:
    """Read w_1 ... w_5 of these numbers, a row each."""
    blocks = _FURTHER_BLOCKS * numbers[:, np.newaxis] + np.arange(_FURTHER_BLOCKS)
    words = stream.child("further").blocks(blocks.reshape(-1))
    return np.ascontiguousarray(words.reshape(-1, 2 * _FURTHER_BLOCKS)[:, :FURTHER])


def _threshold(coefficients: list[float]) -> float:
    """Largest distance from an integer that decides (docs/proofs/sparse.md, section 3); negative
    where none does. Rounded down.
    """
    length = sum(coefficients) * _SCALE * (1.0 + 2.0**-40)
    margin = length * 2.0 ** (-_BITS - 1) + (len(coefficients) + 4) * 2.0**-52 * (1 + 32 * length)
    return float(np.nextafter(0.5 - margin * (1.0 + 2.0**-40), -1.0))


def _wrapped(integer: int) -> int:
    """Reduce an integer to the range of int64."""
    return (integer + 2**63) % 2**64 - 2**63
