"""Exact Gaussian noise on a grid, and the release that it makes.

    sums ──grid──> integers ──+ noise──> integers ──* spacing──> release ──cast──> the caller's type

The noise is round(scale * Z) for a standard normal Z: the nearest integer.

Guarantee: with ideal bits and integers S, g*(S + round(scale*Z)) = g*round((g*S + noise_std*Z)/g)
for a spacing g: this is a function of what the ideal Gaussian mechanism gives, so that every
analysis of it holds, and nothing is added to delta (docs/proofs/noise.md, section 1). Every step
from the integers on is exact in float64 (section 5); the cast at the end is post-processing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet._process import Misuse, SingleUse
from discreet.errors import NumericsError, ParameterError, RandomnessMisuse
from discreet.numerics.grid import Grid
from discreet.randomness import box_muller
from discreet.randomness._cipher import Cursor
from discreet.randomness.refine import LARGEST, refine
from discreet.randomness.source import Purpose, Stream

__all__ = ["GaussianNoise", "announce_noise", "prepare", "publish_noise", "release", "release_all"]

# With a scale of at most 2^32 the noise stays below 2^35 on the fast path (noise.md, section 5).
_SMALLEST_SCALE = 2.0**-32
_LARGEST_SCALE = 2.0**32

# Positions of the noise that are worked on at a time: where only noise is added (a cipher takes
# some microseconds to start), in a release (sums, words and integers stay in the cache), and where
# no cipher is needed.
_CHUNK = 4 * box_muller.CHUNK
_RELEASED = 2 * box_muller.CHUNK
_PIECE = 2 * box_muller.CHUNK

# Positions for which one more thread pays.
_WORTH = 2**17

# Numbers that NumPy takes about as long for as compiling takes.
_WORTH_COMPILING = 2**27

_Floats = NDArray[np.float64]
_Numbers = NDArray[np.floating]

# Work on the numbers first ... last - 1 of an array whose number 0 has this position.
_Part = Callable[[int, int, int], None]

# Words, scale and where the integers go, to the indices of the pairs that are not decided.
_Candidates = Callable[[NDArray[np.uint64], float, _Floats], NDArray[np.intp]]


class _Reader:
    """Reads the words of a stream for one thread, with one buffer and as few ciphers as can be."""

    __slots__ = ("_cursor", "_stream", "_words")

    def __init__(self, stream: Stream, size: int) -> None:
        self._stream = stream

        # Two more than the piece: it may cut a pair at either end.
        self._words = np.empty(size + 2, np.uint64)
        self._cursor = Cursor()

    def read(self, start: int, count: int) -> NDArray[np.uint64]:
        words = self._words[:count]

        # Fewer words would leave sums without noise.
        if words.size != count:
            raise RandomnessMisuse(
                expected=f"at most {words.size} words at once",
                got=f"{count}",
                do="Read them in pieces.",
            )
        self._stream.fill(words, start, self._cursor)
        return words


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
    | `size` 0, or `take(0)` | nothing is read, nothing added |
    | more numbers than are left | `RandomnessMisuse`; nothing was added |
    | `add_to`: NaN, infinity, a fraction, 2^52 or more | `NumericsError`; nothing was added |

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

    __slots__ = ("_adder", "_given", "_lock", "_stream", "_threads", "scale", "size")

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
        self._threads = check.whole(owner, "threads", threads, least=1)
        box_muller.check_rounding()
        _asked_for["numbers"] += self.size
        self._adder = _adder(_backend())

        # Last: whatever was refused above left the stream unused.
        self._stream = stream.claim(Purpose.NOISE)
        self._given = 0
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """How many numbers were not given out yet."""
        return self.size - self._given

    def take(self, count: int) -> _Floats:
        """Give out the next numbers, as integers in float64 [secret until released]."""
        out = np.zeros(check.whole("GaussianNoise.take", "count", count, least=0))
        self._add(out)
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
        for start in range(0, flat.size, _PIECE):
            piece = flat[start : start + _PIECE]

            # Both comparisons are false for NaN.
            small = np.minimum.reduce(piece) > -LARGEST and np.maximum.reduce(piece) < LARGEST
            if not (small and np.array_equal(np.rint(piece), piece)):
                raise NumericsError(
                    expected="integers below 2^52 in size",
                    got="a value that is not finite, not whole, or larger",
                    do="Put the sums on a grid first: Grid.integers.",
                )
        self._add(flat)

    def _add(self, flat: _Floats) -> None:
        def part(first: int, last: int, start: int) -> None:
            reader = _Reader(self._stream, min(_CHUNK, last - first))
            for cut in range(first, last, _CHUNK):
                self._add_chunk(flat[cut : min(cut + _CHUNK, last)], start + cut, reader)

        self._share(flat.size, part)

    def _share(self, size: int, work: _Part) -> None:
        """Give out the next positions, and have all of them worked on by the threads that pay."""
        start = self._advance(size)
        parts = min(self._threads, 1 + size // _WORTH)
        if parts == 1:
            work(0, size, start)
            return

        # The pool is made anew: one that lives on would be dead in a fork.
        cuts = [size * part // parts for part in range(parts + 1)]
        with ThreadPoolExecutor(parts) as pool:
            running = [pool.submit(work, first, last, start) for first, last in pairwise(cuts)]

        # Raises what a thread raised.
        for future in running:
            future.result()

    def _add_chunk(self, piece: _Floats, start: int, reader: _Reader) -> None:
        """Add the numbers of positions start, start + 1, ... to a piece, pair by pair."""
        first, last = start // 2, (start + piece.size + 1) // 2
        if 2 * (last - first) == piece.size:
            self._add_pairs(first, piece, reader)
            return

        # A pair that is cut in two is computed for either half: the same words, the same numbers.
        noise = np.zeros(2 * (last - first))
        self._add_pairs(first, noise, reader)
        piece += noise[start - 2 * first :][: piece.size]

    def _add_pairs(self, first: int, integers: _Floats, reader: _Reader) -> None:
        """Add the noise of the pairs first, first + 1, ..., to the last bit."""
        words = reader.read(2 * first, integers.size)

        # The fast path adds nothing for a pair that it cannot decide (noise.md, section 3).
        for pair in self._adder(words, self.scale, integers):
            positions = slice(2 * pair, 2 * pair + 2)
            integers[positions] += refine(
                self._stream, first + int(pair), words[positions], self.scale
            )

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
    size = sum(values.size for values in arrays)

    # Few numbers in several arrays cost what the arrays cost: make one of them.
    join = 0 < size <= _RELEASED
    joined = np.concatenate(arrays, dtype=np.float64) if join else np.empty(0)
    parts = [_fitting(grid, *pair) for pair in ([(joined, joined)] if join else prepared)]

    # Everything is checked: the stream is claimed here, and not before.
    noise = GaussianNoise(stream, scale=grid.scale(noise_std), size=size, threads=threads)
    for values, target in parts:
        work = partial(_release_part, noise, grid, values, target)
        noise._share(values.size, work)  # noqa: SLF001

    start = 0
    with np.errstate(over="ignore", under="ignore"):
        for _, target in prepared if join else ():
            np.copyto(target, joined[start : start + target.size], casting="same_kind")
            start += target.size


def _release_part(
    noise: GaussianNoise,
    grid: Grid,
    values: NDArray[np.floating],
    target: NDArray[np.floating],
    first: int,
    last: int,
    start: int,
) -> None:
    """Release the numbers first ... last - 1 of an array whose number 0 has position `start`."""
    size = min(_RELEASED, last - first)
    reader, buffer = _Reader(noise._stream, size), np.empty(size)  # noqa: SLF001
    for cut in range(first, last, _RELEASED):
        piece = slice(cut, min(cut + _RELEASED, last))

        # `_fitting` looked at both ends of these values, so the integers need no check here.
        units = grid.checked_integers(values[piece], buffer[: piece.stop - cut])
        noise._add_chunk(units, start + cut, reader)  # noqa: SLF001
        publish_noise(units, grid, target[piece])


def prepare(
    owner: str, sums: _Numbers, grid: Grid, out: _Numbers | None
) -> tuple[_Numbers, _Numbers]:
    """Make all checks of a release; return sums and target as flat arrays, to work on in pieces."""
    return _fitting(grid, *_views(owner, sums, grid, out))


def _fitting(grid: Grid, values: _Numbers, target: _Numbers) -> tuple[_Numbers, _Numbers]:
    """Refuse what does not fit the grid; copy sums that a written piece would change."""
    # Rounding is monotone: if the ends fit, all values do. NaN is an end wherever it is.
    if values.size:
        grid.integers(np.array([np.minimum.reduce(values), np.maximum.reduce(values)]))

    if values.ctypes.data == target.ctypes.data and values.dtype == target.dtype:
        return values, target
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


def publish_noise(units: _Floats, grid: Grid, target: NDArray[np.floating]) -> None:
    """Write a release: noised integers times the spacing, exactly, then one cast of `units`."""
    with np.errstate(over="ignore", under="ignore"):
        np.multiply(units, grid.spacing, out=units)
        np.copyto(target, units, casting="same_kind")


@cache
def _compiled() -> ModuleType | None:
    # Numba is optional, and slow to import. It may be missing, or its libraries may not load.
    try:
        from discreet.randomness import _compiled as kernel  # noqa: PLC0415
    except (ImportError, OSError):
        return None
    kernel.compile_noise()
    return kernel


# Numbers that were announced or drawn in this process.
_asked_for: Counter[str] = Counter()


def announce_noise(numbers: int) -> None:
    """Say how many numbers are going to be drawn, so that many are compiled for from the start.

    Args:
        numbers: of a whole run; the noise is the same whatever is said here [public].
    """
    _asked_for["numbers"] += check.whole("announce_noise", "numbers", numbers, least=0)


def _backend() -> _Candidates:
    """Choose what computes candidates fastest; few numbers do not wait for numba to compile."""
    kernel = _compiled() if _asked_for["numbers"] >= _WORTH_COMPILING else None
    return box_muller.candidates if kernel is None else kernel.compiled_candidates


_per_thread = threading.local()


def _adder(candidates: _Candidates) -> _Candidates:
    """Turn candidates into a function that adds them; nothing is added for an undecided pair."""
    kernel = None if candidates is box_muller.candidates else _compiled()
    if kernel is not None and candidates is kernel.compiled_candidates:
        # The kernel adds in one go, without an array in between.
        add: _Candidates = kernel.add
        return add

    def adder(words: NDArray[np.uint64], scale: float, integers: _Floats) -> NDArray[np.intp]:
        # Memory that stays with the thread: fresh memory costs a tenth of the time.
        try:
            noise: _Floats = _per_thread.noise
        except AttributeError:
            noise = _per_thread.noise = np.empty(_PIECE)

        undecided = [np.empty(0, np.intp)]
        for start in range(0, words.size, _PIECE):
            piece = slice(start, start + _PIECE)
            target, numbers = integers[piece], noise[: words[piece].size]
            pairs = candidates(words[piece], scale, numbers)
            numbers.reshape(-1, 2)[pairs] = 0.0

            # -0.0 becomes 0.0: integers have no signed zero, and a release must not have one.
            numbers += 0.0
            target += numbers
            undecided.append(pairs + start // 2)
        return np.concatenate(undecided)

    return adder


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
