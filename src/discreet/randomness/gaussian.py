"""Exact Gaussian noise on a grid: the integers nearest to scale * Z, Z standard normal, and the release that they make.

    sums ──grid──> integers ──+ noise──> integers ──* spacing──> release ──cast──> the caller's type

Guarantee: with ideal bits and integers S, g*(S + round(scale*Z)) = g*round((g*S + noise_std*Z)/g) for a spacing g: this is
a function of what the ideal Gaussian mechanism gives, so that every analysis of it holds, and nothing is added to delta
(docs/proofs/noise.md). Every step from the integers on is exact in float64; the cast at the end is post-processing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet.errors import NumericsError, ParameterError, RandomnessMisuse
from discreet.numerics.grid import Grid
from discreet.randomness import box_muller
from discreet.randomness.refine import LARGEST, refine
from discreet.randomness.source import Purpose, Stream

__all__ = ["GaussianNoise", "prepare", "publish", "release"]

_SMALLEST_SCALE = 2.0**-32
_LARGEST_SCALE = 2.0**32
_CHUNK = 4 * box_muller.CHUNK  # positions; a cipher takes some microseconds to start
_PIECE = box_muller.CHUNK  # positions, for work that needs no cipher
_WORTH = 2**17  # positions for which one more thread pays

_Floats = NDArray[np.float64]
_Candidates = Callable[[NDArray[np.uint64], float, _Floats], NDArray[np.intp]]


class GaussianNoise:
    """The noise of one release: `size` independent integers, each given out once.

    Which number a position gets depends on the stream alone, not on how the positions are cut into pieces.

    >>> from discreet.randomness import Source
    >>> stream = Source.system().stream(Purpose.NOISE, step=0)
    >>> noise = GaussianNoise(stream, scale=2.0**23, size=5)
    >>> noise.take(2).shape, noise.left
    ((2,), 3)
    >>> GaussianNoise(stream, scale=2.0**23, size=5)
    Traceback (most recent call last):
    discreet.errors.RandomnessMisuse: Expected an unused stream of the purpose noise, as Source.stream gives it. Got ...

    Args:
        stream: of the purpose noise; taken over, so that nothing else can be drawn from it [secret].
        scale: standard deviation, a float64 in 2^-32 ... 2^32 [grid units, public].
        size: how many numbers there are [public].
        threads: how many threads may share the work of a large array; the numbers are the same.
    """

    __slots__ = ("_adder", "_given", "_lock", "_stream", "_threads", "scale", "size")

    def __init__(self, stream: Stream, *, scale: float, size: int, threads: int = 1) -> None:
        owner = "GaussianNoise"
        check.instance(owner, "stream", stream, Stream)
        self.scale = check.positive(owner, "scale", scale)
        self.size = check.whole(owner, "size", size, least=0)
        if not _SMALLEST_SCALE <= self.scale <= _LARGEST_SCALE:
            raise ParameterError(owner=owner, name="scale", expected="a number in 2^-32 ... 2^32", got=repr(scale))
        self._threads = check.whole(owner, "threads", threads, least=1)
        box_muller.check_rounding()
        self._adder = _adder(_backend())
        self._stream = stream.claim(Purpose.NOISE)
        self._given = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many numbers were not given out."""
        return self.size - self._given

    def take(self, count: int) -> _Floats:
        """The next numbers, as integers in float64 [secret until released]."""
        out = np.zeros(check.whole("GaussianNoise.take", "count", count, least=0))
        self._add(out)
        return out

    def add_to(self, integers: _Floats) -> None:
        """Add the next numbers, in place and exactly.

        Args:
            integers: contiguous float64 array of any shape, integers below 2^52 in size [grid units, sensitive].

        Raises:
            NumericsError: a value is not such an integer. Nothing was added.
            RandomnessMisuse: fewer numbers are left. Nothing was added.
        """
        flat: _Floats = _flat("GaussianNoise.add_to", "integers", integers, np.float64, writable=True)
        for start in range(0, flat.size, _CHUNK):
            piece = flat[start : start + _CHUNK]
            if not (np.all(np.abs(piece) < LARGEST) and np.all(np.rint(piece) == piece)):  # also false for NaN
                raise NumericsError(
                    expected="integers below 2^52 in size",
                    got="a value that is not finite, not whole, or larger",
                    do="Put the sums on a grid first: Grid.integers.",
                )
        self._add(flat)

    def _add(self, flat: _Floats) -> None:
        start = self._advance(flat.size)
        parts = min(self._threads, 1 + flat.size // _WORTH)
        if parts == 1:
            self._add_range(flat, start)
            return
        cuts = [flat.size * part // parts for part in range(parts + 1)]
        with ThreadPoolExecutor(parts) as pool:  # made anew: a pool that lives on would be dead in a fork
            running = [pool.submit(self._add_range, flat[a:b], start + a) for a, b in pairwise(cuts)]
        for part in running:
            part.result()  # raises what the thread raised

    def _add_range(self, flat: _Floats, start: int) -> None:
        """Add the numbers of positions start, start + 1, ...; a pair that is cut in two is computed for either half."""
        words = np.empty(min(_CHUNK, flat.size) + 2, np.uint64)
        for cut in range(0, flat.size, _CHUNK):
            piece = flat[cut : cut + _CHUNK]
            first, last = (start + cut) // 2, (start + cut + piece.size + 1) // 2
            if 2 * (last - first) == piece.size:
                self._add_pairs(first, words[: piece.size], piece)
                continue
            noise = np.zeros(2 * (last - first))
            self._add_pairs(first, words[: noise.size], noise)
            offset = start + cut - 2 * first
            piece += noise[offset : offset + piece.size]

    def _add_pairs(self, first: int, words: NDArray[np.uint64], integers: _Floats) -> None:
        """Add the noise of the pairs first, first + 1, ..."""
        self._stream.fill(words, 2 * first)
        for pair in self._adder(words, self.scale, integers):
            two = slice(2 * pair, 2 * pair + 2)
            integers[two] += refine(self._stream, first + int(pair), words[two], self.scale)

    def _advance(self, count: int) -> int:
        """Give out the next positions: whatever happens afterwards, nobody gets them again."""
        with self._lock:
            start = self._given
            if count > self.size - start:
                raise RandomnessMisuse(
                    expected=f"at most {self.size - start} more numbers from this noise",
                    got=f"a request for {count}",
                    do="State the size of the whole release at the start.",
                )
            self._given += count
        return start

    def __repr__(self) -> str:
        return f"GaussianNoise(scale={self.scale!r}, size={self.size}, left={self.left}, {self._stream!r})"

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise RandomnessMisuse(
            expected="noise that is given out once", got="an attempt to copy or pickle it", do="Make another from a new stream."
        )


def release(
    sums: NDArray[np.floating],
    *,
    grid: Grid,
    noise_std: float,
    stream: Stream,
    out: NDArray[np.floating] | None = None,
    threads: int = 1,
) -> NDArray[np.floating]:
    """Sums with Gaussian noise: spacing * (integers of the sums + noise), exact, then cast to the type of `out` once.

    >>> from discreet.randomness import Source
    >>> grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    >>> stream = Source.system().stream(Purpose.NOISE, step=0)
    >>> release(np.zeros((2, 3), np.float32), grid=grid, noise_std=1.1, stream=stream).shape
    (2, 3)

    Args:
        sums: contiguous float32 or float64 array of any shape; rounded to the grid if it is not on it [sensitive].
        grid: where sums and noise live [public].
        noise_std: standard deviation on the sum [the sums' unit, public].
        stream: of the purpose noise, for this release only [secret].
        out: where the release goes: contiguous float32 or float64 of the same shape, may be `sums` itself; a new array of the
            type of `sums` if None. Values beyond its range become infinite.
        threads: how many threads may share the work; the release is the same.

    Raises:
        NumericsError: a sum is not finite or too large for the grid; nothing was written and the stream is still unused.
        RandomnessMisuse: the stream was used before.
    """
    units, target = prepare("release", sums, grid, out)
    noise = GaussianNoise(stream, scale=grid.scale(noise_std), size=units.size, threads=threads)
    noise._add(units.reshape(-1))  # noqa: SLF001  (the integers are checked already)
    return publish(units, grid, target)


def prepare(
    owner: str, sums: NDArray[np.floating], grid: Grid, out: NDArray[np.floating] | None
) -> tuple[_Floats, NDArray[np.floating]]:
    """The first half of a release, all checks: the integers of the sums, and where the release goes."""
    check.instance(owner, "grid", grid, Grid)
    values = _flat(owner, "sums", sums, np.float32, np.float64)
    target = np.empty(sums.shape, sums.dtype) if out is None else out
    _flat(owner, "out", target, np.float32, np.float64, writable=True)
    if target.shape != sums.shape:
        raise ParameterError(owner=owner, name="out", expected=f"of shape {sums.shape}", got=f"shape {target.shape}")
    units = np.empty(sums.shape)
    flat = units.reshape(-1)
    for start in range(0, flat.size, _PIECE):  # what lies in between stays in the cache
        piece = slice(start, start + _PIECE)
        flat[piece] = grid.integers(values[piece])
    return units, target


def publish(units: _Floats, grid: Grid, target: NDArray[np.floating]) -> NDArray[np.floating]:
    """The second half: noised integers times the spacing, exactly, then one cast. Overwrites `units`."""
    flat, values = target.view(np.ndarray).reshape(-1), units.reshape(-1)
    with np.errstate(over="ignore", under="ignore"):
        for start in range(0, flat.size, _PIECE):
            piece = slice(start, start + _PIECE)
            np.multiply(values[piece], grid.spacing, out=values[piece])
            np.copyto(flat[piece], values[piece], casting="same_kind")
    return target


@cache
def _compiled() -> ModuleType | None:
    try:
        from discreet.randomness import _compiled as kernel  # noqa: PLC0415  (numba is optional, and slow to import)
    except (ImportError, OSError):  # not there, or its libraries do not load
        return None
    kernel.compile_now()
    return kernel


def _backend() -> _Candidates:
    """Whoever computes candidates fastest here; the numbers are the same."""
    kernel = _compiled()
    return box_muller.candidates if kernel is None else kernel.candidates


def _adder(candidates: _Candidates) -> _Candidates:
    """The same, but adding: nothing is added for a pair that is not decided."""
    kernel = _compiled()
    if kernel is not None and candidates is kernel.candidates:
        add: _Candidates = kernel.add  # in one go, without an array in between
        return add

    def adder(words: NDArray[np.uint64], scale: float, integers: _Floats) -> NDArray[np.intp]:
        noise = np.empty(words.size)
        undecided = candidates(words, scale, noise)
        noise.reshape(-1, 2)[undecided] = 0.0
        noise += 0.0  # -0.0 becomes 0.0: integers have no signed zero, and a release must not have one either
        integers += noise
        return undecided

    return adder


def _flat(owner: str, name: str, array: object, *kinds: type, writable: bool = False) -> NDArray[Any]:
    """A plain view of one axis onto a contiguous array.

    Subclasses change what indexing and `+=` mean: a matrix keeps two axes, a masked array would leave numbers without noise.
    """
    given = check.instance(owner, name, array, np.ndarray)
    values = given.view(np.ndarray)
    right = values.dtype.type in kinds and values.dtype.isnative and values.flags.c_contiguous
    if isinstance(given, np.ma.MaskedArray):
        expected = "without a mask: what it hides would still be released"
        raise ParameterError(
            owner=owner, name=name, expected=expected, got=type(given).__name__, do="Fill or drop what is masked."
        )
    if right and (values.flags.writeable or not writable):
        return values.reshape(-1)
    expected = f"a contiguous{', writable' if writable else ''} array of " + " or ".join(kind.__name__ for kind in kinds)
    flags = f"contiguous: {values.flags.c_contiguous}, writable: {values.flags.writeable}"
    raise ParameterError(owner=owner, name=name, expected=expected, got=f"{values.dtype} ({flags})")
