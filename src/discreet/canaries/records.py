"""Canaries for the data set itself: records that a model can only get right by remembering them.

What a canary looks like decides how far an attack gets, never whether its bound is valid: that
rests on the coins alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet import _validate as check
from discreet.canaries.canaries import source_or_fresh
from discreet.canaries.scores import array_of
from discreet.errors import ParameterError
from discreet.randomness import Purpose, Source
from discreet.randomness.draws import below

__all__ = ["mislabelled", "out_of_distribution"]

# Lanes of the purpose CANARY; its lane 0 has the coins.
_LABELS, _INPUTS = 1, 2
_LARGEST = float(np.finfo(np.float32).max)

# Random bits of an input: as many as float32 holds.
_BITS = np.uint64(24)


def mislabelled(
    labels: ArrayLike, classes: int, *, source: Source | None = None
) -> NDArray[np.int64]:
    """Draw a wrong label for each record, uniform over the classes that are not its own.

    Args:
        labels: of the records, whole numbers from 0 to classes - 1.
        classes: how many there are, at least 2.
        source: of the choice; a fresh one from the operating system by default. It serves one call.

    >>> wrong = mislabelled([3, 3, 0], classes=10)
    >>> bool((wrong != [3, 3, 0]).all()), wrong.shape
    (True, (3,))
    """
    owner = "mislabelled"
    number = check.whole(owner, "classes", classes, least=2)

    right = array_of(labels)
    expected = f"whole numbers from 0 to {number - 1}, one for each record, at least one"
    if right.ndim != 1 or right.dtype.kind not in "iu" or not right.size:
        got = f"{right.dtype}, shape {right.shape}"
        raise ParameterError(owner=owner, name="labels", expected=expected, got=got)

    if right.min() < 0 or right.max() >= number:
        raise ParameterError(owner=owner, name="labels", expected=expected, got="some beyond")

    # From 1 to number - 1 classes further on: never back to the right one.
    stream = source_or_fresh(owner, source).stream(Purpose.CANARY, step=0, lane=_LABELS)
    steps = 1 + below(stream, number - 1, right.size)
    return (right.astype(np.int64) + steps) % number


def out_of_distribution(
    count: int,
    shape: tuple[int, ...],
    *,
    classes: int,
    low: float = 0.0,
    high: float = 1.0,
    source: Source | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Draw inputs that are noise, with labels that mean nothing.

    Every entry is uniform on 2^24 equally spaced numbers from `low` up to, not including, `high`;
    labels are uniform.

    Args:
        count: of the records, at least 1.
        shape: of one input, such as (1, 28, 28).
        classes: labels are 0 to classes - 1.
        low: the least entry.
        high: above every entry.
        source: as for `mislabelled`.

    Returns:
        Inputs of shape (count, *shape), and one label for each.

    >>> inputs, labels = out_of_distribution(5, (8, 8), classes=10)
    >>> inputs.shape, labels.shape
    ((5, 8, 8), (5,))
    """
    owner = "out_of_distribution"
    number = check.whole(owner, "count", count, least=1)
    kinds = check.whole(owner, "classes", classes, least=1)
    check.instance(owner, "shape", shape, tuple)
    sizes = [check.whole(owner, "shape", size, least=1) for size in shape]
    bottom, top = check.real(owner, "low", low), check.real(owner, "high", high)

    # Inputs are float32, as models take them: bounds beyond it would become infinite.
    if not bottom < top:
        expected = f"above low={bottom!r}"
        raise ParameterError(owner=owner, name="high", expected=expected, got=repr(top))

    if max(-bottom, top) > _LARGEST:
        expected = f"with low, numbers of float32, at most {_LARGEST:.4g}"
        raise ParameterError(owner=owner, name="high", expected=expected, got=repr(top))

    # The upper bits of each word are a whole number below 2^24, and the share an exact float.
    bits = source_or_fresh(owner, source)
    words = bits.stream(Purpose.CANARY, step=0, lane=_INPUTS).words(number * math.prod(sizes))
    shares = (words >> (np.uint64(64) - _BITS)).astype(np.float64) / 2.0 ** int(_BITS)
    inputs = bottom + (top - bottom) * shares

    # From a lane of their own: no bit is read for two purposes.
    labels = below(bits.stream(Purpose.CANARY, step=0, lane=_LABELS), kinds, number)
    return inputs.astype(np.float32).reshape(number, *sizes), labels
