"""The data sets: one .npz file each, in the folder that `--data` names; none of them is part of
this repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from discreet.errors import DiscreetError

__all__ = ["DATA_SETS", "Arrays", "DataSet", "load"]

Arrays: TypeAlias = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Expected:
    """One array of a file.

    Attributes:
        kind: of its numbers, as NumPy abbreviates it: "u1" are bytes, "U" is text.
        shape: of one entry.
        entries: in the real file; small stand-ins have fewer.
    """

    kind: str
    shape: tuple[int, ...]
    entries: int

    def fits(self, array: NDArray[Any]) -> bool:
        """Whether this is such an array, of however many entries."""
        kind = array.dtype.kind if self.kind == "U" else array.dtype.str[1:]
        return kind == self.kind and array.shape[1:] == self.shape and len(array) > 0

    def __str__(self) -> str:
        numbers = "text" if self.kind == "U" else str(np.dtype(self.kind))
        return f"{numbers} {(self.entries, *self.shape)}"


@dataclass(frozen=True, slots=True)
class DataSet:
    """A public data set.

    Attributes:
        title: for people.
        about: what it is, and where it was first published.
        arrays: of its file, by name; none for a data set that a package brings along.
    """

    title: str
    about: str
    arrays: Mapping[str, Expected]


def _images(train: int, *shape: int) -> dict[str, Expected]:
    arrays: dict[str, Expected] = {}
    for part, entries in (("train", train), ("test", 10_000)):
        arrays |= {
            f"x_{part}": Expected("u1", shape, entries),
            f"y_{part}": Expected("u1", (), entries),
        }
    return arrays


DATA_SETS = {
    "mnist": DataSet("MNIST", "handwritten digits [LeCun1998]", _images(60_000, 28, 28)),
    "fashion-mnist": DataSet(
        "Fashion-MNIST", "pictures of clothes [Xiao2017]", _images(60_000, 28, 28)
    ),
    "cifar10": DataSet(
        "CIFAR-10", "small colour photographs [Krizhevsky2009]", _images(50_000, 32, 32, 3)
    ),
    "adult": DataSet(
        "Adult",
        (
            "census records, income above or below $50,000 [Kohavi1996]; the lines of adult.data "
            "and adult.test"
        ),
        {"train": Expected("U", (), 32_561), "test": Expected("U", (), 16_281)},
    ),
    "imdb": DataSet(
        "IMDb",
        "film reviews, good or bad [Maas2011]; one JSON text for each review",
        {"rows": Expected("U", (), 50_000)},
    ),
    "digits": DataSet(
        "digits", "handwritten digits of 8 x 8 pixels [Alpaydin1998]; part of scikit-learn", {}
    ),
}


def load(folder: Path, name: str) -> Arrays:
    """The arrays of a data set.

    Args:
        folder: where the files are.
        name: of the data set; its file is <name>.npz.

    Raises:
        DiscreetError: there is no such file, or another file than expected.
    """
    expected = DATA_SETS[name].arrays
    path = folder / f"{name}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: np.asarray(file[key]) for key in expected}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise _refused(name, f"{path}: {type(error).__name__}: {error}") from None
    for key, array in arrays.items():
        if not expected[key].fits(array):
            raise _refused(name, f"{path}, in which {key} is {array.dtype} {array.shape}")
    for part in ("train", "test"):
        if f"x_{part}" in arrays and len(arrays[f"x_{part}"]) != len(arrays[f"y_{part}"]):
            raise _refused(name, f"{path}, in which x_{part} and y_{part} differ in length")
    return arrays


def _refused(name: str, got: str) -> DiscreetError:
    wanted = ", ".join(f"{key}: {array}" for key, array in DATA_SETS[name].arrays.items())
    return DiscreetError(
        expected=f"{DATA_SETS[name].title} as a file {name}.npz (numpy.savez) with {wanted}",
        got=got,
        do=(
            "Get it by `python -m benchmarks.utility fetch`, or make that file, and name its "
            "folder with --data."
        ),
    )
