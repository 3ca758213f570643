"""Public arrays as part of a released model: read-only, in files that execute nothing.

A file is an npz without pickles: the arrays, and under `_KIND` the name of the class that wrote it.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet._files import checked_path, publish
from discreet.errors import LedgerExists, LedgerUnavailable, ParameterError

__all__ = ["load_arrays", "read_only", "save_arrays"]

_KIND = "discreet.features"


def read_only(array: NDArray[Any]) -> NDArray[np.float64]:
    """Copy an array in float64, so that nobody can change it."""
    # A released value must stay what was released, whoever holds a reference to it.
    copy = np.array(array, np.float64)
    copy.setflags(write=False)
    return copy


def save_arrays(owner: str, path: object, arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Write a new npz file, whole or not at all.

    Raises:
        ParameterError: in the name of the owner: no path, something is there, or the folder does
            not allow it.
    """
    place = checked_path(owner, path)

    # Made in memory first, so that the file is written whole or not at all.
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **{_KIND: np.array(owner)}, **arrays)

    def write(draft: Path) -> None:
        draft.write_bytes(content.getvalue())

    try:
        publish(place, write)

    # The errors of `publish` speak of ledgers: here the parameter is named instead.
    except (LedgerExists, LedgerUnavailable) as wrong:
        raise ParameterError(
            owner=owner,
            name="path",
            expected="where nothing is yet, in a folder to write to",
            got=wrong.got,
        ) from None


def load_arrays(owner: str, path: object, names: tuple[str, ...]) -> dict[str, NDArray[np.float64]]:
    """Read what `save` wrote under the same owner.

    Raises:
        ParameterError: no such file, or another one.
    """
    place = checked_path(owner, path)

    try:
        with np.load(place, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}

        right = str(arrays.pop(_KIND)) == owner and set(arrays) == set(names)

    # What NumPy raises for files that are no npz, cut off, damaged, or hold pickles.
    except (
        OSError,
        EOFError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
    ):
        right = False

    if not right or any(array.dtype != np.float64 for array in arrays.values()):
        raise ParameterError(
            owner=owner,
            name="path",
            expected=f"a file that {owner}.save wrote",
            got="none, or another",
        )

    return arrays
