"""Exact Gaussian noise on a grid, and the release that it makes.

    sums ──grid──> integers ──+ noise──> integers ──* spacing──> release ──cast──> the caller's type

The noise is round(scale * Z) for a standard normal Z: the nearest integer.

Guarantee: with ideal bits and integers S, g*(S + round(scale*Z)) = g*round((g*S + noise_std*Z)/g)
for a spacing g: this is a function of what the ideal Gaussian mechanism gives, so that every
analysis of it holds, and nothing is added to delta (docs/proofs/noise.md, section 1). Every step
from the integers on is exact in float64 (section 7); the cast at the end is post-processing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet._process import Misuse, SingleUse
from discreet.errors import NumericsError, ParameterError, RandomnessMisuse
from discreet.native import kernels
from discreet.numerics.grid import Grid
from discreet.randomness import _compiled as _kernel
from discreet.randomness import ziggurat
from discreet.randomness.addresses import BLOCK_SIZE, MOST_NUMBERS, PIECE_SIZE, Reader
from discreet.randomness.refine import LARGEST, refine
from discreet.randomness.source import Purpose, Stream

__all__ = [
    "GaussianNoise",
    "announce_noise",
    "fast_paths",
    "nan_on_failure",
    "prepare",
    "release",
    "release_all",
]

# With a scale of at most 2^32 the noise stays below 2^35 on the fast paths (noise.md, section 7).
_SMALLEST_SCALE = 2.0**-32
_LARGEST_SCALE = 2.0**32

# Positions for which one more thread pays.
_WORTH = 2**19

# Numbers that NumPy takes about as long for as compiling takes, where nobody has compiled so far.
_WORTH_COMPILING = 2**26

_Words = NDArray[np.uint64]
_Floats = NDArray[np.float64]
_Numbers = NDArray[np.floating]

# Sums of a part, where they go, and the position of their first number.
_Part = Callable[[_Numbers, _Numbers, int], None]


@contextmanager
def nan_on_failure(*targets: _Numbers) -> Iterator[None]:
    """Make every number NaN if an exception or an interruption comes.

    Sums are released in their own place: what was not noised yet would be taken for a release.
    """
    try:
        yield
    except BaseException:
        for target in targets:
            target.fill(np.nan)

        raise


_COPIED = Misuse(
    RandomnessMisuse, expected="noise that is given out once", do="Make another from a new stream."
)


class GaussianNoise(SingleUse, copied=_COPIED):
    """The noise of one release: `size` independent integers, each given out once.

    Which number a position gets depends on the stream alone, not on how the positions are cut into
    pieces.

    | case | what happens |
    |---|---|
    | `scale` 0, infinite, NaN, or outside of 2^-32 ... 2^32 | `ParameterError`; stream unused |
    | `scale` 2^-32 | the integers are 0, as round(scale * Z) is |
    | `size` above 2^31 | `ParameterError`; stream unused |
    | `size` 0, or `take(0)` | nothing is read, nothing added |
    | more numbers than are left | `RandomnessMisuse`; nothing was added |
    | `add_to`: NaN, infinity, a fraction, 2^52 or more | `NumericsError`; nothing was added |
    | an interruption while noise is added | all integers are NaN; the positions are used up |

    >>> from discreet.randomness import Source
    >>> stream = Source.system().stream(Purpose.NOISE, step=0)
    >>> noise = GaussianNoise(stream, scale=2.0**23, size=5)
    >>> noise.take(2).shape, noise.left
    ((2,), 3)
    >>> GaussianNoise(stream, scale=2.0**23, size=5)
    Traceback (most recent call last):
    discreet.errors.RandomnessMisuse: Expected an unused stream of the purpose noise...

    Args:
        stream: of the purpose noise; taken over, so that nothing else can be drawn from it
            [secret].
        scale: standard deviation, a float64 in 2^-32 ... 2^32 [grid units, public].
        size: how many numbers there are [public].
        threads: how many threads may share the work of a large array; the numbers are the same.
    """

    __slots__ = (
        "_backend",
        "_given",
        "_idle",
        "_lock",
        "_ranked",
        "_stream",
        "_threads",
        "scale",
        "size",
    )

    def __init__(self, stream: Stream, *, scale: float, size: int, threads: int = 1) -> None:
        owner = "GaussianNoise"
        check.instance(owner, "stream", stream, Stream)
        super().__init__()
        self.scale = check.positive(owner, "scale", scale)
        self.size = check.whole(owner, "size", size, least=0)
        if not _SMALLEST_SCALE <= self.scale <= _LARGEST_SCALE:
            raise ParameterError(
                owner=owner, name="scale", expected="a number in 2^-32 ... 2^32", got=repr(scale)
            )

        if self.size > MOST_NUMBERS:
            raise ParameterError(
                owner=owner, name="size", expected="at most 2^31 numbers", got=repr(size)
            )

        self._threads = check.whole(owner, "threads", threads, least=1)
        ziggurat.check_rounding()
        _asked_for["numbers"] += self.size
        self._backend = _backend()

        # Last: whatever was refused above left the stream unused.
        self._stream = stream.claim(Purpose.NOISE)
        self._given = 0
        self._lock = threading.Lock()

        # Readers that no thread uses; and a position, with the rank in its block that is known.
        self._idle: list[Reader] = []
        self._ranked = 0, 0

    @property
    def left(self) -> int:
        """How many numbers were not given out yet."""
        return self.size - self._given

    def take(self, count: int) -> _Floats:
        """Give out the next numbers, as integers in float64 [secret until released]."""
        out = np.zeros(check.whole("GaussianNoise.take", "count", count, least=0))
        self._release(out, out, 1.0)
        return out

    def add_to(self, integers: _Floats) -> None:
        """Add the next numbers, in place and exactly.

        Args:
            integers: contiguous float64 array of any shape, integers below 2^52 in size [grid
                units, sensitive].

        Raises:
            NumericsError: a value is not such an integer. Nothing was added.
            RandomnessMisuse: fewer numbers are left. Nothing was added.
        """
        owner = "GaussianNoise.add_to"
        flat: _Floats = _flat(owner, "integers", integers, np.float64, writable=True)
        for start in range(0, flat.size, PIECE_SIZE):
            piece = flat[start : start + PIECE_SIZE]

            # Both comparisons are false for NaN.
            small = np.minimum.reduce(piece) > -LARGEST and np.maximum.reduce(piece) < LARGEST
            if not (small and np.array_equal(np.rint(piece), piece)):
                raise NumericsError(
                    expected="integers below 2^52 in size",
                    got="a value that is not finite, not whole, or larger",
                    do="Put the sums on a grid first: Grid.integers.",
                )

        self._release(flat, flat, 1.0)

    def _release(self, sums: _Numbers, out: _Numbers, spacing: float) -> None:
        """Release flat arrays with the next positions, by as many threads as pay."""
        # Here, and not on each thread of a pool.
        self._backend.prepare(sums.dtype, out.dtype)
        start = self._advance(out.size)
        with nan_on_failure(out):
            self._share(sums, out, start, partial(self._release_part, spacing=spacing))

    def _share(self, sums: _Numbers, out: _Numbers, start: int, work: _Part) -> None:
        """Have parts of the arrays worked on by threads."""
        parts = min(self._threads, 1 + out.size // _WORTH)
        if parts == 1:
            work(sums, out, start)
            return

        # Cut between blocks: nobody has to count ranks then.
        ends = [start + out.size * part // parts for part in range(1, parts)]
        cuts = [0, *(max(end - end % BLOCK_SIZE - start, 0) for end in ends), out.size]

        # The pool is made anew: one that lives on would be dead in a fork.
        with ThreadPoolExecutor(parts) as pool:
            running = []
            for first, last in pairwise(cuts):
                target = out[first:last]
                values = target if sums is out else sums[first:last]
                running.append(pool.submit(work, values, target, start + first))

        # Raises what a thread raised.
        for future in running:
            future.result()

    def _release_part(self, sums: _Numbers, out: _Numbers, start: int, *, spacing: float) -> None:
        """Release the numbers of positions start, start + 1, ..., block by block."""
        reader = self._idle.pop() if self._idle else Reader(self._stream)
        position, end = start, start + out.size

        while position < end:
            block_end = min(position - position % BLOCK_SIZE + BLOCK_SIZE, end)
            part = slice(position - start, block_end - start)
            target = out[part]

            # What is released in its own place stays one array: that is faster.
            values = target if sums is out else sums[part]
            self._release_block(values, target, position, reader, spacing)
            position = block_end

        self._idle.append(reader)

    def _release_block(
        self, sums: _Numbers, out: _Numbers, position: int, reader: Reader, spacing: float
    ) -> None:
        """Release numbers of one block, to the last bit."""
        rank = self._rank(position, reader)
        left = []

        for start in range(0, out.size, PIECE_SIZE):
            target = out[start : start + PIECE_SIZE]
            values = target if sums is out else sums[start : start + PIECE_SIZE]
            words = reader.first(position + start, target.size)
            places, units = self._backend.release(words, self.scale, values, spacing, target)
            left.append((places + start, units, words[places]))

        places, units, first = (np.concatenate(column) for column in zip(*left, strict=True))

        # What is left is NaN so far; this is one number in a thousand (noise.md, section 4).
        if places.size == 0:
            self._ranked = position + out.size, rank
            return

        further = reader.further(position - position % BLOCK_SIZE, rank, places.size)
        noise, outside = self._backend.decide(first, further, self.scale)
        self._ranked = position + out.size, rank + outside

        for j in np.flatnonzero(np.isnan(noise)).tolist():
            known = _known_words(first, further, j)
            noise[j] = refine(self._stream, position + int(places[j]), known, self.scale)

        with np.errstate(over="ignore", under="ignore"):
            out[places] = (units + noise) * spacing

    def _rank(self, position: int, reader: Reader) -> int:
        """Count the numbers that are outside before this one, in its block."""
        before = position % BLOCK_SIZE
        known, rank = self._ranked
        if before == 0 or known == position:
            return rank if before else 0

        rank = 0
        for start in range(position - before, position, PIECE_SIZE):
            words = reader.first(start, min(PIECE_SIZE, position - start))
            rank += int(np.count_nonzero(ziggurat.is_outside(words)))

        return rank

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
        return (
            f"GaussianNoise(scale={self.scale!r}, size={self.size}, left={self.left}, "
            f"{self._stream!r})"
        )


def _known_words(first: _Words, further: _Words, j: int) -> _Words:
    """Give w_0 of number j, and w_1 ... w_5 where it is outside."""
    outside = ziggurat.is_outside(first[: j + 1])
    if not outside[j]:
        return first[j : j + 1]

    return np.append(first[j], further[np.count_nonzero(outside) - 1])


def release(
    sums: NDArray[np.floating],
    *,
    grid: Grid,
    noise_std: float,
    stream: Stream,
    out: NDArray[np.floating] | None = None,
    threads: int = 1,
) -> NDArray[np.floating]:
    """Add Gaussian noise to sums: spacing * (integers of the sums + noise), exact, then one cast.

    | case | what happens |
    |---|---|
    | no sums at all | an empty release; the stream is used up |
    | a sum with NaN or infinity, or of 2^52 spacings | `NumericsError`; the stream is unused |
    | a sum of -0.0 | released as 0.0 would be: a release has no signed zeros |
    | `noise_std` 0, infinite or NaN | `ParameterError`; the stream is unused |
    | `noise_std` above 2^32 spacings | `NumericsError`; the stream is unused |
    | a release beyond the range of float32 | infinite in a float32 `out` |
    | integers, float16, masked or not contiguous arrays | `ParameterError` |
    | a stream that was used before | `RandomnessMisuse`; nothing is written |
    | an interruption while noise is added | `out` is NaN everywhere; the stream is used up |

    >>> from discreet.randomness import Source
    >>> grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    >>> stream = Source.system().stream(Purpose.NOISE, step=0)
    >>> release(np.zeros((2, 3), np.float32), grid=grid, noise_std=1.1, stream=stream).shape
    (2, 3)

    Args:
        sums: contiguous float32 or float64 array of any shape; rounded to the grid if it is not on
            it [sensitive].
        grid: where sums and noise live [public].
        noise_std: standard deviation on the sum [the sums' unit, public].
        stream: of the purpose noise, for this release only [secret].
        out: where the release goes: contiguous float32 or float64 of the same shape, may be `sums`
            itself; a new array of the type of `sums` if None.
        threads: how many threads may share the work; the release is the same.
    """
    target = (
        np.empty(sums.shape, sums.dtype) if out is None and isinstance(sums, np.ndarray) else out
    )
    release_all([(sums, target)], grid=grid, noise_std=noise_std, stream=stream, threads=threads)
    return target


def release_all(
    pairs: Sequence[tuple[NDArray[np.floating], NDArray[np.floating]]],
    *,
    grid: Grid,
    noise_std: float,
    stream: Stream,
    threads: int = 1,
) -> None:
    """Add the noise of one release to several arrays, as if they were one array.

    >>> from discreet.randomness import Source
    >>> grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    >>> stream = Source.system().stream(Purpose.NOISE, step=0)
    >>> weight, bias = np.zeros((2, 3), np.float32), np.zeros(2)
    >>> release_all([(weight, weight), (bias, bias)], grid=grid, noise_std=1.1, stream=stream)
    >>> bool(weight.any() and bias.any())
    True

    Args:
        pairs: sums, and where the release of each goes, as for `release` [sensitive].
        grid: as for `release` [public].
        noise_std: as for `release` [the sums' unit, public].
        stream: as for `release` [secret].
        threads: as for `release`.
    """
    prepared = [_views("release", sums, grid, out) for sums, out in pairs]
    arrays = [values for values, _ in prepared]
    targets = [target for _, target in prepared]
    size = sum(values.size for values in arrays)

    # Few numbers in several arrays cost what the arrays cost: make one of them.
    join = 0 < size <= PIECE_SIZE and len(arrays) > 1
    joined = np.concatenate(arrays, dtype=np.float64) if join else np.empty(0)
    parts = [_fitting(grid, *pair) for pair in ([(joined, joined)] if join else prepared)]

    # Everything is checked: the stream is claimed here, and not before.
    noise = GaussianNoise(stream, scale=grid.scale(noise_std), size=size, threads=threads)
    with nan_on_failure(*targets):
        for values, target in parts:
            noise._release(values, target, grid.spacing)  # noqa: SLF001

        if join:
            _divide(joined, targets)


def _divide(joined: _Floats, targets: Sequence[_Numbers]) -> None:
    """Copy the parts of a release to where they belong."""
    start = 0
    with np.errstate(over="ignore", under="ignore"):
        for target in targets:
            np.copyto(target, joined[start : start + target.size], casting="same_kind")
            start += target.size


def prepare(
    owner: str, sums: _Numbers, grid: Grid, out: _Numbers | None
) -> tuple[_Numbers, _Numbers]:
    """Make all checks of a release; return sums and target as flat arrays, to work on in pieces."""
    return _fitting(grid, *_views(owner, sums, grid, out))


def _fitting(grid: Grid, values: _Numbers, target: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Refuse what does not fit the grid; copy sums that a written piece would change."""
    # What is not clearly within is looked at closely. Rounding is monotone: if the ends fit, all
    # values do. NaN is an end wherever it is.
    if not _backend().is_within(values, (LARGEST - 1) * grid.spacing):
        grid.integers(np.array([np.minimum.reduce(values), np.maximum.reduce(values)]))

    if values.ctypes.data == target.ctypes.data and values.dtype == target.dtype:
        return target, target

    return values.copy() if np.may_share_memory(values, target) else values, target


def _views(
    owner: str, sums: _Numbers, grid: Grid, out: _Numbers | None
) -> tuple[_Numbers, _Numbers]:
    check.instance(owner, "grid", grid, Grid)
    values = _flat(owner, "sums", sums, np.float32, np.float64)
    if out is None:
        return values, np.empty_like(values)

    target = _flat(owner, "out", out, np.float32, np.float64, writable=True)
    if out.shape != sums.shape:
        raise ParameterError(
            owner=owner, name="out", expected=f"of shape {sums.shape}", got=f"shape {out.shape}"
        )

    return values, target


@cache
def _compiled() -> ziggurat.Backend:
    _kernel.check_noise()
    return _kernel.COMPILED


# Numbers that were announced or drawn in this process.
_asked_for: Counter[str] = Counter()


def announce_noise(numbers: int) -> None:
    """Say how many numbers are going to be drawn, so that a compiler is asked where it pays.

    Args:
        numbers: of a whole run; the noise is the same whatever is said here [public].
    """
    _asked_for["numbers"] += check.whole("announce_noise", "numbers", numbers, least=0)


def _backend() -> ziggurat.Backend:
    """Choose what computes the noise fastest; few numbers do not wait for a compiler."""
    is_worth_it = _asked_for["numbers"] >= _WORTH_COMPILING
    return ziggurat.IN_NUMPY if kernels(may_compile=is_worth_it) is None else _compiled()


def fast_paths(numbers: int) -> ziggurat.Backend:
    """Choose what computes this many numbers on the fast paths, for noise that is not a release.

    Args:
        numbers: that are going to be computed; they count as those of releases do [public].
    """
    _asked_for["numbers"] += numbers
    return _backend()


def _flat(
    owner: str, name: str, array: object, *kinds: type, writable: bool = False
) -> NDArray[Any]:
    """View a contiguous array as a plain one of one axis.

    Subclasses change what indexing and `+=` mean: a matrix keeps two axes, a masked array would
    leave numbers without noise.
    """
    values = check.instance(owner, name, array, np.ndarray).view(np.ndarray)
    right = values.dtype.type in kinds and values.dtype.isnative and values.flags.c_contiguous
    if isinstance(array, np.ma.MaskedArray):
        raise ParameterError(
            owner=owner,
            name=name,
            expected="without a mask: what it hides would still be released",
            got=type(array).__name__,
            do="Fill or drop what is masked.",
        )

    if right and (values.flags.writeable or not writable):
        return values.reshape(-1)

    names = " or ".join(kind.__name__ for kind in kinds)
    flags = f"contiguous: {values.flags.c_contiguous}, writable: {values.flags.writeable}"
    raise ParameterError(
        owner=owner,
        name=name,
        expected=f"a contiguous{', writable' if writable else ''} array of {names}",
        got=f"{values.dtype} ({flags})",
    )
