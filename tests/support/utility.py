"""Small stand-ins for the data sets of `benchmarks.utility`, as files of the same form, that can be
learned.
"""

from pathlib import Path

import numpy as np
from benchmarks.utility.data import DATA_SETS
from numpy.typing import NDArray

import discreet as dp

CLASSES = 10


def epsilon_of_charges(ledger: dp.Ledger, delta: float) -> float:
    """What the steps of a ledger cost. With a test key there is no guarantee, and a void ledger has
    no number itself.
    """
    counted = ledger.verify().snapshot().counted()
    return dp.account(counted, delta=delta, adjacency=dp.Adjacency.ADD_OR_REMOVE).upper


def write_images(folder: Path, name: str, *, train: int = 240, test: int = 60) -> Path:
    """<name>.npz for a data set of images: each class is one random pattern, each image that
    pattern with noise.
    """
    shape = DATA_SETS[name].arrays["x_train"].shape
    draw = np.random.default_rng(0)
    patterns = draw.integers(0, 256, (CLASSES, *shape))
    arrays: dict[str, NDArray[np.uint8]] = {}
    for part, records in (("train", train), ("test", test)):
        labels = np.arange(records) % CLASSES
        noisy = patterns[labels] + draw.normal(0.0, 20.0, (records, *shape))
        arrays |= {
            f"x_{part}": noisy.clip(0, 255).astype(np.uint8),
            f"y_{part}": labels.astype(np.uint8),
        }
    path = folder / f"{name}.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path
