"""Texts as bags of hashed words. Nothing is learned from the texts, not even a vocabulary: hashing
needs none.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["bags"]

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[0-9]+|[!?]")


def bags(
    texts: Sequence[str], *, buckets: int, length: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The different words of each text, as numbers of buckets, and which places are taken: 1 there,
    0 behind the last word.

    Args:
        texts: one for each record.
        buckets: into which words are hashed.
        length: places of a bag; the first different words of a text are kept.
    """
    numbers = np.zeros((len(texts), length), np.int64)
    taken = np.zeros((len(texts), length), np.float32)
    for row, text in enumerate(texts):
        words = dict.fromkeys(
            _WORD.findall(text.lower().replace("<br />", " "))
        )  # a set that keeps its order
        hashed = list(dict.fromkeys(zlib.crc32(word.encode()) % buckets for word in words))[:length]
        numbers[row, : len(hashed)] = hashed
        taken[row, : len(hashed)] = 1.0
    return numbers, taken
