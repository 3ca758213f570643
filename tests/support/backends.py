"""Backends of the noise that a test makes up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.randomness import ziggurat
from discreet.randomness.ziggurat import Backend


def broken(error: BaseException) -> Backend:
    """Every number raises this."""

    def release(*_: Any) -> Any:
        raise error

    return ziggurat.IN_NUMPY._replace(release=release, decide=release)


def _nothing_decided(
    words: NDArray[np.uint64],
    scale: float,
    sums: NDArray[np.floating],
    spacing: float,
    out: NDArray[np.floating],
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    units = np.rint(np.asarray(sums, np.float64) / spacing)
    out[:] = np.nan
    return np.arange(words.size), units


def _nothing_tried(
    first: NDArray[np.uint64], further: NDArray[np.uint64], scale: float
) -> tuple[NDArray[np.float64], int]:
    return np.full(first.size, np.nan), int(np.count_nonzero(ziggurat.is_outside(first)))


# No fast path at all.
LAZY = ziggurat.IN_NUMPY._replace(release=_nothing_decided, decide=_nothing_tried)
