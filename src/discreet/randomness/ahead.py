"""Noise computed ahead: on a background thread, while the step computes the sums.

Noise does not depend on data, so it can be drawn while gradients are computed; on a core that is
free it costs no time at all. The numbers are those of `gaussian.release`, and so is the proof
(docs/proofs/noise.md): which thread draws a number does not change it.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from discreet import _validate as check
from discreet._process import Misuse, SingleUse
from discreet.errors import ParameterError, RandomnessMisuse
from discreet.numerics.grid import Grid
from discreet.randomness.gaussian import GaussianNoise, nan_on_failure, prepare
from discreet.randomness.source import Stream

__all__ = ["NoiseAhead", "publish_noise"]

# Numbers released at a time: what lies between grid and release stays in the cache.
_CHUNK = 2**14

# Numbers between two looks at whether somebody still wants them.
_PIECE = 2**20


_DO = "Ask the source for the stream of a new step or lane."
_COPIED = Misuse(RandomnessMisuse, expected="noise that is given out once", do=_DO)
_FORKED = Misuse(
    RandomnessMisuse, expected="the process that draws the noise", got="a fork of it", do=_DO
)
_USED = Misuse(
    RandomnessMisuse,
    expected="noise that is still to be used",
    got="noise that was used or given up before",
    do=_DO,
)


class NoiseAhead(SingleUse, copied=_COPIED, forked=_FORKED):
    """The noise of one release, drawn in the background. `release` waits for it and uses it, once.

    Guarantee: as `gaussian.release`, and the same numbers. The stream is claimed at once, so noise
    that is given up (`close`, an exception, a lost reference, a fork) is gone: nothing can draw it
    again.

    It holds 8 bytes per number. Make one when a step begins, use it when the step's sums are ready.

    | case | what happens |
    |---|---|
    | `size` 0 | the release of an empty array is empty |
    | sums with NaN, infinities or too large | `NumericsError`; the noise can still be used |
    | a second `release`, or one after `close` | `RandomnessMisuse` |
    | `noise_std` of 0, infinite or NaN | `ParameterError`; the stream is unused |
    | an interruption of `release` | the target is NaN everywhere; the noise is used up |

    >>> from discreet.randomness import Purpose, Source
    >>> grid = Grid.for_noise(noise_std=1.1, clip_norm=1.0)
    >>> stream = Source.system().stream(Purpose.NOISE, step=0)
    >>> with NoiseAhead(stream, grid=grid, noise_std=1.1, size=6) as noise:
    ...     sums = np.ones((2, 3), np.float32)  # the work of the step
    ...     noise.release(sums).shape
    (2, 3)

    Args:
        stream: of the purpose noise, for this release only [secret].
        grid: where sums and noise live [public].
        noise_std: standard deviation on the sum [the sums' unit, public].
        size: how many numbers the release has [public].
        threads: how many threads may share the work.
    """

    __slots__ = ("_grid", "_size", "_thread", "_work")

    def __init__(
        self, stream: Stream, *, grid: Grid, noise_std: float, size: int, threads: int = 1
    ) -> None:
        super().__init__()
        self._grid = check.instance("NoiseAhead", "grid", grid, Grid)
        noise = GaussianNoise(stream, scale=grid.scale(noise_std), size=size, threads=threads)
        self._size = noise.size
        self._work = _Work(noise)

        # The thread holds the work and not this object, which can so be collected while it runs.
        self._thread = threading.Thread(target=self._work.run, name="noise ahead")
        self._thread.start()

    def release(
        self, sums: NDArray[np.floating], out: NDArray[np.floating] | None = None
    ) -> NDArray[np.floating]:
        """Release sums as `gaussian.release` does, with the noise drawn ahead.

        Args:
            sums: contiguous float32 or float64 array of any shape, `size` numbers [sensitive].
            out: where the release goes, may be `sums` itself; a new array if None.

        Raises:
            NumericsError: a sum is not finite or too large for the grid; the noise is still unused.
            RandomnessMisuse: the noise was used or given up before, or this is a fork.
            Exception: whatever stopped the background thread; nothing was released.
        """
        owner = "NoiseAhead.release"

        # In a fork the thread that we would wait for is not there, and the numbers may be.
        self._refuse_fork()
        values, target = prepare(owner, sums, self._grid, out)
        if values.size != self._size:
            raise ParameterError(
                owner=owner, name="sums", expected=f"{self._size} numbers", got=f"{values.size}"
            )

        # Everything about the sums was checked above: from here on the noise is used up.
        self._thread.join()
        numbers = self._work.hand_over()

        with nan_on_failure(target):
            for start in range(0, values.size, _CHUNK):
                piece = slice(start, start + _CHUNK)

                # `prepare` looked at both ends of these values, so the integers need no check here.
                units = np.empty(values[piece].size)
                self._grid.checked_integers(values[piece], units)
                units += numbers[piece]
                publish_noise(units, self._grid, target[piece])

        return target.reshape(sums.shape) if out is None else out

    def close(self) -> None:
        """Give up what was not used, and wait for the background thread; once is enough."""
        self._work.unwanted.set()

        # A fork has no such thread that it could wait for.
        if self._at_home:
            self._thread.join()

        self._work.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"NoiseAhead(size={self._size}, {'ready' if self._work.ready else 'not ready'})"


def publish_noise(units: NDArray[np.float64], grid: Grid, target: NDArray[np.floating]) -> None:
    """Write a release: noised integers times the spacing, exactly, then one cast of `units`."""
    with np.errstate(over="ignore", under="ignore"):
        np.multiply(units, grid.spacing, out=units)
        np.copyto(target, units, casting="same_kind")


class _Work:
    """The numbers that the background thread fills and their owner takes."""

    __slots__ = ("_error", "_lock", "_noise", "_numbers", "ready", "unwanted")

    def __init__(self, noise: GaussianNoise) -> None:
        self._noise = noise
        self._numbers: NDArray[np.float64] | None = np.zeros(noise.size)
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self.ready = False
        self.unwanted = threading.Event()

    def run(self) -> None:
        numbers = self._numbers

        try:
            for start in range(0, self._noise.size, _PIECE):
                if self.unwanted.is_set() or numbers is None:
                    return

                # Zeros are integers: `add_to` would check what is known.
                piece = numbers[start : start + _PIECE]
                self._noise._release(piece, piece, 1.0)  # noqa: SLF001

            self.ready = True
        except Exception as error:  # noqa: BLE001  (raised where somebody waits for the noise)
            self._error = error

    def hand_over(self) -> NDArray[np.float64]:
        """Give out the numbers, once.

        They are gone from here before anybody uses them, so that no interruption lets them come
        twice.
        """
        with self._lock:
            numbers, self._numbers = self._numbers, None

        if self._error is not None:
            raise self._error

        if numbers is None or not self.ready:
            raise _USED.error()

        return numbers

    def forget(self) -> None:
        with self._lock:
            self._numbers = None
