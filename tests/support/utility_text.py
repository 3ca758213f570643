"""Small stand-ins for Adult and IMDb, as files of the same form, that can be learned."""

import json
from pathlib import Path

import numpy as np

RICH = (
    "45, Private, 1000, Masters, 14, Married-civ-spouse, Exec-managerial, Husband, White, Male, "
    "15024, 0, 50, Cuba, >50K"
)
POOR = (
    "22, ?, 2000, HS-grad, 9, Never-married, Sales, Own-child, Black, Female, 0, 0, 20, Atlantis, "
    "<=50K"
)


def write_adult(folder: Path, *, train: int = 240, test: int = 60) -> Path:
    """adult.npz: two kinds of people, one of them rich; lines for testing end with a point, as they
    do in the original.
    """
    path = folder / "adult.npz"
    lines = np.array([RICH, POOR] * ((train + 1) // 2))[:train]
    np.savez(
        path, train=lines, test=np.char.add(np.array([RICH, POOR] * ((test + 1) // 2))[:test], ".")
    )
    return path


def write_imdb(folder: Path, *, reviews: int = 400) -> Path:
    """imdb.npz: words that all reviews use, and one that only good or only bad ones use; in the
    order of the original.
    """
    draw = np.random.default_rng(0)
    rows = []
    for good in (0, 1):
        for _ in range(reviews // 2):
            common = [f"word{chr(97 + number)}" for number in draw.integers(0, 20, 8)]
            rows.append(
                json.dumps({"t": " ".join([*common, ("Awful!", "GREAT")[good]]), "s": good})
            )
    path = folder / "imdb.npz"
    np.savez(path, rows=np.array(rows))
    return path
