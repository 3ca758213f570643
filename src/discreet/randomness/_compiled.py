"""The fast paths of the Gaussian noise, compiled (native/noise.h): the operations of `ziggurat`.

Each operation is that of `ziggurat`, in the same order, and rounds by itself, so that the error
bounds of that file (docs/proofs/noise.md, sections 4 and 5) hold here: the compiler is told to fuse
and to reorder nothing, a test reads the machine code, and the first use is compared with
`ziggurat`. Constants and tables are handed over from there.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import NumericsError
from discreet.native import kernels
from discreet.randomness import ziggurat
from discreet.randomness.addresses import FURTHER, PIECE_SIZE
from discreet.randomness.layers import tables

__all__ = [
    "COMPILED",
    "check_noise",
    "check_release",
    "compiled_decide",
    "compiled_release",
    "is_within",
]

_Words = NDArray[np.uint64]
_Floats = NDArray[np.float64]
_Numbers = NDArray[np.floating]

_NUMBERS_CHECKED = 1024


class _Constants(ctypes.Structure):
    """The constants of `ziggurat`, as `Constants` of noise.h has them."""

    _fields_ = (
        ("log", ctypes.c_double * len(ziggurat.LOG)),
        *(
            (name, ctypes.c_double)
            for name in (
                "minus_ln_2",
                "bias",
                "height_unit",
                "least_height",
                "tail_area",
                "least_tail",
                "inverse_r",
                "r",
                "rounder",
                "doubt",
            )
        ),
        *(
            (name, ctypes.c_uint64)
            for name in ("bits_of_1", "bits_of_2_52", "bits_of_root", "root_to_1", "fraction")
        ),
    )


_CONSTANTS = _Constants(
    log=ziggurat.LOG,
    minus_ln_2=ziggurat.MINUS_LN_2,
    bias=ziggurat.BIAS,
    height_unit=ziggurat.HEIGHT_UNIT,
    least_height=ziggurat.LEAST_HEIGHT,
    tail_area=ziggurat.TAIL_AREA,
    least_tail=ziggurat.LEAST_TAIL,
    inverse_r=ziggurat.INVERSE_R,
    r=ziggurat.R_FLOAT,
    rounder=ziggurat.ROUNDER,
    doubt=ziggurat.DOUBT,
    bits_of_1=int(ziggurat.BITS_OF_1),
    bits_of_2_52=int(ziggurat.BITS_OF_2_52),
    bits_of_root=int(ziggurat.BITS_OF_ROOT),
    root_to_1=int(ziggurat.ROOT_TO_1),
    fraction=int(ziggurat.FRACTION),
)


class _Law(ctypes.Structure):
    """The tables, and what follows from the scale, as `Law` of noise.h has them."""

    _fields_ = (
        *(
            (name, ctypes.c_void_p)
            for name in ("limits", "edges", "heights", "twice_widths", "slopes")
        ),
        *((name, ctypes.c_double) for name in ("scale", "threshold", "tail_threshold")),
    )


@dataclass(frozen=True)
class _Scaled:
    """A law for the compiled code, and the arrays that it points to."""

    law: _Law
    slopes: _Floats


@lru_cache(maxsize=16)
def _scaled(scale: float) -> _Scaled:
    table, slopes = tables(), ziggurat.slopes(scale)
    law = _Law(
        limits=table.limits.ctypes.data,
        edges=table.edges.ctypes.data,
        heights=table.heights.ctypes.data,
        twice_widths=table.twice_widths.ctypes.data,
        slopes=slopes.ctypes.data,
        scale=scale,
        threshold=ziggurat.decision_threshold(scale),
        tail_threshold=ziggurat.tail_threshold(scale),
    )
    return _Scaled(law, slopes)


@cache
def _limits() -> NDArray[np.float32]:
    """Give the limits in half the memory: they are exact in float32."""
    return tables().limits.astype(np.float32)


@cache
def _function(name: str, arguments: str) -> Any:
    library = kernels(may_compile=True)
    if library is None:
        raise NumericsError(
            expected="compiled code", got="none", do="Use the NumPy path, which needs none."
        )

    return library.function(name, arguments, counts=True)


def _fits(words: _Words, sums: _Numbers, out: _Numbers) -> bool:
    """Whether these can be handed over as addresses: flat, contiguous, aligned, of one size."""
    return (
        words.shape == sums.shape == out.shape == (out.size,)
        and words.dtype == np.uint64
        and all(array.flags.c_contiguous and array.flags.aligned for array in (words, sums, out))
        and out.flags.writeable
    )


# --- tier 1 ---


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
    check_release(sums.dtype, out.dtype)
    ziggurat.check_rounding()
    return _release(words, scale, sums, spacing, out)


def _release(
    words: _Words,
    scale: float,
    sums: _Numbers,
    spacing: float,
    out: _Numbers,
) -> tuple[NDArray[np.intp], _Floats]:
    if not _fits(words, sums, out):
        return ziggurat.release_inside(words, scale, sums, spacing, out)

    release = _function(f"release_{sums.dtype.char}{out.dtype.char}", "pnppdppdppp")
    places, units = _scratch(out.size)
    scaled, limits = _scaled(scale), _limits()
    count = release(
        words.ctypes.data,
        out.size,
        scaled.slopes.ctypes.data,
        limits.ctypes.data,
        scaled.law.threshold,
        ctypes.addressof(_CONSTANTS),
        sums.ctypes.data,
        spacing,
        out.ctypes.data,
        places.ctypes.data,
        units.ctypes.data,
    )
    return places[:count].astype(np.intp), units[:count].copy()


_per_thread = threading.local()


def _scratch(size: int) -> tuple[NDArray[np.int64], _Floats]:
    """Give memory that stays with the thread: fresh memory costs as much as the noise."""
    scratch: tuple[NDArray[np.int64], _Floats] | None = getattr(_per_thread, "scratch", None)
    if scratch is None or scratch[0].size < size:
        scratch = _per_thread.scratch = (
            np.empty(max(size, PIECE_SIZE), np.int64),
            np.empty(max(size, PIECE_SIZE)),
        )

    return scratch


# --- tier 2 ---


def compiled_decide(first: _Words, further: _Words, scale: float) -> tuple[_Floats, int]:
    """Decide numbers that a release left as `ziggurat.decide_outside` does, and return the same."""
    check_noise()
    ziggurat.check_rounding()
    return _decide(first, further, scale)


def _decide(first: _Words, further: _Words, scale: float) -> tuple[_Floats, int]:
    words, rows = np.ascontiguousarray(first), np.ascontiguousarray(further)
    if words.dtype != np.uint64 or rows.dtype != np.uint64 or rows.shape[1:] != (FURTHER,):
        return ziggurat.decide_outside(first, further, scale)

    integers = np.empty(words.size)
    outside = _function("decide", "pnpnppp")(
        words.ctypes.data,
        words.size,
        rows.ctypes.data,
        len(rows),
        ctypes.addressof(_scaled(scale).law),
        ctypes.addressof(_CONSTANTS),
        integers.ctypes.data,
    )
    if outside < 0:
        raise NumericsError(
            expected="further words for each number that is outside",
            got=f"{len(rows)} rows of them",
            do="Read a row for each.",
        )

    return integers, int(outside)


# --- sums that fit ---


def is_within(values: _Numbers, bound: float) -> bool:
    """Tell the same as `ziggurat.is_within_bound`, in one pass over the memory."""
    if not (values.flags.c_contiguous and values.flags.aligned):
        return ziggurat.is_within_bound(values, bound)

    count_beyond = _function(f"beyond_{values.dtype.char}", "pnd")
    return bool(count_beyond(values.ctypes.data, values.size, bound) == 0)


# --- the first use ---


def check_noise() -> None:
    """Compare what every noise needs with `ziggurat`."""
    check_release(np.dtype(np.float64), np.dtype(np.float64))
    _check_decisions()


@cache
def check_release(sums: np.dtype[Any], out: np.dtype[Any]) -> None:
    """Compare the release from one type into another with `ziggurat`."""
    words = _spread_words(_NUMBERS_CHECKED)
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
            do="Remove the files kernels-*.so of discreet: they are compiled anew.",
        )


COMPILED = ziggurat.Backend(is_within, check_release, compiled_release, compiled_decide)
