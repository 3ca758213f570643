"""The fast paths of the Gaussian noise, compiled by numba: the operations of `ziggurat`.

The parts of the map are the functions of `ziggurat` themselves, compiled, so that its error bounds
(docs/proofs/noise.md, sections 4 and 5) are those of this file too. Where numbers are released
there is no branch per number, so that the compiler uses the widest vectors there are. Compiled
without fast-math: nothing is reordered and nothing fused (a test reads the machine code).

Nothing is cached on disk: numba's cache is a pickle, and its age is told from the date of one file,
so that an old kernel could run with new coefficients. Compiling takes about a second, once in a
process for each pair of types. The first use is checked against `ziggurat`.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.randomness import ziggurat
from discreet.randomness.addresses import FURTHER, PIECE_SIZE
from discreet.randomness.layers import tables

__all__ = [
    "COMPILED",
    "compile_noise",
    "compile_release",
    "compiled_decide",
    "compiled_release",
    "is_within",
]

# Numbers at a time: their scratch stays in the first cache.
_BLOCK = 128

_ATTEMPTS = ziggurat.ATTEMPTS
_DOUBT = ziggurat.DOUBT
_HEIGHT_UNIT = ziggurat.HEIGHT_UNIT
_INVERSE_R = ziggurat.INVERSE_R
_LEAST_HEIGHT = ziggurat.LEAST_HEIGHT
_LEAST_TAIL = ziggurat.LEAST_TAIL
_R = ziggurat.R_FLOAT
_ROUNDER = ziggurat.ROUNDER
_TAIL_AREA = ziggurat.TAIL_AREA

_layer_of, _position_of, _ordinate, _split, _minus_log, _surplus = (
    njit(inline="always", error_model="numpy")(part)
    for part in (
        ziggurat.layer_index,
        ziggurat.position_of,
        ziggurat.ordinate,
        ziggurat.split,
        ziggurat.minus_logarithm,
        ziggurat.surplus,
    )
)

_Words = NDArray[np.uint64]
_Floats = NDArray[np.float64]
_Numbers = NDArray[np.floating]


# --- tier 1 ---


def _noise(words: Any, slopes: Any, limits: Any, threshold: float, x: Any, limit: Any) -> int:
    """Compute the integers of a block, NaN where this tier does not decide; count the NaN.

    Look-ups do not become vector code, so they have a loop of their own.
    """
    for j in range(words.size):
        i = _layer_of(words[j])
        x[j] = slopes[i]
        limit[j] = limits[i]

    left = 0

    for j in range(words.size):
        f = _position_of(words[j])
        value = f * x[j] if abs(f) <= limit[j] else np.nan
        nearest = (value + _ROUNDER) - _ROUNDER

        # False for NaN.
        decided = abs(value - nearest) <= threshold
        x[j] = nearest if decided else np.nan
        left += 1 - decided

    return left


_compiled_noise = njit(nogil=True, error_model="numpy")(_noise)


def _publish(sums: Any, inverse: float, spacing: float, noise: Any, out: Any) -> None:
    """Write spacing * (integers of the sums + noise)."""
    for j in range(out.size):
        out[j] = (np.rint(np.float64(sums[j]) * inverse) + noise[j]) * spacing


def _publish_over(sums: Any, inverse: float, spacing: float, noise: Any) -> None:
    """Do the same in the place of the sums: as two arrays, this would not become vector code."""
    for j in range(sums.size):
        sums[j] = (np.rint(np.float64(sums[j]) * inverse) + noise[j]) * spacing


_compiled_publish = njit(nogil=True, error_model="numpy")(_publish)
_compiled_publish_over = njit(nogil=True, error_model="numpy")(_publish_over)


def _walk(words: Any, law: Any, sums: Any, spacing: float, out: Any, doubts: Any) -> int:
    """Release all numbers, block by block; list those that become NaN, and their integers.

    Without sums, those in `out` are released.
    """
    slopes, limits, threshold = law
    places, units = doubts

    # Of a power of two: the product is the quotient, to the last bit.
    inverse = 1.0 / spacing
    noise, limit = np.empty(_BLOCK), np.empty(_BLOCK, limits.dtype)
    count = 0

    for start in range(0, out.size, _BLOCK):
        stop = min(start + _BLOCK, out.size)
        left = _compiled_noise(words[start:stop], slopes, limits, threshold, noise, limit)

        if left > 0:
            for j in range(stop - start):
                if np.isnan(noise[j]):
                    if sums is None:
                        value = np.float64(out[start + j])
                    else:
                        value = np.float64(sums[start + j])

                    places[count] = start + j
                    units[count] = np.rint(value * inverse)
                    count += 1

        if sums is None:
            _compiled_publish_over(out[start:stop], inverse, spacing, noise)
        else:
            _compiled_publish(sums[start:stop], inverse, spacing, noise, out[start:stop])

    return count


_compiled_walk = njit(nogil=True, error_model="numpy")(_walk)


def compiled_release(
    words: _Words,
    scale: float,
    sums: _Numbers,
    spacing: float,
    out: _Numbers,
) -> tuple[NDArray[np.intp], _Floats]:
    """Write sums and noise as `ziggurat.release_inside` does, and return the same.

    Raises:
        NumericsError: this thread does not round to nearest, or the compiled code does not agree
            with `ziggurat`.
    """
    compile_release(sums.dtype, out.dtype)
    ziggurat.check_rounding()
    return _release(words, scale, sums, spacing, out)


def _release(
    words: _Words,
    scale: float,
    sums: _Numbers,
    spacing: float,
    out: _Numbers,
) -> tuple[NDArray[np.intp], _Floats]:
    places, units = _scratch(out.size)
    law = ziggurat.slopes(scale), _limits(), ziggurat.decision_threshold(scale)
    values = None if sums is out else sums
    count = _compiled_walk(words, law, values, spacing, out, (places, units))
    return places[:count].copy(), units[:count].copy()


@cache
def _limits() -> NDArray[np.float32]:
    """Give the limits in half the memory: they are exact in float32."""
    return tables().limits.astype(np.float32)


_per_thread = threading.local()


def _scratch(size: int) -> tuple[NDArray[np.intp], _Floats]:
    """Give memory that stays with the thread: fresh memory costs as much as the noise."""
    scratch: tuple[NDArray[np.intp], _Floats] | None = getattr(_per_thread, "scratch", None)
    if scratch is None or scratch[0].size < size:
        scratch = _per_thread.scratch = (
            np.empty(max(size, PIECE_SIZE), np.intp),
            np.empty(max(size, PIECE_SIZE)),
        )

    return scratch


# --- tier 2 ---


def _wedges(f: Any, edge: Any, height: Any, width: Any, v: Any) -> None:
    """Compute how far below the bell points of layers are, in the place of their `edge`."""
    for j in range(f.size):
        mantissa, exponent = _split(_ordinate(edge[j], height[j], v[j]))
        edge[j] = _surplus(_minus_log(mantissa, exponent), abs(f[j]) * width[j])


_compiled_wedges = njit(nogil=True, error_model="numpy")(_wedges)


def _uniform(height: Any) -> float:
    """Give V, and NaN below the window."""
    h = np.float64(height)
    return h * _HEIGHT_UNIT if h >= _LEAST_HEIGHT else np.nan


_compiled_uniform = njit(nogil=True, error_model="numpy")(_uniform)


def _first_surpluses(first: Any, further: Any, table: Any, columns: Any) -> int:
    """Compute the surplus of every first attempt, as if none were in the tail, in columns[1]; and
    count those that are outside.

    Look-ups come first: what follows them becomes vector code.
    """
    limits, edges, heights, widths = table
    positions, edge, height, width, v = columns
    rank = 0

    for j in range(first.size):
        i = _layer_of(first[j])
        positions[j] = _position_of(first[j])
        edge[j], height[j], width[j] = edges[i], heights[i], widths[i]
        outside = abs(positions[j]) > limits[i]
        v[j] = _compiled_uniform(further[rank, 0]) if outside else np.nan
        rank += outside

    _compiled_wedges(positions, edge, height, width, v)
    return rank


_compiled_first_surpluses = njit(nogil=True, error_model="numpy")(_first_surpluses)


def _wedge(position: Any, height: Any, table: Any) -> Any:
    """Compute the surplus of a later attempt, which few numbers come to."""
    _, edges, heights, widths = table
    i = _layer_of(position)
    mantissa, exponent = _split(_ordinate(edges[i], heights[i], _compiled_uniform(height)))
    return _surplus(_minus_log(mantissa, exponent), abs(_position_of(position)) * widths[i])


_compiled_wedge = njit(nogil=True, error_model="numpy")(_wedge)


def _tail(position: Any, height: Any) -> Any:
    """Compute d, and the surplus of a point of the tail; NaN where U is close to 0 or to 1."""
    u = _TAIL_AREA * (1.0 - 2.0 * abs(_position_of(position)))
    if not ((u >= _LEAST_TAIL) & (u <= 1.0 - _DOUBT)):
        return 0.0, np.nan

    mantissa, exponent = _split(u)
    distance = _minus_log(mantissa, exponent) * _INVERSE_R
    mantissa, exponent = _split(_compiled_uniform(height))
    return distance, _surplus(_minus_log(mantissa, exponent), distance)


_compiled_tail = njit(nogil=True, error_model="numpy")(_tail)


def _attempts(position: Any, over: float, further: Any, rank: int, law: Any, table: Any) -> float:
    """Make the attempts of a number that is outside: its integer, or NaN."""
    scale, slopes, thresholds = law

    for attempt in range(_ATTEMPTS):
        height = further[rank, 2 * attempt]
        if attempt > 0:
            position = further[rank, 2 * attempt - 1]

        i = _layer_of(position)
        f = _position_of(position)
        x = f * slopes[i]
        threshold = thresholds[0]

        if abs(f) <= table[0][i]:
            over = np.inf
        elif np.isnan(_compiled_uniform(height)):
            return np.nan
        elif i == 0:
            distance, over = _compiled_tail(position, height)
            x = np.copysign((_R + distance) * scale, f)
            threshold = thresholds[1]
        elif attempt > 0:
            over = _compiled_wedge(position, height, table)

        if over > _DOUBT:
            nearest = (x + _ROUNDER) - _ROUNDER
            return nearest if abs(x - nearest) <= threshold else np.nan

        # Also where it is NaN.
        if not over < -_DOUBT:
            return np.nan

    return np.nan


_compiled_attempts = njit(nogil=True, error_model="numpy")(_attempts)


def _each(first: Any, further: Any, law: Any, table: Any, columns: Any, integers: Any) -> Any:
    """Make the attempts of all numbers; those that are inside have no further words."""
    outside = _compiled_first_surpluses(first, further, table, columns)
    over = columns[1]
    rank = 0

    for j in range(first.size):
        if abs(_position_of(first[j])) > table[0][_layer_of(first[j])]:
            integers[j] = _compiled_attempts(first[j], over[j], further, rank, law, table)
            rank += 1
        else:
            integers[j] = np.nan

    return outside


_compiled_each = njit(nogil=True, error_model="numpy")(_each)


def compiled_decide(first: _Words, further: _Words, scale: float) -> tuple[_Floats, int]:
    """Decide numbers that a release left as `ziggurat.decide_outside` does, and return the same."""
    compile_noise()
    ziggurat.check_rounding()
    return _decide(first, further, scale)


def _decide(first: _Words, further: _Words, scale: float) -> tuple[_Floats, int]:
    table = tables()
    integers = np.empty(first.size)
    thresholds = ziggurat.decision_threshold(scale), ziggurat.tail_threshold(scale)
    outside = _compiled_each(
        first,
        further,
        (scale, ziggurat.slopes(scale), thresholds),
        (table.limits, table.edges, table.heights, table.twice_widths),
        _columns(first.size),
        integers,
    )
    return integers, int(outside)


def _columns(size: int) -> tuple[_Floats, ...]:
    """Give five arrays that stay with the thread."""
    columns: tuple[_Floats, ...] | None = getattr(_per_thread, "columns", None)
    if columns is None or columns[0].size < size:
        columns = _per_thread.columns = tuple(np.empty(2 * size) for _ in range(5))

    return tuple(column[:size] for column in columns)


# --- sums that fit ---


def _count_beyond(values: Any, bound: float) -> int:
    """Count numbers that are larger than the bound, or NaN."""
    count = 0
    for j in range(values.size):
        count += 0 if abs(np.float64(values[j])) <= bound else 1

    return count


_compiled_count_beyond = njit(nogil=True, error_model="numpy")(_count_beyond)


def is_within(values: _Numbers, bound: float) -> bool:
    """Tell the same as `ziggurat.is_within_bound`, in one pass over the memory."""
    return bool(_compiled_count_beyond(values, bound) == 0)


# --- compiling ---


def compile_noise() -> None:
    """Compile what every noise needs, and compare it with `ziggurat`.

    Not left to a background thread: a fork in the middle could never compile.
    """
    compile_release(np.dtype(np.float64), np.dtype(np.float64))
    _check_decisions()


@cache
def compile_release(sums: np.dtype[Any], out: np.dtype[Any]) -> None:
    """Compile the release from one type into another, and compare it with `ziggurat`."""
    words = _spread_words(8 * _BLOCK)
    values = (np.arange(words.size) / 8).astype(sums)
    ours, theirs = np.empty(words.size, out), np.empty(words.size, out)
    arguments = words, 1.1 * 2.0**23, values, 2.0**-23
    (places, units), (their_places, their_units) = (
        _release(*arguments, ours),
        ziggurat.release_inside(*arguments, theirs),
    )
    alike = np.array_equal(places, their_places) and np.array_equal(units, their_units)
    _require(alike and np.array_equal(ours, theirs, equal_nan=True))


@cache
def _check_decisions() -> None:
    words = _spread_words(2**15)
    outside = words[ziggurat.is_outside(words)]
    first = np.concatenate([outside, words[:64]])
    further = _spread_words(FURTHER * first.size).reshape(-1, FURTHER)
    (ours, count), (theirs, their_count) = (
        _decide(first, further, 1.1 * 2.0**23),
        ziggurat.decide_outside(first, further, 1.1 * 2.0**23),
    )
    _require(count == their_count and np.array_equal(ours, theirs, equal_nan=True))


def _spread_words(count: int) -> _Words:
    # Multiples of an odd number near 2^64 over the golden ratio are well spread.
    return np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def _require(agreement: bool) -> None:  # noqa: FBT001  (the only argument)
    if not agreement:
        raise NumericsError(
            expected="a compiled kernel that agrees with the NumPy path",
            got="other numbers for the same words",
            do="Repair or remove numba: without it the NumPy path is used.",
        )


COMPILED = ziggurat.Backend(is_within, compile_release, compiled_release, compiled_decide)
